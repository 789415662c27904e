"""Losses of masks on parts of the calibration data, kept so that a stopped race can go on."""

from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shoal.core import fingerprint
from shoal.core.evaluation import Cost
from shoal.core.mask import Mask
from shoal.engine.store import Store

Part = tuple[NDArray[np.float64], Cost]
"""Losses of the examples of a part, in ascending order of the examples, and what they took."""


class Partials:
    """The stored part losses of one partition.

    Args:
        store: Where they are kept, under its context.
        parts: The examples of each part. They tell partitions apart, so that losses stored for
            another seed, another number of parts or other examples are never taken for these.
    """

    def __init__(self, store: Store, parts: tuple[tuple[int, ...], ...]) -> None:
        self._store = store
        self._partition = fingerprint.of_json([list(part) for part in parts])

    def get(self, mask: Mask, part: int) -> Part | None:
        """The losses of a mask on a part, if they are known."""
        row = self._store.get_partial(self._partition, mask, part)
        if row is None:
            return None
        losses = array("d")
        losses.frombytes(row[0])
        return np.asarray(losses), Cost(row[1], row[2])

    def put(self, part: int, found: Mapping[Mask, NDArray[np.float64]], cost: Cost) -> None:
        """Keep the losses of masks on a part, each at the same cost, in one transaction."""
        rows = [
            (mask, array("d", losses.tolist()).tobytes(), cost.blocks, cost.seconds)
            for mask, losses in found.items()
        ]
        self._store.put_partials(self._partition, part, rows)
