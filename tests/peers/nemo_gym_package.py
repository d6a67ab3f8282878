"""Servers of the package `nemo-gym`, unmodified, in the interpreter that has it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

PYTHON_VARIABLE = "LUDUS_LIVE_PYTHON"
START_TIMEOUT_S = 120.0
LEGACY = "environment_servers.legacy_agent"
AGENT = "responses_api_agents.simple_agent"
Says = Callable[[dict[str, Any]], dict[str, Any] | int]
"""A scripted model: the body of `/v1/responses` -> the response, or the status of a failure."""


def python_with_nemo_gym() -> str:
    """Return an interpreter that has the package; skip the test without one."""
    python = shutil.which(os.environ.get(PYTHON_VARIABLE, sys.executable)) or sys.executable
    there = subprocess.run([python, "-c", "import nemo_gym"], capture_output=True, check=False)
    if there.returncode:
        pytest.skip(f"nemo-gym is not installed in {python}; {PYTHON_VARIABLE} names another")
    return python


@contextmanager
def scripted_model(says: Says) -> Generator[str]:
    """Serve `/v1/responses` with what `says` answers; give the address."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = says(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = b"" if isinstance(told, int) else json.dumps(told).encode()
            self.send_response(told if isinstance(told, int) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class NemoGym:
    """The configuration of servers of the package, and those of them that run.

    Args:
        python: the interpreter that has the package.
        folder: where its servers write what they print.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        # the head server is not asked for anything: each process is given the configuration
        self.config: dict[str, Any] = {
            "head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False,
        }  # fmt: skip
        self._modules: dict[str, str] = {}

    def at(self, name: str, kind: str, url: str) -> None:
        """Add a server that runs already."""
        where = {"host": urlsplit(url).hostname, "port": urlsplit(url).port}
        self.config[name] = {kind: {name: {"entrypoint": "app.py", **where}}}

    def add(self, name: str, module: str, **settings: Any) -> str:
        """Add a server of the package to be started, such as `resources_servers.aalcr`; return
        its address.
        """
        kind, implementation = module.split(".")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        where = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
        self.config[name] = {kind: {implementation: {**where, **settings}}}
        self._modules[name] = module
        return f"http://127.0.0.1:{port}"

    def environment(self, **settings: Any) -> dict[str, str]:
        """Return the environment of a process that is given the configuration."""
        return {**os.environ, "NEMO_GYM_CONFIG_DICT": json.dumps({**self.config, **settings})}

    @contextmanager
    def running(self) -> Generator[None]:
        """Run the servers that were added."""
        with ExitStack() as stack:
            started = [stack.enter_context(self._process(name)) for name in self._modules]
            deadline = time.monotonic() + START_TIMEOUT_S
            for name, process in zip(self._modules, started, strict=True):
                (kind,) = self.config[name].values()
                (server,) = kind.values()
                while not _answers(server["host"], server["port"]):
                    log = (self.folder / f"{name}.log").read_text()[-2000:]
                    assert process.poll() is None, log
                    assert time.monotonic() < deadline, log
                    time.sleep(0.2)
            yield

    def collect(self, agent: str, rows: Path, told: Path, **settings: Any) -> str:
        """Run the package's collection of rollouts to its end; return what it printed."""
        asked = {
            "agent_name": agent, "input_jsonl_fpath": str(rows), "output_jsonl_fpath": str(told),
            **settings,
        }  # fmt: skip
        code = "from nemo_gym.cli.eval import collect_rollouts; collect_rollouts()"
        ran = subprocess.run(
            [self.python, "-c", code],
            env=self.environment(**asked),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
        return ran.stdout + ran.stderr

    @contextmanager
    def _process(self, name: str) -> Generator[subprocess.Popen[bytes]]:
        environment = {**self.environment(), "NEMO_GYM_CONFIG_PATH": name}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.python, "-m", f"{self._modules[name]}.app"],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _answers(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def lines_of(place: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines; empty where there is none."""
    if not place.exists():
        return []
    return [json.loads(line) for line in place.read_text().splitlines()]
