import pytest

from shoal.config.thresholds import Thresholds
from shoal.core.errors import UsageError
from shoal.core.plan import ModelRef
from shoal.core.records import Mean
from shoal.diagnosis.records import Diagnosis, FreeRuns, Options, Retrieval, Subject, TeacherForced
from shoal.diagnosis.verdict import level_of, verdicts


def mean(value, low=None, high=None):
    return Mean(value=value, low=low, high=high, count=32)


def exact(value):
    return mean(value, value, value)


def forced(kl, flip, long_kl=None):
    return TeacherForced(
        overall={"kl": long_kl or kl, "flip": flip},
        short={"kl": kl, "flip": flip},
        short_steps=16,
        steps={},
        dense_nll=exact(1.0),
        other_nll=exact(1.0),
        sequence_kl=exact(1.0),
    )


def options(kept, change, task="arc_easy", scoring="options"):
    return Options(
        task=task,
        split="test",
        scoring=scoring,
        items=100,
        accuracy_dense=exact(0.5),
        accuracy_other=exact(0.5),
        accuracy_change=change,
        kept=kept,
        inside={},
        vocabulary={},
    )


def retrieval(overlap, pooling="mean"):
    return Retrieval(
        pooling=pooling,
        texts=64,
        neighbours=10,
        overlap=overlap,
        rank_correlation=exact(0.99),
        found_dense=exact(0.5),
        found_other=exact(0.5),
        found_change=exact(0.0),
        hidden_gap=None,
    )


def diagnosis(objective="margin:arc_easy", kind="plan", steps=64, **parts):
    return Diagnosis(
        dense=ModelRef(id="m", fingerprint="f"),
        dense_depth=30,
        dense_parameters=1,
        other=Subject(name="p", kind=kind, objective=objective, depth=29, parameters=1),
        settings={"steps": steps, "short_steps": 16},
        **parts,
    )


@pytest.mark.parametrize(
    ("value", "safe", "broken", "level"),
    [
        (0.9, 0.9, 0.6, "safe"),
        (0.6, 0.9, 0.6, "risky"),
        (0.599, 0.9, 0.6, "broken"),
        (0.05, 0.05, 0.5, "safe"),
        (0.5, 0.05, 0.5, "risky"),
        (0.501, 0.05, 0.5, "broken"),
        (float("nan"), 0.05, 0.5, "broken"),
        (float("inf"), 0.05, 0.5, "broken"),
    ],
)
def test_levels_in_both_directions(value, safe, broken, level):
    assert level_of(value, safe, broken) == level


def test_a_use_is_as_good_as_its_worst_number():
    found = verdicts(diagnosis(teacher_forced=forced(exact(0.01), exact(0.4))), Thresholds())
    assert [(v.use, v.level, v.settled) for v in found] == [
        ("short", "broken", True),
        ("long", "safe", True),
    ]
    short = found[0]
    assert [(r.measure, r.level) for r in short.reasons] == [
        ("short_kl", "safe"),
        ("short_flip", "broken"),
    ]
    assert (short.reasons[1].safe, short.reasons[1].broken) == (0.05, 0.30)


def test_only_uses_that_were_measured_are_judged():
    assert verdicts(diagnosis(), Thresholds()) == ()


def test_the_worst_task_decides_and_letters_do_not():
    parts = (
        options(exact(0.95), exact(0.0)),
        options(exact(0.7), exact(-0.05), task="piqa"),
        options(exact(0.1), exact(-0.5), scoring="letters"),
    )
    (choice,) = verdicts(diagnosis(choices=parts), Thresholds())
    assert (choice.use, choice.level) == ("choice", "risky")
    assert [r.value for r in choice.reasons] == [0.7, -0.05]


def test_a_verdict_is_settled_only_where_no_interval_could_change_it():
    def settled(kl, flip):
        parts = {"teacher_forced": forced(kl, flip)}
        return verdicts(diagnosis(**parts), Thresholds())[0].settled

    none = mean(0.0, 0.0, 0.001)
    assert settled(mean(0.01, 0.0, 0.04), none)
    assert not settled(mean(0.04, 0.01, 0.06), none)
    # Broken by one number stays broken, wherever the other lies.
    assert settled(mean(0.04, 0.01, 0.6), exact(0.9))
    # A single prompt has no interval.
    assert not settled(mean(0.01), exact(0.0))


def test_thresholds_decide_and_must_be_the_right_way_round():
    parts = {"retrieval": (retrieval(exact(0.7)), retrieval(exact(0.0), pooling="last"))}
    assert verdicts(diagnosis(**parts), Thresholds())[0].level == "risky"
    lenient = Thresholds.read({"neighbour_overlap": "0.6,0.3"})
    assert verdicts(diagnosis(**parts), lenient)[0].level == "safe"
    with pytest.raises(UsageError, match=r"higher is better.*Write safe first"):
        Thresholds.read({"neighbour_overlap": [0.3, 0.6]})
    with pytest.raises(UsageError, match=r"lower is better"):
        Thresholds.read({"short_kl": [0.5, 0.1]})
    with pytest.raises(UsageError, match=r"unknown key"):
        Thresholds.read({"overlap": [0.5, 0.1]})


def test_advice_names_another_objective_only_where_it_is_another():
    parts = {"teacher_forced": forced(exact(0.9), exact(0.9)), "retrieval": (retrieval(exact(1)),)}
    by_use = {v.use: v for v in verdicts(diagnosis(**parts), Thresholds())}
    assert "trajectory" in by_use["short"].advice[0]
    assert any("retrieval" in line for line in by_use["short"].advice)
    assert by_use["retrieval"].advice == ()
    own = verdicts(diagnosis(objective="trajectory:gsm8k", **parts), Thresholds())
    assert not any("trajectory" in line for v in own for line in v.advice)
    assert any("fewer blocks" in line for v in own for line in v.advice)
    other = verdicts(diagnosis(objective=None, kind="checkpoint", **parts), Thresholds())
    assert not any("--remove" in line for v in other for line in v.advice)


def test_equal_values_are_no_certainty():
    (choice,) = verdicts(diagnosis(choices=(options(exact(1.0), exact(0.0)),)), Thresholds())
    assert (choice.level, choice.settled) == ("safe", False)
    kept, change = choice.reasons
    # Of 32 equal items up to 3/32 of all others may differ.
    assert (kept.low, kept.high) == (pytest.approx(1 - 3 / 32), 1.0)
    assert (change.low, change.high) == (pytest.approx(-3 / 32), pytest.approx(3 / 32))
    few = Mean(value=0.01, low=0.005, high=0.02, count=4)
    parts = {"teacher_forced": forced(few, few)}
    assert not verdicts(diagnosis(**parts), Thresholds())[0].settled


def test_long_generation_is_not_judged_from_short_free_runs_either():
    assert (
        verdicts(diagnosis(steps=4, free_runs=FreeRuns(runs=(), examples=())), Thresholds()) == ()
    )


def test_worst_level_of_a_diagnosis():
    found = diagnosis(teacher_forced=forced(exact(0.1), exact(0.01)))
    judged = found.model_copy(update={"verdicts": verdicts(found, Thresholds())})
    assert judged.worst == "risky"
    assert found.worst == "safe"


def test_short_runs_say_nothing_of_long_generation():
    found = diagnosis(steps=16, teacher_forced=forced(exact(0.1), exact(0.01)))
    assert [v.use for v in verdicts(found, Thresholds())] == ["short"]
