"""Functions and prompts."""

import numpy as np
import pytest
import torch

from shoal.config.lab import Distribution, FamilyConfig
from shoal.lab.functions import draw_prompts, zero_error

GAUSSIAN = Distribution(kind="gaussian", first=0.0, second=1.5)


def family(degree=1, coefficients=1.0, inputs=1.0):
    return FamilyConfig(
        degree=degree,
        coefficients=Distribution.uniform(coefficients),
        inputs=Distribution.uniform(inputs),
    )


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_values_are_those_of_the_polynomial(degree):
    prompts = draw_prompts(family(degree, 3.0, 2.0), 50, 7, 0)
    for x, y, c in zip(prompts.x, prompts.y, prompts.coefficients, strict=True):
        expected = np.polyval(c.double().numpy(), x.double().numpy())
        assert y.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert prompts.x.dtype == prompts.y.dtype == torch.float32
    assert (len(prompts), prompts.points) == (50, 7)
    assert prompts.coefficients.shape == (50, degree + 1)


def test_fewer_points_and_functions_of_a_seed_are_the_first_of_more():
    more, fewer = (draw_prompts(family(2), 20, points, (3, 1)) for points in (11, 4))
    assert torch.equal(fewer.x, more.x[:, :4])
    assert torch.equal(fewer.y, more.y[:, :4])
    assert torch.equal(fewer.coefficients, more.coefficients)
    fewer = draw_prompts(family(2), 5, 11, (3, 1))
    assert torch.equal(fewer.coefficients, more.coefficients[:5])


def test_a_seed_gives_functions_and_another_gives_others():
    one, same, other = (draw_prompts(family(), 20, 5, seed) for seed in ((0, 2), (0, 2), (0, 3)))
    assert torch.equal(one.y, same.y)
    assert not np.isin(one.coefficients, other.coefficients).any()
    assert not np.isin(one.x, other.x).any()
    assert len(np.unique(one.x)) == one.x.numel()


def test_families_that_differ_in_range_differ_in_scale():
    narrow, wide = (draw_prompts(family(2, half), 20, 5, 7) for half in (1.0, 4.0))
    assert torch.equal(narrow.x, wide.x)
    assert torch.allclose(4 * narrow.y, wide.y, rtol=1e-6)


@pytest.mark.parametrize("inputs", [Distribution.uniform(2.0), GAUSSIAN])
@pytest.mark.parametrize("coefficients", [Distribution.uniform(1.0), GAUSSIAN])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_zero_error_is_the_mean_square(degree, coefficients, inputs):
    drawn = FamilyConfig(degree=degree, coefficients=coefficients, inputs=inputs)
    squares = draw_prompts(drawn, 200_000, 1, 0).y.double()[:, 0] ** 2
    error = (squares.std() / len(squares) ** 0.5).item()
    assert squares.mean().item() == pytest.approx(zero_error(drawn), abs=5 * error)
    assert error < 0.1 * zero_error(drawn)


def test_zero_error_of_the_paper_s_family():
    """E[(a x + b)^2] = 1/3 1/3 + 1/3 for U(-1,1)."""
    assert zero_error(family()) == pytest.approx(4 / 9)


@pytest.mark.parametrize(
    "given",
    [
        Distribution(kind="uniform", first=-1.0, second=2.0),
        Distribution(kind="gaussian", first=1.0, second=2.0),
    ],
)
def test_zero_error_needs_mean_zero(given):
    with pytest.raises(ValueError, match="does not have mean zero"):
        zero_error(FamilyConfig(coefficients=given))
    with pytest.raises(ValueError, match="does not have mean zero"):
        zero_error(FamilyConfig(inputs=given))


def test_rows_are_the_same_functions():
    prompts = draw_prompts(family(), 9, 5, 0)
    some = prompts.rows(2, 5)
    assert len(some) == 3
    for name in ("x", "y", "coefficients"):
        assert torch.equal(getattr(some, name), getattr(prompts, name)[2:5])
