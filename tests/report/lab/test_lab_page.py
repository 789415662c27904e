"""The page of a lab run: its numbers are the record's, it stands by itself, odd records fit."""

import math

import pytest

from shoal.lab.study import Claim, Evidence, LabRun
from shoal.report.lab.cards import claim_card
from shoal.report.lab.findings import controls_told, cost_told, gains_told, gaps_told
from shoal.report.lab.geometry_tables import alphas_table, gaps_table, inverses_table
from shoal.report.lab.inverses import undone
from shoal.report.lab.page import lab_page
from shoal.report.lab.tables import (
    controls_table,
    evidence_table,
    learning_table,
    mean_gains_table,
    saturation_table,
    shifts_table,
    transfer_table,
)
from shoal.report.page import render_page
from shoal.report.words import number
from shoal.testing.lab_runs import made_up_lab_run
from shoal.testing.pages import EVIL, check

SMALL = {
    "models": (("narrow-0", 1.0), ("narrow-1", 1.0), ("wide-0", 5.0)),
    "sigmas": (1.0, 8.0),
    "geometry_sigmas": (1.0, 8.0),
    "depth": 4,
    "points": 4,
}


@pytest.fixture(scope="module")
def run():
    return made_up_lab_run(**SMALL)


@pytest.fixture(scope="module")
def html(run):
    return render_page(lab_page(run))


def words(html):
    return " ".join(" ".join(check(html).text).split())


def headings(run):
    return [s.heading for s in lab_page(run, {}).sections]


def best(shift):
    return next(m for m in shift.masks if m.name == "best")


def test_the_page_is_whole_and_needs_no_network(html):
    found = check(html)
    assert found.tags.count("figure") == 11
    text = words(html)
    for word in ("In-context regression", "Shift:", "TALE chooses", "BEST is", "A cell is"):
        assert word in text
    assert "2 models trained on U(-1,1), 1 model trained on U(-5,5)." in text
    assert html.index("What this is about") < html.index("Claims and answers")


def test_the_same_record_gives_the_same_page():
    first, again = (lab_page(made_up_lab_run(**SMALL), {}) for _ in range(2))
    assert render_page(first) == render_page(again)


def test_every_claim_has_a_card_with_its_answer_and_counts(run, html):
    tones = {"holds": "good", "holds in part": "fair", "does not hold here": "bad"}
    text = " ".join(html.split())
    for claim in run.claims:
        card = claim_card(claim)
        assert (card.title, card.word) == (claim.name, claim.answer)
        assert card.tone == tones.get(claim.answer, "plain")
        supporting = sum(e.supports for e in claim.evidence)
        assert card.facts[0].value in ("–", f"{supporting} of {len(claim.evidence)} cells")
        assert f">{claim.answer}</span>" in text
    assert ("from 1 model only" in text) == any(c.models == 1 for c in run.claims)


def test_what_was_not_tested_is_plain_and_has_no_counts():
    claim = Claim(
        name="n", statement="s", decides="d", answer="not tested", summary="none", models=0,
        evidence=(),
    )  # fmt: skip
    card = claim_card(claim)
    assert (card.tone, card.flag, card.facts[0].value) == ("plain", "", "–")


def test_few_models_are_said():
    one = Evidence(model="m", task="t", value=1.0, supports=True)
    claim = Claim(
        name="n", statement="s", decides="d", answer="holds", summary="", models=2, evidence=(one,),
        facts={"a number": 0.25},
    )  # fmt: skip
    assert claim_card(claim).flag == "from 2 models only"
    assert claim_card(claim).facts[2].limits == "A number: 0.25."
    assert claim_card(claim.model_copy(update={"models": 3})).flag == ""
    assert evidence_table(claim).rows == [["m", "t", "1", "yes", ""]]


def test_tables_hold_the_numbers_of_the_record(run):
    model = run.models[0]
    rows = {row[0]: row for row in shifts_table(model).rows}
    assert list(rows) == ["1*", "8"]
    shift = next(s for s in model.shifts if s.sigma == 8)
    gain, row = best(shift).test.gain, rows["8"]
    assert row[1] == str(shift.selection.best)[2:-1]
    assert row[2].startswith(number(shift.masks[0].test.loss.value))
    assert row[3].startswith(number(best(shift).test.loss.value))
    assert row[4] == (
        f"{number(100 * gain.value)}%\n[{number(100 * gain.low)}%, {number(100 * gain.high)}%]"
    )
    assert rows["1*"][1] == "nothing"
    single = next(m for m in shift.masks if m.name == "single").test.gain.value
    beyond = shift.saturation.best_beyond_scale.gain.value
    row = controls_table(model).rows[1]
    assert row[2].startswith(f"{number(100 * single)}%")
    assert row[5] == f"{number(100 * shift.random_better)}%"
    assert row[7].startswith(f"{number(100 * beyond)}%")
    sizes = saturation_table(model).rows[1]
    assert sizes[1:4] == [
        number(shift.saturation.largest_y),
        number(shift.saturation.ranges["dense"].largest),
        number(shift.saturation.ranges["best"].largest),
    ]


def test_means_over_models_say_how_many_and_where_nothing_is_removed(run):
    rows = mean_gains_table(run.models).rows
    assert [row[:4] for row in rows if row[0] == "U(-1,1)"] == [
        ["U(-1,1)", "1*", "2", "2"],
        ["U(-1,1)", "8", "2", "0"],
    ]
    assert [row[4] for row in rows if row[:2] == ["U(-1,1)", "1*"]] == ["0% [0%, 0%]"]
    alone = next(row[4] for row in rows if row[:2] == ["U(-5,5)", "8"])
    gain = next(best(s) for s in run.models[2].shifts if s.sigma == 8).test.gain
    assert alone == f"{number(100 * gain.value)}%"


def test_learning_is_told_per_model(run):
    rows = learning_table(run).rows
    assert [row[:3] for row in rows] == [
        ["narrow-0", "U(-1,1)", "0"], ["narrow-1", "U(-1,1)", "1"], ["wide-0", "U(-5,5)", "2"],
    ]  # fmt: skip
    assert all(row[-1].startswith("800") for row in rows)
    bare = learning_table(run.model_copy(update={"learning": ()}))
    assert [row[-1] for row in bare.rows] == ["–"] * 3


def test_transfer_and_geometry_tables(run):
    table = transfer_table("U(-5,5)", [run.models[2]])
    assert table.header == ["chosen on", "1", "5 (training)", "8"]
    placed = run.geometries[0]
    change = placed.geometry.changes["distance"]
    row = next(r for r in gaps_table([placed]).rows if r[2] == "distances")
    assert row[3:5] == [number(change.before), number(change.after)]
    row = alphas_table([placed])
    gain = best(next(s for s in run.models[0].shifts if s.sigma == 8)).test.gain.value
    assert row.rows[0][1] == number(1 - gain)
    assert row.rows[0][4] == "0"
    assert inverses_table(undone([placed])).rows[0][2:5] == ["90%", "−200%", "10%"]


def test_counts_above_the_figures(run):
    assert gains_told(run.models).startswith(
        "Intervals of the gain of BEST: in distribution, 0 of 3 above zero, 0 below (median gain "
        "0%); on wider tasks, 3 of 3 above zero"
    )
    assert controls_told(run.models).startswith("Of 3 cells on wider tasks")
    chosen = [
        1 - c.test.gain.value
        for m in run.models
        for c in m.transfer
        if c.chosen_on == "U(-8,8)" and c.task == m.shifts[0].task
    ]
    middle = math.exp(sum(map(math.log, chosen)) / 3)
    assert f"by a factor of {number(middle)} (geometric mean of 3)" in cost_told(run.models)
    assert gaps_told(run.geometries).startswith("On wider tasks, norms: ")
    assert (gains_told(()), controls_told(()), cost_told(()), gaps_told(())) == ("",) * 4


def test_sections_follow_the_record(run):
    assert headings(run.model_copy(update={"geometries": (), "claims": (), "notes": ()})) == [
        "What this is about",
        "Have the models learned?",
        "Does removing blocks help?",
        "Do simpler things help as much?",
        "What does a mask do on other tasks?",
        "Is it only the size of the predictions?",
        "Settings and how to redo it",
    ]
    assert {
        "Claims and answers", "Does the geometry come back?", "Are the removed blocks amplifiers?",
        "Do the removed blocks cause it?", "Notes",
    } <= set(headings(run))  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"functions": 1}, {"models": (("only", 1.0),)}, {"dense": True}, {"geometry_sigmas": ()}],
    ids=str,
)
def test_records_of_all_kinds(options):
    check(render_page(lab_page(made_up_lab_run(**(SMALL | options)), {})))


def test_a_record_of_nothing_says_what_was_asked():
    page = lab_page(LabRun(settings={}, models=()))
    assert [s.heading for s in page.sections] == [
        "What this is about", "Settings and how to redo it",
    ]  # fmt: skip
    check(render_page(page))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1e12])
def test_odd_values_are_written(run, value):
    def walk(part, key=""):
        if isinstance(part, dict):
            return {k: walk(v, k) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return [walk(v, key) for v in part]
        keys = {"value", "low", "high", "loss", "before", "after", "largest", "r2", "distance"}
        return value if key in keys and isinstance(part, float) else part

    odd = LabRun.model_validate(walk(run.model_dump()))
    check(render_page(lab_page(odd, {})))


def test_names_and_notes_are_shown_and_not_obeyed(run):
    models = tuple(m.model_copy(update={"model": m.model + EVIL}) for m in run.models)
    placed = tuple(
        p.model_copy(update={"model": p.model + EVIL, "task": EVIL}) for p in run.geometries
    )
    odd = run.model_copy(
        update={
            "models": models, "geometries": placed, "notes": (EVIL,),
            "settings": {EVIL: EVIL}, "environment": {EVIL: EVIL}, "seconds": {EVIL: 1.0},
        }
    )  # fmt: skip
    html = render_page(lab_page(odd, {}))
    check(html)
    assert "<script" not in html


def test_the_made_up_run_is_a_record(run):
    assert LabRun.model_validate_json(run.model_dump_json()) == run
    assert made_up_lab_run(**SMALL) == run
    assert made_up_lab_run(1, **SMALL) != run
