"""What a recipe is, and how it becomes the config of a tiny model."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from shoal.testing.zoo.base import BASE, DROPOUTS

Fields = dict[str, Any]
"""Config fields by name."""

Kind = Literal["D", "E", "X", "M", "A"]
"""D decoder-only text, E encoder-style with a causal head, X decoder of an encoder-decoder,
M multimodal wrapper, A assistant (drafter)."""

UNSET = object()
"""As the value of a recipe's own field: leave out what `BASE` says about it."""


@dataclass(frozen=True)
class Recipe:
    """How to build one tiny model.

    Attributes:
        model_type: The model type in transformers.
        kind: What kind of model it is.
        own: Depth -> the fields that differ from `BASE`. These are always passed; those of `BASE`
            only where the config class has them.
        depth_field: The field that takes the depth; None where `own` sees to it.
    """

    model_type: str
    kind: Kind
    own: Callable[[int], Fields]
    depth_field: str | None = "num_hidden_layers"

    def config(self, depth: int = 6) -> PreTrainedConfig:
        """The config, with every dropout off.

        Args:
            depth: Number of blocks.
        """
        fields = fields_of(self.model_type, self.own(depth))
        if self.depth_field is not None:
            fields.setdefault(self.depth_field, depth)
        config: PreTrainedConfig = AutoConfig.for_model(self.model_type, **fields)
        _still(config)
        return config


def fields_of(model_type: str, own: Fields, **more: Any) -> Fields:
    """The fields of `BASE` that a config class has, with a recipe's own on top.

    Args:
        model_type: Names the config class, which may be that of a part of a model.
        own: The recipe's own fields.
        more: Further own fields.
    """
    own = own | more
    cls = CONFIG_MAPPING[model_type]
    plain = cls()
    fields = {
        name: value for name, value in BASE.items() if name not in own and _takes(cls, plain, name)
    }
    return copy.deepcopy(fields | {n: v for n, v in own.items() if v is not UNSET})


def _takes(cls: type[PreTrainedConfig], plain: PreTrainedConfig, name: str) -> bool:
    """Whether a field exists and can be set; some are computed from others."""
    computed = getattr(cls, name, None)
    if isinstance(computed, property) and computed.fset is None:
        return False
    return name in vars(plain) or name in cls.attribute_map or isinstance(computed, property)


def _still(config: PreTrainedConfig) -> None:
    for name in DROPOUTS:
        if isinstance(getattr(config, name, None), float):
            setattr(config, name, 0.0)
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig):
            _still(part)


def just(**fields: Any) -> Callable[[int], Fields]:
    """Own fields that do not depend on the depth."""
    return lambda depth: fields


def decoders(recipes: dict[str, Callable[[int], Fields]], kind: Kind = "D") -> dict[str, Recipe]:
    """Recipes of one kind, each named after its model type.

    Args:
        recipes: Model type -> depth -> own fields.
        kind: The kind of all of them.
    """
    return {name: Recipe(name, kind, own) for name, own in recipes.items()}
