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
    check: str = "auto",
    max_shard_gb: float = 5.0,
    overwrite: bool = False,
    any_model: bool = False,
) -> None:
    """Write an ordinary checkpoint without the blocks that a plan removes, and check it.

    Files that lose whole blocks are copied without loading the model, whatever its size.

    Parameters
    ----------
    plan
        A plan.json, or a run folder.
    out
        Folder to write.
    model
        The dense model; the plan's own by default.
    device
        Where a full check runs.
    dtype
        Dtype of a full check, and of weights that come from a GGUF file.
    check
        full: run the result beside the dense model; structure: names, shapes and sizes of all
        tensors; none; auto: full where the model can be run here, else structure.
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
    from shoal.surgery.checking import as_check
    from shoal.surgery.staging import check_target

    if not 0 < max_shard_gb < float("inf"):
        raise UsageError(f"--max-shard-gb must be a positive number, got {max_shard_gb}.")
    asked = as_check(check)
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
        check=asked,
        max_shard_bytes=int(max_shard_gb * 1e9),
    )
    screen.print(f"removed: {', '.join(map(str, written.removed))}")
    screen.print(f"kept:    {', '.join(map(str, written.kept))}")
    screen.print(
        f"{written.parameters_before / 1e6:.1f} M -> {written.parameters_after / 1e6:.1f} M "
        f"parameters, {written.bytes / 1e6:.0f} MB in {written.shards} file(s)"
    )
    screen.print(f"check:   {written.check}: {written.check_note}")
    if written.max_logit_difference is not None:
        screen.print(f"reloaded: logits agree within {written.max_logit_difference:.2g}")
    screen.print(f"checkpoint: {written.folder}")
