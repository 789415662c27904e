import pytest

from shoal.config.geometry import LAB, GeometryConfig
from shoal.core.errors import UsageError

TASKS = {"id": "arc_easy", "ood": "gsm8k"}


def test_texts_of_flags_are_read():
    config = GeometryConfig.read(
        {
            **TASKS,
            **{"alphas": "1, 0.5,0.5", "ridges": "0.1", "random_seeds": "2"},
            **{"parts": "interventions profiles", "metric": "accuracy,nll", "remove": "3,7"},
        }
    )
    assert config.alphas == (0.5, 1.0)
    assert config.ridges == (0.1,)
    assert config.random_seeds == (0, 1)
    assert config.parts == ("profiles", "interventions")
    assert config.metric == ("accuracy", "nll")
    assert config.remove == "3,7"


@pytest.mark.parametrize("value", [[3, 7], (3, 7), ["3", "7"]])
def test_sites_may_be_given_one_by_one(value):
    assert GeometryConfig.read({**TASKS, "remove": value}).remove == "3,7"
    assert GeometryConfig.read({**TASKS, "remove": 3}).remove == "3"


def test_the_lab_has_sizes_of_its_own_where_none_were_given():
    config = GeometryConfig.read({**TASKS, "items": 10}).for_lab()
    assert config.items == 10
    assert config.control_masks == LAB["control_masks"]
    assert config.skip_first == 0
    assert set(LAB) <= set(GeometryConfig.model_fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "name both tasks"),
        ({"id": "arc_easy"}, "name both tasks"),
        ({"id": "a", "ood": "a"}, "no shift from itself"),
        ({**TASKS, "items": "1"}, "greater than or equal to 2"),
        ({**TASKS, "items": "1000000"}, "less than or equal to 4096"),
        ({**TASKS, "loss_items": "1000000"}, "less than or equal to 4096"),
        ({**TASKS, "parts": ""}, "at least one part"),
        ({**TASKS, "parts": "gaps"}, "profiles"),
        ({**TASKS, "alphas": "-1"}, "0 or more"),
        ({**TASKS, "alphas": "nan"}, "0 or more"),
        ({**TASKS, "ridges": ""}, "at least one"),
        ({**TASKS, "random_seeds": "0"}, "at least one seed"),
        ({**TASKS, "random_seeds": "1,1"}, "distinct"),
        ({**TASKS, "metric": "kl"}, "margin"),
        ({**TASKS, "threshold": "1.5"}, "less than or equal to 1"),
        ({**TASKS, "skip_first": "127"}, "no two are left"),
        ({**TASKS, "item": 3}, "Did you mean"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        GeometryConfig.read(values)
