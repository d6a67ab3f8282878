# pyright: basic, reportMissingImports=false
"""Hands weights to a vLLM server by vLLM's own transfer engines, without a file: by NCCL between
GPUs, or by CUDA IPC where the learner and the server share a GPU.

Written against the source of vLLM 0.32 and not run: no GPU was there. What could be checked without
one (the names and types of vLLM's classes, the source of weights, the order of calls) is in
`tests/unit/trainer/test_vllm_transfer.py`. A file (`models/weight_files.py`) is the default.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from ludus.agent import WeightSource
from ludus.errors import ConfigError, MissingExtra, ServerFault

from ...models.weights import checked, dtype_of
from .client import VllmClient

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
TransferBackend = Literal["nccl", "ipc"]
PACKAGE = "vllm.distributed.weight_transfer"


class WorldSize(msgspec.Struct):
    """The reply of `/get_world_size`: the number of the server's GPU workers."""

    world_size: int


class WeightTransfer:
    """The trainer's side of vLLM's weight transfer, opened by the first `send`.

    vLLM's engine runs in a thread and calls the server through `ControlCalls`. The engine is opened
    with one source and iterates over that source at each transfer. The source is therefore a holder
    (`source_class`) whose contents change with each publish.

    Args:
        client: the client of the server, which was started for this backend.
        backend: what carries the tensors.
        timeout_s: the time limit of a transfer, in seconds.
    """

    def __init__(self, client: VllmClient, backend: TransferBackend, *, timeout_s: float) -> None:
        self.client = client
        self.backend = backend
        self.timeout_s = timeout_s
        self._engine: Any = None
        self._weights: Any = None

    async def send(self, source: WeightSource) -> None:
        """Send all weights of a source; the server must be paused, as for a file.

        A transfer that fails or is cancelled leaves its group of processes unusable: the next
        `send` opens another.

        Raises:
            ServerFault: the transfer failed, or took longer than its time limit.
        """
        calls = ControlCalls(self.client, asyncio.get_running_loop(), self.timeout_s)
        try:
            async with asyncio.timeout(self.timeout_s):
                if self._engine is None:
                    self._weights = source_class()()
                    self._engine = await self._opened(calls)
                # The engine may be kept from an earlier publish, with the calls of its event loop.
                self._engine.client = calls
                self._weights.hold(source)
                await _aside(self._engine.send_weights)
        except BaseException as error:
            self._engine = None  # where the caller is cancelled, a thread still sends by it
            if not isinstance(error, Exception):
                raise
            raise ServerFault(
                f"the weights did not reach the vLLM server at {self.client.url} by "
                f'{self.backend}: {type(error).__name__}: {error}; vllm.transfer = "file" needs '
                "no GPU"
            ) from error
        finally:
            if self._weights is not None:
                self._weights.hold(None)

    async def _opened(self, calls: ControlCalls) -> Any:
        module = importlib.import_module(f"{PACKAGE}.{self.backend}_engine")
        if self.backend == "ipc":
            engine, info = module.IPCTrainerWeightTransferEngine, module.IPCTrainerInitInfo(rank=0)
        else:
            workers = (await self.client.get("/get_world_size", WorldSize)).world_size
            address = own_address(self.client.url)
            # A port that is free now. vLLM is given its number and binds the port later, so another
            # process could take the port in between; the transfer would then fail.
            with socket.create_server((address, 0)) as listener:
                port = listener.getsockname()[1]
            engine = module.NCCLTrainerWeightTransferEngine
            # The group has the trainer as rank 0, and then the server's workers.
            info = module.NCCLTrainerInitInfo(
                master_address=address, master_port=port, world_size=1 + workers, rank=0
            )
        return await _aside(lambda: engine.trainer_init(info, client=calls, source=self._weights))


async def _aside(work: Callable[[], T]) -> T:
    """Run `work` in a thread that does not keep the process alive: a collective call whose other
    side is gone may never return.
    """
    done: Future[T] = Future()

    def run() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

    threading.Thread(target=run, name="ludus-transfer", daemon=True).start()
    return await asyncio.wrap_future(done)


class ControlCalls:
    """The five calls that vLLM's engine makes from its threads (`VLLMWeightSyncClient`), sent by
    our client, which has the server's key and the time limits.
    """

    def __init__(
        self, client: VllmClient, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self._client, self._loop, self._timeout_s = client, loop, timeout_s

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have the workers join; with NCCL the call returns when the trainer has joined too."""
        self._post("/init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self) -> None:
        """Have the workers leave."""
        self._post("/shutdown_weight_transfer_engine", {})

    def start_weight_update(self) -> None:
        """Have the workers prepare the layers for new weights."""
        self._post("/start_weight_update", {})

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Have the workers receive tensors; returns when the tensors are loaded."""
        clients = importlib.import_module(f"{PACKAGE}.clients")
        as_json = clients._json_safe_update_payload(update_info)  # handles of IPC are pickled
        self._post("/update_weights", {"update_info": as_json})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have the workers process the loaded layers."""
        body = {} if weight_version is None else {"weight_version": weight_version}
        self._post("/finish_weight_update", body)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        call = self._client.post(path, body, dict[str, Any], timeout_s=self._timeout_s)
        asyncio.run_coroutine_threadsafe(call, self._loop).result(self._timeout_s)


def source_class() -> type[Any]:
    """Return a subclass of vLLM's `WeightSource` over a source of ours; imports vLLM."""
    base = importlib.import_module(f"{PACKAGE}.base")

    class HeldWeights(base.WeightSource):  # type: ignore[misc,name-defined]
        """Shows the tensors of a source of ours, on the CUDA device if any."""

        def __init__(self) -> None:
            self._source: WeightSource | None = None

        def hold(self, source: WeightSource | None) -> None:
            """Show another source from now on."""
            self._source = source

        def metadata(self) -> list[Any]:
            """Return name, type and shape of each tensor."""
            return [
                base.ParamMeta(meta.name, dtype_of(meta), tuple(meta.shape))
                for meta in self._held().metadata()
            ]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
            for name, tensor in checked(self._held()):
                yield name, tensor.to(device)

        def _held(self) -> WeightSource:
            if self._source is None:
                raise ValueError("no weights are being published")
            return self._source

    return HeldWeights


def refuse_without_gpu(backend: TransferBackend) -> None:
    """Refuse a transfer that cannot work in this process, before a server is started.

    Raises:
        ConfigError: there is no CUDA device, or one rank of several would use `ipc`.
        MissingExtra: vLLM cannot be imported in this process.
    """
    import torch

    asked = f'vllm.transfer = "{backend}"'
    if not torch.cuda.is_available():
        raise ConfigError(f'{asked} needs a CUDA device in the learner; set it to "file"')
    if backend == "ipc" and torch.distributed.is_initialized():
        raise ConfigError(
            f"{asked} asks every rank for its memory, and only rank 0 holds the weights that are "
            'published; set it to "nccl" or "file"'
        )
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtra.of("vllm", needed_for=asked)


def own_address(url: str) -> str:
    """Return the address of this machine that a server can reach: packets to that server leave from
    there.

    >>> own_address("http://127.0.0.1:8000")
    '127.0.0.1'
    """
    there = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((there.hostname or "127.0.0.1", there.port or 80))  # sends nothing
        return str(probe.getsockname()[0])
