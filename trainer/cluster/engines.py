# pyright: basic
"""Engines placed by Ray: actors with a local engine each, and a run's calls to these actors.

The driver starts the actors, and the run builds what is in them: a run that is started again builds
anew, in the same actors. Calls are those of an engine process (`engines/process/messages.py`);
weights go by Ray's object store, as numpy in pieces of at most 64 MB or a single tensor, so that a
node receives them once however many of its engines read them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import ray
import torch
from ray.exceptions import (
    ActorUnavailableError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    TaskCancelledError,
)
from torch import Tensor

from ludus.agent.engine import TensorMeta, WeightSource
from ludus.errors import ConfigError, EngineLost, LudusError, RemoteError, RequestTimeout

from ..engines.process import EngineSpec, ProcessEngine
from ..engines.process.life import BEAT_S, STUCK_BEATS, EngineCalls, failure_of
from ..engines.process.messages import (
    REPLIES,
    BuildCall,
    Call,
    DoneReply,
    FailedReply,
    Ping,
    Pong,
    ReadyReply,
)
from ..engines.process.worker import EnginePart
from ..engines.vllm.client import VllmClient
from ..engines.vllm.server import Launch, first_error
from ..models.weights import PIECE_BYTES, bytes_of, checked, dtype_of
from .hosts import HostState, node_name
from .resources import NAMESPACE, PLACED_S, connect

T = TypeVar("T")

MAX_CALLS = 10_000
"""How many calls of an actor may be under way: each request that waits is one."""
AGAIN_S = 0.5
"""Seconds between attempts to reach an actor that Ray starts again."""
FETCH_S = 600.0
"""Seconds in which a piece of the weights must have come from another node."""


class ForeignLife(LudusError, RuntimeError):
    """A call for an engine that was built in an actor before the actor was started again."""


class EngineHost:
    """An actor with a local engine, which `build` makes.

    Args:
        threads: how many threads torch computes with.
        device: where the engine computes; Ray shows an actor its own GPU alone.
    """

    def __init__(self, threads: int, device: str) -> None:
        self.threads, self.device = threads, device
        self.life = ""
        """The name of the engine; empty where none is built."""
        self.part: EnginePart | None = None
        self._building = asyncio.Lock()

    async def build(self, life: str, spec: EngineSpec) -> bytes:
        """Build an engine named `life`, in place of an engine of an earlier run."""
        # One after the other: a run that gave up waiting may ask again while its first engine is
        # still being built, which then would take the place and the memory of the second.
        async with self._building:
            self.life = ""
            if self.part is not None and self.part.engine is not None:
                await self.part.engine.close()
            placed = msgspec.structs.replace(spec, threads=self.threads, device=self.device)
            self.part = EnginePart(placed)
            reply = (await self.part.handle(0, 0, msgspec.msgpack.encode(BuildCall())))[1]
            if self.part.engine is not None:
                self.life = life
            return reply

    async def call(self, life: str, body: bytes) -> bytes:
        """Answer a call to the engine of this name."""
        if self.part is None or life != self.life:
            return _failed(ForeignLife("the engine's actor was started again"))
        return (await self.part.handle(0, 0, body))[1]

    async def load(
        self, life: str, metadata: Sequence[TensorMeta], pieces: Sequence[Any], version: int
    ) -> bytes:
        """Install weights of the object store."""
        engine = self.part.engine if self.part is not None and life == self.life else None
        if engine is None:
            return _failed(ForeignLife("the engine's actor was started again"))
        try:
            await engine.set_weights(StoredWeights(metadata, pieces), version)
        except Exception as error:
            return _failed(error)
        return msgspec.msgpack.encode(DoneReply())

    async def pid(self) -> int:
        """Return the number of the process."""
        return os.getpid()

    async def state(self) -> HostState:
        """Return what the driver wants to know."""
        return HostState(node_name(), os.getpid(), ready=bool(self.life))


def _failed(error: Exception) -> bytes:
    return msgspec.msgpack.encode(FailedReply(type(error).__name__, str(error)))


class StoredWeights:
    """Weights in Ray's object store, as a source.

    Args:
        metadata: name, type and shape of each tensor, in order.
        references: of the pieces, each a mapping from names to the bytes of a tensor.
    """

    def __init__(self, metadata: Sequence[TensorMeta], references: Sequence[Any]) -> None:
        self._metadata = list(metadata)
        self.references = list(references)

    @classmethod
    def put(cls, source: WeightSource) -> StoredWeights:
        """Put weights into the store, piece by piece.

        Raises:
            ConfigError: the store and the disk behind it do not hold them.
        """
        metadata, references = source.metadata(), []
        piece: dict[str, Any] = {}
        size = 0
        try:
            for name, tensor in checked(source):
                if piece and size + tensor.nbytes > PIECE_BYTES:
                    references.append(ray.put(piece))
                    piece, size = {}, 0
                # Ray copies tensors twice, and numpy once.
                piece[name] = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
                size += tensor.nbytes
            if piece:
                references.append(ray.put(piece))
        except (ObjectStoreFullError, OutOfDiskError) as error:
            total = sum(map(bytes_of, metadata))
            raise ConfigError(
                f"Ray's object store is full, and so is the disk behind it: {total / 1e6:.0f} MB "
                "of weights, held twice while they are published, do not fit; start Ray with a "
                "larger --object-store-memory, or on a machine with more disk"
            ) from error
        return cls(metadata, references)

    def metadata(self) -> Sequence[TensorMeta]:
        """Return name, type and shape of each tensor; see `WeightSource.metadata`."""
        return self._metadata

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return the tensors in pieces, which share the store's memory and must not be changed."""
        described = {meta.name: meta for meta in self._metadata}
        for reference in self.references:
            held: dict[str, np.ndarray] = ray.get(reference, timeout=FETCH_S)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                yield {
                    name: torch.from_numpy(array)
                    .view(dtype_of(described[name]))
                    .reshape(described[name].shape)
                    for name, array in held.items()
                }

    def remove(self) -> None:
        """Let the store free the weights once no reader is left."""
        self.references = []


async def stored(source: WeightSource) -> StoredWeights:
    """Put weights into the store, in a thread; see `StoredWeights.put`."""
    return await asyncio.to_thread(StoredWeights.put, source)


class PlacedLife:
    """The life of an engine in an actor, from start to end; see `EngineCalls`.

    Args:
        actor: the actor.
        name: the name in messages.
    """

    def __init__(self, actor: Any, name: str) -> None:
        self.actor, self.name = actor, name
        self.max_length = 0
        self._id = secrets.token_hex(8)
        self._under_way = self._stuck = 0
        self._pong = Pong(0, busy=False)
        self._gone = False

    async def begin(self, spec: EngineSpec, timeout_s: float) -> PlacedLife:
        """Build the engine, and wait for an actor that Ray starts again.

        Raises:
            ConfigError: the model cannot be built as asked.
            EngineLost: Ray has given the actor up.
            RequestTimeout: the model was not built in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    with suppress(ActorUnavailableError):
                        reply = await self.actor.build.remote(self._id, spec)
                        break
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError as error:
            raise RequestTimeout(
                f"{self.name} was not ready within {timeout_s:g} s; Ray starts it again where "
                "there is room for it (ray status)"
            ) from error
        except RayActorError as error:
            raise EngineLost(f"{self.name} is gone: {_short(error)}") from error
        self.max_length = self._read(reply, ReadyReply).max_length
        return self

    async def ask(self, message: Call, as_type: type[T]) -> T:
        """Send a call and return the reply; see `EngineCalls.ask`."""
        body = msgspec.msgpack.encode(message)
        return await self._answered(self.actor.call.remote(self._id, body), as_type)

    async def load(self, weights: StoredWeights, version: int) -> None:
        """Install weights; see `Engine.set_weights`."""
        call = self.actor.load.remote(self._id, weights.metadata(), weights.references, version)
        await self._answered(call, DoneReply)

    async def ping(self) -> None:
        """Return at the answer to a ping.

        Raises:
            EngineLost: the actor is gone, or the engine has made no forward pass for long.
        """
        pong = await self.ask(Ping(), Pong)
        moving = pong.passes != self._pong.passes or not pong.busy
        self._stuck, self._pong = 0 if moving else self._stuck + 1, pong
        if self._stuck >= STUCK_BEATS:
            raise EngineLost(f"{self.name} has made no forward pass for {self._stuck * BEAT_S:g} s")

    async def end(self) -> None:
        """End the actor's process, if still running; Ray starts a new process."""
        if not self._gone:
            with suppress(RayError):
                ray.kill(self.actor, no_restart=False)

    async def _answered(self, call: Any, as_type: type[T]) -> T:
        self._under_way += 1
        try:
            return self._read(await call, as_type)
        except asyncio.CancelledError:
            with suppress(RayError, ValueError):
                ray.cancel(call)  # the engine would otherwise sample on for nobody
            raise
        except (RayActorError, TaskCancelledError) as error:
            self._gone = True
            raise EngineLost(
                f"{self.name} was lost with {self._under_way} requests under way: {_short(error)}"
            ) from None
        finally:
            self._under_way -= 1

    def _read(self, body: bytes, as_type: type[T]) -> T:
        reply = REPLIES.decode(body)
        if isinstance(reply, FailedReply):
            if reply.kind == ForeignLife.__name__:
                self._gone = True
                raise EngineLost(f"{self.name} was lost: {reply.message}")
            raise failure_of(reply, self.name, f"ray logs actor --id {self.actor._actor_id.hex()}")
        assert isinstance(reply, as_type)
        return reply


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


class PlacedEngine(ProcessEngine):
    """A local engine in an actor of a Ray cluster, whose weights come by the object store.

    Args:
        spec: what the actor builds; threads and device are those that Ray has given it.
        actor: the name of the actor.
    """

    def __init__(self, spec: EngineSpec, actor: str) -> None:
        super().__init__(spec, name=actor, log=Path())
        self._actor = ray.get_actor(actor, namespace=NAMESPACE)

    @property
    def pid(self) -> int:
        """The pid of the process on the node."""
        return int(ray.get(self._actor.pid.remote(), timeout=PLACED_S))

    async def set_weights(self, source: WeightSource, version: int) -> None:
        """Install new weights; running requests continue with them.

        Raises:
            WeightsRefused: the weights are not those of this model.
            EngineLost: the actor is gone, or ended meanwhile.
        """
        life = self._living()
        assert isinstance(life, PlacedLife)
        await life.load(
            source if isinstance(source, StoredWeights) else await stored(source), version
        )
        self._version = version

    async def close(self) -> None:
        """Leave the actor to the driver, which ends it with the run."""
        self._closed = True

    async def _begin(self) -> EngineCalls:
        return await PlacedLife(self._actor, self.name).begin(self.spec, self.startup_timeout_s)


class PlacedServer:
    """A vLLM server in an actor of a Ray cluster; see `ServerProcess`.

    Args:
        launch: how it is started.
        actor: the name of the actor.
    """

    def __init__(self, launch: Launch, actor: str) -> None:
        self.launch, self.name, self.url = launch, actor, ""
        self._actor = ray.get_actor(actor, namespace=NAMESPACE)
        self._said = ""

    async def restart(self) -> None:
        """Start the server, where Ray has placed its actor now; what ran there ends.

        Raises:
            EngineLost: Ray has given the actor up, or not started it again in time.
        """
        end = asyncio.get_running_loop().time() + FETCH_S
        while True:
            try:
                self.url = await self._actor.serve.remote(self.launch)
                return
            except ActorUnavailableError as error:
                if asyncio.get_running_loop().time() > end:
                    raise EngineLost(f"{self.name} does not come back: {_short(error)}") from error
                await asyncio.sleep(AGAIN_S)
            except RayActorError as error:
                raise EngineLost(f"{self.name} is gone: {_short(error)}") from error

    async def ready(self, client: VllmClient, timeout_s: float) -> None:
        """Wait until the server is ready; see `ServerProcess.ready`."""
        end = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < end:
            try:
                return await client.healthy()
            except RemoteError:
                await asyncio.sleep(AGAIN_S)
            with suppress(RayActorError):
                self._said = await self._actor.said.remote()
                if (code := (await self._actor.state.remote()).code) is not None:
                    raise ConfigError(f"vLLM did not start (exit code {code}); {self.hint()}")
        raise RequestTimeout(
            f"vLLM was not ready within {timeout_s:g} s (vllm.startup_timeout_s); {self.hint()}"
        )

    def hint(self) -> str:
        """Return the first error in the end of the server's log, for messages."""
        cause = first_error(self._said)
        return f"{self.name} runs on another node" + (f", first error {cause!r}" if cause else "")

    async def close(self) -> None:
        """Ask the server to end; at the latest, the driver ends actor and server."""
        with suppress(RayError):
            await self._actor.stop.remote()


def placed_actors(placed: str) -> list[str]:
    """Join the cluster, and return the names of the actors of a run's engines.

    Args:
        placed: what the variable `open_engine.PLACED` says.
    """
    address, name, count = placed.rsplit("/", 2)
    connect(address)
    return [f"{name}-engines-{number}" for number in range(int(count))]


async def placed_server(launch: Launch, actor: str) -> PlacedServer:
    """Return a vLLM server that was started in an actor."""
    server = PlacedServer(launch, actor)
    await server.restart()
    return server


def placed_engines(spec: EngineSpec, placed: str) -> list[PlacedEngine]:
    """Join the cluster, and return the engines of this run, not yet built.

    Args:
        spec: what they build.
        placed: what the variable `open_engine.PLACED` says.
    """
    return [PlacedEngine(spec, actor) for actor in placed_actors(placed)]
