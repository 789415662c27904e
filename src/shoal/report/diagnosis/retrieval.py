"""States as embeddings: what stays of a text's neighbours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.diagnosis.records import Retrieval
from shoal.report.marks import WIDTH, Scale, Stroke, draw_dot, mean_ends, set_rows, set_share
from shoal.report.style import ACCENT, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POOLINGS = {"mean": "mean of the states", "last": "last token's state"}


def retrieval_figure(found: Sequence[Retrieval]) -> "Figure | None":
    """Draw overlap of neighbours, rank correlation, and the halves that find each other.

    Returns:
        None where nothing was embedded.
    """
    if not found:
        return None
    dense, other = Stroke("dense", INK, "s"), Stroke("other", ACCENT, "o")
    ranks = [v for v in mean_ends(r.rank_correlation for r in found) if v is not None]
    # Correlations are rarely below zero.
    lowest = -1.0 if min(ranks, default=0.0) < 0 else 0.0
    share = Scale(0, 1, False)
    with styled():
        figure = new_figure(WIDTH, 1.35 + 0.36 * len(found))
        axes = [figure.add_subplot(1, 3, i) for i in (1, 2, 3)]
        for row, one in enumerate(found):
            draw_dot(axes[0], one.overlap, row, share, other)
            draw_dot(axes[1], one.rank_correlation, row, Scale(lowest, 1, False), other)
            draw_dot(axes[2], one.found_dense, row - 0.13, share, dense, hollow=True)
            draw_dot(axes[2], one.found_other, row + 0.13, share, other)
        near = "/".join(dict.fromkeys(str(r.neighbours) for r in found))
        labels = [POOLINGS.get(r.pooling, r.pooling) for r in found]
        for place, (panel, title, what) in enumerate(
            zip(
                axes,
                ("Neighbours that stay", "Order of similarities", "Halves that find each other"),
                (f"share of the {near} nearest", "rank correlation", "share: □ dense, ● other"),
                strict=True,
            )
        ):
            set_rows(panel, [""] * len(found) if place else labels)
            set_share(panel, lowest if place == 1 else 0.0)
            panel.set_title(title)
            panel.set_xlabel(what, fontsize=8)
    return figure
