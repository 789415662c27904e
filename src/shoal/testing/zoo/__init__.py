"""Tiny random models of every causal LM type of transformers, with their differences switched on.

`ZOO` names them; `shoal.testing.tiny.tiny_model` builds them.
"""

from shoal.testing.zoo.recipe import Kind, Recipe
from shoal.testing.zoo.registry import TYPES, UNMEASURED, ZOO

__all__ = ["TYPES", "UNMEASURED", "ZOO", "Kind", "Recipe"]
