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
    format: str = "auto",
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
        A plan.json, a run folder, or a file of mergekit, EvoPress or nemotron-nas.
    out
        Folder to write; a file for mergekit and evopress.
    model
        The dense model; the plan's own by default.
    device
        Where a full check runs.
    dtype
        Dtype of a full check, and of weights that come from a GGUF file.
    format
        auto: fuse what pairs up, zero the rest; stock: whole blocks only; fuse: refuse what does
        not pair up; stock-zeroed; or another tool's form: nemotron-nas, mergekit, evopress.
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
    from shoal.pipeline.plans import is_foreign_plan
    from shoal.surgery.checking import as_check
    from shoal.surgery.foreign import is_foreign
    from shoal.surgery.fusing import check_format
    from shoal.surgery.staging import check_target

    if not 0 < max_shard_gb < float("inf"):
        raise UsageError(f"--max-shard-gb must be a positive number, got {max_shard_gb}.")
    asked = as_check(check)
    foreign_plan = is_foreign_plan(plan)
    if foreign_plan and model is None:
        raise UsageError(f"{plan} is another tool's file; name the model that it is for: --model.")
    read = plan if foreign_plan else Plan.load(plan)
    quiet_libraries()
    named = model or ""
    if isinstance(read, Plan) and model is None:
        named = read.model.id + (f"@{read.model.revision}" if read.model.revision else "")
    if is_foreign(format):
        made = shoal.export_for(
            format,
            named,
            read,
            out,
            overwrite=overwrite,
            any_model=any_model,
            max_shard_bytes=int(max_shard_gb * 1e9),
        )
        screen.print(f"{made.format}: {made.note}")
        screen.print(f"written: {made.path}")
        return
    check_format(format)
    check_target(out, None, overwrite=overwrite)
    written = shoal.export(
        named,
        read,
        out,
        format=format,
        device=device,
        dtype=dtype,
        overwrite=overwrite,
        any_model=any_model,
        check=asked,
        max_shard_bytes=int(max_shard_gb * 1e9),
    )
    screen.print(f"removed: {', '.join(written.removed)}")
    screen.print(f"kept:    {', '.join(written.blocks)}")
    screen.print(f"format:  {written.format}")
    if written.zeroed:
        screen.print(
            f"zeroed:  {', '.join(written.zeroed)}; without effect, but in the files and run"
        )
    screen.print(
        f"{written.parameters_before / 1e6:.1f} M -> {written.parameters_after / 1e6:.1f} M "
        f"parameters, {written.bytes / 1e6:.0f} MB in {written.shards} file(s)"
    )
    screen.print(f"check:   {written.check}: {written.check_note}")
    if written.max_logit_difference is not None:
        screen.print(f"reloaded: logits agree within {written.max_logit_difference:.2g}")
    screen.print(f"checkpoint: {written.folder}")
