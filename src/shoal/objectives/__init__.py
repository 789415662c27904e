"""Calibration objectives: per-example losses of a masked model, lower is better."""
