# pyright: basic
"""What the driver knows of a run's processes, and the file that `ludus watch` shows."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.metrics import replace_file

from .resources import answer

BOARD = "processes.json"
EVENTS = 100
"""How many of the last events are kept."""


@dataclass
class PlacedProcess:
    """What the driver knows of a process of the run."""

    name: str
    actor: Any
    url: str = ""
    """The address of a server, the last one while the server is started again."""
    node: str = ""
    pid: int = 0
    code: int | None = None
    """Its exit code; None while it runs."""
    restarts: int = 0
    state: str = "starting"
    lost: bool = False
    """Whether the actor does not answer, or the process was killed."""


def look(processes: Sequence[PlacedProcess]) -> None:
    """Update the state of all processes by asking the actors at once."""
    calls = [process.actor.state.remote() for process in processes]
    for process, call in zip(processes, calls, strict=True):
        found = answer(call, None)
        if found is None:
            process.state, process.lost = "lost" if process.pid else "starting", True
            continue
        if process.pid and found.pid and found.pid != process.pid:
            process.restarts += 1
        process.node, process.pid, process.code = found.node, found.pid, found.code
        # A server that is being started again keeps its place until it has an address.
        process.url = found.url or process.url
        process.lost = found.code is not None and found.code < 0
        ended = "running" if found.code is None else f"ended with {found.code}"
        process.state = ended if found.ready or found.code is not None else "starting"


class Board:
    """The file of a run's processes: the run's stage, and the place and starts of each process.

    Args:
        folder: of the file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / BOARD
        self.stage = "placing"
        self.events: list[dict[str, Any]] = []
        self._processes: dict[str, PlacedProcess] = {}
        self._written: Any = None

    def add(self, name: str, actor: Any) -> PlacedProcess:
        """Put a process on the board; a restarted process replaces the old entry."""
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
        """Write the file, where something has changed."""
        rows = [
            {
                "name": one.name,
                "node": one.node,
                "pid": one.pid,
                "state": one.state,
                "restarts": one.restarts,
            }
            for one in self._processes.values()
        ]
        if (rows, self.stage) == self._written:
            return
        before = {row["name"]: row for row in self._written[0]} if self._written else {}
        for row in rows:
            old = before.get(row["name"], {})
            if (old.get("state"), old.get("pid")) != (row["state"], row["pid"]):
                self._note(f"{row['name']}: {row['state']} on {row['node'] or 'no node yet'}")
        self._written = rows, self.stage
        told = {"stage": self.stage, "processes": rows, "events": self.events}
        replace_file(self.path, json.dumps(told, indent=1).encode())

    def _note(self, what: str) -> None:
        self.events = [*self.events[1 - EVENTS :], {"time": time.time(), "what": what}]
