"""The lowest states of a quadratic model under a weight, with a proof where it is wanted."""

from itertools import islice

from shoal.config.searches import CboConfig
from shoal.core.errors import UsageError
from shoal.searches.base import Problem
from shoal.searches.certificate import certify
from shoal.searches.cover import Cover
from shoal.searches.quadratic import Accept, Quadratic, Solved
from shoal.searches.quadratic_cover import anneal_cover, lowest_around, lowest_of
from shoal.searches.unit_sets import UnitSet, mask_of, units_of


def solve_weight(problem: Problem, config: CboConfig, model: Quadratic, enumerable: int) -> Solved:
    """The lowest answers.

    Args:
        problem: What is searched; its budget is a weight.
        config: Options of the search.
        model: The energies.
        enumerable: Up to so many answers are looked at one by one.

    Raises:
        UsageError: If there is no answer.
    """
    space, budget = problem.space, problem.budget
    answers = [units_of(space, mask) for mask in islice(budget.masks(space), enumerable + 1)]
    if not answers:
        raise UsageError(f"no valid mask removes {budget} of this model; remove less.")
    if len(answers) <= enumerable:
        states = lowest_of(model, answers, config.states)
        return Solved(states, "lowest state optimal: all sets were enumerated")
    cover, accept = Cover.of(space, budget), is_answer(problem)
    starts = [units_of(space, budget.sample(space, problem.rng)) for _ in range(config.restarts)]
    found = [s for s in anneal_cover(model, cover, starts, problem.rng) if accept(s)]
    states = lowest_around(model, cover, [*starts, *found], config.states, accept)
    if not config.certify:
        return Solved(states, "none asked for")
    proof = certify(model, states[0], config.certify_seconds, apart=cover.apart, cover=cover)
    if accept(proof.state):
        states = lowest_around(model, cover, [proof.state, *states], config.states, accept)
    if space.constraint is None:
        return Solved(states, proof.text)
    return Solved(states, f"{proof.text}; this is about all sets, valid or not")


def is_answer(problem: Problem) -> Accept:
    """Which sets of units are answers; remembers what it was asked."""
    answers: dict[UnitSet, bool] = {}

    def accept(units: UnitSet) -> bool:
        if units not in answers:
            mask = mask_of(problem.space, units)
            answers[units] = mask is not None and problem.is_answer(mask)
        return answers[units]

    return accept
