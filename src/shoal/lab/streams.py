"""The streams that functions and random masks come from; no function is in two of them."""

TRAINING, VALIDATION, SELECTION, TEST, MASKS = range(5)
"""Functions that train, that training is watched on, that choose masks, that judge them; masks."""
