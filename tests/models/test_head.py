"""Tiled scoring equals full logits."""

import pytest
import torch
from torch import nn

from shoal.models import tiles as module
from shoal.models.head import Head, LogitScorer, RowScorer


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
    subject.score(hidden, rows).divergence(subject.score(hidden + 1, rows))
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


def exact(subject, states):
    """Logits of normed states in float64."""
    z = states.double() @ subject.weight.double().T
    z = subject.scale * (z if subject.bias is None else z + subject.bias.double())
    return z if subject.softcap is None else subject.softcap * torch.tanh(z / subject.softcap)


def oracle(reference, own):
    """KL(reference || own) of rows of float64 logits, term by term."""
    p, q = reference.log_softmax(-1), own.log_softmax(-1)
    terms = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q))
    return terms.sum(-1)


def pair(subject, dtype=torch.float32, shift=0.5):
    """Rows of two models and the float64 divergence of the first from the second."""
    hidden, rows, *_ = case(dtype)
    own = subject.score(hidden, rows)
    base = subject.score(hidden + shift * torch.randn_like(hidden), rows)
    return own, base, oracle(exact(subject, base.states), exact(subject, own.states))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.3, None), (1.0, 5.0), (2.0, 5.0)])
@pytest.mark.parametrize("tile", [(1, 1), (2, 32), (4, 64), (5, 101), (1024, 4096)])
def test_divergence_equals_full_logits(monkeypatch, bias, scale, softcap, tile):
    monkeypatch.setattr(module, "CPU_TILE", tile)
    subject = head(bias, scale, softcap)
    own, base, expected = pair(subject)
    found = own.divergence(base)
    assert (found.dtype, found.shape) == (torch.float32, (5,))
    assert expected.min() > 0.01
    assert (found - expected).abs().max() < 1e-5
    whole = LogitScorer(subject.logits(own.states))
    assert (
        whole.divergence(LogitScorer(subject.logits(base.states))) - expected
    ).abs().max() < 1e-5
    assert (base.divergence(own) - found).abs().max() > 0.01, "the order must matter"


@pytest.mark.parametrize("tile", [(2, 16), (1024, 4096)])
def test_divergence_in_low_precision_is_summed_in_float32(monkeypatch, tile):
    """What is lost is lost by the logits' own rounding, not by the sums."""
    monkeypatch.setattr(module, "CPU_TILE", tile)
    subject = head(dtype=torch.bfloat16)
    own, base, expected = pair(subject, torch.bfloat16)
    found = own.divergence(base)
    rounded = oracle(*(subject.logits(s.states).double() for s in (base, own)))
    assert found.dtype == torch.float32
    assert (found - rounded).abs().max() < 1e-5
    assert (found - expected).abs().max() < 0.05 * expected.max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_model_diverges_from_itself(monkeypatch, dtype):
    monkeypatch.setattr(module, "CPU_TILE", (2, 16))
    own, base, _ = pair(head(bias=True, dtype=dtype), dtype)
    assert torch.equal(own.divergence(own), torch.zeros(5))
    logits = own.head.logits(own.states)
    assert torch.equal(LogitScorer(logits).divergence(LogitScorer(logits)), torch.zeros(5))
    assert own.divergence(base).min() > 0


def test_nearly_equal_models_never_look_better_than_equal():
    subject = head(bias=True, scale=20.0, vocabulary=1000)
    own, base, expected = pair(subject, shift=1e-4)
    for found in (
        own.divergence(base),
        LogitScorer(subject.logits(own.states)).divergence(
            LogitScorer(subject.logits(base.states))
        ),
    ):
        assert found.min() >= 0
        assert (found - expected).abs().max() < 1e-5


def both(own, reference, bias=None):
    """The divergence of given logits by rows (an output matrix of ones and zeros) and plainly."""
    subject = Head((), torch.eye(own.shape[1]), bias)
    rows = RowScorer(subject, own).divergence(RowScorer(subject, reference))
    added = 0.0 if bias is None else bias
    return rows, LogitScorer(own + added).divergence(LogitScorer(reference + added))


@pytest.mark.parametrize("tile", [(1, 2), (2, 3), (1024, 4096)])
def test_tokens_that_are_ruled_out(monkeypatch, tile):
    """Exact where it is finite, even where whole tiles are ruled out; infinite where it is."""
    monkeypatch.setattr(module, "CPU_TILE", tile)
    bias = torch.tensor([-torch.inf, -torch.inf, 0.0, 0.0, 0.0, -torch.inf])
    torch.manual_seed(3)
    own, reference = torch.randn(2, 6), torch.randn(2, 6)
    expected = oracle(reference[:, 2:5].double(), own[:, 2:5].double())
    for found in both(own, reference, bias):
        assert (found - expected).abs().max() < 1e-6
    # Of logits of their own a model is free to rule out what another allows.
    subject = Head((), torch.ones(6, 1))
    shut = Head((), torch.ones(6, 1), bias)
    state = torch.ones(2, 1)
    free, bound = RowScorer(subject, state), RowScorer(shut, state)
    assert torch.equal(free.divergence(bound), torch.full((2,), 6 / 3).log())
    assert torch.equal(bound.divergence(free), torch.full((2,), torch.inf))
    plain, cut = (LogitScorer(r.head.logits(r.states)) for r in (free, bound))
    assert torch.allclose(plain.divergence(cut), torch.full((2,), 6 / 3).log())
    assert torch.equal(cut.divergence(plain), torch.full((2,), torch.inf))


@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1024, 4096)])
def test_huge_logits(monkeypatch, tile):
    monkeypatch.setattr(module, "CPU_TILE", tile)
    own = torch.tensor([[0.0, 1e4, -1e4], [3e4, 0.0, 1.0], [0.0, 0.0, 3e38], [5.0, 5.0, -3e38]])
    reference = torch.tensor(
        [[0.0, -1e4, -1e4], [3e4, -3e4, 0.0], [0.0, 0.0, -3e38], [5.0, 5.0, 3.0]]
    )
    expected = oracle(reference.double(), own.double()).float()
    assert torch.isfinite(expected).all()
    for found in both(own, reference):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_is_not_a_number_stays_so():
    own, reference = torch.randn(4, 3), torch.randn(4, 3)
    own[0, 1] = reference[1, 2] = torch.nan
    own[2, 0] = torch.inf
    for found in both(own, reference):
        assert torch.isnan(found[:3]).all()
        assert torch.isfinite(found[3])


def test_divergence_of_logits_can_be_differentiated():
    """Its derivative by the logits is q - p."""
    own, reference = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    reference[0, 1] = -torch.inf
    LogitScorer(own).divergence(LogitScorer(reference)).sum().backward()
    assert torch.allclose(own.grad, (own.softmax(-1) - reference.softmax(-1)).detach(), atol=1e-6)


def test_divergence_holds_in_parts_of_the_logits(monkeypatch):
    from shoal.models import head as scorers

    own, reference = torch.randn(7, 5), torch.randn(7, 5)
    whole = LogitScorer(own).divergence(LogitScorer(reference))
    monkeypatch.setattr(scorers, "ACCELERATOR_TILE_BYTES", 2 * 4 * 5)
    assert torch.equal(LogitScorer(own).divergence(LogitScorer(reference)), whole)


def test_divergence_works_on_states_made_in_inference_mode():
    subject = head(bias=True)
    with torch.inference_mode():
        own, base, expected = pair(subject)
        inside = own.divergence(base)
    assert torch.equal(own.divergence(base), inside)
    assert not torch.isnan(expected).any()


def test_only_alike_scorers_are_compared():
    subject = head()
    own, base, _ = pair(subject)
    logits = LogitScorer(subject.logits(base.states))
    assert (own.keepable, logits.keepable) == (True, False)
    with pytest.raises(TypeError, match="rows cannot be compared with a LogitScorer"):
        own.divergence(logits)
    with pytest.raises(TypeError, match="logits cannot be compared with a RowScorer"):
        logits.divergence(own)
