"""The interventions: removing sites, scaling what they add, undoing it, each with its controls.

Every function gives the points of one kind, so that a caller can keep those that are finished.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from shoal.core.mask import Mask, Part, Site
from shoal.geometry.bench import Bench, OnStep
from shoal.geometry.collecting import ALL, Classes
from shoal.geometry.interventions import mapped, removed, scaled
from shoal.geometry.inverses import controls, inversions
from shoal.geometry.records import Point
from shoal.geometry.settings import InterventionSettings, control_masks
from shoal.geometry.sides import Side
from shoal.geometry.stack import Stack

SELECTED, UNSELECTED, NONE = "selected", "unselected", "none"


def dense_points(
    bench: Bench, mask: Mask, settings: InterventionSettings, classes: Classes
) -> tuple[Point, ...]:
    """The model as it is, the one point that all others are compared with."""
    return (bench.point("dense", Mask.dense(mask.depth), NONE, nullcontext()),)


def removal_points(
    bench: Bench, mask: Mask, settings: InterventionSettings, classes: Classes
) -> tuple[Point, ...]:
    """The selected sites removed, random masks of as many others, and single blocks if asked for.

    `seed` of an unselected mask is its number.
    """
    tried = _tried(bench.stack, mask, settings) if mask else []
    if settings.singles:
        tried += [(Mask.of(mask.depth, [i]), str(i), None) for i in range(mask.depth)]
    return tuple(
        bench.point("removed", one, group, removed(bench.stack, one), seed=seed)
        for one, group, seed in tried
    )


def scaling_points(
    bench: Bench, mask: Mask, settings: InterventionSettings, classes: Classes
) -> tuple[Point, ...]:
    """What the blocks add scaled by each alpha: at the selected ones, and at the control masks.

    None where the mask removes parts of blocks.
    """
    if not _whole(mask):
        return ()
    return tuple(
        bench.point(
            "scaled",
            one,
            group,
            scaled(bench.stack, dict.fromkeys(one.blocks, alpha)),
            alpha=alpha,
            seed=seed,
        )
        for one, group, seed in _tried(bench.stack, mask, settings)
        for alpha in settings.alphas
    )


def inverse_points(
    bench: Bench, mask: Mask, settings: InterventionSettings, classes: Classes
) -> tuple[Point, ...]:
    """Inverse surrogates after the selected blocks, and two kinds of random maps in their place.

    The random maps are made from the inverse with the lowest shifted loss, the strongest of them.
    None where the mask removes parts of blocks.
    """
    if not _whole(mask) or not settings.ridges:
        return ()
    found = inversions(bench, mask.blocks, settings, classes)
    points = [
        bench.point(
            "inverse",
            mask,
            SELECTED,
            mapped(bench.stack, one.maps),
            ridge=one.ridge,
            r2=one.r2,
        )
        for one in found
    ]
    _, best = min(
        zip(points, found, strict=True), key=lambda pair: (pair[0].loss_ood.value, pair[1].ridge)
    )
    for kind in ("random", "rotated"):
        points += [
            bench.point(
                kind,
                mask,
                SELECTED,
                mapped(bench.stack, controls(best.maps, kind, seed)),
                ridge=best.ridge,
                seed=seed,
                r2=best.r2,
            )
            for seed in settings.seeds
        ]
    return tuple(points)


PointsOf = Callable[[Bench, Mask, InterventionSettings, Classes], tuple[Point, ...]]

KINDS: Mapping[str, PointsOf] = {
    "dense": dense_points,
    "removed": removal_points,
    "scaled": scaling_points,
    "inverse": inverse_points,
}
"""What can be done by itself, in the order of the points."""


def interventions_part(
    stack: Stack,
    id: Side,
    ood: Side,
    mask: Mask | None,
    settings: InterventionSettings,
    classes: Classes = ALL,
    on_step: OnStep | None = None,
) -> tuple[Point, ...]:
    """All points.

    Args:
        stack: The model.
        id: The task that it is adapted to.
        ood: The shifted one.
        mask: The selected sites; without them the dense model and single blocks are what is left.
        settings: What is tried.
        classes: Positions that get a map each.
        on_step: Told of every step done; `steps` counts them.
    """
    bench = Bench.of(stack, id, ood, settings.seed, on_step)
    chosen = Mask.dense(stack.depth) if mask is None else mask
    return tuple(
        point for points in KINDS.values() for point in points(bench, chosen, settings, classes)
    )


def steps(stack: Stack, mask: Mask, settings: InterventionSettings) -> dict[str, int]:
    """Steps of each kind: points to measure, and surrogates to fit for the inverses.

    A point is a pass over the examples of both tasks and the OOD texts, a fit one over the latter.
    """
    others = len(_controls(stack, mask, settings))
    selected, whole, ridges = bool(mask), _whole(mask), len(settings.ridges)
    fits = 1 + (mask.num_blocks - 1) * ridges
    singles = mask.depth if settings.singles else 0
    return {
        "dense": 1,
        "removed": selected + others + singles,
        "scaled": whole * (1 + others) * len(settings.alphas),
        "inverse": (fits + ridges + 2 * len(settings.seeds)) if whole and ridges else 0,
    }


def notes(stack: Stack, mask: Mask, settings: InterventionSettings) -> tuple[str, ...]:
    """What is left out of the interventions on a mask, and why."""
    found = []
    if mask and not mask.whole_blocks_only:
        found.append(
            f"{mask} removes parts of blocks: what sites add is not scaled, and no inverse is "
            "fitted, since both act on whole blocks."
        )
    others = len(_controls(stack, mask, settings))
    if mask and others < settings.masks:
        found.append(
            f"{others} control masks instead of {settings.masks}: outside {mask} there are no "
            "more sets of as many sites."
        )
    return tuple(found)


def _whole(mask: Mask) -> bool:
    return bool(mask) and mask.whole_blocks_only


def _tried(
    stack: Stack, mask: Mask, settings: InterventionSettings
) -> list[tuple[Mask, str, int | None]]:
    """The selected sites and the control masks: mask, group, number of a control."""
    others = enumerate(_controls(stack, mask, settings))
    return [(mask, SELECTED, None), *((one, UNSELECTED, i) for i, one in others)]


def _controls(stack: Stack, mask: Mask, settings: InterventionSettings) -> tuple[Mask, ...]:
    sites = [
        Site(layer, part)
        for layer in range(stack.depth)
        for part in Part
        if part is Part.BLOCK or (stack.branches and stack.branches[layer].paired)
    ]
    return control_masks(mask, settings.masks, settings.seed, sites)
