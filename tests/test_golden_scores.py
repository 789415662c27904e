"""State scores against reference values that were computed independently on SmolLM2-135M."""

import json

import numpy as np
import pytest

from shoal.config.objectives import NllConfig
from shoal.data import Tokenisation, load_corpus
from shoal.objectives.build import build_objective
from shoal.objectives.scores.states import state_windows
from shoal.objectives.scores.table import STATES

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "golden/smollm2.json").read_text())["scores"]


@pytest.fixture(scope="module")
def found(real_dense, shared):
    data = load_corpus("wikitext2", data_dir=shared / "data", split="validation")
    objective = build_objective(
        NllConfig(), data, real_dense, tokenisation=Tokenisation(), limit=8, length=512
    )
    return state_windows(real_dense, objective, STATES)


def test_block_influence(golden, found):
    assert found["block_influence"][0] == pytest.approx(golden["block_influence"], abs=1e-5)


def test_angular_windows(golden, found):
    for length, expected in golden["angular_last_token"].items():
        windows = found["angular"][int(length) - 1]
        assert len(expected) == 30 - int(length) + 1
        assert windows[: len(expected)] == pytest.approx(expected, abs=1e-5)
        assert np.isnan(windows[len(expected) :]).all()
