"""Where a use of a compressed model is safe, risky or broken."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from shoal.config.base import Config


def _pair(value: Any) -> Any:
    """Read `0.9,0.6` as a pair."""
    if not isinstance(value, str):
        return value
    return tuple(value.replace(",", " ").split())


Limits = Annotated[tuple[float, float], BeforeValidator(_pair)]
"""The limit of safe, then that of broken; which of the two is larger says what is better."""


class Thresholds(Config):
    """For each measure the limit up to which it is safe, and that beyond which it is broken.

    The defaults are judgements, not laws: choose what your use can bear.
    """

    choice_kept: Limits = Field(
        (0.90, 0.60), description="share of items whose chosen option stays the dense model's"
    )
    choice_accuracy: Limits = Field((-0.02, -0.15), description="change of accuracy, paired")
    neighbour_overlap: Limits = Field(
        (0.80, 0.50), description="share of a text's nearest neighbours that stay"
    )
    neighbour_ranks: Limits = Field(
        (0.95, 0.80), description="rank correlation of a text's similarities to the others"
    )
    found: Limits = Field(
        (-0.03, -0.15), description="change of the share of halves that find their other half"
    )
    short_kl: Limits = Field(
        (0.05, 0.50), description="KL(dense || other) per token over the first steps, nats"
    )
    short_flip: Limits = Field(
        (0.05, 0.30), description="share of the first steps where the likeliest token differs"
    )
    long_kl: Limits = Field((0.05, 0.50), description="KL(dense || other) per token, nats")
    looping: Limits = Field(
        (0.05, 0.25), description="more texts that end in a loop than the dense model's, as a share"
    )
    surprise: Limits = Field(
        (0.10, 1.00),
        description="how much odder the dense model finds the other's sampled text than its own, "
        "nats per token",
    )

    @model_validator(mode="after")
    def _right_way_round(self) -> Self:
        for name, field in type(self).model_fields.items():
            safe, broken = getattr(self, name)
            higher = field.default[0] > field.default[1]
            if not (safe >= broken if higher else safe <= broken):
                raise ValueError(
                    f"{name}: {'higher' if higher else 'lower'} is better, so the limit of safe "
                    f"cannot be {safe:g} where that of broken is {broken:g}. Write safe first."
                )
        return self
