"""The loss curve of a lab model's training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.config.lab import TrainConfig
from shoal.lab.functions import zero_error
from shoal.lab.train import LogRow
from shoal.report.style import ACCENT, FAINT, MAIN, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_figure(log: Sequence[LogRow], config: TrainConfig) -> "Figure":
    """Training and held-out squared error by step, on a logarithmic scale."""
    with styled():
        figure = new_figure(6.4, 3.4)
        axes = figure.add_subplot()
        steps = [row.step for row in log]
        axes.plot(steps, [r.loss for r in log], color=FAINT, lw=1, label="training, all prefixes")
        axes.plot(steps, [r.validation for r in log], color=MAIN, label="held out, all prefixes")
        axes.plot(steps, [r.last for r in log], color=ACCENT, label="held out, last point")
        try:
            zero = zero_error(config.family)
        except ValueError:
            pass
        else:
            axes.axhline(zero, color=FAINT, ls="--", lw=1, label="predicting zero")
        axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_ylabel("squared error")
        axes.set_title(
            f"degree {config.degree}, coefficients {config.coefficients}, x {config.inputs}, "
            f"seed {config.seed}"
        )
        light_grid(axes)
        axes.legend(fontsize=8)
    return figure
