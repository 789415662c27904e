"""Random polynomials and the prompts that show them (Garg et al. 2022, 2208.01066).

    f(x) = sum_j c_j x^(degree - j)       coefficients and x drawn independently

A prompt is x_1, f(x_1), ..., x_n, f(x_n); there is no noise, so degree + 1 points determine f.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.config.lab import Distribution, FamilyConfig


@dataclass(frozen=True)
class Prompts:
    """Points of random functions, float32.

    Attributes:
        x: Where each function is evaluated [B, n].
        y: Its values there [B, n].
        coefficients: Of each function, the highest power first [B, degree + 1].
    """

    x: Tensor
    y: Tensor
    coefficients: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def points(self) -> int:
        """Points per prompt."""
        return self.x.shape[1]

    def rows(self, start: int, stop: int) -> Self:
        """Some of the prompts."""
        return type(self)(self.x[start:stop], self.y[start:stop], self.coefficients[start:stop])


def draw_prompts(
    family: FamilyConfig, count: int, points: int, seed: int | Sequence[int]
) -> Prompts:
    """Draw random functions and points of them.

    Args:
        family: What they are drawn from.
        count: Functions.
        points: Points of each.
        seed: The same seed gives the same functions; across families that differ in range alone
            the functions differ in scale alone.
    """
    rng = np.random.default_rng(seed)
    # One stream each, so that fewer points are the first of more.
    c, x = (np.random.default_rng(s) for s in rng.integers(0, 2**63, 2))
    coefficients = _draw(family.coefficients, c, (count, family.degree + 1))
    inputs = _draw(family.inputs, x, (points, count)).T
    values = np.zeros_like(inputs)
    for column in coefficients.T:
        values = values * inputs + column[:, None]
    return Prompts(*(_tensor(v) for v in (inputs, values, coefficients)))


def zero_error(family: FamilyConfig) -> float:
    """Expected squared error of predicting zero, E[f(x)^2], for distributions with mean zero.

    Raises:
        ValueError: If a distribution has another mean.
    """
    for distribution in (family.coefficients, family.inputs):
        middle = distribution.first
        if distribution.kind == "uniform":
            middle = distribution.first + distribution.second
        if middle != 0:
            raise ValueError(f"{distribution} does not have mean zero")
    moments = (_moment(family.inputs, 2 * power) for power in range(family.degree + 1))
    return family.coefficients.variance * sum(moments)


def _moment(distribution: Distribution, power: int) -> float:
    """E[x^power] for an even power of a symmetric distribution."""
    if distribution.kind == "uniform":
        return float(distribution.second**power / (power + 1))
    return float(distribution.second**power * np.prod(np.arange(1, power, 2), dtype=float))


def _draw(
    distribution: Distribution, rng: np.random.Generator, shape: tuple[int, int]
) -> NDArray[np.float64]:
    if distribution.kind == "uniform":
        return distribution.first + (distribution.second - distribution.first) * rng.random(shape)
    return rng.normal(distribution.first, distribution.second, shape)


def _tensor(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))
