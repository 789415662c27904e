"""The `shoal` command: registers the subcommands and turns errors into exit codes.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 3 a verdict was as bad as --fail-on.
"""

import logging
import os
import sys
from collections.abc import Sequence

from cyclopts import App

from shoal.core.errors import ShoalError, UsageError
from shoal.core.version import __version__

COMMANDS = {
    "demo": "Prune a real model for two purposes and compare; no network.",
    "prune": "Search, write the checkpoint, and measure what was lost.",
    "run": "Prune as a YAML file says.",
    "search": "Search for blocks to remove; writes a run folder with the plan.",
    "export": "Write the checkpoint of a plan, verified by reload.",
    "evaluate": "Measure a model, and a pruned one beside it.",
    "diagnose": "Say what a pruned model is still good for, and why.",
    "geometry": "Compare hidden states on two tasks, and what removing blocks does to them.",
    "lab": "Train small transformers from scratch and see what removing blocks does.",
    "score": "Score every block without removing any; writes figures.",
    "inspect": "Show the blocks of a model and how it can be pruned.",
    "ls": "List objectives, searches or tasks.",
    "validate": "Check a config file.",
}
"""Subcommand -> its summary; the code lies in the module of that name, imported when called."""

app = App(
    name="shoal",
    version=__version__,
    help="Make a language model shallower for a purpose.",
    suppress_keyboard_interrupt=False,
)
for _name, _summary in COMMANDS.items():
    app.command(f"shoal.cli.{_name}:{_name}", name=_name, help=_summary)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    # Progress bars and advisory notices of the libraries would drown our own.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        app(arguments)
    except ShoalError as error:
        sys.stderr.write(f"shoal: {error}\n")
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except Exception as error:
        if os.environ.get("SHOAL_DEBUG"):
            raise
        sys.stderr.write(
            f"shoal: unexpected {type(error).__name__}: {error}\n"
            "This is a bug. SHOAL_DEBUG=1 shows where it is; please report it.\n"
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("shoal: interrupted; run the same command again to go on.\n")
        sys.exit(130)
