"""Figures of a lab run: what was measured is drawn, what was not is left out, odd values fit."""

import math

import pytest

from shoal.lab.study import LabRun
from shoal.report.inline import inline_svg
from shoal.report.lab.alphas import alphas_figure
from shoal.report.lab.figures import lab_figures
from shoal.report.lab.gaps import gaps_figure, result
from shoal.report.lab.inverses import inverses_figure, undone, without_gain
from shoal.report.lab.marks import gain_scale, ratio_scale
from shoal.report.lab.relation import relation_figure, singles
from shoal.report.lab.signatures import counted
from shoal.testing.lab_runs import made_up_lab_run

SHIFTS = {"lengths", "gain", "controls", "transfer", "removed", "saturation"}
GEOMETRY = {"gaps", "relation", "signatures", "alphas", "inverses"}
SMALL = {
    "models": (("narrow-0", 1.0), ("narrow-1", 1.0), ("wide-0", 5.0)),
    "sigmas": (1.0, 8.0),
    "geometry_sigmas": (1.0, 8.0),
    "depth": 4,
    "points": 4,
}
PAIR = {"models": (("narrow-0", 1.0), ("wide-0", 5.0))}
CHANGED = {
    *("value", "low", "high", "loss", "dense", "largest", "largest_y", "bound", "random_better"),
    *("before", "after", "norm", "distance", "cosine", "gain_change", "rank_change", "r2"),
    *("near_bound", "beyond_bound", "share", "selection", "factor"),
}


@pytest.fixture(scope="module")
def whole():
    return made_up_lab_run(**SMALL)


@pytest.fixture(scope="module")
def drawn(whole):
    return lab_figures(whole)


def with_values(run, change):
    """The same with other numbers wherever something was measured."""

    def walk(value, key=""):
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [walk(v, key) for v in value]
        return change(value) if key in CHANGED and isinstance(value, float) else value

    return LabRun.model_validate(walk(run.model_dump()))


def titles(figure):
    return [a.get_title(loc="left") for a in figure.axes if a.get_title(loc="left")]


def legend(figure):
    return [t.get_text() for one in figure.legends for t in one.get_texts()]


def test_everything_measured_is_drawn(drawn):
    assert set(drawn) == SHIFTS | GEOMETRY


def test_without_geometry_the_shifts_are_drawn(whole):
    assert set(lab_figures(whole.model_copy(update={"geometries": ()}))) == SHIFTS


def test_without_models_nothing_is_drawn():
    assert lab_figures(LabRun(settings={}, models=())) == {}


def test_where_nothing_is_removed_no_geometry_is_drawn():
    found = made_up_lab_run(dense=True, **SMALL)
    assert set(lab_figures(found)) == SHIFTS


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda v: math.nan, id="nan"),
        pytest.param(lambda v: math.inf, id="inf", marks=pytest.mark.slow),
        pytest.param(lambda v: 0.0, id="zero", marks=pytest.mark.slow),
        pytest.param(lambda v: -1e6 * v, id="huge and negative", marks=pytest.mark.slow),
        pytest.param(
            lambda v: (
                math.inf if v > 0.5 else v if v > 0.1 else math.nan if v > 0.01 else v * 1e-14
            ),
            id="mixed",
        ),
    ],
)
def test_odd_values(change):
    found = made_up_lab_run(**(SMALL | PAIR))
    for figure in lab_figures(with_values(found, change)).values():
        figure.draw_without_rendering()


@pytest.mark.parametrize(
    "options",
    [
        {"models": (("only", 1.0),)},
        pytest.param({"functions": 1}, marks=pytest.mark.slow),
        pytest.param({"sigmas": ()}, marks=pytest.mark.slow),
        pytest.param({"points": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_records_of_all_kinds(options):
    for figure in lab_figures(made_up_lab_run(**(SMALL | PAIR | options))).values():
        figure.draw_without_rendering()


def test_text_is_the_same_twice(whole, drawn):
    again = lab_figures(whole)
    for name in ("gain", "transfer", "inverses"):
        assert inline_svg(drawn[name], name) == inline_svg(again[name], name)


def test_names_hold_no_formulas(whole):
    model = whole.models[0].model_copy(update={"model": "$x^{$ " + "a" * 90})
    placed = whole.geometries[0].model_copy(update={"model": "$x^{$ " + "a" * 90})
    odd = whole.model_copy(update={"models": (model,), "geometries": (placed,)})
    for name, figure in lab_figures(odd).items():
        if name in {"lengths", "gain", "gaps", "alphas", "inverses"}:
            inline_svg(figure, name)


def test_gains_have_a_panel_per_range_and_a_mean_over_models(whole, drawn):
    figure = drawn["gain"]
    assert titles(figure) == ["trained on U(-1,1)", "trained on U(-5,5)"]
    assert "mean over models, 95% t-interval" in legend(figure)
    left, right = figure.axes
    # A mean stands only where there is more than one model.
    assert sum(line.get_label().startswith("mean") for line in left.lines) == 1
    assert not any(line.get_label().startswith("mean") for line in right.lines)
    gain = next(m for m in whole.models[2].shifts[-1].masks if m.name == "best").test.gain
    drawn_at = [float(y) for line in right.lines for y in line.get_ydata()]
    assert pytest.approx(gain.value) in drawn_at


def test_controls_are_drawn_for_each_model(whole, drawn):
    assert titles(drawn["controls"]) == ["narrow-0", "narrow-1", "wide-0"]
    assert {"BEST", "best single block", "dense model, output rescaled"} <= set(
        legend(drawn["controls"])
    )


def test_removed_blocks_are_filled(whole, drawn):
    from matplotlib.colors import to_hex

    from shoal.report.style import ACCENT

    for axes, model in zip(drawn["removed"].axes, whole.models, strict=True):
        filled = [p for p in axes.patches if to_hex(p.get_facecolor()) == ACCENT]
        assert len(filled) == sum(s.selection.best.num_blocks for s in model.shifts)


def test_lengths_count_the_points_seen(whole, drawn):
    axes = drawn["lengths"].axes[0]
    dense = next(line for line in axes.lines if line.get_label() == "dense model")
    assert list(dense.get_xdata()) == [0, 1, 2, 3]
    wanted = whole.models[0].shifts[0].lengths["dense"].value
    assert list(dense.get_ydata()) == [pytest.approx(v) for v in wanted]
    # What is nearly exact does not take the whole axis.
    assert axes.get_ylim()[0] > 1e-6


def test_transfer_has_a_number_in_every_cell(whole, drawn):
    left = drawn["transfer"].axes[0]
    assert len(left.texts) == 4
    assert left.texts[0].get_text() == "1.00"


def test_a_gap_is_closer_only_where_its_interval_is(whole):
    change = whole.geometries[0].geometry.changes["norm"]
    for low, high, wanted in (
        (-2.0, -1.0, "closer"), (1.0, 2.0, "further"), (-1.0, 1.0, "not settled"),
        (None, None, "not settled"), (-1.0, 0.0, "not settled"),
    ):  # fmt: skip
        mean = change.change.model_copy(update={"low": low, "high": high})
        assert result(change.model_copy(update={"change": mean})) == wanted
    rows = [t.get_text() for t in gaps_figure(whole.geometries).axes[0].get_yticklabels()]
    assert rows == ["narrow-0, σ 8", "narrow-1, σ 8", "wide-0, σ 1", "wide-0, σ 8"]


def test_amplifiers_are_counted_where_they_are_judged(whole, drawn):
    every = [s for p in whole.geometries for s in p.geometry.signatures]
    mine = counted(every, selected=True)
    assert mine[1] == sum(s.selected and s.amplifier is not None for s in every)
    assert mine[0] == sum(s.selected and s.amplifier is True for s in every)
    assert len(titles(drawn["signatures"])) == 4
    assert titles(drawn["signatures"])[2].startswith("narrower than training, x positions")


def test_alpha_one_is_the_dense_model(whole):
    figure = alphas_figure(whole.geometries, {"narrow-0": "A", "narrow-1": "A", "wide-0": "B"})
    assert titles(figure) == ["A → σ 8", "B → σ 1", "B → σ 8"]
    for axes in figure.axes[::2]:
        thick = [line for line in axes.lines if line.get_label() == "blocks that BEST removes"]
        values = dict(zip(*thick[0].get_data(), strict=True))
        assert values[1.0] == pytest.approx(1)


def test_single_removals_are_compared_with_the_dense_model(whole):
    placed = whole.geometries[0]
    found = singles(placed)
    points = {p.group: p for p in placed.geometry.points if p.intervention == "removed"}
    dense = next(p for p in placed.geometry.points if p.intervention == "dense")
    assert len(found) == 4
    assert found[2].loss == pytest.approx(points["2"].loss_ood.value / dense.loss_ood.value)
    assert found[2].gap == pytest.approx(points["2"].gaps.distance / dense.gaps.distance)
    assert [i for i, s in enumerate(found) if s.selected] == list(placed.geometry.mask.blocks)
    bare = placed.model_copy(update={"geometry": placed.geometry.model_copy(update={"points": ()})})
    assert singles(bare) == []
    assert relation_figure([bare], {}) is None


def test_shares_of_the_gain_that_come_back(whole):
    rows = undone(whole.geometries)
    assert rows
    for row in rows:
        assert row.best("inverse") == pytest.approx(0.9)
        assert row.best("rotated") == pytest.approx(0.1)
        assert row.gain > 0
    assert len(rows) + without_gain(whole.geometries) == 4
    assert inverses_figure(()) is None


def test_scales_hold_zero_and_cut_off_costs():
    scale = gain_scale([-800.0, 0.5, None, math.nan, math.inf])
    assert -1.3 < scale.low < -1
    assert scale.place(-800.0) == scale.low
    assert 0.5 < scale.high < 0.7
    assert gain_scale([]).low < 0 < gain_scale([]).high
    ratio = ratio_scale([2.0, 0.0, math.inf, math.nan, None])
    assert ratio.low == pytest.approx(1 / ratio.high)
    assert 2 < ratio.high < 3
