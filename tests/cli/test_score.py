"""`shoal score` as a user types it."""

import json

import pytest

from shoal.report.scores import ScoreReport
from shoal.testing.tiny import save_tiny

DATA = ("--length", 24, "--limit", 4)


def test_scores_are_printed_written_and_drawn(shoal, tiny_folder, data_dir, tmp_path):
    code, out, err = shoal(
        "score", tiny_folder, "--scores", "block_influence,angular,taylor,magnitude",
        "--windows", "2,3", "--data-dir", data_dir, *DATA,
    )  # fmt: skip
    assert code == 0, err
    assert "nll:wikitext2, 4 examples" in out
    folder = tmp_path / "scores" / tiny_folder.name
    report = ScoreReport.model_validate_json((folder / "scores.json").read_text())
    assert list(report.scores) == ["block_influence", "angular", "taylor", "magnitude"]
    assert report.depth == 6
    assert [len(report.angular_windows[n]) for n in range(1, 7)] == [6, 5, 4, 3, 2, 1]
    assert report.angular_windows[1] == report.scores["angular"]
    assert report.data["name"] == "wikitext2"
    for length in (2, 3):
        window = report.best_window(length)
        assert f"angular, {length} blocks: {window[0]} to {window[-1]}," in out
    lowest = report.order("angular")[0]
    row = next(line for line in out.splitlines() if line.strip("│ ").startswith(f"{lowest} "))
    assert "1*" in row
    assert (folder / "scores.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "scores.svg").read_text().startswith("<?xml")


def test_choices_and_json(shoal, tiny_folder, data_dir, tmp_path):
    code, out, _ = shoal(
        "score", tiny_folder, "--objective", "margin", "--data-dir", data_dir, "--out", "here",
        "--json", *DATA,
    )  # fmt: skip
    assert code == 0
    shown = json.loads(out)
    assert not {"granularity", "units"} & set(shown)
    assert shown == json.loads((tmp_path / "here/scores.json").read_text())
    assert shown["objective"] == "margin:arc_easy"
    assert list(shown["scores"]) == [
        "block_influence",
        "angular",
        "relative_magnitude",
        "norm_ratio",
    ]


@pytest.mark.parametrize(
    ("granularity", "units"),
    [
        ("attn", [f"{i}.attn" for i in range(6)]),
        ("mlp", [f"{i}.mlp" for i in range(6)]),
        ("attn+mlp", [f"{i}.{part}" for i in range(6) for part in ("attn", "mlp")]),
        ("half", [u for i in range(6) for u in (f"{i}", f"{i}.mlp+{i + 1}.attn")][:-1]),
    ],
)
def test_parts_of_blocks(shoal, tiny_folder, data_dir, tmp_path, granularity, units):
    code, out, err = shoal(
        "score", tiny_folder, "--scores", "block_influence,angular,taylor", "--granularity",
        granularity, "--data-dir", data_dir, "--out", "here", *DATA,
    )  # fmt: skip
    assert code == 0, err
    report = ScoreReport.model_validate_json((tmp_path / "here/scores.json").read_text())
    assert report.granularity == granularity
    assert list(report.units) == units
    assert {len(values) for values in report.scores.values()} == {len(units)}
    assert report.angular_windows == {}
    lines = {line.strip("│ ").split(" ")[0]: line for line in out.splitlines()}
    assert set(units) <= set(lines)
    assert "1*" in lines[units[report.order("taylor")[0]]]
    assert f"* marks the {report.marked} lowest" in out
    assert (tmp_path / "here/scores.png").read_bytes().startswith(b"\x89PNG")


def test_parts_of_parallel_blocks(shoal, tmp_path, data_dir):
    folder = save_tiny("cohere", tmp_path / "parallel")
    code, out, err = shoal(
        "score", folder, "--granularity", "attn+mlp", "--data-dir", data_dir, *DATA
    )
    assert code == 0, err
    assert "5.mlp" in out
    code, _, err = shoal("score", folder, "--granularity", "half", "--data-dir", data_dir, *DATA)
    assert code == 2
    assert "no half step" in " ".join(err.split())
    assert "side by side" in " ".join(err.split())


def test_without_matplotlib_a_note_says_how_to_get_figures(
    shoal, tiny_folder, data_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr("shoal.pipeline.figures.find_spec", lambda name: None)
    code, _, err = shoal(
        "score", tiny_folder, "--scores", "norm_ratio", "--data-dir", data_dir, *DATA
    )
    assert code == 0
    assert "shoal[report]" in err
    names = {p.name for p in (tmp_path / "scores" / tiny_folder.name).iterdir()}
    assert names == {"scores.json"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scores", "angluar"), 'Did you mean "angular"'),
        (("--scores", ""), "at least one score"),
        (("--windows", "two"), "--windows 5,7"),
        (("--windows", "7"), "between 1 and 6"),
        (("--windows", "2", "--scores", "taylor"), "add angular"),
        (("--granularity", "mixed"), "--granularity"),
        (("--granularity", "attn", "--windows", "2"), "windows of whole blocks"),
        (("--objective", "accuracy", "--scores", "taylor"), "margin, likelihood or nll"),
        (("--objective", "0.5*nll + 0.5*margin"), "not a mixture"),
    ],
)
def test_bad_requests(shoal, tiny_folder, data_dir, arguments, message):
    code, _, err = shoal("score", tiny_folder, *arguments, "--data-dir", data_dir, *DATA)
    assert code == 2
    assert message in err
