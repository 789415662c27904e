"""The conformance run as lines, as a summary and as a Markdown table."""

import re
from collections.abc import Iterable, Sequence

from shoal.testing.conformance_row import OK, Outcome, Row, Status

_SIGNS = {Status.OK: "ok", Status.REFUSED: "R", Status.WRONG: "X", Status.NONE: "-"}


def line(row: Row) -> str:
    """One row, compact: `llama D sets ok singles ok ... 1.2s`."""
    cells = [f"{check} {_cell(row.outcomes(check))}" for check in row.checks]
    took = sum(row.seconds.values())
    return f"{row.name:32} {row.kind} {'  '.join(cells)}  {took:.1f}s"


def _cell(outcomes: Sequence[Outcome]) -> str:
    """`ok`, or a sign for each case."""
    signs = [_SIGNS[outcome.status] for outcome in outcomes]
    if not signs:
        return ""
    return signs[0] if len(set(signs)) == 1 else "".join("." if s == "ok" else s for s in signs)


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """How many types, and how many rows, passed what. Variants of a type do not count as types."""
    rows = list(rows)
    types = [row for row in rows if row.name == row.model_type]
    found = {"rows": len(rows), "types": len(types)}
    for check in dict.fromkeys(check for row in rows for check in row.checks):
        found[f"types that pass {check}"] = sum(row.passes(check) for row in types)
    if any("fuse" in row.checks for row in types):
        # What a type can do at all, whichever masks its constraints forbid.
        middle = [row.checks.get("fuse", {}).get("middle") for row in types]
        found["types that fuse a half step"] = sum(outcome == OK for outcome in middle)
    found["rows with refusals"] = sum(any(row.having(Status.REFUSED)) for row in rows)
    found["rows with wrong results"] = sum(any(row.having(Status.WRONG)) for row in rows)
    return found


def summary(rows: Iterable[Row]) -> str:
    """The counts, then every wrong result and every refusal with its reason."""
    rows = list(rows)
    lines = [f"{what}: {count}" for what, count in counts(rows).items()]
    for status in (Status.WRONG, Status.REFUSED):
        for row in rows:
            for why, cases in _by_reason(row, status).items():
                lines.append(f"{status} {row.name} [{', '.join(cases)}]: {why}")
    return "\n".join(lines)


def _by_reason(row: Row, status: Status) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for check, case, outcome in row.having(status):
        # One line for reasons that differ by the blocks alone.
        why = re.sub(r"-\[[\d,-]*\]|(?<=\.)\d+(?=\.)|(?<=\()\d+(?= such)", "*", outcome.why)
        found.setdefault(why, []).append(f"{check} {case}")
    return found


def markdown(rows: Iterable[Row]) -> str:
    """A table with one row per model, a column per check, and the reasons at the end."""
    rows = list(rows)
    checks = list(dict.fromkeys(check for row in rows for check in row.checks))
    lines = [
        f"| model | kind | blocks | {' | '.join(checks)} | remarks |",
        f"|{'---|' * (len(checks) + 4)}",
    ]
    for row in rows:
        cells = [_cell(row.outcomes(check)) or "–" for check in checks]
        blocks = " & ".join(f"`{path}`" for path in row.blocks)
        lines.append(
            f"| {row.name} | {row.kind} | {blocks} | {' | '.join(cells)} | {_remarks(row)} |"
        )
    return "\n".join(lines) + "\n"


def _remarks(row: Row) -> str:
    said = ["the unpruned cache disagrees"] if row.cache_disagrees else []
    for status in (Status.WRONG, Status.REFUSED, Status.NONE):
        for why, cases in _by_reason(row, status).items():
            if not why:
                continue
            said.append(f"{status} {', '.join(cases)}: {why}")
    return "; ".join(said).replace("|", "\\|")
