"""Every site alone: against hooks written out here, and against pruned models."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask, Part, Site
from shoal.diagnosis.layers.final import left_out
from shoal.diagnosis.layers.layerwise import layerwise, layerwise_work, mark_removed
from shoal.diagnosis.layers.positions import chosen_steps, thinned_batches
from shoal.diagnosis.passages import Passage
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import dense_side
from shoal.diagnosis.spaces import Look
from shoal.engine.runners import WholeRunner
from shoal.models.batch import TokenBatch
from shoal.surgery.skipping import pruned_model

LENGTHS = ((7, 1), (5, 4), (9, 6))


def passages(lengths=LENGTHS) -> list[Passage]:
    generator = torch.Generator().manual_seed(0)

    def some(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(128, (count,), generator=generator).tolist())

    return [Passage(some(prompt), some(written)) for prompt, written in lengths]


def side_of(dense):
    return dense_side(dense, thinned_batches(passages(), 8, 1000)[0].tokens)


def run(dense, **options):
    given = {"positions": 3, "final": False, "batch_tokens": 32} | options
    return layerwise(side_of(dense), passages(), Look(), **given)


def rows_of(passage: Passage, positions: int) -> list[int]:
    """Positions that predict the chosen written tokens."""
    steps = chosen_steps(len(passage.written), positions)
    return [len(passage.prompt) - 1 + int(step) for step in steps]


def states_by_hand(dense, passage: Passage, layer: int) -> dict[str, torch.Tensor]:
    """What enters and leaves a block, and what its attention adds, of one text without padding."""
    block = dense.blocks.layers[layer]
    seen: dict[str, torch.Tensor] = {}

    def at_block(module, args, kwargs, output):
        hidden = args[0] if args else kwargs["hidden_states"]
        seen["entry"], seen["exit"] = hidden[0].clone(), output[0].clone()

    def at_attention(module, args, output):
        seen["update"] = output[0][0].clone()

    hooks = [
        block.register_forward_hook(at_block, with_kwargs=True),
        block.self_attn.register_forward_hook(at_attention),
    ]
    with torch.inference_mode():
        dense.module(torch.tensor([[*passage.prompt, *passage.written]]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


def kl_by_hand(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    log_p, log_q = z.double().log_softmax(-1), y.double().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def over_prompts(per_row) -> float:
    """Mean over prompts of the mean over the rows of each."""
    return float(np.mean([np.mean(np.asarray(values)) for values in per_row]))


@torch.inference_mode()
def by_hand(dense, site: Site) -> dict[str, float]:
    """The dropped mode of a sequential Llama or a parallel Cohere block, written out."""
    parallel = dense.config.model_type == "cohere"
    found: dict[str, list] = {}
    for passage in passages():
        seen = states_by_hand(dense, passage, site.layer)
        rows = rows_of(passage, 3)
        entry, leaving = seen["entry"][rows], seen["exit"][rows]
        half = entry + seen["update"][rows]
        if site.part is Part.BLOCK:
            x, y = leaving, entry
        elif site.part is Part.ATTN:
            x, y = half, entry
        else:
            x, y = (leaving - seen["update"][rows], entry) if parallel else (leaving, half)
        change = y - x
        a = (change * x).sum(-1) / (x * x).sum(-1)
        across = change - a[:, None] * x
        b = across.norm(dim=-1) / x.norm(dim=-1)
        norm, head = dense.module.model.norm, dense.module.lm_head
        scale = dense.config.logit_scale if parallel else 1.0
        values = {
            "raw hidden_parallel": a,
            "raw hidden_orthogonal": b,
            "raw hidden_gap": 1 - torch.cosine_similarity(x.double(), y.double(), dim=-1),
            "raw kl": kl_by_hand(scale * head(x), scale * head(y)),
            "normed kl": kl_by_hand(scale * head(norm(x)), scale * head(norm(y))),
            "normed hidden_gap": 1 - torch.cosine_similarity(norm(x), norm(y), dim=-1),
            "normed logit_gap": 1 - torch.cosine_similarity(head(norm(x)), head(norm(y)), dim=-1),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return {name: over_prompts(values) for name, values in found.items()}


@pytest.mark.parametrize("family", ["llama", "cohere"])
@pytest.mark.parametrize("text", ["2", "2.attn", "2.mlp", "0.attn", "5"])
def test_what_is_dropped_is_what_hooks_see(tiny_dense, family, text) -> None:
    dense = tiny_dense(family)
    row = next(row for row in run(dense).sites if row.site == text)
    for name, expected in by_hand(dense, Site.parse(text)).items():
        kind, quantity = name.split()
        found = (row.normed if kind == "normed" else row.raw)[quantity]
        assert found.value == pytest.approx(expected, rel=2e-4, abs=1e-6), name
        assert found.count == len(LENGTHS)


def test_the_change_is_what_the_site_adds_with_its_sign_turned(tiny_dense) -> None:
    dense = tiny_dense("llama")
    row = next(row for row in run(dense).sites if row.site == "3.attn")
    expected = []
    for passage in passages():
        seen = states_by_hand(dense, passage, 3)
        rows = rows_of(passage, 3)
        update = seen["update"][rows]
        x = seen["entry"][rows] + update
        expected.append(-(update * x).sum(-1) / (x * x).sum(-1))
    assert row.raw["hidden_parallel"].value == pytest.approx(over_prompts(expected), rel=1e-4)


@pytest.mark.parametrize("family", ["llama", "cohere", "falcon", "gpt_neox", "gemma2", "lfm2"])
def test_the_end_is_that_of_the_pruned_model(tiny_dense, family) -> None:
    dense = tiny_dense(family)
    found = run(dense, final=True, final_prompts=9)
    rows = {row.site: row for row in found.sites}
    # A sub-layer of falcon's or gpt_neox's block runs beside the other.
    for text in ("1", "1.attn", "4.mlp"):
        mask = Mask(dense.depth, frozenset({Site.parse(text)}))
        pruned = pruned_model(dense, mask)
        values = []
        for passage in passages():
            ids = torch.tensor([[*passage.prompt, *passage.written]])
            with torch.inference_mode():
                z = dense.module(ids, use_cache=False).logits[0, rows_of(passage, 3)]
                y = pruned(ids, use_cache=False).logits[0, rows_of(passage, 3)]
            values.append(kl_by_hand(z, y))
        assert rows[text].final["kl"].value == pytest.approx(over_prompts(values), rel=2e-4)
        assert rows[text].final["kl"].value > 1e-6
    assert not found.skipped


def test_there_is_a_row_per_site_with_all_quantities(tiny_dense) -> None:
    dense = tiny_dense("llama")
    found = layerwise(side_of(dense), passages(), Look(1.0, (3, 4)), positions=2, final_prompts=2)
    expected = [f"{i}{part}" for i in range(6) for part in ("", ".attn", ".mlp")]
    assert [row.site for row in found.sites] == expected
    assert (found.mode, found.prompts, found.positions) == ("dropped", 3, 1 + 2 + 2)
    for row in found.sites:
        assert set(row.normed) == set(row.final) == set(QUANTITIES)
        assert {"hidden_gap", "logit_gap", "probability_gap", "kl"} <= set(row.raw)
        assert row.normed["kl"].count == 3
        assert row.final["kl"].count == 2
    assert any("first 2 of 3" in note for note in found.notes)


def test_batches_and_padding_change_nothing(tiny_dense) -> None:
    dense = tiny_dense("llama")
    one, many = (run(dense, final=True, batch_tokens=n) for n in (1, 1000))
    for a, b in zip(one.sites, many.sites, strict=True):
        for mine, theirs in ((a.normed, b.normed), (a.raw, b.raw), (a.final, b.final)):
            assert mine["kl"].value == pytest.approx(theirs["kl"].value, rel=1e-4)


@pytest.mark.parametrize(
    ("written", "positions", "expected"),
    [(1, 8, [0]), (4, 1, [0]), (6, 3, [0, 2, 5]), (5, 8, [0, 1, 2, 3, 4]), (100, 2, [0, 99])],
)
def test_steps_are_spread_from_the_first_to_the_last(written, positions, expected) -> None:
    assert chosen_steps(written, positions).tolist() == expected


def test_rows_are_those_that_predict_the_chosen_tokens() -> None:
    texts = passages()
    for batch in thinned_batches(texts, 3, 1000):
        ids = batch.tokens.input_ids
        width = ids.shape[1]
        assert batch.tokens.segment.bincount().tolist() == [3, 3, 1]
        following = ids.reshape(-1)[batch.tokens.rows + 1]
        assert following.tolist() == batch.tokens.targets.tolist()
        for place, example in enumerate(batch.examples):
            rows = batch.tokens.rows[batch.tokens.segment == place] - place * width
            assert rows.tolist() == rows_of(texts[example], 3)


def test_a_removed_block_takes_its_parts_along(tiny_dense) -> None:
    mask = Mask.parse("-[2,4.attn]", depth=6)
    found = run(tiny_dense("llama"), removed=mask)
    marked = {row.site for row in found.sites if row.removed}
    assert marked == {"2", "2.attn", "2.mlp", "4.attn"}
    again = mark_removed(found, Mask.of(6, [0]))
    assert {row.site for row in again.sites if row.removed} == {"0", "0.attn", "0.mlp"}


@pytest.mark.parametrize("final", [False, True])
def test_progress_adds_up_to_the_work(tiny_dense, final) -> None:
    side = side_of(tiny_dense("llama"))
    heard: list[int] = []
    options = {"positions": 3, "final": final, "final_prompts": 2}
    layerwise(side, passages(), Look(), batch_tokens=16, on_step=heard.append, **options)
    assert sum(heard) == layerwise_work(side, passages(), **options)
    assert len(heard) > 18


def test_blocks_of_one_branch_are_taken_whole(tiny_dense) -> None:
    found = run(tiny_dense("mamba"), final=True)
    assert [row.site for row in found.sites] == [str(i) for i in range(6)]
    assert all(row.final["kl"].value > 0 for row in found.sites)
    assert any("only whole" in note for note in found.notes)


def run_whole(dense):
    side = replace(side_of(dense), runner=WholeRunner(dense, plain=True))
    return layerwise(side, passages(), Look(), positions=3)


def test_without_a_head_only_the_hidden_space_is_looked_at(tiny_dense, monkeypatch) -> None:
    monkeypatch.setattr("shoal.diagnosis.layers.layerwise.find_head", lambda dense, batch: None)
    found = run_whole(tiny_dense("llama"))
    hidden = {name for name, q in QUANTITIES.items() if q.space == "hidden"}
    for row in found.sites:
        assert not row.normed
        assert set(row.raw) == hidden
        assert row.final["kl"].value > 0
    assert any("hidden space" in note for note in found.notes)


def test_a_model_that_runs_whole_gives_the_same_numbers(tiny_dense) -> None:
    dense = tiny_dense("llama")
    whole, replayed = run_whole(dense), run(dense, final=True)
    for a, b in zip(whole.sites, replayed.sites, strict=True):
        for mine, theirs in ((a.normed, b.normed), (a.raw, b.raw), (a.final, b.final)):
            for name in ("hidden_gap", "kl", "attenuation"):
                assert mine[name].value == pytest.approx(theirs[name].value, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "why"), [("hrm_text", "exactly once"), ("xlnet", r"shape \(\d+, 1, 32\)")]
)
def test_where_sites_have_no_states_there_is_the_end_alone(tiny_dense, model, why) -> None:
    # As many texts as tokens: XLNet, with its positions first, must not pass for others.
    side, square = side_of(tiny_dense(model)), passages(((2, 2),) * 4)
    found = layerwise(side, square, Look(), positions=2)
    assert all(not row.normed and not row.raw and row.final for row in found.sites)
    assert any(re.search(why, note) for note in found.notes)


def test_what_the_model_type_refuses_is_skipped_with_the_reason(tiny_dense) -> None:
    dense = tiny_dense("gemma4_text")
    assert side_of(dense).runner.name == "whole"
    found = run(dense, final=True)
    assert all(row.normed["kl"].value > 0 for row in found.sites)
    assert set(found.skipped) == {"2", "3"}
    assert all("keys and values" in why for why in found.skipped.values())
    assert {row.site for row in found.sites if not row.final} == {"2", "3"}


class _Failing:
    """A runner that cannot run one mask."""

    def __init__(self, runner, mask: Mask, error: Exception) -> None:
        self.runner, self.mask, self.error = runner, mask, error

    def run(self, index, batch, masks):
        for mask, scorer in self.runner.run(index, batch, masks):
            if mask == self.mask:
                raise self.error
            yield mask, scorer


def failing(dense, error: Exception):
    side = side_of(dense)
    mask = Mask(6, frozenset({Site(3, Part.ATTN)}))
    return replace(side, runner=_Failing(side.runner, mask, error))


def ends(side) -> tuple[list[Site], dict[str, str]]:
    sites = [Site(i, part) for i in range(6) for part in Part]
    tokens = TokenBatch.scored_everywhere(torch.arange(12).view(1, 12))
    skipped: dict[str, str] = {}
    with torch.inference_mode():
        return [site for site, _ in left_out(side, sites, tokens, skipped)], skipped


def test_a_site_that_cannot_be_run_is_skipped_and_the_others_are_not(tiny_dense) -> None:
    found, skipped = ends(failing(tiny_dense("llama"), UnsupportedModelError("not this one")))
    assert skipped == {"3.attn": "not this one"}
    assert len(found) == len(set(found)) == 17


def test_an_error_without_a_known_reason_is_raised(tiny_dense) -> None:
    with pytest.raises(RuntimeError, match="out of order"):
        ends(failing(tiny_dense("llama"), RuntimeError("out of order")))
