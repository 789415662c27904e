"""The linear surrogates of all blocks on both tasks."""

from collections.abc import Iterable, Sequence

from shoal.geometry.collecting import ALL, Classes, collected
from shoal.geometry.linear import THRESHOLD, linear_record
from shoal.geometry.records import Distribution, Linear
from shoal.geometry.sides import Side
from shoal.geometry.stack import Stack, Texts
from shoal.geometry.surrogates import RIDGES


def linear_part(
    stack: Stack,
    id: Side,
    ood: Side,
    classes: Classes = ALL,
    ridges: Sequence[float] = RIDGES,
    threshold: float = THRESHOLD,
    seed: int = 0,
    layers: Iterable[int] | None = None,
) -> tuple[Linear, ...]:
    """Fit and describe the surrogates, each task in one pass.

    Args:
        stack: The model.
        id: The task that it is adapted to.
        ood: The shifted one.
        classes: Classes of positions that get a surrogate each.
        ridges: To choose from.
        threshold: Held-out R^2 from which a surrogate is accepted.
        seed: Chooses the sequences that are held out.
        layers: Blocks wanted, by default all; fewer at a time take less memory
            (`shoal.geometry.collecting.moments_bytes`) and more passes.

    Returns:
        Those of the adapted task, then those of the shifted one; block by block, class by class.

    Raises:
        UsageError: If a task has too few sequences or tokens.
        NotFiniteError: If a state is not finite.
    """
    wanted = list(range(stack.depth) if layers is None else layers)
    tasks: tuple[tuple[Distribution, Texts], ...] = (("id", id.texts), ("ood", ood.texts))
    return tuple(
        linear_record(*pair, layer, name, distribution, ridges, threshold)[1]
        for distribution, texts in tasks
        for (layer, name), pair in collected(stack, texts, wanted, classes, seed).items()
    )
