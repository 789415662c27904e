"""Figures of what was found; matplotlib is imported when one is drawn."""
