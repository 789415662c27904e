"""The numbers of a diagnosis as tables."""

from collections.abc import Mapping, Sequence

from shoal.core.records import Mean
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.records import (
    Amplification,
    FreeRuns,
    Layerwise,
    Options,
    Retrieval,
    SiteRow,
    TeacherForced,
)
from shoal.report.diagnosis.choices import choice_label, floor
from shoal.report.diagnosis.layers import local
from shoal.report.diagnosis.marks import run_label
from shoal.report.diagnosis.retrieval import POOLINGS
from shoal.report.diagnosis.texts import writers
from shoal.report.diagnosis.words import parted
from shoal.report.page import Table
from shoal.report.words import mean, number, stacked

FORCED = ("kl", "flip", "hidden_gap", "logit_gap", "probability_gap", "total_variation", "entropy")
"""Quantities that are shown at once; the others are folded."""


def sites_table(sites: Sequence[SiteRow], caption: str) -> Table:
    """One row per site."""
    header = ["site", "removed", "1 − cos h", "1 − cos z", "1 − cos p", "KL here", "KL at the end"]
    names = ("hidden_gap", "logit_gap", "probability_gap", "kl")
    rows = [
        [
            row.site,
            "yes" if row.removed else "",
            *(stacked(local(row).get(name)) for name in names),
            stacked(row.final.get("kl")),
        ]
        for row in sites
    ]
    return Table(header, rows, caption)


def skipped_table(layerwise: Layerwise) -> Table:
    """Sites that could not be run, and why."""
    rows = list(layerwise.skipped.items())
    return Table(["site", "why"], rows, "Sites that could not be run", numbers=False)


def quantities_table(means: Mapping[str, Mean], caption: str) -> Table:
    """Name, meaning and mean of some quantities."""
    known = QUANTITIES
    rows = [[n, known[n].meaning if n in known else "", mean(m)] for n, m in means.items()]
    return Table(["quantity", "meaning", "mean"], rows, caption, numbers=False)


def forced_table(forced: TeacherForced) -> Table:
    """The few quantities that tell most, over all steps and over the first."""
    rows = [
        [n, QUANTITIES[n].meaning, stacked(forced.overall.get(n)), stacked(forced.short.get(n))]
        for n in FORCED
        if n in forced.overall
    ]
    rows += [
        ["", "KL summed over the steps of a text", stacked(forced.sequence_kl), ""],
        ["", "NLL per token of the text under the dense model", stacked(forced.dense_nll), ""],
        ["", "the same under the other", stacked(forced.other_nll), ""],
    ]
    last = max((c.steps[-1] for c in forced.steps.values() if c.steps), default=0)
    first = min(forced.short_steps, last) if last else forced.short_steps
    header = ["quantity", "meaning", "all steps", f"first {first}"]
    return Table(header, rows, "Along the dense model's text; divergences in nats", numbers=False)


def amplification_table(found: Sequence[Amplification]) -> Table:
    """One row per temperature."""
    header = ["T", "ratio of means", "measured", "predicted", "above 1", "predicted above 1"]
    header += ["rank correlation", "KL"]
    rows = [
        [
            f"{a.temperature:g}",
            number(a.ratio),
            number(a.measured),
            number(a.predicted),
            number(a.amplified),
            number(a.predicted_amplified),
            number(a.rank_correlation),
            mean(a.means.get("kl")),
        ]
        for a in found
    ]
    caption = "(1 − cos p) / (1 − cos z): medians over positions, and where it is above 1"
    return Table(header, rows, caption)


def runs_table(free: FreeRuns) -> Table:
    """One row per pair of runs."""
    header = ["run", "parted at the end", "first difference", "different tokens"]
    header += ["KL before", "KL after"]
    rows = [
        [
            run_label(r) + (" (control)" if r.control else ""),
            number(r.diverged.value[-1]) if r.diverged.value else "–",
            parted(r).replace(" [", "\n["),
            stacked(r.flip_rate),
            stacked(r.before.get("kl")),
            stacked(r.after.get("kl")),
        ]
        for r in free.runs
    ]
    return Table(header, rows, "Runs: shares, the step of the first difference, KL in nats")


def texts_table(free: FreeRuns) -> Table:
    """One row per writer."""
    names = {
        "length": "tokens",
        "ended": "ended",
        "distinct_1": "distinct 1",
        "distinct_2": "distinct 2",
        "distinct_3": "distinct 3",
        "longest_repeat": "longest repeat",
        "looping": "looping",
        "surprise": "surprise",
    }
    rows = [
        [f"{w.name}, {w.way}", *(stacked(getattr(w.text, name)) for name in names)]
        for w in writers(free)
    ]
    return Table(["writer", *names.values()], rows, "What the texts look like")


def choices_table(choices: Sequence[Options]) -> Table:
    """One row per task and scoring."""
    header = ["task, scoring (items)", "accuracy, dense", "other", "change", "same option"]
    header += ["KL in the options", "KL, vocabulary", "floor", "p of the options"]
    rows = [
        [
            f"{choice_label(o)} ({o.items})",
            stacked(o.accuracy_dense),
            stacked(o.accuracy_other),
            stacked(o.accuracy_change),
            stacked(o.kept),
            stacked(o.inside.get("subspace_kl")),
            stacked(o.vocabulary.get("kl")),
            stacked(floor(o)),
            stacked(o.vocabulary.get("subspace_mass")),
        ]
        for o in choices
    ]
    return Table(header, rows, "Multiple choice; divergences in nats")


def retrieval_table(found: Sequence[Retrieval]) -> Table:
    """One row per pooling."""
    header = ["embedding", "texts", "neighbours kept", "rank correlation", "found, dense"]
    header += ["found, other", "change", "1 − cosine"]
    rows = [
        [
            POOLINGS.get(r.pooling, r.pooling),
            str(r.texts),
            stacked(r.overlap),
            stacked(r.rank_correlation),
            stacked(r.found_dense),
            stacked(r.found_other),
            stacked(r.found_change),
            stacked(r.hidden_gap),
        ]
        for r in found
    ]
    return Table(header, rows, "Embeddings")


def glossary() -> Table:
    """All quantities."""
    rows = [[q.name, q.space, q.meaning] for q in QUANTITIES.values()]
    return Table(["quantity", "space", "meaning"], rows, "Quantities", numbers=False)
