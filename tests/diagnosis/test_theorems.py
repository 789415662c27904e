"""Exact forms against direct computation and exact arithmetic, leading terms, and bounds."""

from decimal import Decimal, localcontext
from math import isfinite, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss

from shoal.diagnosis.theorems import (
    BENNETT,
    STEEP,
    angle_gap,
    divergence,
    divergence_bounds,
    divergence_from_change,
    predicted_amplification,
    tilt,
    tilted,
    turn,
    variance,
)

TEMPERATURES = st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]) | st.floats(0.1, 10.0)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def cosine(x, y):
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))


def close(found, expected, rtol=1e-10, atol=1e-10):
    return torch.allclose(found, torch.as_tensor(expected, dtype=found.dtype), rtol, atol)


def distributions(size=0.5, seed=0):
    """Log-probabilities [40, 60] and a change of logits."""
    return (3 * normal(40, 60, seed=seed)).log_softmax(-1), size * normal(40, 60, seed=seed + 1)


@pytest.mark.parametrize("size", [0.01, 0.5, 3.0])
def test_t1_is_the_cosine(size):
    """Also where the change is so long that the vector points the other way."""
    x = normal(200, 16)
    y = (1 - size * (torch.arange(200) % 3 == 0))[:, None] * x + size * normal(200, 16, seed=1)
    found = turn(x, y)
    assert close(found.gap, 1 - cosine(x, y))
    a = ((y - x) * x).sum(-1) / (x * x).sum(-1)
    b = (y - x - a[:, None] * x).norm(dim=-1) / x.norm(dim=-1)
    assert close(found.parallel, a)
    assert close(found.orthogonal, b)
    forward = a > -1
    exact = 1 - (1 + (b / (1 + a)) ** 2) ** -0.5
    assert close(found.gap[forward], exact[forward])
    assert (found.gap <= found.bound * (1 + 1e-12)).all()
    assert (size < 1) == bool(forward.all())


def test_t1_of_special_vectors():
    x = torch.tensor([[3.0, 4.0]] * 5 + [[0.0, 0.0]] * 2, dtype=torch.float64)
    y = torch.tensor(
        [[6, 8], [-3, -4], [-4, 3], [3, 4], [0, 0], [0, 0], [1, 0]], dtype=torch.float64
    )
    found = turn(x, y)
    assert found.gap[:4].tolist() == [0.0, 2.0, 1.0, 0.0]
    assert found.parallel[:5].tolist() == [1.0, -2.0, -1.0, 0.0, -1.0]
    assert found.orthogonal[:5].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert found.gap.isnan().tolist() == [False] * 4 + [True, False, True]
    assert [float(v[5]) for v in (found.gap, found.parallel, found.orthogonal)] == [0.0] * 3


def test_lengthening_costs_nothing():
    x = normal(50, 30)
    for factor in (1e-6, 0.3, 7.0, 1e9):
        found = turn(x, factor * x)
        # Shortening leaves the rounding of the change beside what little remains.
        assert (found.gap < 1e-18 if factor < 1e-3 else found.gap < 1e-30).all()
        assert close(found.parallel, torch.full((50,), factor - 1.0).double(), 1e-7, 0)


@pytest.mark.parametrize("size", [1e-3, 0.3, 4.0])
def test_t2_and_t3_are_what_they_say(size):
    log_p, d = distributions(size)
    p, q = log_p.exp(), (log_p + d).softmax(-1)
    found = tilt(log_p, d)
    for gap in (found.gap, tilted(log_p, d), turn(p, q).gap):
        assert close(gap, 1 - cosine(p, q))
    log_q = q.log()
    for kl in (found.kl, divergence_from_change(log_p, d), divergence(log_p, log_q)):
        assert close(kl, (p * (log_p - log_q)).sum(-1))
    assert close(found.kl_reverse, (q * (log_q - log_p)).sum(-1))
    assert close(found.total_variation, (p - q).abs().sum(-1) / 2)
    r = p**2 / (p**2).sum(-1, keepdim=True)
    assert close(found.kl_estimate, (p * d**2).sum(-1) / 2 - (p * d).sum(-1) ** 2 / 2)
    assert close(found.gap_estimate, (r * d**2).sum(-1) / 2 - (r * d).sum(-1) ** 2 / 2)


def test_divergence_is_an_integral_of_variances():
    """KL = int_0^1 (1 - t) Var_{p_t}(d) dt, by Gauss-Legendre quadrature."""
    log_p, d = distributions(0.7)
    nodes, weights = map(torch.from_numpy, leggauss(40))
    integral = torch.zeros(len(log_p), dtype=torch.float64)
    for t, w in zip((nodes + 1) / 2, weights / 2, strict=True):
        integral += w * (1 - t) * variance((log_p + t * d).softmax(-1), d)
    assert close(tilt(log_p, d).kl, integral)


def test_direction_and_weights_by_hand():
    """KL(dense || other), and the dense model's weights in both variances."""
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.25, 0.5]])
    log_p, d = p.double().log(), q.double().log() - p.double().log()
    found = tilt(log_p, d)
    assert float(found.kl) == pytest.approx(0.25 * log(2), rel=1e-12)
    assert float(found.kl_reverse) == pytest.approx(0.25 * log(2), rel=1e-12)
    p, q = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.5, 0.5]])
    log_p, d = p.double().log(), q.double().log() - p.double().log()
    found = tilt(log_p, d)
    assert float(found.kl) == pytest.approx(0.9 * log(1.8) + 0.1 * log(0.2), rel=1e-6)
    assert float(found.kl_reverse) == pytest.approx(0.5 * log(1 / 1.8) + 0.5 * log(5), rel=1e-6)
    # For two outcomes the variance is w (1 - w) times the squared difference of the changes.
    step = log(9.0)
    assert float(found.kl_estimate) == pytest.approx(0.9 * 0.1 * step**2 / 2, rel=1e-6)
    r = 0.81 / 0.82
    assert float(found.gap_estimate) == pytest.approx(r * (1 - r) * step**2 / 2, rel=1e-6)
    assert float(found.gap) == pytest.approx(1 - 0.5 / (0.82 * 0.5) ** 0.5, rel=1e-6)
    assert float(found.total_variation) == pytest.approx(0.4, rel=1e-6)


def test_constant_shifts_change_nothing():
    log_p, d = distributions(0.3)
    plain, shifted = tilt(log_p, d), tilt(log_p, d + 1e3)
    for name, value in vars(plain).items():
        assert torch.allclose(value, vars(shifted)[name], rtol=1e-9, atol=0), name
    only = tilt(log_p, torch.full_like(d, 3.1))
    assert all((value == 0).all() for value in vars(only).values())


def test_leading_terms_err_by_the_third_cumulant():
    """Halving the change halves the relative error; T1 along the vector's normal quarters it."""
    log_p, d = distributions(1.0)
    p = log_p.exp()
    r = p**2 / (p**2).sum(-1, keepdim=True)

    def third(weights):
        centred = d - (weights * d).sum(-1, keepdim=True)
        return (weights * centred**3).sum(-1)

    def errors(size):
        found = tilt(log_p, size * d)
        return found.kl / found.kl_estimate - 1, found.gap / found.gap_estimate - 1

    kl, gap = errors(1e-4)
    assert close(kl, 1e-4 * third(p) / 3 / variance(p, d), rtol=1e-2, atol=1e-8)
    assert close(gap, 1e-4 * third(r) / variance(r, d), rtol=1e-2, atol=1e-8)
    for whole, half in zip(errors(2e-2), errors(1e-2), strict=True):
        assert float((whole / half).median()) == pytest.approx(2, rel=0.05)
    x, step = normal(30, 8), normal(30, 8, seed=5)
    step -= (step * x).sum(-1, keepdim=True) / (x * x).sum(-1, keepdim=True) * x
    whole, half = (
        1 - turn(x, x + s * step).gap / turn(x, x + s * step).estimate for s in (0.1, 0.05)
    )
    assert float((whole / half).median()) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    ("temperature", "eps", "kl", "gap", "logit_gap"),
    [
        (1, 0.001, 5e-7, 3e-7, 3.1e-8),
        (1, 0.01, 4.7e-5, 3.6e-5, 3.1e-6),
        (1, 0.1, 5.5e-3, 5e-3, 3.1e-4),
        (1, 0.5, 8.8e-2, 4.5e-2, 7.8e-3),
        (1, 1.0, 0.40, 0.11, 3.0e-2),
        (0.5, 0.1, 2.4e-2, 1.1e-2, 3.1e-4),
        (2, 0.1, 1.3e-3, 1.6e-3, 3.1e-4),
    ],
)
def test_sizes_for_random_logits(temperature, eps, kl, gap, logit_gap):
    """32000 logits of RMS 4 with isotropic changes: the order of magnitude for each size."""
    z = 4 * normal(12, 32000, seed=3)
    change = eps * normal(12, 32000, seed=4)
    found = tilt((z / temperature).log_softmax(-1), change / temperature)
    assert kl / 5 < float(found.kl.mean()) < 5 * kl
    assert gap / 5 < float(found.gap.mean()) < 5 * gap
    assert float(turn(z, z + change).gap.median()) == pytest.approx(logit_gap, rel=0.05)


@pytest.mark.parametrize(
    "pair", [(5.21998e-7, 5.21959e-7), (5.0587e-3, 5.1489e-3), (0.03912, 0.04184)]
)
def test_exact_and_leading_sizes_of_a_turn(pair):
    """Sizes measured once on random states whose changes were nearly orthogonal to them."""
    exact, leading = pair
    across = torch.tensor([2 * leading], dtype=torch.float64).sqrt()
    assert float(angle_gap(torch.ones(1), across)) == pytest.approx(exact, rel=0.02)


def test_predicted_amplification_is_a_mean_over_isotropic_changes():
    z = 2 * normal(1, 40)
    p = z.softmax(-1)
    size = 1e-4
    changes = size * normal(4000, 40, seed=2)
    gaps = tilt(p.log().expand(4000, -1), changes).gap
    turned = turn(z.expand(4000, -1), z + changes).gap
    # The change along z costs no angle: of 40 directions 39 count.
    found = float(gaps.mean() / turned.mean()) * 39 / 40
    assert found == pytest.approx(float(predicted_amplification(z, p, 1.0)), rel=0.06)
    hot = (z / 2).softmax(-1)
    spread = 1 - float((hot**4).sum() / (hot**2).sum() ** 2)
    expected = float((z**2).mean()) / 4 * spread
    assert float(predicted_amplification(z, hot, 2.0)) == pytest.approx(expected, rel=1e-12)


def precisely(z, y):
    """1 - cos of logits, KL, reverse KL, 1 - cos of distributions with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        z, y = [Decimal(v) for v in z], [Decimal(v) for v in y]

        def softmax(values):
            e = [v.exp() for v in values]
            return [v / sum(e) for v in e]

        def gap(x, w):
            squares = sum(a * a for a in x) * sum(a * a for a in w)
            return 1 - sum(a * b for a, b in zip(x, w, strict=True)) / squares.sqrt()

        p, q = softmax(z), softmax(y)
        kl = sum(a * (a / b).ln() for a, b in zip(p, q, strict=True))
        reverse = sum(b * (b / a).ln() for a, b in zip(p, q, strict=True))
        moved = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
        return [float(v) for v in (gap(z, y), kl, reverse, gap(p, q), moved)]


@pytest.mark.parametrize("size", [1e-8, 1e-7, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_small_differences_keep_their_digits(size, shift):
    z = 4 * normal(1, 30)
    y = z * (1 + size * normal(1, 30, seed=7)) + shift
    expected = precisely(z[0].tolist(), y[0].tolist())
    found = tilt(z.log_softmax(-1), y - z)
    numbers = [turn(z, y).gap, found.kl, found.kl_reverse, found.gap, found.total_variation]
    # A shift that was added in floating point rounds the change itself.
    assert [float(v) for v in numbers] == pytest.approx(expected, rel=1e-6, abs=0)
    log_p, log_q = z.log_softmax(-1), y.log_softmax(-1)
    assert float(divergence(log_p, log_q)) == pytest.approx(expected[1], rel=1e-5, abs=0)


@pytest.mark.parametrize("rise", [STEEP - 1, STEEP + 1, 120.0, 690.0, 740.0, 5000.0])
def test_steep_changes(rise):
    """A token that p all but rules out gains so much that e^d, or 1 / p, is no number."""
    z, y = [3.0, 1.0, -rise, 0.5], [3.0, 1.5, 0.0, 0.0]
    expected = precisely(z, y)[1:]
    log_p = torch.tensor([z], dtype=torch.float64).log_softmax(-1)
    d = torch.tensor([y], dtype=torch.float64) - torch.tensor([z], dtype=torch.float64)
    found = tilt(log_p, d)
    numbers = [found.kl, found.kl_reverse, found.gap, found.total_variation]
    assert [float(v) for v in numbers] == pytest.approx(expected, rel=1e-9)
    rows = tilt(log_p.repeat(3, 1), torch.stack([0 * d[0], d[0], 0 * d[0]]))
    assert rows.kl.tolist() == [0.0, float(found.kl), 0.0]


def test_divergence_where_a_token_is_ruled_out():
    def kl(p, q):
        return float(divergence(torch.tensor([p]).double().log(), torch.tensor([q]).double().log()))

    assert kl([1.0, 0.0], [0.5, 0.5]) == pytest.approx(log(2), rel=1e-12)
    assert kl([0.5, 0.5], [1.0, 0.0]) == float("inf")
    assert kl([0.5, 0.5, 0.0], [0.25, 0.75, 0.0]) == pytest.approx(log(4 / 3) / 2, rel=1e-12)
    far = (
        torch.tensor([[0.0, -800.0]], dtype=torch.float64),
        torch.tensor([[0.0, -torch.inf]]).double(),
    )
    assert float(divergence(*far)) == float("inf")


def values(draw, count):
    """Numbers with ties, close neighbours, or long ranges."""
    scale = draw(st.sampled_from([1e-5, 1e-2, 1.0, 30.0, 3e3]))
    numbers = st.integers(-2, 2).map(float) | st.floats(-1, 1, width=32)
    drawn = draw(st.lists(numbers, min_size=count, max_size=count))
    return scale * torch.tensor([drawn], dtype=torch.float64)


@st.composite
def wild(draw):
    """Logits and their change over the temperature, both [1, V]."""
    count, temperature = draw(st.integers(2, 9)), draw(TEMPERATURES)
    return values(draw, count) / temperature, values(draw, count) / temperature


@settings(max_examples=250)
@given(wild())
def test_bounds_hold_for_wild_logits(pair):
    z, d = pair
    log_p = z.log_softmax(-1)
    found = tilt(log_p, d)
    numbers = {name: float(value) for name, value in vars(found).items()}
    assert all(isfinite(v) and v >= -1e-15 for v in numbers.values()), numbers
    spread = d.amax(-1) - d.amin(-1)
    # What rounding loses of e^c - 1 - c is a few units in the last place of c, at most R.
    slack = 1e-15 * float(spread) + 1e-150
    for bound in divergence_bounds(2 * found.kl_estimate, spread):
        assert numbers["kl"] <= float(bound) * (1 + 1e-9) + slack
    assert numbers["gap"] <= 1 + 1e-12
    # The root of what rounding loses in a divergence counts here.
    assert numbers["total_variation"] <= (numbers["kl"] / 2 + slack) ** 0.5 * (1 + 1e-9)
    assert numbers["kl"] == pytest.approx(
        float(divergence_from_change(log_p, d)), abs=1e-9, rel=1e-9
    )


@settings(max_examples=250)
@given(wild())
def test_angles_hold_for_wild_vectors(pair):
    x, change = pair
    if not x.any():
        x[0, 0] = 1.0
    found = turn(x, x + change)
    if (x + change).any():
        assert 0 <= float(found.gap) <= 2
        assert float(found.gap) <= float(found.bound) * (1 + 1e-12)
    assert isfinite(float(found.parallel) + float(found.orthogonal))


def test_bounds_by_hand():
    spread, var = torch.tensor([1e-9, 1e-3, 2.0, 1e3]).double(), torch.tensor([1.0]).double()
    hoeffding, bennett, linear = divergence_bounds(var, spread)
    assert hoeffding.tolist() == (spread**2 / 8).tolist()
    assert linear.tolist() == spread.tolist()
    assert float(bennett[0]) == pytest.approx(0.5, rel=1e-9)
    assert float(bennett[1]) == pytest.approx(0.5 + 1e-3 / 6 + 1e-6 / 24, rel=1e-9)
    assert float(bennett[2]) == pytest.approx((torch.e**2 - 3) / 4, rel=1e-12)
    assert spread[3] > BENNETT
    assert bennett[3] == torch.inf


def test_bennett_is_reached_by_a_rare_large_change():
    """For two outcomes, one of them rare: the bound cannot be made smaller."""
    rare = 1e-9
    p, d = torch.tensor([[[1 - rare, rare]], [[0.0, 1e-3]]], dtype=torch.float64)
    kl = float(tilt(p.log(), d).kl)
    bound = float(divergence_bounds(variance(p, d), torch.tensor([1e-3]).double())[1])
    assert kl <= bound
    assert kl == pytest.approx(bound, rel=1e-8)
