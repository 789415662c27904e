"""Random parts of a calibration set, of growing size: what racing looks at one after another."""

import numpy as np

MINIMUM = 8
"""Examples in the first part of a race; nothing is dropped by a test on fewer."""


def parts_for(examples: int) -> int:
    """The number of parts for racing: as many as leave the first large enough to judge.

    Args:
        examples: Size of the calibration set.
    """
    return max(1, 1 + int(np.log2(max(1, examples) / MINIMUM)))


def random_parts(count: int, parts: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Split the indices of `count` examples into random parts, each as large as all before it.

    With four parts their shares are 1/8, 1/8, 1/4 and 1/2, as near as whole examples allow. Small
    sets get fewer parts, so that none is empty.

    Args:
        count: Number of examples.
        parts: Largest number of parts.
        seed: Seed of the order.

    Returns:
        The parts, each in ascending order; together they hold every index once.
    """
    order = np.random.default_rng(seed).permutation(count).tolist()
    ends = sorted({round(count / 2**i) for i in range(parts)} - {0} | {count})
    starts = [0, *ends[:-1]]
    return tuple(tuple(sorted(order[s:e])) for s, e in zip(starts, ends, strict=True))
