"""Rows of a peer's data set, each of which names an episode, and the episodes as a peer's policy
sees them: as text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec

from ludus.agent.chat_tools import TextTools
from ludus.agent.parsing import tool_format
from ludus.envs.tools.spec import ToolSpec
from ludus.errors import ConfigError
from ludus.llm.chat_wire import Completion
from ludus.messages import Message, assistant

from .bridge import BridgedEpisode, shared_bridge


class EpisodeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which episode of an environment a row names."""

    task: str | None = None
    """The id of a task; None lets the environment pick one by the seed."""
    split: str | None = None
    """The split to pick from; not read where a task is named, which is looked for in all."""
    seed: int = 0

    def options(self) -> dict[str, str]:
        """Return the options of `reset` that this row chooses."""
        if self.task:
            return {"task": self.task}
        return {"split": self.split} if self.split else {}


class EpisodeRow(EpisodeChoice, frozen=True, kw_only=True):
    """What a row says of an episode and of the environment."""

    env: str
    """The environment's name, with arguments as in `ludus/arithmetic-v0?max_operations=2`."""
    url: str = ""
    """The address of a ludus server; "" plays the environment in worker processes."""
    token: str | None = None
    """The server's bearer token, which no row of a data set holds."""
    tool_format: str = "hermes"
    """How the policy writes calls of tools."""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Read the columns of a row; columns that peers add are not read.

        Raises:
            ConfigError: no environment is named, or a value is of a wrong type.
        """
        named = {name: columns[name] for name in cls.__struct_fields__ if columns.get(name)}
        if "env" not in named:
            raise ConfigError("a row must name a ludus environment: env='me/env-v0'")
        try:
            return msgspec.convert({**named, "seed": int(named.get("seed", 0))}, cls)
        except ValueError as error:
            raise ConfigError(f"the row {named!r} names no episode: {error}") from error

    def columns(self) -> dict[str, Any]:
        """Return the columns that name this episode in a peer's data set."""
        return {
            "env": self.env,
            "seed": self.seed,
            **({"url": self.url} if self.url else {}),
            "task": self.task,
        }

    def episode(self) -> BridgedEpisode:
        """Return an episode of the environment, to be begun and closed."""
        return shared_bridge(self.env, self.url, self.token).episode()

    async def begin(self, episode: BridgedEpisode) -> list[Message]:
        """Begin the row's episode, and return what the policy is told."""
        return await episode.begin(seed=self.seed, options=self.options())


class RowWriter(Protocol):
    """Writes a peer's data set, a row for each task."""

    def __call__(
        self,
        env: str,
        count: int,
        *,
        split: str = "train",
        offset: int = 0,
        seed: int = 0,
        url: str = "",
    ) -> list[dict[str, Any]]:
        """Return the rows of `count` tasks.

        Args:
            env: the environment's name, with arguments as in
                `ludus/arithmetic-v0?max_operations=2`.
            count: how many tasks, from `offset` on; fewer where the split ends before.
            split: the split that the tasks are of.
            offset: the position of the first task in the split.
            seed: the seed of every episode.
            url: the address of a ludus server; "" plays the environment in worker processes.

        Raises:
            UnknownTask: no such split.
            RewardUnavailable: a peer's rows show what the policy is told, and an episode could not
                begin.
        """
        ...


def row_writer(shape: Callable[[EpisodeRow, int], dict[str, Any]]) -> RowWriter:
    """Make the writer of a peer's rows; a decorator.

    Args:
        shape: returns the peer's row for an episode, whose index among the rows is given.
    """

    def rows(
        env: str, count: int, *, split: str = "train", offset: int = 0, seed: int = 0, url: str = ""
    ) -> list[dict[str, Any]]:
        tasks = shared_bridge(env, url).tasks(split, count, offset=offset)
        return [
            shape(EpisodeRow(env=env, url=url, task=task.id, seed=seed), index)
            for index, task in enumerate(tasks)
        ]

    rows.__doc__ = shape.__doc__
    return rows


class TextReplies:
    """Writes what an environment says as text, and reads the text of a policy as an action.

    Args:
        format: the name of the tool format in which the policy writes calls.

    Raises:
        UnknownName: there is no such format.
    """

    def __init__(self, format: str = "hermes") -> None:
        self._wire = TextTools(tool_format(format))

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """Return the opening messages, with the tools described in the system message."""
        return self._wire.request(messages, tools)[0]

    def answer(self, messages: Sequence[Message]) -> list[Message]:
        """Return an answer of the environment, with results of tools as messages of the user."""
        return self._wire.request(messages, [])[0]

    def action(self, text: str, tools: Sequence[ToolSpec]) -> str | Message:
        """Return what the policy does by writing `text`."""
        read = self._wire.read(Completion(message=assistant(text), finish="stop"), tools)
        return read if read.tool_calls else text
