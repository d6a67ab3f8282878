"""A vLLM server of our own: started on this machine, gone when we are."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import ConfigError, MissingExtra, RemoteError, RequestTimeout

from .client import Client
from .worker import EXTENSION

GUARD = Path(__file__).with_name("guard.py")
POLL_S = 0.5
STOP_TIMEOUT_S = 30.0
CPU_CACHE_BYTES = 1 << 30
"""Of keys and values where there is no GPU; vLLM's own choice is a share of all memory."""
LOG_TAIL_BYTES = 200_000
SERVED_NAME = "ludus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a server."""

    model: str
    """A folder with config and tokenizer; its weights are not read."""
    dtype: str
    max_model_len: int
    """In tokens, prompt and answer."""
    log: Path
    """Where the server's output goes."""
    cpu: bool = False
    """Whether it runs without a GPU."""
    gpu_memory_utilization: float = 0.5
    """Of the GPU's memory; not used on CPU."""
    python: str = ""
    """An interpreter with vLLM and ludus; empty is this one."""
    arguments: str = ""
    """More arguments, as typed in a shell; they win over ours."""


def command(launch: Launch, port: int) -> list[str]:
    """The command line of the server."""
    return [
        launch.python or sys.executable,
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", launch.model, "--served-model-name", SERVED_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", launch.dtype, "--max-model-len", str(launch.max_model_len)),
        *_memory(launch),
        *required_arguments(),
        # Random weights until the first publish: whatever a publish does not reach is far off,
        # and the probe after it finds out. It also starts sooner.
        *("--load-format", "dummy"),
        # Nothing in the model's folder changes how we sample.
        *("--generation-config", "vllm"),
        *shlex.split(launch.arguments),
    ]


def required_arguments() -> list[str]:
    """What any server must be started with to be trained with."""
    return [
        "--enable-scale-out",  # token ids in, token ids out
        *("--logprobs-mode", "processed_logprobs"),  # at the temperature of the request
        *("--worker-extension-cls", EXTENSION),
    ]


def _memory(launch: Launch) -> list[str]:
    if launch.cpu:
        return ["--enforce-eager", "--kv-cache-memory-bytes", str(CPU_CACHE_BYTES)]
    return ["--gpu-memory-utilization", str(launch.gpu_memory_utilization)]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: ours, and the routes that publish weights switched on."""
    return {"VLLM_NO_USAGE_STATS": "1", **given, "VLLM_SERVER_DEV_MODE": "1"}


class Server:
    """A server process on a free port.

    Raises:
        MissingExtra: vLLM is not installed here, and no other interpreter was named.
        ConfigError: there is no such interpreter.
    """

    def __init__(self, launch: Launch) -> None:
        _require_vllm(launch.python)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = launch.log
        with launch.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(GUARD), *command(launch, port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(os.environ),
                process_group=0,  # Ctrl-C is ours to handle
            )

    async def ready(self, client: Client, timeout_s: float) -> None:
        """Wait until it serves.

        Raises:
            ConfigError: it ended.
            RequestTimeout: it took too long.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                raise ConfigError(f"vLLM did not start (exit code {code}); {self.hint()}")
            try:
                return await client.healthy()
            except RemoteError:
                await asyncio.sleep(POLL_S)
        raise RequestTimeout(
            f"vLLM was not ready within {timeout_s:g} s (vllm.startup_timeout_s); {self.hint()}"
        )

    def hint(self) -> str:
        """Where to read on, and the first error in it."""
        code = self._process.poll()
        ended = "" if code is None else f"the server ended with exit code {code}; "
        cause = first_error(_tail(self.log))
        return f"{ended}its log is {self.log}" + (f", the first error {cause!r}" if cause else "")

    async def close(self) -> None:
        """Ask it to end; what does not is killed by its guard."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)


_ERROR = re.compile(r"^(?:\(.*?\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*Error\b.*)$", re.MULTILINE)


def first_error(log: str) -> str:
    """The last line of the first traceback of a log, shortened; later ones follow from it.

    >>> first_error("(W pid=1) ERROR 11-20 17:53 [a.py:1] ValueError: no\\nKeyError: 'b'")
    'ValueError: no'
    """
    found = _ERROR.search(log)
    return found[1][:300] if found else ""


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")


def _require_vllm(python: str) -> None:
    if python:
        if shutil.which(python) is None:
            raise ConfigError(f"vllm.python is {python!r}, which is no program")
    elif importlib.util.find_spec("vllm") is None:
        raise MissingExtra.of("vllm", needed_for="--engine vllm")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
