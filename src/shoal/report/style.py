"""How figures look, and how they are written."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
MAIN, ACCENT = "#2b6cb0", "#c05621"

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    # Without a salt of its own an SVG has other ids every time it is written.
    "svg.hashsalt": "shoal",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to what is drawn inside, and to nothing else of the process."""
    import matplotlib as mpl

    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE, "backend": mpl.rcParams["backend"]}):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that belongs to no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def light_grid(axes: "Axes", axis: str = "y") -> None:
    """Draw faint lines behind the data."""
    axes.grid(visible=True, axis=axis)  # type: ignore[arg-type]


def save(figure: "Figure", path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and SVG; the same figure gives the same bytes.

    Args:
        figure: The figure.
        path: Where, without suffix.

    Returns:
        The two files.
    """
    png, svg = (path.with_name(f"{path.name}.{kind}") for kind in ("png", "svg"))
    with styled(), warnings.catch_warnings():
        # A title may name a file in a script that the font has not; a box stands there.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(png, dpi=160, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None})
    return png, svg
