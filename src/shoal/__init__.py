"""shoal: make a language model shallower for a purpose.

The names below are imported at first use, so that `import shoal` costs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from shoal.core.version import __version__

if TYPE_CHECKING:
    from shoal.api import (
        compare_geometry,
        diagnose,
        evaluate,
        experiment_lab,
        export,
        export_for,
        load,
        prune,
        score,
        search,
        train_lab,
    )
    from shoal.config.run import RunConfig
    from shoal.core.errors import ShoalError
    from shoal.core.mask import Mask, Site
    from shoal.core.plan import Plan

_WHERE = {
    "prune": "shoal.api",
    "search": "shoal.api",
    "score": "shoal.api",
    "load": "shoal.api",
    "export": "shoal.api",
    "export_for": "shoal.api",
    "evaluate": "shoal.api",
    "diagnose": "shoal.api",
    "compare_geometry": "shoal.api",
    "train_lab": "shoal.api",
    "experiment_lab": "shoal.api",
    "Mask": "shoal.core.mask",
    "Site": "shoal.core.mask",
    "Plan": "shoal.core.plan",
    "ShoalError": "shoal.core.errors",
    "RunConfig": "shoal.config.run",
}

__all__ = [
    "Mask",
    "Plan",
    "RunConfig",
    "ShoalError",
    "Site",
    "__version__",
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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
