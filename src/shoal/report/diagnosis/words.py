"""How a diagnosis speaks: numbers, limits, names of uses and of what was compared."""

from shoal.diagnosis.records import Diagnosis, FreeRun, Reason, Verdict
from shoal.report.words import interval, number, parameters

USES = {
    "choice": "Multiple choice and classification",
    "retrieval": "Retrieval",
    "short": "Short generation",
    "long": "Long generation",
}

NOT_SETTLED = "not settled"


def parted(run: FreeRun, digits: int = 3) -> str:
    """The step at which runs part; they may never do so."""
    if run.flip_rate.value == 0:
        return "never"
    found = run.first_divergence
    return interval(found.value, found.low, found.high, digits)


def limits(reason: Reason) -> str:
    """Where a number is safe, and where broken; a limit itself belongs to the better level."""
    if reason.safe > reason.broken:
        return f"safe from {number(reason.safe)}, broken below {number(reason.broken)}"
    return f"safe up to {number(reason.safe)}, broken above {number(reason.broken)}"


def doubt(reason: Reason) -> str:
    """Why a number does not settle its level; empty if it does."""
    if reason.settled:
        return ""
    return "no interval" if reason.low is None else "the interval crosses a limit"


def use_name(verdict: Verdict) -> str:
    """Name of a use."""
    return USES.get(verdict.use, verdict.use)


def other_name(diagnosis: Diagnosis) -> str:
    """What the other model is called beside the dense one."""
    return "pruned" if diagnosis.other.kind == "plan" else "other"


def heading(diagnosis: Diagnosis) -> str:
    """What was compared with what."""
    if diagnosis.other.mask is not None:
        return f"{diagnosis.dense.id}, pruned"
    return f"{diagnosis.other.name} against {diagnosis.dense.id}"


def origin(diagnosis: Diagnosis) -> str:
    """Where the other model comes from."""
    other = diagnosis.other
    if other.mask is None:
        return f"{other.kind} {other.name}"
    chosen = f", chosen by {other.objective}" if other.objective else ""
    return f"removed: {other.mask}{chosen} ({other.kind} {other.name})"


def sizes(diagnosis: Diagnosis) -> str:
    """Depth and parameters of both models."""
    before, after = diagnosis.dense_parameters, diagnosis.other.parameters
    gap = (after - before) / before if before else 0.0
    told = f" ({abs(gap):.1%} {'more' if gap > 0 else 'fewer'})" if gap else ""
    return (
        f"dense: {diagnosis.dense_depth} blocks, {parameters(before)} parameters; "
        f"{other_name(diagnosis)}: {diagnosis.other.depth} blocks, {parameters(after)} parameters"
        f"{told}"
    )
