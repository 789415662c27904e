"""The stages of the in-context regression lab."""
