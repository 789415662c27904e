"""Shared passes of a lab model against its own forward."""

from itertools import combinations

import numpy as np
import pytest
import torch

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.engine.trie import naive_passes, shared_passes
from shoal.lab.evaluator import LabEvaluator
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel
from shoal.models.masked import skipped

CONFIG = LabModelConfig(layers=5, width=16, heads=2, points=7)
MASKS = [Mask.of(5, removed) for k in range(5) for removed in combinations(range(5), k)]


@pytest.fixture(scope="module")
def model():
    return LabModel(CONFIG, 1).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def prompts():
    return draw_prompts(FamilyConfig(), 10, 7, 0)


def of_the_forward(model, prompts, mask):
    with skipped(model.blocks, mask), torch.inference_mode():
        return model(prompts.x, prompts.y).double().numpy()


@pytest.mark.parametrize("batch", [4, 64])
def test_shared_passes_are_the_models_own_forward(model, prompts, batch):
    evaluator = LabEvaluator(model, prompts, skip=2, batch=batch)
    shuffled = [MASKS[i] for i in np.random.default_rng(0).permutation(len(MASKS))]
    found = evaluator.evaluate(shuffled)
    assert [e.mask for e in found] == shuffled
    y = prompts.y.double().numpy()
    for evaluation in found:
        expected = of_the_forward(model, prompts, evaluation.mask)
        errors = (expected - y) ** 2
        assert evaluator.predictions(evaluation.mask) == pytest.approx(expected, abs=1e-6)
        assert evaluator.errors(evaluation.mask) == pytest.approx(errors, abs=1e-6)
        assert evaluation.losses == pytest.approx(errors[:, 2:].mean(1), abs=1e-6)
        assert evaluation.mean == pytest.approx(errors[:, 2:].mean(), abs=1e-6)
    # Masks that did nothing would agree as well.
    assert len({round(e.mean, 7) for e in found}) == len(MASKS)


def test_work_is_that_of_the_trie(model, prompts, monkeypatch):
    ran = []
    run = LabModel.run_block
    monkeypatch.setattr(
        LabModel, "run_block", lambda self, layer, h: ran.append(layer) or run(self, layer, h)
    )
    evaluator = LabEvaluator(model, prompts, batch=5)
    found = evaluator.evaluate(MASKS)
    assert len(ran) == evaluator.passes.blocks == 2 * shared_passes(MASKS)
    assert evaluator.passes.naive == 2 * naive_passes(MASKS)
    assert evaluator.passes.blocks < 0.5 * evaluator.passes.naive
    assert sum(e.cost.blocks for e in found) == pytest.approx(evaluator.passes.blocks)
    assert all(e.cost.seconds > 0 for e in found)


def test_no_mask_is_run_twice(model, prompts):
    evaluator = LabEvaluator(model, prompts)
    first = evaluator.evaluate([MASKS[3], MASKS[0], MASKS[3]])
    assert first[0] is first[2]
    before = evaluator.passes.blocks
    assert evaluator.evaluate([MASKS[0]]) == [first[1]]
    evaluator.predictions(MASKS[3])
    evaluator.errors(MASKS[3])
    evaluator.losses(MASKS[3])
    assert evaluator.passes.blocks == before
    evaluator.errors(MASKS[4])
    assert evaluator.passes.blocks > before


def test_losses_leave_the_first_points_out(model, prompts):
    mask = MASKS[7]
    errors = LabEvaluator(model, prompts, skip=0).errors(mask)
    for skip in (0, 3, 6):
        losses = LabEvaluator(model, prompts, skip=skip).losses(mask)
        assert losses == pytest.approx(errors[:, skip:].mean(1), rel=1e-12)


def test_what_cannot_be_evaluated_is_refused(model, prompts):
    evaluator = LabEvaluator(model, prompts)
    with pytest.raises(UsageError, match="mask of 4 blocks"):
        evaluator.evaluate([Mask.of(4, [1])])
    with pytest.raises(UsageError, match="parts of blocks"):
        evaluator.evaluate([Mask.parse("-[1.attn]", 5)])
    with pytest.raises(UsageError, match="none is left to count"):
        LabEvaluator(model, prompts, skip=7)
