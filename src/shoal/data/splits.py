"""Names of splits: the one that shoal uses and the others that files use."""

ALIASES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""For each split, the names that a file may have, in the order in which they are tried."""


def canonical(split: str) -> str:
    """The name that shoal uses for a split; an unknown name is returned as it is."""
    lower = split.strip().lower()
    return next((name for name, aliases in ALIASES.items() if lower in aliases), split)


def aliases(split: str) -> tuple[str, ...]:
    """The names that a file of this split may have."""
    return ALIASES.get(split, (split,))
