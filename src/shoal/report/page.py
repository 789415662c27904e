"""A page of HTML in one file: headings, text, tables, figures, cards and texts side by side.

It needs no network and no scripts. All text is escaped, whoever wrote it; only figures, which were
drawn here, are put in as they are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from shoal.core.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

TONES = ("good", "fair", "bad", "plain")
"""How a card is coloured."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Listing:
    """Sentences that stand each for itself."""

    kind: ClassVar[str] = "listing"
    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; the first column holds names, and the others numbers unless said otherwise.

    Attributes:
        header: Names of the columns.
        rows: Cells, as many in each row as there are columns; what follows a line end is small.
        caption: What the table shows; read aloud and printed above it.
        numbers: Whether the other columns stand to the right.
    """

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    numbers: bool = True


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        svg: What `inline_svg` gave; it is not escaped.
        caption: What to look for.
        title: What it is, for those who cannot see it.
    """

    kind: ClassVar[str] = "drawing"
    svg: str
    caption: str
    title: str


@dataclass(frozen=True)
class Gauge:
    """Where a number lies between good and bad, each of three fields a third of the width.

    Attributes:
        value: From 0, the best, to 1, the worst.
        low: The interval's end on the side of 0; None without an interval.
        high: Its other end.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Fact:
    """A number on a card, with what it means and where its limits are."""

    meaning: str
    value: str
    limits: str = ""
    flag: str = ""
    tone: str = "plain"
    gauge: Gauge | None = None


@dataclass(frozen=True)
class Card:
    """A judgement.

    Attributes:
        title: Of what.
        word: The judgement in a word.
        tone: One of `TONES`.
        flag: A reservation, beside the word.
        facts: The numbers behind it.
        advice: What to do.
    """

    title: str
    word: str
    tone: str = "plain"
    flag: str = ""
    facts: Sequence[Fact] = ()
    advice: Sequence[str] = ()


@dataclass(frozen=True)
class Cards:
    """Cards beside each other."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[Card]


@dataclass(frozen=True)
class Comparison:
    """What several wrote after one prompt, side by side.

    Attributes:
        prompt: The prompt.
        texts: Who wrote -> what.
        note: What to say of it.
    """

    prompt: str
    texts: Sequence[tuple[str, str]]
    note: str = ""

    @property
    def shared(self) -> int:
        """How many characters all texts begin with, up to the end of a word."""
        texts = [text for _, text in self.texts]
        if len(set(texts)) < 2:
            return len(texts[0]) if texts else 0
        end = next(
            (i for i, signs in enumerate(zip(*texts, strict=False)) if len(set(signs)) > 1),
            min(map(len, texts)),
        )
        # A text that ends where the other goes on has ended a word of its own.
        if all(len(t) == end or t[end].isspace() for t in texts):
            return end
        return max(texts[0].rfind(sign, 0, end) for sign in " \n\t") + 1


@dataclass(frozen=True)
class Comparisons:
    """Texts side by side, prompt by prompt."""

    kind: ClassVar[str] = "comparisons"
    comparisons: Sequence[Comparison]


@dataclass(frozen=True)
class Folded:
    """Something long that is shown when it is asked for, and always in print."""

    kind: ClassVar[str] = "folded"
    summary: str
    blocks: Sequence["Block"]


Block = Text | Listing | Table | Drawing | Cards | Comparisons | Folded


@dataclass(frozen=True)
class Section:
    """A heading with what stands below."""

    heading: str
    blocks: Sequence[Block]

    @property
    def id(self) -> str:
        """What links to it name."""
        return "section-" + re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """A page; headings of sections differ."""

    title: str
    subtitle: Sequence[str]
    sections: Sequence[Section]


def render_page(page: Page) -> str:
    """The page as HTML; the same page gives the same text."""
    return _template().render(page=page, version=__version__)


def write_page(page: Page, path: Path) -> None:
    """Write a page, replacing the file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    # Half of a surrogate pair, which a model can write, is no character.
    temporary.write_bytes(render_page(page).encode("utf-8", "replace"))
    temporary.replace(path)


def visible(text: str) -> str:
    """Text in which control characters are seen, as their signs; line ends and tabs stay."""
    return "".join(_sign(c) for c in text.replace("\r\n", "\n"))


def _sign(c: str) -> str:
    if c in "\n\t" or not (c < " " or "\x7f" <= c <= "\x9f"):
        return c
    return chr(0x2400 + ord(c)) if c < " " else "␡" if c == "\x7f" else "\ufffd"


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("shoal.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.filters["drawn"] = Markup
    return environment.get_template("page.jinja")
