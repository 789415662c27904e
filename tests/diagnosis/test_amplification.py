"""Measured and predicted amplification on logits whose change is known."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from shoal.diagnosis.amplification import amplify
from shoal.diagnosis.passages import Along
from shoal.diagnosis.spaces import Rows, see

TEMPERATURES = (0.5, 1.0, 2.0, 8.0)


def along(z, y, shape):
    """A comparison of logits [P * S, V], as passages of equal length."""
    swept = see(Rows(None, full=z), Rows(None, full=y), None, TEMPERATURES).temperatures
    tables = {
        t: {name: values.reshape(shape) for name, values in columns.items()}
        for t, columns in swept.items()
    }
    nothing = np.full(shape, np.nan)
    return Along({}, tables, nothing, nothing)


def drawn(rows, words=400, scale=4.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(rows, words, generator=generator, dtype=torch.float64)
    return z, torch.randn(rows, words, generator=generator, dtype=torch.float64)


def gap(x, y):
    return 1 - torch.cosine_similarity(x, y, dim=-1)


def test_a_small_isotropic_change_is_amplified_as_predicted():
    """Single factors scatter (methods of 2603.24652), their mean about the prediction does not."""
    z, change = drawn(2000)
    found = along(z.float(), (z + 1e-2 * change).float(), (40, 50))
    for t, record in zip(TEMPERATURES, amplify(found), strict=True):
        tables = found.temperatures[t]
        factors = tables["amplification"] / tables["amplification_predicted"]
        assert t > 1 or factors.std() > 0.3
        # Sharper distributions lie on fewer tokens, and so scatter more.
        assert factors.mean() == pytest.approx(1, abs=0.2 if t < 1 else 0.1)
        assert record.temperature == t
        assert record.rank_correlation > 0.3


def test_softmax_amplifies_only_where_logits_exceed_the_temperature():
    z, change = drawn(500)
    found = amplify(along(z, z + 1e-2 * change, (10, 50)))
    ratios = [record.ratio for record in found]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1] > 5
    assert ratios[3] < 0.5
    assert found[3].amplified == 0
    assert found[3].predicted_amplified == 0
    assert found[1].predicted_amplified > 0.7


def test_a_shift_of_all_logits_is_not_amplified():
    z, _ = drawn(60)
    for record in amplify(along(z, z + 3.0, (6, 10))):
        assert record.ratio == pytest.approx(0, abs=1e-12)
        assert record.measured == pytest.approx(0, abs=1e-12)
        assert record.amplified == 0
        assert record.means["logit_gap"].value > 0.01


def test_no_change_has_no_measured_factor():
    z, _ = drawn(20)
    for record in amplify(along(z, z, (4, 5))):
        assert record.ratio is None
        assert record.measured is None
        assert record.amplified is None
        assert record.rank_correlation is None
        assert record.predicted > 0
        assert record.means["kl"].value == 0


def test_against_plain_formulas():
    z, change = (x.float().double() for x in drawn(12, words=50, scale=2.0))
    y = (z + 0.7 * change).float().double()
    z[3], y[3] = z[0], z[0]
    found = amplify(along(z, y, (4, 3)))
    for t, record in zip(TEMPERATURES, found, strict=True):
        p, q = (z / t).softmax(-1), (y / t).softmax(-1)
        logit, probability = gap(z, y).numpy(), gap(p, q).numpy()
        changed = [i for i in range(12) if i != 3]
        measured = probability[changed] / logit[changed]
        r = p**2 / (p**2).sum(-1, keepdim=True)
        predicted = ((z**2).mean(-1) / t**2 * (1 - (r**2).sum(-1))).numpy()
        assert record.ratio == pytest.approx(probability.mean() / logit.mean())
        assert record.measured == pytest.approx(np.median(measured))
        assert record.predicted == pytest.approx(np.median(predicted))
        assert record.amplified == pytest.approx((measured > 1).mean())
        ranks = np.corrcoef(rankdata(measured), rankdata(predicted[changed]))[0, 1]
        assert record.rank_correlation == pytest.approx(ranks)
        kl = (p * (p / q).log()).sum(-1).numpy()
        assert record.means["kl"].value == pytest.approx(kl.mean())


def test_passages_that_end_early_and_no_temperatures():
    z, change = drawn(12, words=50)
    full = along(z, z + 0.1 * change, (4, 3))
    for tables in full.temperatures.values():
        for table in tables.values():
            table[1, 2] = np.nan
    for record in amplify(full):
        assert record.means["kl"].count == 4
        assert np.isfinite(record.rank_correlation)
    assert amplify(Along({}, {}, full.dense_nll, full.other_nll)) == ()
