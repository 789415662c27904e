"""The probes of a diagnosis one after another, each kept when it is done."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from shoal.config.diagnosis import DiagnosisConfig
from shoal.core.errors import UnsupportedModelError
from shoal.diagnosis.amplification import amplify
from shoal.diagnosis.choice.options import choose
from shoal.diagnosis.forced import teacher_forced
from shoal.diagnosis.freerun.rounding import rounded_side
from shoal.diagnosis.freerun.runs import Desk, FreeSettings
from shoal.diagnosis.freerun.writing import Writing, written
from shoal.diagnosis.layers.layerwise import layerwise, layerwise_work, mark_removed
from shoal.diagnosis.passages import Passage, compare_along
from shoal.diagnosis.records import (
    Amplification,
    Example,
    FreeRun,
    FreeRuns,
    Layerwise,
    Options,
    Retrieval,
    TeacherForced,
)
from shoal.diagnosis.retrieval import retrieval_work, retrieve
from shoal.diagnosis.sides import Side
from shoal.diagnosis.spaces import Look
from shoal.models.dense import DenseModel
from shoal.objectives.decoding import end_tokens
from shoal.pipeline.diagnosis.texts import Texts
from shoal.pipeline.kept import Kept
from shoal.pipeline.listener import Listener

log = logging.getLogger(__name__)

_FAILURES = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a copy in another precision may end in: not every architecture runs in every one."""


@dataclass
class Probes:
    """Everything that the probes need.

    Attributes:
        config: The options.
        dense: The dense model.
        other: The other.
        replacement: The other checkpoint, where its sites can stand in the dense model's places.
        texts: What is read and written from.
        kept: Where finished parts lie.
        listener: Hears of the progress.
    """

    config: DiagnosisConfig
    dense: Side
    other: Side
    replacement: DenseModel | None
    texts: Texts
    kept: Kept
    listener: Listener

    @property
    def look(self) -> Look:
        """What is looked at."""
        return Look(self.config.temperature, self.texts.candidates)

    @property
    def free_settings(self) -> FreeSettings:
        """How both models write."""
        return FreeSettings(self.config.steps, self.config.seeds, self.config.rounded_prompts)

    def layerwise(self) -> Layerwise:
        """Probe 1. What is dropped does not depend on the plan, which only marks the sites."""
        config = self.config
        passages = self.passages[: config.layer_prompts]
        replaced = self.other.fingerprint if self.replacement is not None else None

        counts: Any = {
            "positions": config.layer_positions,
            "final_prompts": config.layer_final_prompts,
        }

        def measure(replacement: DenseModel | None, advance: Callable[[int], None]) -> Layerwise:
            return layerwise(
                self.dense,
                passages,
                self.look,
                replacement=replacement,
                batch_tokens=config.batch_tokens,
                seed=config.seed,
                on_step=advance,
                **counts,
            )

        def compute() -> Layerwise:
            total = layerwise_work(self.dense, passages, **counts)
            with self.bar("Each site alone, in the dense model's context", total) as advance:
                try:
                    return measure(self.replacement, advance)
                except UnsupportedModelError as error:
                    if self.replacement is None:
                        raise
                    note = f"sites are dropped, not replaced: {error}"
                found = measure(None, advance)
                return found.model_copy(update={"notes": (note, *found.notes)})

        asked = [config.layer_positions, config.layer_final_prompts, config.seed]
        texts = [asdict(passage) for passage in passages]
        key = [self.dense.fingerprint, replaced, texts, asdict(self.look), asked]
        found = self._part("layerwise", Layerwise, key, compute)
        mask = self.other.mask if self.replacement is None else None
        return found if mask is None else mark_removed(found, mask)

    def forced(self) -> tuple[TeacherForced, tuple[Amplification, ...]]:
        """Probe 2, and amplification along the same text."""
        config = self.config

        def compute() -> tuple[TeacherForced, tuple[Amplification, ...]]:
            total = sum(len(p.written) for p in self.passages)
            with self.bar("Both models along the dense model's text", total) as advance:
                along = compare_along(
                    self.dense,
                    self.other,
                    self.passages,
                    self.look,
                    temperatures=config.temperatures,
                    batch_tokens=config.batch_tokens,
                    on_step=advance,
                )
            summed = teacher_forced(along, config.short_steps, config.seed)
            return summed, amplify(along, config.seed)

        texts = [asdict(passage) for passage in self.passages]
        key = [texts, asdict(self.look), config.temperatures, config.short_steps]
        kind = tuple[TeacherForced, tuple[Amplification, ...]]
        return self._part("teacher_forced", kind, [self.pair, key, config.seed], compute)

    def free_runs(self) -> FreeRuns:
        """Probe 3, with its controls, which do not depend on the other model."""
        config, settings = self.config, self.free_settings
        key = [self.texts.prompts, asdict(settings), asdict(self.look), config.seed]
        desk = Desk(
            self.dense,
            self.texts.prompts,
            settings,
            self.look,
            config.batch_tokens,
            self.kept.artifacts,
            self.texts.padded,
            config.seed,
        )

        def own() -> tuple[FreeRun, ...]:
            total = settings.own_positions(len(desk.prompts))
            with self.bar("Both models write by themselves", total) as advance:
                return replace(desk, on_step=advance).own(self.other)

        def controls() -> tuple[FreeRun, ...]:
            total = settings.control_positions(len(desk.prompts))
            with self.bar("Controls: another seed, another precision", total) as advance:
                here = replace(desk, on_step=advance)
                try:
                    return here.controls(rounded_side(self.dense, self.texts.batch))
                except _FAILURES as error:
                    log.warning("no control in another precision: %s", error)
                    return here.controls(None)

        def examples() -> tuple[Example, ...]:
            return desk.examples(self.other)

        runs = tuple[FreeRun, ...]
        found = self._part("free_run", runs, [self.pair, key], own)
        found += self._part("controls", runs, [self.dense.fingerprint, key], controls)
        shown = self._part("examples", tuple[Example, ...], [self.pair, key], examples)
        return FreeRuns(runs=found, examples=shown)

    def choices(self) -> tuple[Options, ...]:
        """Answer subspaces of multiple-choice tasks."""
        config = self.config
        found: tuple[Options, ...] = ()
        for data in self.texts.choices:

            def compute(data: Any = data) -> tuple[Options, ...]:
                with self.bar(f"Options of {data.name} ({data.split})", len(data)) as advance:
                    return choose(
                        self.dense,
                        self.other,
                        data,
                        tokenisation=self.texts.tokenisation,
                        batch_tokens=config.batch_tokens,
                        chat=config.chat,
                        temperature=config.temperature,
                        seed=config.seed,
                        on_step=advance,
                    )

            key = [self.pair, data.name, data.fingerprint, config.bos, config.chat]
            found += self._part(
                f"choice {data.name}",
                tuple[Options, ...],
                [key, config.temperature, config.seed],
                compute,
            )
        return found

    def retrieval(self) -> tuple[Retrieval, ...]:
        """States as embeddings."""
        config = self.config

        def compute() -> tuple[Retrieval, ...]:
            total = retrieval_work(self.texts.embedded)
            with self.bar(f"Embedding {len(self.texts.embedded)} texts", total) as advance:
                return retrieve(
                    self.dense,
                    self.other,
                    self.texts.embedded,
                    neighbours=config.neighbours,
                    batch_tokens=config.batch_tokens,
                    seed=config.seed,
                    on_step=advance,
                )

        key = [self.pair, self.texts.embedded, config.neighbours, config.seed]
        return self._part("retrieval", tuple[Retrieval, ...], key, compute)

    @cached_property
    def passages(self) -> list[Passage]:
        """The prompts with the dense model's greedy text."""
        prompts, config = self.texts.prompts, self.config
        with self.bar("The dense model writes", len(prompts) * config.steps) as advance:
            texts = written(
                self.dense,
                prompts,
                Writing(config.steps, self.look.temperature, None, end_tokens(self.dense.model)),
                batch_tokens=config.batch_tokens,
                kept=self.kept.artifacts,
                padded=self.texts.padded,
                on_step=advance,
            )
        return [Passage(p, tuple(t)) for p, t in zip(prompts, texts, strict=True)]

    @property
    def pair(self) -> list[str]:
        """What the two models are, in keys."""
        return [self.dense.fingerprint, self.other.fingerprint]

    def _part(self, name: str, kind: Any, key: Any, compute: Callable[[], Any]) -> Any:
        key = [self.dense.model.dtype_name, self.other.model.dtype_name, key]
        return self.kept.part(name, kind, key, compute)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage with a progress bar."""
        self.listener.stage(text)
        self.listener.work(total)
        try:
            yield self.listener.advance
        finally:
            self.listener.done()
