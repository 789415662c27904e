"""The page of a diagnosis: verdicts first, a section for each part that was measured."""

import math

import pytest

from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.records import Example, Reason
from shoal.report.diagnosis.cards import gauge
from shoal.report.diagnosis.page import diagnosis_page
from shoal.report.diagnosis.words import limits
from shoal.report.page import render_page
from shoal.report.settings import flat
from shoal.report.words import interval, number
from shoal.testing.diagnoses import PARTS, made_up_diagnosis
from shoal.testing.pages import EVIL, check

SECTIONS = {
    "verdicts": "Verdicts",
    "layerwise": "Each site alone",
    "teacher_forced": "Both read the dense model's text",
    "amplification": "Softmax and temperature",
    "free_runs": "Each writes by itself",
    "choices": "Answer options",
    "retrieval": "Retrieval",
}
ALWAYS = ["Settings and environment", "What the quantities mean", "Notes"]
SMALL = {"depth": 5, "steps": 6}


def headings(diagnosis):
    return [s.heading for s in diagnosis_page(diagnosis, {}).sections]


@pytest.fixture(scope="module")
def html():
    return render_page(diagnosis_page(made_up_diagnosis(**SMALL)))


def test_the_page_is_whole_and_needs_no_network(html):
    found = check(html)
    text = " ".join(" ".join(found.text).split())
    assert "Diagnosis of smollm2-135m, pruned" in text
    assert "Removed: -[1-2,3.attn], chosen by margin:arc_easy" in text
    assert "Dense: 5 blocks, 134.5 M parameters; pruned: 3 blocks, 127.4 M parameters" in text
    assert all(name in text for name in QUANTITIES)
    assert found.tags.count("figure") == 9
    assert html.index("Verdicts") < html.index("Each site alone")


def test_cards_say_level_number_limits_and_advice(html):
    text = " ".join(html.split())
    for level, tone in (("safe", "good"), ("risky", "fair"), ("broken", "bad")):
        assert f'<span class="badge {tone}">{level}</span>' in text
    assert "−0.04 [−0.075, −0.005]" in text
    assert "risky: safe from −0.02, broken below −0.1 <em>the interval crosses a limit</em>" in text
    assert "broken: safe up to 0.05, broken above 0.5" in text
    assert text.count('<span class="flag">not settled</span>') == 1
    assert "remove fewer blocks" in text


def test_the_same_record_gives_the_same_page(html):
    assert render_page(diagnosis_page(made_up_diagnosis(**SMALL))) == html


@pytest.mark.parametrize("missing", PARTS)
def test_sections_follow_the_record(missing):
    found = headings(made_up_diagnosis(parts=[p for p in PARTS if p != missing], **SMALL))
    assert found == [s for p, s in SECTIONS.items() if p != missing] + ALWAYS


def test_a_record_of_nothing_still_says_what_was_asked():
    found = made_up_diagnosis(parts=(), **SMALL).model_copy(
        update={"notes": (), "settings": {}, "environment": {}, "seconds": {}}
    )
    assert headings(found) == ALWAYS[:2]
    check(render_page(diagnosis_page(found, {})))


@pytest.mark.parametrize(
    "options", [{"prompts": 1}, {"checkpoint": True}, {"local": False}, {"final": False}], ids=str
)
def test_records_of_all_kinds(options):
    found = check(render_page(diagnosis_page(made_up_diagnosis(**SMALL, **options), {})))
    text = " ".join(found.text)
    assert ("no interval" in text) == ("prompts" in options)
    assert ("org/other-model against smollm2-135m" in text) == ("checkpoint" in options)


def test_texts_of_models_are_shown_and_not_obeyed():
    whole = made_up_diagnosis(**SMALL)
    odd = "\x00\u202e\u200b\ud800 שלום " + EVIL
    examples = (
        Example(prompt=odd, dense=odd, other="", first_divergence=1),
        Example(prompt="x" * 9000, dense=EVIL * 90, other=EVIL * 91, first_divergence=None),
    )
    found = whole.model_copy(
        update={
            "free_runs": whole.free_runs.model_copy(update={"examples": examples}),
            "notes": (EVIL,),
            "settings": {EVIL: {EVIL: EVIL}},
            "environment": {EVIL: EVIL},
            "dense": whole.dense.model_copy(update={"id": EVIL}),
            "other": whole.other.model_copy(update={"name": EVIL, "objective": EVIL}),
            "layerwise": whole.layerwise.model_copy(
                update={"skipped": {EVIL: EVIL}, "notes": (EVIL,)}
            ),
            "choices": tuple(o.model_copy(update={"task": EVIL}) for o in whole.choices),
        }
    )
    html = render_page(diagnosis_page(found))
    check(html)
    assert "<script" not in html
    assert "\x00" not in html
    assert "(7000 characters before) … xxx" in html
    assert "First different token: 1." in html
    assert "No token differs." in html


def test_examples_that_are_left_out_are_counted():
    whole = made_up_diagnosis(parts=["free_runs"], **SMALL)
    examples = whole.free_runs.examples * 6
    update = {"free_runs": whole.free_runs.model_copy(update={"examples": examples})}
    html = render_page(diagnosis_page(whole.model_copy(update=update)))
    assert html.count('class="prompt"') == 8
    assert "4 more are in diagnosis.json" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.123"), (-0.02, "−0.02"), (0.0, "0"), (12.0, "12"), (123456.7, "123,457"),
        (1e-5, "1.00e-5"), (-1e-5, "−1.00e-5"), (math.nan, "no number"), (math.inf, "∞"),
        (-math.inf, "−∞"), (None, "–"), (1000.0, "1,000"), (999.6, "1,000"), (0.9996, "1"),
    ],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_intervals_and_limits():
    assert interval(0.5, 0.4, 0.6) == "0.5 [0.4, 0.6]"
    assert interval(0.5, None, None) == "0.5"
    higher = reason(0.8, 0.75, 0.85, safe=0.9, broken=0.6)
    assert limits(higher) == "safe from 0.9, broken below 0.6"
    assert limits(reason(0.1, None, None)) == "safe up to 0.05, broken above 0.5"


def reason(value, low, high, safe=0.05, broken=0.5):
    return Reason(
        measure="m", meaning="", value=value, low=low, high=high, count=32,
        safe=safe, broken=broken, level="risky", settled=False,
    )  # fmt: skip


def test_gauges_put_the_limits_at_thirds():
    for safe, broken in ((0.05, 0.5), (0.9, 0.6)):
        at = [gauge(reason(v, None, None, safe, broken)).value for v in (safe, broken)]
        assert at == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    # Ends are given from the good side, whichever direction that is.
    found = gauge(reason(0.8, 0.7, 0.85, safe=0.9, broken=0.6))
    assert 0 <= found.low < found.value < found.high <= 1
    assert gauge(reason(1e9, None, None)).value == 1
    assert gauge(reason(math.inf, -math.inf, math.inf)).low == 0
    assert gauge(reason(math.nan, None, None)) is None
    assert gauge(reason(1.0, None, None, safe=1.0, broken=1.0)) is None


def test_settings_are_flat():
    assert flat({"a": {"b": [1, 2], "c": None}, "d": [], "e": {}, "f": 0}) == [
        ("a.b", "1, 2"), ("a.c", "none"), ("d", "none"), ("e", "none"), ("f", "0"),
    ]  # fmt: skip
