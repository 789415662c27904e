import json
import os
import signal
import subprocess
import sys
import time

import pytest

from shoal.config.lab import TrainConfig
from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan
from shoal.lab.checkpoint import load_checkpoint
from shoal.models.load import load_dense
from shoal.pipeline.geometry import run as stage
from shoal.pipeline.lab.train import run_training
from shoal.testing.tiny import save_tiny

DEPTH = 6

LAB = {"--id": "U(-1,1)", "--ood": "U(-5,5)", "--items": 16, "--loss-items": 12, "--out": "out"}
LAB |= {"--surrogate-tokens": 40, "--control-masks": 1, "--random-seeds": 1, "--ridges": 0.001}


@pytest.fixture(autouse=True)
def _figures_once(request, monkeypatch):
    """Drawing takes longer than all else, and one test looks at what is drawn."""
    if request.node.name != "test_all_of_it":
        monkeypatch.setattr(stage, "can_draw", lambda listener: False)


@pytest.fixture(scope="session")
def shifted(tmp_path_factory):
    path = tmp_path_factory.mktemp("shifted") / "prompts.jsonl"
    rows = [{"prompt": f"what is {i} and then {i * i} more of {i}", "answer": i} for i in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def make_plan(tiny_folder, tmp_path_factory):
    dense = load_dense(str(tiny_folder))
    folder = tmp_path_factory.mktemp("plans")

    def make(text):
        path = folder / f"{abs(hash(text))}.json"
        Plan(model=dense.ref, mask=Mask.parse(text, DEPTH)).save(path)
        return path

    return make


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory):
    """A lab model that was hardly trained."""
    folder = tmp_path_factory.mktemp("lab") / "model"
    config = TrainConfig(layers=4, width=8, heads=2, points=7, steps=3, batch=4, warmup=0)
    run_training(config, folder)
    return folder


@pytest.fixture
def small(shifted, data_dir):
    """Options of a geometry that takes a second or two."""
    return {
        **{"--id": "arc_easy", "--ood": shifted, "--data-dir": data_dir, "--out": "out"},
        **{"--items": 8, "--loss-items": 6, "--surrogate-tokens": 100, "--alphas": "0,0.5,1"},
    }


def flags(options, **changed):
    """Options as arguments; `items=3` changes or adds one."""
    named = {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return [part for pair in {**options, **named}.items() for part in pair]


def read(path="out"):
    with open(f"{path}/geometry.json") as file:
        return json.load(file)


@pytest.mark.slow
def test_all_of_it(shoal, tiny_folder, make_plan, small):
    code, out, err = shoal("geometry", tiny_folder, "--plan", make_plan("-[2-3]"), *flags(small))
    assert code == 0, err
    found = read()
    assert found["mask"] == Mask.parse("-[2-3]", DEPTH).to_json()
    assert (found["id"], found["ood"]) == ("arc_easy", "prompts.jsonl")
    assert {point["intervention"] for point in found["points"]} == {
        *("dense", "removed", "scaled", "inverse", "random", "rotated")
    }
    assert len(found["linear"]) == 2 * DEPTH
    assert "estimated" in err
    for words in ("cosine distance", "amplif", "rotated", "margin", "reference answer"):
        assert words in out
    assert any("attention sink" in note for note in found["notes"])
    with open("out/geometry.html") as file:
        page = file.read()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len(os.listdir("out/figures")) >= 10


def test_again_nothing_is_computed(shoal, tiny_folder, make_plan, small):
    command = ["geometry", tiny_folder, "--plan", make_plan("-[2]"), *flags(small)]
    assert shoal(*command)[0] == 0
    first = read()
    assert shoal(*command, "--json")[0] == 0
    again = read()
    assert min(first["seconds"].values()) > 0
    assert set(again["seconds"].values()) == {0.0}
    changing = {"seconds", "environment"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in first.items() if k not in changing
    }


def test_what_does_not_depend_on_the_plan_is_shared_through_a_store(shoal, tiny_folder, small):
    for blocks, out in (("2", "one"), ("3,4", "two")):
        shared = flags(small, store="parts.sqlite", out=out, remove=blocks)
        assert shoal("geometry", tiny_folder, *shared)[0] == 0
    known = {name for name, seconds in read("two")["seconds"].items() if seconds == 0.0}
    assert known == {"surrogates arc_easy", "surrogates prompts.jsonl", "interventions dense"}


def test_sites_may_be_named_instead_of_a_plan(shoal, tiny_folder, make_plan, small):
    plan = flags(small, out="one", plan=make_plan("-[2-3]"))
    assert shoal("geometry", tiny_folder, *plan)[0] == 0
    assert shoal("geometry", tiny_folder, *flags(small, out="two", remove="2-3"))[0] == 0
    one, two = read("one"), read("two")
    for part in ("mask", "profiles", "changes", "linear", "signatures", "points"):
        assert one[part] == two[part]


def test_parts_of_it(shoal, tiny_folder, small):
    code, _, err = shoal("geometry", tiny_folder, *flags(small, parts="profiles"))
    assert code == 0, err
    found = read()
    assert set(found["profiles"]) == {"id", "ood"}
    assert found["linear"] == found["points"] == []
    assert "Loading" in err


def test_a_text_task(shoal, tiny_folder, small):
    chosen = flags(small, ood="wikitext2", max_tokens=32, parts="profiles")
    code, _, err = shoal("geometry", tiny_folder, *chosen)
    assert code == 0, err
    assert read()["metric"]["ood"].startswith("negative log-likelihood per token of the text")


@pytest.mark.parametrize("prefix", ["lab:", ""])
def test_a_lab_model(shoal, lab_folder, prefix):
    model = f"{prefix}{lab_folder}"
    code, out, err = shoal("geometry", model, *flags(LAB, remove="1,2"))
    assert code == 0, err
    found = read()
    assert found["model"]["id"] == "lab:model"
    assert {(one["layer"], one["positions"]) for one in found["linear"]} == {
        (layer, name) for layer in range(4) for name in "xy"
    }
    assert all(one["tokens"] >= 40 for one in found["linear"])
    assert "squared error" in out
    assert len({point["alpha"] for point in found["points"]}) == 14
    assert not any("attention sink" in note for note in found["notes"])


def test_a_plan_of_a_lab_model(shoal, lab_folder, tmp_path):
    fingerprint = load_checkpoint(lab_folder).fingerprint
    for name, known in (("own", fingerprint), ("other", "0" * 16)):
        ref = ModelRef(id="lab:model", revision=None, fingerprint=known)
        Plan(model=ref, mask=Mask.of(4, [1])).save(tmp_path / f"{name}.json")
    chosen = flags(LAB, parts="profiles")
    code, _, err = shoal("geometry", lab_folder, "--plan", tmp_path / "own.json", *chosen)
    assert code == 0, err
    assert set(read()["profiles"]) == {"id", "ood", "id_pruned", "ood_pruned"}
    elsewhere = flags(LAB, parts="profiles", out="elsewhere")
    code, _, err = shoal("geometry", lab_folder, "--plan", tmp_path / "other.json", *elsewhere)
    assert code == 2
    assert "another checkpoint" in err


def test_a_lab_model_elsewhere_than_it_was_trained_is_said(shoal, lab_folder):
    chosen = flags(LAB, id="U(-2,2)", parts="profiles")
    assert shoal("geometry", lab_folder, *chosen)[0] == 0
    assert "was trained on U(-1,1)" in read()["notes"][0]


def test_bad_requests_are_refused(shoal, tiny_folder, make_plan, small, tmp_path):
    plan = make_plan("-[2]")

    def refused(*arguments):
        code, _, err = shoal("geometry", tiny_folder, *arguments)
        assert code == 2, err
        assert not os.path.exists("out")
        assert len(err.strip().splitlines()) < 4
        return err

    assert "name both tasks" in refused("--id", "arc_easy")
    assert "no shift from itself" in refused(*flags(small, ood="arc_easy"))
    assert "neither a task nor a file" in refused(*flags(small, ood="gsm9k"))
    assert "less than or equal to 4096" in refused(*flags(small, items=10**9))
    assert "interventions act on" in refused(*flags(small, parts="interventions"))
    assert "not both" in refused("--plan", plan, "--remove", "2", *flags(small))
    assert "names no site" in refused(*flags(small, remove="two"))
    assert "does not exist" in refused(*flags(small, remove="9"))
    assert "removes nothing" in refused("--plan", make_plan("-[]"), *flags(small))
    assert "every block" in refused(*flags(small, remove="0-5"))
    assert "no plan at" in refused("--plan", "nowhere.json", *flags(small))
    assert "fits neither" in refused(
        *flags(small, metric="accuracy", id=small["--ood"], ood="wikitext2")
    )
    assert "no sqlite file" in refused("--store", plan, *flags(small))
    assert "is no lab model" in shoal("geometry", "lab:nothing", *flags(LAB))[2]
    copy = tmp_path / "copy.jsonl"
    copy.write_text(small["--ood"].read_text())
    assert "hold the same" in refused(*flags(small, id=copy))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert "empty" in refused(*flags(small, ood=empty))
    one = tmp_path / "one.jsonl"
    one.write_text('{"prompt": "a cat on a mat", "answer": "yes"}\n')
    assert "gives 1 sequences" in refused(*flags(small, ood=one))
    deep = save_tiny("llama", tmp_path / "deep", depth=7)
    assert "6 blocks" in shoal("geometry", deep, "--plan", plan, *flags(small))[2]
    other = save_tiny("qwen3", tmp_path / "qwen3")
    assert "another checkpoint" in shoal("geometry", other, "--plan", plan, *flags(small))[2]
    mute = save_tiny("llama", tmp_path / "mute", tokenizer=False)
    assert "no tokenizer" in shoal("geometry", mute, *flags(small))[2]


def test_bad_requests_of_lab_models_are_refused(shoal, lab_folder):
    def refused(**changed):
        code, _, err = shoal("geometry", lab_folder, *flags(LAB, **changed))
        assert code == 2, err
        assert not os.path.exists("out")
        return err

    assert "is no distribution" in refused(ood="gsm8k")
    assert "no shift from itself" in refused(ood="U(-1, 1)")
    assert "says nothing of a lab model" in refused(metric="nll")
    assert "no two are left" in refused(skip_first=12)
    assert "does not exist" in refused(remove="4")


def test_another_geometry_in_the_folder_is_not_overwritten(shoal, lab_folder):
    chosen = {**LAB, "--parts": "profiles"}
    assert shoal("geometry", lab_folder, *flags(chosen))[0] == 0
    code, _, err = shoal("geometry", lab_folder, *flags(chosen, ood="U(-3,3)"))
    assert code == 2
    assert "another geometry" in err
    assert "--out" in err


@pytest.mark.slow
def test_a_killed_geometry_goes_on(tiny_folder, small, tmp_path):
    command = [sys.executable, "-m", "shoal", "geometry", str(tiny_folder)]
    command += [*map(str, flags(small, remove="2-3", alphas="0.2,0.4,0.6,0.8,1.2,1.4"))]
    kills = 0
    for wait in (8.0, 10.0, 12.0, 14.0):
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
