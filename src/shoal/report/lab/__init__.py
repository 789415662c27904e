"""Figures and pages of the lab."""
