"""A diagnosis as a page: verdicts first, then what each probe found, then how it was asked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.diagnosis.records import Diagnosis, FreeRuns
from shoal.report.diagnosis.cards import verdict_card
from shoal.report.diagnosis.figures import diagnosis_figures
from shoal.report.diagnosis.layers import local
from shoal.report.diagnosis.tables import (
    FORCED,
    amplification_table,
    choices_table,
    forced_table,
    glossary,
    quantities_table,
    retrieval_table,
    runs_table,
    sites_table,
    skipped_table,
    texts_table,
)
from shoal.report.diagnosis.words import heading, origin, other_name, sizes
from shoal.report.inline import inline_svg
from shoal.report.page import (
    Block,
    Cards,
    Comparison,
    Comparisons,
    Drawing,
    Folded,
    Page,
    Section,
    Table,
    Text,
)
from shoal.report.settings import settings_table
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "layers": (
        "Each site alone, at the site",
        "1 − cosine between the dense model with and without one site's change, right behind the "
        "site. Where the curve of the logits lies below that of the hidden states, the head "
        "attenuates the change; where that of the probabilities lies above that of the logits, "
        "softmax amplifies it. The lower panels show how much of a change across the state the "
        "head lets through: below 1 it attenuates.",
    ),
    "layers_end": (
        "Each site alone, at the model's end",
        "The divergence that is left at the end when one site is changed and all others are in "
        "place. Look for how it varies with depth, and whether the removed sites are among the "
        "lowest. The effect of several sites together is not the sum of these.",
    ),
    "theorems": (
        "Leading terms against exact values",
        "Each dot is a site. On the diagonal, the leading term of the theorem tells the exact "
        "value; for dots below it the leading term is too large, for dots above it too small. The "
        "titles tell the median over sites of leading term over exact value.",
    ),
    "teacher_forced": (
        "Step by step along the dense model's text",
        "A level course means that the model's error does not grow along a text that is given; a "
        "rising one, that it does. Bands are 95% intervals over prompts.",
    ),
    "amplification": (
        "Amplification by softmax over temperatures",
        "Above the line at 1, softmax turns a change of logits into a larger change of "
        "distribution. Where measured and predicted differ, the change of the logits is not "
        "isotropic, or not small.",
    ),
    "free_run": (
        "Runs that part",
        "Two runs part for good once one token differs, also those of two equally good models. So "
        "compare with the controls: what the other model does beyond them is its own. Before the "
        "first different token both read the same text; after it, the divergence says mostly that "
        "the texts differ.",
    ),
    "texts": (
        "What the texts look like",
        "Collapse shows as few distinct pairs, long repeats, loops, or texts that the dense model "
        "finds odd, in excess of the dense model's own and of the controls'.",
    ),
    "choices": (
        "Multiple choice",
        "The divergence among the options against that over the whole vocabulary. The vocabulary's "
        "is at least the floor, p(C) times the divergence in C, which bounds little where the "
        "options are improbable. To the right, how often the same option is chosen.",
    ),
    "retrieval": (
        "Embeddings",
        "How much of a text's nearest neighbours and of the order of its similarities stays, and "
        "how often two halves of a text find each other in either model.",
    ),
}
"""Figure -> what it is, and what to look for."""

SHOWN_EXAMPLES = 8
SHOWN_SIGNS = 2000

Figures = Mapping[str, "Figure"]


def diagnosis_page(diagnosis: Diagnosis, figures: Figures | None = None) -> Page:
    """Put a diagnosis onto a page.

    Args:
        diagnosis: The results.
        figures: Its figures by name, not yet saved; drawn here by default.
    """
    drawn = diagnosis_figures(diagnosis) if figures is None else figures
    subtitle = (f"{origin(diagnosis)}.", f"{sizes(diagnosis)}.")
    sections = [
        _verdicts(diagnosis),
        _layerwise(diagnosis, drawn),
        _forced(diagnosis, drawn),
        _amplification(diagnosis, drawn),
        _free(diagnosis, drawn),
        _choices(diagnosis, drawn),
        _retrieval(diagnosis, drawn),
        _asked(diagnosis),
        Section("What the quantities mean", (Text(_MEANINGS), glossary())),
        _notes(diagnosis),
    ]
    return Page(
        title=f"Diagnosis of {heading(diagnosis)}",
        subtitle=[line[:1].upper() + line[1:] for line in subtitle],
        sections=[s for s in sections if s is not None],
    )


_MEANINGS = (
    "Each compares the dense model with the other at one position, and is zero where they are "
    "equal, unless it describes the dense model. p is the dense model's distribution and q the "
    "other's; h are hidden states, z logits. Numbers in brackets are 95% bootstrap intervals over "
    "prompts or items."
)


def _drawing(figures: Figures, name: str) -> list[Block]:
    if name not in figures:
        return []
    title, caption = CAPTIONS[name]
    return [Drawing(inline_svg(figures[name], name), caption, title)]


def _verdicts(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.verdicts:
        return None
    text = (
        "A use is as good as the worst of the numbers that decide it. Not settled means that an "
        "interval lies on both sides of a limit, or that there is none: more prompts or items "
        "would tell. In the bars, the middle third lies between the two limits."
    )
    cards = Cards([verdict_card(v) for v in diagnosis.verdicts])
    return Section("Verdicts", (Text(text), cards))


def _layerwise(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    found = diagnosis.layerwise
    if found is None:
        return None
    text = (
        f"Each site is {found.mode} alone while all others are the dense model's, over "
        f"{found.prompts} prompts and {found.positions} positions."
    )
    if any(local(r) for r in found.sites):
        normed = any(r.normed for r in found.sites)
        text += (
            f" At the site, the head is applied {'behind' if normed else 'without'} the final norm."
        )
    blocks: list[Block] = [Text(text)]
    for name in ("layers", "layers_end", "theorems"):
        blocks += _drawing(figures, name)
    removed = [r for r in found.sites if r.removed]
    if removed:
        blocks.append(sites_table(removed, "Sites that the plan removes; each alone, KL in nats"))
    if found.sites:
        table = sites_table(found.sites, "All sites; each alone, KL in nats")
        blocks.append(Folded(f"All {len(found.sites)} sites", [table]))
    if found.skipped:
        blocks.append(skipped_table(found))
    blocks += [Text(note) for note in found.notes]
    return Section("Each site alone", blocks)


def _forced(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    found = diagnosis.teacher_forced
    if found is None:
        return None
    text = (
        "Both models read what the dense model wrote greedily. Neither follows a text of its own, "
        "so what differs here is the models alone. The divergence of whole texts is the sum over "
        "their steps."
    )
    others = {n: m for n, m in found.overall.items() if n not in FORCED}
    blocks: list[Block] = [Text(text), *_drawing(figures, "teacher_forced"), forced_table(found)]
    if others:
        table = quantities_table(others, "All other quantities, over all steps")
        blocks.append(Folded(f"{len(others)} more quantities", [table]))
    return Section("Both read the dense model's text", blocks)


def _amplification(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    if not diagnosis.amplification:
        return None
    text = (
        "How much larger 1 − cosine is for the distributions than for the logits. For a small "
        "change in all directions alike, mean(z²) / T² · (1 − Σ r²) is predicted, with r "
        "proportional to p²."
    )
    return Section(
        "Softmax and temperature",
        (
            Text(text),
            *_drawing(figures, "amplification"),
            amplification_table(diagnosis.amplification),
        ),
    )


def _free(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    found = diagnosis.free_runs
    if found is None:
        return None
    text = (
        "Each model writes by itself from the same prompts. The controls compare the dense model "
        "with itself under another seed, or with a copy that is as good."
    )
    blocks: list[Block] = [Text(text)]
    if found.runs:
        blocks += [*_drawing(figures, "free_run"), runs_table(found)]
        blocks += [*_drawing(figures, "texts"), Folded("All measures", [texts_table(found)])]
    blocks += _examples(found, other_name(diagnosis))
    return Section("Each writes by itself", blocks)


def _examples(free: FreeRuns, other: str) -> list[Block]:
    if not free.examples:
        return []
    shown = free.examples[:SHOWN_EXAMPLES]
    left = len(free.examples) - len(shown)
    more = f" {left} more are in diagnosis.json." if left else ""
    text = f"What the models wrote; what both begin with is pale.{more}"
    found = [
        Comparison(
            prompt=_last(e.prompt),
            texts=(("dense", _first(e.dense)), (other, _first(e.other))),
            note="No token differs."
            if e.first_divergence is None
            else f"First different token: {e.first_divergence}.",
        )
        for e in shown
    ]
    return [Text(text), Comparisons(found)]


def _first(text: str) -> str:
    left = len(text) - SHOWN_SIGNS
    return text if left <= 0 else f"{text[:SHOWN_SIGNS]} … ({left} more characters)"


def _last(text: str) -> str:
    left = len(text) - SHOWN_SIGNS
    return text if left <= 0 else f"({left} characters before) … {text[-SHOWN_SIGNS:]}"


def _choices(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    if not diagnosis.choices:
        return None
    text = (
        "Options are scored as the benchmark does, by the log-likelihood of their text, or by "
        "the letters that name them."
    )
    blocks = (Text(text), *_drawing(figures, "choices"), choices_table(diagnosis.choices))
    return Section("Answer options", blocks)


def _retrieval(diagnosis: Diagnosis, figures: Figures) -> Section | None:
    if not diagnosis.retrieval:
        return None
    text = "States serve as embeddings of texts, compared by cosine; each model searches its own."
    blocks = (Text(text), *_drawing(figures, "retrieval"), retrieval_table(diagnosis.retrieval))
    return Section("Retrieval", blocks)


def _asked(diagnosis: Diagnosis) -> Section:
    about: dict[str, str] = {"dense model": diagnosis.dense.id}
    if diagnosis.dense.revision:
        about["revision"] = diagnosis.dense.revision
    about["fingerprint"] = diagnosis.dense.fingerprint
    about[diagnosis.other.kind] = diagnosis.other.name
    if diagnosis.other.mask is not None:
        about["removed"] = str(diagnosis.other.mask)
    about["shoal"] = diagnosis.shoal_version
    blocks: list[Table] = [settings_table(about, "Models")]
    if diagnosis.settings:
        blocks.append(settings_table(diagnosis.settings, "Settings"))
    if diagnosis.environment:
        blocks.append(settings_table(diagnosis.environment, "Environment"))
    if diagnosis.seconds:
        times = {name: number(s) for name, s in diagnosis.seconds.items()}
        blocks.append(settings_table(times, "Seconds; 0 where results were kept from before"))
    return Section("Settings and environment", blocks)


def _notes(diagnosis: Diagnosis) -> Section | None:
    if not diagnosis.notes:
        return None
    return Section("Notes", [Text(note) for note in diagnosis.notes])
