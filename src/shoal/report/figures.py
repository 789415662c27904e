"""All figures: each function returns a matplotlib figure, `save` writes it."""

from shoal.report.score_figure import score_figure
from shoal.report.style import save
from shoal.report.trace_figure import trace_figure

__all__ = ["save", "score_figure", "trace_figure"]
