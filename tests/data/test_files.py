import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.core.errors import MissingDependencyError, UsageError
from shoal.data.files import read_rows

Write = Callable[..., Path]


def test_json_lines_skip_blank_lines_and_keep_line_numbers(write: Write) -> None:
    path = write("a.jsonl", '{"text": "x\u2028y"}\n\n{"text": "z"}\n')
    assert list(read_rows(path)) == [
        (f"{path} line 1", {"text": "x\u2028y"}),
        (f"{path} line 3", {"text": "z"}),
    ]


def test_json_list(write: Write) -> None:
    path = write("a.json", '[{"text": "x"}, {"text": "y"}]')
    assert [where for where, _ in read_rows(path)] == [f"{path} item 1", f"{path} item 2"]


def test_a_text_file_is_one_document(write: Write) -> None:
    path = write("a.txt", "\ufeffone\n\ntwo\n")
    assert list(read_rows(path)) == [(str(path), {"text": "one\n\ntwo\n"})]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"choices": [["a", "b"], ["c", "d"]]}), path)
    assert list(read_rows(path)) == [
        (f"{path} item 1", {"choices": ["a", "b"]}),
        (f"{path} item 2", {"choices": ["c", "d"]}),
    ]
    path.write_bytes(b"no parquet")
    with pytest.raises(UsageError, match="no readable Parquet file"):
        list(read_rows(path))


def test_parquet_without_pyarrow(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        list(read_rows(write("a.parquet", "")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.json", "[]", "is empty"),
        ("a.txt", " \n", "is empty"),
        ("a.jsonl", '{"text": 1}\n{"text"', "line 2 is not valid JSON"),
        ("a.jsonl", "[1]\n", r"line 1 must be a JSON object, got '\[1\]'"),
        ("a.json", '{"text": "x"}', "must hold a JSON list of objects, got dict"),
        ("a.csv", "x", r'has the ending ".csv"; the kinds .* are .jsonl, .json, .parquet, .txt'),
    ],
)
def test_bad_files(write: Write, name: str, content: str, message: str) -> None:
    path = write(name, content)
    with pytest.raises(UsageError, match=message) as caught:
        list(read_rows(path))
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "ok"}\n{"text": "\xff"}\n')
    with pytest.raises(UsageError, match="line 2 is not UTF-8"):
        list(read_rows(path))
