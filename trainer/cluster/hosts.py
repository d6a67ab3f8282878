# pyright: basic
"""What Ray runs on a node: an actor that starts and watches a process of ludus.

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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import ray

if TYPE_CHECKING:
    from ..engines.vllm.server import Launch

BOUND = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(0); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a program that the system kills when the thread that started it ends."""
READY = re.compile(r"^serving .* at (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class HostState:
    """The state of an actor of a run, for the driver."""

    node: str
    pid: int
    code: int | None = None
    """The exit code of the process; None while it runs."""
    ready: bool = True
    """Whether it does its work already: a server serves, an engine is built."""
    url: str = ""
    """The address of a server; empty before it serves."""


def node_name() -> str:
    """Return the node's address and the beginning of the node id, as nodes may share an address."""
    return f"{ray.util.get_node_ip_address()} {ray.get_runtime_context().get_node_id()[:6]}"


class ProcessHost:
    """Runs `ludus` with the given words to the end.

    Args:
        words: the command line after `ludus`.
        variables: added to the environment.
        log: what the process writes; a folder that all nodes see.
    """

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], log: str) -> None:
        self.log = Path(log)
        self._process: subprocess.Popen[bytes] | None = None
        self._run([sys.executable, "-m", "ludus", *words], {**os.environ, **variables})

    def _run(self, command: list[str], variables: dict[str, str]) -> None:
        started = threading.Event()
        # A thread of its own, which lives as long as the process: see BOUND.
        threading.Thread(target=self._wait, args=(command, variables, started), daemon=True).start()
        started.wait(60)

    def _wait(
        self, command: list[str], variables: dict[str, str], started: threading.Event
    ) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as file:
            process = self._process = subprocess.Popen(
                [sys.executable, "-c", BOUND, str(os.getpid()), *command],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            started.set()
            process.wait()
        self._ended()

    def _ended(self) -> None:
        """Do what the end of the process asks for."""

    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid if self._process is not None else 0

    def state(self) -> HostState:
        """Return what the driver wants to know."""
        code = None if self._process is None else self._process.poll()
        return HostState(node_name(), self.pid(), code, ready=self.pid() > 0)

    def said(self) -> str:
        """Return the end of what the process has written."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def stop(self) -> None:
        """Ask the process to end as on SIGTERM: a run writes a checkpoint."""
        if self._process is not None:
            self._process.terminate()


class ServerHost(ProcessHost):
    """Runs a `ludus serve`; when that ends, the actor ends too, and Ray starts both again.

    Args:
        names: what is served, and further words after `serve`.
        variables: added to the environment; the token is among them.
        log: what the server writes.
        before: words before `serve`, such as those that import files of the user.
    """

    def __init__(
        self,
        names: Sequence[str],
        variables: Mapping[str, str],
        log: str,
        before: Sequence[str] = (),
    ) -> None:
        host = ray.util.get_node_ip_address()
        words = [*before, "serve", *names, "--host", host, "--port", "0"]
        super().__init__(words, variables, log)

    def state(self) -> HostState:
        """Return the state for the driver, with the server's address once the server is ready."""
        line = READY.search(self.said())
        return replace(super().state(), ready=line is not None, url=line[1] if line else "")

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

    def address(self) -> tuple[str, int]:
        """Return the address of this node, and a port that is free now."""
        host = ray.util.get_node_ip_address()
        with socket.create_server((host, 0)) as free:
            return host, free.getsockname()[1]

    def begin(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the rank."""
        super().__init__(words, variables, str(self.log))


class VllmHost(RankHost):
    """Runs a vLLM server; rank 0 says which, and finds out by its health when that has ended.

    Args:
        log: what the server writes.
    """

    _url = ""
    _serving = False

    def state(self) -> HostState:
        """Return the state for the driver; a server is ready once the health check passes."""
        state = super().state()
        if self._url and not self._serving:
            with suppress(httpx.HTTPError):
                health = httpx.get(f"{self._url}/health", timeout=2, trust_env=False)
                self._serving = health.is_success
        return replace(state, ready=self._serving and state.code is None, url=self._url)

    def serve(self, launch: Launch) -> str:
        """Start a server, after ending an older server; return the address."""
        from ..engines.vllm.server import command, environment  # servers' actors need no torch

        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
        self._serving = False
        host, port = self.address()
        # Ray shows an actor its own GPUs alone, by a variable that the server inherits.
        variables = environment(os.environ, transfer=launch.transfer, more=launch.environment)
        self._run(command(replace(launch, host=host), port), variables)
        self._url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return self._url
