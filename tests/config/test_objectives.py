import pytest

from shoal.config.base import pick
from shoal.config.objectives import OBJECTIVES, AccuracyConfig, MarginConfig
from shoal.core.errors import UsageError


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nll", ("text",)),
        ("margin", ("choice",)),
        ("likelihood", ("choice",)),
        ("accuracy", ("choice",)),
        ("kl", ("text",)),
        ("trajectory", ("prompt", "choice", "text")),
        ("exact_match", ("prompt", "choice")),
    ],
)
def test_each_reads_its_kinds_of_data(name: str, kinds: tuple[str, ...]) -> None:
    assert OBJECTIVES[name].reads == kinds


def test_normalisation_defaults_per_objective() -> None:
    assert MarginConfig().normalise == "token"
    assert AccuracyConfig().normalise == "sum"


def test_options_are_checked() -> None:
    assert pick("objective", OBJECTIVES, {"name": "margin", "pair": "max"}).pair == "max"
    with pytest.raises(UsageError, match=r'"normalize"\. Did you mean "normalise"'):
        pick("objective", OBJECTIVES, {"name": "margin", "normalize": "sum"})
    with pytest.raises(UsageError, match=r"pair: Input should be 'mean', 'sum' or 'max'"):
        pick("objective", OBJECTIVES, {"name": "margin", "pair": "min"})
    with pytest.raises(UsageError, match='unknown objective "nil"'):
        pick("objective", OBJECTIVES, "nil")
