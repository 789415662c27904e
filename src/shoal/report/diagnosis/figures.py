"""All figures of a diagnosis by name; parts that were not measured have none."""

from typing import TYPE_CHECKING

from shoal.diagnosis.records import Diagnosis
from shoal.report.diagnosis.choices import choices_figure
from shoal.report.diagnosis.layers import ends_figure, layers_figure
from shoal.report.diagnosis.retrieval import retrieval_figure
from shoal.report.diagnosis.runs import runs_figure
from shoal.report.diagnosis.softmax import softmax_figure
from shoal.report.diagnosis.steps import steps_figure
from shoal.report.diagnosis.texts import texts_figure
from shoal.report.diagnosis.theorems import theorems_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def diagnosis_figures(diagnosis: Diagnosis) -> dict[str, "Figure"]:
    """Draw what was measured.

    Returns:
        Name, which serves as a file's, -> figure.
    """
    layers, forced, free = diagnosis.layerwise, diagnosis.teacher_forced, diagnosis.free_runs
    drawn = {
        "layers": layers_figure(layers) if layers else None,
        "layers_end": ends_figure(layers) if layers else None,
        "theorems": theorems_figure(layers) if layers else None,
        "teacher_forced": steps_figure(forced) if forced else None,
        "amplification": softmax_figure(diagnosis.amplification),
        "free_run": runs_figure(free) if free else None,
        "texts": texts_figure(free) if free else None,
        "choices": choices_figure(diagnosis.choices),
        "retrieval": retrieval_figure(diagnosis.retrieval),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}
