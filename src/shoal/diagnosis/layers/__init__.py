"""Probe 1: every site of the dense model alone."""
