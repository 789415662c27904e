"""A tiny model with data, and the command line in this process."""

import json

import pytest

from shoal.cli.app import main
from shoal.testing.tiny import save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A few items and some text in the schemas of the hub."""
    folder = tmp_path_factory.mktemp("data")
    for split in ("train", "test"):
        path = folder / "arc_easy" / f"{split}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [
            {
                "id": f"{split}-{i}",
                "question": f"what is item {i} of {split}?",
                "choices": {"text": ["a cat", "the dog", "no one"], "label": ["A", "B", "C"]},
                "answerKey": "ABC"[i % 3],
            }
            for i in range(12)
        ]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        text = folder / "wikitext2" / f"{'valid' if split == 'train' else split}.txt"
        text.parent.mkdir(exist_ok=True)
        text.write_text(f"a line of the {split} part, which goes on for a while .\n" * 60)
    return folder


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Run a command line in an empty folder: arguments -> exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = 0
        try:
            main([str(a) for a in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run
