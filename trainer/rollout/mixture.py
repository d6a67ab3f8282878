"""Several environments in one run: their tasks mixed by weight, their sessions where each lives.

The id of a task begins with the name of its environment, `arithmetic-v0::train/7`, so that metrics,
memories and evaluations tell environments apart. The order is without chance: after n tasks each
environment has its share of n, to within one task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from ludus.envs import Info, Task
from ludus.envs.gym import Playable
from ludus.envs.session import Stepped
from ludus.envs.tasks import TaskPage, order
from ludus.errors import ConfigError, LudusError
from ludus.messages import Message, Observation

from ..config import TrainConfig
from ..settings.parts import EnvironmentConfig
from .hints import Expert
from .source import EnvSource, open_source

BETWEEN = "::"
"""Stands between the name of an environment and the id of its task."""


def environment_of(task_id: str) -> str:
    """Return the name of a task's environment; empty in a run with one environment.

    >>> environment_of("arithmetic-v0::train/7")
    'arithmetic-v0'
    """
    return task_id.partition(BETWEEN)[0] if BETWEEN in task_id else ""


class MixedSource:
    """Opens sessions of several environments; see `EnvSource`.

    Args:
        environments: the environments with their names and weights.
        seed: the seed of the order of finite splits.
        evaluated: the split that is held out; there every environment has the same share.
    """

    def __init__(
        self, environments: Sequence[EnvironmentConfig], *, seed: int = 0, evaluated: str = ""
    ) -> None:
        self.id = ", ".join(each.title for each in environments)
        self.sources = {
            each.title: open_source(each.env, url=each.env_url, token=each.env_token)
            for each in environments
        }
        self._weights = {each.title: each.weight for each in environments}
        self._seed, self._evaluated = seed, evaluated
        self._drawn: dict[str, list[tuple[str, int]]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        """How many tasks of each environment are drawn, by split."""
        self._orders: dict[tuple[str, str], Iterator[int]] = {}
        self._drawing = asyncio.Lock()

    async def open(self, task: Task | None = None) -> Playable:
        """Return a session of the task's environment, or of the first without a task."""
        name = environment_of(task.id) if task is not None else next(iter(self.sources))
        return MixedSession(await self.sources[name].open(), name)

    async def fork(
        self, session: Playable, seeds: Sequence[int] | None, count: int
    ) -> list[Playable | LudusError]:
        """Return sessions in the state of `session`, made where `session` is played."""
        assert isinstance(session, MixedSession)  # what open() gave
        children = await self.sources[session.name].fork(session.session, seeds, count)
        return [
            child if isinstance(child, LudusError) else MixedSession(child, session.name)
            for child in children
        ]

    async def release(self, session: Playable) -> None:
        """Give a session back after the episode."""
        assert isinstance(session, MixedSession)  # what open() gave
        await self.sources[session.name].release(session.session)

    async def tasks(self, split: str, indices: Sequence[int]) -> list[Task]:
        """Return the tasks at `indices` of the mixed split."""
        tasks: list[Task] = []
        for index in indices:
            name, place = await self._at(split, index)
            (task,) = await self.sources[name].tasks(split, [place])
            problem = f"{name}{BETWEEN}{task.problem}" if task.problem else ""
            tasks.append(
                msgspec.structs.replace(task, id=f"{name}{BETWEEN}{task.id}", problem=problem)
            )
        return tasks

    async def size(self, split: str) -> int | None:
        """Return None, since finite splits begin again; 0 where an environment has no task."""
        sizes = {name: await source.size(split) for name, source in self.sources.items()}
        return 0 if 0 in sizes.values() else None

    async def named(self) -> str:
        """Return nothing, since no single environment is the run's; checks the arguments of each.

        Raises:
            ConfigError: a server has other arguments than those that were asked for.
        """
        for source in self.sources.values():
            await source.named()
        return ""

    def counters(self) -> dict[str, float]:
        """Return the sums of what crossed the wire so far."""
        total: dict[str, float] = {}
        for source in self.sources.values():
            for name, count in source.counters().items():
                total[name] = total.get(name, 0.0) + count
        return total

    async def close(self) -> None:
        """Close the sessions and connections of all environments, though one may fail to close."""
        async with AsyncExitStack() as closing:
            for source in self.sources.values():
                closing.push_async_callback(source.close)

    async def _at(self, split: str, index: int) -> tuple[str, int]:
        """Return the environment and the place in its split of the mixture's task `index`."""
        async with self._drawing:
            drawn = self._drawn.setdefault(split, [])
            while len(drawn) <= index:
                name = self._next(split)
                if (split, name) not in self._orders:
                    size = await self.sources[name].size(split)
                    self._orders[split, name] = order(size, self._seed)
                drawn.append((name, next(self._orders[split, name])))
                self._counts[split][name] += 1
        return drawn[index]

    def _next(self, split: str) -> str:
        """Return the environment that is furthest behind its share; the first of several."""
        held_out = split == self._evaluated
        weights = dict.fromkeys(self._weights, 1.0) if held_out else self._weights
        counts = self._counts.setdefault(split, dict.fromkeys(weights, 0))
        total, count = sum(weights.values()), sum(counts.values()) + 1
        return max(weights, key=lambda name: weights[name] / total * count - counts[name])


class MixedSession:
    """A session of one of several environments, which takes the mixture's task ids.

    Args:
        session: the environment's session.
        name: the name of the environment.
    """

    def __init__(self, session: Playable, name: str) -> None:
        self.session, self.name, self.id = session, name, session.id

    @property
    def deterministic(self) -> bool:
        """Whether the same seed gives the same episode."""
        return self.session.deterministic

    async def task_page(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """Return a page of tasks."""
        return await self.session.task_page(split, offset=offset, limit=limit)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode of a task of the mixture."""
        given = dict(options or {})
        task = str(given.get("task", ""))
        if environment_of(task) == self.name:
            given["task"] = task.partition(BETWEEN)[2]
        observation, info = await self.session.reset(seed=seed, options=given)
        return observation, {**info, "task": f"{self.name}{BETWEEN}{info['task']}"}

    async def step(self, action: str | Message) -> Stepped:
        """Take a step in the session."""
        return await self.session.step(action)

    async def close(self) -> None:
        """Close the session."""
        await self.session.close()


class MixedExperts:
    """The experts of several environments; see `hints.Shows`.

    Args:
        environments: the environments with their names.
    """

    def __init__(self, environments: Sequence[EnvironmentConfig]) -> None:
        self._experts = {each.title: Expert(each.env) for each in environments}

    async def actions(self, task: Task, seed: int, options: dict[str, Any]) -> list[Message]:
        """Return the expert's actions on a task of the mixture."""
        name, _, task_id = task.id.partition(BETWEEN)
        plain = msgspec.structs.replace(task, id=task_id)
        return await self._experts[name].actions(plain, seed, options)

    async def check(self, split: str) -> None:
        """Play the demonstration of each environment's first task.

        Raises:
            ConfigError: an environment has no expert.
        """
        for expert in self._experts.values():
            await expert.check(split)

    async def close(self) -> None:
        """Close the environments, though one may fail to close."""
        async with AsyncExitStack() as closing:
            for expert in self._experts.values():
                closing.push_async_callback(expert.close)


def refuse_mixture(environments: Sequence[EnvironmentConfig], *, env: str, agent: str) -> None:
    """Refuse settings that do not go with several environments.

    Raises:
        ConfigError: with the reason.
    """
    if not environments:
        return
    if env:
        raise ConfigError(
            f"env is {env!r}, and [[environment]] names {len(environments)}: leave out one of them"
        )
    if agent:
        raise ConfigError(
            f"agent = {agent!r} plays one environment; leave out [[environment]], and set env"
        )


def source_of(config: TrainConfig) -> EnvSource:
    """Open the environment of a run, or its environments."""
    if config.environment:
        return MixedSource(config.environment, seed=config.seed, evaluated=config.eval.split)
    return open_source(config.env, url=config.env_url, token=config.env_token)
