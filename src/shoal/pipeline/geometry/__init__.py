"""The geometry stage."""
