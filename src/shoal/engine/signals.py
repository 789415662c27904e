"""Answers to what a search asks about the dense model, each computed once and kept."""

import logging
from collections.abc import MutableMapping, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import Rank
from shoal.core import fingerprint
from shoal.core.errors import UsageError, unknown_name
from shoal.core.mask import Part
from shoal.core.space import SearchSpace
from shoal.engine.gates import gate_gradients
from shoal.models.dense import DenseModel
from shoal.objectives.base import Objective
from shoal.objectives.scores.differentiable import check_differentiable, check_scores_text
from shoal.objectives.scores.states import state_windows
from shoal.objectives.scores.table import SCORES, STATES
from shoal.objectives.scores.weights import magnitude, taylor

log = logging.getLogger(__name__)

VERSION = 1
"""Changed when the same name comes to mean other numbers, which makes old ones unknown."""


class ModelSignals:
    """Scores and gradients of a model on the data of an objective.

    Args:
        dense: The model.
        objective: The objective, prepared.
        space: What may be removed.
        artifacts: Where answers are kept between processes.
    """

    def __init__(
        self,
        dense: DenseModel,
        objective: Objective,
        space: SearchSpace,
        artifacts: MutableMapping[str, bytes],
    ) -> None:
        self.dense, self.objective, self.space = dense, objective, space
        self._artifacts = artifacts
        self._known: dict[str, NDArray[np.float64]] = {}

    def units(self, name: Rank | str) -> Sequence[float]:
        """A state score per unit of the space; the unit with the lowest is needed least.

        Raises:
            UsageError: If there is no such score, the objective has no text or no gradients for
                it, or a unit is no single block.
        """
        blocks = self._blocks()
        values = self._windows(name, 1)
        return [float(values[block]) for block in blocks]

    def windows(self, name: Rank | str, length: int) -> Sequence[float]:
        """A state score per window of consecutive blocks, for the starts 0 to depth - length.

        The state scores compare what enters the first block with what leaves the last; the weight
        scores add up those of the blocks.

        Raises:
            UsageError: As for `units`, or if no window is that long.
        """
        depth = self.dense.depth
        if not 1 <= length <= depth:
            raise UsageError(f"windows of {length} blocks do not exist: the model has {depth}.")
        return [float(v) for v in self._windows(name, length)]

    def gradients(self) -> NDArray[np.float64]:
        """Derivative of each example's loss by each unit's gate, at the dense model [m, N].

        Raises:
            UsageError: If the objective has no useful derivatives, or a unit is no single block.
        """
        blocks = self._blocks()
        check_differentiable(self.objective)
        if not self._recall("gradients"):
            found = gate_gradients(self.dense, self.objective)
            log.info("gates act on each block's %s", found.form)
            self._keep("gradients", found.values)
        return self._known["gradients"][:, blocks]

    def _blocks(self) -> list[int]:
        """The block that each unit is."""
        if any(len(u) != 1 or {s.part for s in u} != {Part.BLOCK} for u in self.space.units):
            raise UsageError("state scores and gradients exist for whole single blocks only.")
        return [site.layer for unit in self.space.units for site in unit]

    def _windows(self, name: str, length: int) -> NDArray[np.float64]:
        """Scores of the windows of one length, by their first block [depth - length + 1]."""
        if name not in SCORES:
            raise unknown_name("score", name, SCORES)
        if name in STATES:
            return self._states(name, length)[length - 1][: self.dense.depth - length + 1]
        return np.convolve(self._weights(name), np.ones(length), mode="valid")

    def _states(self, name: str, length: int) -> NDArray[np.float64]:
        objective = check_scores_text(self.objective)
        longest = 1 if length == 1 or STATES[name].last else self.dense.depth
        key = name if longest == 1 else f"{name}:windows"
        if not self._recall(key):
            # One pass gives all scores of this kind.
            some = {n: s for n, s in STATES.items() if longest == 1 or not s.last}
            for other, windows in state_windows(self.dense, objective, some, longest).items():
                self._keep(other if longest == 1 else f"{other}:windows", windows)
        return self._known[key]

    def _weights(self, name: str) -> NDArray[np.float64]:
        if name == "taylor":
            objective = check_differentiable(self.objective)
        if not self._recall(name):
            found = taylor(self.dense, objective) if name == "taylor" else magnitude(self.dense)
            self._keep(name, found)
        return self._known[name]

    def _key(self, name: str) -> str:
        parts = [VERSION, name, self.dense.fingerprint, self.dense.dtype_name]
        if name != "magnitude":
            packed = self.objective.data.get("packed_choices")
            parts += [self.objective.fingerprint, packed]
        return f"signal:{name}:{fingerprint.of_json(parts)}"

    def _recall(self, name: str) -> bool:
        """Whether something is known, from this process or from before."""
        if name in self._known:
            return True
        kept = self._artifacts.get(self._key(name))
        if kept is None:
            return False
        try:
            self._known[name] = np.load(BytesIO(kept), allow_pickle=False)
        except (ValueError, EOFError):
            log.warning("a kept %s is damaged and computed anew", name)
            return False
        return True

    def _keep(self, name: str, value: NDArray[np.float64]) -> None:
        self._known[name] = value
        buffer = BytesIO()
        np.save(buffer, value, allow_pickle=False)
        self._artifacts[self._key(name)] = buffer.getvalue()
