"""Control groups that drivers left behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ludus.sandboxes.local.control_groups import remove_leftovers


def test_several_drivers_remove_what_others_left_at_the_same_time(tmp_path: Path) -> None:
    places: Any = SimpleNamespace(folders=lambda: [tmp_path])
    for _ in range(20):
        for number in range(60):
            (tmp_path / f"ludus-{4_000_000 + number}-1").mkdir()  # no process has such a number
        with ThreadPoolExecutor(4) as drivers:
            for removed in [drivers.submit(remove_leftovers, places) for _ in range(4)]:
                removed.result(timeout=30)
        assert list(tmp_path.iterdir()) == []
