"""`kill -9` at random moments: resuming gives the same plan, and nothing is computed twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from shoal.config.run import RunConfig
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.engine.store import Store
from shoal.testing.tiny import save_tiny

KILLS = 10


def command(model, text, run_dir):
    # One batch is a round of some twelve masks, each slow enough to be hit.
    return [
        sys.executable, "-m", "shoal", "search", str(model), "--objective", "nll", "--task",
        str(text), "--length", "64", "--limit", "48", "--batch-tokens", "256", "--remove", "6",
        "--search", "greedy", "--run-dir", str(run_dir), "--cache-memory", "0",
    ]  # fmt: skip


def contents(run_dir):
    """Masks started in all batches, and whether each batch finished."""
    import sqlite3

    path = run_dir / "evaluations.sqlite"
    if not path.exists():
        return []
    with sqlite3.connect(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'batches'").fetchone():
            return []
        return db.execute("SELECT masks, finished FROM batches ORDER BY id").fetchall()


@pytest.mark.slow
def test_a_search_survives_kill_9(tmp_path):
    model = save_tiny("llama", tmp_path / "model", depth=12)
    text = tmp_path / "text.txt"
    text.write_text("the sea was calm and the shoal was near, " * 400)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    undisturbed = tmp_path / "undisturbed"
    begin = time.monotonic()
    subprocess.run(
        command(model, text, undisturbed), check=True, env=environment, capture_output=True
    )
    whole = time.monotonic() - begin
    expected = Plan.load(undisturbed)

    disturbed, rng, kills = tmp_path / "disturbed", random.Random(0), 0
    while kills < KILLS:
        process = subprocess.Popen(
            command(model, text, disturbed),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = len(contents(disturbed))
        # Wait for work, then strike within it; late kills are drawn too.
        deadline = time.monotonic() + whole + 60
        while len(contents(disturbed)) == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        kills += 1
        if not killed:
            break
    subprocess.run(
        command(model, text, disturbed), check=True, env=environment, capture_output=True
    )
    found = Plan.load(disturbed)
    assert (found.mask, found.score) == (expected.mask, expected.score)
    assert kills >= 5

    batches = contents(disturbed)
    finished = Counter(m for masks, done in batches if done for m in json.loads(masks))
    assert max(finished.values()) == 1, "a finished mask was computed again"
    lost = [masks for masks, done in batches if not done]
    assert lost, "no kill hit a batch"
    assert len(lost) <= kills
    undisturbed_masks = {m for masks, _ in contents(undisturbed) for m in json.loads(masks)}
    assert set(finished) == undisturbed_masks


def test_a_batch_that_never_finished_left_nothing(tmp_path):
    with Store(tmp_path / "s.sqlite", {}) as store:
        store.begin([Mask.of(4, [1])])
    with Store(tmp_path / "s.sqlite", {}) as store:
        assert store.get(Mask.of(4, [1])) is None
        assert store.batches() == [(["-[1]"], False)]


def test_config_round_trips_through_a_run_folder(tmp_path):
    from shoal.pipeline.folder import open_folder, resolved

    config = RunConfig.read({"remove": "20%", "protect": "0,5", "search": {"name": "random"}})
    open_folder(tmp_path / "run", config, "m")
    open_folder(tmp_path / "run", config, "m")
    import yaml

    again = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert RunConfig.read(again) == config.model_copy(update={"model": "m", "task": "wikitext2"})
    assert again == resolved(config, "m")
