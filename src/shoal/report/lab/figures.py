"""All figures of a lab run by name; what was not measured has none."""

from typing import TYPE_CHECKING

from shoal.lab.study import LabRun
from shoal.report.lab.alphas import alphas_figure
from shoal.report.lab.controls import controls_figure
from shoal.report.lab.gains import gain_figure
from shoal.report.lab.gaps import gaps_figure
from shoal.report.lab.inverses import inverses_figure
from shoal.report.lab.lengths import lengths_figure
from shoal.report.lab.reading import range_names
from shoal.report.lab.relation import relation_figure
from shoal.report.lab.removed import removed_figure
from shoal.report.lab.saturation import saturation_figure
from shoal.report.lab.signatures import signatures_figure
from shoal.report.lab.transfer import transfer_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def lab_figures(run: LabRun) -> dict[str, "Figure"]:
    """Draw what was measured.

    Returns:
        Name, which serves as a file's, -> figure.
    """
    models, geometries, chosen = run.models, run.geometries, run.of_best
    drawn = {
        "lengths": lengths_figure(models),
        "gain": gain_figure(models),
        "controls": controls_figure(models),
        "transfer": transfer_figure(models),
        "removed": removed_figure(models),
        "saturation": saturation_figure(models),
        "gaps": gaps_figure(geometries),
        "relation": relation_figure(geometries, range_names(models)),
        "signatures": signatures_figure(chosen),
        "alphas": alphas_figure(chosen, range_names(models)),
        "inverses": inverses_figure(chosen),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}
