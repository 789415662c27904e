"""User files, the split guard, local folders, the kinds of data."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import UsageError
from shoal.data import (
    ChoiceSet,
    Corpus,
    PromptItem,
    PromptSet,
    load_any,
    load_choices,
    load_corpus,
    load_prompts,
)

Write = Callable[..., Path]

PIQA = {"goal": "g", "sol1": "a", "sol2": "b", "label": 0}
ARC = {
    "id": "x",
    "question": "q",
    "choices": {"text": ["a", "b"], "label": ["A", "B"]},
    "answerKey": "B",
}
OWN = {"prompt": "2+2=", "choices": ["4", "5"], "gold": 0}


def commonsense(answer: str) -> dict[str, str]:
    return {
        "instruction": "q\n\nAnswer format: true/false",
        "input": "",
        "output": f"the correct answer is {answer}",
        "answer": answer,
    }


def test_own_choices(write: Write) -> None:
    path = write("mine.jsonl", [OWN, {**OWN, "id": "second", "gold": 1}])
    mine = load_choices(path)
    assert (mine.name, mine.split, mine.origin) == ("mine.jsonl", "file", "file mine.jsonl")
    assert [i.id for i in mine.items] == ["0", "second"]
    assert [i.gold for i in mine.items] == [0, 1]
    assert mine.items[0].choices[0].continuation == " 4"


@pytest.mark.parametrize(
    ("row", "continuation"),
    [
        ({"prompt": "A: "}, "4"),
        ({"prompt": ""}, "4"),
        ({"choices": ["\n4", "5"]}, "\n4"),
        ({"delimiter": ""}, "4"),
        ({"delimiter": "\n"}, "\n4"),
    ],
)
def test_own_choices_and_the_space_between(
    write: Write, row: dict[str, Any], continuation: str
) -> None:
    mine = load_choices(write("mine.jsonl", [{**OWN, **row}]))
    assert mine.items[0].choices[0].continuation == continuation


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"choices": ["4"]}, "it needs at least two"),
        ({"gold": 2}, r"is 2, but it has 2 choices: 0 to 1"),
        ({"gold": True}, '"gold" must hold a whole number'),
        ({"choices": "4"}, '"choices" must hold a list of strings'),
        ({"choices": ["4", " "]}, "choice 1 .* is empty"),
        ({"prompt": None}, '"prompt" must hold a string'),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(
    write: Write, row: dict[str, Any], message: str
) -> None:
    path = write("mine.jsonl", [OWN, {**OWN, **row}])
    with pytest.raises(UsageError, match=f"mine.jsonl line 2: .*{message}"):
        load_choices(path)


def test_a_wrong_key_is_named_with_those_there(write: Write) -> None:
    path = write("mine.jsonl", [{"promt": "2+2=", "choices": ["4", "5"], "gold": 0}])
    with pytest.raises(UsageError) as caught:
        load_choices(path)
    assert 'key "prompt" is missing. Did you mean "promt"? Keys there: promt, choices, gold' in str(
        caught.value
    )


def test_own_text(write: Write) -> None:
    path = write("mine.jsonl", [{"text": "a"}, {"text": " "}, {"text": "b"}])
    assert load_corpus(path).documents == ("a", "b")
    assert load_corpus(path, limit=1).documents == ("a",)
    assert load_corpus(str(write("mine.txt", "a\n\nb\n"))).documents == ("a\n\nb\n",)


@pytest.mark.parametrize(
    ("answer", "answers"),
    [
        ({"answer": "four"}, ("four",)),
        ({"answer": 4}, ("4",)),
        ({"answer": 0.5}, ("0.5",)),
        ({"answer": 1e22}, ("10000000000000000000000",)),
        ({"answer": ["4", 4.0]}, ("4", "4.0")),
        ({"answers": ["4", "four"]}, ("4", "four")),
        ({}, ()),
    ],
)
def test_own_prompts(write: Write, answer: dict[str, Any], answers: tuple[str, ...]) -> None:
    rows = [{"prompt": "2+2=", **answer}, {"prompt": "p", "id": "second", **answer}]
    mine = load_prompts(write("mine.jsonl", rows))
    assert (mine.name, mine.split, mine.origin) == ("mine.jsonl", "file", "file mine.jsonl")
    assert mine.items == (PromptItem("0", "2+2=", answers), PromptItem("second", "p", answers))
    assert load_prompts(write("mine.json", json.dumps(rows)), limit=1).items == mine.items[:1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": ""}, '"answer" must hold a string that is not blank, or a number'),
        ({"answer": None}, '"answer" must hold a string'),
        ({"answer": True}, '"answer" must hold a string'),
        ({"answer": float("nan")}, '"answer" must hold a string'),
        ({"answers": []}, '"answers" must hold at least one'),
        ({"answers": [["4"]]}, '"answers" must hold a string'),
        ({"answer": "4", "answers": ["4"]}, 'both "answer" and "answers"'),
        ({"choices": ["4", "5"]}, "it is multiple choice, not a prompt"),
        ({"prompt": " ", "answer": "4"}, 'the prompt of item "1" is empty'),
        ({"prompt": 4, "answer": "4"}, '"prompt" must hold a string'),
    ],
)
def test_a_bad_prompt_is_named_by_file_and_line(
    write: Write, row: dict[str, Any], message: str
) -> None:
    good = {"prompt": "2+2=", "answer": "4"}
    path = write("mine.jsonl", [good, {"prompt": "p", **row}])
    with pytest.raises(UsageError, match=f"mine.jsonl line 2: .*{message}"):
        load_prompts(path)


def test_prompts_from_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "mine.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["p"], "answers": [["4", "four"]]}), path)
    assert load_prompts(path).items == (PromptItem("0", "p", ("4", "four")),)


def test_gsm8k_keeps_to_the_split_guard(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"question": f"{i}?", "answer": f"so #### {i}"} for i in range(3)]
    write("gsm8k/test.jsonl", rows)
    with pytest.raises(UsageError, match=r"holds no train split of gsm8k.*--allow-calib"):
        load_prompts("gsm8k", data_dir=tmp_path)
    with pytest.raises(UsageError, match=r"calibrating on the split .* is refused"):
        load_prompts("gsm8k", split="test", data_dir=tmp_path)
    report = load_prompts("gsm8k", data_dir=tmp_path, purpose="report", limit=2)
    assert [i.answers for i in report.items] == [("0",), ("1",)]
    assert not caplog.text
    assert load_prompts("gsm8k", data_dir=tmp_path, allow_test=True, limit=2) == report
    assert "calibrating on the test split" in caplog.text
    write("gsm8k/train.jsonl", rows)
    assert load_any("gsm8k", data_dir=tmp_path).split == "train"


def test_text_that_is_blank(write: Write) -> None:
    with pytest.raises(UsageError, match="holds no text"):
        load_corpus(write("mine.jsonl", [{"text": ""}]))


def test_load_any_looks_into_the_file(write: Write) -> None:
    assert isinstance(load_any(write("a.jsonl", [OWN])), ChoiceSet)
    assert isinstance(load_any(write("b.jsonl", [{"text": "x"}])), Corpus)
    assert isinstance(load_any(write("c.txt", "x")), Corpus)
    assert isinstance(load_any(write("e.jsonl", [{"prompt": "p", "answer": 4}])), PromptSet)
    assert isinstance(load_any(write("f.jsonl", [{"prompt": "p"}])), PromptSet)
    with pytest.raises(UsageError, match="Keys there: prompt, choises, gold"):
        load_any(write("g.jsonl", [{"prompt": "p", "choises": ["a", "b"], "gold": 0}]))
    assert isinstance(load_any("arc_easy", data_dir="embedded", limit=1), ChoiceSet)
    with pytest.raises(
        UsageError, match=r"neither text nor multiple choice nor prompts\. Keys there: a"
    ):
        load_any(write("d.jsonl", [{"a": 1}]))


def test_limit_takes_the_first_and_reads_no_further(write: Write) -> None:
    path = write("mine.jsonl", '{"prompt": "p", "choices": ["a", "b"], "gold": 0}\nbroken\n')
    assert len(load_choices(path, limit=1)) == 1
    with pytest.raises(UsageError, match="the limit is 0"):
        load_choices(path, limit=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arc_esy", 'neither a task nor a file. Did you mean "arc_easy"'),
        ("nowhere.jsonl", "nowhere.jsonl does not exist"),
        ("folder/nowhere", "folder/nowhere does not exist"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_choices(name)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        load_choices(tmp_path)


def test_a_file_has_no_splits(write: Write) -> None:
    with pytest.raises(UsageError, match="a file of your own has no splits"):
        load_choices(write("mine.jsonl", [OWN]), split="train")


def test_text_is_no_multiple_choice() -> None:
    with pytest.raises(UsageError, match="wikitext2 is text, but multiple choice is needed"):
        load_choices("wikitext2", data_dir="embedded")
    with pytest.raises(UsageError, match=r"arc_easy is multiple choice.*c4, lambada, wikitext2"):
        load_corpus("arc_easy", data_dir="embedded")
    with pytest.raises(UsageError, match="arc_easy is multiple choice, but prompts are needed"):
        load_prompts("arc_easy", data_dir="embedded")
    with pytest.raises(UsageError, match="gsm8k is prompts, but multiple choice is needed"):
        load_choices("gsm8k")


def test_a_text_file_is_no_multiple_choice(write: Write) -> None:
    for load in (load_choices, load_prompts):
        with pytest.raises(UsageError, match=r"is text, but .* needed"):
            load(write("a.txt", "x"))


def test_calibration_on_a_test_split_is_refused(write: Write, tmp_path: Path) -> None:
    write("arc_easy/test.jsonl", [ARC])
    with pytest.raises(UsageError) as caught:
        load_choices("arc_easy", split="test", data_dir=tmp_path)
    message = str(caught.value)
    assert "--allow-calibration-on-test" in message
    assert 'Use the split "train"' in message


@pytest.mark.parametrize("name", ["piqa", "winogrande", "hellaswag", "social_iqa", "boolq"])
def test_validation_counts_as_test_where_test_labels_are_hidden(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="refused"):
        load_choices(name, split="dev", data_dir=tmp_path)


def test_the_flag_allows_it_and_says_so(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write("piqa/validation.jsonl", [PIQA])
    with caplog.at_level(logging.WARNING):
        forced = load_choices("piqa", split="validation", data_dir=tmp_path, allow_test=True)
    assert forced.split == "validation"
    assert "calibrating on the test split" in caplog.text
    assert load_choices("piqa", data_dir=tmp_path, allow_test=True) == forced
    caplog.clear()
    assert load_choices("piqa", data_dir=tmp_path, purpose="report") == forced
    assert not caplog.text


def test_calibration_prefers_train_and_then_validation(write: Write, tmp_path: Path) -> None:
    write("wikitext2/valid.txt", "validation text")
    write("wikitext2/test.txt", "test text")
    first = load_corpus("wikitext2", data_dir=tmp_path)
    assert (first.split, first.origin) == ("validation", "file wikitext2/valid.txt")
    write("wikitext2/train.txt", "training text")
    assert load_corpus("wikitext2", data_dir=tmp_path).split == "train"
    assert load_corpus("wikitext2", data_dir=tmp_path, split="valid") == first
    assert load_corpus("wikitext2", data_dir=tmp_path, purpose="report").split == "test"


def test_a_missing_split_lists_what_is_there(write: Write, tmp_path: Path) -> None:
    write("piqa/validation.jsonl", [PIQA])
    with pytest.raises(UsageError) as caught:
        load_choices("piqa", data_dir=tmp_path)
    message = str(caught.value)
    assert "holds no train split of piqa; it holds: validation.jsonl" in message
    assert "--allow-calibration-on-test" in message


def test_a_missing_folder_lists_what_is_there(write: Write, tmp_path: Path) -> None:
    write("piqa/validation.jsonl", [PIQA])
    with pytest.raises(UsageError, match=r"no folder hellaswag .* it holds: piqa"):
        load_choices("hellaswag", data_dir=tmp_path)
    with pytest.raises(UsageError, match=r"the data folder .*nowhere does not exist"):
        load_choices("piqa", data_dir=tmp_path / "nowhere")


def test_a_split_that_the_task_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'c4 has no split "test"\. Its splits: train, validation'):
        load_corpus("c4", split="test", data_dir=tmp_path)


def test_a_purpose_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match='unknown purpose "fun"'):
        load_choices("arc_easy", data_dir="embedded", purpose="fun")  # type: ignore[arg-type]


def test_an_error_in_a_task_file_names_the_line(write: Write, tmp_path: Path) -> None:
    write("arc_easy/train.jsonl", [ARC, {**ARC, "answerKey": "Z"}])
    with pytest.raises(UsageError, match=r'train.jsonl line 2: the answer is "Z"'):
        load_choices("arc_easy", data_dir=tmp_path)


def test_c4_rows_are_documents(write: Write, tmp_path: Path) -> None:
    rows = [{"text": f"page {i}", "timestamp": "t", "url": "u"} for i in range(3)]
    write("c4/train.jsonl", rows)
    assert load_corpus("c4", data_dir=tmp_path, limit=2).documents == ("page 0", "page 1")


def test_wikitext_rows_are_lines_of_one_document(write: Write, tmp_path: Path) -> None:
    write("wikitext2/test.jsonl", [{"text": ""}, {"text": " = A = \n"}, {"text": "b"}])
    corpus = load_corpus("wikitext2", data_dir=tmp_path, purpose="report", limit=1)
    assert corpus.documents == ("\n\n = A = \n\n\nb",)


def test_commonsense_is_spread_over_files(write: Write, tmp_path: Path) -> None:
    write("commonsense/b-train.jsonl", [commonsense("false")])
    write("commonsense/a-train.jsonl", [commonsense("true")])
    write("commonsense/a-test.jsonl", [commonsense("true")])
    train = load_choices("commonsense_170k", data_dir=tmp_path)
    assert train.origin == "file commonsense/a-train.jsonl, commonsense/b-train.jsonl"
    assert [i.gold for i in train.items] == [0, 1]
    assert [i.id for i in train.items] == ["0", "1"]
    assert len(load_choices("commonsense_170k", data_dir=tmp_path, purpose="report")) == 1


def test_commonsense_in_one_file(write: Write, tmp_path: Path) -> None:
    write("commonsense_170k/commonsense_170k.jsonl", [commonsense("false")])
    assert len(load_choices("commonsense_170k", data_dir=tmp_path)) == 1
    with pytest.raises(UsageError, match="no test split"):
        load_choices("commonsense_170k", data_dir=tmp_path, purpose="report")


def test_the_package_needs_no_torch() -> None:
    code = "import sys, shoal.data; print({'torch', 'transformers', 'datasets'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_real_folder(shared_data: Path) -> None:
    sizes = {"arc_easy": 2376, "openbookqa": 500, "piqa": 1838, "winogrande": 1267}
    for name, size in sizes.items():
        assert len(load_choices(name, data_dir=shared_data, purpose="report")) == size
    assert len(load_choices("commonsense_170k", data_dir=shared_data)) == 17754
    gsm8k = load_prompts("gsm8k", data_dir=shared_data, purpose="report")
    assert len(gsm8k) == 1319
    assert gsm8k.items[0].answers == ("576.0",)
    assert len(load_corpus("lambada", data_dir=shared_data, purpose="report")) == 5153
    assert load_corpus("wikitext2", data_dir=shared_data).origin == "file wikitext2/valid.txt"


def test_a_limit_takes_as_many_items_from_every_file(tmp_path: Path) -> None:
    for name, count in (("a-train", 5), ("b-train", 2)):
        rows = [
            {
                "instruction": f"{name} {i}\n\nAnswer format: yes/no",
                "input": "",
                "output": "the correct answer is yes",
                "answer": "yes",
            }
            for i in range(count)
        ]
        path = tmp_path / "commonsense_170k" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_choices("commonsense_170k", data_dir=tmp_path, limit=6)
    first = [item.choices[0].context.split("\n")[0] for item in found.items]
    assert first == ["a-train 0", "b-train 0", "a-train 1", "b-train 1", "a-train 2", "a-train 3"]
