import json

import pytest
import torch

import shoal
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.diagnosis.records import Diagnosis
from shoal.models.load import load_dense
from shoal.pipeline.diagnosis import run as stage
from shoal.surgery.skipping import pruned_model
from shoal.testing.families import FAMILIES
from shoal.testing.tiny import tiny_model, tiny_tokenizer


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Options of a small diagnosis that draws nothing."""
    monkeypatch.setattr(stage, "can_draw", lambda listener: False)
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"prompt": f"what is {i} and then {i * i} more?", "answer": "no"} for i in range(4)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    choices = tmp_path / "choices.jsonl"
    rows = [
        {"prompt": f"the cat {i} sat on", "choices": [" a mat", " the hat", " it"], "gold": i % 3}
        for i in range(6)
    ]
    choices.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        **{"prompts": str(prompts), "texts": str(prompts), "tasks": str(choices), "steps": 6},
        **{"seeds": (0,), "layer_positions": 2, "out": str(tmp_path / "out"), "short_steps": 3},
    }


def removable(dense):
    """A small mask that the architecture can express, from the top."""
    depth = dense.depth
    runs = [range(i, i + n) for n in (1, 2, 4) for i in range(depth - n - 1, -1, -1)]
    for run in runs:
        mask = Mask.of(depth, run)
        try:
            pruned_model(dense, mask)
        except UnsupportedModelError:
            continue
        return mask
    raise AssertionError("nothing can be removed")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_diagnosed(family, options):
    dense = load_dense(tiny_model(family), tokenizer=tiny_tokenizer())
    found = shoal.diagnose(dense, plan=removable(dense), **options).diagnosis
    assert [v.use for v in found.verdicts] == ["choice", "retrieval", "short", "long"]
    assert found.teacher_forced.overall["kl"].value > 0
    assert found.teacher_forced.overall["kl"].value < found.teacher_forced.overall["kl_bound"].value
    assert len(found.free_runs.runs) == 5
    assert any(row.normed or row.final for row in found.layerwise.sites)


def test_the_written_record_is_the_returned_one(options, tmp_path):
    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    result = shoal.diagnose(dense, plan=Mask.of(6, [2]), **options)
    text = (result.folder / "diagnosis.json").read_text()
    assert Diagnosis.model_validate_json(text) == result.diagnosis


def test_model_objects_are_compared_and_left_as_they_were(options):
    one, two = tiny_model("llama"), tiny_model("llama", seed=1)
    one.train()
    found = shoal.diagnose(one, against=two, tokenizer=tiny_tokenizer(), **options).diagnosis
    assert one.training
    assert found.other.kind == "checkpoint"
    assert found.layerwise.mode == "replaced"
    assert found.worst == "broken"


def test_a_checkpoint_that_differs_in_one_token_is_another(options):
    one, two = tiny_model("llama"), tiny_model("llama")
    tokenizer = tiny_tokenizer()
    with torch.no_grad():
        # A token of one prompt only.
        two.model.embed_tokens.weight[tokenizer("9")["input_ids"][-1]] += 0.5
    found = shoal.diagnose(one, against=two, tokenizer=tokenizer, **options).diagnosis
    assert found.teacher_forced.overall["kl"].value > 0


def test_modes_of_parts_of_both_models_are_put_back(options):
    one, two = tiny_model("llama"), tiny_model("llama", seed=1)
    two.train()
    two.model.layers[1].eval()
    shoal.diagnose(
        one, against=two, tokenizer=tiny_tokenizer(), **{**options, "probes": ("retrieval",)}
    )
    assert not one.training
    assert two.training
    assert not two.model.layers[1].training
    assert two.model.layers[2].training


def test_a_copy_that_does_not_run_in_another_precision_is_no_control(options, monkeypatch):
    def broken(*args):
        raise RuntimeError("expected m1 and m2 to have the same dtype")

    monkeypatch.setattr("shoal.pipeline.diagnosis.probes.rounded_side", broken)
    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    found = shoal.diagnose(dense, plan=Mask.of(6, [2]), **options).diagnosis
    assert [r.name for r in found.free_runs.runs if r.control] == ["dense, another seed"]
    assert any("no control in another precision" in note for note in found.notes)


def test_the_same_object_is_no_other_model(options):
    model = tiny_model("llama")
    with pytest.raises(UsageError, match="nothing was removed"):
        shoal.diagnose(model, against=model, tokenizer=tiny_tokenizer(), **options)


def test_another_vocabulary_is_refused(options):
    one = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["something"])
    two = load_dense(tiny_model("llama", seed=1), tokenizer=tokenizer)
    with pytest.raises(UsageError, match="another vocabulary"):
        shoal.diagnose(one, against=two, **options)


def test_another_hidden_size_is_compared_where_it_can_be(options):
    one = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    wide = tiny_model("llama").config
    wide.hidden_size, wide.head_dim, wide.depth = 64, 16, 4
    two = load_dense(type(one.module)(wide), tokenizer=tiny_tokenizer())
    found = shoal.diagnose(one, against=two, **options).diagnosis
    assert "hidden_gap" not in found.teacher_forced.overall
    assert found.teacher_forced.overall["kl"].value > 0
    assert found.layerwise.mode == "dropped"
    assert found.retrieval[0].hidden_gap is None


def test_results_do_not_depend_on_batches(options, tmp_path):
    dense = load_dense(tiny_model("qwen3"), tokenizer=tiny_tokenizer())
    found = [
        shoal.diagnose(
            dense,
            plan=Mask.of(6, [3]),
            **{**options, "out": str(tmp_path / str(n))},
            batch_tokens=n,
        ).diagnosis
        for n in (64, 4096)
    ]
    for one, two in zip(*[f.free_runs.runs[:2] for f in found], strict=True):
        assert one.first_divergence == two.first_divergence
        assert one.flip_rate == two.flip_rate
    one, two = (f.teacher_forced.overall for f in found)
    for name in ("kl", "hidden_gap", "probability_gap", "subspace_kl"):
        assert one[name].value == pytest.approx(two[name].value, rel=1e-3, abs=1e-7)


def test_sites_that_cannot_be_replaced_are_dropped_and_it_is_said(options):
    one, two = (
        load_dense(tiny_model("gemma3n_text", seed=seed), tokenizer=tiny_tokenizer())
        for seed in (0, 1)
    )
    layers = shoal.diagnose(
        one, against=two, **{**options, "probes": ("layerwise",)}
    ).diagnosis.layerwise
    assert layers.mode == "dropped"
    assert layers.notes[0].startswith("sites are dropped, not replaced")
    assert any(row.normed or row.final for row in layers.sites)
