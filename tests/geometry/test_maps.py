"""Maps against their definitions; inverses and controls by what they must keep."""

from dataclasses import dataclass

import pytest
import torch

from shoal.core.errors import NotFiniteError, UsageError
from shoal.geometry.maps import AffineMap, haar, inverse_map, random_map, rotated


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_map(width=12, seed=0):
    matrix = torch.eye(width, dtype=torch.float64) + 0.1 * normal(width, width, seed=seed)
    return AffineMap(matrix, normal(width, seed=seed + 1), normal(width, seed=seed + 2))


@dataclass(frozen=True)
class Holder:
    map: AffineMap


def with_values(values, seed=0):
    """A map whose matrix has these singular values."""
    width = len(values)
    matrix = haar(width, seed) @ torch.diag(torch.tensor(values, dtype=torch.float64))
    one = some_map(width)
    return AffineMap(matrix @ haar(width, seed + 1), one.before, one.after)


def test_it_maps_state_by_state():
    one, states = some_map(), normal(3, 5, 12, seed=9)
    found = one(states)
    for b in range(3):
        for t in range(5):
            expected = one.after + one.matrix @ (states[b, t] - one.before)
            assert torch.allclose(found[b, t], expected, atol=1e-12)


def test_the_states_keep_their_type():
    one, states = some_map(), normal(4, 12)
    assert one(states.float()).dtype == torch.float32
    assert torch.equal(one(states.float()), one(states.float().double()).float())
    assert one.to(dtype=torch.float32).matrix.dtype == torch.float32
    assert torch.allclose(one.to(dtype=torch.float32)(states), one(states), atol=1e-5)


@pytest.mark.parametrize("form", ["ridge", "truncated"])
def test_the_inverse_of_a_full_map_gives_the_input_back(form):
    one, states = some_map(), normal(50, 12, seed=5)
    back = inverse_map(Holder(one), 0.0, form)
    assert torch.allclose(back(one(states)), states, atol=1e-10)


def test_the_inverse_without_ridge_is_the_pseudo_inverse():
    one = with_values([3.0, 1.0, 0.5, 0.0])
    expected = torch.linalg.pinv(one.matrix, rtol=1e-12)
    for form in ("ridge", "truncated"):
        assert torch.allclose(inverse_map(Holder(one), 0.0, form).matrix, expected, atol=1e-10)


@pytest.mark.parametrize("ridge", [1e-3, 1e-1, 10.0])
def test_the_ridge_inverse_solves_its_normal_equations(ridge):
    one = some_map()
    penalty = ridge * one.matrix.square().sum() / 12
    gram = one.matrix.T @ one.matrix + penalty * torch.eye(12)
    found = inverse_map(Holder(one), ridge)
    assert torch.allclose(found.matrix, torch.linalg.solve(gram, one.matrix.T), atol=1e-10)
    assert torch.equal(found.before, one.after)
    assert torch.equal(found.after, one.before)


def test_truncation_drops_small_singular_values_and_keeps_the_others():
    one = with_values([2.0, 1.0, 0.1])
    mean_square = (4 + 1 + 0.01) / 3
    kept = torch.linalg.svdvals(inverse_map(Holder(one), 0.02 / mean_square, "truncated").matrix)
    assert torch.allclose(kept, torch.tensor([1.0, 0.5, 0.0]).double(), atol=1e-12)


def test_wrong_inverses_are_refused():
    one = Holder(some_map())
    with pytest.raises(UsageError, match="ridge"):
        inverse_map(one, -1.0)
    with pytest.raises(UsageError, match="ridge"):
        inverse_map(one, float("nan"))
    with pytest.raises(UsageError, match="form"):
        inverse_map(one, 0.0, "lasso")
    broken = AffineMap(one.map.matrix * torch.nan, one.map.before, one.map.after)
    with pytest.raises(NotFiniteError):
        inverse_map(Holder(broken), 0.0)


def test_haar_is_orthogonal_and_not_biased():
    """E q_ij = 0 and E q_ij^2 = 1 / d; without the sign correction E q_ii < 0."""
    drawn = torch.stack([haar(4, seed) for seed in range(2000)])
    assert torch.allclose(drawn.mT @ drawn, torch.eye(4).double().expand_as(drawn), atol=1e-12)
    assert drawn.mean(0).abs().max() < 5 * 0.5 / 2000**0.5
    assert (drawn.square().mean(0) - 0.25).abs().max() < 0.03


def test_the_random_map_keeps_the_frobenius_norm_and_the_centres():
    one = some_map()
    found = random_map(one, 3)
    assert torch.allclose(found.matrix.norm(), one.matrix.norm(), rtol=1e-12)
    gram = found.matrix.T @ found.matrix
    assert torch.allclose(gram, gram[0, 0] * torch.eye(12).double(), atol=1e-12)
    assert torch.equal(found.before, one.before)
    assert torch.equal(found.after, one.after)


def test_rotated_moves_every_state_as_far_elsewhere():
    one, states = some_map(), normal(40, 12, seed=8)
    moved, turned = one(states) - states, rotated(one, 3)(states) - states
    assert torch.allclose(turned.norm(dim=1), moved.norm(dim=1), rtol=1e-10)
    assert torch.allclose(turned, moved @ haar(12, 3).T, atol=1e-12)
    assert (turned - moved).norm() > 0.5 * moved.norm()


@pytest.mark.parametrize("control", [random_map, rotated])
def test_controls_follow_the_seed(control):
    one = some_map()
    assert torch.equal(control(one, 1).matrix, control(one, 1).matrix)
    assert not torch.allclose(control(one, 1).matrix, control(one, 2).matrix)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="centres"):
        AffineMap(torch.eye(3), torch.zeros(2), torch.zeros(3))
    with pytest.raises(UsageError, match="centres"):
        AffineMap(torch.eye(3), torch.zeros(1, 3), torch.zeros(3))
