"""What a run tells whoever watches it; the command line draws it, the library is silent."""

from shoal.core.evaluation import Evaluation
from shoal.engine.ledger import TraceRow


class Listener:
    """Hears of a run's progress; every method may be overridden and does nothing by default."""

    def stage(self, text: str) -> None:
        """A stage starts."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def work(self, total: int) -> None:
        """A stretch of work with this many steps starts."""

    def advance(self, steps: int = 1) -> None:
        """Some steps are done."""

    def best(self, evaluation: Evaluation, row: TraceRow | None = None) -> None:
        """A batch is done.

        Args:
            evaluation: The best of the batch.
            row: The latest row of the trace, with the best mask of k units so far.
        """

    def done(self) -> None:
        """The stretch of work is over."""
