"""What to try where a use is not safe."""

from collections.abc import Sequence

from shoal.diagnosis.records import Diagnosis, Verdict

CHOICE_OBJECTIVES = ("margin", "likelihood", "accuracy")
GENERATION_OBJECTIVES = ("trajectory", "kl", "exact_match")


def advice(verdict: Verdict, verdicts: Sequence[Verdict], diagnosis: Diagnosis) -> tuple[str, ...]:
    """Advice for a use that is risky or broken, the most promising first.

    Args:
        verdict: The use's verdict.
        verdicts: Those of all uses.
        diagnosis: What was compared.
    """
    lines: list[str] = []
    own = (diagnosis.other.objective or "").partition(":")[0]
    pruned = diagnosis.other.kind == "plan"
    if pruned:
        lines += _objective(verdict.use, own)
        lines.append("remove fewer blocks: a smaller --remove of the same search")
    else:
        lines.append("compress less, or with data of this use")
    if verdict.level == "broken":
        lines.append("heal it: fine-tune the compressed model on text that the dense model writes")
    if not verdict.settled:
        more = {"choice": "--items", "retrieval": "--num-texts"}.get(verdict.use, "--num-prompts")
        lines.append(f"the intervals cross a limit: ask again with more {more}")
    safe = [v.use for v in verdicts if v.level == "safe"]
    if safe and verdict.use in ("short", "long"):
        lines.append(f"use it for what is safe: {', '.join(safe)}")
    return tuple(lines)


def _objective(use: str, own: str) -> list[str]:
    """Another objective, unless the blocks were chosen by such a one."""
    if use in ("short", "long") and own not in GENERATION_OBJECTIVES:
        return ["search for what you use it for: --objective trajectory, on prompts like yours"]
    if use == "choice" and own not in CHOICE_OBJECTIVES:
        return ["search for what you use it for: --objective margin, on a task like yours"]
    if use == "retrieval" and own not in ("kl", "nll"):
        return ["search under --objective kl, on texts like yours"]
    return []
