import pytest

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem, ChoiceSet, Corpus

PAIR = (Choice("Q:", " yes"), Choice("Q:", " no"))


def test_an_item_needs_two_choices() -> None:
    with pytest.raises(UsageError, match=r'item "q7" has 1 choice\(s\); it needs at least two'):
        ChoiceItem("q7", PAIR[:1], 0)


@pytest.mark.parametrize("gold", [-1, 2])
def test_gold_must_be_one_of_the_choices(gold: int) -> None:
    with pytest.raises(UsageError, match=rf'gold answer of item "q" is {gold}.*0 to 1') as caught:
        ChoiceItem("q", PAIR, gold)
    assert ("hides its labels" in str(caught.value)) == (gold == -1)


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_continuation_must_not_be_empty(blank: str) -> None:
    with pytest.raises(UsageError, match='choice 1 of item "q" is empty'):
        ChoiceItem("q", (PAIR[0], Choice("Q:", blank)), 0)


def test_fingerprint_follows_the_content_only() -> None:
    def fingerprint(name: str, id_: str, gold: int) -> str:
        return ChoiceSet.of(name, "train", [ChoiceItem(id_, PAIR, gold)], "o").fingerprint

    assert fingerprint("a", "1", 0) == fingerprint("b", "2", 0)
    assert fingerprint("a", "1", 0) != fingerprint("a", "1", 1)
    corpora = [Corpus.of("a", "train", d, "o").fingerprint for d in (["x y"], ["x", "y"])]
    assert corpora[0] != corpora[1]


def test_description_is_for_the_plan() -> None:
    described = ChoiceSet.of("a", "train", [ChoiceItem("1", PAIR, 0)], "embedded").describe()
    assert described["items"] == 1
    assert described["origin"] == "embedded"
    assert Corpus.of("a", "train", ["x"], "o").describe()["documents"] == 1
