from importlib import resources

import pytest

from shoal.core.errors import UsageError
from shoal.data import load_choices, load_corpus, load_prompts

# Headings such as " = = Reception = = " recur in many articles; paragraphs do not.
PARAGRAPH = 100


def test_arc_easy_parts_share_no_question() -> None:
    train = load_choices("arc_easy", data_dir="embedded")
    test = load_choices("arc_easy", data_dir="embedded", purpose="report")
    assert (len(train), len(test)) == (256, 400)
    assert (train.split, test.split, train.origin) == ("train", "test", "embedded")
    asked = [{i.choices[0].context.casefold() for i in part.items} for part in (train, test)]
    assert not asked[0] & asked[1]


def test_wikitext_parts_share_no_paragraph() -> None:
    chosen = load_corpus("wikitext2", data_dir="embedded")
    report = load_corpus("wikitext2", data_dir="embedded", purpose="report")
    assert (chosen.split, report.split) == ("validation", "test")
    texts = [part.documents[0] for part in (chosen, report)]
    assert all(text.endswith("\n") for text in texts)
    found = [{p for p in t.split("\n") if len(p) > PARAGRAPH} for t in texts]
    assert min(map(len, found)) > 20
    assert not found[0] & found[1]


def test_gsm8k_is_for_reports_alone() -> None:
    report = load_prompts("gsm8k", data_dir="embedded", purpose="report")
    assert (len(report), report.split) == (64, "test")
    assert len({item.prompt for item in report.items}) == 64
    with pytest.raises(UsageError, match="holds no train split"):
        load_prompts("gsm8k", data_dir="embedded")


def test_other_tasks_are_not_embedded() -> None:
    with pytest.raises(UsageError, match=r"no folder piqa .* arc_easy, gsm8k, wikitext2"):
        load_choices("piqa", data_dir="embedded")


def test_sources_and_licences_are_stated() -> None:
    text = (resources.files("shoal.data") / "embedded" / "README.md").read_text(encoding="utf-8")
    assert "CC BY-SA 3.0" in text
    assert "CC BY-SA 4.0" in text
    assert "MIT" in text
