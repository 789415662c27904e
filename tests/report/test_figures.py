"""Figures: every panel is there, odd values break nothing, the bytes are the same twice."""

import math

import matplotlib as mpl
import pytest

from shoal.core.plan import ModelRef
from shoal.core.units import Granularity
from shoal.engine.ledger import TraceRow
from shoal.report.figures import save, score_figure, trace_figure
from shoal.report.scores import ScoreReport


def report(depth=6, windows=True, **scores):
    scores = scores or {"block_influence": tuple(0.1 * (i + 1) for i in range(depth))}
    return ScoreReport(
        model=ModelRef(id="toy", fingerprint="0"),
        depth=depth,
        dtype="float32",
        device="cpu",
        objective="nll:wikitext2",
        examples=3,
        data={},
        scores=scores,
        angular_windows={
            n: tuple(0.1 * n + 0.01 * i for i in range(depth - n + 1)) for n in range(1, depth + 1)
        }
        if windows
        else {},
    )


def row(i, loss, best=None, complete=True):
    return TraceRow(0, "", loss, 0.1, complete, best, i, 0.0, 0.0)


def test_a_panel_per_score_and_one_for_windows():
    figure = score_figure(report(block_influence=(0.1,) * 6, unheard_of=(1.0,) * 6))
    titles = [a.get_title(loc="left") for a in figure.axes]
    assert {"Block influence", "unheard_of", "Angular distance over windows"} <= set(titles)


@pytest.mark.parametrize(
    "values",
    [
        (math.nan,) * 6,
        (0.0,) * 6,
        (math.nan, math.inf, 1.0, 2.0, 3.0, 4.0),
        (1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e3),
        (5.0,) * 6,
    ],
)
def test_odd_scores(values, tmp_path):
    save(score_figure(report(taylor=values)), tmp_path / "odd")


@pytest.mark.parametrize("odd", [(1.0, 2.0), (1.0, 1.1), (math.nan, 100.0)])
@pytest.mark.parametrize(
    ("granularity", "units", "kinds"),
    [
        ("attn+mlp", [f"{i}.{p}" for i in range(6) for p in ("attn", "mlp")], ["attention", "MLP"]),
        ("half", ["0", "0.mlp+1.attn", "1", "1.mlp+2.attn", "2"], ["block", "half step"]),
        ("mlp", ["0.mlp", "3.mlp"], []),
    ],
)
def test_two_kinds_of_units_are_told_apart(granularity, units, kinds, odd, tmp_path):
    values = tuple(odd[i % 2] for i in range(len(units)))
    found = report(windows=False, taylor=values).model_copy(
        update={"granularity": Granularity(granularity), "units": tuple(units)}
    )
    figure = score_figure(found)
    legend = figure.axes[0].get_legend()
    assert [t.get_text() for t in legend.get_texts()] == kinds if kinds else legend is None
    save(figure, tmp_path / "parts")


def test_ranks_put_what_is_no_number_last():
    found = report(taylor=(2.0, math.nan, 1.0, 1.0, -1.0, 3.0))
    assert found.order("taylor") == [4, 2, 3, 0, 5, 1]
    assert found.ranks("taylor") == [4, 6, 2, 3, 1, 5]
    assert found.best_window(2) == range(0, 2)
    again = ScoreReport.model_validate_json(found.model_dump_json())
    assert again.ranks("taylor") == found.ranks("taylor")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(1, 3.0)],
        [row(1, math.nan), row(2, math.inf)],
        [row(1, 3.0, 3.0), row(2, 300.0, 3.0), row(3, math.nan, 3.0), row(4, 2.0, 2.0, False)],
    ],
)
@pytest.mark.parametrize("dense", [None, 1.5, math.nan])
def test_odd_traces(rows, dense, tmp_path):
    save(trace_figure(rows, dense=dense, title="t"), tmp_path / "trace")


def test_the_best_line_and_the_dense_line_are_drawn():
    rows = [row(i, 5 - 0.1 * i, 5 - 0.1 * i) for i in range(1, 11)]
    axes = trace_figure(rows, dense=2.0).axes[0]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["evaluated", "best so far (4)", "dense model (2)"]
    low, high = axes.get_ylim()
    assert low < 2.0 < 4.9 < high


def test_saving_is_deterministic_and_leaves_the_process_alone(tmp_path):
    before = dict(mpl.rcParams)
    first, second = (
        [p.read_bytes() for p in save(score_figure(report()), tmp_path / f"v1.{i}")]
        for i in range(2)
    )
    assert first == second
    assert {p.name for p in tmp_path.iterdir()} == {
        "v1.0.png",
        "v1.0.svg",
        "v1.1.png",
        "v1.1.svg",
    }
    assert dict(mpl.rcParams) == before
