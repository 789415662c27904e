from pathlib import Path

from shoal.engine.artifacts import Artifacts
from shoal.engine.store import Store


def test_what_is_kept_before_there_is_a_file_is_written_when_there_is(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first = Artifacts(path)
    first["a"] = b"early"
    assert not path.exists()
    first.attach(path)
    first["b"] = b"late"
    assert dict(Artifacts(path)) == {"a": b"early", "b": b"late"}
    del first["a"]
    assert list(Artifacts(path)) == ["b"]


def test_it_lives_in_the_file_of_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Store(path, {}) as store:
        kept = Artifacts(path)
        kept.attach(path)
        kept["x"] = b"\x00\x01"
        assert len(store) == 0
    assert Artifacts(path)["x"] == b"\x00\x01"


def test_a_file_that_is_no_store_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a database, but long enough to look at" * 50)
    assert len(Artifacts(path)) == 0
