"""Searches and objectives through the command line: budgets, racing, mixtures, the trace."""

import json

import pytest

from shoal.config.searches import SEARCHES
from shoal.core.mask import Mask

SMALL = {
    "genetic": ("--search.generations", 2, "--search.population", 4),
    "bayes": ("--search.trials", 4, "--search.initial", 2, "--search.pool", 16),
    "evo": ("--search.generations", 2, "--search.offspring", 3, "--search.initial", 3),
    "tale": ("--search.epsilon", "inf", "--search.result", "last"),
}


def arguments(tiny_folder, data_dir, *more, objective="margin", run="run", remove=2):
    return (
        *("search", tiny_folder, "--objective", objective, "--data-dir", data_dir),
        *("--limit", 4, "--length", 16, "--remove", remove, "--run-dir", run),
        *("--granularity", "block", *more),
    )


def plan_of(folder="run"):
    with open(f"{folder}/plan.json") as file:
        return json.load(file)


def removed_by(plan):
    return len(plan["mask"]["removed"])


def trace_of(folder="run"):
    with open(f"{folder}/trace.jsonl") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search(shoal, tiny_folder, data_dir, search):
    more = ("--search", search, *SMALL.get(search, ()))
    code, _, err = shoal(*arguments(tiny_folder, data_dir, *more))
    assert code == 0, err
    plan, trace = plan_of(), trace_of()
    assert removed_by(plan) == 2
    assert plan["search"]["name"] == search
    assert trace[-1]["evaluations"] == plan["evaluations"] == len(trace)
    assert str(Mask.of(6, map(int, plan["mask"]["removed"]))) in {row["mask"] for row in trace}
    assert (trace[-1]["best"] is None) or trace[-1]["best"] <= plan["score"]["mean"] + 1e-12
    again = shoal(*arguments(tiny_folder, data_dir, *more))
    assert again[0] == 0
    assert plan_of()["mask"] == plan["mask"]
    assert trace_of() == trace
    assert "known from before" in again[2]


@pytest.mark.parametrize(
    "objective",
    ["nll", "kl", "likelihood", "accuracy", "trajectory", "trajectory:arc_easy",
     "exact_match:arc_easy", "0.5*margin:arc_easy + 0.5*kl:wikitext2"],
)  # fmt: skip
def test_every_objective(shoal, tiny_folder, data_dir, objective):
    more = ["--search", "one_shot"]
    if "trajectory" in objective:
        more += ["--objective.new-tokens", 4, "--objective.prompt-tokens", 8]
    if "exact" in objective:
        more += ["--objective.new-tokens", 2]
    if "*" in objective:
        more += ["--objective.normalise", "raw"]
    code, _, err = shoal(*arguments(tiny_folder, data_dir, *more, objective=objective))
    assert code == 0, err
    plan = plan_of()
    assert plan["objective"].startswith(objective)
    assert plan["score"]["mean"] == plan["score"]["mean"]
    assert plan["data"]["objective"]["name"] == ("mixture" if "*" in objective else
                                                 objective.split(":")[0])  # fmt: skip


@pytest.mark.parametrize("budget", [1, 7, 40])
def test_a_budget_of_evaluations(shoal, tiny_folder, data_dir, budget):
    more = ("--budget-evaluations", budget)
    code, out, err = shoal(*arguments(tiny_folder, data_dir, *more))
    assert code == 0, err
    plan = plan_of()
    assert removed_by(plan) == 2
    assert plan["evaluations"] == min(budget, 11)
    assert plan["stopped"] == (None if budget >= 11 else "evaluations")
    assert ("ends the search early" in err) == (budget < 11)
    assert ("the budget of evaluations ended the search" in out) == (budget < 11)
    # The same folder goes on under a larger budget.
    assert shoal(*arguments(tiny_folder, data_dir))[0] == 0
    assert plan_of()["stopped"] is None


def test_a_budget_of_minutes(shoal, tiny_folder, data_dir):
    more = ("--budget-minutes", 1e-6, "--search", "beam")
    code, _, err = shoal(*arguments(tiny_folder, data_dir, *more))
    assert code == 0, err
    assert plan_of()["stopped"] == "minutes"
    assert removed_by(plan_of()) == 2


def test_racing_says_what_it_saved_and_finds_the_same(shoal, tiny_folder, data_dir):
    exact = arguments(tiny_folder, data_dir, objective="nll", run="exact")
    assert shoal(*exact)[0] == 0
    raced = arguments(tiny_folder, data_dir, "--racing", objective="nll", run="raced")
    code, out, err = shoal(*raced)
    assert code == 0, err
    assert "racing" in out
    assert plan_of("raced")["mask"] == plan_of("exact")["mask"]
    assert shoal(*raced)[0] == 0


def test_searches_share_a_store(shoal, tiny_folder, data_dir):
    one = arguments(tiny_folder, data_dir, "--store", "all.sqlite", run="one")
    assert shoal(*one)[0] == 0
    more = ("--store", "all.sqlite", "--search", "one_shot")
    code, _, err = shoal(*arguments(tiny_folder, data_dir, *more, run="two"))
    assert code == 0
    assert "12 evaluations are known from before" in err


def test_tale_needs_no_count_and_may_remove_nothing(shoal, tiny_folder, data_dir):
    base = ("search", tiny_folder, "--data-dir", data_dir, "--limit", 6, "--search", "tale")
    more = ("--objective", "nll", "--length", 16, "--search.epsilon", 0)
    code, _, err = shoal(*base, *more, "--run-dir", "a")
    assert code == 0, err
    assert "at most 5" in err
    plan = plan_of("a")
    assert plan["details"]["stopped_because"]
    assert plan["details"]["path"][0]["mask"] == "-[]"
    more = ("--objective", "kl", "--length", 16, "--search.epsilon", 0, "--search.result", "last")
    prune = ("prune", *base[1:], *more, "--run-dir", "b", "--out", "pruned")
    code, _, err = shoal(*prune)
    assert code == 1
    assert "found no block that can go (stopped by: floor)" in err
    code, out, err = shoal("search", *prune[1:-2])
    assert code == 0
    assert "removed: nothing" in out
    code, _, err = shoal("export", "b", "--model", tiny_folder, "--out", "pruned")
    assert code == 2
    assert "removes nothing" in err


def test_tale_on_generated_answers(shoal, tiny_folder, tmp_path):
    """Every answer is wrong, so nothing is lost by removal, and the cap ends it."""
    rows = [{"prompt": f"say {i}:", "answer": "not what a random model says"} for i in range(4)]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ("--objective", f"exact_match:{file}", "--objective.new-tokens", 3, "--remove", 2)
    run = ("search", tiny_folder, "--search", "tale", "--search.result", "bsba", "--run-dir", "run")
    code, _, err = shoal(*run, *more)
    assert code == 0, err
    plan = plan_of()
    assert plan["mask"]["removed"] == ["0", "1"]
    assert [step["loss"] for step in plan["details"]["path"]] == [1.0, 1.0, 1.0]
    assert plan["details"]["stopped_because"] == "cap"


def test_one_process_at_a_time_in_a_run_folder(shoal, tiny_folder, data_dir, tmp_path):
    from filelock import FileLock

    run = arguments(tiny_folder, data_dir, objective="nll")
    assert shoal(*run)[0] == 0
    with FileLock(tmp_path / "run" / ".lock"):
        code, _, err = shoal(*run)
    assert code == 2
    assert "another process is running in run" in err
    assert shoal(*run)[0] == 0


def test_losses_that_do_not_tell_masks_apart_are_reported(shoal, tiny_folder, tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"prompt": "say:", "answer": "what it never says"}) + "\n")
    more = ("--objective", f"exact_match:{file}", "--objective.new-tokens", 2, "--remove", 2)
    code, _, err = shoal("search", tiny_folder, *more, "--search", "one_shot", "--run-dir", "run")
    assert code == 0, err
    assert "every mask has the loss 1" in err


def test_answers_are_generated_in_a_report_as_in_the_search(shoal, tiny_folder, data_dir):
    more = ("--search", "one_shot", "--objective.new-tokens", 2)
    assert shoal(*arguments(tiny_folder, data_dir, *more, objective="exact_match:arc_easy"))[0] == 0
    report = ("evaluate", tiny_folder, "--tasks", "arc_easy", "--data-dir", data_dir, "--no-speed")
    code, out, err = shoal(*report, "--limit", 3, "--plan", "run", "--json")
    assert code == 0, err
    names = [m["name"] for m in json.loads(out)["models"][0]["metrics"]]
    assert "exact_match" in names
    code, out, err = shoal(*report, "--limit", 3, "--json")
    assert "exact_match" not in out


def test_the_same_run_may_name_its_task_or_not(shoal, tiny_folder, data_dir):
    base = ("search", tiny_folder, "--data-dir", data_dir, "--limit", 2, "--length", 16)
    base += ("--remove", 1, "--run-dir", "run", "--objective")
    assert shoal(*base, "nll")[0] == 0
    assert shoal(*base, "nll", "--task", "wikitext2")[0] == 0
    assert shoal(*base, "nll:wikitext2")[0] == 0


def test_the_same_in_python(tiny_folder, data_dir, tmp_path, monkeypatch):
    import shoal

    monkeypatch.chdir(tmp_path)
    options = {"data_dir": str(data_dir), "length": 16, "limit": 4}
    scored = shoal.score(str(tiny_folder), "angular", windows=[2], out="s", **options)
    start = scored.report.best_window(2).start
    found = shoal.search(
        str(tiny_folder), search={"name": "one_shot", "rank": "angular"}, remove=2, **options
    )
    assert found.plan.mask.blocks == (start, start + 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--objective", "0.5*margin + 0.5*kl", "--racing"), "racing compares examples"),
        (("--objective", "kl", "--search", "tale"), "the dense model is always the best"),
        (("--search", "greedy", "--search.width", 3), "no option width; it is one of beam"),
        (("--search", "one_shot", "--search.rank", "taylor", "--objective", "kl"), "say nothing"),
        (
            (
                "--search",
                "one_shot",
                "--search.rank",
                "angular",
                "--objective",
                "exact_match:arc_easy",
            ),
            "no states to rank by",
        ),
        (("--budget-minutes", "inf"), "finite"),
        (("--search", "cbo", "--search.form", "gradient", "--objective", "accuracy"), "accuracy"),
        (("--search", "one_shot", "--search.rank", "taylor", "--objective", "accuracy"), "accura"),
        (("--search", "one_shot", "--search.rank", "angula"), "angular"),
        (("--objective", "exact_match:wikitext2"), "reads prompts or multiple choice"),
        (("--budget-minutes", 0), "greater than 0"),
        (("--racing-error", 2), "less than 1"),
        (("--objective", "trajectory", "--objective.chat", "true"), "chat template"),
    ],
)
def test_what_cannot_work_is_refused(shoal, tiny_folder, data_dir, more, message):
    base = ("search", tiny_folder, "--data-dir", data_dir, "--limit", 4, "--length", 16)
    code, _, err = shoal(*base, "--remove", 2, "--run-dir", "run", *more)
    assert code == 2, err
    assert message in err


def test_weights_that_are_nan_are_named(shoal, tiny_folder, data_dir, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "broken"
    shutil.copytree(tiny_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.2.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    code, _, err = shoal(*arguments(folder, data_dir, objective="nll"))
    assert code == 1
    assert "logits are not finite on these data" in err
    assert "Look for NaN" in err
    code, _, err = shoal("score", folder, "--data-dir", data_dir, "--length", 16, "--limit", 2)
    assert code == 1
    assert "not finite for some blocks" in err
