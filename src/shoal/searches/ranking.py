"""From an order of units to a set of units that may go together, and the order under a weight."""

from collections.abc import Iterable, Sequence
from math import inf, isfinite

from shoal.core.budget import Budget, Wanted, budget_of
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Problem


def per_price(increase: float, price: float) -> float:
    """By what removals of different prices compare; the least is removed first.

    A rising loss counts per unit of weight: what is removed has to add up to a target, so a removal
    that costs twice as much and weighs twice as much is as good. A falling loss is a gain, and
    dividing it would favour the lighter of two removals of equal gain; it counts times the price,
    so that a larger removal for the same gain ranks better.

    Args:
        increase: What the removal adds to the loss.
        price: What it removes, as far as that is still wanted.
    """
    if increase <= 0:
        return increase * price
    return increase / price if price > 0 and isfinite(increase) else inf


def price_key(loss: float, base: float, price: float) -> tuple[float, float, float]:
    """A sort key by `per_price`; of equals the dearer comes first, then the lower loss.

    Args:
        loss: Loss with the removal; one that is not finite ranks last.
        base: Loss without it.
        price: What it removes, as far as that is still wanted.
    """
    loss = loss if isfinite(loss) else inf
    return per_price(loss - base, price), -price, loss


def ranked_extensions(
    problem: Problem, parent: Evaluation, grown: Sequence[Evaluation], base: float
) -> list[Evaluation]:
    """What one more unit makes of a mask, the best by increase per price first.

    Args:
        problem: What is searched.
        parent: The mask, which misses the budget.
        grown: The mask with one unit more, for some units.
        base: What to compare with if the parent's loss is not finite.
    """
    space, budget = problem.space, problem.budget
    before = budget.missing(space, parent.mask)
    loss = parent.mean if parent.finite else base

    def key(evaluation: Evaluation) -> tuple[float, ...]:
        after = max(budget.missing(space, evaluation.mask), 0.0)
        return price_key(evaluation.rank_key, loss, before - after)

    return sorted(grown, key=key)


def top_k(space: SearchSpace, scores: Sequence[float], k: Wanted, base: float = 0.0) -> Mask | None:
    """The units with the lowest scores that may go together, taken in the order of the scores.

    Under a weight the order is that of the scores per price. Ties go to the unit that comes first;
    a score that is not finite ranks last.

    Args:
        space: The units, and which of them may go together.
        scores: One score per unit of the space; the lowest is removed first.
        k: How many units to remove, or another budget.
        base: The score of removing nothing; it matters under a weight.

    Returns:
        The mask, or None if the budget was not met.
    """
    budget = budget_of(k)
    keys: list[tuple[float, ...]] = [(score if isfinite(score) else inf,) for score in scores]
    if not budget.uniform:
        wanted = budget.missing(space, space.dense)
        prices = (min(budget.price(unit), wanted) for unit in space.units)
        keys = [price_key(score, base, p) for score, p in zip(scores, prices, strict=True)]
    return filled(space, space.dense, sorted(range(len(space.units)), key=keys.__getitem__), budget)


def filled(space: SearchSpace, mask: Mask, order: Iterable[int], k: Wanted) -> Mask | None:
    """Remove units in a given order until a budget is met.

    A unit is skipped if it is removed already, overlaps with one that is, or may not go with those.
    Where that ends short of the budget, units that leave too few for the rest are skipped, too.
    Under a weight, units that turn out to be in vain are put back, the last that was added first.

    Args:
        space: The units, and which of them may go together.
        mask: What is removed to begin with, at most the budget.
        order: Indices of units of the space.
        k: How many units the result removes, or another budget.

    Returns:
        The mask, or None if the order ends before.
    """
    order, budget = list(order), budget_of(k)
    found = _filled(space, mask, order, budget, surely=False)
    if found is None and (space.overlapping or not budget.uniform):
        return _filled(space, mask, order, budget, surely=True)
    return found


def _filled(
    space: SearchSpace, mask: Mask, order: Iterable[int], budget: Budget, *, surely: bool
) -> Mask | None:
    """As `filled`; surely also skips units after which the rest cannot meet the budget."""
    count, missing = len(space.removed_units(mask)), budget.missing(space, mask)
    added = []
    for i in order:
        if missing <= 0:
            break
        if not space.is_free(i, mask):
            continue
        grown = mask.without(space.units[i])
        if surely and not budget.reachable(space, grown):
            continue
        # Where units overlap, one may complete another; that would be two removals at once.
        if space.is_valid(grown) and len(space.removed_units(grown)) == count + 1:
            mask, count = grown, count + 1
            missing -= budget.price(space.units[i])
            added.append(space.units[i])
    if budget.uniform:
        return mask if missing == 0 else None
    if not budget.is_met(space, mask):
        return None
    mask = budget.trimmed(space, mask, added[::-1])
    return mask if space.is_valid(mask) else None
