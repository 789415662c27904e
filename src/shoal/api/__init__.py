"""The same stages in Python, from pruning to measuring why it helps or not.

Example:
    >>> import shoal
    >>> result = shoal.prune("smollm2-135m", objective="margin", task="arc_easy", remove=5,
    ...                      data_dir="embedded", out="pruned")       # doctest: +SKIP
    >>> print(result.search.plan.mask)                                # doctest: +SKIP

A transformers model object is accepted wherever a name is; pass its tokenizer with it.
"""

from shoal.api.files import export, export_for, load
from shoal.api.lab import experiment_lab, train_lab
from shoal.api.measuring import compare_geometry, diagnose, evaluate
from shoal.api.pruning import prune, score, search

__all__ = [
    "compare_geometry",
    "diagnose",
    "evaluate",
    "experiment_lab",
    "export",
    "export_for",
    "load",
    "prune",
    "score",
    "search",
    "train_lab",
]
