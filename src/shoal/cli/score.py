"""`shoal score`: what blocks or sub-layers do to the state, and how much their weights matter."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shoal.cli.options import with_config
from shoal.config.run import RunConfig
from shoal.core.errors import UsageError

if TYPE_CHECKING:
    from shoal.pipeline.score import ScoreResult

Granularities = Literal["block", "half", "attn", "mlp", "attn+mlp"]

FIELDS = {"objective", "task", "split", "limit", "data_dir", "length", "bos"}
FIELDS |= {"allow_calibration_on_test", "device", "dtype", "batch_tokens"}


@with_config(RunConfig, leave_out=set(RunConfig.model_fields) - FIELDS)
def score(
    model: str,
    /,
    *,
    scores: str = "block_influence,angular,relative_magnitude,norm_ratio",
    granularity: Granularities = "block",
    windows: str | None = None,
    out: Path | None = None,
    json: bool = False,
    options: dict[str, Any],
) -> None:
    """Score every block without removing any; the lowest are needed least.

    Writes scores.json, scores.png and scores.svg.

    Parameters
    ----------
    model
        Hub id (org/name@revision), folder, GGUF file, or smollm2-135m.
    scores
        block_influence, angular, relative_magnitude, norm_ratio (one pass over the data), taylor
        (one pass with gradients), magnitude (no pass); separated by commas.
    granularity
        What is scored: blocks, blocks and half steps (the MLP of a block with the attention of the
        next), attentions, MLPs, or both of these.
    windows
        Lengths for which to print the window of blocks with the least angular distance, e.g. 5,7.
    out
        Folder to write to (default scores/<model>).
    json
        Print the scores as JSON.
    """
    from shoal.cli.common import merged, quiet_libraries
    from shoal.cli.screen import Screen
    from shoal.cli.screen import out as console
    from shoal.pipeline.score import run_score

    quiet_libraries()
    result = run_score(
        merged(model, options),
        scores.replace(",", " ").split(),
        granularity=granularity,
        windows=_lengths(windows),
        out=out,
        listener=Screen(),
    )
    if json:
        console.print_json(result.report.model_dump_json())
    else:
        print_scores(result)


def _lengths(text: str | None) -> list[int]:
    parts = (text or "").replace(",", " ").split()
    for part in parts:
        if not part.isdecimal():
            raise UsageError(f'--windows "{part}" is no number of blocks. Write --windows 5,7.')
    return [int(part) for part in parts]


def print_scores(result: "ScoreResult") -> None:
    """Print value and rank of every unit; an asterisk marks the lowest fifth."""
    from shoal.cli.screen import out, table

    report = result.report
    ranks = {name: report.ranks(name) for name in report.scores}
    rows = []
    for i, unit in enumerate(report.names):
        cells = [unit]
        for name, values in report.scores.items():
            rank = ranks[name][i]
            cells += [f"{values[i]:.4g}", f"{rank}{'*' if rank <= report.marked else ' '}"]
        rows.append(cells)
    header = ["unit" if report.units else "block"]
    for name in report.scores:
        header += [name, "rank"]
    title = f"{report.objective}, {report.examples} examples; * marks the {report.marked} lowest"
    table(title, header, rows, numbers=True)
    for length in result.lengths:
        window = report.best_window(length)
        value = report.angular_windows[length][window.start]
        out.print(
            f"angular, {length} blocks: {window[0]} to {window[-1]}, distance {value:.4f}",
            markup=False,
        )
    out.print(f"written to {result.folder}", markup=False, soft_wrap=True)
