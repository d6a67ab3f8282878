"""What tests of several peers share.

Each file is run in the virtual environment of its peer (`make test-peers`); elsewhere its tests
skip.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import cloudpickle
import pytest

from . import games

# worker processes could take another project's `tests` for ours
cloudpickle.register_pickle_by_value(games)
GAMES = Path(__file__).with_name("games.py")
Serving = Callable[..., AbstractContextManager[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == GAMES.parent:
            item.add_marker(pytest.mark.peers)


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Runs `ludus serve` with the games of these tests; gives the address."""

    @contextmanager
    def served(*arguments: str, also: Path = GAMES) -> Generator[str]:
        imported = [part for file in {GAMES, also} for part in ("--import", str(file))]
        command = [sys.executable, "-m", "ludus", *imported, "serve", *arguments, "--drain-s", "0"]
        server = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True)
        assert server.stdout
        try:
            line = server.stdout.readline()
            assert " at " in line, f"the server did not start: {line!r}"
            yield line.split(" at ")[1].strip()
        finally:
            server.terminate()
            server.wait(timeout=60)
            server.stdout.close()

    return served


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of agents, where some have played."""
    properties = [
        dict(report.user_properties)
        for report in terminalreporter.stats.get("passed", [])
        if hasattr(report, "user_properties")
    ]
    rows = [json.loads(each["agent"]) for each in properties if "agent" in each]
    if not rows:
        return
    terminalreporter.write_line("| agent | calls | rows | rows by cause | answers it holds |")
    terminalreporter.write_line("|---|---|---|---|---|")
    for name, calls, number, causes, held in rows:
        told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
        terminalreporter.write_line(f"| {name} | {calls} | {number} | {told} | {held} |")
    total = sum(row[1] for row in rows)
    terminalreporter.write_line(f"{total} calls, each sampled token in one row under its prefix")
