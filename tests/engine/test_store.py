import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from math import inf, isnan, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask, Part, Site
from shoal.engine.store import Store

CONTEXT = {"model": "m", "dtype": "float32", "data": "d", "objective": "nll:wikitext2"}
ONE = Mask.of(6, [1])


def put(store: Store, *evaluations: Evaluation) -> None:
    store.commit(store.begin([e.mask for e in evaluations]), evaluations)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=8))
def test_losses_come_back_bit_by_bit(losses: list[float]) -> None:
    with Store(None, CONTEXT) as store:
        written = Evaluation.of(ONE, losses)
        put(store, written)
        found = store.get(ONE)
    assert found is not None
    assert found.losses == tuple(losses)
    assert found.rank_key == written.rank_key


def test_losses_that_are_not_finite_come_back() -> None:
    with Store(None, CONTEXT) as store:
        put(store, Evaluation.of(ONE, [nan, inf, -inf, 1.0]))
        found = store.get(ONE)
    assert found is not None
    assert isnan(found.losses[0])
    assert found.losses[1:] == (inf, -inf, 1.0)
    assert not found.finite


def test_stored_evaluations_are_summarised_with_the_weights(tmp_path: Path) -> None:
    written = Evaluation.of(ONE, [1.0, 5.0, 2.0], [3, 1, 2])
    with Store(tmp_path / "s", CONTEXT, [3, 1, 2]) as store:
        put(store, written)
    with Store(tmp_path / "s", CONTEXT, [3, 1, 2]) as store:
        assert store.get(ONE) == written


def test_masks_and_contexts_do_not_mix(tmp_path: Path) -> None:
    attention = Mask(6, frozenset({Site(1, Part.ATTN)}))
    with (
        Store(tmp_path / "s", CONTEXT) as one,
        Store(tmp_path / "s", CONTEXT | {"data": "e"}) as two,
    ):
        put(one, Evaluation.of(ONE, [1.0]))
        put(two, Evaluation.of(ONE, [2.0]), Evaluation.of(attention, [3.0]))
        assert (len(one), len(two)) == (1, 2)
        assert [s.get(ONE).mean for s in (one, two)] == [1.0, 2.0]  # type: ignore[union-attr]
        assert one.get(attention) is None
        put(one, Evaluation.of(Mask.of(6, [2]), [4.0]))
        assert two.get(Mask.of(6, [2])) is None
        assert one.batches() == [(["-[1]"], True), (["-[2]"], True)]
        assert two.batches() == [(["-[1]", "-[1.attn]"], True)]


def test_the_order_of_the_context_does_not_matter() -> None:
    turned = dict(reversed(CONTEXT.items()))
    with Store(None, CONTEXT) as one, Store(None, turned) as other:
        assert one.context == other.context


def test_what_is_written_stays_as_it_was() -> None:
    with Store(None, CONTEXT) as store:
        put(store, Evaluation.of(ONE, [1.0]))
        put(store, Evaluation.of(ONE, [2.0]), Evaluation.of(Mask.of(6, [2]), [3.0]))
        found = store.get(ONE)
        assert found is not None
        assert found.mean == 1.0
        assert len(store) == 2


def test_a_batch_is_written_whole_or_not_at_all() -> None:
    with Store(None, CONTEXT) as store:
        number = store.begin([ONE, Mask.of(6, [2])])

        def failing() -> object:
            yield Evaluation.of(ONE, [1.0])
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.commit(number, failing())  # type: ignore[arg-type]
        broken = Evaluation(Mask.of(6, [2]), (1.0,), "x", object())  # type: ignore[arg-type]
        with pytest.raises(sqlite3.Error):
            store.commit(number, [Evaluation.of(ONE, [1.0]), broken])
        assert len(store) == 0
        assert store.batches() == [(["-[1]", "-[2]"], False)]
        put(store, Evaluation.of(ONE, [1.0]))
        assert len(store) == 1


def test_another_process_or_connection_sees_commits_at_once(tmp_path: Path) -> None:
    with Store(tmp_path / "s", CONTEXT) as writer, Store(tmp_path / "s", CONTEXT) as reader:
        assert reader.get(ONE) is None
        put(writer, Evaluation.of(ONE, [1.0]))
        assert reader.get(ONE) is not None


KILLED = """
import os, signal, sys
from pathlib import Path
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.engine.store import Store

store = Store(Path(sys.argv[1]), {})
for i in range(3):
    masks = [Mask.of(9, [i, j]) for j in range(5, 9)]
    store.commit(store.begin(masks), [Evaluation.of(m, [float(i)] * 50) for m in masks])
number = store.begin([Mask.of(9, [8])])

if sys.argv[2] == "writing":
    store._db.execute("BEGIN IMMEDIATE")
    store._db.execute(
        "INSERT INTO evaluations (context, mask, losses) VALUES (?, '-[8]', x'00')",
        (store.context,),
    )
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moment", ["computing", "writing"])
def test_a_kill_loses_only_the_batch_in_flight(tmp_path: Path, moment: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "s"), moment]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with Store(tmp_path / "s", {}) as store:
        assert len(store) == 12
        assert [finished for _, finished in store.batches()] == [True] * 3 + [False]
        assert store.get(Mask.of(9, [8])) is None
        known = store.get(Mask.of(9, [2, 8]))
    assert known is not None
    assert known.losses == (2.0,) * 50


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\x00" * 4096])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a store of evaluations"):
        Store(path, CONTEXT)
    assert path.read_bytes() == content


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "s"):
        with pytest.raises(UsageError, match=r"is a folder|cannot be opened as a store"):
            Store(path, CONTEXT)


def test_another_database_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "s")
    other.execute("CREATE TABLE contexts (something TEXT)")
    other.commit()
    other.close()
    with pytest.raises(UsageError, match="is not a store of evaluations"):
        Store(tmp_path / "s", CONTEXT)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE evaluations (name TEXT)")
    with pytest.raises(UsageError, match=r"not a store.*somebody else's"):
        Store(path, {})


def test_a_store_that_cannot_be_written_is_not_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with Store(path, {}):
        pass
    own = sqlite3.connect

    def read_only(name: object, **options: object) -> sqlite3.Connection:
        return own(f"file:{name}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with pytest.raises(UsageError, match="cannot be written to") as refused:
        Store(path, {"another": 1})
    assert "delete" not in str(refused.value)
