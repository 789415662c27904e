"""All quantities against plain tables over the whole vocabulary, and what must hold of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from shoal.diagnosis import spaces
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.spaces import Look, Rows, compare, see
from shoal.models.head import Head, LogitScorer, RowScorer

LOOK = Look(0.7, (3, 11, 30))


def normal(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def scorers(kind, rows=23, words=41, size=0.3, **head):
    """Two scorers of one kind; their states differ by `size`."""
    heads = Head((), normal(words, 12, seed=1), **head)
    x = normal(rows, 12, seed=2)
    both = [RowScorer(heads, s) for s in (x, x + size * normal(rows, 12, seed=3))]
    if kind == "rows":
        return both
    return [LogitScorer(heads.logits(s.states), s.states if kind == "seen" else None) for s in both]


def naive(z, y, x, w, look):
    """Every quantity from its definition, over full tables."""
    z, y, x, w = (v.double() for v in (z, y, x, w))
    t, c = look.temperature, list(look.candidates)
    p, q = (z / t).softmax(-1), (y / t).softmax(-1)
    inside, moved = (z[:, c] / t).softmax(-1), (y[:, c] / t).softmax(-1)
    d = (y - z) / t
    r = p**2 / (p**2).sum(-1, keepdim=True)

    def gap(a, b):
        return 1 - cosine_similarity(a, b, dim=-1, eps=0)

    def along(a, b):
        return ((b - a) * a).sum(-1) / (a * a).sum(-1)

    def across(a, b):
        return (b - a - along(a, b)[:, None] * a).norm(dim=-1) / a.norm(dim=-1)

    def kl(a, b):
        return torch.where(a > 0, a * (a.log() - b.log()), 0.0).sum(-1)

    def var(a, v):
        return (a * v**2).sum(-1) - (a * v).sum(-1) ** 2

    def rms(v):
        return v.pow(2).mean(-1).sqrt()

    spread = d.amax(-1) - d.amin(-1)
    bounds = spread**2 / 8, spread, var(p, d) * (spread.exp() - 1 - spread) / spread**2
    return {
        "hidden_gap": gap(x, w),
        "hidden_parallel": along(x, w),
        "hidden_orthogonal": across(x, w),
        "hidden_estimate": across(x, w) ** 2 / 2,
        "logit_gap": gap(z, y),
        "logit_parallel": along(z, y),
        "logit_orthogonal": across(z, y),
        "logit_estimate": across(z, y) ** 2 / 2,
        "logit_gap_centred": gap(z - z.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)),
        "logit_change": rms(y - z - (y - z).mean(-1, keepdim=True)),
        "logit_rms": rms(z),
        "attenuation": across(z, y) / across(x, w),
        "probability_gap": gap(p, q),
        "probability_estimate": var(r, d) / 2,
        "kl": kl(p, q),
        "kl_estimate": var(p, d) / 2,
        "kl_reverse": kl(q, p),
        "kl_bound": torch.stack(bounds).amin(0),
        "total_variation": (p - q).abs().sum(-1) / 2,
        "flip": (p.argmax(-1) != q.argmax(-1)).double(),
        "entropy": -torch.where(p > 0, p * p.log(), 0.0).sum(-1),
        "amplification": gap(p, q) / gap(z, y),
        "amplification_predicted": z.pow(2).mean(-1) / t**2 * (1 - (r**2).sum(-1)),
        "subspace_mass": p[:, c].sum(-1),
        "subspace_logit_gap": gap(z[:, c], y[:, c]),
        "subspace_gap": gap(inside, moved),
        "subspace_kl": kl(inside, moved),
        "subspace_kl_estimate": var(inside, d[:, c]) / 2,
        "subspace_floor": p[:, c].sum(-1) * kl(inside, moved),
        "subspace_flip": (z[:, c].argmax(-1) != y[:, c].argmax(-1)).double(),
    }


@pytest.mark.parametrize("size", [1e-2, 0.5, 4.0])
@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("rows", {}),
        ("rows", {"bias": normal(41, seed=9), "scale": 0.5, "softcap": 3.0}),
        ("seen", {}),
        ("unseen", {}),
    ],
)
def test_every_quantity_is_what_its_meaning_says(kind, head, size):
    mine, theirs = scorers(kind, size=size, **head)
    found = compare(Rows.of(mine), Rows.of(theirs), LOOK)
    if kind == "unseen":
        hidden = {n for n, q in QUANTITIES.items() if q.space == "hidden"} | {"attenuation"}
        assert found.keys() == QUANTITIES.keys() - hidden
        states = [torch.ones(23, 1)] * 2
    else:
        assert found.keys() == QUANTITIES.keys()
        states = [mine.states, theirs.states]
    logits = [Rows.of(s).logits(0, 23) for s in (mine, theirs)]
    expected = naive(*logits, *states, LOOK)
    for name, values in found.items():
        assert values.dtype == np.float64
        assert values == pytest.approx(expected[name].numpy(), rel=1e-8, abs=1e-11), name


def test_subspace_needs_candidates():
    mine, theirs = map(Rows.of, scorers("rows"))
    found = compare(mine, theirs, Look())
    assert found.keys() == {n for n, q in QUANTITIES.items() if q.space != "subspace"}
    with pytest.raises(ValueError, match="at least two"):
        Look(1.0, (4,))
    with pytest.raises(ValueError, match="must differ"):
        Look(1.0, (4, 5, 4))
    with pytest.raises(ValueError, match="above 0"):
        Look(0.0)
    with pytest.raises(ValueError, match="41 is none of the 41 tokens"):
        compare(mine, theirs, Look(1.0, (3, 41)))


def test_states_of_other_sizes_are_not_compared():
    mine, theirs = map(Rows.of, scorers("seen"))
    wider = Rows(normal(23, 20), full=theirs.full)
    found = compare(mine, wider, LOOK)
    assert not any(name.startswith("hidden") for name in found)
    assert found["kl"].tolist() == compare(mine, theirs, LOOK)["kl"].tolist()


@pytest.mark.parametrize("kind", ["rows", "seen"])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
def test_equal_models_give_zeros(kind, temperature):
    mine = Rows.of(scorers(kind)[0])
    look = Look(temperature, LOOK.candidates)
    found = compare(mine, mine, look)
    for name, values in found.items():
        if not QUANTITIES[name].describes_dense:
            assert (values == 0).all(), name
    assert np.isnan(found["attenuation"]).all()
    assert np.isnan(found["amplification"]).all()
    expected = naive(*[mine.logits(0, 23)] * 2, *[mine.states] * 2, look)
    for name in ("logit_rms", "entropy", "subspace_mass", "amplification_predicted"):
        assert found[name] == pytest.approx(expected[name].numpy(), rel=1e-9)


@pytest.mark.parametrize("kind", ["rows", "seen"])
@pytest.mark.parametrize(("head", "table"), [(1, 1), (41 * 5, 41 * 2), (41 * 7, 41 * 100)])
def test_chunks_change_nothing(monkeypatch, kind, head, table):
    mine, theirs = map(Rows.of, scorers(kind))
    targets = torch.arange(23)
    plain = see(mine, theirs, LOOK, (0.5, 2.0), targets)
    monkeypatch.setattr(spaces, "HEAD_ELEMENTS", head)
    monkeypatch.setattr(spaces, "TABLE_ELEMENTS", table)
    chunked = see(mine, theirs, LOOK, (0.5, 2.0), targets)
    # The product with the output matrix may round otherwise for other numbers of rows.
    rel = 1e-4 if kind == "rows" else 1e-11
    for name, values in plain.quantities.items():
        assert chunked.quantities[name] == pytest.approx(values, rel=rel, abs=1e-13), name
    for t, columns in plain.temperatures.items():
        for name, values in columns.items():
            assert chunked.temperatures[t][name] == pytest.approx(values, rel=rel), name
    assert chunked.dense_nll == pytest.approx(plain.dense_nll, rel=rel)
    assert chunked.other_nll == pytest.approx(plain.other_nll, rel=rel)


def test_memory_does_not_grow_with_positions(monkeypatch):
    """Logits are formed, once per model, for a few rows at a time, and compared in fewer."""
    asked, tabled = [], []
    formed, paired = Rows.logits, spaces.LogitPair.spoken
    monkeypatch.setattr(
        Rows, "logits", lambda self, a, b: asked.append(range(a, b)) or formed(self, a, b)
    )
    monkeypatch.setattr(
        spaces.LogitPair, "spoken", lambda z, y: tabled.append(z.numel()) or paired(z, y)
    )
    monkeypatch.setattr(spaces, "HEAD_ELEMENTS", 41 * 8)
    monkeypatch.setattr(spaces, "TABLE_ELEMENTS", 41 * 3)
    for rows in (8, 200):
        asked.clear()
        tabled.clear()
        mine, theirs = map(Rows.of, scorers("rows", rows=rows))
        see(mine, theirs, LOOK, (0.5, 2.0), torch.zeros(rows, dtype=torch.long))
        assert max(map(len, asked)) == 8
        assert max(tabled) == 41 * 3
        assert sum(map(len, asked)) == 2 * rows


@pytest.mark.parametrize("kind", ["rows", "unseen"])
def test_a_sweep_is_a_comparison_at_each_temperature(kind):
    mine, theirs = map(Rows.of, scorers(kind))
    found = see(mine, theirs, None, (0.5, 1.0, 4.0)).temperatures
    assert list(found) == [0.5, 1.0, 4.0]
    names = {n for n, q in QUANTITIES.items() if q.space == "probability"} | {"logit_gap"}
    for temperature, columns in found.items():
        alone = compare(mine, theirs, Look(temperature))
        assert columns.keys() == names
        for name, values in columns.items():
            assert values == pytest.approx(alone[name], rel=1e-12), name


def test_nll_of_what_follows():
    mine, theirs = map(Rows.of, scorers("rows"))
    targets = torch.arange(23) + 7
    seen = see(mine, theirs, LOOK, targets=targets)
    for found, rows in ((seen.dense_nll, mine), (seen.other_nll, theirs)):
        table = rows.logits(0, 23).double().log_softmax(-1)
        assert found == pytest.approx(-table[torch.arange(23), targets].numpy(), rel=1e-5)
    assert len(see(mine, theirs, LOOK).dense_nll) == 0


def test_padding_that_neither_model_says():
    """Vocabularies are padded with tokens of logit -inf; candidates keep their places."""
    mine, theirs = map(Rows.of, scorers("seen"))
    silent = [0, 12, 40]

    def padded(rows):
        full = torch.full((23, 44), -torch.inf)
        full[:, [i for i in range(44) if i not in silent]] = rows.full
        return Rows(rows.states, full=full)

    kept = [i for i in range(44) if i not in silent]
    moved = Look(LOOK.temperature, tuple(kept[c] for c in LOOK.candidates))
    targets = torch.arange(23)
    plain = see(mine, theirs, LOOK, (2.0,), targets)
    found = see(padded(mine), padded(theirs), moved, (2.0,), torch.tensor(kept)[targets])
    for name, values in plain.quantities.items():
        assert found.quantities[name] == pytest.approx(values, rel=1e-12), name
    assert found.temperatures[2.0]["kl"] == pytest.approx(plain.temperatures[2.0]["kl"], rel=1e-12)
    assert found.dense_nll == pytest.approx(plain.dense_nll, rel=1e-12)


def test_logits_that_are_not_finite_give_no_number():
    mine, theirs = map(Rows.of, scorers("seen"))
    broken = theirs.full.clone()
    broken[4, 5], broken[9, 1], broken[12, 2] = torch.nan, torch.inf, -torch.inf
    found = compare(mine, Rows(theirs.states, full=broken), LOOK)["kl"]
    plain = compare(mine, theirs, LOOK)["kl"]
    assert np.flatnonzero(np.isnan(found)).tolist() == [4, 9, 12]
    others = np.delete(np.arange(23), [4, 9, 12])
    assert found[others] == pytest.approx(plain[others], rel=1e-12)


def test_shifts_and_lengths():
    """A shift of all logits is no change of p; scaling a state by a positive factor no gap."""
    z, states = normal(9, 31), normal(9, 6)
    mine = Rows(states, full=z)
    found = compare(mine, Rows(4 * states, full=z + 3), LOOK)
    assert (found["logit_gap"] > 0.1).all()
    # What remains is the rounding of a float32 sum.
    assert (found["logit_gap_centred"] < 1e-12).all()
    for name in ("kl", "kl_reverse", "probability_gap", "subspace_kl", "kl_estimate"):
        assert (found[name] < 1e-12).all(), name
    assert (found["flip"] == 0).all()
    assert (found["hidden_gap"] < 1e-30).all()
    assert found["hidden_parallel"] == pytest.approx([3.0] * 9, rel=1e-12)


def test_other_vocabularies_and_numbers_of_rows():
    mine = Rows.of(scorers("rows")[0])
    with pytest.raises(ValueError, match="vocabularies of 41 and 40 tokens"):
        compare(mine, Rows.of(scorers("rows", words=40)[0]), LOOK)
    with pytest.raises(ValueError, match="23 positions cannot be compared with 5"):
        see(mine, mine.at(torch.arange(5)), None, (1.0,))
    with pytest.raises(TypeError, match="shows no logits"):
        Rows.of("a scorer")


def test_some_of_the_positions():
    for kind in ("rows", "seen", "unseen"):
        mine, theirs = map(Rows.of, scorers(kind))
        places = torch.tensor([20, 3, 3])
        some = compare(mine.at(places), theirs.at(places), LOOK)
        for name, values in compare(mine, theirs, LOOK).items():
            assert some[name] == pytest.approx(values[places.numpy()], rel=1e-4, abs=1e-12), name


@st.composite
def wild(draw):
    """Logits of two models, float32 [1, V], with ties, neighbours and long ranges."""
    count = draw(st.integers(2, 8))
    parts = []
    for _ in range(2):
        scale = draw(st.sampled_from([1e-5, 1.0, 30.0, 1e3]))
        numbers = st.integers(-2, 2).map(float) | st.floats(-1, 1, width=32)
        parts.append(
            scale * torch.tensor([draw(st.lists(numbers, min_size=count, max_size=count))])
        )
    return parts[0], parts[1] if draw(st.booleans()) else parts[0] + parts[1]


@settings(max_examples=150)
@given(wild(), st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]))
def test_bounds_hold_for_wild_logits(pair, temperature):
    z, y = pair
    count = z.shape[1]
    look = Look(temperature, tuple(range(1, count)) if count > 2 else (0, 1))
    found = {
        n: float(v[0]) for n, v in compare(Rows(None, full=z), Rows(None, full=y), look).items()
    }
    # The angle to a zero vector is none, nor are quotients without a change numbers.
    angles = {"logit_gap", "logit_gap_centred", "subspace_logit_gap", "amplification"}
    angles |= {"logit_parallel", "logit_orthogonal", "logit_estimate"}
    assert all(np.isfinite(v) for n, v in found.items() if n not in angles), found
    spread = float((y.double() - z).amax() - (y.double() - z).amin()) / temperature
    # A divergence is rounded by a few units in the last place of the largest change of a logit.
    slack = 1e-15 * spread + 1e-150
    assert 0 <= found["kl"] <= found["kl_bound"] * (1 + 1e-9) + slack
    assert found["kl_reverse"] >= -slack
    assert found["subspace_floor"] <= found["kl"] * (1 + 1e-9) + slack
    assert found["total_variation"] <= (found["kl"] / 2 + slack) ** 0.5 * (1 + 1e-9)
    assert 0 <= found["probability_gap"] <= 1 + 1e-12
    assert 0 <= found["entropy"] <= np.log(count) * (1 + 1e-12)
    for name in ("logit_gap", "logit_gap_centred", "subspace_logit_gap"):
        assert np.isnan(found[name]) or 0 <= found[name] <= 2
