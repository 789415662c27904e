"""Constrained binary optimisation: a quadratic model of the loss, solved for exactly k units.

Jansen et al. (2602.00161) expand the loss to second order in gates alpha_i on the blocks, at the
dense model where all are 1, and remove the set that minimises it. There are two ways to the model:

- *pairwise* (default): from the losses of single and double removals, with Delta the loss minus
  that of the dense model, Q_ii = Delta_i and Q_ij = Delta_ij - Delta_i - Delta_j. Needs no
  gradients, fits any objective, exact for k <= 2. It is not in that paper; Rethinking Layer
  Redundancy (2604.24938) reports a cost that fits it. What three and more removals do together is
  left out, and couplings near the dense model say less and less as k grows.
- *gradient* (the paper's): from the derivative of each example's loss by each gate, A [m, N], one
  backward pass per example, with H = A^T A / m in place of the Hessian and no first order:
  E(S) = x^T H x = mean_s (sum_{i in S} g_si)^2. With `first_order` the gradient term stays. The
  outer product estimates a Hessian for log-likelihoods; under a margin or another difference of
  losses it does not, and is no more than a heuristic there.

The model does not depend on k. Its minimum is often not the best set: the paper evaluates excited
states too and picks one by inspection. Here the lowest `states` are evaluated and the best by the
objective is the result; `states = 1` takes the ground state.

The paper enumerates all sets. Here small problems are enumerated and others annealed by swaps (see
`shoal.searches.quadratic`), with a proof by integer programming (see `shoal.searches.certificate`);
a lower state that the proof brings up is used. What is proven in limited time depends on the
machine; the rest follows from the seed. Where units may not go together, only valid states count.
Pairs that may not go together are not asked and have no coupling; those that overlap are never
part of a state.

Under a weight the model is the same, and its states are the sets that meet the target with no unit
in vain, see `shoal.searches.cbo_weight`. All single and double removals are evaluated unless every
answer is a single one, and those that are answers compete with the states.

Cost: N + N (N - 1) / 2 + states evaluations for N removable units in the pairwise form, without the
states for k = 2, N for k = 1; states evaluations in the gradient form, and one pass with gradients.
"""

from collections.abc import Generator, Sequence
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import CboConfig
from shoal.core.errors import NotFiniteError, UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Contest, Found, Problem, SearchRun, batches, best_of
from shoal.searches.cbo_weight import solve_weight
from shoal.searches.certificate import certify
from shoal.searches.cover import Cover
from shoal.searches.quadratic import (
    ENUMERABLE,
    Accept,
    Quadratic,
    Solved,
    anneal_lowest,
    closure,
    enumerate_lowest,
)
from shoal.searches.unit_sets import UnitSet, mask_of, units_of

Known = dict[Mask, Evaluation]
"""What has been evaluated."""

ANSWERS = 100
"""How much longer it takes to find an answer to a weight than to count off a set of k units."""


def cbo(problem: Problem, config: CboConfig) -> SearchRun:
    """Build the quadratic model, find its lowest states, and return the best of them."""
    known: Known = {}
    if config.form == "pairwise":
        model = yield from _measured(problem, config, known)
        if problem.budget.uniform and problem.k <= 2:
            return _exact(problem, model, known)
    else:
        model = _expanded(problem, config)
    solved = solve(problem, config, model)
    masks = [mask for s in solved.states if (mask := mask_of(problem.space, s)) is not None]
    # Under a weight single and double removals may be answers, too.
    answers = {mask: e for mask, e in known.items() if problem.is_answer(mask)}
    if new := [mask for mask in masks if mask not in answers]:
        answers |= {e.mask: e for e in (yield Contest(new, winners=1))}
    mask = best_of([answers[m] for m in dict.fromkeys([*masks, *answers])]).mask
    return _found(problem, config, model, mask, solved)


def solve(problem: Problem, config: CboConfig, model: Quadratic) -> Solved:
    """The lowest valid states that meet the budget, with a proof where it is wanted.

    Raises:
        UsageError: If no set is valid.
    """
    if not problem.budget.uniform:
        return solve_weight(problem, config, model, ENUMERABLE // ANSWERS)
    space, k = problem.space, problem.k
    accept = _accept(space, k)
    apart = Cover.of(space, problem.budget).apart if space.overlapping else None
    if comb(model.units, k) <= ENUMERABLE:
        states = enumerate_lowest(model, k, config.states, accept, apart)
        if not states:
            raise UsageError(f"no valid mask removes {k} units of this model; remove fewer.")
        return Solved(states, "lowest state optimal: all sets were enumerated")
    starts = [units_of(space, space.sample(problem.rng, k)) for _ in range(config.restarts)]
    states = anneal_lowest(model, starts, config.states, problem.rng, accept, apart)
    if not config.certify:
        return Solved(states, "none asked for")
    proof = certify(model, states[0], config.certify_seconds, apart=apart)
    if accept is None:
        return Solved(closure(model, [proof.state, *states], config.states), proof.text)
    if accept(proof.state):
        states = closure(model, [proof.state, *states], config.states, accept)
        return Solved(states, f"{proof.text}; this is about all sets, valid or not")
    above = model.energy(states[0]) - model.energy(proof.state)
    text = f"{proof.text}; this is about all sets, valid or not, and that state is not valid"
    return Solved(states, f"{text}: the lowest valid one is {above:.3g} above it")


def _measured(
    problem: Problem, config: CboConfig, known: Known
) -> Generator[Sequence[Mask], Sequence[Evaluation], Quadratic]:
    """The pairwise form; what it evaluates is added to `known`."""
    space, n = problem.space, len(problem.space.units)
    [dense] = yield [space.dense]
    masks: dict[UnitSet, Mask] = {(i,): space.dense.without(u) for i, u in enumerate(space.units)}
    if problem.k > 1:
        # In this order, consecutive pairs share the first unit, and so all layers up to the second.
        pairs = ((pair, mask_of(space, pair)) for pair in combinations(range(n), 2))
        masks |= {pair: mask for pair, mask in pairs if mask is not None}
    singles, doubles = np.full(n, np.nan), np.full((n, n), -np.inf)
    for batch in batches(masks.values(), config.batch):
        known.update({e.mask: e for e in (yield batch)})
    for units, mask in masks.items():
        table, where = (singles, units[0]) if len(units) == 1 else (doubles, units)
        table[where] = known[mask].rank_key
    return Quadratic.from_losses(dense.mean, singles, doubles)


def _expanded(problem: Problem, config: CboConfig) -> Quadratic:
    """The gradient form."""
    gradients: NDArray[np.float64] = np.asarray(problem.signals.gradients(), float)
    broken = np.flatnonzero(~np.isfinite(gradients).all(axis=1))
    if len(broken):
        raise NotFiniteError(
            f"the gradients of {len(broken)} of {len(gradients)} examples are not finite, the "
            f"first of example {broken[0]}. Try --dtype float32, leave such examples out, or use "
            "the pairwise form."
        )
    return Quadratic.from_gradients(gradients, first_order=config.first_order)


def _accept(space: SearchSpace, k: int) -> Accept | None:
    """Which sets of k units are valid; None where all are, which spares asking."""
    single_sites = all(len(unit) == 1 for unit in space.units) and not space.overlapping
    if space.constraint is None and single_sites and k < space.depth:
        return None
    answers: dict[UnitSet, bool] = {}

    def accept(units: UnitSet) -> bool:
        if units not in answers:
            answers[units] = mask_of(space, units) is not None
        return answers[units]

    return accept


def _exact(problem: Problem, model: Quadratic, known: Known) -> Found:
    """For one or two units every valid set has been evaluated."""
    sets = combinations(range(model.units), problem.k)
    valid = [known[mask] for s in sets if (mask := mask_of(problem.space, s)) is not None]
    if not valid:
        raise UsageError(f"no valid mask removes {problem.k} units of this model; remove fewer.")
    mask = best_of(valid).mask
    energy = model.energy(units_of(problem.space, mask))
    return Found(
        mask,
        {
            "form": "pairwise",
            "energy": energy,
            "rank": 0,
            "states": len(valid),
            "certificate": "optimal: all sets were evaluated",
        },
    )


def _found(
    problem: Problem, config: CboConfig, model: Quadratic, mask: Mask, solved: Solved
) -> Found:
    state = units_of(problem.space, mask)
    energy = model.energy(state)
    # A double removal that is an answer may be the best and yet not among the lowest states.
    lower = sum(model.energy(s) < energy for s in solved.states)
    rank = solved.states.index(state) if state in solved.states else lower
    return Found(
        mask,
        {
            "form": config.form,
            "energy": energy,
            "rank": rank,
            "states": len(solved.states),
            "certificate": solved.certificate,
        },
    )
