"""Every causal LM type of transformers, pruned and compared with its dense model.

Run as `python -m shoal.testing.conformance [NAMES...] [--jobs N] [--json FILE] [--markdown FILE]`.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from shoal.core.errors import unknown_name
from shoal.testing.conformance_checks import CHECKS, Check
from shoal.testing.conformance_report import line, markdown, summary
from shoal.testing.conformance_row import Cases, Row
from shoal.testing.conformance_subject import Subject, settle_all
from shoal.testing.zoo import ZOO

__all__ = ["CHECKS", "Row", "check_all", "check_one", "main"]


def check_one(name: str, checks: Iterable[Check] = tuple(CHECKS), row: Row | None = None) -> Row:
    """Run the checks of one model of the zoo.

    Args:
        name: Its name.
        checks: The checks.
        row: What is known of it already; a check in it is run again only if it is in `checks`.
    """
    found = row or Row(name, ZOO[name].model_type, ZOO[name].kind)
    with tempfile.TemporaryDirectory(prefix="shoal-conformance-") as folder:
        subject = Subject(name, Path(folder))

        def look() -> Cases:
            found.blocks = list(subject.oracle.stacks)
            found.cache_disagrees = subject.oracle.cache_disagrees
            return {}

        # Where the dense model itself does not load and run, nothing else is worth a try.
        if failed := settle_all(look):
            found.checks["dense"] = failed
            return found
        for check in checks:
            begin = time.perf_counter()
            found.checks[check.__name__] = settle_all(partial(check, subject))
            found.seconds[check.__name__] = round(time.perf_counter() - begin, 3)
    return found


def check_all(
    names: Iterable[str], known: dict[str, Row], jobs: int = 1, *, redo: bool = False
) -> Iterator[Row]:
    """Run the checks of many models, in any order.

    Args:
        names: Names in the zoo.
        known: Rows of earlier runs: checks in them are skipped.
        jobs: Processes.
        redo: Run all checks again.
    """
    tasks = []
    for name in names:
        row = None if redo else known.get(name)
        missing = [c for c in CHECKS if row is None or c.__name__ not in row.checks]
        if missing:
            tasks.append((name, missing, row))
    if jobs <= 1:
        _quiet()
        for task in tasks:
            yield check_one(*task)
        return
    # Fork would copy a torch that has started threads.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_quiet) as pool:
        running = [pool.submit(check_one, *task) for task in tasks]
        for done in as_completed(running):
            yield done.result()


def _quiet() -> None:
    warnings.simplefilter("ignore")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(1)


def main(arguments: Sequence[str] | None = None, show: Callable[[str], Any] = print) -> int:
    """The command line.

    Args:
        arguments: What was typed; None for that of the process.
        show: What is called with each line of output.

    Returns:
        1 if any result is wrong, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m shoal.testing.conformance", description=__doc__
    )
    parser.add_argument("names", nargs="*", help="names in the zoo; all of them if none is given")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="file to keep rows in, and to go on from")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--redo", action="store_true", help="run what is in the file again")
    given = parser.parse_args(arguments)
    names = given.names or list(ZOO)
    for name in names:
        if name not in ZOO:
            raise SystemExit(str(unknown_name("model", name, ZOO)))
    rows = _read(given.json)
    for row in check_all(names, rows, given.jobs, redo=given.redo):
        rows[row.name] = row
        show(line(row))
        if given.json:
            _write(given.json, rows)
    chosen = [rows[name] for name in names]
    if given.markdown:
        given.markdown.write_text(markdown(chosen), encoding="utf-8")
    show(summary(chosen))
    return int("\nwrong " in summary(chosen))


def _read(file: Path | None) -> dict[str, Row]:
    if file is None or not file.is_file():
        return {}
    forms = json.loads(file.read_text(encoding="utf-8"))
    return {form["name"]: Row.from_json(form) for form in forms}


def _write(file: Path, rows: dict[str, Row]) -> None:
    forms = [row.to_json() for _, row in sorted(rows.items())]
    half = file.with_name(file.name + ".part")
    half.write_text(json.dumps(forms, indent=1), encoding="utf-8")
    half.replace(file)


if __name__ == "__main__":
    raise SystemExit(main())
