from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.fingerprint import LENGTH, of_files, of_json

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_key_order_does_not_matter(value: dict[str, object]) -> None:
    assert of_json(value) == of_json(dict(reversed(value.items())))
    assert len(of_json(value)) == LENGTH


def test_values_and_their_types_matter() -> None:
    different = [None, 0, 0.0, "0", [], {}, [0], {"a": 0}, {"b": 0}, False, "é", ["a", "b"], ["ab"]]
    assert len({of_json(v) for v in different}) == len(different)


def test_json_fingerprints_never_change() -> None:
    # Stores of earlier versions are looked up by these: sha256sum of {"depth":30,"model":"m"}.
    assert of_json({"model": "m", "depth": 30}) == "40a1f597510e3d59"


def write(folder: Path, **contents: str) -> list[Path]:
    folder.mkdir()
    for name, text in contents.items():
        (folder / name).write_text(text)
    return [folder / name for name in contents]


def test_files_count_by_name_and_content_not_by_place_or_order(tmp_path: Path) -> None:
    one = write(tmp_path / "one", a="x", b="y")
    same = of_files(one)
    assert of_files(one[::-1]) == same
    assert of_files(write(tmp_path / "moved", a="x", b="y")) == same


@pytest.mark.parametrize("contents", [{"a": "x", "b": "z"}, {"a": "y", "b": "x"}, {"a": "xy"}, {}])
def test_other_files_have_another_fingerprint(tmp_path: Path, contents: dict[str, str]) -> None:
    one = of_files(write(tmp_path / "one", a="x", b="y"))
    assert of_files(write(tmp_path / "two", **contents)) != one
