"""The version of shoal, stated once."""

__version__ = "0.1.0"
