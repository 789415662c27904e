import pytest

from shoal.core import errors
from shoal.core.errors import ShoalError, closest, unknown_name


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.UsageError, ValueError),
        (errors.UnsupportedModelError, ValueError),
        (errors.MissingDependencyError, ImportError),
        (errors.VerificationError, RuntimeError),
        (errors.BudgetError, ValueError),
        (errors.NotFiniteError, ArithmeticError),
    ],
)
def test_every_error_is_one_of_ours_and_the_matching_builtin(
    kind: type[ShoalError], builtin: type[Exception]
) -> None:
    error = kind("why")
    assert isinstance(error, ShoalError)
    assert isinstance(error, builtin)
    assert str(error) == "why"


def test_closest_names_a_near_miss_only() -> None:
    assert closest("gredy", ["random", "greedy"]) == ' Did you mean "greedy"?'
    assert closest("xyz", ["random", "greedy"]) == ""
    assert closest("greedy", []) == ""


def test_unknown_name_says_what_was_given_what_is_near_and_what_is_known() -> None:
    text = str(unknown_name("search", "baem", iter(["random", "beam"])))
    assert text == 'unknown search "baem". Did you mean "beam"? Known: beam, random.'
