"""What `shoal lab run` prints: claims with their counts, and each model and task."""

import pytest

from shoal.cli.lab_results import print_run
from shoal.lab.study import LabRun
from shoal.report.words import number
from shoal.testing.lab_runs import made_up_lab_run

SMALL = {"sigmas": (1.0, 8.0), "geometry_sigmas": (8.0,), "depth": 6, "points": 4}


def printed(capsys, **options):
    print_run(made_up_lab_run(**(SMALL | options)))
    return capsys.readouterr().out


def test_claims_and_gains_are_printed(capsys):
    out = printed(capsys)
    run = made_up_lab_run(**SMALL)
    for claim in run.claims:
        line = next(row for row in out.splitlines() if row.startswith(f"│ {claim.name} "))
        supporting = sum(e.supports for e in claim.evidence)
        assert claim.answer in line
        assert f"{supporting} of {len(claim.evidence)}" in line
    for model in run.models:
        assert f"{model.model}, trained on {model.trained['coefficients']}" in out
        for shift in model.shifts:
            gain = next(m for m in shift.masks if m.name == "best").test.gain
            assert f"{number(100 * gain.value)}%" in out
    assert "linear-narrow-1 was stopped early." in out


@pytest.mark.parametrize("options", [{}, {"functions": 1}, {"dense": True}, {"depth": 40}], ids=str)
def test_tables_fit_100_columns(capsys, options):
    out = printed(capsys, **options)
    assert max(len(line.rstrip()) for line in out.splitlines() if line[:1] in "│┃┏┡└") <= 100


def test_what_was_not_measured_is_not_printed(capsys):
    assert "Claims" not in printed(capsys, claims=False)
    print_run(LabRun(settings={}, models=()))
    assert capsys.readouterr().out == ""


def test_markup_in_names_is_not_obeyed(capsys):
    found = made_up_lab_run(**SMALL)
    model = found.models[0].model_copy(update={"model": "[bold]x[/bold]"})
    print_run(found.model_copy(update={"models": (model,), "claims": ()}))
    assert "[bold]x[/bold], trained on" in capsys.readouterr().out
