"""What a geometry will take, from a timed pass over a few sequences and the counts of its work."""

import time
from collections.abc import Callable
from typing import TypeVar

from shoal.geometry.collecting import moments_bytes
from shoal.geometry.linear import linear_record
from shoal.geometry.moments import Moments
from shoal.geometry.points import steps
from shoal.geometry.profiles import profile
from shoal.geometry.stack import Texts, states
from shoal.pipeline.cost import Cost
from shoal.pipeline.geometry.parts import Parts, layers_together
from shoal.pipeline.geometry.subject import tokens_of

SCORING = 1.1
"""What a position of a loss costs, in positions whose states are kept."""

Found = TypeVar("Found")


def cost_of(parts: Parts) -> Cost:
    """Estimate a geometry; parts that are kept already are counted all the same."""
    subject, wanted = parts.subject, parts.config.parts
    probe = Texts("probe", (subject.probe,))
    profile(subject.stack, probe)
    took, _ = _timed(lambda: profile(subject.stack, probe))
    position = took / subject.probe.positions.numel()
    id, ood = subject.id, subject.ood
    seconds = 0.0
    if "profiles" in wanted:
        seconds += (1 + (subject.mask is not None)) * (id.tokens + ood.tokens) * position
    if "surrogates" in wanted:
        passes, blocks = len(layers_together(subject)), subject.stack.depth
        tokens = tokens_of(id.surrogate) + tokens_of(ood.surrogate)
        adding, fitting = _fit(parts)
        seconds += tokens * (passes * position + blocks * adding)
        seconds += 2 * blocks * len(subject.classes) * fitting
    if "interventions" in wanted and subject.mask is not None:
        losses = id.loss_tokens + ood.loss_tokens
        one = SCORING * losses * position + ood.tokens * position
        points = sum(steps(subject.stack, subject.mask, parts.settings).values())
        seconds += points * one + id.tokens * position
    return Cost(seconds, _bytes(parts))


def _fit(parts: Parts) -> tuple[float, float]:
    """Seconds per state that is added to a block's moments, and per surrogate."""
    subject, probe = parts.subject, parts.subject.probe
    hidden = states(subject.stack, probe)
    before, after = (h[probe.positions] for h in hidden[:2])
    half = len(before) // 2
    train, held = Moments(subject.width), Moments(subject.width)
    held.add(before[half:], after[half:])
    adding, _ = _timed(lambda: train.add(before[:half], after[:half]))
    fitting, _ = _timed(lambda: linear_record(train, held, 0, "probe", "id"))
    return adding / half, fitting


def _bytes(parts: Parts) -> float:
    """Weights, the states of a micro-batch at every depth, and the moments of the surrogates."""
    subject, config = parts.subject, parts.config
    states_bytes = config.batch_tokens * subject.width * 4 * (subject.stack.depth + 16)
    moments = 0
    if "surrogates" in config.parts:
        together = max(map(len, layers_together(subject)))
        moments = moments_bytes(together, subject.width, len(subject.classes))
    return subject.weight_bytes + states_bytes + moments


def _timed(work: Callable[[], Found]) -> tuple[float, Found]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found
