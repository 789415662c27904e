"""The in-context regression lab: transformers trained from scratch, and what removing does."""
