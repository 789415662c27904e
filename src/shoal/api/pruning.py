"""Choosing what to remove: prune, search, score."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from shoal.api.objects import keeps_mode, with_tokenizer
from shoal.config.run import RunConfig
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import Model, prepare
from shoal.pipeline.prune import PruneResult, run_prune
from shoal.pipeline.score import ScoreResult, run_score
from shoal.pipeline.search import SearchResult, run_search


@keeps_mode
def prune(
    model: Model,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> PruneResult:
    """Search for blocks to remove, write the checkpoint, and measure what was lost.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        tokenizer: The tokenizer of a model object.
        listener: Hears of the progress.
        **options: The options of `RunConfig`, e.g. `objective="margin"`, `remove=7`, `out="dir"`.

    Returns:
        The plan, the checkpoint and the measurements.

    Raises:
        UsageError: If the request is wrong; before any long work.
    """
    model = with_tokenizer(model, tokenizer)
    request = prepare(_config(model, options), None if isinstance(model, str) else model)
    return run_prune(request, listener or Listener())


@keeps_mode
def search(
    model: Model,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> SearchResult:
    """Search for blocks to remove; arguments as for `prune`.

    Returns:
        The plan, which also lies in the run folder, and what the search took.
    """
    model = with_tokenizer(model, tokenizer)
    named = None if isinstance(model, str) else model
    request = prepare(_config(model, options), named, report=False)
    return run_search(request, listener or Listener())


@keeps_mode
def score(
    model: Model,
    scores: str | Sequence[str],
    *,
    windows: Sequence[int] = (),
    out: str | Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> ScoreResult:
    """Score every block without removing any; the lowest are needed least.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        scores: Names of state scores, e.g. `"block_influence,angular"`.
        windows: Lengths of the angular windows that are wanted.
        out: Folder for scores.json and the figures; `scores/<model>` by default.
        tokenizer: The tokenizer of a model object.
        listener: Hears of the progress.
        **options: The options of `RunConfig` that say on which data.

    Returns:
        The scores, and where they were written.

    Raises:
        UsageError: If the request is wrong.
    """
    names = scores.replace(",", " ").split() if isinstance(scores, str) else scores
    model = with_tokenizer(model, tokenizer)
    return run_score(
        _config(model, options),
        names,
        model=None if isinstance(model, str) else model,
        windows=windows,
        out=None if out is None else Path(out),
        listener=listener,
    )


def _config(model: Model, options: dict[str, Any]) -> RunConfig:
    return RunConfig.read({**options, **({"model": model} if isinstance(model, str) else {})})
