"""Rows of a task from the Hugging Face hub, through the `datasets` library."""

from typing import Any

from shoal.core.errors import UsageError
from shoal.data.files import LocatedRows
from shoal.data.lazy import require
from shoal.data.tasks import Task


def read_hub(task: Task, split: str, limit: int | None) -> LocatedRows:
    """Read a split row by row.

    Large data sets are streamed; the others are downloaded once into the cache of `datasets`.

    Args:
        task: The benchmark.
        split: One of its splits.
        limit: The number of rows that will be used, or None for all.

    Yields:
        The place of a row, and the row.

    Raises:
        MissingDependencyError: If `datasets` is not installed.
        UsageError: If the data set cannot be read.
    """
    datasets = require("datasets", f"reading {task.name} from the Hugging Face hub")
    try:
        rows = _open(datasets, task, split)
    # What datasets raises for a missing data set, an unknown split, no connection, a script.
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"cannot read {task.hub} from the Hugging Face hub: {error} "
            "Check the connection, or give a local copy with data_dir."
        ) from error
    most = limit if limit is not None else task.hub.max_documents
    for number, row in enumerate(rows, start=1):
        if most is not None and number > most:
            return
        yield f"{task.hub} {split} item {number}", row


def _open(datasets: Any, task: Task, split: str) -> Any:
    hub = task.hub
    if hub.converted:
        copy = f"hf://datasets/{hub.id}@refs/convert/parquet/{hub.config}/{split}/*.parquet"
        return datasets.load_dataset("parquet", data_files={split: copy}, split=split)
    streaming = hub.max_documents is not None
    return datasets.load_dataset(hub.id, hub.config, split=split, streaming=streaming)
