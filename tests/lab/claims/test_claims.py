"""Each claim, on runs in which it is true by construction and in which it is not."""

import pytest

from shoal.core.records import Mean
from shoal.lab.claims import all_claims
from shoal.lab.claims.causes import inverse_restores, monotone, recovered
from shoal.lab.claims.gains import (
    MATTERS,
    beyond_controls,
    controls_beaten,
    counts,
    gain_under_shift,
    helped,
    no_gain_in_distribution,
)
from shoal.lab.claims.geometry import (
    amplifiers,
    growth,
    realignment,
    realignment_is_theirs,
    reverse_expands,
)
from shoal.lab.study import LabRun
from shoal.testing.lab_runs import made_up_lab_run


@pytest.fixture(scope="module")
def run() -> LabRun:
    return made_up_lab_run(sigmas=(1, 2, 5, 10), claims=False)


def mean(value, half=0.01):
    return Mean(value=value, low=value - half, high=value + half, count=9)


def with_gain(run, gain, *, of="best"):
    """The same run with another gain of one mask everywhere."""

    def changed(shift):
        masks = tuple(
            m.model_copy(update={"test": m.test.model_copy(update={"gain": gain})})
            if m.name == of
            else m
            for m in shift.masks
        )
        return shift.model_copy(update={"masks": masks})

    return [m.model_copy(update={"shifts": tuple(map(changed, m.shifts))}) for m in run.models]


def with_geometry(run, change):
    """The same geometries, each with its geometry changed; those on wider tasks alone."""
    return [
        p.model_copy(update={"geometry": p.geometry.model_copy(update=change(p.geometry))})
        for p in helped(run.models, run.geometries)
    ]


def with_points(run, change):
    return with_geometry(run, lambda g: {"points": tuple(change(p) for p in g.points)})


@pytest.mark.parametrize(
    ("gain", "is_one"),
    [
        (mean(0.5), True),
        (mean(0.04), False),
        (mean(0.2, 0.3), False),
        (mean(-0.5), False),
        (Mean(value=0.5, low=None, high=None, count=1), False),
    ],
)
def test_a_gain_is_sure_and_of_some_size(gain, is_one):
    assert counts(gain) == is_one


def test_no_gain_in_distribution_is_about_the_task_of_training_alone(run):
    claim = no_gain_in_distribution(run.models)
    assert len(claim.evidence) == len(run.models)
    assert {e.task for e in claim.evidence} == {"U(-1,1)", "U(-5,5)"}
    assert no_gain_in_distribution(with_gain(run, mean(0.0))).answer == "holds"
    assert no_gain_in_distribution(with_gain(run, mean(0.3))).answer == "does not hold here"


def test_gain_under_shift_is_about_wider_tasks(run):
    claim = gain_under_shift(with_gain(run, mean(0.3)))
    assert claim.answer == "holds"
    assert {e.task for e in claim.evidence if e.model == "linear-wide-0"} == {"U(-10,10)"}
    assert {e.task for e in claim.evidence if e.model == "linear-narrow-0"} == {
        "U(-2,2)",
        "U(-5,5)",
        "U(-10,10)",
    }
    assert gain_under_shift(with_gain(run, mean(0.01))).answer == "does not hold here"


def test_every_control_can_refute_a_gain(run):
    shift = next(s for s in run.models[0].shifts if s.selection.best.num_blocks > 1)

    def scored(**losses):
        masks = tuple(
            m.model_copy(update={"test": m.test.model_copy(update={"loss": mean(losses[m.name])})})
            if m.name in losses
            else m
            for m in shift.masks
        )
        return shift.model_copy(update={"masks": masks, "random_better": 0.0})

    beaten = controls_beaten(scored(best=1.0, single=2.0, random_best=2.0))
    assert beaten["single"]
    assert beaten["random_best"]
    assert beaten["random"]
    assert not controls_beaten(scored(best=1.0, single=0.9, random_best=2.0))["single"]
    assert not controls_beaten(scored(best=1.0, single=2.0, random_best=0.9))["random_best"]
    many = scored(best=1.0, single=2.0, random_best=2.0).model_copy(update={"random_better": 0.1})
    assert not controls_beaten(many)["random"]
    scaled = shift.saturation.model_copy(
        update={
            "best_beyond_scale": shift.saturation.best_beyond_scale.model_copy(
                update={"gain": mean(0.0)}
            )
        }
    )
    assert not controls_beaten(shift.model_copy(update={"saturation": scaled}))["rescaling"]
    claim = beyond_controls(run.models)
    lost = sum(v for name, v in claim.facts.items() if name.startswith("cells not better"))
    assert lost >= sum(not e.supports for e in claim.evidence)


def test_realignment_needs_norms_and_distances(run):
    def changes(**values):
        def change(geometry):
            told = {
                kind: geometry.changes[kind].model_copy(update={"change": mean(value)})
                for kind, value in values.items()
            }
            return {"changes": geometry.changes | told}

        return with_geometry(run, change)

    assert realignment(changes(norm=-0.2, distance=-0.2)).answer == "holds"
    assert realignment(changes(norm=0.2, distance=-0.2)).answer == "does not hold here"
    assert realignment(changes(norm=-0.005, distance=-0.2)).answer == "does not hold here"


def test_realignment_is_theirs_where_no_other_blocks_realign_as_much(run):
    def gapped(selected, other):
        def change(point):
            if point.intervention != "removed":
                return point
            gap = selected if point.group == "selected" else other
            return point.model_copy(
                update={"gaps": point.gaps.model_copy(update={"distance": gap})}
            )

        return with_points(run, change)

    assert realignment_is_theirs(gapped(0.2, 0.5)).answer == "holds"
    assert realignment_is_theirs(gapped(0.5, 0.2)).answer == "does not hold here"


def test_amplifiers_must_be_more_frequent_among_the_selected(run):
    def flags(selected, others):
        return with_geometry(
            run,
            lambda g: {
                "signatures": tuple(
                    s.model_copy(update={"amplifier": selected if s.selected else others})
                    for s in g.signatures
                )
            },
        )

    found = amplifiers(flags(True, False))
    assert found.answer == "holds"
    assert found.facts["p of the difference in shares (layers as independent)"] < 0.001
    same = amplifiers(flags(True, True))
    assert same.answer == "does not hold here"
    assert same.facts["p of the difference in shares (layers as independent)"] == pytest.approx(1.0)
    assert amplifiers(flags(None, None)).answer == "not tested"


def test_a_reverse_shift_expands_where_it_helps_and_distances_grow(run):
    claim = reverse_expands(run.models, run.geometries)
    assert {(e.model, e.task) for e in claim.evidence} == {
        ("linear-wide-0", "U(-1,1)"),
        ("linear-wide-0", "U(-2,2)"),
    }
    # The builder's pruned distances are 1.3 where the dense model's are 1.8.
    assert all(growth(p.geometry) < 0 for p in run.geometries if p.geometry.mask)
    assert claim.answer == "does not hold here"

    def expanding(geometry):
        grown = {**geometry.profiles, "ood": geometry.profiles["id_pruned"]}
        change = geometry.changes["distance"].model_copy(update={"change": mean(-0.2)})
        return {"profiles": grown, "changes": {**geometry.changes, "distance": change}}

    grown = [
        p.model_copy(update={"geometry": p.geometry.model_copy(update=expanding(p.geometry))})
        for p in run.geometries
        if p.geometry.mask
    ]
    helped = with_gain(run, mean(0.4))
    assert reverse_expands(helped, grown).answer == "holds"
    assert reverse_expands(with_gain(run, mean(0.0)), grown).answer == "does not hold here"
    assert reverse_expands(helped, ()).answer == "does not hold here"


def test_a_curve_is_monotone_by_ranks(run):
    assert monotone(helped(run.models, run.geometries)).answer == "holds"

    def turned(point):
        if point.intervention != "scaled" or point.alpha is None:
            return point
        return point.model_copy(update={"loss_ood": mean(abs(point.alpha - 0.5))})

    assert monotone(with_points(run, turned)).answer == "does not hold here"


def test_the_share_recovered_is_1_for_the_removal_itself_and_0_for_nothing(run):
    points = helped(run.models, run.geometries)[0].geometry.points
    removed = [p for p in points if p.intervention == "removed" and p.group == "selected"]
    dense = [p for p in points if p.intervention == "dense"]
    assert recovered(points, removed) == pytest.approx(1.0)
    assert recovered(points, dense) == 0.0
    claim = inverse_restores(helped(run.models, run.geometries))
    assert claim.answer == "holds"
    assert {round(e.value, 6) for e in claim.evidence} == {0.9}


def test_an_inverse_that_does_no_better_than_a_random_map_is_no_evidence(run):
    def alike(point):
        if point.intervention not in ("inverse", "random", "rotated"):
            return point
        return point.model_copy(update={"loss_ood": mean(1e-9)})

    assert inverse_restores(with_points(run, alike)).answer == "does not hold here"


def test_what_is_to_be_explained_is_a_gain_on_a_wider_task(run):
    cells = helped(run.models, run.geometries)
    assert cells
    assert all(p.sigma > p.trained and p.saved >= MATTERS for p in cells)
    left = [p for p in run.geometries if p not in cells]
    assert all(p.sigma <= p.trained or (p.saved or 0) < MATTERS for p in left)


def test_with_other_x_a_task_is_shifted_whatever_its_range(run):
    def moved(model):
        shifts = tuple(
            s.model_copy(update={"family": {**s.family, "inputs": "U(-3,3)"}})
            if not s.in_distribution
            else s
            for s in model.shifts
        )
        return model.model_copy(update={"shifts": shifts})

    models = [moved(m) for m in run.models]
    assert not reverse_expands(models, run.geometries).evidence
    tasks = {(e.model, e.task) for e in gain_under_shift(models).evidence}
    assert ("linear-wide-0", "U(-1,1)") in tasks


def test_without_geometries_what_they_would_show_is_not_tested(run):
    answers = {c.name: c.answer for c in all_claims(run.models, ())}
    assert answers["Realignment"] == "not tested"
    assert answers["Inverse surrogate restores"] == "not tested"
    assert answers["No gain in distribution"] != "not tested"
    assert len(answers) == 9
