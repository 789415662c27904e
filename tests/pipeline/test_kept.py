from shoal.core.records import Mean
from shoal.engine.artifacts import Artifacts
from shoal.pipeline.kept import Kept


def test_a_part_is_computed_once_per_key_and_survives_the_process(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return (Mean(value=float("inf"), low=0.1, high=None, count=1), 2)

    path = tmp_path / "parts.sqlite"
    artifacts = Artifacts()
    artifacts.attach(path)
    kept = Kept(artifacts)
    first = kept.part("a", tuple[Mean, int], ["x", 1], compute)
    assert kept.seconds["a"] >= 0
    again = Kept(Artifacts(path))
    assert again.part("a", tuple[Mean, int], ["x", 1], compute) == first
    assert (len(calls), again.seconds["a"]) == (1, 0.0)
    again.part("a", tuple[Mean, int], ["x", 2], compute)
    again.part("b", tuple[Mean, int], ["x", 1], compute)
    assert len(calls) == 3
