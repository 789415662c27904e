"""Figures as parts of a page."""

import io
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from shoal.report.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK = "{http://www.w3.org/1999/xlink}href"


def inline_svg(figure: "Figure", name: str) -> str:
    """A figure as an SVG element that can stand in a page beside others.

    Ids begin with the figure's name, since those of several figures would clash, and there are no
    links to elsewhere. The same figure gives the same text.

    Args:
        figure: The figure.
        name: A name that no other figure of the page has; letters, digits, - and _.

    Raises:
        ValueError: If the name would not do for ids.
    """
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"{name!r} cannot name a figure in a page")
    root = ElementTree.fromstring(_svg(figure))
    for parent in list(root.iter()):
        for child in list(parent):
            # The page's style has what is in theirs.
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            element.set(*_attribute(key, value, name))
    return ElementTree.tostring(root, encoding="unicode").strip()


def _svg(figure: "Figure") -> str:
    written = io.StringIO()
    with styled(), warnings.catch_warnings():
        # A title may name a file in a script that the font has not; a box stands there.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _attribute(key: str, value: str, name: str) -> tuple[str, str]:
    if key == "id":
        return key, f"{name}-{value}"
    if key == LINK:
        return "href", value.replace("#", f"#{name}-", 1) if value.startswith("#") else value
    return key, value.replace("url(#", f"url(#{name}-")
