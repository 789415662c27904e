"""The streams that functions and random masks come from; no function is in two of them."""

TRAINING, VALIDATION, SELECTION, TEST, MASKS, PROFILED, FITTED = range(7)
"""Functions that train, that training is watched on, that choose masks, that judge them; masks;
functions that `shoal geometry` profiles and fits surrogates on."""
