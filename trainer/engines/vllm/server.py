"""A vLLM server that ludus starts on this machine and that ends together with ludus."""

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
from typing import Protocol

from ludus.errors import ConfigError, MissingExtra, RemoteError, RequestTimeout

from .client import VllmClient
from .worker import EXTENSION

GUARD = Path(__file__).with_name("guard.py")
POLL_S = 0.5
STOP_TIMEOUT_S = 30.0
CPU_CACHE_BYTES = 1 << 30
"""Memory for keys and values without a GPU. vLLM's default would be a share of all memory."""
LOG_TAIL_BYTES = 200_000
"""How much of the end of the log is searched for the first error."""
SERVED_NAME = "ludus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a server."""

    model: str
    """A folder with config and tokenizer; the weights in the folder are not read."""
    dtype: str
    max_model_len: int
    """The most tokens of prompt and answer together."""
    log: Path
    """The file for the server's output."""
    host: str = "127.0.0.1"
    """The address that the server listens at."""
    cpu: bool = False
    """Whether the server runs without a GPU."""
    gpu_memory_utilization: float = 0.5
    """The share of the GPU's memory to use; ignored on CPU."""
    python: str = ""
    """An interpreter with vLLM and ludus installed; empty means the current interpreter."""
    arguments: str = ""
    """Further arguments as typed in a shell, which override those of ludus."""
    transfer: str = "file"
    """How weights arrive: `file`, or the name of one of vLLM's transfer backends."""
    gpus: str = ""
    """The devices that the server sees, as in CUDA_VISIBLE_DEVICES; empty shows it all."""
    environment: str = ""
    """Names of further variables that the server inherits, separated by commas."""


def command(launch: Launch, port: int) -> list[str]:
    """Return the command line of the server."""
    return [
        launch.python or sys.executable,
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", launch.model, "--served-model-name", SERVED_NAME),
        *("--host", launch.host, "--port", str(port)),
        *("--dtype", launch.dtype, "--max-model-len", str(launch.max_model_len)),
        *(
            ("--enforce-eager", "--kv-cache-memory-bytes", str(CPU_CACHE_BYTES))
            if launch.cpu
            else ("--gpu-memory-utilization", str(launch.gpu_memory_utilization))
        ),
        *required_arguments(),
        *(
            ("--weight-transfer-config", f'{{"backend": "{launch.transfer}"}}')
            if launch.transfer != "file"
            else ()
        ),
        # Random weights until the first publish: the probe then detects any layer that a publish
        # did not reach. The server also starts sooner.
        *("--load-format", "dummy"),
        # With cascade attention the numbers of a row depend on who shares its prompt.
        "--disable-cascade-attn",
        # Sampling defaults in the model's folder must not change how ludus samples.
        *("--generation-config", "vllm"),
        *shlex.split(launch.arguments),
    ]


def required_arguments() -> list[str]:
    """Return the arguments without which a server cannot be used for training."""
    return [
        "--enable-scale-out",  # token ids in, token ids out
        *("--logprobs-mode", "processed_logprobs"),  # at the temperature of the request
        *("--worker-extension-cls", EXTENSION),
    ]


INHERITED = frozenset(
    [
        "ALL_PROXY",
        "HOME",
        "HOSTNAME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOGNAME",
        "NO_PROXY",
        "OMP_NUM_THREADS",
        "PATH",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ]
)
"""Variables that a server gets as they are here."""
INHERITED_PREFIXES = (
    *("CUDA_", "CUDNN_", "FLASHINFER_", "GLOO_", "HF_", "HIP_", "KMP_", "LC_", "MKL_", "NCCL_"),
    *(
        "NVIDIA_",
        "OPENBLAS_",
        "PYTHON",
        "PYTORCH_",
        "RAY_",
        "ROCM_",
        "ROCR_",
        "SSL_",
        "TOKENIZERS_",
    ),
    *("TORCHINDUCTOR_", "TRANSFORMERS_", "TRITON_", "UCX_", "VLLM_", "XDG_", "XLA_"),
)
"""Beginnings of further names that it gets: places and settings of the libraries below it."""
SECRET_ENDINGS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
"""Ends of names that it does not get by their beginning: with VLLM_API_KEY it would ask ludus for a
key.
"""


def environment(
    given: Mapping[str, str], *, transfer: str = "file", gpus: str = "", more: str = ""
) -> dict[str, str]:
    """Return the server's environment: the variables of `given` that are named above, with the
    routes for publishing weights switched on. A file such as `numbers.py` in the current folder
    must not stand in for a module of the standard library.

    What torchrun sets for a rank (RANK, MASTER_ADDR, TORCHELASTIC_USE_AGENT_STORE and others) is
    not among them: a server that found these would wait for the ranks at its own rendezvous. Nor
    are secrets, which are told by the ends of their names, unless `more` names them.

    Handles of CUDA IPC come to vLLM as pickles, which it reads only if told to. The server listens
    on loopback, where every process of this machine could send one.

    Args:
        given: the environment of this process.
        transfer: how weights arrive.
        gpus: the devices that the server sees; empty leaves CUDA_VISIBLE_DEVICES as it is.
        more: names of further variables to inherit, separated by commas.
    """
    named = INHERITED | {name.strip() for name in more.split(",")}
    if "TORCHELASTIC_RUN_ID" in given:
        named -= {"OMP_NUM_THREADS"}  # torchrun sets it to 1, for its ranks
    inherited = {
        name: value
        for name, value in given.items()
        if name in named
        or (name.startswith(INHERITED_PREFIXES) and not name.endswith(SECRET_ENDINGS))
    }
    defaults = {"VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"}
    pickles = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if transfer == "ipc" else {}
    seen = {"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}
    return {**defaults, **inherited, "VLLM_SERVER_DEV_MODE": "1", **pickles, **seen}


class ServerProcess(Protocol):
    """A server that ludus starts, here or elsewhere."""

    url: str

    async def restart(self) -> None:
        """End the server, if still running, and start again, maybe at another address."""
        ...

    async def ready(self, client: VllmClient, timeout_s: float) -> None:
        """Wait until the server is ready.

        Raises:
            ConfigError: the server process ended.
            RequestTimeout: the server was not ready in time.
        """
        ...

    def hint(self) -> str:
        """Return where more is to be read, and the first error, for messages."""
        ...

    async def close(self) -> None:
        """End the server."""
        ...


class VllmServer:
    """A server process on a free port.

    Raises:
        MissingExtra: vLLM is not installed here, and no other interpreter was named.
        ConfigError: the named interpreter does not exist.
    """

    def __init__(self, launch: Launch) -> None:
        python = launch.python
        if python:
            if shutil.which(python) is None:
                raise ConfigError(
                    f"vllm.python is {python!r}, which is no program; give the path of a Python "
                    "interpreter with vLLM"
                )
        elif importlib.util.find_spec("vllm") is None:
            raise MissingExtra.of("vllm", needed_for="--engine vllm")
        with socket.socket() as listener:
            # The kernel chooses a port that is free now; vLLM binds it later, and does not start if
            # another process was faster.
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.launch = launch
        self.log = launch.log
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-P", str(GUARD), *command(self.launch, self.port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(
                    os.environ,
                    transfer=self.launch.transfer,
                    gpus=self.launch.gpus,
                    more=self.launch.environment,
                ),
                process_group=0,  # Ctrl-C goes to the trainer alone, which ends the server
            )

    async def restart(self) -> None:
        """End the server, if still running, and start again at the same address. The log of the
        one before, which may say why it was lost, is kept beside the new one as `.before`.
        """
        await self.close()
        self.log.replace(f"{self.log}.before")
        self._process = self._started()

    async def ready(self, client: VllmClient, timeout_s: float) -> None:
        """Wait until the server is ready.

        Raises:
            ConfigError: the server process ended.
            RequestTimeout: the server was not ready in time.
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
        """Return the path of the log and the first error in the log, for messages."""
        code = self._process.poll()
        ended = "" if code is None else f"the server ended with exit code {code}; "
        cause = first_error(_tail(self.log))
        return f"{ended}its log is {self.log}" + (f", the first error {cause!r}" if cause else "")

    async def close(self) -> None:
        """Ask the server to end; the supervisor (guard.py) kills a server that does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)


async def until_healthy(client: VllmClient, timeout_s: float) -> None:
    """Wait until a server that somebody else starts is ready.

    Raises:
        RequestTimeout: it was not ready in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            return await client.healthy()
        except RemoteError:
            await asyncio.sleep(POLL_S)
    raise RequestTimeout(
        f"the vLLM server at {client.url} was not ready within {timeout_s:g} s "
        "(vllm.startup_timeout_s)"
    )


_ERROR = re.compile(r"^(?:\(.*?\) )?(?:ERROR .*?\] )?((?:\w+\.)*\w*Error\b.*)$", re.MULTILINE)


def first_error(log: str) -> str:
    r"""Return the last line of the first traceback in a log, shortened; later errors usually follow
    from the first.

    >>> first_error("(W pid=1) ERROR 11-20 17:53 [a.py:1] ValueError: no\nKeyError: 'b'")
    'ValueError: no'
    """
    error_line = _ERROR.search(log)
    return error_line[1][:300] if error_line else ""


def _tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
