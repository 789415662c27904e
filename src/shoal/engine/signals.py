"""Answers to what a search asks about the dense model, each computed once and kept.

Units that begin and end with blocks are answered by what is known of blocks, which exists for every
architecture. Others are answered by what is known of sub-layers, attention 0, MLP 0, attention 1,
..., under names of its own: a table of runs for the state scores, and for weights and gates one
column per sub-layer, of which a unit is the sum.
"""

import logging
from collections.abc import MutableMapping, Sequence
from functools import cached_property
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import Rank
from shoal.core import fingerprint
from shoal.core.errors import UsageError, unknown_name
from shoal.core.space import SearchSpace
from shoal.core.tiling import Span
from shoal.core.units import Unit
from shoal.engine.gate_forms import Form
from shoal.engine.gates import gate_gradients
from shoal.models.dense import DenseModel
from shoal.objectives.base import Objective
from shoal.objectives.scores.differentiable import check_differentiable, check_scores_text
from shoal.objectives.scores.moments import why_not
from shoal.objectives.scores.states import state_runs, state_windows
from shoal.objectives.scores.table import SCORES, STATES
from shoal.objectives.scores.weights import block_groups, magnitude, sublayer_groups, taylor

log = logging.getLogger(__name__)

VERSION = 2
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
        """A score per unit of the space; the unit with the lowest is needed least.

        The state scores compare what enters the first sub-layer of a unit with what leaves its
        last; the weight scores add up those of its blocks and sub-layers.

        Raises:
            UsageError: If there is no such score, the objective has no text or no gradients for
                it, or no state lies between a unit and what is beside it.
            UnsupportedModelError: If units are no whole blocks and the model's sub-layers cannot be
                told.
        """
        _check_name(name)
        if self._whole:
            return [
                float(self._windows(name, (stop - start) // 2)[start // 2])
                for start, stop in self._spans
            ]
        self._check_runs(states=name in STATES)
        if name in STATES:
            runs = self._runs(name, max(stop - start for start, stop in self._spans))
            return [float(runs[stop - start - 1, start]) for start, stop in self._spans]
        # Blocks first, then sub-layers: a block has more than its sub-layers where they share some.
        values, depth = self._weights(name, parts=True), self.dense.depth
        return [float(sum(values[c] for c in _columns(span, depth))) for span in self._spans]

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
        _check_name(name)
        return [float(v) for v in self._windows(name, length)]

    def gradients(self) -> NDArray[np.float64]:
        """Derivative of each example's loss by each unit's gate, at the dense model [m, N].

        Raises:
            UsageError: If the objective has no useful derivatives.
            UnsupportedModelError: If units are no whole blocks and the model's sub-layers cannot be
                told.
        """
        check_differentiable(self.objective)
        if not self._whole:
            self._check_runs(states=False)
        key, width = ("gradients", 2) if self._whole else ("gradients:sublayers", 1)
        if not self._recall(key):
            form: Form | None = None if self._whole else "sublayers"
            found = gate_gradients(self.dense, self.objective, form=form)
            log.info("gates act on each block's %s", found.form)
            self._keep(key, found.values)
        values = self._known[key]
        columns = [
            values[:, start // width : stop // width].sum(axis=1) for start, stop in self._spans
        ]
        return np.stack(columns, axis=1)

    @cached_property
    def _spans(self) -> tuple[Span, ...]:
        """The run of sub-layers that each unit covers."""
        try:
            return self.space.spans
        except ValueError as error:
            raise UsageError(f"scores and gradients exist for runs only: {error}") from error

    @cached_property
    def _whole(self) -> bool:
        """Whether every unit begins and ends with a block."""
        return all(place % 2 == 0 for span in self._spans for place in span)

    def _check_runs(self, *, states: bool) -> None:
        """Refuse units that are no branches of their blocks, or have no states at their ends."""
        for unit, span in zip(self.space.units, self._spans, strict=True):
            reason = why_not(span, self.dense.branches, states=states)
            if reason is not None:
                raise UsageError(
                    f"there is no score of {unit_name(unit)} by itself: {reason}. Rank by loss, or "
                    "use --granularity block."
                )

    def _windows(self, name: str, length: int) -> NDArray[np.float64]:
        """Scores of the windows of one length, by their first block [depth - length + 1]."""
        if name in STATES:
            return self._states(name, length)[length - 1][: self.dense.depth - length + 1]
        return np.convolve(self._weights(name), np.ones(length), mode="valid")

    def _states(self, name: str, length: int) -> NDArray[np.float64]:
        objective = check_scores_text(self.objective)
        longest = 1 if length == 1 or STATES[name].last else self.dense.depth
        suffix = "" if longest == 1 else ":windows"
        if not self._recall(name + suffix):
            # One pass gives all scores of this kind.
            some = {n: s for n, s in STATES.items() if longest == 1 or not s.last}
            for other, windows in state_windows(self.dense, objective, some, longest).items():
                self._keep(other + suffix, windows)
        return self._known[name + suffix]

    def _runs(self, name: str, longest: int) -> NDArray[np.float64]:
        """Scores of the runs of sub-layers [longest, 2N], see `state_runs`."""
        objective = check_scores_text(self.objective)
        # At least two, so that every granularity asks for the same.
        longest = max(2, longest)
        suffix = f":runs{longest}"
        if not self._recall(name + suffix):
            for other, runs in state_runs(self.dense, objective, STATES, longest).items():
                self._keep(other + suffix, runs)
        return self._known[name + suffix]

    def _weights(self, name: str, *, parts: bool = False) -> NDArray[np.float64]:
        """Scores of the blocks [N], with those of the sub-layers after them if wanted [3N]."""
        if name == "taylor":
            objective = check_differentiable(self.objective)
        key = f"{name}:parts" if parts else name
        if not self._recall(key):
            dense = self.dense
            groups = [*block_groups(dense), *(sublayer_groups(dense) if parts else ())]
            by_taylor = name == "taylor"
            self._keep(
                key, taylor(dense, objective, groups) if by_taylor else magnitude(dense, groups)
            )
        return self._known[key]

    def _key(self, name: str) -> str:
        parts = [VERSION, name, self.dense.fingerprint, self.dense.dtype_name]
        if name.partition(":")[0] != "magnitude":
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


def unit_name(unit: Unit) -> str:
    """What a unit is called: `12`, `12.mlp`, or `12.mlp+13.attn`."""
    return "+".join(str(site) for site in sorted(unit, key=lambda s: s.position))


def _columns(span: Span, depth: int) -> list[int]:
    """The blocks and sub-layers of a run, as columns: blocks 0 to N - 1, then sub-layers."""
    start, stop = span
    whole = range((start + 1) // 2, stop // 2)
    cut = [depth + start] * (start % 2) + [depth + stop - 1] * (stop % 2)
    return [*whole, *cut]


def _check_name(name: str) -> None:
    if name not in SCORES:
        raise unknown_name("score", name, SCORES)
