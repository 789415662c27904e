"""The page builder: valid, self-contained, and safe whoever wrote the text."""

from importlib.resources import files

import pytest

from shoal.report.inline import inline_svg
from shoal.report.page import (
    Card,
    Cards,
    Comparison,
    Comparisons,
    Drawing,
    Fact,
    Folded,
    Gauge,
    Page,
    Section,
    Table,
    Text,
    render_page,
    visible,
    write_page,
)
from shoal.report.style import new_figure
from shoal.testing.pages import EVIL, check


def figure():
    made = new_figure(3, 2)
    axes = made.add_subplot()
    axes.plot([0, 1], [0, 1])
    axes.set_title("<b> & 'x'")
    return made


def page(*blocks, title="A page", heading="One"):
    return Page(title, ["below it"], [Section(heading, blocks)])


ALL = (
    Text("words"),
    Table(["name", "n"], [["a", "1\n[0, 2]"], ["b", "2"]], "Some numbers"),
    Cards([Card("A use", "risky", "fair", "not settled", [Fact("m", "1", "l", "f")], ["do it"])]),
    Comparisons([Comparison("ask", [("one", "a b"), ("two", "a c")], "a note")]),
    Folded("more", [Table(["x", "y"], [["1", "2"]], "Folded", numbers=False)]),
)


def test_all_blocks_are_there_and_tags_match():
    found = check(render_page(page(*ALL)))
    text = " ".join(" ".join(found.text).split())
    for word in ("A page", "below it", "words", "Some numbers", "[0, 2]", "risky", "not settled",
                 "do it", "ask", "a note", "more", "Folded"):  # fmt: skip
        assert word in text
    assert found.tags.count("table") == 2


def test_whatever_models_write_stays_text():
    blocks = (
        Text(EVIL),
        Table([EVIL, EVIL], [[EVIL, EVIL + "\n" + EVIL]], EVIL),
        Cards([Card(EVIL, EVIL, "plain", EVIL, [Fact(EVIL, EVIL, EVIL, EVIL)], [EVIL])]),
        Comparisons([Comparison(EVIL, [(EVIL, EVIL), (EVIL, EVIL + "x")], EVIL)]),
        Folded(EVIL, [Text(EVIL)]),
        Drawing(inline_svg(figure(), "f"), EVIL, EVIL),
    )
    html = render_page(page(*blocks, title=EVIL, heading=EVIL))
    found = check(html)
    assert "alert(1)" in html
    assert "<script" not in html
    assert "{{ 7*7 }}" in html
    # Escaped once, not twice: a reader sees what was written.
    assert EVIL in "".join(found.text)


def test_figures_of_one_page_share_no_ids():
    drawings = [Drawing(inline_svg(figure(), name), "c", "t") for name in ("one", "two")]
    found = check(render_page(page(*drawings)))
    for name in ("one", "two"):
        assert sum(i.startswith(f"{name}-") for i in found.ids) > 10
    assert any(link.startswith("#one-") for link in found.links)


def test_figures_refer_to_their_own_clip_paths():
    svg = inline_svg(figure(), "mine")
    assert "url(#mine-" in svg
    assert svg.count("url(#") == svg.count("url(#mine-")
    assert "<metadata" not in svg
    assert "<style" not in svg
    assert svg == inline_svg(figure(), "mine")


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "ä", "a<"])
def test_names_of_figures_do_for_ids(name):
    with pytest.raises(ValueError, match="cannot name a figure"):
        inline_svg(figure(), name)


def test_control_characters_are_seen_and_line_ends_stay():
    assert visible("a\x00b\x1b[2Jc\r\nd\te\x7f\x85") == "a␀b␛[2Jc\nd\te␡\ufffd"
    assert visible("שלום 質問 🙂") == "שלום 質問 🙂"


def test_writing_replaces_the_file_and_takes_half_a_surrogate_pair(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    write_page(page(Text("half \ud83d pair, 質問")), path)
    html = path.read_bytes().decode("utf-8")
    assert "half ? pair, 質問" in html
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    write_page(page(Text("half \ud83d pair, 質問")), path)
    assert path.read_bytes().decode("utf-8") == html


@pytest.mark.parametrize(
    ("texts", "shared"),
    [
        (("a small boat at sea", "a small boat the the"), "a small boat "),
        (("same", "same"), "same"),
        (("one", "two"), ""),
        (("that", "this"), ""),
        (("a b", "a b c"), "a b"),
        (("", "x"), ""),
        ((), ""),
    ],
)
def test_texts_share_whole_words(texts, shared):
    found = Comparison("p", [(str(i), t) for i, t in enumerate(texts)])
    assert (texts[0] if texts else "")[: found.shared] == shared


def test_empty_texts_say_so():
    html = render_page(page(Comparisons([Comparison("p", [("one", ""), ("two", "x")])])))
    assert "<em>nothing</em>" in html


def test_gauges_show_value_and_interval():
    card = Card("t", "w", facts=[Fact("m", "1", gauge=Gauge(0.5, 0.25, 0.75))])
    html = render_page(page(Cards([card])))
    assert '<rect class="span" x="75.0" y="6" width="150.0"' in html
    without = Card("t", "w", facts=[Fact("m", "1", gauge=Gauge(0.5))])
    assert 'class="span"' not in render_page(page(Cards([without])))


def test_sections_are_linked_from_the_top():
    sections = [Section(name, [Text("x")]) for name in ("First one", "Second", "Third & last")]
    html = render_page(Page("t", [], sections))
    assert check(html).links == ["#section-first-one", "#section-second", "#section-third-last"]


def test_templates_are_packaged():
    names = {f.name for f in files("shoal.report").joinpath("templates").iterdir()}
    assert {"page.jinja", "blocks.jinja", "style.jinja"} <= names
