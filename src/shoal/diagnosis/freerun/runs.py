"""Probe 3: both models write by themselves, with controls beside.

Two texts part sooner or later whenever the models differ at all, and what is compared beyond that
step compares trajectories. So the same is measured where nothing is wrong: the dense model against
itself with other chance, and against its own copy in another precision. A pruned model that only
parts keeps texts that the dense model finds as likely as its own; one that has collapsed does not,
or repeats itself.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.diagnosis.freerun.pairs import first_difference, read_pair
from shoal.diagnosis.freerun.sums import free_run
from shoal.diagnosis.freerun.writing import Tokens, Writing, written
from shoal.diagnosis.records import Example, FreeRun
from shoal.diagnosis.sides import Side
from shoal.diagnosis.spaces import Look
from shoal.objectives.decoding import end_tokens

OTHER_SEED = "dense, another seed"
"""Name of the control in which the dense model meets itself."""


@dataclass(frozen=True)
class FreeSettings:
    """What is written; the temperature of samples is that of the look.

    Attributes:
        new_tokens: Most tokens of a text.
        seeds: Seeds of the samples, at least one.
        rounded_prompts: Prompts that the copy in another precision is run on, the first ones; it
            may be several times slower than the model itself.
        examples: Prompts whose greedy texts are shown.
    """

    new_tokens: int = 64
    seeds: tuple[int, ...] = (0, 1, 2)
    rounded_prompts: int = 16
    examples: int = 4

    def own_positions(self, prompts: int) -> int:
        """Sum of what `Desk.own` calls `on_step` with: two texts and their comparison each."""
        return 3 * (1 + len(self.seeds)) * prompts * self.new_tokens

    def control_positions(self, prompts: int, *, rounded: bool = True) -> int:
        """Sum of what `Desk.controls` calls `on_step` with."""
        fewer = min(prompts, self.rounded_prompts) if rounded else 0
        return 3 * (prompts + 2 * fewer) * self.new_tokens


@dataclass
class Desk:
    """Where models write and are compared: what all runs share, and the texts known so far.

    Its methods raise a UsageError if a prompt and its text do not fit a model's positions, an
    UnsupportedModelError if a model cannot generate, and a NotFiniteError if logits are not finite.

    Attributes:
        dense: The dense model. Its EOS tokens end the texts of all.
        prompts: Token ids of each prompt, at least one.
        settings: What is written.
        look: What is looked at.
        batch_tokens: Most positions that are read together.
        kept: Texts that are known already, and where new ones are put.
        padded: Whether prompts of different lengths may share a batch while texts are written.
        seed: Seed of the bootstrap.
        on_step: Called after each piece of work; see `FreeSettings`.
        known: Texts by model and seed.
    """

    dense: Side
    prompts: Sequence[Tokens]
    settings: FreeSettings
    look: Look
    batch_tokens: int
    kept: MutableMapping[str, bytes]
    padded: bool
    seed: int = 0
    on_step: Callable[[int], None] | None = None
    known: dict[tuple[str, int | None], list[Tokens]] = field(default_factory=dict)

    def own(self, other: Side) -> tuple[FreeRun, ...]:
        """The other model greedy, and sampled with all seeds, against the dense one."""
        pairs = [(s, s) for s in self.settings.seeds]
        return (self.run(other, [(None, None)]), self.run(other, pairs))

    def controls(self, rounded: Side | None) -> tuple[FreeRun, ...]:
        """The dense model with another seed (sampled), and in another precision (both ways).

        They have the first seed alone, and do not depend on the model that is diagnosed.
        """
        first = self.settings.seeds[0]
        # Seeds are hashed, so any other is an independent one.
        fresh = max(self.settings.seeds) + 1
        runs = [self.run(self.dense, [(first, fresh)], OTHER_SEED)]
        if rounded is not None:
            fewer = replace(self, prompts=self.prompts[: self.settings.rounded_prompts], known={})
            runs.append(fewer.run(rounded, [(None, None)], rounded.name))
            runs.append(fewer.run(rounded, [(first, first)], rounded.name))
        return tuple(runs)

    def run(
        self, other: Side, seeds: Sequence[tuple[int | None, int | None]], control: str = ""
    ) -> FreeRun:
        """One record, from pairs of seeds of the dense model and the other; None is greedy."""
        pairs = [
            read_pair(
                self.dense,
                other,
                self.prompts,
                self.texts(self.dense, mine, self.on_step),
                self.texts(other, theirs, self.on_step),
                self.look,
                new_tokens=self.settings.new_tokens,
                batch_tokens=self.batch_tokens,
                on_step=self.on_step,
            )
            for mine, theirs in seeds
        ]
        return free_run(
            pairs,
            name=control or other.name,
            control=bool(control),
            temperature=self.look.temperature,
            seeds=tuple(mine for mine, _ in seeds if mine is not None),
            stops=end_tokens(self.dense.model),
            seed=self.seed,
        )

    def texts(
        self, side: Side, seed: int | None, on_step: Callable[[int], None] | None = None
    ) -> list[Tokens]:
        """What a model writes; known the second time, which counts as work done all the same."""
        key = (side.fingerprint, seed)
        if key in self.known:
            if on_step is not None:
                on_step(len(self.prompts) * self.settings.new_tokens)
            return self.known[key]
        stops = end_tokens(self.dense.model)
        self.known[key] = written(
            side,
            self.prompts,
            Writing(self.settings.new_tokens, self.look.temperature, seed, stops),
            batch_tokens=self.batch_tokens,
            kept=self.kept,
            padded=self.padded,
            on_step=on_step,
        )
        return self.known[key]

    def examples(self, other: Side) -> tuple[Example, ...]:
        """The first prompts with both greedy texts; none where there is no tokenizer."""
        tokenizer = self.dense.model.tokenizer
        if tokenizer is None:
            return ()
        mine, theirs = self.texts(self.dense, None), self.texts(other, None)
        count = min(self.settings.examples, len(self.prompts))
        return tuple(
            Example(
                prompt=str(tokenizer.decode(self.prompts[i])),
                dense=str(tokenizer.decode(mine[i], skip_special_tokens=True)),
                other=str(tokenizer.decode(theirs[i], skip_special_tokens=True)),
                first_divergence=(
                    None if mine[i] == theirs[i] else first_difference(mine[i], theirs[i])
                ),
            )
            for i in range(count)
        )
