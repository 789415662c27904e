"""Text tasks: WikiText-2, C4, LAMBADA."""

from shoal.data.tasks.task import Hub, Task

WIKITEXT2 = Task(
    name="wikitext2",
    kind="text",
    description="Wikipedia articles, the usual small perplexity benchmark",
    licence="CC BY-SA 3.0",
    hub=Hub("Salesforce/wikitext", "wikitext-2-raw-v1"),
    splits=("train", "validation", "test"),
    calibration_splits=("train", "validation"),
    report_split="test",
    test_splits=frozenset({"test"}),
    # The rows on the hub are lines. Published perplexities of compressed models join them so.
    join="\n\n",
)

C4 = Task(
    name="c4",
    kind="text",
    description="web pages, the usual calibration text",
    licence="ODC-BY",
    # The set is 300 GB: rows are streamed, and without a limit only the first ones, about two
    # million tokens.
    hub=Hub("allenai/c4", "en", max_documents=4096),
    splits=("train", "validation"),
    calibration_splits=("train",),
    report_split="validation",
    test_splits=frozenset({"validation"}),
)

LAMBADA = Task(
    name="lambada",
    kind="text",
    description="passages of novels whose last word needs the whole passage",
    licence="CC BY 4.0",
    hub=Hub("cimec/lambada", "plain_text"),
    splits=("train", "validation", "test"),
    # The training part holds whole novels; the validation part has the form of the test part.
    calibration_splits=("validation", "train"),
    report_split="test",
    test_splits=frozenset({"test"}),
)
