import pytest

from shoal.config.mixture import MixtureConfig, read_objective
from shoal.config.run import RunConfig
from shoal.core.errors import UsageError


def terms(text: str) -> list[tuple[float, str]]:
    config = RunConfig.read({"objective": text})
    return [(t.weight, str(t)) for t in config.terms]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("margin", [(1, "margin:arc_easy")]),
        ("margin:openbookqa", [(1, "margin:openbookqa")]),
        ("nll:my/a+b.txt", [(1, "nll:my/a+b.txt")]),
        (
            "0.7*margin:arc_easy + 0.3*kl:wikitext2",
            [(0.7, "margin:arc_easy"), (0.3, "kl:wikitext2")],
        ),
        ("nll+kl", [(1, "nll:wikitext2"), (1, "kl:wikitext2")]),
        ("2*nll:c4+1e-1 * margin", [(2, "nll:c4"), (0.1, "margin:arc_easy")]),
        ("nll:a+b.txt + .5*kl", [(1, "nll:a+b.txt"), (0.5, "kl:wikitext2")]),
    ],
)
def test_an_objective_in_one_line(text: str, expected: list[tuple[float, str]]) -> None:
    assert terms(text) == expected


def test_the_line_form_is_the_expression() -> None:
    text = "0.7*margin:arc_easy + 0.3*kl:wikitext2"
    config = RunConfig.read({"objective": text})
    assert config.expression == text
    assert RunConfig.read({"objective": config.expression}) == config
    assert RunConfig.read(config.model_dump(mode="json")) == config


def test_options_stand_beside_an_expression() -> None:
    mixed = RunConfig.read({"objective": {"name": "nll + kl", "normalise": "raw"}}).objective
    assert isinstance(mixed, MixtureConfig)
    assert mixed.normalise == "raw"
    single = RunConfig.read({"objective": {"name": "margin:piqa", "pair": "max"}})
    assert (single.task, single.objective.model_dump()["pair"]) == ("piqa", "max")


def test_terms_take_limit_and_split_of_the_run_unless_they_have_their_own() -> None:
    values = {
        "objective": {
            "name": "mixture",
            "terms": [{"objective": "nll", "limit": 3}, {"objective": "kl", "split": "train"}],
        },
        "limit": 9,
        "split": "validation",
    }
    first, second = RunConfig.read(values).terms
    assert (first.limit, first.split) == (3, "validation")
    assert (second.limit, second.split) == (9, "train")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "0.7*margn + 0.3*kl"}, 'unknown objective "margn"'),
        ({"objective": "2*nll"}, "a weight to a single objective"),
        ({"objective": "nll + nll"}, "in the mixture twice"),
        ({"objective": "0*nll + kl"}, "greater than 0"),
        ({"objective": "-1*nll + kl"}, "is no term"),
        ({"objective": "nll + kl", "task": "c4"}, "names its tasks itself"),
        ({"objective": "nll:c4", "task": "wikitext2"}, "Leave one out"),
        ({"objective": "nll:"}, "is no term"),
    ],
)
def test_what_cannot_be_read_is_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig.read(values)


def test_a_plain_name_stays_as_it_is() -> None:
    assert read_objective("nll") == "nll"
    assert read_objective({"name": "nll"}) == {"name": "nll"}
    assert read_objective(7) == 7
