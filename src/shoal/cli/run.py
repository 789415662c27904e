"""`shoal run`: prune as a YAML file says."""

from pathlib import Path
from typing import Any

from shoal.cli.common import merged
from shoal.cli.options import with_config
from shoal.cli.prune import execute
from shoal.config.run import RunConfig


@with_config(RunConfig, leave_out=())
def run(config: Path, /, *, json: bool = False, options: dict[str, Any]) -> None:
    """Prune as a YAML file says; flags override it.

    Parameters
    ----------
    config
        YAML file with the options of `shoal prune` as keys.
    json
        Print the report as JSON.
    """
    execute(merged(None, options, config), json)
