"""What must hold of every HTML page that shoal writes."""

from collections import Counter
from html.parser import HTMLParser

EVIL = "<script>alert(1)</script><img src=x onerror='a'>\"</pre></style>&amp;{{ 7*7 }}"
"""Text that must come out as text."""

VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})
"""Tags that are never closed."""

FOREIGN = frozenset({"script", "link", "img", "iframe", "object"})
"""Tags that run something, or fetch it from elsewhere."""


class Outline(HTMLParser):
    """Tags, ids, links and text of a page.

    Raises:
        ValueError: While it is fed, if tags do not match or an attribute would run something.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag opens."""
        self._see(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag opens and closes."""
        self._see(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """A tag closes."""
        if not self.open or self.open[-1] != tag:
            raise ValueError(f"</{tag}> closes {self.open[-1:] or 'nothing'}")
        self.open.pop()

    def handle_data(self, data: str) -> None:
        """Text stands there."""
        self.text.append(data)

    def _see(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names) or any(name.startswith("on") for name in names):
            raise ValueError(f"<{tag}> has the attributes {names}")
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href"}:
                self.links.append(value or "")


def outline(html: str) -> Outline:
    """Read a page.

    Raises:
        ValueError: If its tags do not match.
    """
    found = Outline()
    found.feed(html)
    found.close()
    if found.open:
        raise ValueError(f"<{found.open[-1]}> is never closed")
    return found


def check(html: str) -> Outline:
    """Read a page that must stand by itself: ids once each, links inside, nothing from elsewhere.

    Raises:
        ValueError: If something does not hold.
    """
    found = outline(html)
    twice = [name for name, n in Counter(found.ids).items() if n > 1]
    outside = [k for k in found.links if not (k.startswith("#") and k[1:] in found.ids)]
    foreign = sorted(FOREIGN & set(found.tags))
    addresses = [scheme for scheme in ("http://", "https://") if scheme in html]
    if twice or outside or foreign or addresses:
        raise ValueError(f"ids twice {twice}, links {outside}, tags {foreign}, {addresses}")
    return found
