"""The parts of a geometry one after another, each kept when it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from shoal.config.geometry import GeometryConfig
from shoal.core.mask import Mask
from shoal.geometry.bench import Bench
from shoal.geometry.collecting import collected, moments_bytes
from shoal.geometry.linear import linear_record
from shoal.geometry.points import (
    dense_points,
    inverse_points,
    removal_points,
    scaling_points,
    steps,
)
from shoal.geometry.profile_part import profiles_part
from shoal.geometry.records import Change, Distribution, Linear, Point, Profile
from shoal.geometry.settings import InterventionSettings
from shoal.geometry.surrogates import RIDGES
from shoal.pipeline.geometry.subject import Subject, Task
from shoal.pipeline.kept import Kept
from shoal.pipeline.listener import Listener

MOMENT_BYTES = 4e9
"""Memory for the moments of as many blocks as are fitted in one pass."""

Profiles = tuple[dict[str, Profile], dict[str, Change]]


@dataclass
class Parts:
    """Everything that the parts need.

    Attributes:
        config: The options.
        subject: The model and its tasks.
        kept: Where finished parts lie.
        listener: Hears of the progress.
    """

    config: GeometryConfig
    subject: Subject
    kept: Kept
    listener: Listener

    @property
    def settings(self) -> InterventionSettings:
        """What interventions are measured: scales of 0 and 1 are removal and the dense model."""
        config = self.config
        return InterventionSettings(
            alphas=tuple(a for a in config.alphas if a not in (0, 1)),
            ridges=config.ridges,
            fit_ridges=RIDGES,
            seeds=config.random_seeds,
            masks=config.control_masks,
            singles=config.singles,
            seed=config.seed,
        )

    def profiles(self) -> Profiles:
        """Profiles of both tasks, dense and pruned, and how the gaps change."""
        subject, seed = self.subject, self.config.seed

        def compute() -> Profiles:
            self.listener.stage("Profiles of norms and distances over depth")
            return profiles_part(
                subject.stack, subject.id.side, subject.ood.side, subject.mask, seed
            )

        return self._part("profiles", Profiles, [self._both, self._mask, seed], compute)

    def surrogates(self) -> tuple[Linear, ...]:
        """Linear surrogates of every block on both tasks, which do not depend on the plan."""
        subject = self.subject
        return self._linear("id", subject.id) + self._linear("ood", subject.ood)

    def _linear(self, distribution: Distribution, task: Task) -> tuple[Linear, ...]:
        """Those of one task: what is kept does not depend on the other, nor on which one it is."""
        subject, config = self.subject, self.config

        def compute() -> tuple[Linear, ...]:
            total = len(layers_together(subject)) * len(task.surrogate.batches)
            total += subject.stack.depth * len(subject.classes)
            text = f"Linear surrogates of all blocks on {task.side.texts.name}"
            with self.bar(text, total) as advance:
                return tuple(self._fitted(task, advance))

        asked = [list(subject.classes), RIDGES, config.threshold, config.seed]
        key = [task.surrogate_key, asked]
        found: tuple[Linear, ...] = self._part(
            f"surrogates {task.side.texts.name}", tuple[Linear, ...], key, compute
        )
        return tuple(one.model_copy(update={"distribution": distribution}) for one in found)

    def _fitted(self, task: Task, advance: Callable[[int], None]) -> Iterator[Linear]:
        subject, config = self.subject, self.config
        for layers in layers_together(subject):
            moments = collected(subject.stack, task.surrogate, layers, subject.classes, config.seed)
            advance(len(task.surrogate.batches))
            for (layer, name), pair in moments.items():
                yield linear_record(*pair, layer, name, "id", RIDGES, config.threshold)[1]
                advance(1)

    def interventions(self) -> tuple[Point, ...]:
        """Removal, scaling, inverses and controls; each kind and each scale is kept by itself."""
        mask, subject, settings = self.subject.mask, self.subject, self.settings
        if mask is None:
            raise ValueError("interventions need a mask")
        total = sum(steps(subject.stack, mask, settings).values())
        with self.bar("Interventions", total) as advance:
            self._advance = advance
            kinds: list[tuple[str, Any, InterventionSettings]] = [
                ("dense", dense_points, settings),
                ("removed", removal_points, settings),
                *(
                    (f"scaled {alpha:g}", scaling_points, replace(settings, alphas=(alpha,)))
                    for alpha in settings.alphas
                ),
                ("inverse", inverse_points, settings),
            ]
            points: tuple[Point, ...] = ()
            for name, measure, wanted in kinds:
                points += self._points(name, measure, wanted, mask)
        ends = scaled_ends(points, self.config.alphas) if mask.whole_blocks_only else ()
        return in_order(points + ends)

    def _points(
        self, name: str, measure: Any, settings: InterventionSettings, mask: Mask
    ) -> tuple[Point, ...]:
        def compute() -> tuple[Point, ...]:
            found: tuple[Point, ...] = measure(self._bench, mask, settings, self.subject.classes)
            return found

        # The dense model is the same whatever is removed.
        sites = None if name == "dense" else self._mask
        fitted = self.subject.ood.surrogate_key if name == "inverse" else None
        key = [self._both, sites, fitted, asdict(settings), list(self.subject.classes)]
        return self._part(f"interventions {name}", tuple[Point, ...], key, compute)

    @cached_property
    def _bench(self) -> Bench:
        subject = self.subject
        return Bench.of(
            subject.stack,
            subject.id.side,
            subject.ood.side,
            self.config.seed,
            lambda done: self._advance(done),
        )

    @property
    def _both(self) -> list[str]:
        return [self.subject.id.key, self.subject.ood.key]

    @property
    def _mask(self) -> str | None:
        return None if self.subject.mask is None else str(self.subject.mask)

    def _part(self, name: str, kind: Any, key: Any, compute: Callable[[], Any]) -> Any:
        return self.kept.part(name, kind, [self.subject.key, key], compute)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage with a progress bar."""
        self.listener.stage(text)
        self.listener.work(total)
        try:
            yield self.listener.advance
        finally:
            self.listener.done()


def layers_together(subject: Subject) -> list[range]:
    """Blocks that are fitted in one pass each, so that their moments fit in memory."""
    depth = subject.stack.depth
    one = moments_bytes(1, subject.width, len(subject.classes))
    count = max(1, min(depth, int(MOMENT_BYTES // one)))
    return [range(i, min(depth, i + count)) for i in range(0, depth, count)]


def scaled_ends(points: tuple[Point, ...], alphas: tuple[float, ...]) -> tuple[Point, ...]:
    """The ends of the curves over alpha: 0 removes and 1 leaves the dense model, both exactly."""
    found = []
    (dense,) = (p for p in points if p.intervention == "dense")
    for point in points:
        if point.intervention != "removed" or point.group not in ("selected", "unselected"):
            continue
        if 0 in alphas:
            found.append(point.model_copy(update={"intervention": "scaled", "alpha": 0.0}))
        if 1 in alphas:
            where = {"sites": point.sites, "group": point.group, "seed": point.seed}
            found.append(dense.model_copy(update={"intervention": "scaled", "alpha": 1.0, **where}))
    return tuple(found)


def in_order(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points by kind, and those of a curve over alpha beside each other."""
    kinds = ("dense", "removed", "scaled", "inverse", "random", "rotated")

    def place(point: Point) -> tuple[int, str, int, float]:
        curve = (point.group, point.seed or 0, point.alpha or 0.0)
        return kinds.index(point.intervention), *(curve if point.alpha is not None else ("", 0, 0))

    return tuple(sorted(points, key=place))
