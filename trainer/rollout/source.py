"""Sources of sessions: environments of this process, of worker processes, or of ludus servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, Protocol

from ludus.envs import EnvSession, Task, TextEnv, make_async
from ludus.envs.forking import Nursery, fork_session
from ludus.envs.gym import Playable
from ludus.envs.serving.client import RemoteSession
from ludus.envs.serving.connect import RemoteServer, connect
from ludus.envs.serving.offload import OwnThreads
from ludus.envs.serving.own_server import OwnServer, may_block
from ludus.errors import ConfigError, LudusError
from ludus.secret import Secret
from ludus.wire.address import format_served, parse_served, told_arguments

THREADS = 16
CALL_S = 120.0
"""Largest number of seconds that one call of an environment of this process may take."""

PAGE = 256
"""Number of tasks that are fetched at once."""


class EnvSource(Protocol):
    """Opens sessions of an environment, wherever the environment runs."""

    id: str

    async def open(self, task: Task | None = None) -> Playable:
        """Return a session for an episode of a task; `release` gives the session back."""
        ...

    async def fork(
        self, session: Playable, seeds: Sequence[int] | None, count: int
    ) -> list[Playable | LudusError]:
        """Return `count` sessions in the state of `session`, where it is played, or why not; see
        `envs.forking`. Each is released like the others.
        """
        ...

    async def release(self, session: Playable) -> None:
        """Give a session back after the episode."""
        ...

    async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
        """Return the tasks at `indices` of a split."""
        ...

    async def size(self, split: str) -> int | None:
        """Return the number of tasks in the split; None for an endless split."""
        ...

    async def named(self) -> str:
        """Return the environment with the constructor arguments:
        `ludus/arithmetic-v0?max_operations=2`.

        Raises:
            ConfigError: the server has other arguments than those that were asked for.
        """
        ...

    def counters(self) -> dict[str, float]:
        """Return counts of what crossed the wire so far."""
        ...

    async def close(self) -> None:
        """Close all sessions and connections."""
        ...


class LocalSource:
    """Sessions in this process, for environments that never block; finished sessions are used
    again.

    A plain method that blocks all the same runs on a thread, and is given up if it hangs.
    """

    def __init__(
        self,
        env_id: str,
        make: Callable[[], EnvSession],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.id = env_id
        self._arguments = arguments or {}
        self._make = make
        self._first = make()
        self._idle: list[EnvSession] = []
        self._threads = OwnThreads(THREADS, call_timeout_s=CALL_S)
        self._started = False

    async def open(self, task: Task | None = None) -> Playable:
        """Return a session for an episode; `release` gives the session back."""
        if not self._started:
            await self._threads.start()
            self._started = True
        return self._idle.pop() if self._idle else self._threads.place(self._make())

    async def fork(
        self, session: Playable, seeds: Sequence[int] | None, count: int
    ) -> list[Playable | LudusError]:
        """Return sessions in the state of `session`, in this process."""
        assert isinstance(session, EnvSession)  # what open() gave

        async def build() -> EnvSession:
            return self._threads.place(self._make())

        def adopt(env: TextEnv) -> EnvSession:
            return self._threads.place(EnvSession(env, session.id))

        children: list[Playable | LudusError] = []
        for index in range(count):
            seed = None if seeds is None else seeds[index]
            try:
                children.append(await fork_session(session, Nursery(build, adopt), seed=seed))
            except LudusError as error:
                children.append(error)
        return children

    async def release(self, session: Playable) -> None:
        """Keep the session for the next episode, unless a call is still running on the session."""
        assert isinstance(session, EnvSession)  # what open() gave
        if not self._threads.is_inside(session):
            self._idle.append(session)

    async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
        """Return the tasks at `indices` of a split."""
        tasks = self._first.tasks(split)
        return [tasks.at(index) for index in indices]

    async def size(self, split: str) -> int | None:
        """Return the number of tasks in the split."""
        return self._first.tasks(split).size

    async def named(self) -> str:
        """Return the environment with the constructor arguments."""
        return format_served(self.id, self._arguments)

    def counters(self) -> dict[str, float]:
        """Return no counts, since nothing crosses a wire."""
        return {}

    async def close(self) -> None:
        """Close every session that was released, and end the threads, though a session's close may
        fail.
        """
        async with AsyncExitStack() as closing:
            if self._started:
                closing.push_async_callback(self._threads.stop)
            for session in [self._first, *self._idle]:
                closing.push_async_callback(session.close)
            self._idle.clear()


class RemoteSource:
    """Opens sessions on ludus servers."""

    def __init__(
        self, server: RemoteServer, env_id: str, arguments: Mapping[str, Any] | None = None
    ) -> None:
        self.id = env_id
        self._arguments = arguments or {}
        self._server = server
        self._tasks: dict[tuple[str, int], Task] = {}

    async def open(self, task: Task | None = None) -> Playable:
        """Return a session for an episode; the first reset creates the session on the server."""
        return self._server.make_async(self.id)

    async def fork(
        self, session: Playable, seeds: Sequence[int] | None, count: int
    ) -> list[Playable | LudusError]:
        """Return sessions in the state of `session`, on its server."""
        assert isinstance(session, RemoteSession)  # what open() gave
        return [*await session.fork(count, seeds=seeds)]

    async def release(self, session: Playable) -> None:
        """Delete the session on the server."""
        await session.close()

    async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
        """Return the tasks at `indices`, which are fetched in pages and kept."""
        for index in indices:
            if (split, index) not in self._tasks:
                offset = index - index % PAGE
                page = await self._server.make_async(self.id).task_page(
                    split, offset=offset, limit=PAGE
                )
                for place, task in enumerate(page.tasks):
                    self._tasks[split, offset + place] = task
        return [self._tasks[split, index] for index in indices]

    async def size(self, split: str) -> int | None:
        """Return the number of tasks in the split."""
        page = await self._server.make_async(self.id).task_page(split, limit=1)
        return page.size

    async def named(self) -> str:
        """Return the environment with the constructor arguments of the server."""
        cards = await asyncio.to_thread(self._server.envs)
        served = {card.id: card.arguments for card in cards}.get(self.id, {})
        if self._arguments and told_arguments(self._arguments) != served:
            raise ConfigError(
                f"{format_served(self.id, self._arguments)!r} is served as "
                f"{format_served(self.id, served)!r} at {self._server.urls[0]}; give the arguments "
                "to ludus serve"
            )
        return format_served(self.id, served)

    def counters(self) -> dict[str, float]:
        """Return counts of requests, steps, retries, sessions and bytes so far."""
        return {name: float(count) for name, count in asdict(self._server.traffic).items()}

    async def close(self) -> None:
        """Close the connections to the servers."""
        await self._server.aclose()


class WorkerSource:
    """Sessions in worker processes of this machine, for environments that may block."""

    def __init__(self, env: str) -> None:
        self.id, self._arguments = parse_served(env)
        self._home = OwnServer(env, call_timeout_s=CALL_S)
        self._starting = asyncio.Lock()
        self._remote: RemoteSource | None = None

    async def open(self, task: Task | None = None) -> Playable:
        """Return a session for an episode; `release` gives the session back."""
        return await (await self._started()).open()

    async def fork(
        self, session: Playable, seeds: Sequence[int] | None, count: int
    ) -> list[Playable | LudusError]:
        """Return sessions in the state of `session`, in its worker process."""
        return await (await self._started()).fork(session, seeds, count)

    async def release(self, session: Playable) -> None:
        """End the session in the worker process."""
        await session.close()

    async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
        """Return the tasks at `indices` of a split."""
        return await (await self._started()).tasks(split, indices)

    async def size(self, split: str) -> int | None:
        """Return the number of tasks in the split."""
        return await (await self._started()).size(split)

    async def named(self) -> str:
        """Return the environment with the constructor arguments."""
        await self._started()
        return format_served(self.id, self._arguments)

    def counters(self) -> dict[str, float]:
        """Return no counts, since nothing crosses a wire between machines."""
        return {}

    async def close(self) -> None:
        """End the worker processes and every session inside."""
        self._remote = None
        await self._home.stop()

    async def _started(self) -> RemoteSource:
        async with self._starting:
            if self._remote is None:
                self._remote = RemoteSource(await self._home.start(), self.id)
            return self._remote


def open_source(env: str, *, url: str = "", token: str | Secret = "") -> EnvSource:
    """Open an environment in this process, in worker processes, or on servers.

    Args:
        env: an id; without `url` with constructor arguments as a query,
            `ludus/arithmetic-v0?max_operations=2`.
        url: address of a ludus server, or several addresses separated by commas; empty plays on
            this machine.
        token: bearer token of the servers.

    The arguments of a served environment must be those of the server; `named` checks them.
    """
    env_id, arguments = parse_served(env)
    if not url and may_block(env_id):
        return WorkerSource(env)
    if not url:
        return LocalSource(env_id, lambda: make_async(env_id, **arguments), arguments)
    return RemoteSource(connect(url, token=token or None), env_id, arguments)
