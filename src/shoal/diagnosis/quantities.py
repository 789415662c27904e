"""What is measured at each position: names, spaces and meanings, in one place.

Every quantity compares the dense model with another at one position, and is zero where the two are
equal unless its meaning says otherwise. Divergences are in nats; p is the dense model's
distribution and q the other's.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Space = Literal["hidden", "logit", "probability", "subspace"]


@dataclass(frozen=True)
class Quantity:
    """One number per position.

    Attributes:
        name: Its key in records.
        space: Where it is taken.
        meaning: What it is.
        describes_dense: Whether it describes the dense model alone, and so need not vanish.
    """

    name: str
    space: Space
    meaning: str
    describes_dense: bool = False


_ALL = (
    Quantity("hidden_gap", "hidden", "1 - cosine of the states that the head reads"),
    Quantity("hidden_parallel", "hidden", "change of the state along itself, over its length"),
    Quantity("hidden_orthogonal", "hidden", "change across it, over its length"),
    Quantity("hidden_estimate", "hidden", "leading term of hidden_gap (T1)"),
    Quantity("logit_gap", "logit", "1 - cosine of the logits"),
    Quantity("logit_parallel", "logit", "change of the logits along themselves, over their length"),
    Quantity("logit_orthogonal", "logit", "change across them, over their length"),
    Quantity("logit_estimate", "logit", "leading term of logit_gap (T1)"),
    Quantity("logit_gap_centred", "logit", "1 - cosine of the logits less their mean"),
    Quantity("logit_change", "logit", "root mean square change of the logits, less its mean"),
    Quantity("logit_rms", "logit", "root mean square of the dense logits", True),
    Quantity(
        "attenuation",
        "logit",
        "logit_orthogonal / hidden_orthogonal: below 1 the head attenuates; NaN without a change",
        True,
    ),
    Quantity("probability_gap", "probability", "1 - cosine of the distributions"),
    Quantity("probability_estimate", "probability", "leading term of probability_gap (T2)"),
    Quantity("kl", "probability", "KL(p || q)"),
    Quantity("kl_estimate", "probability", "leading term of kl (T3)"),
    Quantity("kl_reverse", "probability", "KL(q || p)"),
    Quantity("kl_bound", "probability", "the least of the three bounds of kl"),
    Quantity("total_variation", "probability", "half the summed absolute difference of p and q"),
    Quantity("flip", "probability", "1 where the likeliest token differs"),
    Quantity("entropy", "probability", "entropy of p", True),
    Quantity(
        "amplification",
        "probability",
        "probability_gap / logit_gap; NaN without a change",
        True,
    ),
    Quantity(
        "amplification_predicted",
        "probability",
        "what an isotropic change would give: mean(z^2) / T^2 (1 - sum r^2)",
        True,
    ),
    Quantity("subspace_mass", "subspace", "p of the answer tokens together", True),
    Quantity("subspace_logit_gap", "subspace", "1 - cosine of the answer tokens' logits"),
    Quantity("subspace_gap", "subspace", "1 - cosine of p and q within the answer tokens"),
    Quantity("subspace_kl", "subspace", "KL(p || q) within the answer tokens"),
    Quantity("subspace_kl_estimate", "subspace", "its leading term (T3)"),
    Quantity("subspace_floor", "subspace", "subspace_mass * subspace_kl, which kl is at least"),
    Quantity("subspace_flip", "subspace", "1 where the likeliest answer token differs"),
)

QUANTITIES = MappingProxyType({q.name: q for q in _ALL})
"""All quantities by name."""
