"""Streaming sums against the same sums over the whole table."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.errors import NotFiniteError, UsageError
from shoal.geometry.moments import Moments

FIELDS = ("input_mean", "update_mean", "output_mean", "xx", "xu", "uu", "yy", "raw")


def table(count=200, width=6, seed=0, offset=3.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator, dtype=torch.float64) + offset
    y = x + 0.3 * torch.randn(count, width, generator=generator, dtype=torch.float64) - 1
    return x, y


def moments_of(x, y, cuts=(), seed=0, keep=512):
    found = Moments(x.shape[1], seed, keep=keep)
    edges = [0, *cuts, len(x)]
    for start, end in pairwise(edges):
        found.add(x[start:end], y[start:end])
    return found


def direct(x, y):
    u = y - x
    xc, uc, yc = x - x.mean(0), u - u.mean(0), y - y.mean(0)
    return {
        "input_mean": x.mean(0),
        "update_mean": u.mean(0),
        "output_mean": y.mean(0),
        "xx": xc.T @ xc,
        "xu": xc.T @ uc,
        "uu": uc.square().sum(),
        "yy": yc.square().sum(),
        "raw": x.square().sum() + y.square().sum(),
    }


def agree(found, expected, rtol=1e-11):
    for name in FIELDS:
        want = expected[name]
        got = torch.as_tensor(getattr(found, name), dtype=torch.float64)
        assert torch.allclose(got, want, rtol=rtol, atol=rtol * float(want.abs().max())), name


def test_one_chunk_is_the_direct_sum():
    x, y = table()
    agree(moments_of(x, y), direct(x, y))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 200), max_size=8).map(sorted))
def test_chunks_are_the_whole(cuts):
    """Empty chunks, chunks of one token, any cut; the tokens kept are the same too."""
    x, y = table()
    found, whole = moments_of(x, y, cuts, keep=20), moments_of(x, y, keep=20)
    assert found.count == 200
    agree(found, direct(x, y))
    for one, other in zip(found.sample, whole.sample, strict=True):
        assert torch.equal(one, other)


def test_what_varies_survives_a_large_offset():
    """Uncentred sums would leave no digit: (1e7)^2 against a variance of 1."""
    x, y = table(offset=1e7)
    found = moments_of(x, y, range(10, 200, 10))
    agree(found, direct(x, y), rtol=1e-6)
    naive = x.T @ x - 200 * torch.outer(x.mean(0), x.mean(0))
    assert (naive - direct(x, y)["xx"]).abs().max() > 100 * (
        found.xx - direct(x, y)["xx"]
    ).abs().max()


def test_joining_is_adding():
    x, y = table()
    one, other = moments_of(x[:70], y[:70], seed=1), moments_of(x[70:], y[70:], [10], seed=2)
    one.absorb(other)
    assert one.count == 200
    agree(one, direct(x, y))
    empty = Moments(6, 3)
    empty.absorb(one)
    agree(empty, direct(x, y))
    before = one.xx.clone()
    one.absorb(Moments(6, 9))
    assert torch.equal(one.xx, before)


def test_joined_parts_are_kept_in_proportion():
    """300 tokens of one part and 100 of the other: three in four of those kept."""
    x = torch.arange(400, dtype=torch.float64)[:, None]
    shares = []
    for seed in range(60):
        one = moments_of(x[:300], x[:300], seed=2 * seed, keep=40)
        one.absorb(moments_of(x[300:], x[300:], seed=2 * seed + 1, keep=40))
        assert len(one.sample[0].unique()) == 40
        shares.append(float((one.sample[0] < 300).double().mean()))
    assert abs(sum(shares) / 60 - 0.75) < 0.04


def test_the_sample_is_uniform_and_follows_the_seed():
    x = torch.arange(50, dtype=torch.float64)[:, None]
    drawn = [moments_of(x, 2 * x, [20], seed, keep=10).sample for seed in range(250)]
    counts = torch.stack([kept[:, 0] for kept, _ in drawn]).long().flatten().bincount(minlength=50)
    # 250 draws of 10 in 50: 50 each, standard deviation 6.3.
    assert counts.min() > 22
    assert counts.max() < 80
    assert all(torch.equal(outputs, 2 * inputs) for inputs, outputs in drawn)
    assert torch.equal(drawn[3][0], moments_of(x, 2 * x, seed=3, keep=10).sample[0])


def test_all_tokens_are_kept_where_they_are_few():
    x, y = table(30)
    kept, _ = moments_of(x, y).sample
    assert torch.equal(kept[kept[:, 0].argsort()], x[x[:, 0].argsort()])


def test_states_in_float32_are_summed_in_float64():
    x, y = (t.float() for t in table(5000, offset=100.0))
    found = moments_of(x, y, range(100, 5000, 100))
    agree(found, direct(x.double(), y.double()))
    assert found.sample[0].dtype == torch.float32


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_states_that_are_not_finite_are_refused_and_not_counted(value, place):
    pair = [t.clone() for t in table(20)]
    found = moments_of(*pair)
    before = found.xx.clone()
    pair[place][3, 2] = value
    with pytest.raises(NotFiniteError, match="1 of 20"):
        found.add(*pair)
    assert found.count == 20
    assert torch.equal(found.xx, before)


def test_wrong_use_is_refused():
    x, y = table(20)
    found = moments_of(x, y)
    for inputs, outputs in ((x, y[:5]), (x[:, :3], y[:, :3]), (x[0], y[0])):
        with pytest.raises(UsageError, match="tables"):
            found.add(inputs, outputs)
    with pytest.raises(UsageError, match="seeds"):
        found.absorb(moments_of(x, y))
    found.absorb(moments_of(x, y, seed=5))
    with pytest.raises(UsageError, match="seeds"):
        found.absorb(moments_of(x, y, seed=5))
    with pytest.raises(UsageError, match="widths"):
        found.absorb(Moments(3, 1))
    with pytest.raises(UsageError, match="width"):
        Moments(0)
