"""Figures of a diagnosis: what was measured is drawn, what was not is left out, odd values fit."""

import math
import warnings

import pytest

from shoal.core.records import Mean
from shoal.diagnosis.records import Diagnosis
from shoal.report.diagnosis.marks import literal
from shoal.report.figures import diagnosis_figures, save
from shoal.report.inline import inline_svg
from shoal.report.marks import fit, plain_number
from shoal.testing.diagnoses import PARTS, made_up_diagnosis

FIGURES = {
    "layerwise": {"layers", "layers_end", "theorems"},
    "teacher_forced": {"teacher_forced"},
    "amplification": {"amplification"},
    "free_runs": {"free_run", "texts"},
    "choices": {"choices"},
    "retrieval": {"retrieval"},
    "verdicts": set(),
}


@pytest.fixture(scope="module")
def whole():
    return made_up_diagnosis()


@pytest.fixture(scope="module")
def drawn(whole):
    return diagnosis_figures(whole)


def with_values(diagnosis, change):
    """The same with other numbers in all means, curves and ratios."""

    def walk(value, key=""):
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [walk(v, key) for v in value]
        numeric = key in {"value", "low", "high", "ratio", "measured", "predicted", "amplified"}
        return change(value) if numeric and isinstance(value, float) else value

    return Diagnosis.model_validate(walk(diagnosis.model_dump()))


def axes_of(figure):
    found = list(figure.axes)
    for part in figure.subfigs:
        found += [a for a in part.axes if a not in found]
    return found


def legend(figure):
    legends = [*figure.legends, *(one for part in figure.subfigs for one in part.legends)]
    return [t.get_text() for one in legends for t in one.get_texts()]


@pytest.mark.parametrize("missing", PARTS)
def test_a_part_that_was_not_measured_has_no_figure(missing):
    parts = [p for p in PARTS if p != missing]
    found = set(diagnosis_figures(made_up_diagnosis(parts=parts, depth=5, steps=2)))
    assert found == set().union(*FIGURES.values()) - FIGURES[missing]


def test_nothing_measured_nothing_drawn():
    assert diagnosis_figures(made_up_diagnosis(parts=())) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda v: math.nan,
        lambda v: math.inf,
        lambda v: 0.0,
        lambda v: -v,
        lambda v: math.inf if v > 0.5 else v if v > 0.1 else math.nan if v > 0.01 else v * 1e-14,
    ],
    ids=["nan", "inf", "zero", "negative", "mixed"],
)
def test_odd_values(change):
    found = with_values(made_up_diagnosis(depth=5, steps=6), change)
    for figure in diagnosis_figures(found).values():
        figure.draw_without_rendering()


@pytest.mark.parametrize(
    "options",
    [
        {"prompts": 1},
        {"steps": 1, "prompts": 1},
        {"sublayers": False, "parts": ["layerwise"]},
        {"blocks": False, "candidates": False, "parts": ["layerwise"]},
        {"local": False, "parts": ["layerwise"]},
        {"final": False, "parts": ["layerwise"]},
        {"checkpoint": True, "parts": ["layerwise", "free_runs"]},
    ],
    ids=str,
)
def test_records_of_all_kinds(options):
    found = diagnosis_figures(made_up_diagnosis(depth=5, **{"steps": 6, **options}))
    assert ("layers" in found) == options.get("local", True)
    assert ("theorems" in found) == options.get("local", True)
    assert ("layers_end" in found) == options.get("final", True)
    for figure in found.values():
        figure.draw_without_rendering()


def test_empty_lists_of_sites_and_runs_draw_nothing(whole):
    update = {
        "layerwise": whole.layerwise.model_copy(update={"sites": ()}),
        "free_runs": whole.free_runs.model_copy(update={"runs": ()}),
        "teacher_forced": whole.teacher_forced.model_copy(update={"steps": {}}),
    }
    found = diagnosis_figures(whole.model_copy(update=update))
    assert set(found) == {"amplification", "choices", "retrieval"}


def test_bytes_are_the_same_twice(tmp_path):
    found = made_up_diagnosis(depth=5, steps=4)
    once, again = diagnosis_figures(found), diagnosis_figures(found)
    for name, figure in once.items():
        assert inline_svg(figure, name) == inline_svg(again[name], name)
    first, second = (
        [p.read_bytes() for p in save(one["free_run"], tmp_path / "free_run")]
        for one in (diagnosis_figures(found), diagnosis_figures(found))
    )
    assert first == second


def test_sub_layers_have_a_panel_each_and_the_removed_are_shaded(whole, drawn):
    axes = drawn["layers"].axes
    titles = [a.get_title(loc="left") for a in axes if a.get_title(loc="left")]
    assert titles == ["Attention dropped alone, at the site", "MLP dropped alone, at the site"]
    spaces = ["hidden states", "logits", "probabilities", "answer tokens"]
    assert legend(drawn["layers"]) == [*spaces, "removed by the plan"]
    # The plan removes two blocks and one attention more.
    shaded = [len(a.patches) for a in axes if a.get_title(loc="left")]
    assert shaded == [3, 2]
    for panel in (axes[0], axes[2]):
        assert [len(line.get_xdata()) for line in panel.lines] == [30] * 4
    assert axes[0].get_yscale() == "log"


def test_blocks_have_a_panel_where_there_are_no_sub_layers():
    figure = diagnosis_figures(made_up_diagnosis(sublayers=False))["layers"]
    titles = [a.get_title(loc="left") for a in figure.axes if a.get_title(loc="left")]
    assert titles == ["Blocks dropped alone, at the site"]


def test_a_site_that_could_not_be_run_leaves_a_gap(whole):
    sites = [s for s in whole.layerwise.sites if s.site != "7.mlp"]
    update = {"layerwise": whole.layerwise.model_copy(update={"sites": tuple(sites)})}
    figure = diagnosis_figures(whole.model_copy(update=update))["layers"]
    values = figure.axes[2].lines[0].get_ydata()
    assert [i for i, v in enumerate(values) if math.isnan(v)] == [7]


def test_every_site_has_a_dot_at_the_end_and_the_removed_a_ring(drawn):
    dots = {c.get_label(): len(c.get_offsets()) for c in drawn["layers_end"].axes[0].collections}
    assert [dots[k] for k in ("block", "attention", "MLP")] == [30, 30, 30]
    assert dots["removed by the plan"] == 2 * 3 + 1


def test_leading_terms_stand_against_exact_values(whole, drawn):
    panels = drawn["theorems"].axes
    assert [p.get_title(loc="left").partition(":")[0] for p in panels] == [
        "T1, hidden states", "T1, logits", "T2", "T3",
    ]  # fmt: skip
    blocks = next(c for c in panels[3].collections if c.get_label() == "block").get_offsets()
    sites = [s for s in whole.layerwise.sites if "." not in s.site]
    wanted = [(s.normed["kl_estimate"].value, s.normed["kl"].value) for s in sites]
    assert blocks.tolist() == [pytest.approx(pair) for pair in wanted]
    assert all(p.get_xlim() == p.get_ylim() for p in panels)


def test_steps_say_how_many_prompts_are_behind_them(drawn):
    left, right = drawn["teacher_forced"].axes
    assert len(left.lines) == 3
    assert len(right.lines) == 1
    assert left.get_xlabel() == "token after the prompt; 32 prompts, 25 at the last"
    bands = [c for c in left.collections if c.get_paths()]
    assert len(bands) == 3


def test_all_runs_are_drawn_and_the_controls_in_other_colours(whole, drawn):
    figure = drawn["free_run"]
    assert legend(figure) == [
        "pruned, greedy",
        "bfloat16 copy, greedy",
        "pruned, sampled, T = 1",
        "dense, another seed, sampled, T = 1",
        "bfloat16 copy, sampled, T = 1",
    ]
    share, kl, below = axes_of(figure)
    assert len(share.lines) == len(kl.lines) == 5
    colours = [line.get_color() for line in share.lines]
    assert colours[0] == colours[2]
    assert colours[1] == colours[4]
    assert len(set(colours)) == 3
    assert [t.get_text() for t in below.get_yticklabels()] == legend(figure)
    # Another seed of one model: no divergence before the first different token, and log axes.
    assert "0 at the left edge" in below.get_xlabel()
    at_edge = [c for c in below.collections if len(c.get_offsets()) and c.get_offsets()[0][1] == 3]
    assert min(c.get_offsets()[0][0] for c in at_edge) == below.get_xlim()[0]


def test_texts_are_grouped_by_how_they_were_decoded(drawn):
    axes = axes_of(drawn["texts"])
    assert len(axes) == 6
    assert [t.get_text() for t in axes[0].get_yticklabels()] == [
        "greedy", "dense", "pruned", "bfloat16 copy",
        "sampled, T = 1", "dense", "pruned", "dense, another seed", "bfloat16 copy",
    ]  # fmt: skip


def test_what_was_not_measured_of_texts_has_no_panel(whole):
    runs = tuple(
        r.model_copy(
            update={
                "dense_text": r.dense_text.model_copy(update={"surprise": None}),
                "other_text": r.other_text.model_copy(update={"surprise": None}),
            }
        )
        for r in whole.free_runs.runs
    )
    update = {"free_runs": whole.free_runs.model_copy(update={"runs": runs})}
    figure = diagnosis_figures(whole.model_copy(update=update))["texts"]
    assert "Surprise" not in [a.get_title(loc="left") for a in figure.axes]
    assert len(figure.axes) == 5


def test_options_and_temperatures_and_embeddings(drawn):
    left = drawn["choices"].axes[0]
    labels = [t.get_text() for t in left.get_yticklabels()]
    assert labels[:2] == ["arc_easy, options", "arc_easy, letters"]
    assert "floor: p(C) × KL in C" in legend(drawn["choices"])
    ratio, share = drawn["amplification"].axes
    assert len(ratio.lines) == 4
    assert len(share.lines) == 2
    assert [t.get_text() for t in ratio.get_xticklabels()] == ["0.5", "1", "2"]
    assert len(drawn["retrieval"].axes) == 3


def test_names_hold_no_formulas():
    whole = made_up_diagnosis(parts=["free_runs", "choices"], steps=4)
    runs = tuple(r.model_copy(update={"name": "$x^{$ a_b$"}) for r in whole.free_runs.runs)
    choices = tuple(o.model_copy(update={"task": "\\frac$ 質問"}) for o in whole.choices)
    update = {
        "free_runs": whole.free_runs.model_copy(update={"runs": runs}),
        "choices": choices,
    }
    for name, figure in diagnosis_figures(whole.model_copy(update=update)).items():
        inline_svg(figure, name)
    assert literal("a$b") == r"a\$b"
    assert len(literal("x" * 300)) < 50


def test_scales_fit_their_values():
    wide = fit([1e-3, 1.0])
    assert wide.log
    assert wide.low < 1e-3 < 1.0 < wide.high
    assert not fit([0.5, 1.0]).log
    assert fit([math.nan, None]) == fit([])
    # Zero is drawn at the edge, below all others; what is infinite at the other.
    scale = fit([0.0, 1e-3, 1.0, math.inf])
    places = scale.places([0.0, 1e-3, 1.0, math.inf])
    assert places == sorted(places)
    assert places[0] == scale.low < 1e-3
    assert places[-1] == scale.high > 1.0
    assert math.isnan(scale.place(None))
    # Rounding errors do not take the whole axis.
    assert fit([1e-17, 1.0]).low > 1e-10


def test_ticks_are_short():
    ticks = [plain_number(v) for v in (1e-5, 3e-4, 0.1, 30, 2e6)]
    assert ticks == ["1e-5", "0.0003", "0.1", "30", "2e6"]


def test_drawing_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnosis_figures(made_up_diagnosis(depth=5, steps=2, prompts=1))


def test_the_made_up_diagnosis_is_a_record(whole):
    again = Diagnosis.model_validate_json(whole.model_dump_json())
    assert again == whole
    assert made_up_diagnosis() == whole
    assert made_up_diagnosis(seed=1) != whole
    single = made_up_diagnosis(prompts=1).teacher_forced.dense_nll
    assert isinstance(single, Mean)
    assert single.low is single.high is None
