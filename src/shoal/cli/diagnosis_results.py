"""A diagnosis as tables on the console, within 100 columns."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from shoal.cli.screen import out, table
from shoal.core.records import Mean
from shoal.diagnosis.records import Diagnosis, FreeRun, Reason, Verdict
from shoal.report.diagnosis.words import NOT_SETTLED, heading, origin, parted, sizes
from shoal.report.words import interval, number

USES = {
    "choice": "multiple\nchoice",
    "retrieval": "retrieval",
    "short": "short\ngeneration",
    "long": "long\ngeneration",
}

FORCED = {
    "kl": "KL(dense || other) per token, nats",
    "flip": "share of tokens where the likeliest differs",
    "hidden_gap": "1 − cosine of the hidden states",
    "logit_gap": "1 − cosine of the logits",
    "probability_gap": "1 − cosine of the distributions",
}


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print the verdicts, the numbers of the two probes of generation, and what to try."""
    for line in (heading(diagnosis), origin(diagnosis), sizes(diagnosis)):
        out.print(line, markup=False, soft_wrap=True)
    if diagnosis.verdicts:
        header = ["use", "verdict", "decided by", "value", "safe", "broken"]
        table("Verdicts", header, [row for v in diagnosis.verdicts for row in _verdict(v)])
    forced = diagnosis.teacher_forced
    if forced is not None:
        means = [(label, forced.overall.get(name)) for name, label in FORCED.items()]
        means.append(("KL summed over the steps of a text, nats", forced.sequence_kl))
        rows = [[label, _line(m)] for label, m in means if m is not None]
        table("Both read the dense model's text", ["", "mean [95% interval]"], rows)
    if diagnosis.free_runs is not None and diagnosis.free_runs.runs:
        header = [
            "run",
            "first\ndifference",
            "KL up to it",
            "distinct\npairs",
            "looping",
            "surprise",
        ]
        rows = [_run(run) for run in diagnosis.free_runs.runs]
        table(
            "Each writes by itself; what the other's texts are like (* control)",
            header,
            rows,
            numbers=True,
        )
    for line in _advice(diagnosis.verdicts):
        out.print(line, markup=False, soft_wrap=True)


def _verdict(verdict: Verdict) -> Iterable[list[str]]:
    """One row per number; use and level stand in the first."""
    level = verdict.level if verdict.settled else f"{verdict.level},\n{NOT_SETTLED}"
    first = [USES.get(verdict.use, verdict.use), level]
    for reason in verdict.reasons:
        yield [*first, *_reason(reason)]
        first = ["", ""]


def _reason(reason: Reason) -> Sequence[str]:
    higher = reason.safe > reason.broken
    return (
        "\n".join(wrap(reason.meaning or reason.measure, 26)),
        interval(reason.value, reason.low, reason.high).replace(" [", "\n["),
        f"{'≥' if higher else '≤'} {number(reason.safe)}",
        f"{'<' if higher else '>'} {number(reason.broken)}",
    )


def _run(run: FreeRun) -> list[str]:
    way = run.decoding if run.decoding == "greedy" else f"{run.decoding}, T {run.temperature:g}"
    text = run.other_text
    means = (
        run.before.get("kl"),
        text.distinct_2,
        text.looping,
        text.surprise,
    )
    name = "\n".join(wrap(run.name + "*" * run.control, 16))
    cells = [parted(run, 2), *(_line(m, 2) for m in means)]
    return [f"{name}\n{way}", *(cell.replace(" [", "\n[") for cell in cells)]


def _line(mean: Mean | None, digits: int = 3) -> str:
    return "–" if mean is None else interval(mean.value, mean.low, mean.high, digits)


def _advice(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """Each advice once, with the uses that it is for."""
    uses: dict[str, list[str]] = {}
    for verdict in verdicts:
        for line in verdict.advice:
            uses.setdefault(line, []).append(USES.get(verdict.use, verdict.use).replace("\n", " "))
    for line, names in uses.items():
        yield f"{', '.join(names)}: {line}"
