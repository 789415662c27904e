"""Evaluating masks: shared passes, self-checks, the store, and the driver of searches."""
