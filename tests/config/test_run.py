from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.objectives import MarginConfig, NllConfig
from shoal.config.run import RunConfig, read_yaml
from shoal.config.searches import GreedyConfig, RandomConfig
from shoal.core.errors import UsageError


def read(**values: Any) -> RunConfig:
    return RunConfig.read(values)


def refusal(**values: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(**values)
    return str(error.value)


def test_defaults() -> None:
    config = RunConfig()
    assert (config.objective, config.search) == (NllConfig(), GreedyConfig())
    assert config.expression == "nll:wikitext2"


def test_names_and_mappings_pick_objective_and_search() -> None:
    config = read(objective="margin", search={"name": "random", "samples": 9})
    assert (config.objective, config.search) == (MarginConfig(), RandomConfig(samples=9))
    assert config.expression == "margin:arc_easy"
    assert read(objective="margin", task="boolq").expression == "margin:boolq"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"search": {"name": "random", "samples": 9}, "protect": "0-2,5", "remove": "20%"},
        {"objective": {"name": "margin", "pair": "max"}, "evaluate": "boolq, piqa", "out": "a/b"},
    ],
)
def test_dumping_and_reading_loses_nothing(values: dict[str, Any]) -> None:
    config = RunConfig.read(values)
    text = yaml.safe_dump(config.model_dump(mode="json"))
    assert RunConfig.read(yaml.safe_load(text)) == config


@pytest.mark.parametrize(
    ("given_key", "meant"),
    [("serach", "search"), ("protected", "protect"), ("sede", "seed"), ("modle", "model")],
)
def test_unknown_keys_name_the_closest(given_key: str, meant: str) -> None:
    text = refusal(**{given_key: "x"})
    assert text.startswith(f'unknown key "{given_key}". Did you mean "{meant}"? Known: ')


def test_mistakes_inside_a_search_are_named_too() -> None:
    assert 'search: unknown search "gredy". Did you mean "greedy"?' in refusal(search="gredy")
    text = refusal(search={"name": "random", "sample": 3})
    assert 'search: unknown key "sample". Did you mean "samples"?' in text


@pytest.mark.parametrize("value", [None, 5, ["greedy"], {"samples": 3}])
def test_a_search_or_objective_without_a_name_is_refused(value: Any) -> None:
    assert "search: the search needs a name. Known: greedy" in refusal(search=value)
    assert "objective: the objective needs a name. Known: nll" in refusal(objective=value)


@given(st.integers(1, 200), st.integers(1, 10_000))
def test_percentages_are_exact_and_rounded_down(depth: int, hundredths: int) -> None:
    config = read(remove=f"{hundredths // 100}.{hundredths % 100:02d}%")
    expected = hundredths * depth // 10_000
    if expected:
        assert config.num_removed(depth) == expected
    else:
        with pytest.raises(UsageError, match="less than one block"):
            config.num_removed(depth)


@pytest.mark.parametrize("percent", range(1, 101))
def test_n_percent_of_100_is_n(percent: int) -> None:
    # int(0.29 * 100) is 28.
    assert read(remove=f"{percent}%").num_removed(100) == percent


@pytest.mark.parametrize(
    ("remove", "depth", "count"),
    [(7, 30, 7), ("7", 30, 7), ("20%", 30, 6), (" 25 % ", 30, 7), ("33.3%", 30, 9), ("10%", 28, 2)],
)
def test_counts_and_shares(remove: int | str, depth: int, count: int) -> None:
    assert read(remove=remove).num_removed(depth) == count


@pytest.mark.parametrize("text", ["", "%", "x", "x%", "nan%", "1/0%", "7.0", "20 percent"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"neither a count \(7\) nor a percentage \(20%\)"):
        read(remove=text).num_removed(30)


def test_shares_under_one_block_and_nothing_at_all() -> None:
    for share in ("0%", "3%", "-20%"):
        with pytest.raises(UsageError, match=f"{share} of 30 blocks is less than one"):
            read(remove=share).num_removed(30)
    with pytest.raises(UsageError, match="say how many blocks"):
        read().num_removed(30)


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("0,29", (0, 29)),
        ("0-2,29", (0, 1, 2, 29)),
        (" 3 , 5-5 ,", (3, 5)),
        ("", ()),
        (4, (4,)),
        ([0, 29], (0, 29)),
        ((1,), (1,)),
        (["0", "3"], (0, 3)),
    ],
)
def test_protect_reads_lists_and_ranges(value: Any, blocks: tuple[int, ...]) -> None:
    assert read(protect=value).protect == blocks


@pytest.mark.parametrize("value", ["a", "1-", "-1", "1-2-3", "0;1", "²", "1.5"])
def test_protect_refuses_what_is_no_block(value: str) -> None:
    assert "Write block indices as 0,1,29 or 0-2,29." in refusal(protect=value)


def test_protect_refuses_a_range_that_runs_backwards() -> None:
    assert 'protect: "5-2" runs backwards' in refusal(protect="0,5-2")


@pytest.mark.parametrize("value", ["boolq,piqa", "boolq piqa", " boolq,  piqa ", ["boolq", "piqa"]])
def test_tasks_are_split_at_commas_or_spaces(value: Any) -> None:
    assert read(evaluate=value).evaluate == ("boolq", "piqa")


def test_values_out_of_range_say_what_was_given() -> None:
    text = refusal(length=1, seed=-1)
    assert text == (
        "length: Input should be greater than or equal to 2. Given: 1. (1 more problem)"
    )


def test_a_model_is_required_only_where_it_is_used() -> None:
    assert read(model="org/name").require_model() == "org/name"
    with pytest.raises(UsageError, match="no model was named"):
        read().require_model()


def test_yaml_reads_into_a_config(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m  # comment\nremove: 20%\nprotect: 0,29\nsearch:\n  name: random\n")
    config = RunConfig.read(read_yaml(path))
    assert (config.model, config.remove, config.protect) == ("m", "20%", (0, 29))
    assert config.search == RandomConfig()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [1", "is not YAML"),
        (b"a: b: c", "is not YAML"),
        (b"\xff\xfe\xfa", "is not YAML"),
        (b"a: !!python/object:os.x {}", "is not YAML"),
        (b"", "holds no options"),
        (b"# only a comment", "holds no options"),
        (b"- model", "holds no options"),
        (b"model", "holds no options"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason) as error:
        read_yaml(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="there is no config at"):
            read_yaml(path)


def test_a_key_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: a\nlimit: 3\nlimit: 4\n")
    with pytest.raises(UsageError, match="the key 'limit' stands there twice"):
        read_yaml(path)
