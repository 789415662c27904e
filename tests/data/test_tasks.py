"""Every task's builder on rows in the schema of the hub; prompts as in lm-eval."""

import pytest

from shoal.core.errors import UsageError
from shoal.data.items import ChoiceItem, PromptItem
from shoal.data.rows import Row
from shoal.data.tasks import TASKS, task

SCIENCE = {"choices": {"text": ["air", "iron", "wood"], "label": ["1", "2", "3"]}, "answerKey": "2"}
HELLASWAG = {
    "ind": 4,
    "activity_label": "Baking",
    "ctx_a": "A cook [header] stirs.  He waits.",
    "ctx_b": "then HE",
    "endings": ["[title] sleeps", "eats [step] it.", "runs", "How to rest [title] Lie down"],
    "label": "3",
}
COMMONSENSE = {
    "instruction": "Is it so?\n\nAnswer1: no Answer2: yes\n\nAnswer format: answer1/answer2",
    "input": "",
    "output": "the correct answer is answer2",
    "answer": "answer2",
}
WINOGRANDE = {
    "sentence": "Ann met Eve, and _ smiled first.",
    "option1": "Ann",
    "option2": "Eve",
    "answer": "2",
}


def build(name: str, row: Row) -> ChoiceItem:
    item = built(name, row)
    assert isinstance(item, ChoiceItem)
    return item


def built(name: str, row: Row) -> ChoiceItem | PromptItem:
    builder = task(name).build
    assert builder is not None
    return builder(row, 5)


def parts(item: ChoiceItem) -> tuple[set[str], list[str]]:
    return {c.context for c in item.choices}, [c.continuation for c in item.choices]


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_arc_with_numbered_labels(name: str) -> None:
    item = build(name, {"id": "Mercury_7", "question": "What rusts?", **SCIENCE})
    assert parts(item) == ({"Question: What rusts?\nAnswer:"}, [" air", " iron", " wood"])
    assert (item.id, item.gold) == ("Mercury_7", 1)


def test_arc_with_letters_in_another_order() -> None:
    choices = {"text": ["air", "iron"], "label": ["B", "A"]}
    item = build("arc_easy", {"question": "What rusts?", "choices": choices, "answerKey": "A"})
    assert (item.id, item.gold) == ("5", 1)


def test_arc_with_an_answer_that_no_choice_has() -> None:
    row = {"question": "What rusts?", **SCIENCE, "answerKey": "D"}
    with pytest.raises(UsageError, match='the answer is "D", but the choices are labelled 1, 2, 3'):
        build("arc_easy", row)


def test_arc_with_choices_of_another_schema() -> None:
    with pytest.raises(UsageError, match=r'"choices" must hold \{"text"'):
        build("arc_easy", {"question": "What rusts?", "choices": ["air"], "answerKey": "A"})


def test_openbookqa() -> None:
    item = build("openbookqa", {"id": "7-1", "question_stem": "Rust forms on", **SCIENCE})
    assert parts(item) == ({"Rust forms on"}, [" air", " iron", " wood"])


@pytest.mark.parametrize("label", [1, "1"])
def test_piqa(label: object) -> None:
    item = build("piqa", {"goal": "Open a jar", "sol1": "Hit it", "sol2": "Turn", "label": label})
    assert parts(item) == ({"Question: Open a jar\nAnswer:"}, [" Hit it", " Turn"])
    assert item.gold == 1


def test_piqa_with_hidden_labels() -> None:
    with pytest.raises(UsageError, match="hides its labels"):
        build("piqa", {"goal": "g", "sol1": "a", "sol2": "b", "label": -1})


def test_winogrande_varies_the_context() -> None:
    item = build("winogrande", WINOGRANDE)
    assert parts(item)[0] == {"Ann met Eve, and Ann", "Ann met Eve, and Eve"}
    assert parts(item)[1] == [" smiled first."] * 2
    assert item.gold == 1


def test_winogrande_without_a_blank() -> None:
    with pytest.raises(UsageError, match='has no blank "_"'):
        build("winogrande", {**WINOGRANDE, "sentence": "Ann smiled."})


def test_winogrande_with_hidden_labels() -> None:
    with pytest.raises(UsageError, match=r'"answer" must hold a whole number.*hides its labels'):
        build("winogrande", {**WINOGRANDE, "answer": ""})


@pytest.mark.parametrize("answer", [{"label": 1}, {"answer": True}])
def test_boolq_of_superglue_and_of_its_authors(answer: Row) -> None:
    item = build("boolq", {"passage": "Water is wet.", "question": "is water wet", **answer})
    context = "Water is wet.\nQuestion: is water wet?\nAnswer:"
    assert parts(item) == ({context}, [" no", " yes"])
    assert item.gold == 1


def test_hellaswag_clean_up() -> None:
    item = build("hellaswag", HELLASWAG)
    assert parts(item)[0] == {"Baking: A cook stirs. He waits. Then he"}
    assert parts(item)[1] == ["  sleeps", " eats it.", " runs", " How to rest. Lie down"]
    assert item.gold == 3


@pytest.mark.parametrize("label", ["2", "2\n"])
def test_social_iqa(label: str) -> None:
    answers = {"answerA": "glad", "answerB": "sad", "answerC": "calm"}
    row = {"context": "Bo lost.", "question": "How is Bo?", "label": label, **answers}
    item = build("social_iqa", row)
    assert parts(item) == ({"Q: Bo lost. How is Bo?\nA:"}, [" glad", " sad", " calm"])
    assert item.gold == 1


def test_commonsense_swaps_the_label_in_the_sentence() -> None:
    item = build("commonsense_170k", COMMONSENSE)
    assert parts(item) == (
        {COMMONSENSE["instruction"] + "\n\nAnswer:"},
        [" the correct answer is answer1", " the correct answer is answer2"],
    )
    assert item.gold == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "answer3"}, '"answer3" is not in the answer format answer1/answer2'),
        ({"instruction": "Is it so?"}, 'does not end in "Answer format'),
        ({"output": "it is so"}, 'the "output" does not contain the answer "answer2"'),
    ],
)
def test_commonsense_refuses_what_it_cannot_parse(change: Row, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build("commonsense_170k", {**COMMONSENSE, **change})


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("4 and #### 1 are\n#### 1,234", "1234"),
        ("#### -5", "-5"),
        ("576.0", "576.0"),
        (576.0, "576.0"),
        (42, "42"),
    ],
)
def test_gsm8k(answer: object, gold: str) -> None:
    item = built("gsm8k", {"question": " How many? ", "answer": answer})
    assert item == PromptItem("5", "Question: How many?\nAnswer:", (gold,))


@pytest.mark.parametrize("answer", ["about ten", "#### ", "1_000", "nan"])
def test_gsm8k_refuses_what_is_no_number(answer: str) -> None:
    with pytest.raises(UsageError, match='must be a number, or end in "####"'):
        built("gsm8k", {"question": "q", "answer": answer})


def test_a_missing_key_is_named_with_the_closest() -> None:
    with pytest.raises(UsageError) as caught:
        build("arc_easy", {"qestion": "What rusts?", **SCIENCE})
    expected = 'the key "question" is missing. Did you mean "qestion"? Keys there: qestion, choices'
    assert expected in str(caught.value)


def test_unknown_task() -> None:
    with pytest.raises(UsageError, match=r'unknown task "hellaswg"\. Did you mean "hellaswag"'):
        task("hellaswg")


@pytest.mark.parametrize("name", TASKS)
def test_selection_and_report_never_share_a_split(name: str) -> None:
    known = TASKS[name]
    assert known.name == name
    assert known.report_split in known.test_splits
    assert not known.test_splits & set(known.calibration_splits)
    assert {known.report_split, *known.calibration_splits, *known.test_splits} <= set(known.splits)
    assert (known.build is None) == (known.kind == "text")
