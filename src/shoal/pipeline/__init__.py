"""The stages of a run, each of which can start from the files that the stage before it wrote."""
