"""The program that runs the cells of a notebook, as the slot starts it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from ludus.sandboxes.fusion import notebook_kernel
from ludus.sandboxes.fusion.fusion_wire import CellResult
from ludus.sandboxes.fusion.notebook import read_report


def run(folder: Path, *cells: str, limit_s: float = 0.0) -> list[CellResult]:
    """Run cells, and return what is read of the report; none takes longer than 30 seconds."""
    job = {"cells": cells, "cell_timeout": limit_s}
    (folder / notebook_kernel.CELLS_FILE).write_text(json.dumps(job))
    command = [sys.executable, notebook_kernel.__file__]
    report = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)
    return read_report(report.stdout, len(cells))


def test_a_late_cell_that_catches_exceptions_is_stopped_all_the_same(tmp_path: Path) -> None:
    caught = "import time\ntry: time.sleep(60)\nexcept Exception: pass\ntime.sleep(60)"
    caught_twice = (
        "import time\n"
        "for _ in range(2):\n"
        "    try: time.sleep(60)\n"
        "    except BaseException: pass\n"
        "print('went on')"
    )
    first, second, third = run(tmp_path, caught, caught_twice, "3", limit_s=0.3)
    assert first.error[0]["ename"] == "CellTimeout"
    assert second.stdout == "went on\n"
    assert third.display == [{"text/plain": "3"}]


def test_an_exception_that_is_slow_to_tell_its_text_counts_against_the_limit(
    tmp_path: Path,
) -> None:
    slow = (
        "import time\nclass Slow(Exception):\n    def __str__(self): time.sleep(60)\nraise Slow()"
    )
    began = time.monotonic()
    first, second = run(tmp_path, slow, "2", limit_s=0.3)
    assert time.monotonic() - began < 30
    assert first.error[0]["ename"] == "Slow"
    assert second.display == [{"text/plain": "2"}]


def test_what_was_shown_is_told_as_it_was_and_what_json_cannot_hold_is_left_out(
    tmp_path: Path,
) -> None:
    shown = "class Shown:\n    form = {'a': 1}\n    def _repr_json_(self): return self.form\n"
    changed = f"{shown}x = Shown()\ndisplay(x)\nx.form['a'] = object()"
    lacking = "x.form = {'a': float('nan')}\nx"
    first, second, third = run(tmp_path, changed, lacking, "3")
    assert first.display[0]["application/json"] == {"a": 1}
    assert (list(second.display[0]), second.error) == (["text/plain"], [])
    assert third.display == [{"text/plain": "3"}]
