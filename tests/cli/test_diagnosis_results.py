"""What `shoal diagnose` prints: levels, the numbers behind them, and what to try."""

import pytest

from shoal.cli.diagnosis_results import print_diagnosis
from shoal.diagnosis.verdict import USES
from shoal.report.diagnosis import words as diagnosis_words
from shoal.testing.diagnoses import PARTS, made_up_diagnosis


def printed(capsys, **options):
    print_diagnosis(made_up_diagnosis(**{"depth": 5, "steps": 6, **options}))
    return capsys.readouterr().out


def test_levels_numbers_and_advice_are_printed(capsys):
    out = printed(capsys)
    for word in ("safe", "risky", "broken", "not settled", "[−0.075, −0.005]", "≥ −0.02",
                 "> 0.5", "removed: -[1-2,3.attn]", "KL(dense || other) per token"):  # fmt: skip
        assert word in out
    assert out.count("not settled") == 1
    advice = [line for line in out.splitlines() if line.endswith("of the same search")]
    assert advice == [
        "multiple choice, short generation, long generation: remove fewer blocks: a smaller "
        "--remove of the same search"
    ]


def test_controls_stand_beside_and_are_marked(capsys):
    out = printed(capsys)
    names = [line.split()[1] for line in out.splitlines() if line.startswith(("│ pruned", "│ bf"))]
    assert names == ["pruned", "bfloat16", "pruned", "bfloat16"]
    assert out.count("copy*") == 2
    assert "seed*" in out


@pytest.mark.parametrize("prompts", [1, 32])
@pytest.mark.parametrize("depth", [5, 40])
def test_tables_fit_100_columns(capsys, prompts, depth):
    out = printed(capsys, prompts=prompts, depth=depth)
    assert max(len(line.rstrip()) for line in out.splitlines() if line[:1] in "│┃┏┡└") <= 100


@pytest.mark.parametrize("missing", PARTS)
def test_what_was_not_measured_is_not_printed(capsys, missing):
    out = printed(capsys, parts=[p for p in PARTS if p != missing])
    assert ("Verdicts" in out) == (missing != "verdicts")
    assert ("Both read the dense model's text" in out) == (missing != "teacher_forced")
    assert ("Each writes by itself" in out) == (missing != "free_runs")


def test_markup_in_names_is_not_obeyed(capsys):
    found = made_up_diagnosis(checkpoint=True, depth=5, steps=4)
    other = found.other.model_copy(update={"name": "org/[bold]x[/bold]"})
    print_diagnosis(found.model_copy(update={"other": other}))
    assert "org/[bold]x[/bold] against smollm2-135m" in capsys.readouterr().out


def test_every_use_has_a_name():
    assert set(diagnosis_words.USES) == set(USES)
