"""Probe 3: both models write by themselves."""
