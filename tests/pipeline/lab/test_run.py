"""A lab run in a folder: from models to claims, kept part by part."""

import json

import pytest

from shoal.api import experiment_lab
from shoal.config.lab import TrainConfig
from shoal.core.errors import UsageError
from shoal.core.plan import Plan
from shoal.lab.checkpoint import load_checkpoint
from shoal.lab.functions import draw_prompts, zero_error
from shoal.lab.study import LabRun
from shoal.lab.train import squared_errors
from shoal.pipeline.lab import model_parts
from shoal.pipeline.lab.model_parts import count_parts
from shoal.pipeline.lab.run import LabRunConfig
from shoal.pipeline.lab.train import run_training
from shoal.pipeline.listener import Listener

FEW = {
    "shifts": (2,),
    "geometry_shifts": (2,),
    "selection": 6,
    "test": 8,
    "geometry": 40,
    "random_masks": 2,
}


class Counting(Listener):
    def __init__(self):
        self.total = self.done_parts = 0

    def work(self, total):
        self.total += total

    def advance(self, steps=1):
        self.done_parts += steps


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed in (0, 1):
        config = TrainConfig(
            layers=3, width=8, heads=2, points=6, steps=40, batch=8, first_points=4, seed=seed
        )
        run_training(config, folder / f"m{seed}")
    return [str(folder / "m0"), str(folder / "m1")]


def test_the_run_is_whole_and_the_same_again(models, tmp_path):
    listener = Counting()
    first = experiment_lab(models=models, out=tmp_path / "a", listener=listener, **FEW)
    assert (
        listener.done_parts
        == listener.total
        == sum(count_parts(LabRunConfig.read(FEW), m) for m in models)
    )
    run = LabRun.model_validate_json((tmp_path / "a" / "lab_run.json").read_text())
    assert run == first.run
    assert [m.model for m in run.models] == ["m0", "m1"]
    assert len(run.claims) == 9
    assert {p.task for p in run.geometries} == {"U(-2,2)"}
    assert (tmp_path / "a" / "lab_run.html").read_text().startswith("<!")
    again = experiment_lab(models=models, out=tmp_path / "b", **FEW)
    told = [r.model_dump(exclude={"settings", "seconds", "environment"}) for r in (run, again.run)]
    assert json.dumps(told[0], default=str) == json.dumps(told[1], default=str)


def test_what_is_finished_is_not_computed_again(models, tmp_path, monkeypatch):
    experiment_lab(models=models[:1], out=tmp_path / "run", **FEW)
    for name in ("select", "measure", "transfer", "learning", "place"):
        monkeypatch.setattr(model_parts, name, lambda *a, **k: pytest.fail("computed again"))
    experiment_lab(models=models[:1], out=tmp_path / "run", **FEW)


@pytest.mark.slow
def test_processes_find_what_one_finds(models, tmp_path):
    listener = Counting()
    one = experiment_lab(models=models, out=tmp_path / "one", **FEW)
    two = experiment_lab(models=models, out=tmp_path / "two", workers=2, listener=listener, **FEW)
    assert listener.done_parts == listener.total
    for mine, theirs in zip(one.run.models, two.run.models, strict=True):
        for a, b in zip(mine.shifts, theirs.shifts, strict=True):
            # Threads add in another order.
            assert a.selection.dense == pytest.approx(b.selection.dense, rel=1e-4)


def test_plans_are_written_for_shoal_geometry(models, tmp_path):
    result = experiment_lab(models=models, out=tmp_path / "run", **FEW)
    written = {p.name for p in (tmp_path / "run" / "plans").iterdir()}
    best = {
        f"{m.model}-{s.sigma:g}.json": s.selection.best
        for m in result.run.models
        for s in m.shifts
        if s.selection.best
    }
    assert written == set(best)
    for name, mask in best.items():
        assert Plan.load(tmp_path / "run" / "plans" / name).mask == mask


def test_bad_requests_are_refused_before_anything_is_written(models, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="no lab model"):
        experiment_lab(models=["nowhere"], out=out, **FEW)
    with pytest.raises(UsageError, match="two models are called m0"):
        experiment_lab(models=[models[0], models[0]], out=out, **FEW)
    with pytest.raises(UsageError, match="geometry-shifts 7"):
        experiment_lab(models=models, out=out, **{**FEW, "geometry_shifts": (7,)})
    with pytest.raises(UsageError, match="positive"):
        experiment_lab(models=models, out=out, **{**FEW, "shifts": (-2,)})
    assert not out.exists()
    experiment_lab(models=models[:1], out=out, **FEW)
    with pytest.raises(UsageError, match="another lab run: its test is 8, not 9"):
        experiment_lab(models=models[:1], out=out, **{**FEW, "test": 9})


@pytest.mark.parametrize("name", ["linear-narrow-0", "linear-narrow-1", "linear-narrow-2"])
def test_the_models_of_the_package_learned_their_task(name):
    """After 20 examples a hundredth of what predicting zero errs, and better the more they see."""
    checkpoint = load_checkpoint(name)
    prompts = draw_prompts(checkpoint.config.family, 128, 21, 12345)
    errors = squared_errors(checkpoint.model, prompts).mean(0)
    assert errors[20] < zero_error(checkpoint.config.family) / 100
    assert errors[0] > errors[1] > errors[2] > errors[20]


def test_the_wide_model_learned_its_task():
    checkpoint = load_checkpoint("linear-wide-0")
    assert checkpoint.config.coefficients.bound == 5
    prompts = draw_prompts(checkpoint.config.family, 128, 21, 12345)
    assert squared_errors(checkpoint.model, prompts)[:, 20].mean() < 25 * 4 / 9 / 100
