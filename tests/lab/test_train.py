"""Training: what a step does, the schedule, and going on after a kill."""

import math

import pytest
import torch

from shoal.config.lab import TrainConfig
from shoal.core.errors import NotFiniteError
from shoal.lab.functions import zero_error
from shoal.lab.train import Training, rate_at, squared_errors

TINY = TrainConfig(
    layers=2,
    width=8,
    heads=2,
    points=5,
    steps=12,
    batch=4,
    warmup=3,
    first_points=2,
    more_points=1,
    more_every=3,
    learning_rate=1e-2,
)
CPU = torch.device("cpu")


def trained(config, log_every=4):
    training = Training(config, CPU)
    return training, list(training.run(log_every))


@pytest.mark.parametrize("stop", [4, 8])
def test_going_on_equals_never_stopping(stop):
    whole, rows = trained(TINY)
    first = Training(TINY, CPU)
    for row in first.run(4):
        if row.step == stop:
            break
    kept = {name: tensor.clone() for name, tensor in first.state().items()}
    again = Training(TINY, CPU)
    again.restore(kept, stop, 3.0)
    rest = list(again.run(4))
    assert again.step == whole.step == 12
    for name, tensor in whole.state().items():
        assert torch.equal(again.state()[name], tensor), name
    timeless = [[(r.step, r.points, r.loss, r.validation) for r in found] for found in (rows, rest)]
    assert timeless[1] == timeless[0][stop // 4 :]
    assert rest[-1].seconds > 3.0


def test_a_seed_trains_the_same_model_and_another_another():
    one, same, other = (
        trained(TINY.model_copy(update={"seed": seed}))[0].state() for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["weight.read_out.weight"], other["weight.read_out.weight"])


def test_every_step_has_functions_of_its_own(monkeypatch):
    drawn = []
    draw = Training._prompts

    def noted(self, count, points, seed):
        found = draw(self, count, points, seed)
        drawn.append((found.points, found.coefficients))
        return found

    monkeypatch.setattr(Training, "_prompts", noted)
    trained(TINY)
    held_out, *steps = drawn
    assert held_out[0] == 5
    assert [points for points, _ in steps] == [2] * 3 + [3] * 3 + [4] * 3 + [5] * 3
    all_of_them = torch.cat([coefficients for _, coefficients in drawn]).flatten()
    assert len(all_of_them.unique()) == len(all_of_them)


def test_the_log_has_the_end_and_the_means():
    each, every = (trained(TINY, log_every)[1] for log_every in (1, 5))
    assert [row.step for row in every] == [5, 10, 12]
    assert every[0].loss == pytest.approx(sum(row.loss for row in each[:5]) / 5, rel=1e-5)
    assert every[2].loss == pytest.approx(sum(row.loss for row in each[10:]) / 2, rel=1e-5)
    assert every[1].validation == each[9].validation
    assert [row.learning_rate for row in each] == [rate_at(TINY, step) for step in range(12)]


def test_rates_rise_then_fall():
    rates = [rate_at(TINY, step) for step in range(13)]
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert rates[3] == pytest.approx(1e-2)
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[12] == pytest.approx(0, abs=1e-12)
    assert rate_at(TINY, 3 + 4) == pytest.approx(1e-2 * (1 + math.cos(math.pi * 4 / 9)) / 2)
    flat = TINY.model_copy(update={"decay": "none", "warmup": 0})
    assert {rate_at(flat, step) for step in range(12)} == {1e-2}


def test_a_loss_that_is_no_number_ends_training():
    training = Training(TINY, CPU)
    with torch.no_grad():
        training.model.read_out.bias.fill_(math.inf)
    with pytest.raises(NotFiniteError, match="not finite at step 4"):
        list(training.run(4))


def test_errors_are_those_of_the_forward():
    training, _ = trained(TINY)
    held_out = training._held_out
    with torch.inference_mode():
        expected = (training.model(held_out.x, held_out.y) - held_out.y) ** 2
    assert torch.allclose(squared_errors(training.model, held_out, batch=50), expected, atol=1e-6)


@pytest.mark.slow
def test_it_learns():
    """A few hundred steps beat predicting zero, by more the more points were seen."""
    config = TrainConfig(
        layers=2, width=32, points=7, steps=600, warmup=50, first_points=7, learning_rate=3e-3
    )
    training, rows = trained(config, 600)
    errors = squared_errors(training.model, training._held_out).mean(0)
    assert rows[-1].last < 0.5 * zero_error(config.family)
    assert errors[-1] < 0.7 * errors[0]
