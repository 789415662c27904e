"""`shoal validate`: check a config file without running it."""

from pathlib import Path

from shoal.config.run import RunConfig, read_yaml


def validate(config: Path, /, *, shallow: bool = False) -> None:
    """Check a config file: its keys, and whether model and data are there.

    Parameters
    ----------
    config
        YAML file.
    shallow
        Check the keys and values only.
    """
    import yaml

    from shoal.cli.screen import out
    from shoal.pipeline.folder import resolved

    read = RunConfig.read(read_yaml(config))
    read.require_model()
    if not shallow:
        from shoal.cli.common import quiet_libraries
        from shoal.pipeline.prepare import prepare
        from shoal.pipeline.space import described

        quiet_libraries()
        request = prepare(read)
        out.print(
            f"removes {described(request.budget, request.space)}, about "
            f"{request.forecast.evaluations} evaluations"
        )
    shown = resolved(read, read.require_model())
    out.print(yaml.safe_dump(shown, sort_keys=False).rstrip(), markup=False)
