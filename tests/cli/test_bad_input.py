"""Bad input: one clear error, exit code 2, before any long work, and nothing left behind."""

import json

import pytest
from transformers import BertConfig

from shoal.testing.tiny import save_tiny


def prune(shoal, model, data_dir, *more, **options):
    merged = {
        "objective": "margin",
        "task": "arc_easy",
        "data-dir": data_dir,
        "remove": 2,
        "out": "out",
        "run-dir": "run",
        "limit": 4,
    } | options
    flags = [x for k, v in merged.items() if v is not None for x in (f"--{k}", v)]
    return shoal("prune", model, *flags, *more)


@pytest.fixture
def refused(shoal, tiny_folder, data_dir, tmp_path, monkeypatch):
    """Run `shoal prune`, check that it is refused early and leaves nothing; gives the message."""

    def run(*more, model=tiny_folder, data_dir=data_dir, **options):
        def never(*args, **kwargs):
            raise AssertionError("weights were loaded before the request was refused")

        monkeypatch.setattr("shoal.pipeline.search.load_dense", never)
        before = set(tmp_path.iterdir())
        code, out, err = prune(shoal, model, data_dir, *more, **options)
        assert code == 2, (out, err)
        assert set(tmp_path.iterdir()) == before
        message = [line for line in err.splitlines() if line.startswith("shoal: ")]
        assert len(message) == 1, err
        assert "Traceback" not in err
        return message[0]

    return run


def test_missing_path(refused):
    assert "there is nothing at ./nowhere" in refused(model="./nowhere")


def test_file_that_is_not_a_model(refused, tmp_path):
    (tmp_path / "x.txt").write_text("text")
    assert "not a GGUF model" in refused(model=tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("remove", "says"),
    [
        (6, "at least one must stay"),
        (600, "at least one must stay"),
        (0, "smallest number is 1"),
        (-1, "smallest number is 1"),
        ("5%", "less than one block"),
        ("many", "neither a count"),
        ("1.5", "neither a count"),
        (None, "say how many blocks"),
    ],
)
def test_budget(refused, remove, says):
    assert says in refused(remove=remove)


def test_protection(refused):
    assert "leaves 1 to choose from" in refused(protect="0-4")
    assert "cannot protect block 6" in refused(protect="6")
    assert '"x" is no block' in refused(protect="0,x")


def test_names(refused):
    assert 'unknown objective "margn". Did you mean "margin"?' in refused(objective="margn")
    assert 'unknown search "gredy". Did you mean "greedy"?' in refused(search="gredy")
    assert 'Did you mean "arc_easy"?' in refused(task="arc_esy")
    assert "arc_easy is multiple choice" in refused(objective="nll")
    assert "wikitext2 is text" in refused(task="wikitext2")
    assert 'unknown device "gpu"' in refused(device="gpu")
    assert 'unknown dtype "int3"' in refused(dtype="int3")


def test_an_option_of_a_part_that_nobody_named(shoal, tiny_folder):
    code, _, err = shoal("search", tiny_folder, "--remove", 1, "--search.samples", 3)
    assert code == 2
    assert "--search.samples needs --search NAME" in err


def test_unknown_flag_names_the_closest(shoal, tiny_folder):
    code, _, err = shoal("prune", tiny_folder, "--objectve", "margin")
    assert code != 0
    assert "--objective" in err


def test_unknown_yaml_key_names_the_closest(shoal, tmp_path):
    (tmp_path / "c.yaml").write_text("model: x\nobjectiv: margin\n")
    code, _, err = shoal("validate", "c.yaml")
    assert code == 2
    assert 'unknown key "objectiv". Did you mean "objective"?' in err
    (tmp_path / "c.yaml").write_text("model: x\nsearch: {name: random, smples: 3}\n")
    code, _, err = shoal("run", "c.yaml")
    assert code == 2
    assert "samples" in err
    assert shoal("run", "missing.yaml")[0] == 2


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "empty"),
        ([{"promt": "q", "choices": ["a", "b"], "gold": 0}], "prompt"),
        ([{"prompt": "q", "choices": ["a", "b"], "gold": 2}], "gold"),
        ([{"prompt": "q", "choices": ["a"], "gold": 0}], "choice"),
        ([{"prompt": "q", "choices": ["a", ""], "gold": 0}], "empty"),
    ],
)
def test_bad_data_files(refused, tmp_path, rows, says):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    message = refused(task=path)
    assert says in message
    assert "own.jsonl" in message


def test_empty_text_file(refused, tmp_path):
    (tmp_path / "t.txt").write_text("")
    assert "t.txt" in refused(objective="nll", task=tmp_path / "t.txt")


def test_output_folder_that_exists(refused, tmp_path):
    (tmp_path / "out").mkdir()
    assert "out exists" in refused()
    assert (tmp_path / "out").is_dir()


def test_encoder_only_model(refused, tmp_path):
    folder = save_tiny("llama", tmp_path / "bert")
    BertConfig(architectures=["BertForMaskedLM"]).save_pretrained(folder)
    assert "encoder-only" in refused(model=folder)


def test_calibration_on_a_test_split(refused):
    message = refused(split="test")
    assert "--allow-calibration-on-test" in message


def test_search_that_is_too_large(shoal, tiny_folder, data_dir, tmp_path):
    code, _, err = prune(
        shoal, tiny_folder, data_dir, "--search.max-masks", 3, search="brute_force"
    )
    assert code != 0
    assert "15 masks" in err
    assert not (tmp_path / "out").exists()


def test_full_disk(shoal, tiny_folder, data_dir, tmp_path, monkeypatch):
    import errno
    from pathlib import Path

    own = Path.open

    def full(self, mode="r", *args, **kwargs):
        if self.name.endswith(".safetensors") and "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return own(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    code, _, err = prune(shoal, tiny_folder, data_dir)
    assert code != 0
    assert "Traceback" not in err
    assert "space" in err.lower() or "disk" in err.lower()
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"run"}, "only the search's own results stay"


def test_plan_for_another_model(shoal, tiny_folder, data_dir, tmp_path):
    assert (
        shoal(
            "search",
            tiny_folder,
            "--data-dir",
            data_dir,
            "--remove",
            1,
            "--limit",
            2,
            "--length",
            16,
            "--run-dir",
            "run",
        )[0]
        == 0
    )
    other = save_tiny("qwen3", tmp_path / "other")
    code, _, err = shoal("export", "run", "--model", other, "--out", "x")
    assert code == 2
    assert "another checkpoint" in err
    assert "--any-model" in err
    deeper = save_tiny("llama", tmp_path / "deeper", depth=8)
    code, _, err = shoal("export", "run", "--model", deeper, "--out", "x", "--any-model")
    assert code == 2
    assert "6 blocks" in err
    code, _, err = shoal("export", "nowhere", "--out", "x")
    assert code == 2
    assert "no plan at" in err


def test_more_blocks_than_weights(shoal, tiny_folder, data_dir, tmp_path, caplog):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(tiny_folder, broken)
    config = json.loads((broken / "config.json").read_text())
    for depth in (8, 4):
        (broken / "config.json").write_text(json.dumps({**config, "num_hidden_layers": depth}))
        code, _, err = prune(shoal, broken, data_dir)
        if depth == 8:
            assert code == 2
            assert "lacks 18 of the tensors" in err
        else:
            assert "does not ask for" in caplog.text


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "shapes", "quantised"])
def test_damaged_weights(shoal, tiny_folder, data_dir, tmp_path, damage):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(tiny_folder, broken)
    weights = broken / "model.safetensors"
    config = json.loads((broken / "config.json").read_text())
    if damage == "shapes":
        config |= {"hidden_size": 64}
    elif damage == "quantised":
        config |= {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    else:
        whole = weights.read_bytes()
        content = {"cut": whole[:-100], "garbage": b"\x00" * 100, "empty": b""}[damage]
        weights.write_bytes(content)
    (broken / "config.json").write_text(json.dumps(config))
    code, _, err = prune(shoal, broken, data_dir)
    assert code == (1 if damage == "quantised" else 2)
    assert "unexpected" not in err
    assert ("is quantised" if damage == "quantised" else "cannot be loaded") in err
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_finite(shoal, tiny_folder, data_dir, tmp_path):
    import math

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(math.nan)
    model.save_pretrained(tmp_path / "nan")
    AutoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path / "nan")
    code, _, err = prune(shoal, tmp_path / "nan", data_dir)
    assert code == 1
    assert "the dense model's own loss is not finite" in err


def test_calibration_and_report_on_the_same_items(refused, tmp_path):
    path = tmp_path / "own.jsonl"
    rows = [{"prompt": f"q{i}", "choices": ["a", "b"], "gold": i % 2} for i in range(6)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert "shares 4 examples" in refused(task=path, evaluate=path)


def test_own_data_without_report_data_says_so(shoal, tiny_folder, data_dir, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"prompt": "q", "choices": ["a", "b"], "gold": 0}) + "\n")
    code, _, err = prune(shoal, tiny_folder, data_dir, task=path)
    assert code == 0
    assert "no report data" in err


def test_text_longer_than_the_model_s_positions(shoal, tmp_path, data_dir):
    folder = save_tiny("gpt2", tmp_path / "gpt2")
    code, _, err = prune(shoal, folder, data_dir, objective="nll", task="wikitext2")
    assert code == 2
    assert "Use --length 128 or less" in err
    rows = [{"prompt": "word " * 9000, "choices": ["a", "b"], "gold": 0}]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    code, _, err = prune(shoal, folder, data_dir, task=tmp_path / "long.jsonl")
    assert code == 0, err


def test_a_model_with_few_positions_is_timed(shoal, tmp_path, data_dir):
    folder = save_tiny("gpt_neo", tmp_path / "neo")
    code, out, err = prune(shoal, folder, data_dir)
    assert code == 0, err
    assert "decode" in out


def test_run_and_checkpoint_need_two_folders(refused):
    assert "folders of their own" in refused(out="same", **{"run-dir": "same"})


def test_a_run_folder_that_cannot_be_made(shoal, tiny_folder, data_dir):
    code, _, err = prune(shoal, tiny_folder, data_dir, **{"run-dir": "/proc/foo"})
    assert code == 2
    assert "cannot be made" in err


def test_a_refused_first_try_does_not_block_the_next(shoal, tiny_folder, data_dir):
    options = ("--data-dir", data_dir, "--remove", 1, "--limit", 2)
    assert shoal("search", tiny_folder, *options, "--length", 100_000)[0] == 2
    assert shoal("search", tiny_folder, *options, "--length", 16)[0] == 0
    assert shoal("search", tiny_folder, *options, "--length", 24)[0] == 0


def test_damaged_run_folder(shoal, tiny_folder, data_dir, tmp_path):
    options = (
        "--data-dir",
        data_dir,
        "--remove",
        1,
        "--limit",
        2,
        "--length",
        16,
        "--run-dir",
        "r",
    )
    assert shoal("search", tiny_folder, *options)[0] == 0
    (tmp_path / "r/config.yaml").write_text("{oops")
    code, _, err = shoal("search", tiny_folder, *options)
    assert code == 2
    assert "is damaged" in err
    (tmp_path / "r/config.yaml").unlink()
    (tmp_path / "r/evaluations.sqlite").write_bytes(b"nonsense" * 100)
    code, _, err = shoal("search", tiny_folder, *options)
    assert code == 2


def test_odd_numbers(refused, shoal, tmp_path):
    assert "names more blocks than any model has" in refused(protect="0-99999999999")
    assert "cache_memory" in refused(**{"cache-memory": "inf"})
    code, _, err = shoal("export", "x", "--out", "y", "--max-shard-gb", "nan")
    assert code == 2
    assert "--max-shard-gb must be" in err


def test_python_refuses_what_is_no_model():
    import shoal

    with pytest.raises(shoal.ShoalError, match="not int"):
        shoal.search(3, remove=1)
    with pytest.raises(shoal.ShoalError, match="neither a count"):
        shoal.search("smollm2-135m", remove=True)
