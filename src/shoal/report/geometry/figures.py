"""All figures of a geometry by name; parts that were not measured have none."""

from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry
from shoal.report.geometry.alphas import alphas_figure
from shoal.report.geometry.gaps import gaps_figure
from shoal.report.geometry.inverse import inverse_figure
from shoal.report.geometry.linear import linear_figure
from shoal.report.geometry.plane import plane_figure
from shoal.report.geometry.profiles import last_figure, profiles_figure
from shoal.report.geometry.removal import removal_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def geometry_figures(found: Geometry) -> dict[str, "Figure"]:
    """Draw what was measured.

    Returns:
        Name, which serves as a file's, -> figure.
    """
    drawn = {
        "profiles": profiles_figure(found),
        "profiles_last": last_figure(found),
        "gaps": gaps_figure(found.changes),
        "surrogates": linear_figure(found),
        "signatures": plane_figure(found),
        "removal": removal_figure(found),
        "alphas": alphas_figure(found),
        "inverse": inverse_figure(found),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}
