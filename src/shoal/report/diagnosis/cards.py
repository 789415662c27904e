"""Verdicts as cards."""

from math import isfinite

from shoal.diagnosis.records import Reason, Verdict
from shoal.report.diagnosis.words import NOT_SETTLED, doubt, limits, use_name
from shoal.report.page import Card, Fact, Gauge
from shoal.report.words import interval

TONES = {"safe": "good", "risky": "fair", "broken": "bad"}


def verdict_card(verdict: Verdict) -> Card:
    """A use with its level, the numbers that decided, and what to try."""
    return Card(
        title=use_name(verdict),
        word=verdict.level,
        tone=TONES.get(verdict.level, "plain"),
        flag="" if verdict.settled else NOT_SETTLED,
        facts=tuple(reason_fact(reason) for reason in verdict.reasons),
        advice=verdict.advice,
    )


def reason_fact(reason: Reason) -> Fact:
    """A deciding number with its limits."""
    return Fact(
        meaning=reason.meaning or reason.measure,
        value=interval(reason.value, reason.low, reason.high),
        limits=f"{reason.level}: {limits(reason)}",
        flag=doubt(reason),
        tone=TONES.get(reason.level, "plain"),
        gauge=gauge(reason),
    )


def gauge(reason: Reason) -> Gauge | None:
    """Where a number and its interval lie; linear, the middle third between the two limits.

    Returns:
        None where the limits leave nothing between them, or there is no number.
    """
    width = reason.broken - reason.safe
    if width == 0 or not isfinite(width) or reason.value != reason.value:
        return None

    def place(value: float) -> float:
        return min(max((1 + (value - reason.safe) / width) / 3, 0.0), 1.0)

    if reason.low is None or reason.high is None or reason.low != reason.low:
        return Gauge(place(reason.value))
    low, high = sorted((place(reason.low), place(reason.high)))
    return Gauge(place(reason.value), low, high)
