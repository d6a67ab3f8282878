"""Where episodes are played: in this process, or on ludus servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ludus.envs import Task, TaskSet, make_async
from ludus.envs.gym import Playable
from ludus.wire.arguments import parse_served


class EnvSource(Protocol):
    """Opens sessions of one environment."""

    id: str

    def open(self) -> Playable:
        """A session for one episode."""
        ...

    async def release(self, session: Playable) -> None:
        """Give a session back."""
        ...

    async def tasks(self, split: str, indices: list[int]) -> list[Task]:
        """The tasks at `indices` of a split."""
        ...

    async def size(self, split: str) -> int | None:
        """How many tasks the split has; None is without end."""
        ...

    def counters(self) -> dict[str, float]:
        """What crossed the wire so far."""
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...


class LocalSource:
    """Sessions in this process; closed ones are played again, since building one may be costly."""

    def __init__(self, env_id: str, make: Callable[[], Playable]) -> None:
        self.id = env_id
        self._make = make
        self._idle: list[Playable] = [make()]

    def open(self) -> Playable:
        """A session for one episode."""
        return self._idle.pop() if self._idle else self._make()

    async def release(self, session: Playable) -> None:
        """Keep it for the next episode."""
        self._idle.append(session)

    async def tasks(self, split: str, indices: list[int]) -> list[Task]:
        """The tasks at `indices` of a split."""
        tasks = self._set(split)
        return [tasks.at(index) for index in indices]

    async def size(self, split: str) -> int | None:
        """How many tasks the split has."""
        return self._set(split).size

    def counters(self) -> dict[str, float]:
        """Nothing crosses a wire."""
        return {}

    async def close(self) -> None:
        """Close every session."""
        for session in self._idle:
            await session.close()
        self._idle.clear()

    def _set(self, split: str) -> TaskSet:
        return self._idle[0].tasks(split)


def open_source(env: str) -> EnvSource:
    """An environment of this process, by id with constructor arguments as a query."""
    env_id, arguments = parse_served(env)
    return LocalSource(env_id, lambda: make_async(env_id, **arguments))
