"""Tiled scoring equals full logits."""

import pytest
import torch
from torch import nn

from shoal.models import head as module
from shoal.models.head import Head, LogitScorer


def head(bias=False, scale=1.0, softcap=None, dtype=torch.float32, vocabulary=101):
    torch.manual_seed(0)
    norm = nn.LayerNorm(16).to(dtype)
    weight = torch.randn(vocabulary, 16, dtype=dtype)
    return Head(
        (norm,), weight, torch.randn(vocabulary, dtype=dtype) if bias else None, scale, softcap
    )


def case(dtype=torch.float32):
    torch.manual_seed(1)
    hidden = torch.randn(3, 7, 16, dtype=dtype)
    rows = torch.tensor([0, 20, 5, 6, 13])
    pick = torch.tensor([0, 0, 4, 2, 1, 1, 1])
    targets = torch.tensor([0, 100, 50, 33, 64, 63, 65])
    return hidden, rows, pick, targets


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.3, None), (1.0, 5.0), (2.0, 5.0)])
@pytest.mark.parametrize("tile", [(1, 1), (2, 32), (4, 64), (1024, 4096)])
def test_tiles_equal_full_logits(monkeypatch, bias, scale, softcap, tile):
    monkeypatch.setattr(module, "CPU_TILE", tile)
    subject = head(bias, scale, softcap)
    hidden, rows, pick, targets = case()
    scorer = subject.score(hidden, rows)
    z = subject.chain[0](hidden).reshape(-1, 16)[rows].double() @ subject.weight.double().T
    z = scale * (z if subject.bias is None else z + subject.bias.double())
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    expected = z.log_softmax(-1)[pick, targets]
    assert (scorer.token_logprobs(pick, targets) - expected).abs().max() < 1e-5
    assert (subject.logits(scorer.states) - z).abs().max() < 1e-4


def test_low_precision_logits_are_summed_in_float32(monkeypatch):
    monkeypatch.setattr(module, "CPU_TILE", (2, 16))
    subject = head(dtype=torch.bfloat16)
    hidden, rows, pick, targets = case(torch.bfloat16)
    scorer = subject.score(hidden, rows)
    expected = LogitScorer(subject.logits(scorer.states)).token_logprobs(pick, targets)
    found = scorer.token_logprobs(pick, targets)
    assert found.dtype == torch.float32
    assert (found - expected).abs().max() < 1e-4


def test_a_state_that_is_not_a_number_scores_not_a_number():
    subject = head()
    hidden, rows, pick, targets = case()
    hidden[0, 0, 0] = torch.nan
    found = subject.score(hidden, rows).token_logprobs(pick, targets)
    assert torch.isnan(found[:2]).all()
    assert torch.isfinite(found[2:]).all()


def test_a_large_vocabulary_never_exists_as_a_whole(monkeypatch):
    monkeypatch.setattr(module, "CPU_TILE", (8, 64))
    largest = 0
    own = torch.empty

    def watch(*size, **kwargs):
        nonlocal largest
        made = own(*size, **kwargs)
        largest = max(largest, made.numel())
        return made

    monkeypatch.setattr(module.torch, "empty", watch)
    subject = head(vocabulary=5000)
    hidden, rows, pick, targets = case()
    subject.score(hidden, rows).token_logprobs(pick, targets)
    assert largest <= 8 * 64


def test_the_first_rows_of_a_batch_score_as_they_do_in_it():
    from shoal.models.batch import TokenBatch

    rows = torch.tensor([6, 0, 3, 9, 11])
    pick = torch.tensor([0, 1, 1, 4, 2, 3])
    tokens = TokenBatch(
        torch.arange(12).view(3, 4), rows, pick, torch.arange(6), torch.tensor([0, 1, 1, 2, 3, 3]),
        4,
    )  # fmt: skip
    subject = head()
    hidden = torch.randn(3, 4, 16)
    whole = subject.score(hidden, rows).token_logprobs(pick, tokens.targets)
    for positions, count in ((1, 1), (4, 1), (9, 2), (99, 3)):
        part = tokens.first(positions)
        assert part.input_ids.shape == (count, 4)
        assert (part.rows < 4 * count).all()
        found = subject.score(hidden[:count], part.rows).token_logprobs(part.pick, part.targets)
        assert torch.allclose(found, whole[rows[pick] < 4 * count])
