"""Every command on a tiny model, as a user types it."""

import json

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from shoal.core.plan import Plan

SMALL = ("--length", 24, "--limit", 6)


def test_prune_searches_exports_and_measures(shoal, tiny_folder, data_dir, tmp_path):
    code, out, err = shoal(
        "prune", tiny_folder, "--objective", "margin", "--task", "arc_easy", "--data-dir",
        data_dir, "--remove", "34%", "--protect", "0,5", "--out", "small", "--evaluate",
        "arc_easy,wikitext2", "--evaluate-limit", 4, *SMALL,
    )  # fmt: skip
    assert code == 0, err
    assert "estimated" in err
    assert "removed:" in out
    assert "kept:" in out
    assert "arc_easy accuracy" in out
    assert "wikitext2 perplexity" in out
    assert "decode" in out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert model.config.num_hidden_layers == 4
    plan = Plan.load(tmp_path / "small")
    assert len(plan.mask.sublayers) == 2 * 2
    assert not {0, 5} & set(plan.mask.blocks)
    report = json.loads((tmp_path / "small/shoal_report.json").read_text())
    assert [m["name"] for m in report["models"]] == ["dense", "pruned"]
    card = (tmp_path / "small/README.md").read_text()
    metric = report["models"][1]["metrics"][0]
    assert f"{metric['value']:.4f}" in card


def test_the_stages_alone_give_the_same_model(shoal, tiny_folder, data_dir, tmp_path):
    options = ("--objective", "nll", "--data-dir", data_dir, "--remove", 2, *SMALL)
    assert shoal("search", tiny_folder, *options, "--run-dir", "run")[0] == 0
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"config.yaml", "plan.json", "evaluations.sqlite", "environment.json"} <= names
    assert shoal("export", "run", "--out", "out")[0] == 0
    code, out, _ = shoal(
        "prune", tiny_folder, *options, "--run-dir", "other", "--out", "once", "--json"
    )
    assert code == 0
    assert Plan.load(tmp_path / "out").mask == Plan.load(tmp_path / "once").mask
    report = json.loads(out)
    assert report["models"][1]["mask"] == Plan.load(tmp_path / "run").mask.to_json()
    tasks = (
        "--tasks",
        "wikitext2,arc_easy",
        "--data-dir",
        data_dir,
        "--length",
        24,
        "--limit",
        4,
        "--json",
        "--no-speed",
    )
    code, out, _ = shoal("evaluate", tiny_folder, "--plan", "run/plan.json", *tasks)
    assert code == 0
    masked = json.loads(out)["models"][1]["metrics"]
    code, out, _ = shoal("evaluate", "out", *tasks)
    written = json.loads(out)["models"][0]["metrics"]
    for a, b in zip(masked, written, strict=True):
        assert a["value"] == pytest.approx(b["value"], abs=1e-5)


def test_a_finished_search_runs_again_without_work(shoal, tiny_folder, data_dir, tmp_path):
    options = (
        "--objective",
        "nll",
        "--data-dir",
        data_dir,
        "--remove",
        2,
        *SMALL,
        "--run-dir",
        "r",
    )
    shoal("search", tiny_folder, *options)
    before = Plan.load(tmp_path / "r")
    code, out, err = shoal("search", tiny_folder, *options)
    assert code == 0
    assert "known from before" in err
    assert "masks in" not in out
    after = Plan.load(tmp_path / "r")
    assert (after.mask, after.score) == (before.mask, before.score)
    code, _, err = shoal("search", tiny_folder, *options, "--seed", 1)
    assert code == 2
    assert "holds another run: its seed" in err


def test_run_reads_yaml_and_flags_override_it(shoal, tiny_folder, data_dir, tmp_path):
    config = {
        "model": str(tiny_folder),
        "data_dir": str(data_dir),
        "objective": {"name": "margin", "pair": "max"},
        "search": {"name": "random", "samples": 5},
        "limit": 4,
        "remove": 1,
        "out": "from-yaml",
        "evaluate_limit": 2,
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    code, out, err = shoal("validate", "c.yaml")
    assert code == 0, err
    assert "samples: 5" in out
    flags = ("--remove", 3, "--search.samples", 4, "--out", "flagged")
    assert shoal("run", "c.yaml", *flags)[0] == 0
    plan = Plan.load(tmp_path / "flagged")
    assert len(plan.mask.sublayers) == 2 * 3
    assert plan.search == {"name": "random", "samples": 4, "batch": 64}
    assert plan.data["objective"]["pair"] == "max"
    assert not (tmp_path / "from-yaml").exists()


@pytest.mark.parametrize("deep", [True, False])
def test_inspect_shows_the_block_map(shoal, tmp_path, deep):
    from shoal.testing.tiny import save_tiny

    folder = save_tiny("gemma2", tmp_path / "gemma")
    flag = () if deep else ("--no-deep",)
    code, out, err = shoal("inspect", folder, *flag)
    assert code == 0, err
    assert "Gemma2ForCausalLM" in out
    assert "sliding_attention" in out
    assert "full_attention" in out
    assert "layer_types" in out
    assert "sliced" in out
    assert ("replay" in out) is deep
    code, out, _ = shoal("inspect", folder, *flag, "--json")
    assert json.loads(out)["depth"] == 6


@pytest.mark.parametrize(
    ("what", "name"), [("objectives", "margin"), ("searches", "brute_force"), ("tasks", "piqa")]
)
def test_ls(shoal, what, name):
    code, out, _ = shoal("ls", what)
    assert code == 0
    assert name in out


def test_options_of_a_part(shoal, tiny_folder, data_dir, tmp_path):
    code, _, err = shoal(
        "search", tiny_folder, "--data-dir", data_dir, "--search", "random", "--search.samples", 3,
        "--remove", 2, "--run-dir", "r", *SMALL,
    )  # fmt: skip
    assert code == 0, err
    assert Plan.load(tmp_path / "r").search["samples"] == 3


def test_python_takes_model_objects(tiny_dense, data_dir, tmp_path):
    import shoal

    dense = tiny_dense("qwen3")
    result = shoal.prune(
        dense.module, tokenizer=dense.tokenizer, objective="margin", task="arc_easy", remove=2,
        data_dir=str(data_dir), limit=6, out=tmp_path / "out", run_dir=tmp_path / "run",
        evaluate_limit=3,
    )  # fmt: skip
    pruned = shoal.load(dense.module, plan=result.search.plan)
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.arange(4, 24)[None]
    with torch.inference_mode():
        gap = (pruned(ids).logits - written(ids).logits).abs().max()
    assert gap < 1e-5
    tokens = {m.generate(ids, max_new_tokens=5, do_sample=False).shape for m in (pruned, written)}
    assert tokens == {(1, 25)}
    assert dense.module.config.num_hidden_layers == 6
    measured = shoal.evaluate(
        dense.module, "arc_easy", plan=tmp_path / "run", tokenizer=dense.tokenizer,
        data_dir=str(data_dir), limit=3, speed=False,
    )  # fmt: skip
    assert measured.models[1].metrics[0].examples == 3
    with pytest.raises(shoal.core.errors.UsageError, match="another checkpoint"):
        shoal.load(tiny_dense("llama").module, plan=result.search.plan)
    assert shoal.load(tiny_dense("llama").module, plan=result.search.plan, any_model=True)


def test_a_model_object_keeps_its_mode(data_dir, tmp_path):
    import shoal
    from shoal.testing.tiny import tiny_model, tiny_tokenizer

    model = tiny_model("llama").train()
    shoal.search(
        model, tokenizer=tiny_tokenizer(), remove=1, length=16, limit=2, data_dir=str(data_dir),
        run_dir=tmp_path / "run",
    )  # fmt: skip
    assert model.training
