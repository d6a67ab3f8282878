"""Starting scripts of this folder as several ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 500
Started = list["subprocess.Popen[str]"]
Start = Callable[..., Started]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a script as `world` ranks, as torchrun would; what is left is ended
    after the test.
    """
    every: Started = []

    def start(script: str, world: int, *arguments: object, **changed: list[str]) -> Started:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        made: Started = []
        for rank in range(world):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }
            more = [each[rank] for each in changed.values()]
            command = [sys.executable, str(HERE / script), *map(str, arguments), *more]
            if script == "ludus":
                command = [sys.executable, "-m", "ludus", *map(str, arguments), *more]
            made.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        every.extend(made)
        return made

    yield start
    for rank in every:
        rank.kill()
        rank.wait(timeout=60)
        if rank.stdout is not None:
            rank.stdout.close()
