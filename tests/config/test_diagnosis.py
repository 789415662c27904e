import pytest

from shoal.config.diagnosis import DiagnosisConfig
from shoal.core.errors import UsageError


def test_texts_of_flags_are_read():
    config = DiagnosisConfig.read(
        {"seeds": "2", "temperatures": "0.5, 2", "tasks": "a,b", "probes": "choice retrieval"}
    )
    assert config.seeds == (0, 1)
    assert config.temperatures == (0.5, 2.0)
    assert config.tasks == ("a", "b")
    assert config.probes == ("choice", "retrieval")
    assert DiagnosisConfig.read({"seeds": "5,7"}).seeds == (5, 7)
    assert DiagnosisConfig.read({"answers": " yes| no"}).answers == (" yes", " no")


def test_thresholds_come_from_a_file(tmp_path):
    file = tmp_path / "limits.yaml"
    file.write_text("looping: [0.1, 0.2]\nfound: -0.1,-0.2\n")
    found = DiagnosisConfig.read({"thresholds": str(file)}).thresholds
    assert (found.looping, found.found) == ((0.1, 0.2), (-0.1, -0.2))
    assert found.short_kl == (0.05, 0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seeds": "0"}, "at least one seed"),
        ({"seeds": "1,1"}, "distinct"),
        ({"seeds": "a"}, "seeds"),
        ({"temperatures": "0"}, "positive"),
        ({"temperatures": ""}, "positive"),
        ({"temperature": "nan"}, "finite"),
        ({"temperature": "0"}, "greater than 0"),
        ({"probes": ""}, "at least one probe"),
        ({"probes": "everything"}, "layerwise"),
        ({"steps": "1"}, "greater than or equal to 2"),
        ({"thresholds": "/nowhere.yaml"}, "no config at"),
        ({"thresholds": {"looping": "0.5"}}, "looping"),
        ({"thresholds": {"looping": "a,b"}}, "looping"),
        ({"num_prompt": 3}, "Did you mean"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        DiagnosisConfig.read(values)
