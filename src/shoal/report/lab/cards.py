"""Claims as cards."""

from shoal.lab.study import Claim
from shoal.report.lab.words import TONES, supporting
from shoal.report.page import Card, Fact
from shoal.report.words import number

FEW = 3
"""Models below which an answer gets a reservation."""


def claim_card(claim: Claim) -> Card:
    """A claim with its answer, the counts behind it, and how it was decided."""
    tested = bool(claim.evidence)
    facts = [
        Fact(
            meaning=claim.statement,
            value=f"{supporting(claim)} cells" if tested else "–",
            limits=claim.summary,
        ),
        Fact(meaning="How it is decided", value="", limits=f"{_first_upper(claim.decides)}."),
    ]
    if claim.facts:
        told = "; ".join(f"{name}: {number(value)}" for name, value in claim.facts.items())
        facts.append(Fact(meaning="Further numbers", value="", limits=f"{_first_upper(told)}."))
    few = tested and claim.models < FEW
    return Card(
        title=claim.name,
        word=claim.answer,
        tone=TONES.get(claim.answer, "plain"),
        flag=f"from {claim.models} model{'s' * (claim.models != 1)} only" if few else "",
        facts=facts,
    )


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
