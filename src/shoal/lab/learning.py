"""How well a lab model learned the task that it was trained on."""

from shoal.core.mask import Mask
from shoal.core.means import known_mean
from shoal.core.records import Mean
from shoal.lab.tasks import Task


def learning(task: Task, seed: int = 0) -> Mean:
    """Mean squared error of predicting zero over that of the model, at the last point.

    Args:
        task: The task of training; its test functions are read.
        seed: Seed of the bootstrap.

    Returns:
        The ratio with its interval over functions; 100 means a hundredth of the error.
    """
    errors = task.test.errors(Mask.dense(task.test.model.depth))[:, -1]
    values = task.test.values[:, -1] ** 2
    # The ratio of two means, so its interval follows from resampling both together.
    inverse = known_mean(errors / values.mean(), seed)
    low, high = inverse.low, inverse.high
    return Mean(
        value=1 / inverse.value,
        low=None if not high else 1 / high,
        high=None if not low else 1 / low,
        count=inverse.count,
    )
