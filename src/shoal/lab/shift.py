"""The shift experiment: does removing blocks help where the functions are not those of training?

For each task masks are chosen on some functions and judged on others, beside the dense model, the
controls of `shoal.lab.controls` and the reference learners. Every chosen mask is judged on every
task, so that what a mask for shifted functions costs in distribution shows, and the converse.
"""

from collections.abc import Sequence

from shoal.core.mask import Mask
from shoal.lab.paired import compared, point_curve
from shoal.lab.records import Cell, Measured, Selection, Shift
from shoal.lab.references import references
from shoal.lab.saturation import saturation
from shoal.lab.tasks import Task

SEED = 0
"""Of the bootstrap."""


def measure(task: Task, selection: Selection, others: Sequence[Mask] = ()) -> Shift:
    """Judge what was chosen for a task on its test functions.

    Args:
        task: The task.
        selection: What was chosen.
        others: Further masks that will be asked for, so that their work is shared.
    """
    dense = Mask.dense(selection.best.depth)
    named = {
        "dense": dense,
        "best": selection.best,
        "bsba": selection.bsba,
        "single": selection.single,
        "random_best": selection.random_best,
    }
    known = {name: mask for name, mask in named.items() if mask is not None}
    task.test.evaluate([*known.values(), *selection.random, *others])
    judged = set(known.values())
    masks = [_measured(task, name, mask, judged) for name, mask in known.items()]
    random = [_measured(task, "random", mask, judged) for mask in selection.random]
    best = task.test.evaluate([selection.best])[0].mean
    better = [task.test.evaluate([mask])[0].mean < best for mask in selection.random]
    predicted = references(task.test.prompts, task.trained)
    errors = {name: (p - task.test.values) ** 2 for name, p in predicted.items()}
    errors = {
        "dense": task.test.errors(dense),
        "best": task.test.errors(selection.best),
        **errors,
    }
    return Shift(
        task=task.name,
        family=task.family.model_dump(mode="json"),
        in_distribution=task.in_distribution,
        sigma=task.sigma,
        functions=len(task.test.prompts),
        selection=selection,
        masks=tuple(masks),
        random=tuple(random),
        random_better=sum(better) / len(better) if better else None,
        lengths={name: point_curve(table, SEED) for name, table in errors.items()},
        saturation=saturation(task, selection.best, SEED),
    )


def transfer(tasks: Sequence[Task], chosen: Sequence[Selection]) -> tuple[Cell, ...]:
    """Every chosen mask on the test functions of every task."""
    found = []
    for task in tasks:
        base = task.test.losses(Mask.dense(chosen[0].best.depth))
        for selection in chosen:
            for which in ("best", "bsba"):
                mask: Mask = getattr(selection, which)
                values = {
                    "chosen_on": selection.task,
                    "which": which,
                    "task": task.name,
                    "mask": mask,
                    "test": compared(task.test.losses(mask), base, SEED),
                }
                found.append(Cell.model_validate(values))
    return tuple(found)


def _measured(task: Task, name: str, mask: Mask, judged: set[Mask]) -> Measured:
    base = task.test.losses(Mask.dense(mask.depth))
    return Measured(
        name=name,
        mask=mask,
        selection=task.selection.evaluate([mask])[0].mean if mask in judged else None,
        test=compared(task.test.losses(mask), base, SEED),
    )
