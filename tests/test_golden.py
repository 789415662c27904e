"""Agreement with reference values that were computed independently on SmolLM2-135M, in float32."""

import json

import pytest

from shoal.config.objectives import AccuracyConfig, MarginConfig, NllConfig
from shoal.core.mask import Mask
from shoal.data import Tokenisation, load_choices, load_corpus
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.evaluation.tasks import TaskSettings, measure
from shoal.objectives.build import build_objective

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "golden/smollm2.json").read_text())


@pytest.fixture(scope="module")
def masks(golden):
    return [Mask.of(30, m["removed"]) for m in golden["masks"]]


def evaluations(dense, config, data, masks, **options):
    objective = build_objective(
        config, data, dense, tokenisation=Tokenisation(), batch_tokens=2048, **options
    )
    choice = choose_runner(dense, objective.batches[0].tokens)
    assert choice.runner.name == "replay", choice.reason
    return Evaluator(
        objective, ScoredLosses(dense, objective, choice.runner), Store(None, {})
    ).evaluate(masks)


def test_nll_per_block(real_dense, shared, golden, masks):
    data = load_corpus("wikitext2", data_dir=shared / "data", split="validation")
    found = evaluations(real_dense, NllConfig(), data, masks, limit=8, length=512)
    for evaluation, expected in zip(found, golden["masks"], strict=True):
        assert evaluation.losses == pytest.approx(expected["nll_per_block"], abs=1e-4)
        assert evaluation.mean == pytest.approx(expected["nll"], abs=1e-4)


def test_margin_and_accuracy(real_dense, shared, golden, masks):
    data = load_choices("arc_easy", data_dir=shared / "data", split="train", limit=40)
    found = measure(real_dense, masks, data, TaskSettings(Tokenisation()))
    for metrics, expected in zip(found, golden["masks"], strict=True):
        by_name = {m.name: m for m in metrics}
        assert by_name["margin"].value == pytest.approx(expected["margin_loss"], abs=1e-4)
        first = by_name["margin"].per_example[:5]
        assert first == pytest.approx(expected["margin_loss_first5"], abs=2e-4)
        assert by_name["accuracy"].value == pytest.approx(expected["accuracy"])


def test_margin_with_one_row_per_choice(real_dense, shared, golden, masks):
    data = load_choices("arc_easy", data_dir=shared / "data", split="train", limit=40)
    some = [0, 4]
    found = evaluations(
        real_dense, MarginConfig(), data, [masks[i] for i in some], pack_choices=False
    )
    for evaluation, i in zip(found, some, strict=True):
        expected = golden["masks"][i]["margin_loss"]
        assert evaluation.mean == pytest.approx(expected, abs=1e-4)


def test_accuracy_per_byte(real_dense, shared, golden, masks):
    data = load_choices("arc_easy", data_dir=shared / "data", split="train", limit=40)
    found = evaluations(real_dense, AccuracyConfig(normalise="byte"), data, masks)
    for evaluation, expected in zip(found, golden["masks"], strict=True):
        assert 1 - evaluation.mean == pytest.approx(expected["accuracy_byte_norm"])


def test_accuracy_objective_is_one_minus_accuracy(real_dense, shared, golden, masks):
    data = load_choices("arc_easy", data_dir=shared / "data", split="train", limit=40)
    found = evaluations(real_dense, AccuracyConfig(), data, masks[:1])
    assert 1 - found[0].mean == pytest.approx(golden["masks"][0]["accuracy"])
