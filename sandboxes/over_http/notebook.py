"""Cells in, what each of them showed out: `kernel.py` run in a slot, its report read with care.

The report comes from untrusted code; nothing depends on it but what its own sender is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from ..protocol import Execution, Limits
from .fusion_wire import CellResult
from .kernel import CELLS_FILE
from .runner import Runner

_reader = msgspec.json.Decoder(CellResult)


@dataclass(frozen=True, slots=True)
class Notebook:
    """A run of cells."""

    execution: Execution
    """Of the whole; its stdout is the report."""
    cells: list[CellResult]
    complete: bool
    """Whether every cell was reported on."""


async def run_cells(
    runner: Runner,
    cells: Sequence[str],
    *,
    limits: Limits,
    patience_s: float,
    cell_timeout_s: float = 0.0,
    files: Mapping[str, bytes] | None = None,
    fetch_files: Sequence[str] = (),
    operation: str = "notebook",
) -> Notebook:
    """Run `cells` in a fresh namespace, in order; one that raises does not stop the next.

    Raises:
        QueueFull: no slot in time. ConfigError: a path is not allowed.
    """
    job = json.dumps({"cells": list(cells), "cell_timeout": cell_timeout_s}).encode()
    done = await runner.run(
        kernel_source(),
        "python",
        limits=limits,
        patience_s=patience_s,
        files={**(files or {}), CELLS_FILE: job},
        fetch_files=fetch_files,
        operation=operation,
        bounded=False,
    )
    results = read_report(done.stdout, len(cells))
    return Notebook(done, results, complete=len(results) == len(cells))


def read_report(report: str, most: int) -> list[CellResult]:
    """The results before the first line that is none."""
    results: list[CellResult] = []
    for line in report.splitlines()[:most]:
        try:
            results.append(_reader.decode(line))
        except (msgspec.DecodeError, RecursionError):  # cut off, or the program's own words
            break
    return results


@cache
def kernel_source() -> str:
    """The program that runs the cells."""
    return Path(__file__).with_name("kernel.py").read_text("utf-8")
