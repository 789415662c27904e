"""`shoal ls`: what there is to choose from."""

from typing import Literal

from shoal.config.mixture import ALL_OBJECTIVES
from shoal.config.searches import SEARCHES


def ls(what: Literal["objectives", "searches", "tasks"], /) -> None:
    """List objectives, searches or tasks.

    Parameters
    ----------
    what
        objectives, searches or tasks.
    """
    from shoal.cli.screen import table

    if what == "tasks":
        from shoal.data import TASKS

        rows = [
            [t.name, t.kind, t.description, t.calibration_split, t.report_split, t.licence]
            for t in TASKS.values()
        ]
        table("tasks", ["name", "kind", "what", "calibration", "report", "licence"], rows)
        return
    known = {"objectives": ALL_OBJECTIVES, "searches": SEARCHES}[what]
    rows = [
        [name, cls.summary, ", ".join(f for f in cls.model_fields if f != "name")]
        for name, cls in known.items()
    ]
    table(what, ["name", "what", "options"], rows)
