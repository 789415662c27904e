import json
from dataclasses import replace

import pytest
import torch

import shoal
from shoal.config.geometry import GeometryConfig
from shoal.config.objectives import AccuracyConfig
from shoal.core.mask import Mask
from shoal.data import Tokenisation, load_any
from shoal.engine.runners import WholeRunner
from shoal.geometry.bench import Bench
from shoal.geometry.interventions import removed, scaled
from shoal.geometry.points import scaling_points
from shoal.geometry.records import Geometry
from shoal.geometry.stack import llm_stack
from shoal.models.replay import Replay
from shoal.objectives.build import build_objective
from shoal.pipeline.geometry import cost
from shoal.pipeline.geometry import run as stage
from shoal.pipeline.geometry.language import check_language, open_language
from shoal.pipeline.geometry.losses import losses_on
from shoal.pipeline.geometry.parts import Parts, in_order, scaled_ends
from shoal.pipeline.geometry.subject import tokens_of
from shoal.pipeline.geometry.texts import batches_of, read_sequences
from shoal.pipeline.listener import Listener
from shoal.testing.families import FAMILIES
from shoal.testing.tiny import tiny_model, tiny_tokenizer

MASK = Mask.of(6, [2, 3])

HOW = {"limit": 8, "length": 24, "tokenisation": Tokenisation(), "batch_tokens": 128}


@pytest.fixture
def files(tmp_path):
    """A task of each kind, in files of one's own."""

    def write(name, rows):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return {
        "choice": write(
            "choice",
            [
                {"prompt": "the cat sat" + " on" * (i % 3) + f" {i}", "choices": [" a", " it"]}
                | {"gold": i % 2}
                for i in range(20)
            ],
        ),
        "prompt": write(
            "prompt",
            [{"prompt": f"what is {i} and {i * i} and {i}", "answer": [i]} for i in range(20)],
        ),
        "open": write("open", [{"prompt": f"then came {i} of them"} for i in range(20)]),
        "text": write("text", [{"text": f"one of {i} lines, which goes on. "} for i in range(40)]),
    }


@pytest.fixture
def options(files, tmp_path, monkeypatch):
    """Options of a small geometry that draws nothing."""
    monkeypatch.setattr(stage, "can_draw", lambda listener: False)
    return {
        **{"id": files["choice"], "ood": files["prompt"], "items": 10, "loss_items": 6},
        **{"surrogate_tokens": 100, "alphas": (0, 0.5, 1), "out": str(tmp_path / "out")},
    }


def opened(dense, options, mask=MASK):
    """A loaded subject."""
    config = GeometryConfig.read({k: v for k, v in options.items() if k != "out"})
    source = check_language(config, dense)
    return config, open_language(source, config, mask, Listener(), any_model=False)


def by_whole_model(dense, losses, mask):
    """Losses by the model's own forward and full logits, with what is removed swapped out."""
    runner = WholeRunner(dense, Replay(dense).returns_tensors(losses.objective.batches[0].tokens))
    found = torch.empty(losses.num_examples, dtype=torch.float64)
    for batch in losses.objective.batches:
        ((_, scorer),) = runner.run(None, batch.tokens, [mask])
        with torch.inference_mode():
            found[list(batch.examples)] = losses.objective.losses(scorer, batch)
    return found.numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_the_whole_model_with_sites_removed(tiny_dense, files, family):
    dense = tiny_dense(family)
    stack = llm_stack(dense)
    losses = losses_on(load_any(files["choice"], purpose="report"), dense, stack, "margin", **HOW)
    dense_losses = losses()
    assert dense_losses == pytest.approx(by_whole_model(dense, losses, Mask.dense(6)), abs=2e-4)
    with removed(stack, MASK):
        pruned = losses()
    assert pruned == pytest.approx(by_whole_model(dense, losses, MASK), abs=2e-4)
    assert abs(pruned - dense_losses).max() > 1e-3
    assert (losses() == dense_losses).all()


@pytest.mark.parametrize(
    ("kind", "metric", "words"),
    [
        ("choice", "accuracy", "wrong"),
        ("prompt", "nll", "reference answer"),
        ("open", "nll", "no answer"),
        ("text", "nll", "text"),
    ],
)
def test_every_kind_of_data_has_a_loss(tiny_dense, files, kind, metric, words):
    dense = tiny_dense("llama")
    stack = llm_stack(dense)
    losses = losses_on(load_any(files[kind], purpose="report"), dense, stack, metric, **HOW)
    assert words in losses.metric
    with scaled(stack, {2: 0.0, 3: 0.0}):
        assert losses() == pytest.approx(by_whole_model(dense, losses, MASK), abs=1e-4)


def test_the_loss_without_a_head_that_can_be_taken_apart_is_the_same(
    tiny_dense, files, monkeypatch
):
    dense = tiny_dense("llama")
    stack = llm_stack(dense)
    data = load_any(files["prompt"], purpose="report")
    fast = losses_on(data, dense, stack, "nll", **HOW)
    monkeypatch.setattr("shoal.pipeline.geometry.losses.find_head", lambda *args: None)
    slow = losses_on(data, dense, stack, "nll", **HOW)
    with removed(stack, MASK):
        assert fast() == pytest.approx(slow(), abs=1e-5)


def test_the_answer_is_what_is_scored(tiny_dense, files):
    dense = tiny_dense("llama")
    data = load_any(files["prompt"], purpose="report")
    losses = losses_on(data, dense, llm_stack(dense), "nll", **HOW)()
    encode = dense.tokenizer
    for item, loss in zip(data.items, losses, strict=False):
        before = encode(item.prompt, add_special_tokens=False)["input_ids"]
        whole = encode(f"{item.prompt} {item.answers[0]}", add_special_tokens=False)["input_ids"]
        table = dense.module(torch.tensor([whole])).logits[0].log_softmax(-1)
        scores = [table[i - 1, whole[i]].item() for i in range(len(before), len(whole))]
        assert loss == pytest.approx(-sum(scores) / len(scores), abs=1e-5)


def test_accuracy_is_that_of_the_objective(tiny_dense, files):
    dense = tiny_dense("llama")
    data = load_any(files["choice"], purpose="report", limit=8)
    found = losses_on(data, dense, llm_stack(dense), "accuracy", **HOW)()
    objective = build_objective(AccuracyConfig(), data, dense, tokenisation=Tokenisation())
    assert objective.num_examples == len(found) == 8
    assert set(found) <= {0.0, 1.0}


def test_long_prompts_keep_their_end_and_it_is_said(tiny_dense, files):
    dense = tiny_dense("llama")
    config = GeometryConfig.read(
        {"id": files["prompt"], "ood": files["text"], "max_tokens": 8, "items": 5}
        | {"parts": "profiles", "bos": "always"}
    )
    notes = []
    data = load_any(files["prompt"], purpose="report")
    sequences = read_sequences(data, dense, config, 0, notes)
    assert len(sequences.profile) == 5
    for item, tokens in zip(data.items, sequences.profile, strict=False):
        whole = dense.tokenizer(item.prompt, add_special_tokens=False)["input_ids"]
        assert tokens == (dense.tokenizer.bos_token_id, *whole[-7:])
    assert "5 prompts of prompt.jsonl are longer than 8 tokens" in notes[0]


def test_states_leave_out_padding_and_the_first_positions():
    sequences = [(5, 6, 7), (5, 6, 7, 8, 9), (1, 2, 3, 4)]
    batches = batches_of(sequences, 10, 1)
    assert [len(batch.last) for batch in batches] == [2, 1]
    assert batches[0].inputs.input_ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 3, 4, 0]]
    assert batches[0].positions.tolist() == [
        [False, True, True, True, True],
        [False, True, True, True, False],
    ]
    assert batches[0].last.tolist() == [4, 3]


def test_surrogates_get_the_tokens_that_were_asked_for(tiny_dense, options):
    _, subject = opened(tiny_dense("llama"), options)
    for task in (subject.id, subject.ood):
        assert task.described["sequences"] == 10
        assert 160 <= task.described["surrogate_states"] < 200
    found = shoal.compare_geometry(tiny_dense("llama"), **options).geometry
    assert all(100 <= one.tokens < 130 for one in found.linear)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_measured(tiny_dense, options, family):
    dense = tiny_dense(family)
    found = shoal.compare_geometry(dense, plan=MASK, **options).geometry
    assert set(found.profiles) == {"id", "ood", "id_pruned", "ood_pruned"}
    assert len(found.profiles["id"].norm) == 7
    assert [one.layer for one in found.signatures if one.selected] == [2, 3]
    kinds = {point.intervention for point in found.points}
    assert kinds == {"dense", "removed", "scaled", "inverse", "random", "rotated"}
    # What is removed hands the state on.
    norms = found.profiles["ood_pruned"].norm
    assert norms[2].value == norms[3].value == norms[4].value


def test_the_written_record_is_the_returned_one(tiny_dense, options):
    result = shoal.compare_geometry(tiny_dense("llama"), plan=MASK, **options)
    text = (result.folder / "geometry.json").read_text()
    assert Geometry.model_validate_json(text) == result.geometry


def test_the_ends_of_scaling_are_what_scaling_gives(tiny_dense, options):
    config, subject = opened(tiny_dense("llama"), options)
    parts = Parts(config, subject, None, Listener())
    settings = replace(parts.settings, alphas=(0.0, 1.0))
    bench = Bench.of(subject.stack, subject.id.side, subject.ood.side)
    measured = scaling_points(bench, MASK, settings, subject.classes)
    found = shoal.compare_geometry(tiny_dense("llama"), plan=MASK, **options).geometry
    ends = [p for p in found.points if p.intervention == "scaled" and p.alpha in (0, 1)]
    assert len(ends) == 4
    assert ends == list(in_order(measured))
    assert scaled_ends(found.points, ()) == ()


def test_parts_of_blocks_are_removed_but_not_scaled(tiny_dense, options):
    mask = Mask.parse("-[2.attn,4.mlp]", 6)
    found = shoal.compare_geometry(tiny_dense("llama"), plan=mask, **options).geometry
    assert {point.intervention for point in found.points} == {"dense", "removed"}
    assert any("removes parts of blocks" in note for note in found.notes)


def test_without_a_plan_nothing_is_pruned(tiny_dense, options):
    found = shoal.compare_geometry(tiny_dense("llama"), **options).geometry
    assert set(found.profiles) == {"id", "ood"}
    assert found.points == ()
    assert found.mask is None


def test_results_do_not_depend_on_batches(tiny_dense, options, tmp_path):
    one, two = (
        shoal.compare_geometry(
            tiny_dense("qwen3"),
            plan=MASK,
            **{**options, "out": str(tmp_path / str(n)), "parts": ("profiles", "interventions")},
            batch_tokens=n,
        ).geometry
        for n in (64, 4096)
    )
    for name in ("norm", "distance", "cosine", "last_norm"):
        assert one.changes[name].after == pytest.approx(two.changes[name].after, rel=1e-4)
    for mine, theirs in zip(one.points[:4], two.points[:4], strict=True):
        assert mine.loss_ood.value == pytest.approx(theirs.loss_ood.value, rel=1e-4)


def test_a_model_object_is_left_as_it_was(options):
    model = tiny_model("llama")
    before = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    model.train()
    shoal.compare_geometry(model, tokenizer=tiny_tokenizer(), **options, remove=[2, 3])
    assert model.training
    assert before == {name: len(module._forward_hooks) for name, module in model.named_modules()}


def test_the_surrogates_of_a_task_are_shared_and_do_not_depend_on_its_side(
    tiny_dense, options, files, tmp_path
):
    shared = {**options, "store": str(tmp_path / "parts.sqlite")}
    first = shoal.compare_geometry(tiny_dense("llama"), plan=MASK, **shared).geometry
    swapped = {"id": files["prompt"], "ood": files["text"], "out": str(tmp_path / "swapped")}
    second = shoal.compare_geometry(tiny_dense("llama"), **{**shared, **swapped}).geometry
    assert [n for n, s in second.seconds.items() if s == 0] == ["surrogates prompt.jsonl"]
    mine = [one for one in first.linear if one.distribution == "ood"]
    theirs = [one for one in second.linear if one.distribution == "id"]
    assert [one.model_copy(update={"distribution": "id"}) for one in mine] == theirs


def test_the_estimate_counts_every_pass(tiny_dense, options, monkeypatch):
    monkeypatch.setattr(cost, "_timed", lambda work: (1.0, work()))
    # No block is fitted, so that passes alone count.
    monkeypatch.setattr(cost, "_fit", lambda parts: (0.0, 0.0))
    config, subject = opened(tiny_dense("llama"), options)

    def seconds(*names):
        asked = config.model_copy(update={"parts": names})
        return cost.cost_of(Parts(asked, subject, None, Listener())).seconds

    position = 1 / subject.probe.positions.numel()
    both = subject.id.tokens + subject.ood.tokens
    assert seconds("profiles") == pytest.approx(2 * both * position)
    fitted = sum(tokens_of(task.surrogate) for task in (subject.id, subject.ood))
    assert seconds("surrogates") == pytest.approx(fitted * position)
    # Dense, two masks removed and at half scale, two fits, an inverse and two random maps.
    losses = cost.SCORING * (subject.id.loss_tokens + subject.ood.loss_tokens)
    whole = 10 * (losses + subject.ood.tokens) + subject.id.tokens
    assert seconds("interventions") == pytest.approx(whole * position)
    assert seconds("profiles", "surrogates") == pytest.approx((2 * both + fitted) * position)
