"""Findings of a training run: what the metrics say, as data in the file `findings.jsonl`.

A finding opens at the step at which its rule first holds, and closes when it holds no longer. The
file has a line for each change, and every ten steps one with the numbers of the day, so that the
newest line of a name is its status:

    {"step": 40, "name": "collapse", "status": "open", "severity": "error", "state": "broken", ...}

The rules are in `ludus.trainer.findings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from .metrics import LineFile, read_lines

FILE = "findings.jsonl"

Status = Literal["open", "closed"]
Severity = Literal["info", "warning", "error"]
State = Literal["solved", "learning", "stuck", "broken"]
"""How a run stands: all tasks are solved, the reward moves, nothing is learned, or what was learned
is lost or cannot be trusted.
"""


class RunFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a finding."""

    step: int
    """The step at which the finding changed."""
    name: str
    """The rule, or the event, that it comes from."""
    status: Status = "open"
    severity: Severity
    state: State | None = None
    """What the finding says of the whole run; None where it says nothing of it."""
    since: int
    """The step at which it opened."""
    number: float = 0.0
    """The quantity that the rule looks at; 0 for an event."""
    threshold: float = 0.0
    """The value of the quantity from which the rule holds; 0 for an event."""
    sentence: str
    """What was found, with its numbers."""
    cause: str | None = None
    """Name of the finding that this one is a consequence of."""
    remedy: str = ""
    """A command, or options of `ludus train`; empty where nothing is to be done."""
    evidence: list[str] = []
    """Columns of `metrics.jsonl` that show it."""


def write_finding(lines: LineFile, finding: RunFinding) -> None:
    """Append a change to the file `findings.jsonl` of a run."""
    lines.append(msgspec.json.encode(finding))


def read_findings(folder: Path) -> list[RunFinding]:
    """Read the changes of the findings of a run, in order; a line that a crash cut short, or that
    is not a finding, is left out. A run without the file has none.
    """
    path = folder / FILE
    return read_lines(path, RunFinding) if path.exists() else []


def newest(findings: Iterable[RunFinding]) -> dict[str, RunFinding]:
    """Return the newest change of each finding by name, in the order of the newest opening."""
    changes = {finding.name: finding for finding in findings}
    return {name: changes[name] for name in sorted(changes, key=lambda name: changes[name].since)}


def gravest_first(findings: Iterable[RunFinding]) -> list[RunFinding]:
    """Return findings by falling severity; equal severities keep the order."""
    return sorted(
        findings, key=lambda finding: ("error", "warning", "info").index(finding.severity)
    )
