"""The options of the shift experiments of a lab model."""

from typing import Literal

from pydantic import Field

from shoal.config.base import Config
from shoal.config.lab import DistributionField


class ShiftSettings(Config):
    """Options of the shift experiments."""

    selection: int = Field(256, ge=2, description="functions on which masks are chosen")
    test: int = Field(512, ge=2, description="functions on which they are judged")
    skip: int = Field(2, ge=0, description="first predictions of a prompt, which no loss counts")
    epsilon: float = Field(
        0.08,
        ge=0,
        allow_inf_nan=False,
        description="share of the dense loss that TALE may lose on its way",
    )
    floor: Literal["fixed", "drifting"] = Field(
        "fixed", description="epsilon above the dense loss, or above the current one"
    )
    most: int | None = Field(
        None, ge=1, description="most blocks that are removed; all but one by default"
    )
    random_masks: int = Field(
        20, ge=0, description="random masks as large as BEST that are judged on the test functions"
    )
    search_masks: int | None = Field(
        None,
        ge=0,
        description="random masks of which the best on the selection functions is taken; as many "
        "as TALE asked for by default",
    )
    inputs: DistributionField | None = Field(
        None, description="distribution of x in the shifted tasks; as in training by default"
    )
    batch: int = Field(64, ge=1, description="prompts in one pass")
