"""All figures: each function returns a matplotlib figure, `save` writes it."""

from shoal.report.diagnosis.figures import diagnosis_figures
from shoal.report.geometry.figures import geometry_figures
from shoal.report.score_figure import score_figure
from shoal.report.style import save
from shoal.report.trace_figure import trace_figure

__all__ = ["diagnosis_figures", "geometry_figures", "save", "score_figure", "trace_figure"]
