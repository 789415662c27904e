from types import SimpleNamespace

import numpy as np
import pytest

from shoal.searches import certificate
from shoal.searches.certificate import certify
from shoal.searches.quadratic import Quadratic, enumerate_lowest

PROVEN = "lowest state proven optimal (milp)"
CASES = [(n, k) for n in (2, 5, 8) for k in range(1, n)] + [(12, 4), (14, 7)]


def random_model(units: int, seed: int, scale: float = 1.0) -> Quadratic:
    rng = np.random.default_rng([units, seed])
    upper = scale * np.triu(rng.normal(size=(units, units)), 1)
    return Quadratic(scale * rng.normal(size=units), upper + upper.T)


@pytest.mark.parametrize(("units", "k"), CASES)
def test_agrees_with_enumeration(units: int, k: int) -> None:
    model = random_model(units, k)
    best = enumerate_lowest(model, k, 1)[0]
    proof = certify(model, best, 60)
    assert proof.state == best
    assert proof.bound == pytest.approx(model.energy(best), abs=1e-5)
    assert proof.text == PROVEN


@pytest.mark.parametrize(("units", "k"), CASES)
def test_corrects_a_wrong_optimum(units: int, k: int) -> None:
    model = random_model(units, k)
    best, *_, worst = enumerate_lowest(model, k, 10_000)
    proof = certify(model, worst, 60)
    assert proof.state == best != worst
    assert proof.text == PROVEN


def test_corrects_the_second_best() -> None:
    model = random_model(10, 3)
    best, second = enumerate_lowest(model, 4, 2)
    assert certify(model, second, 60).state == best


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_does_not_depend_on_the_scale_of_the_loss(scale: float) -> None:
    model = random_model(10, 4, scale)
    best, second = enumerate_lowest(model, 4, 2)
    proof = certify(model, second, 60)
    assert proof.state == best
    assert proof.bound == pytest.approx(model.energy(best), abs=1e-5 * scale)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_couplings_of_one_sign(sign: float) -> None:
    model = random_model(9, 5)
    model = Quadratic(model.linear, sign * np.abs(model.couplings))
    best, second = enumerate_lowest(model, 4, 2)
    assert certify(model, second, 60).state == best


def test_prohibitive_terms() -> None:
    singles = np.random.default_rng(0).normal(size=10)
    singles[:3] = np.nan
    pairs = np.random.default_rng(1).normal(size=(10, 10))
    model = Quadratic.from_losses(0.0, singles, pairs)
    for k in (4, 8):
        best, *_, worst = enumerate_lowest(model, k, 300)
        proof = certify(model, worst, 60)
        # With 8 of 10, one of the three broken units has to go, whichever.
        assert model.energy(proof.state) == pytest.approx(model.energy(best), abs=1e-5)
        assert proof.text == PROVEN


def test_a_flat_model_is_proven() -> None:
    flat = Quadratic(np.zeros(6), np.zeros((6, 6)))
    proof = certify(flat, (1, 3), 60)
    assert proof.state == (1, 3)
    assert proof.bound == pytest.approx(0.0)


def test_out_of_time_claims_no_proof() -> None:
    model = random_model(60, 6)
    start = tuple(range(20))
    proof = certify(model, start, 0.01)
    assert proof.text != PROVEN
    assert "0.01 s" in proof.text
    assert proof.bound < model.energy(proof.state) <= model.energy(start)


@pytest.mark.parametrize(
    ("dual", "bound", "text"),
    [
        (-4.0, -8.0, "lowest state proven to be within 5 of the optimum (milp, 9 s)"),
        (-1.5, -3.0, PROVEN),
        (-np.inf, -np.inf, "lowest state not proven optimal in 9 s (milp)"),
        (None, -np.inf, "lowest state not proven optimal in 9 s (milp)"),
    ],
)
def test_says_what_the_solver_has_proven(
    monkeypatch: pytest.MonkeyPatch, dual: float | None, bound: float, text: str
) -> None:
    # The solver works on energies divided by a typical term, which is 2 here.
    model = Quadratic(np.array([-1.0, -2.0, -2.0, 3.0]), np.zeros((4, 4)))
    result = SimpleNamespace(x=None, mip_dual_bound=dual)
    monkeypatch.setattr(certificate, "_solve", lambda *_: result)
    proof = certify(model, (0, 1), 9.0)
    assert (proof.state, proof.bound, proof.text) == ((0, 1), bound, text)
