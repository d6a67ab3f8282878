"""Runs cells in a slot by `notebook_kernel.py`, and reads the report with care.

The report comes from untrusted code; it decides nothing but what the sender of the cells is told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from ..protocol import Execution, Program
from ..serving.runner import Runner
from .fusion_wire import CellResult
from .notebook_kernel import CELLS_FILE

_reader = msgspec.json.Decoder(CellResult)


@dataclass(frozen=True, slots=True)
class Notebook:
    """The result of a run of cells."""

    execution: Execution
    """The execution of the whole program; its stdout is the report."""
    cells: list[CellResult]
    complete: bool
    """Whether the report covers every cell."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a notebook."""

    sources: Sequence[str]
    """The source text of each cell."""
    timeout_s: float = 0.0
    """The limit of wall time of each cell, in seconds; 0 means no limit."""


async def run_cells(
    runner: Runner,
    cells: Cells,
    template: Program,
    *,
    patience_s: float,
    operation: str = "notebook",
) -> Notebook:
    """Run `cells` in a fresh namespace, in order; a cell that raises does not stop the next.

    Args:
        runner: runs them.
        cells: the cells.
        template: the limits and files of the run; its code is not used.
        patience_s: how long to wait for a slot, in seconds.
        operation: the name of the work in the metrics.

    Raises:
        QueueFull: no slot was free in time.
        ConfigError: a path is not allowed.
    """
    job = json.dumps({"cells": list(cells.sources), "cell_timeout": cells.timeout_s}).encode()
    files = {**template.files, CELLS_FILE: job}
    program = msgspec.structs.replace(
        template, code=kernel_source(), language="python", files=files
    )
    execution = await runner.run(program, patience_s=patience_s, operation=operation, bounded=False)
    results = read_report(execution.stdout, len(cells.sources))
    return Notebook(execution, results, complete=len(results) == len(cells.sources))


def read_report(report: str, max_cells: int) -> list[CellResult]:
    """Return the results before the first line that is not a result."""
    results: list[CellResult] = []
    for line in report.splitlines()[:max_cells]:
        # A line that is no result shows that the report is cut off, or holds the program's output.
        try:
            results.append(_reader.decode(line))
        except (msgspec.DecodeError, RecursionError):
            break
    return results


@cache
def kernel_source() -> str:
    """Return the source of the program that runs the cells."""
    return Path(__file__).with_name("notebook_kernel.py").read_text("utf-8")
