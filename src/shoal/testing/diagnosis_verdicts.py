"""Made-up verdicts: one safe, two risky, one broken; the first of them not settled."""

from shoal.diagnosis.records import LEVELS, Reason, Verdict
from shoal.diagnosis.verdict import level_of

ADVICE = (
    "search for what you use it for: --objective trajectory, on prompts like yours",
    "remove fewer blocks: a smaller --remove of the same search",
)


def made_up_verdicts(*, intervals: bool = True) -> tuple[Verdict, ...]:
    """One verdict per use.

    Args:
        intervals: Whether numbers have intervals; without, nothing is settled.
    """

    def reason(measure: str, meaning: str, value: float, half: float, *at: float) -> Reason:
        safe, broken = at
        ends = (value - half, value + half) if intervals else (None, None)
        levels = {level_of(v, safe, broken) for v in ends if v is not None}
        return Reason(
            measure=measure,
            meaning=meaning,
            value=value,
            low=ends[0],
            high=ends[1],
            count=32,
            safe=safe,
            broken=broken,
            level=level_of(value, safe, broken),
            settled=len(levels) == 1,
        )

    accuracy = "accuracy, other minus dense, worst task"
    overlap = "share of a text's nearest neighbours that stay"
    flips = "flip rate on the dense model's text"
    nats = "KL per token along the dense model's text, nats"
    loops = "share of texts that end in a loop, other minus dense"
    return (
        _verdict("choice", reason("choice_accuracy", accuracy, -0.04, 0.035, -0.02, -0.1)),
        _verdict("retrieval", reason("neighbour_overlap", overlap, 0.8, 0.04, 0.7, 0.4)),
        _verdict("short", reason("short_flip", flips, 0.12, 0.02, 0.05, 0.3)),
        _verdict(
            "long",
            reason("long_kl", nats, 0.9, 0.1, 0.05, 0.5),
            reason("looping", loops, 0.68, 0.15, 0.05, 0.3),
        ),
    )


def _verdict(use: str, *reasons: Reason) -> Verdict:
    """The verdict of the worst of some reasons."""
    worst = max((r.level for r in reasons), key=LEVELS.index)
    return Verdict(
        use=use,
        level=worst,
        settled=all(r.settled for r in reasons),
        reasons=reasons,
        advice=() if worst == LEVELS[0] else ADVICE,
    )
