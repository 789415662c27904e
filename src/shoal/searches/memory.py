"""What a search has asked for, where one mask can be reached in several ways."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field

from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import Problem, best_of

Asking = Generator[Sequence[Mask], Sequence[Evaluation], None]
"""A part of a search that asks for masks and keeps the answers."""


@dataclass
class Memory:
    """All evaluations of a search.

    Attributes:
        problem: What is searched.
        known: What has been evaluated.
    """

    problem: Problem
    known: dict[Mask, Evaluation] = field(default_factory=dict)

    def __getitem__(self, mask: Mask) -> Evaluation:
        return self.known[mask]

    def ask(self, masks: Iterable[Mask]) -> Asking:
        """Ask for what is not known yet, if anything."""
        new = [mask for mask in dict.fromkeys(masks) if mask not in self.known]
        if new:
            self.known |= {e.mask: e for e in (yield new)}

    def spare(self, mask: Mask) -> Asking:
        """Put back what a mask removes in vain, each time the unit whose return helps most."""
        space, budget = self.problem.space, self.problem.budget
        while could := budget.superfluous(space, mask):
            smaller = [mask.restored(unit) for unit in could]
            yield from self.ask(smaller)
            mask = best_of([self.known[m] for m in smaller]).mask

    @property
    def best(self) -> Mask:
        """The best answer so far.

        Raises:
            UsageError: If there is none.
        """
        answers = [e for mask, e in self.known.items() if self.problem.is_answer(mask)]
        if not answers:
            raise UsageError(
                f"this search found no way to remove {self.problem.budget}: nothing more could be "
                "removed before. Remove less, protect fewer, or try another search."
            )
        return best_of(answers).mask
