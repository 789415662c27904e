"""What long work is estimated to take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Time and memory.

    Attributes:
        seconds: Of all that is not known yet, roughly.
        bytes: Most memory at once, models included.
    """

    seconds: float
    bytes: float

    def __str__(self) -> str:
        return f"estimated {self.seconds / 60:.1f} min and {self.bytes / 1e9:.1f} GB of memory"
