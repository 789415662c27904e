"""Training in a folder: it resumes, it refuses, it leaves nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from shoal.config.lab import PRESETS, TrainConfig, preset_named
from shoal.core.errors import UsageError
from shoal.lab.checkpoint import CONFIG, LOG, STATE, WEIGHTS, load_checkpoint
from shoal.pipeline.lab import train as module
from shoal.pipeline.lab.train import read_log, run_training, train_command

TINY = TrainConfig(
    layers=2, width=16, heads=2, points=5, steps=30, warmup=5, batch=8, first_points=3, more_every=5
)


def weights(folder):
    return dict(load_checkpoint(folder).model.named_parameters())


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    run_training(TINY, tmp_path / "whole")
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOG_LINES", 10)

    class Stopped(Exception):
        pass

    saved = module._save

    def save_and_stop(training, rows, folder):
        saved(training, rows, folder)
        if training.step >= 15:
            raise Stopped

    monkeypatch.setattr(module, "_save", save_and_stop)
    with pytest.raises(Stopped):
        run_training(TINY, tmp_path / "stopped")
    assert (tmp_path / "stopped" / STATE).is_file()
    assert not (tmp_path / "stopped" / WEIGHTS).exists()
    monkeypatch.setattr(module, "_save", saved)
    run_training(TINY, tmp_path / "stopped")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    steps = [row.step for row in read_log(tmp_path / "stopped")]
    assert steps == sorted(set(steps))
    assert steps[-1] == TINY.steps
    assert not (tmp_path / "stopped" / STATE).exists()


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_weights(tmp_path):
    config = TINY.model_copy(update={"steps": 1500})
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in config.model_dump(mode="json").items()]
    command = [sys.executable, "-m", "shoal", "lab", "train", *flags, "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = (
        "import sys; import shoal.pipeline.lab.train as t; t.SAVE_SECONDS = 0.3;"
        "from shoal.cli.app import main; main(sys.argv[1:])"
    )
    killed = [sys.executable, "-c", script, *command[3:], str(tmp_path / "killed")]
    for _ in range(3):
        process = subprocess.Popen(killed, env=environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        seen = (tmp_path / "killed" / STATE).stat().st_mtime if _ else 0.0
        while time.monotonic() < deadline and process.poll() is None:
            state = tmp_path / "killed" / STATE
            if state.is_file() and state.stat().st_mtime > seen:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (tmp_path / "killed" / WEIGHTS).is_file():
            break
    subprocess.run([*command, str(tmp_path / "killed")], env=environment, check=True)
    subprocess.run([*command, str(tmp_path / "whole")], env=environment, check=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))


def test_a_finished_folder_is_loaded_and_other_options_are_refused(tmp_path, monkeypatch):
    first = run_training(TINY, tmp_path / "model")
    monkeypatch.setattr(module, "_train", lambda *a: pytest.fail("trained again"))
    again = run_training(TINY, tmp_path / "model")
    assert again.checkpoint.fingerprint == first.checkpoint.fingerprint
    assert len(again.log) == len((tmp_path / "model" / LOG).read_text().splitlines())
    with pytest.raises(UsageError, match="another width: 16, not 32"):
        run_training(TINY.model_copy(update={"width": 32}), tmp_path / "model")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(UsageError, match="not the folder of a lab model"):
        run_training(TINY, tmp_path / "letters")
    assert [p.name for p in (tmp_path / "letters").iterdir()] == ["a.txt"]


def test_an_unfinished_or_damaged_model_is_refused(tmp_path):
    run_training(TINY, tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(UsageError, match="does not hold the weights"):
        load_checkpoint(tmp_path / "model")
    path.unlink()
    with pytest.raises(UsageError, match="not trained to its end"):
        load_checkpoint(tmp_path / "model")
    (tmp_path / "model" / CONFIG).write_text("{")
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no config of a lab model"):
        load_checkpoint(tmp_path / "model")
    with pytest.raises(UsageError, match="no lab model"):
        load_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_command_in_the_folder_trains_the_same(name, tmp_path):
    """Read back flag by flag, the command gives the options that it was made from."""
    config = preset_named(name).model_copy(update={"seed": 7, "degree": 2})
    words = train_command(config, tmp_path / "m").replace('"', "").split()
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    base = preset_named(flags.pop("--preset")).model_dump(mode="json")
    assert flags.pop("--out") == "m"
    given = {key[2:].replace("-", "_"): value for key, value in flags.items()}
    assert TrainConfig.read(base | given) == config


def test_what_is_written_says_how_to_redo_it(tmp_path):
    run_training(TINY, tmp_path / "model")
    there = json.loads((tmp_path / "model" / CONFIG).read_text())
    assert TrainConfig.read(there["train"]) == TINY
    assert there["command"].startswith("shoal lab train --preset")
