import json
import math
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.plan import ModelRef, Plan, Score

MASK = Mask(6, frozenset({Site(1), Site(2), Site(4, Part.ATTN)}))


def plan(**values: Any) -> Plan:
    return Plan(
        model=ModelRef(id="org/name", revision="abc", fingerprint="f00"), mask=MASK, **values
    )


def saved(path: Path, **changes: Any) -> Path:
    value = json.loads(plan().model_dump_json()) | changes
    path.write_text(json.dumps(value))
    return path


def test_saving_and_loading_loses_nothing(tmp_path: Path) -> None:
    full = plan(
        objective="nll:wikitext2",
        search={"name": "random", "samples": 3},
        score=Score(mean=1.5, stderr=0.1, dense=1.25, examples=8),
        evaluations=17,
        data={"bos": True},
        dtype="float32",
        seed=3,
    )
    full.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == full
    assert Plan.load(str(tmp_path / "plan.json")).mask == MASK
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_saving_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan(seed=1).save(path)
    plan(seed=2).save(path)
    assert Plan.load(path).seed == 2


def test_scores_that_are_not_finite_survive_as_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan(score=Score(mean=math.nan, dense=math.inf, examples=2)).save(path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    score = Plan.load(path).score
    assert score is not None
    assert math.isnan(score.mean)
    assert score.dense == math.inf


@pytest.mark.parametrize("name", ["plan.json", "shoal_plan.json"])
def test_a_folder_gives_its_plan(tmp_path: Path, name: str) -> None:
    plan(seed=5).save(tmp_path / name)
    assert Plan.load(tmp_path).seed == 5


def test_a_run_folder_prefers_its_own_plan(tmp_path: Path) -> None:
    plan(seed=1).save(tmp_path / "plan.json")
    plan(seed=2).save(tmp_path / "shoal_plan.json")
    assert Plan.load(tmp_path).seed == 1


def test_a_missing_plan_says_what_to_give(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(UsageError, match=r"no plan at .*Give a plan\.json"):
            Plan.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"'])
def test_what_is_no_object_is_no_plan(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="holds no JSON object"):
        Plan.load(path)


def test_binary_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="holds no JSON object"):
        Plan.load(path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_schema_versions_are_refused(tmp_path: Path, version: Any) -> None:
    path = saved(tmp_path / "plan.json", schema_version=version)
    with pytest.raises(UsageError, match=f"schema version {version!r}; this shoal reads version 1"):
        Plan.load(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mask": {"depth": 3, "removed": ["7"]}}, r"mask: block 7 does not .* 0 to 2\.$"),
        ({"mask": {"depth": 3}}, "mask: a mask in JSON is"),
        ({"model": {"id": "a"}}, r"model\.fingerprint: Field required\.$"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
    ],
)
def test_malformed_plans_name_the_place(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        Plan.load(saved(tmp_path / "plan.json", **changes))
