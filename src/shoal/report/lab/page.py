"""A lab run as a page: what was asked, the claims and their answers, then question by question."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.lab.study import LabRun
from shoal.report.inline import inline_svg
from shoal.report.lab.about import about
from shoal.report.lab.captions import CAPTIONS
from shoal.report.lab.cards import claim_card
from shoal.report.lab.figures import lab_figures
from shoal.report.lab.findings import (
    controls_told,
    cost_told,
    gains_told,
    gaps_told,
    surrogates_told,
)
from shoal.report.lab.geometry_tables import (
    alphas_table,
    gaps_table,
    in_distribution_table,
    inverses_table,
    signatures_table,
)
from shoal.report.lab.inverses import undone, without_gain
from shoal.report.lab.reading import by_range
from shoal.report.lab.redo import command
from shoal.report.lab.tables import (
    controls_table,
    evidence_table,
    learning_table,
    mean_gains_table,
    saturation_table,
    shifts_table,
    transfer_table,
)
from shoal.report.page import Block, Cards, Drawing, Folded, Page, Section, Table, Text
from shoal.report.settings import settings_table
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, "Figure"]


def lab_page(run: LabRun, figures: Figures | None = None) -> Page:
    """Put a lab run onto a page.

    Args:
        run: The results.
        figures: Its figures by name, not yet saved; drawn here by default.
    """
    drawn = lab_figures(run) if figures is None else figures
    sections = [
        Section("What this is about", [Text(line) for line in about(run)]),
        _claims(run),
        _learning(run, drawn),
        _gains(run, drawn),
        _controls(run, drawn),
        _transfer(run, drawn),
        _removed(drawn),
        _saturation(run, drawn),
        _geometry(run, drawn),
        _amplifiers(run, drawn),
        _causes(run, drawn),
        _asked(run),
        Section("Notes", [Text(note) for note in run.notes]) if run.notes else None,
    ]
    return Page(
        title="Does removing layers help out of distribution?",
        subtitle=_subtitle(run),
        sections=[s for s in sections if s is not None],
    )


def _subtitle(run: LabRun) -> list[str]:
    ranges = [
        f"{len(own)} model{'s' * (len(own) != 1)} trained on {name}"
        for name, own in by_range(run.models).items()
    ]
    tasks = sum(len(m.shifts) for m in run.models)
    cells = f"{tasks} pairs of model and task; the geometry was taken of {len(run.geometries)}."
    return [", ".join(ranges) + ".", cells] if ranges else ["No models."]


def _drawing(figures: Figures, name: str) -> list[Block]:
    if name not in figures:
        return []
    title, caption = CAPTIONS[name]
    return [Drawing(inline_svg(figures[name], name), caption, title)]


def _text(told: str) -> list[Block]:
    return [Text(told)] if told else []


def _folded(summary: str, tables: Sequence[Table]) -> list[Block]:
    known = [table for table in tables if table.rows]
    return [Folded(summary, known)] if known else []


def _claims(run: LabRun) -> Section | None:
    if not run.claims:
        return None
    text = (
        "Each model is asked by itself, since its tasks share its weights: a claim holds for a "
        "model where at least two thirds of its cells support it. It holds where it holds for "
        "every model, does not hold here where no model has more than a third, and holds in part "
        "otherwise. These are small models on one kind of task: an answer is about them."
    )
    cards = Cards([claim_card(claim) for claim in run.claims])
    evidence = [evidence_table(c) for c in run.claims]
    return Section(
        "Claims and answers",
        [Text(text), cards, *_folded("The evidence, cell by cell", evidence)],
    )


def _learning(run: LabRun, figures: Figures) -> Section | None:
    if not run.models:
        return None
    text = (
        "Before anything is removed: the error of the whole models, beside learners that know the "
        "kind of function. Ridge knows the range of the coefficients too, and is close to "
        "what can be reached."
    )
    blocks = [Text(text), learning_table(run), *_drawing(figures, "lengths")]
    return Section("Have the models learned?", blocks)


def _gains(run: LabRun, figures: Figures) -> Section | None:
    if not run.models:
        return None
    return Section(
        "Does removing blocks help?",
        [
            *_text(gains_told(run.models)),
            *_drawing(figures, "gain"),
            mean_gains_table(run.models),
            *_folded("Every model and task", [shifts_table(m) for m in run.models]),
        ],
    )


def _controls(run: LabRun, figures: Figures) -> Section | None:
    if not run.models:
        return None
    text = (
        "Whoever searches on a task finds something that does well on it. So BEST has to do "
        "better, on functions that chose nothing, than searches of the same size without TALE, "
        "than single blocks, and than no removal at all but another size of the output."
    )
    return Section(
        "Do simpler things help as much?",
        [
            Text(text),
            *_text(controls_told(run.models)),
            *_drawing(figures, "controls"),
            *_folded("Every model and task", [controls_table(m) for m in run.models]),
        ],
    )


def _transfer(run: LabRun, figures: Figures) -> Section | None:
    if "transfer" not in figures and not any(m.transfer for m in run.models):
        return None
    tables = [transfer_table(n, own) for n, own in by_range(run.models).items()]
    blocks = [*_text(cost_told(run.models)), *_drawing(figures, "transfer")]
    return Section(
        "What does a mask do on other tasks?", [*blocks, *_folded("The numbers", tables)]
    )


def _removed(figures: Figures) -> Section | None:
    drawing = _drawing(figures, "removed")
    return Section("Which blocks go?", drawing) if drawing else None


def _saturation(run: LabRun, figures: Figures) -> Section | None:
    if not run.models:
        return None
    text = (
        "A simpler reason for a gain would be that the dense model's predictions have the wrong "
        "size under shift, since it cannot predict values beyond those of training. The bound is "
        "the largest |y| that training could show. If a gain comes from points inside of it, "
        "saturation does not explain it."
    )
    return Section(
        "Is it only the size of the predictions?",
        [
            Text(text),
            *_drawing(figures, "saturation"),
            *_folded("Every model and task", [saturation_table(m) for m in run.models]),
        ],
    )


def _geometry(run: LabRun, figures: Figures) -> Section | None:
    if not any(p.geometry.changes for p in run.geometries):
        return None
    tables = [gaps_table(run.geometries), in_distribution_table(run.geometries)]
    return Section(
        "Does the geometry come back?",
        [
            *_text(gaps_told(run.geometries)),
            *_drawing(figures, "gaps"),
            *_drawing(figures, "relation"),
            *_folded("The numbers", tables),
        ],
    )


def _amplifiers(run: LabRun, figures: Figures) -> Section | None:
    if not any(p.geometry.mask and p.geometry.signatures for p in run.of_best):
        return None
    text = (
        "The gain of a block is how much further apart two states are behind it than before it. "
        "The rank is the effective number of directions of what it adds, on the data. Positions of "
        "x and of y are looked at apart. Dots of one model are not independent of each other."
    )
    return Section(
        "Are the removed blocks amplifiers?",
        [
            Text(text),
            *_text(surrogates_told(run.geometries)),
            *_drawing(figures, "signatures"),
            *_folded("Every model and task", [signatures_table(run.of_best)]),
        ],
    )


def _causes(run: LabRun, figures: Figures) -> Section | None:
    alphas, rows = alphas_table(run.of_best), undone(run.of_best)
    left = without_gain(run.of_best)
    if not (alphas.rows or rows or left):
        return None
    skipped = (
        f"Left out: {left} cells where removal gains nothing on these functions, so that there is "
        "nothing to recover."
        if left
        else ""
    )
    text = (
        "If some blocks cause an error, then it should fall as they are scaled down, and also when "
        "they stay in place but are undone behind. Neither should hold of as many other "
        "blocks, or of random maps. Both are looked at on the blocks that BEST removes."
    )
    return Section(
        "Do the removed blocks cause it?",
        [
            Text(text),
            *_drawing(figures, "alphas"),
            *_folded("Losses along α", [alphas]),
            *_drawing(figures, "inverses"),
            *_text(skipped),
            *_folded("What comes back", [inverses_table(rows)]),
        ],
    )


def _asked(run: LabRun) -> Section:
    again = (
        f"To do it again: {command(run.settings)}. The same models and options give the same "
        "numbers. The folder of each model holds the command that trained it, in lab.json."
    )
    models = {m.model: f"fingerprint {m.fingerprint}, seed {m.seed}" for m in run.models}
    about = models | {"shoal": run.shoal_version}
    blocks: list[Block] = [Text(again), settings_table(about, "Models")]
    if run.settings:
        blocks.append(settings_table(run.settings, "Settings"))
    if run.environment:
        blocks.append(settings_table(run.environment, "Environment"))
    if run.seconds:
        times = {name: number(s) for name, s in run.seconds.items()}
        table = settings_table(times, "Seconds; 0 where results were kept from before")
        blocks.append(Folded("How long it took", [table]))
    return Section("Settings and how to redo it", blocks)
