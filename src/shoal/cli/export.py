"""`shoal export`: write the checkpoint of a plan."""

from pathlib import Path


def export(
    plan: Path,
    /,
    *,
    out: Path,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    max_shard_gb: float = 5.0,
    overwrite: bool = False,
    any_model: bool = False,
) -> None:
    """Write an ordinary checkpoint without the blocks that a plan removes, verified by reload.

    Parameters
    ----------
    plan
        A plan.json, or a run folder.
    out
        Folder to write.
    model
        The dense model; the plan's own by default.
    device
        Where the check runs.
    dtype
        Dtype of the check, and of weights that come from a GGUF file.
    max_shard_gb
        Largest weight file.
    overwrite
        Replace an existing folder.
    any_model
        Apply the plan to another checkpoint of the same depth.
    """
    import shoal
    from shoal.cli.common import quiet_libraries
    from shoal.cli.screen import out as screen
    from shoal.core.errors import UsageError
    from shoal.core.plan import Plan
    from shoal.surgery.staging import check_target

    if not 0 < max_shard_gb < float("inf"):
        raise UsageError(f"--max-shard-gb must be a positive number, got {max_shard_gb}.")
    read = Plan.load(plan)
    check_target(out, None, overwrite=overwrite)
    quiet_libraries()
    named = read.model.id + (f"@{read.model.revision}" if read.model.revision else "")
    written = shoal.export(
        model or named,
        read,
        out,
        device=device,
        dtype=dtype,
        overwrite=overwrite,
        any_model=any_model,
        max_shard_bytes=int(max_shard_gb * 1e9),
    )
    screen.print(f"removed: {', '.join(map(str, written.removed))}")
    screen.print(f"kept:    {', '.join(map(str, written.kept))}")
    screen.print(
        f"{written.parameters_before / 1e6:.1f} M -> {written.parameters_after / 1e6:.1f} M "
        f"parameters, {written.bytes / 1e6:.0f} MB in {written.shards} file(s)"
    )
    screen.print(f"reloaded: logits agree within {written.max_logit_difference:.2g}")
    screen.print(f"checkpoint: {written.folder}")
