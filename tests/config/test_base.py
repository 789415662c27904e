from typing import ClassVar, Literal

import pytest
from pydantic import Field, ValidationError

from shoal.config.base import Config, Named, pick, registry
from shoal.core.errors import UsageError


class Beam(Named):
    implementation: ClassVar[str] = "itertools:chain"
    summary: ClassVar[str] = "keeps the best few"
    name: Literal["beam"] = "beam"
    width: int = Field(4, ge=1)


class Walk(Named):
    implementation: ClassVar[str] = "nowhere:walk"
    summary: ClassVar[str] = "wanders"
    name: Literal["walk"] = "walk"


class Inner(Config):
    depth: int


KNOWN = registry(Walk, Beam)


def test_the_registry_keeps_the_given_order() -> None:
    assert list(KNOWN) == ["walk", "beam"]
    assert KNOWN["beam"] is Beam


@pytest.mark.parametrize("value", ["beam", {"name": "beam"}, Beam()])
def test_pick_by_name_by_mapping_or_ready_made(value: object) -> None:
    assert pick("search", KNOWN, value) == Beam()


def test_pick_reads_options_and_leaves_the_mapping_alone() -> None:
    value = {"name": "beam", "width": 7}
    assert pick("search", KNOWN, value) == Beam(width=7)
    assert value == {"name": "beam", "width": 7}


def test_an_unknown_name_names_the_closest() -> None:
    with pytest.raises(UsageError) as error:
        pick("search", KNOWN, "baem")
    assert str(error.value) == 'unknown search "baem". Did you mean "beam"? Known: beam, walk.'


@pytest.mark.parametrize("value", [None, 5, ["beam"], [("name", "beam")], {}, {"name": 3}])
def test_what_has_no_name_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"^the search needs a name\. Known: walk, beam\.$"):
        pick("search", KNOWN, value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"widht": 3}, 'unknown key "widht". Did you mean "width"? Known: name, width.'),
        ({"width": 0}, "width: Input should be greater than or equal to 1. Given: 0."),
        ({"width": "x", "q": 1}, "Given: 'x'. (1 more problem)"),
        ({"width": "x", "q": 1, "r": 2}, "(2 more problems)"),
    ],
)
def test_refused_options_say_what_was_given_and_what_is_known(
    options: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError) as error:
        Beam.read(options)
    assert text in str(error.value)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(UsageError, match=r'^"depth" is missing\.$'):
        Inner.read({})


def test_configs_are_frozen_and_load_what_they_name() -> None:
    from itertools import chain

    beam = Beam()
    with pytest.raises(ValidationError, match="frozen"):
        beam.width = 3
    assert beam.load() is chain
