"""How evidence becomes an answer.

Each model is asked by itself, since its tasks share their functions and its weights: a claim holds
for a model where most of its tasks support it. It holds where it holds for every model, does not
where it holds for none and few tasks support it, and holds in part otherwise.
"""

from collections.abc import Mapping, Sequence
from math import nan

from scipy.stats import spearmanr

from shoal.lab.study import Answer, Claim, Evidence

MOST, FEW = 2 / 3, 1 / 3
"""Shares of a model's tasks."""


def judged(
    name: str,
    statement: str,
    decides: str,
    evidence: Sequence[Evidence],
    facts: Mapping[str, float] | None = None,
) -> Claim:
    """Weigh the evidence.

    Args:
        name: The claim in a few words.
        statement: The claim.
        decides: What the number of the evidence is, and when it supports.
        evidence: Of each model and task.
        facts: Further numbers.
    """
    shares = shares_of(evidence)
    supporting = sum(e.supports for e in evidence)
    each = ", ".join(f"{model} {share:.0%}" for model, share in shares.items())
    summary = (
        f"{supporting} of {len(evidence)} cells support it; by model: {each}"
        if evidence
        else "no model had a cell to judge by"
    )
    return Claim(
        name=name,
        statement=statement,
        decides=decides,
        answer=_answer(list(shares.values())),
        summary=summary,
        models=len(shares),
        evidence=tuple(evidence),
        facts=dict(facts or {}),
    )


def shares_of(evidence: Sequence[Evidence]) -> dict[str, float]:
    """Model -> share of its tasks that support."""
    found: dict[str, list[bool]] = {}
    for e in evidence:
        found.setdefault(e.model, []).append(e.supports)
    return {model: sum(votes) / len(votes) for model, votes in found.items()}


def _answer(shares: Sequence[float]) -> Answer:
    if not shares:
        return "not tested"
    if min(shares) >= MOST:
        return "holds"
    return "does not hold here" if max(shares) <= FEW else "holds in part"


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's correlation; not a number where one side does not vary."""
    first, second = zip(*pairs, strict=True)
    if len(set(first)) < 2 or len(set(second)) < 2:
        return nan
    return float(spearmanr(first, second).statistic)
