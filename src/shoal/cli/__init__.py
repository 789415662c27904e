"""The command line: one thin module per command over the Python API; torch is imported late."""
