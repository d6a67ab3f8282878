# pyright: basic
"""Keeps what the driver of a run on a cluster knows of the run's processes, in a file, too.

The file is `processes.json` in the run folder, which `ludus watch` reads.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.metrics import replace_file

from .resources import ANSWER_S, answer

logger = logging.getLogger(__name__)
BOARD = "processes.json"
"""The file's name in the run folder."""
EVENTS = 100
"""How many of the last events are kept."""


@dataclass
class PlacedProcess:
    """A process of the run, as the driver knows it."""

    name: str
    actor: Any
    """The Ray actor that runs the process."""
    url: str = ""
    """The address of a server; while the server is started again, the last address."""
    node: str = ""
    """The name of the machine; empty before the process is placed on a machine."""
    pid: int = 0
    """The process's id on the machine; 0 before the process has started."""
    code: int | None = None
    """The exit code; None while the process runs."""
    restarts: int = 0
    """How often the process was started again."""
    state: str = "starting"
    """starting, running, lost, or `ended with CODE`."""
    lost: bool = False
    """Whether the actor does not answer, or a signal ended the process."""


def look(processes: Sequence[PlacedProcess]) -> None:
    """Update the state of all processes, by asking all actors at the same time.

    Actors that do not answer are waited for together, `ANSWER_S` in all.
    """
    calls = [process.actor.state.remote() for process in processes]
    deadline = time.monotonic() + ANSWER_S
    for process, call in zip(processes, calls, strict=True):
        report = answer(call, None, within_s=max(0.0, deadline - time.monotonic()))
        if report is None:
            process.state, process.lost = "lost" if process.pid else "starting", True
            continue
        if process.pid and report.pid and report.pid != process.pid:
            process.restarts += 1
        process.node, process.pid, process.code = report.node, report.pid, report.code
        # A server that is being started again keeps its last address until it has another.
        process.url = report.url or process.url
        process.lost = report.code is not None and report.code < 0  # a signal, as in subprocess
        if report.code is not None:
            process.state = f"ended with {report.code}"
        else:
            process.state = "running" if report.ready else "starting"


class Board:
    """The file of a run's processes: the stage of the run, where each process runs, and the last
    events.

    Args:
        folder: the run folder, where the file is written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / BOARD
        self.stage = "placing"
        self.events: list[dict[str, Any]] = []
        self._processes: dict[str, PlacedProcess] = {}
        self._shown: Any = None
        """The rows and the stage of the last `write`."""
        self._is_written = True
        """Whether the file holds them; not after a failure."""

    def add(self, name: str, actor: Any) -> PlacedProcess:
        """Add a process. A second process of the same name replaces the first, as a restart."""
        before = self._processes.get(name)
        self._processes[name] = PlacedProcess(
            name, actor, restarts=before.restarts + 1 if before else 0
        )
        return self._processes[name]

    def enter(self, stage: str) -> None:
        """Begin a stage of the run."""
        self.stage = stage
        self._note(stage)
        self.write()

    def write(self) -> None:
        """Write the file if something has changed, and note changes of state as events.

        A file that cannot be written, for a full disk for instance, is told in the log and is no
        reason to end the run: the next call tries again.
        """
        rows = [
            {
                "name": process.name,
                "node": process.node,
                "pid": process.pid,
                "state": process.state,
                "restarts": process.restarts,
            }
            for process in self._processes.values()
        ]
        if (rows, self.stage) == self._shown and self._is_written:
            return
        before = {row["name"]: row for row in self._shown[0]} if self._shown else {}
        for row in rows:
            old = before.get(row["name"], {})
            if (old.get("state"), old.get("pid")) != (row["state"], row["pid"]):
                self._note(f"{row['name']}: {row['state']} on {row['node'] or 'no node yet'}")
        self._shown = rows, self.stage
        board = {"stage": self.stage, "processes": rows, "events": self.events}
        try:
            replace_file(self.path, json.dumps(board, indent=1).encode())
        except OSError as error:
            if self._is_written:
                logger.warning("%s cannot be written: %s", self.path, error)
            self._is_written = False
        else:
            self._is_written = True

    def _note(self, what: str) -> None:
        self.events = [*self.events[1 - EVENTS :], {"time": time.time(), "what": what}]


class AddressFile:
    """The file with the addresses of servers, which their clients read again while they run.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault: OSError | None = None
        """Why the file does not hold the newest addresses; None while it does."""
        self._written: list[str] = []

    def write(self, urls: Sequence[str]) -> bool:
        """Write the file if an address is new; return whether it was written.

        As with the board, a file that cannot be written is told in the log and ends nothing: the
        old file stays, and the next call tries again.
        """
        urls = list(dict.fromkeys(urls))
        if not urls or urls == self._written:
            return False
        try:
            replace_file(self.path, "\n".join(urls).encode() + b"\n")
        except OSError as error:
            if self.fault is None:
                logger.warning("%s cannot be written: %s", self.path, error)
            self.fault = error
            return False
        self.fault, self._written = None, urls
        logger.info("%s: %s", self.path.name, ", ".join(urls))
        return True
