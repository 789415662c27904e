"""What the loaders return: multiple-choice items and text documents."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from shoal.core.errors import UsageError
from shoal.core.fingerprint import of_json


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to continue a context.

    Attributes:
        context: The text before; each choice has its own, because some tasks vary the context.
        continuation: The text that is scored, with its leading space.
    """

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """One question with its possible answers.

    Attributes:
        id: The item's name, for reports.
        choices: The answers, at least two.
        gold: Index of the right one.
    """

    id: str
    choices: tuple[Choice, ...]
    gold: int

    def __post_init__(self) -> None:
        count = len(self.choices)
        if count < 2:
            raise UsageError(
                f'item "{self.id}" has {count} choice(s); it needs at least two to compare.'
            )
        if not 0 <= self.gold < count:
            hidden = " A gold of -1 means that this split hides its labels."
            raise UsageError(
                f'the gold answer of item "{self.id}" is {self.gold}, but it has {count} choices: '
                f"0 to {count - 1} are allowed.{hidden if self.gold == -1 else ''}"
            )
        for index, choice in enumerate(self.choices):
            if not choice.continuation.strip():
                raise UsageError(
                    f'choice {index} of item "{self.id}" is empty; every choice needs some text.'
                )


@dataclass(frozen=True)
class ChoiceSet:
    """Multiple-choice items of one split.

    Attributes:
        name: Task name or file.
        split: Split, or "file" for a user's own file.
        items: The items in the order of the source.
        fingerprint: Fingerprint of the contexts, continuations and gold answers.
        origin: Where the items came from, for people.
    """

    name: str
    split: str
    items: tuple[ChoiceItem, ...]
    fingerprint: str
    origin: str

    @classmethod
    def of(cls, name: str, split: str, items: Iterable[ChoiceItem], origin: str) -> Self:
        """Build a set and take its fingerprint."""
        items = tuple(items)
        content = [[[[c.context, c.continuation] for c in i.choices], i.gold] for i in items]
        return cls(name, split, items, of_json(content), origin)

    def __len__(self) -> int:
        return len(self.items)

    def describe(self) -> dict[str, Any]:
        """The JSON form for a plan: what the data were, not the data."""
        return _described(self, "items", len(self))


@dataclass(frozen=True)
class Corpus:
    """Text documents of one split.

    Attributes:
        name: Task name or file.
        split: Split, or "file" for a user's own file.
        documents: The texts in the order of the source.
        fingerprint: Fingerprint of the documents.
        origin: Where the documents came from, for people.
    """

    name: str
    split: str
    documents: tuple[str, ...]
    fingerprint: str
    origin: str

    @classmethod
    def of(cls, name: str, split: str, documents: Iterable[str], origin: str) -> Self:
        """Build a corpus and take its fingerprint."""
        documents = tuple(documents)
        return cls(name, split, documents, of_json(documents), origin)

    def __len__(self) -> int:
        return len(self.documents)

    def describe(self) -> dict[str, Any]:
        """The JSON form for a plan: what the data were, not the data."""
        return _described(self, "documents", len(self))


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A prompt that a model continues, with the answers that are right.

    Attributes:
        id: The item's name, for reports.
        prompt: The text to continue.
        answers: The answers any of which is right; none where continuations are not judged.
    """

    id: str
    prompt: str
    answers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise UsageError(f'the prompt of item "{self.id}" is empty.')


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one split.

    Attributes:
        name: Task name or file.
        split: Split, or "file" for a user's own file.
        items: The items in the order of the source.
        fingerprint: Fingerprint of the prompts and answers.
        origin: Where the items came from, for people.
    """

    name: str
    split: str
    items: tuple[PromptItem, ...]
    fingerprint: str
    origin: str

    @classmethod
    def of(cls, name: str, split: str, items: Iterable[PromptItem], origin: str) -> Self:
        """Build a set and take its fingerprint."""
        items = tuple(items)
        content = [[i.prompt, list(i.answers)] for i in items]
        return cls(name, split, items, of_json(content), origin)

    def __len__(self) -> int:
        return len(self.items)

    def describe(self) -> dict[str, Any]:
        """The JSON form for a plan: what the data were, not the data."""
        return _described(self, "prompts", len(self))


def _described(data: ChoiceSet | Corpus | PromptSet, unit: str, count: int) -> dict[str, Any]:
    return {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "fingerprint": data.fingerprint,
        unit: count,
    }
