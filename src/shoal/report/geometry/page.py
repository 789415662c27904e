"""A geometry as a page: what it says, the numbers behind it, then how it was asked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry
from shoal.report.geometry.captions import CAPTIONS, MEANINGS
from shoal.report.geometry.figures import geometry_figures
from shoal.report.geometry.marks import KINDS
from shoal.report.geometry.reading import reading
from shoal.report.geometry.tables import (
    changes_table,
    fits_table,
    last_gaps_table,
    points_table,
    profile_table,
    signatures_table,
    sizes_table,
)
from shoal.report.inline import inline_svg
from shoal.report.page import Block, Drawing, Folded, Listing, Page, Section, Table, Text
from shoal.report.settings import settings_table
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, "Figure"]


def geometry_page(found: Geometry, figures: Figures | None = None) -> Page:
    """Put a geometry onto a page.

    Args:
        found: The results.
        figures: Its figures by name, not yet saved; drawn here by default.
    """
    drawn = geometry_figures(found) if figures is None else figures
    sections = [
        _said(found),
        _profiles(found, drawn),
        _linear(found, drawn),
        _points(found, drawn),
        Section("What the words mean", (_glossary(),)),
        _asked(found),
        Section("Notes", [Listing(found.notes)]) if found.notes else None,
    ]
    return Page(
        title=f"Geometry of {found.model.id}: {found.id} and {found.ood}",
        subtitle=_subtitle(found),
        sections=[s for s in sections if s is not None],
    )


def _subtitle(found: Geometry) -> list[str]:
    size = f"{found.depth} {'block' if found.depth == 1 else 'blocks'}, width {found.width}."
    if not found.mask:
        return [f"Nothing is removed; {size}"]
    return [f"Removed: {found.mask}; {size}"]


def _said(found: Geometry) -> Section:
    about = (
        f"The model {found.model.id} is adapted to {found.id}, which is in distribution (ID) here; "
        f"{found.ood} is the shifted task, out of distribution (OOD). Its hidden states on the two "
        "are compared block by block: how long they are, how far apart, and what each block does "
        "to that."
    )
    if found.mask:
        about += (
            f" Then the plan removes {found.mask}, and the question is whether the OOD states come "
            "back to what they are on ID, and whether that is why the loss changes."
        )
    else:
        about += " There is no plan, so this describes the dense model alone."
    metric = "; ".join(f"{k.upper()} {v}" for k, v in found.metric.items())
    blocks: list[Block] = [Text(about)]
    if metric:
        blocks.append(Text(f"Losses, of which lower is better: {metric}."))
    lines = reading(found)
    if lines:
        text = (
            "Read by rule from the numbers. Brackets are 95% bootstrap intervals over sequences or "
            "examples of one model; they say nothing of other seeds of training or other masks."
        )
        blocks += [Listing(lines), Text(text)]
    return Section("What was found", blocks)


def _drawing(figures: Figures, name: str) -> list[Block]:
    if name not in figures:
        return []
    title, caption = CAPTIONS[name]
    return [Drawing(inline_svg(figures[name], name), caption, title)]


def _profiles(found: Geometry, figures: Figures) -> Section | None:
    kinds = [k for k in KINDS if any(getattr(p, k) for p in found.profiles.values())]
    if not kinds and not found.changes:
        return None
    blocks = [*_drawing(figures, "profiles"), *_drawing(figures, "gaps")]
    if found.changes:
        blocks.append(changes_table(found.changes))
    blocks += _drawing(figures, "profiles_last")
    if kinds:
        tables = [profile_table(found.profiles, kind) for kind in kinds]
        blocks.append(Folded("All profiles by depth", tables))
    return Section("Profiles", blocks)


def _linear(found: Geometry, figures: Figures) -> Section | None:
    if not found.linear and not found.signatures:
        return None
    blocks = [*_drawing(figures, "surrogates"), *_drawing(figures, "signatures")]
    chosen = [s for s in found.signatures if s.selected]
    if chosen:
        blocks.append(signatures_table(chosen, "Removed blocks"))
    if found.signatures:
        table = signatures_table(found.signatures, "All blocks")
        blocks.append(Folded("Signatures of all blocks", [table]))
    if found.linear:
        tables = [fits_table(found.linear), sizes_table(found.linear)]
        blocks.append(Folded(f"All {len(found.linear)} surrogates", tables))
    return Section("What each block does", blocks)


def _points(found: Geometry, figures: Figures) -> Section | None:
    if not found.points:
        return None
    blocks: list[Block] = []
    if found.mask:
        blocks.append(
            Text(
                "Each of these changes the model and measures both tasks again. A plan that was "
                "chosen by OOD examples must be judged by others: on the same ones it is sure to "
                "look good."
            )
        )
    for name in ("removal", "alphas", "inverse"):
        blocks += _drawing(figures, name)
    plain = [p for p in found.points if p.intervention != "scaled" and not p.group.isdigit()]
    if plain:
        blocks.append(points_table(plain, "Losses, and gaps to the dense model's ID profile"))
    other = [p for p in found.points if p not in plain]
    if other:
        table = points_table(other, "Scaled sites and single blocks")
        blocks.append(Folded(f"{len(other)} more interventions", [table]))
    blocks.append(Folded("Gaps of the last positions", [last_gaps_table(found.points)]))
    return Section("Interventions", blocks)


def _glossary() -> Table:
    return Table(["word", "meaning"], MEANINGS, "Words and measures", numbers=False)


def _asked(found: Geometry) -> Section:
    about = {"model": found.model.id}
    if found.model.revision:
        about["revision"] = found.model.revision
    about |= {"fingerprint": found.model.fingerprint, "ID": found.id, "OOD": found.ood}
    about |= {f"{k.upper()} loss": v for k, v in found.metric.items()}
    about["removed"] = str(found.mask) if found.mask else "nothing"
    about["shoal"] = found.shoal_version
    blocks = [settings_table(about, "Model and tasks")]
    if found.settings:
        blocks.append(settings_table(found.settings, "Settings"))
    if found.environment:
        blocks.append(settings_table(found.environment, "Environment"))
    if found.seconds:
        times = {name: number(s) for name, s in found.seconds.items()}
        blocks.append(settings_table(times, "Seconds; 0 where results were kept from before"))
    return Section("Settings and environment", blocks)
