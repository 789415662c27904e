"""The hub, with a stand-in for the `datasets` library."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.core.errors import MissingDependencyError, UsageError
from shoal.data import load_choices, load_corpus

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made: Calls = []

    def load_dataset(*args: Any, **kwargs: Any) -> Any:
        made.append((args, kwargs))
        if args[0] == "allenai/c4":
            return ({"text": f"page {i}"} for i in iter(int, 1))
        if args[0] == "Salesforce/wikitext":
            return [{"text": "a\n"}, {"text": "b\n"}]
        return [
            {"sentence": "_ ran.", "option1": "A", "option2": "B", "answer": "1"},
            {"sentence": "ran.", "option1": "A", "option2": "B", "answer": "1"},
        ]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return made


def test_c4_is_streamed_up_to_the_limit(calls: Calls) -> None:
    corpus = load_corpus("c4", limit=3)
    assert len(corpus) == 3
    assert corpus.origin == "hub allenai/c4:en train"
    assert calls == [(("allenai/c4", "en"), {"split": "train", "streaming": True})]


def test_c4_without_a_limit_ends(calls: Calls) -> None:
    assert len(load_corpus("c4")) == 4096


def test_wikitext_joins_all_lines_whatever_the_limit(calls: Calls) -> None:
    assert load_corpus("wikitext2", limit=1, purpose="report").documents == ("a\n\n\nb\n",)
    assert calls[0][1] == {"split": "test", "streaming": False}


def test_a_scripted_data_set_is_read_from_its_parquet_copy(calls: Calls) -> None:
    assert len(load_choices("winogrande", limit=1)) == 1
    (kind,), options = calls[0]
    assert kind == "parquet"
    url = "hf://datasets/allenai/winogrande@refs/convert/parquet/winogrande_xl/train/*.parquet"
    assert options == {"data_files": {"train": url}, "split": "train"}


def test_a_bad_row_is_named_by_its_place(calls: Calls) -> None:
    place = "allenai/winogrande:winogrande_xl train item 2"
    with pytest.raises(UsageError, match=f'{place}: .*no blank "_"'):
        load_choices("winogrande")


def test_the_guard_holds_before_anything_is_read(calls: Calls) -> None:
    with pytest.raises(UsageError, match="refused"):
        load_choices("winogrande", split="validation")
    assert not calls


def test_without_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install datasets"):
        load_corpus("c4", limit=1)


def test_without_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no route.")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(UsageError, match=r"cannot read allenai/c4:en .*: no route. .*data_dir"):
        load_corpus("c4", limit=1)
