"""Values that every other package shares; imports no torch."""
