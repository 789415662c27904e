"""Figures of a geometry: what was measured is drawn, what was not is left out, odd values fit."""

import math
import warnings

import pytest

from shoal.core.mask import Mask
from shoal.geometry.records import Geometry
from shoal.report.geometry.figures import geometry_figures
from shoal.report.geometry.marks import log_ratio
from shoal.report.geometry.plane import plane_figure
from shoal.report.inline import inline_svg
from shoal.report.marks import fit_close, fit_signed
from shoal.testing.geometries import PARTS, made_up_geometry

FIGURES = {
    "profiles": {"profiles", "profiles_last"},
    "changes": {"gaps"},
    "linear": {"surrogates"},
    "signatures": {"signatures"},
    "points": {"removal", "alphas", "inverse"},
}
SMALL = {"depth": 4, "classes": ["all"]}


@pytest.fixture(scope="module")
def whole():
    return made_up_geometry()


@pytest.fixture(scope="module")
def drawn(whole):
    return geometry_figures(whole)


def with_values(found, change):
    """The same with other numbers wherever there is one that was measured."""

    def walk(value, fixed=False):
        if isinstance(value, dict):
            return {
                k: walk(v, fixed or k in {"alpha", "ridge", "settings"}) for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [walk(v, fixed) for v in value]
        return change(value) if isinstance(value, float) and not fixed else value

    return Geometry.model_validate(walk(found.model_dump()))


def titles(figure):
    return [a.get_title(loc="left") for a in figure.axes if a.get_title(loc="left")]


def rows(axes):
    return [t.get_text() for t in axes.get_yticklabels()]


@pytest.mark.parametrize("missing", PARTS)
def test_a_part_that_was_not_measured_has_no_figure(missing):
    found = made_up_geometry(parts=[p for p in PARTS if p != missing], **SMALL)
    assert set(geometry_figures(found)) == set().union(*FIGURES.values()) - FIGURES[missing]


def test_nothing_measured_nothing_drawn():
    assert geometry_figures(made_up_geometry(parts=())) == {}


def test_without_a_plan_nothing_is_shaded_and_no_pruned_line_drawn():
    found = geometry_figures(made_up_geometry(plan=False, singles=False, **SMALL))
    assert set(found) == {"profiles", "profiles_last", "surrogates", "signatures"}
    assert [t.get_text() for t in found["profiles"].legends[0].get_texts()] == ["ID", "OOD"]
    assert not any(a.patches for a in found["profiles"].axes)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda v: math.nan, id="nan"),
        pytest.param(lambda v: math.inf, id="inf", marks=pytest.mark.slow),
        pytest.param(lambda v: 0.0, id="zero", marks=pytest.mark.slow),
        pytest.param(lambda v: -v, id="negative", marks=pytest.mark.slow),
        pytest.param(
            lambda v: math.inf if v > 1.5 else v if v > 0.6 else math.nan if v > 0.4 else v * 1e-14,
            id="mixed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_odd_values(change):
    for figure in geometry_figures(with_values(made_up_geometry(**SMALL), change)).values():
        figure.draw_without_rendering()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"depth": 1, "classes": ["all"]},
        {"depth": 80, "classes": ["all"]},
        {"depth": 4, "sequences": 1},
        {"depth": 6, "mask": Mask.parse("-[1,2.attn,4.mlp]", 6)},
        {"depth": 3, "mask": Mask.of(3, [0, 1, 2])},
    ],
    ids=str,
)
def test_extremes_are_drawn_without_warning(options):
    found = made_up_geometry(**options)
    update = {"metric": {"id": "x" * 300, "ood": "$x^{ 質問"}, "id": "$" * 200}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = geometry_figures(found.model_copy(update=update))
        for name, figure in figures.items():
            inline_svg(figure, name)
    assert set(figures) == set().union(*FIGURES.values())


def test_the_same_record_gives_the_same_picture():
    found = made_up_geometry(**SMALL)
    assert inline_svg(plane_figure(found), "one") == inline_svg(plane_figure(found), "one")


@pytest.mark.slow
def test_the_same_record_gives_the_same_figures():
    found = made_up_geometry(**SMALL)
    first, again = geometry_figures(found), geometry_figures(found)
    for name, figure in first.items():
        assert inline_svg(figure, name) == inline_svg(again[name], name)


def test_profiles_are_those_of_the_record(whole, drawn):
    figure = drawn["profiles"]
    assert titles(figure) == ["Norm", "Distance", "Cosine distance"]
    upper = next(a for a in figure.axes if a.get_title(loc="left") == "Distance")
    lines = {line.get_label(): line for line in upper.lines}
    for label, side in (("ID", "id"), ("OOD", "ood"), ("OOD, pruned", "ood_pruned")):
        wanted = [m.value for m in whole.profiles[side].distance]
        assert lines[label].get_ydata().tolist() == pytest.approx(wanted)
    assert lines["ID, pruned"].get_linewidth() < lines["ID"].get_linewidth()
    assert upper.get_yscale() == "log"
    # Blocks 6 to 8 lie between depths 6 and 9.
    spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in upper.patches)
    assert spans == [(6, 7), (7, 8), (8, 9)]


def test_lower_panels_are_log_ratios_to_the_dense_id_profile(whole, drawn):
    lower = drawn["profiles"].axes[1]
    lines = {line.get_label(): line.get_ydata() for line in lower.lines}
    norms = {k: [m.value for m in p.norm] for k, p in whole.profiles.items()}
    pairs = zip(norms["ood_pruned"], norms["id"], strict=True)
    assert list(lines["OOD, pruned"]) == pytest.approx([math.log(a / b) for a, b in pairs])


def test_last_distances_of_one_sequence_have_no_panel():
    assert titles(geometry_figures(made_up_geometry(sequences=1, **SMALL))["profiles_last"]) == [
        "Norm, last"
    ]


def test_gaps_show_a_direction_only_where_the_interval_does(drawn):
    left, right = drawn["gaps"].axes
    assert rows(left)[:3] == ["Norm", "Distance", "Cosine distance"]
    faces = [c.get_facecolor()[0].tolist() for c in right.collections]
    hollow = [face[:3] == [1, 1, 1] for face in faces]
    assert hollow == [False, False, True, True, False, True]
    lone = geometry_figures(made_up_geometry(sequences=1, **SMALL))["gaps"].axes[1]
    assert all(c.get_facecolor()[0].tolist()[:3] == [1, 1, 1] for c in lone.collections)


def test_surrogates_have_a_column_per_class_and_the_rejected_are_hollow(whole, drawn):
    axes = drawn["surrogates"].axes
    assert titles(drawn["surrogates"]) == ["x positions", "y positions"]
    assert len(axes) == 6
    r2 = axes[4]
    rejected = {False: [], True: []}
    for c in r2.collections:
        face = c.get_facecolor()[0].tolist()[:3] if len(c.get_facecolor()) else None
        rejected[face == [1, 1, 1]] += [tuple(o) for o in c.get_offsets()]
    wanted = {(r.layer, r.r2) for r in whole.linear if r.positions == "x" and not r.accepted}
    assert wanted
    assert {(int(x), float(y)) for x, y in rejected[True]} == wanted
    assert len(rejected[False]) + len(rejected[True]) == 24


def test_signature_plane_labels_the_removed_blocks():
    found = made_up_geometry(depth=20, classes=["all"])
    axes = geometry_figures(found)["signatures"].axes[0]
    texts = [t.get_text() for t in axes.texts]
    removed = [str(b) for b in found.mask.blocks]
    assert texts == ["gain up, rank down", *removed]
    dots = [tuple(o) for c in axes.collections for o in c.get_offsets() if len(c.get_offsets())]
    wanted = {(s.gain_change, s.rank_change) for s in found.signatures}
    assert wanted <= {(float(x), float(y)) for x, y in dots}


def test_few_blocks_are_all_labelled_and_those_without_a_number_counted(whole):
    rows = list(whole.signatures)
    rows[0] = rows[0].model_copy(update={"gain_change": math.nan})
    figure = geometry_figures(whole.model_copy(update={"signatures": tuple(rows)}))["signatures"]
    first, second = figure.axes
    assert len(first.texts) == 1 + 11
    assert len(second.texts) == 1 + 12
    assert "1 without a number" in first.get_xlabel()


def test_alpha_curves_end_at_the_dense_and_the_pruned_model(whole):
    points = tuple(p for p in whole.points if p.alpha not in (0.0, 1.0))
    cut = whole.model_copy(update={"points": points})
    axes = geometry_figures(cut)["alphas"].axes
    assert [a.get_title(loc="left") for a in axes] == [
        "OOD loss", "ID loss", "Gap of the norms", "Gap of the distances",
    ]  # fmt: skip
    line = next(one for one in axes[0].lines if one.get_label() == "selected sites")
    assert list(line.get_xdata()) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    named = {(p.intervention, p.group): p.loss_ood.value for p in points}
    assert line.get_ydata()[0] == pytest.approx(named["removed", "selected"])
    assert line.get_ydata()[4] == pytest.approx(named["dense", "none"])
    others = [one for one in axes[0].lines if one.get_label() == "other sites, as many"]
    assert len(others) == 3


def test_inverse_rows_put_the_best_ridge_first(whole, drawn):
    axes = drawn["inverse"].axes[0]
    assert rows(axes) == [
        "dense",
        "removed",
        "inverse, ridge 0.001, R² 0.947 (best)",
        "inverse, ridge 1e-6, R² 0.947",
        "inverse, ridge 0.1, R² 0.947",
        "random map, 3 seeds",
        "rotated inverse, 3 seeds",
    ]
    best = min(p.loss_ood.value for p in whole.points if p.intervention == "inverse")
    assert any(tuple(c.get_offsets()[0]) == (pytest.approx(best), 2) for c in axes.collections)


def test_removal_stands_beside_its_controls(whole, drawn):
    axes = drawn["removal"].axes[0]
    labels = rows(axes)
    assert labels[:3] == ["dense", "removed: -[6-8]", "as many other sites, 3 sets"]
    lowest = min((p for p in whole.points if p.group.isdigit()), key=lambda p: p.loss_ood.value)
    assert labels[3] == f"best single block: {lowest.group}"
    assert sum(len(c.get_offsets()) for c in axes.collections) == 1 + 1 + 3 + 12


def test_scales_for_values_of_either_sign():
    signed = fit_signed([0.5, 2.0])
    assert signed.low < 0 < 2.0 < signed.high
    assert fit_signed([math.nan, None, math.inf]).low < 0
    near = fit_close([2.0, 2.1])
    assert 1.9 < near.low < 2.0 < 2.1 < near.high
    assert fit_close([0.1, 1.0]).low == 0
    assert fit_close([0.01, 1.0]).log
    assert fit_close([-1.0, 1.0]).low < -1


def test_log_ratios():
    assert log_ratio(2.0, 1.0) == pytest.approx(math.log(2))
    assert log_ratio(math.inf, 1.0) == math.inf
    assert log_ratio(1.0, math.inf) == -math.inf
    for pair in ((0.0, 1.0), (1.0, 0.0), (None, 1.0), (math.nan, 1.0), (math.inf, math.inf)):
        assert math.isnan(log_ratio(*pair))


def test_the_made_up_geometry_is_a_record(whole):
    assert Geometry.model_validate_json(whole.model_dump_json()) == whole
    assert made_up_geometry() == whole
    assert made_up_geometry(seed=1) != whole
