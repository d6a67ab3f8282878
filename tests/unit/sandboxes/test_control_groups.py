"""Control groups that drivers left behind, or that end while they are looked at."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.sandboxes.local.control_groups import BorrowedGroup, group_of, remove_leftovers


def test_several_drivers_remove_what_others_left_at_the_same_time(tmp_path: Path) -> None:
    places: Any = SimpleNamespace(folders=lambda: [tmp_path])
    for _ in range(20):
        for number in range(60):
            (tmp_path / f"ludus-{4_000_000 + number}-1").mkdir()  # no process has such a number
        with ThreadPoolExecutor(4) as drivers:
            for removed in [drivers.submit(remove_leftovers, places) for _ in range(4)]:
                removed.result(timeout=30)
        assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_ended_has_no_group_and_the_text_says_why() -> None:
    assert "4194304" in str(group_of(1 << 22))  # the kernel gives no process such a number


def test_a_group_that_ends_while_it_is_opened_keeps_no_file_open(tmp_path: Path) -> None:
    for name in ("cpu.stat", "memory.events"):  # and not `pids.events`
        (tmp_path / name).touch()
    places: Any = SimpleNamespace(memory=tmp_path, pids=tmp_path, cpu=tmp_path, unified=True)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        BorrowedGroup(places)
    assert len(os.listdir("/proc/self/fd")) == len(before)
