import json
import os
import signal
import subprocess
import sys
import time

import pytest
from torch import nn

from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.models.load import load_dense
from shoal.testing.tiny import save_tiny, tiny_model, tiny_tokenizer

DEPTH = 6


@pytest.fixture(scope="session")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [{"prompt": f"what is {i} and then {i * i} more?", "answer": "no"} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def make_plan(tiny_folder, tmp_path_factory):
    dense = load_dense(str(tiny_folder))
    folder = tmp_path_factory.mktemp("plans")

    def make(text, objective="margin:arc_easy"):
        path = folder / f"{abs(hash(text))}.json"
        Plan(model=dense.ref, mask=Mask.parse(text, DEPTH), objective=objective).save(path)
        return path

    return make


@pytest.fixture
def small(prompts, data_dir):
    """Options of a diagnosis that takes a second or two."""
    return {
        **{"--prompts": prompts, "--texts": prompts, "--data-dir": data_dir, "--seeds": 2},
        **{"--steps": 8, "--short-steps": 4, "--layer-positions": 2, "--out": "out"},
    }


def flags(options, **changed):
    """Options as arguments; `layer_prompts=3` changes or adds one."""
    named = {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return [part for pair in {**options, **named}.items() for part in pair]


def read(path="out"):
    with open(f"{path}/diagnosis.json") as file:
        return json.load(file)


def test_all_of_it(shoal, tiny_folder, make_plan, small):
    code, out, err = shoal("diagnose", tiny_folder, "--plan", make_plan("-[2-3]"), *flags(small))
    assert code == 0, err
    found = read()
    assert [v["use"] for v in found["verdicts"]] == ["choice", "retrieval", "short", "long"]
    assert {r["measure"] for v in found["verdicts"] for r in v["reasons"]} == {
        *("choice_kept", "choice_accuracy", "neighbour_overlap", "neighbour_ranks", "found"),
        *("short_kl", "short_flip", "long_kl", "looping", "surprise"),
    }
    assert found["other"]["mask"] == Mask.parse("-[2-3]", DEPTH).to_json()
    assert [s["site"] for s in found["layerwise"]["sites"] if s["removed"]] == [
        *("2", "2.attn", "2.mlp", "3", "3.attn", "3.mlp")
    ]
    names = [(r["name"], r["decoding"], r["control"]) for r in found["free_runs"]["runs"]]
    assert names == [
        ("pruned", "greedy", False),
        ("pruned", "sampled", False),
        ("dense, another seed", "sampled", True),
        ("bfloat16 copy", "greedy", True),
        ("bfloat16 copy", "sampled", True),
    ]
    assert "estimated" in err
    for words in ("multiple", "retrieval", "short", "long"):
        assert words in out
    with open("out/diagnosis.html") as file:
        page = file.read()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len(os.listdir("out/figures")) >= 12
    assert sum(found["seconds"].values()) > 0


def test_again_nothing_is_computed_and_thresholds_may_change(
    shoal, tiny_folder, make_plan, small, monkeypatch
):
    command = ["diagnose", tiny_folder, "--plan", make_plan("-[2]"), *flags(small)]
    assert shoal(*command, "--fail-on", "broken")[0] in (0, 3)
    first = read()
    with open("strict.yaml", "w") as file:
        file.write("short_kl: [0, 0]\n")
    assert shoal(*command, "--thresholds", "strict.yaml", "--fail-on", "broken")[0] == 3
    again = read()
    assert set(again["seconds"].values()) == {0.0}
    changing = {"seconds", "verdicts", "settings", "environment"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in first.items() if k not in changing
    }
    assert {v["use"]: v["level"] for v in again["verdicts"]}["short"] == "broken"


def test_parts_of_the_dense_model_are_shared_through_a_store(shoal, tiny_folder, make_plan, small):
    for text, out in (("-[2]", "one"), ("-[3]", "two")):
        plan = make_plan(text)
        shared = flags(small, store="parts.sqlite", out=out)
        assert shoal("diagnose", tiny_folder, "--plan", plan, *shared)[0] == 0
    known = {name for name, seconds in read("two")["seconds"].items() if seconds == 0.0}
    assert known == {"layerwise", "controls"}


def test_a_plan_that_removes_nothing_gives_zeros(shoal, tiny_folder, make_plan, small):
    code, _, err = shoal("diagnose", tiny_folder, "--plan", make_plan("-[]"), *flags(small))
    assert code == 0, err
    found = read()
    assert {v["level"] for v in found["verdicts"]} == {"safe"}
    forced = found["teacher_forced"]["overall"]
    describing = {"logit_rms", "entropy", "amplification_predicted", "subspace_mass"}
    assert {n for n, m in forced.items() if m["value"] != 0.0} == describing
    own = found["free_runs"]["runs"][:2]
    assert all(run["flip_rate"]["value"] == 0.0 for run in own)
    assert found["retrieval"][0]["overlap"]["value"] == 1.0
    assert found["choices"][0]["kept"]["value"] == 1.0


def test_fail_on_only_where_it_is_that_bad(shoal, tiny_folder, make_plan, small):
    command = ["diagnose", tiny_folder, "--plan", make_plan("-[]"), *flags(small)]
    assert shoal(*command, "--fail-on", "risky")[0] == 0


def test_the_folder_is_looked_at_before_the_model(shoal, tiny_folder, make_plan, small, tmp_path):
    file = tmp_path / "a-file"
    file.write_text("x")
    plan = make_plan("-[2]")
    code, _, err = shoal("diagnose", tiny_folder, "--plan", plan, *flags(small, out=file))
    assert code == 2
    assert "Loading" not in err


def test_prompts_that_are_too_long_are_left_out_and_it_is_said(
    shoal, tiny_folder, make_plan, small, tmp_path
):
    rows = [{"prompt": "a cat and " * n, "answer": "no"} for n in (2, 3, 4, 200)]
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = make_plan("-[2]")
    code, out, err = shoal("diagnose", tiny_folder, "--plan", plan, *flags(small, prompts=path))
    assert code == 0, err
    assert "long.jsonl holds 3 prompts that fit" in out


def test_some_probes_only(shoal, tiny_folder, make_plan, small):
    code, _, err = shoal(
        *("diagnose", tiny_folder, "--plan", make_plan("-[1.attn,3.mlp]"), *flags(small)),
        *("--probes", "choice,retrieval"),
    )
    assert code == 0, err
    found = read()
    assert [v["use"] for v in found["verdicts"]] == ["choice", "retrieval"]
    assert found["free_runs"] is None
    assert found["layerwise"] is None


@pytest.mark.parametrize("text", ["-[1.attn,3.mlp]", "-[1.mlp,2.attn]"])
def test_sub_layers(shoal, tiny_folder, make_plan, small, text):
    code, _, err = shoal("diagnose", tiny_folder, "--plan", make_plan(text), *flags(small))
    assert code == 0, err
    removed = [s["site"] for s in read()["layerwise"]["sites"] if s["removed"]]
    assert removed == [str(site) for site in Mask.parse(text, DEPTH)]


def test_another_checkpoint_is_put_in_site_by_site(shoal, tiny_folder, small, tmp_path):
    model = tiny_model("llama")
    nn.init.zeros_(model.model.layers[4].mlp.down_proj.weight)
    model.save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    code, _, err = shoal("diagnose", tiny_folder, "--against", tmp_path / "other", *flags(small))
    assert code == 0, err
    layers = read()["layerwise"]
    assert layers["mode"] == "replaced"
    changed = {s["site"] for s in layers["sites"] if s["normed"]["kl"]["value"] > 0}
    assert changed == {"4", "4.mlp"}


def test_a_pruned_checkpoint_of_another_depth(shoal, tiny_folder, make_plan, small):
    assert shoal("export", make_plan("-[2]"), "--model", tiny_folder, "--out", "pruned")[0] == 0
    code, _, err = shoal("diagnose", tiny_folder, "--against", "pruned", *flags(small))
    assert code == 0, err
    found = read()
    assert found["layerwise"]["mode"] == "dropped"
    direct = shoal(
        "diagnose", tiny_folder, "--plan", make_plan("-[2]"), *flags(small, out="direct")
    )
    assert direct[0] == 0
    one, two = found["teacher_forced"]["overall"], read("direct")["teacher_forced"]["overall"]
    assert one["kl"]["value"] == pytest.approx(two["kl"]["value"], rel=1e-5)


@pytest.mark.parametrize("family", ["jamba", "bloom", "mamba", "falcon"])
def test_other_families(shoal, small, tmp_path, family):
    folder = save_tiny(family, tmp_path / family)
    dense = load_dense(str(folder))
    masks = [Mask.of(DEPTH, [0, 1, 2, 3] if family == "jamba" else [2])]
    Plan(model=dense.ref, mask=masks[0]).save(tmp_path / "plan.json")
    code, _, err = shoal("diagnose", folder, "--plan", tmp_path / "plan.json", *flags(small))
    assert code == 0, err
    assert len(read()["verdicts"]) == 4


def test_bad_requests_are_refused(shoal, tiny_folder, make_plan, small, tmp_path):
    plan = make_plan("-[2]")

    def refused(*arguments):
        code, _, err = shoal("diagnose", tiny_folder, *arguments)
        assert code == 2, err
        assert not os.path.exists("out")
        return err

    assert "--plan PLAN, or --against" in refused(*flags(small))
    assert "not both" in refused("--plan", plan, "--against", tiny_folder, *flags(small))
    assert "nothing was removed" in refused("--against", tiny_folder, *flags(small))
    assert "no plan at" in refused("--plan", "nowhere.json", *flags(small))
    other = save_tiny("llama", tmp_path / "deep", depth=7)
    assert "6 blocks" in shoal("diagnose", other, "--plan", plan, *flags(small))[2]
    assert (
        "another checkpoint"
        in shoal(*("diagnose", save_tiny("qwen3", tmp_path / "q"), "--plan", plan, *flags(small)))[
            2
        ]
    )
    assert "neither a task nor a file" in refused("--plan", plan, *flags(small, prompts="gsm9k"))
    assert "no multiple-choice" in refused("--plan", plan, *flags(small, tasks="wikitext2"))
    assert "chat template" in refused("--plan", plan, *flags(small), "--chat")
    assert "one token" in refused("--plan", plan, *flags(small, answers="certainly not|no"))
    assert "no prompt that" in refused("--plan", plan, *flags(small, steps=10**5))
    assert "no sqlite file" in refused("--plan", plan, *flags(small, store=plan))
    assert "does not exist" in refused("--plan", plan, *flags(small, store=tmp_path / "no" / "s"))
    assert "gives none" in refused(
        *("--plan", plan, *flags(small, probes="layerwise"), "--fail-on", "risky")
    )
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "a cat"}\n{"text": "a dog"}\n{"text": "no one at all"}\n')
    assert "retrieval compares at least 3" in refused("--plan", plan, *flags(small, texts=few))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert refused("--plan", plan, *flags(small, prompts=empty))


def test_a_mask_that_changes_nothing_is_an_error(shoal, small, tmp_path):
    model = tiny_model("llama")
    for projection in (model.model.layers[2].self_attn.o_proj, model.model.layers[2].mlp.down_proj):
        nn.init.zeros_(projection.weight)
    model.save_pretrained(tmp_path / "idle")
    tiny_tokenizer().save_pretrained(tmp_path / "idle")
    dense = load_dense(str(tmp_path / "idle"))
    Plan(model=dense.ref, mask=Mask.of(DEPTH, [2])).save(tmp_path / "plan.json")
    code, _, err = shoal(
        "diagnose", tmp_path / "idle", "--plan", tmp_path / "plan.json", *flags(small)
    )
    assert code == 2
    assert "nothing was removed" in err


def test_another_diagnosis_in_the_folder_is_not_overwritten(shoal, tiny_folder, make_plan, small):
    assert shoal("diagnose", tiny_folder, "--plan", make_plan("-[2]"), *flags(small))[0] == 0
    code, _, err = shoal("diagnose", tiny_folder, "--plan", make_plan("-[3]"), *flags(small))
    assert code == 2
    assert "another diagnosis" in err
    assert "--out" in err


def test_not_finite_weights_are_an_error(shoal, tiny_folder, small, tmp_path):
    model = tiny_model("llama")
    nn.init.constant_(model.model.layers[1].mlp.down_proj.weight, float("nan"))
    model.save_pretrained(tmp_path / "nan")
    tiny_tokenizer().save_pretrained(tmp_path / "nan")
    code, _, err = shoal("diagnose", tiny_folder, "--against", tmp_path / "nan", *flags(small))
    assert code == 1
    assert "not finite" in err


@pytest.mark.slow
def test_a_killed_diagnosis_goes_on(tiny_folder, make_plan, small, tmp_path):
    command = [sys.executable, "-m", "shoal", "diagnose", str(tiny_folder)]
    command += ["--plan", str(make_plan("-[2-3]")), *map(str, flags(small, steps=48))]
    kills = 0
    for wait in (7.0, 8.0, 9.0, 10.0):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    whole = [part if part != "out" else "whole" for part in command]
    subprocess.run(whole, cwd=tmp_path, check=True, capture_output=True)
    changing = {"seconds", "settings", "environment"}
    found = [
        {k: v for k, v in read(tmp_path / name).items() if k not in changing}
        for name in ("out", "whole")
    ]
    assert found[0] == found[1]
    assert kills >= 1
