"""The config tree: the one source of options for YAML, flags, Python and the docs."""
