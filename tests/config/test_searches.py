import inspect

import pytest

from shoal.config.base import Named
from shoal.config.objectives import OBJECTIVES, ObjectiveConfig
from shoal.config.searches import SEARCHES


@pytest.mark.parametrize("config", SEARCHES.values(), ids=list(SEARCHES))
def test_every_search_has_defaults_and_an_implementation(config: type[Named]) -> None:
    ready = config()
    assert SEARCHES[ready.name] is config
    search = ready.load()
    assert inspect.isgeneratorfunction(search)
    assert len(inspect.signature(search).parameters) == 2
    assert ready.summary
    assert config.read(ready.model_dump()) == ready


@pytest.mark.parametrize("config", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_every_objective_has_defaults_and_states_its_data(config: type[ObjectiveConfig]) -> None:
    ready = config()
    assert OBJECTIVES[ready.name] is config
    assert ready.reads
    assert set(ready.reads) <= {"text", "choice", "prompt"}
    assert ready.default_task
    assert ready.summary
    assert config.read(ready.model_dump()) == ready


def test_every_option_has_a_description() -> None:
    for config in (*SEARCHES.values(), *OBJECTIVES.values()):
        for name, option in config.model_fields.items():
            assert name == "name" or option.description, f"{config.__name__}.{name}"
