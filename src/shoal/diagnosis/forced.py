"""Probe 2: both models read the dense model's own text.

What differs here is the models' error alone: neither follows a trajectory of its own. Divergences
along the dense model's text add up to the divergence of the laws of whole texts (chain rule,
methods of He et al. 2026, 2603.24652), of which the greedy text is one path.
"""

import numpy as np

from shoal.core.means import curves, known_mean, mean_by_prompt, means
from shoal.diagnosis.passages import Along
from shoal.diagnosis.records import TeacherForced


def teacher_forced(along: Along, short_steps: int, seed: int = 0) -> TeacherForced:
    """Sum up a comparison along the dense model's greedy text.

    Args:
        along: The comparison.
        short_steps: How many steps count as a short generation.
        seed: Seed of the bootstrap.
    """
    short = {name: table[:, :short_steps] for name, table in along.quantities.items()}
    return TeacherForced(
        overall=means(along.quantities, seed),
        short=means(short, seed),
        short_steps=short_steps,
        steps=curves(along.quantities, seed),
        dense_nll=known_mean(mean_by_prompt(along.dense_nll), seed),
        other_nll=known_mean(mean_by_prompt(along.other_nll), seed),
        sequence_kl=known_mean(np.nansum(along.quantities["kl"], axis=1), seed),
    )
