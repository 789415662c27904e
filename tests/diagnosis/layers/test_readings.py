"""Readings give what `spaces.compare` gives, from inner products."""

import numpy as np
import pytest
import torch

from shoal.diagnosis.layers import readings as layer_readings
from shoal.diagnosis.layers.effects import compare_pairs, joined
from shoal.diagnosis.layers.readings import differ, read
from shoal.diagnosis.spaces import Look, Rows, compare

WORDS = 97


def logits(rows: int = 6, scale: float = 3.0, seed: int = 0) -> torch.Tensor:
    return scale * torch.randn(rows, WORDS, generator=torch.Generator().manual_seed(seed))


def both(z: torch.Tensor, y: torch.Tensor, look: Look):
    found = differ(read(z, look.temperature), read(y, look.temperature), look)
    return found, compare(Rows(None, full=z), Rows(None, full=y), look)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [1e-3, 0.1, 5.0])
def test_it_gives_what_compare_gives(temperature, size) -> None:
    z = logits()
    y = z + size * logits(seed=1) + 2.0
    found, expected = both(z, y, Look(temperature, (3, 5, 8)))
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-13, err_msg=name)


def test_it_does_not_matter_how_many_rows_are_worked_on_at_once(monkeypatch) -> None:
    z, y = logits(), logits(seed=1)
    whole, _ = both(z, y, Look())
    monkeypatch.setattr(layer_readings, "PIECE_ELEMENTS", 2 * WORDS)
    pieces, _ = both(z, y, Look())
    for name in whole:
        np.testing.assert_allclose(pieces[name], whole[name], rtol=1e-12, atol=1e-15)


def test_equal_logits_differ_nowhere() -> None:
    z = logits()
    found, _ = both(z, z.clone(), Look(1.0, (1, 2)))
    for name, values in found.items():
        if name == "amplification":
            assert np.isnan(values).all()
        elif name not in {"logit_rms", "entropy", "amplification_predicted", "subspace_mass"}:
            assert (values == 0).all(), name


def test_a_shift_of_all_logits_changes_no_probability() -> None:
    # Representable exactly, so that nothing but the shift remains.
    z = logits().mul(64).round().div(64)
    found, _ = both(z, z + 4.0, Look())
    assert (found["logit_gap"] > 1e-3).all()
    for name in ("kl", "kl_reverse", "kl_estimate", "probability_gap", "logit_change"):
        assert found[name] == pytest.approx(0, abs=1e-13), name


def test_tokens_that_are_never_said_are_left_out() -> None:
    z, y = logits(), logits(seed=1)
    z[:, -3:] = y[:, -3:] = -torch.inf
    found, _ = both(z, y, Look())
    expected = compare(Rows(None, full=z[:, :-3]), Rows(None, full=y[:, :-3]), Look())
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


def test_pairs_that_share_states_are_each_compared(monkeypatch) -> None:
    rows = {name: Rows(None, full=logits(seed=i)) for i, name in enumerate("abc")}
    pairs = [("b", "a"), ("c", "b"), ("c", "a")]
    monkeypatch.setattr("shoal.diagnosis.layers.effects.HEAD_ELEMENTS", 4 * WORDS)
    parts = [[], [], []]
    for i, _, found in compare_pairs(rows, pairs, Look()):
        parts[i].append(found)
    for pieces, (dense, other) in zip(parts, pairs, strict=True):
        assert len(pieces) == 2
        expected = compare(rows[dense], rows[other], Look())
        np.testing.assert_allclose(joined(pieces)["kl"], expected["kl"], rtol=1e-9)
