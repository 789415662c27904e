"""`shoal inspect`: the block map of a model, and how it can be pruned."""

from typing import Any


def inspect(model: str, /, *, deep: bool = True, json: bool = False) -> None:
    """Show the blocks of a model, its per-layer config, and whether and how it can be pruned.

    Parameters
    ----------
    model
        Hub id (org/name@revision), folder, GGUF file, or smollm2-135m.
    deep
        Load the weights and check how masks will be run; --no-deep reads the config only.
    json
        Print as JSON.
    """
    from shoal.cli.common import quiet_libraries
    from shoal.cli.screen import err, out, table
    from shoal.pipeline.describe import describe

    quiet_libraries()
    if deep:
        err.print("loading the weights (use --no-deep for the config only)")
    found = describe(model, deep=deep)
    if json:
        out.print_json(data=found.to_json())
        return
    facts: list[tuple[str, Any]] = [
        ("model", found.id),
        ("architecture", found.architecture),
        ("blocks", f"{found.depth} at {found.path}"),
        ("parameters", f"{found.parameters:,}, {found.outside:,} of them outside the blocks"),
        ("dtype", found.dtype),
    ]
    facts += [(f"per-layer {name}", how) for name, how in found.per_layer.items()]
    facts += [(f"{kind} blocks", count) for kind, count in found.attention.items()]
    facts.append(("whole blocks", "; ".join(found.forbidden) or "any can be removed"))
    if found.runner:
        facts.append(("masks are run by", f"{found.runner}: {found.reason}"))
    table("", ["", ""], [[name, str(value)] for name, value in facts])
    table(
        "blocks",
        ["blocks", "type", "attention", "MLP", "parameters each"],
        [[g.span, g.kind, g.attention, g.mlp, f"{g.parameters:,}"] for g in found.groups],
    )
    if found.runner is None:
        parts = [[_span(s.first, s.last), str(s.block)] for s in found.sites]
        table("what can be removed (sub-layers: only with the weights)", ["blocks", "block"], parts)
        return
    table(
        "what can be removed, and how it is written",
        ["blocks", "block", "attention", "MLP", "half step to the next"],
        [
            [
                _span(s.first, s.last),
                str(s.block),
                str(s.attn),
                str(s.mlp),
                str(s.half),
            ]
            for s in found.sites
        ],
    )


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"
