# pyright: basic
"""What Ray runs on a node: an actor that starts one process of ludus, and watches it.

The process does what it does on a laptop: `ludus serve`, or a rank of `ludus train`. Ray names the
actor, places it, and starts it again where that is safe: servers always, ranks never, since the
ranks of a group end together.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import ray

BOUND = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(0); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a program that the system kills when the thread that started it ends."""
READY = re.compile(r"^serving .* at (\S+)$", re.MULTILINE)


class ProcessHost:
    """Runs `ludus` with the given words until it ends.

    Args:
        words: the command line after `ludus`.
        variables: added to the environment.
        log: what the process writes; a folder that all nodes see.
    """

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], log: str) -> None:
        self.log = Path(log)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        # A thread of its own, which lives as long as the process: see BOUND.
        threading.Thread(target=self._run, args=(list(words), dict(variables)), daemon=True).start()
        self._started.wait(60)

    def _run(self, words: list[str], variables: dict[str, str]) -> None:
        command = [sys.executable, "-c", BOUND, str(os.getpid())]
        command += [sys.executable, "-m", "ludus", *words]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            self._started.set()
            self._process.wait()
        self._ended()

    def _ended(self) -> None:
        """Do what the end of the process asks for."""

    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid if self._process is not None else 0

    def code(self) -> int | None:
        """Return the exit code of the process; None while it runs."""
        return None if self._process is None else self._process.poll()

    def said(self) -> str:
        """Return the end of what the process has written."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def stop(self) -> None:
        """Ask the process to end as it does on SIGTERM: a run writes a checkpoint."""
        if self._process is not None:
            self._process.terminate()


class ServerHost(ProcessHost):
    """Runs a `ludus serve`; when that ends, the actor ends too, and Ray starts both again.

    Args:
        names: what is served.
        variables: added to the environment; the token is among them.
        log: what the server writes.
    """

    def __init__(self, names: Sequence[str], variables: Mapping[str, str], log: str) -> None:
        host = ray.util.get_node_ip_address()
        super().__init__(["serve", *names, "--host", host, "--port", "0"], variables, log)

    def url(self) -> str:
        """Return the server's address; empty before it serves."""
        line = READY.search(self.said())
        return line[1] if line else ""

    def _ended(self) -> None:
        os._exit(1)


class RankHost(ProcessHost):
    """Runs a rank of `ludus train`.

    Args:
        log: what the rank writes.
    """

    def __init__(self, log: str) -> None:
        self.log = Path(log)
        self._process = None
        self._started = threading.Event()

    def address(self) -> tuple[str, int]:
        """Return the address of this node, and a port that is free now."""
        host = ray.util.get_node_ip_address()
        with socket.create_server((host, 0)) as free:
            return host, free.getsockname()[1]

    def begin(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the rank."""
        super().__init__(words, variables, str(self.log))
