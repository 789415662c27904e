"""The page of a geometry: sentences first, that claim no more than the intervals show."""

import math

import pytest

from shoal.core.mask import Mask
from shoal.core.records import Mean
from shoal.geometry.records import Change
from shoal.report.geometry.page import geometry_page
from shoal.report.geometry.reading import apart, reading
from shoal.report.page import render_page
from shoal.report.words import number
from shoal.testing.geometries import PARTS, made_up_geometry
from shoal.testing.pages import EVIL, check

SMALL = {"depth": 4, "classes": ["all"]}
ALWAYS = ["What the words mean", "Settings and environment", "Notes"]


def headings(found):
    return [s.heading for s in geometry_page(found, {}).sections]


def flat_text(html):
    return " ".join(" ".join(check(html).text).split())


@pytest.fixture(scope="module")
def whole():
    return made_up_geometry(**SMALL)


@pytest.fixture(scope="module")
def html(whole):
    return render_page(geometry_page(whole))


def change(value, low, high):
    return Change(before=0.5, after=0.5 + value, change=mean(value, low, high))


def mean(value, low, high):
    return Mean(value=value, low=low, high=high, count=32)


def said_of(found, what):
    return next(line for line in reading(found) if what in line)


def test_the_page_is_whole_and_needs_no_network(html):
    text = flat_text(html)
    assert "Geometry of lab-small-0: U(-1, 1) and U(-4, 4)" in text
    assert "Removed: -[2]; 4 blocks, width 64." in text
    assert "out of distribution (OOD)" in text
    assert check(html).tags.count("figure") == 8


@pytest.mark.slow
def test_the_same_record_gives_the_same_page(whole, html):
    assert render_page(geometry_page(whole)) == html


def test_numbers_on_the_page_are_those_of_the_record(whole, html):
    text = flat_text(html)
    for one in whole.changes.values():
        assert f"gap {number(one.before)} → {number(one.after)}" in text
    values = [v for p in whole.profiles.values() for m in p.norm for v in (m.value, m.low, m.high)]
    values += [v for p in whole.profiles.values() for v in p.last_distance]
    values += [p.loss_ood.value for p in whole.points] + [p.loss_id.high for p in whole.points]
    values += [p.gaps.last_norm for p in whole.points]
    values += [getattr(r, name) for r in whole.linear for name in (
        "r2", "r2_update", "measured_gain", "data_gain", "sigma_max", "frobenius",
        "effective_rank", "participation_ratio", "data_effective_rank", "data_participation_ratio",
    )]  # fmt: skip
    values += [s.rank_change for s in whole.signatures]
    words = set(text.replace("[", " ").replace("]", " ").replace(",", " ").split())
    missing = [v for v in values if not set(number(v).split(",")) <= words]
    assert len(values) > 200
    assert not missing


@pytest.mark.parametrize(
    ("missing", "section"),
    [("points", "Interventions"), ("profiles", None), ("changes", None), ("linear", None)],
)
def test_sections_follow_the_record(missing, section):
    found = headings(made_up_geometry(parts=[p for p in PARTS if p != missing], **SMALL))
    every = ["What was found", "Profiles", "What each block does", "Interventions", *ALWAYS]
    assert found == [h for h in every if h != section]


def test_a_record_of_nothing_still_says_what_was_asked():
    found = made_up_geometry(parts=(), plan=False, **SMALL).model_copy(
        update={"notes": (), "settings": {}, "environment": {}, "seconds": {}, "metric": {}}
    )
    assert headings(found) == ["What was found", *ALWAYS[:2]]
    text = flat_text(render_page(geometry_page(found)))
    assert "Nothing is removed" in text
    assert "There is no plan, so this describes the dense model alone." in text
    assert reading(found) == []


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 1, "classes": ["all"]},
        {"sequences": 1},
        {"plan": False},
        {"depth": 6, "mask": Mask.parse("-[1,2.attn,4.mlp]", 6)},
        {"depth": 80, "classes": ["all"]},
    ],
    ids=str,
)
def test_records_of_all_kinds(options):
    check(render_page(geometry_page(made_up_geometry(**options), {})))


def test_text_is_shown_and_not_obeyed(whole):
    update = {
        "model": whole.model.model_copy(update={"id": EVIL * 20}),
        "id": EVIL,
        "ood": EVIL,
        "metric": {"id": EVIL, "ood": EVIL},
        "settings": {EVIL: {EVIL: EVIL}},
        "environment": {EVIL: EVIL},
        "notes": (EVIL,),
    }
    html = render_page(geometry_page(whole.model_copy(update=update), {}))
    check(html)
    assert "<script" not in html
    assert "49" not in html.partition("What was found")[0]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (change(-0.1, -0.2, -0.05), "is closer to the ID profile"),
        (change(0.1, 0.05, 0.2), "is not closer to the ID profile, but farther from it"),
        (change(-0.1, -0.2, 0.01), "is not settled"),
        (change(-0.1, -0.2, 0.0), "is not settled"),
        (change(-0.1, None, None), "there is no interval"),
        (change(math.nan, math.nan, math.nan), "cannot be told"),
    ],
)
def test_profiles_are_closer_only_where_the_interval_says_so(whole, found, words):
    line = said_of(whole.model_copy(update={"changes": {"distance": found}}), "distance profile")
    assert words in line
    assert ("is closer to the ID profile" in line) == (words == "is closer to the ID profile")


def test_intervals_that_meet_settle_nothing():
    assert apart(mean(1, 0.9, 1.1), mean(2, 1.5, 2.5)) == -1
    assert apart(mean(2, 1.5, 2.5), mean(1, 0.9, 1.1)) == 1
    assert apart(mean(1, 0.9, 1.5), mean(2, 1.5, 2.5)) == 0
    assert apart(mean(1, None, None), mean(2, 1.5, 2.5)) == 0
    assert apart(mean(1, math.nan, math.nan), mean(2, 1.5, 2.5)) == 0


def test_losses_are_lowered_only_where_the_intervals_are_apart(whole):
    def with_removed(loss):
        points = tuple(
            p.model_copy(update={"loss_ood": loss})
            if (p.intervention, p.group) == ("removed", "selected")
            else p
            for p in whole.points
        )
        return said_of(whole.model_copy(update={"points": points}), "the OOD loss")

    dense = whole.points[0].loss_ood
    assert whole.points[0].intervention == "dense"
    assert "lowers the OOD loss" in with_removed(mean(0.1, 0.05, 0.15))
    assert "raises the OOD loss" in with_removed(mean(9.0, 8.0, 10.0))
    assert "is not settled" in with_removed(mean(0.1, 0.05, dense.value))
    assert "there is no interval" in with_removed(mean(0.1, None, None))


def test_signatures_are_counted_and_the_undecided_told(whole):
    made = [
        s.model_copy(update={"amplifier": amplifier, "selected": selected})
        for s, (amplifier, selected) in zip(
            whole.signatures,
            [(True, True), (None, True), (False, False), (True, False)],
            strict=True,
        )
    ]
    line = said_of(whole.model_copy(update={"signatures": tuple(made)}), "Amplifiers")
    assert "1 of the 2 blocks that the plan removes (1 undecided)" in line
    assert "1 of the 2 blocks that stay." in line
