"""Where written tokens go in tables, and the divergence of whole sequences along them."""

from itertools import product

import numpy as np
import pytest
import torch

from shoal.core.errors import NotFiniteError
from shoal.core.mask import Mask
from shoal.diagnosis.passages import (
    Passage,
    check_finite,
    compare_along,
    lay,
    passage_batches,
    row_places,
    token_nll,
)
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import dense_side, masked_side
from shoal.diagnosis.spaces import Look, Rows
from shoal.models.load import load_dense
from shoal.testing.tiny import tiny_config, tiny_model

LENGTHS = ((5, 4), (2, 7), (9, 1), (5, 4), (3, 6), (1, 2))
"""Prompt and written tokens of each passage."""


def passages(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(count):
        return tuple(torch.randint(128, (count,), generator=generator).tolist())

    return [Passage(draw(given), draw(written)) for given, written in LENGTHS]


def sides(dense, texts, *removed):
    mine = dense_side(dense, passage_batches(texts, 64)[0].tokens)
    return mine, masked_side(mine, Mask.of(dense.depth, removed))


def alone(module, passage):
    """Log-probabilities where each written token is predicted [written, V], of one passage."""
    with torch.inference_mode():
        ids = torch.tensor([[*passage.prompt, *passage.written]])
        z = module(ids, use_cache=False).logits[0]
    return z.double().log_softmax(-1)[len(passage.prompt) - 1 : -1]


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_each_written_token_has_its_place(tiny_dense, batch_tokens):
    """Order of the passages is kept, and what is beyond a passage's end has no number."""
    texts = passages()
    mine, theirs = sides(tiny_dense("llama"), texts, 2, 3)
    heard = []
    look = Look(1.0, (5, 6, 7))
    found = compare_along(
        mine, theirs, texts, look,
        temperatures=(0.5,), batch_tokens=batch_tokens, on_step=heard.append,
    )  # fmt: skip
    assert sum(heard) == sum(written for _, written in LENGTHS)
    assert found.quantities.keys() == QUANTITIES.keys()
    there = np.arange(7) < np.array(LENGTHS)[:, 1:]
    for table in (*found.quantities.values(), found.dense_nll, found.other_nll):
        assert table.shape == (6, 7)
        assert (np.isnan(table) == ~there).all()
    for i, passage in enumerate(texts):
        p, q = (alone(side.model.module, passage) for side in (mine, theirs))
        steps = len(passage.written)
        kl = (p.exp() * (p - q)).sum(-1)
        assert found.quantities["kl"][i, :steps] == pytest.approx(kl.numpy(), abs=1e-5)
        half = (2 * p).log_softmax(-1), (2 * q).log_softmax(-1)
        cool = (half[0].exp() * (half[0] - half[1])).sum(-1)
        assert found.temperatures[0.5]["kl"][i, :steps] == pytest.approx(cool.numpy(), abs=1e-4)
        for table, logs in ((found.dense_nll, p), (found.other_nll, q)):
            nll = -logs[torch.arange(steps), torch.tensor(passage.written)]
            assert table[i, :steps] == pytest.approx(nll.numpy(), abs=1e-5)


def test_a_model_along_itself_gives_zeros(tiny_dense):
    texts = passages()
    mine, same = sides(tiny_dense("gpt2"), texts)
    found = compare_along(mine, same, texts, Look(0.5, (5, 6)), temperatures=(2.0,))
    for name, table in found.quantities.items():
        if not QUANTITIES[name].describes_dense:
            assert (table[~np.isnan(table)] == 0).all(), name
    assert np.nanmax(np.abs(found.temperatures[2.0]["kl"])) == 0
    assert np.array_equal(found.dense_nll, found.other_nll, equal_nan=True)


def tiny_vocabulary(words, seed):
    """A llama that knows few tokens."""
    from transformers import AutoModelForCausalLM

    config = tiny_config("llama", depth=4)
    config.vocab_size = words
    config.pad_token_id = config.eos_token_id = config.bos_token_id = None
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return load_dense(model.train(False))


def test_divergence_of_sequences_adds_up_over_steps():
    """KL of the laws of whole texts, over all texts, is the mean sum of KL along dense prefixes."""
    dense = tiny_vocabulary(4, seed=3)
    texts = [Passage((1, 2), written) for written in product(range(4), repeat=3)]
    mine = dense_side(dense, passage_batches(texts, 64)[0].tokens)
    theirs = masked_side(mine, Mask.of(4, [1, 2]))
    found = compare_along(mine, theirs, texts, Look())
    mass = np.exp(-found.dense_nll.sum(1))
    assert mass.sum() == pytest.approx(1, abs=1e-6)
    assert np.exp(-found.other_nll.sum(1)).sum() == pytest.approx(1, abs=1e-6)
    whole = (mass * (found.other_nll - found.dense_nll).sum(1)).sum()
    assert whole > 0.01
    assert (mass * found.quantities["kl"].sum(1)).sum() == pytest.approx(whole, abs=1e-6)


def test_places_of_rows():
    texts = passages()
    seen = []
    for batch in passage_batches(texts, 12):
        owners, steps = row_places(batch)
        seen += zip(owners.tolist(), steps.tolist(), strict=True)
        written = [texts[i].written[s] for i, s in zip(owners, steps, strict=True)]
        assert batch.tokens.targets.tolist() == written
    every = [(i, s) for i, (_, written) in enumerate(LENGTHS) for s in range(written)]
    assert sorted(seen) == every


def test_columns_are_laid_into_tables():
    tables = {"a": np.zeros((2, 2))}
    lay(
        tables, {"a": np.array([5.0]), "b": np.array([7.0])}, (np.array([1]), np.array([0])), (2, 2)
    )
    assert tables["a"].tolist() == [[0, 0], [5, 0]]
    assert tables["b"] == pytest.approx(np.array([[np.nan] * 2, [7, np.nan]]), nan_ok=True)


def test_nll_of_tokens(monkeypatch):
    from shoal.diagnosis import passages as module

    z = 5 * torch.randn(9, 13, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(9) + 2
    expected = -z.double().log_softmax(-1)[torch.arange(9), targets].numpy()
    for elements in (2**20, 13 * 2, 1):
        monkeypatch.setattr(module, "HEAD_ELEMENTS", elements)
        assert token_nll(Rows(None, full=z), targets) == pytest.approx(expected, rel=1e-12)


def test_what_cannot_be_compared_is_refused(tiny_dense):
    with pytest.raises(ValueError, match="a token before"):
        Passage((), (1,))
    with pytest.raises(ValueError, match="one written"):
        Passage((1,), ())
    mine = dense_side(tiny_dense("llama"), passage_batches(passages(), 64)[0].tokens)
    with pytest.raises(ValueError, match="no passages"):
        compare_along(mine, mine, [], Look())
    with pytest.raises(NotFiniteError, match="not finite at 1 of 3 positions"):
        check_finite({"kl": np.array([0.1, np.nan, np.inf])})
    broken = load_dense(tiny_model("llama"))
    with torch.no_grad():
        broken.module.lm_head.weight[3] = torch.nan
    texts = passages()
    ill = dense_side(broken, passage_batches(texts, 64)[0].tokens)
    with pytest.raises(NotFiniteError, match="cannot be compared"):
        compare_along(mine, ill, texts, Look())
