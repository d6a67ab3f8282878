"""Stores whose file cannot be written any more: a paid answer is used, and the loss is told."""

import logging
import sqlite3
import threading
from pathlib import Path

import pytest

from ludus.errors import ConfigError, RewardUnavailable
from ludus.llm.limits import DiskCache
from ludus.rewards.judge.evolving.buffer import RubricBuffer
from ludus.rewards.judge.evolving.snapshots import SnapshotStore
from ludus.rewards.judge.store import JudgementStore


def fill(store: JudgementStore | SnapshotStore) -> None:
    """Have SQLite answer every further write with "database or disk is full"."""
    database = store._db  # pyright: ignore[reportPrivateUsage]
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")


def test_a_judgement_that_cannot_be_kept_is_used_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = JudgementStore(tmp_path / "judgements.db")
    assert store.put("early", b"{}", b"kept") == b"kept"
    fill(store)
    with caplog.at_level(logging.WARNING):
        assert store.put("late", b"{}" * 9000, b"paid" * 9000) == b"paid" * 9000
        assert store.put("later", b"{}" * 9000, b"paid" * 9000) == b"paid" * 9000
    assert store.get("late") is None
    assert store.get("early") == b"kept"
    assert ["full" in record.getMessage() for record in caplog.records] == [True]
    store.close()


def test_a_file_that_another_process_begins_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "judgements.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ended = threading.Timer(0.1, other.execute, ["COMMIT"])
    ended.start()
    store = JudgementStore(path)
    assert store.put("key", b"{}", b"") == b""
    assert store.put("key", b"{}", b"later") == b""
    ended.join()
    store.close()
    other.close()


def test_a_store_that_another_process_writes_to_is_opened_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "judgements.db"
    first = JudgementStore(path)
    first.put("key", b"{}", b"kept")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = JudgementStore(path)
    assert store.get("key") == b"kept"
    for database in (other, store, first):
        database.close()


def test_a_rubric_that_cannot_be_kept_gives_no_reward(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "rubrics.db")
    fill(store)
    with pytest.raises(RewardUnavailable, match="cannot be kept"):
        store.keep(RubricBuffer(question="q" * 9000, version=1))
    store.close()


def test_an_answer_that_cannot_be_cached_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DiskCache(tmp_path / "answers")
    (tmp_path / "answers" / "ab").write_text("a file where a folder has to be")
    with caplog.at_level(logging.WARNING):
        cache.put("abcd", b"answer")
        cache.put("abce", b"answer")
    assert cache.get("abcd") is None
    assert len(caplog.records) == 1


def test_a_file_of_rubrics_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rubrics.db"
    store = SnapshotStore(path)
    store.keep(RubricBuffer(question="q"))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4104] + b"U" * (len(whole) - 4104))
    store = SnapshotStore(path)
    for read in (lambda: store.latest("q"), lambda: store.newer({}), lambda: store.at("q", 0)):
        with pytest.raises(ConfigError, match=r"cannot read rubrics in .*rubrics\.db.*malformed"):
            read()
    store.close()


@pytest.mark.parametrize("store", [JudgementStore, SnapshotStore])
def test_a_file_in_the_home_of_nobody_is_refused_and_not_made_here(
    store: type[JudgementStore | SnapshotStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'~nobody-of-this-name/.*' is in no home"):
        store("~nobody-of-this-name/kept.db")
    assert not list(tmp_path.iterdir())
