"""The models that task sets are measured with, and written by.

Tasks that a model writes are begun with an item each, such as a page or a design. A writer returns
a task, or says why it keeps none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ludus.errors import ConfigError
from ludus.llm.chat_wire import ContextTooLong
from ludus.llm.client import ChatClient
from ludus.messages import Message, user
from ludus.rewards.judge.reading import UnreadableVerdict, verdict_of
from ludus.rewards.learned.text.policy_text import NoRoomToAnswer
from ludus.thoughts import apart

from ..families.maths import MathsProblem, digest
from .collection import CandidateTasks, LeftOut

Item = TypeVar("Item")
Result = TypeVar("Result")

TOO_LONG = (NoRoomToAnswer, ContextTooLong)
"""What a model raises for a conversation that it cannot read whole."""


class WritesAnswers(Protocol):
    """Answers conversations: a server's model, or one that is sampled in this process."""

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation; return the text without thoughts, and whether the text ended by
        itself.

        Raises:
            NoRoomToAnswer: the conversation is too long; `ContextTooLong` of a server.
            LudusError: the model could not answer.
        """
        ...


@dataclass(frozen=True)
class TaskModel:
    """A model that tasks are measured with, or written by."""

    name: str
    """Its name on cards."""
    writer: WritesAnswers


class ServerModel:
    """A model behind an OpenAI-compatible server.

    Args:
        base_url: address, up to and including `/v1`.
        model: name of the model on the server.
        cache: a folder for answers, so that a command that was cut goes on; empty keeps none.
        concurrency: the most requests at the same time.

    Raises:
        ConfigError: the address is malformed, or no model is named.
    """

    def __init__(
        self, base_url: str, model: str, *, cache: str = "", concurrency: int = 32
    ) -> None:
        if not model:
            raise ConfigError(f"{base_url!r} needs --model, the name of a model that it serves")
        self.client = ChatClient(
            base_url, model, cache=Path(cache) if cache else None, concurrency=concurrency
        )

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation, as `WritesAnswers.write` describes."""
        completion = await self.client.complete(
            messages, seed=seed, max_tokens=max_tokens, temperature=temperature
        )
        return apart(completion.message).text, completion.finish == "stop"

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()


async def at_once(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], most: int
) -> list[Result]:
    """Work on items, at most `most` at the same time; the first failure ends all others, and is
    raised.
    """
    places = asyncio.Semaphore(most)

    async def bounded(item: Item) -> Result:
        async with places:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(bounded(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


# --- tasks that a model writes -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WriteSettings:
    """How a model writes tasks, and which of them are kept."""

    count: int = 100
    """How many tasks are begun: pages of a corpus, or designs of files."""
    hops: int = 2
    """The most pages that a question takes."""
    samples: int = 4
    """Answers by which a task is verified."""
    grounded: float = 0.75
    """The least share of readers of the pages who give the answer of a question."""
    known: float = 0.25
    """The highest share of answers without the pages that are right."""
    topk: int = 5
    """How many pages a search finds."""
    max_tokens: int = 1024
    """The most tokens of what the model writes at a time."""
    temperature: float = 0.8
    """The temperature of sampling."""
    concurrency: int = 16
    """The most tasks that are written at the same time."""

    def __post_init__(self) -> None:
        if min(self.count, self.hops, self.samples, self.topk, self.concurrency) < 1:
            raise ConfigError(
                "need count, hops, samples, topk and concurrency >= 1, got "
                f"{self.count}, {self.hops}, {self.samples}, {self.topk}, {self.concurrency}"
            )
        if not (0 <= self.grounded <= 1 and 0 <= self.known <= 1):
            raise ConfigError(
                f"grounded and known are shares from 0 to 1, got {self.grounded:g}, {self.known:g}"
            )


class Unwritten(Exception):
    """A task that is not kept; the first argument is the reason, the second a detail."""


@dataclass(frozen=True)
class WrittenTask:
    """A task that stood its tests."""

    question: str
    answer: str
    columns: dict[str, Any]
    """What its row has besides."""


@dataclass(frozen=True)
class TaskAuthor:
    """A model that writes tasks.

    Args:
        model: writes, and verifies what is written.
        settings: how it samples, and what is kept.
        seed: the seed of what it writes.
    """

    model: TaskModel
    settings: WriteSettings
    seed: int

    async def write(
        self, asked: str | Sequence[Message], number: int, *, temperature: float | None = None
    ) -> tuple[str, bool]:
        """Answer, as `WritesAnswers.write` describes.

        Args:
            asked: a user's message, or a conversation.
            number: tells attempts at the same apart.
            temperature: takes the place of that of the settings.
        """
        return await self.model.writer.write(
            [user(asked)] if isinstance(asked, str) else asked,
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature if temperature is None else temperature,
            seed=self.seed + number,
        )

    async def fill(self, prompt: str, number: int, *fields: str) -> dict[str, str] | None:
        """Ask for a JSON object with texts in `fields`; None for an answer that does not end with
        one.
        """
        text, ended = await self.write(
            f"{prompt}\n\nEnd with a JSON object with the fields {', '.join(fields)}.", number
        )
        try:
            row: dict[str, Any] = verdict_of(text, fields[0]) if ended else {}
        except UnreadableVerdict:
            return None
        if not all(isinstance(row.get(name), str) and row[name].strip() for name in fields):
            return None
        return {name: row[name].strip() for name in fields}


async def write_tasks(
    source: str,
    items: Sequence[tuple[int, Item]],
    write: Callable[[Item], Awaitable[WrittenTask]],
    clusters: Callable[[Sequence[WrittenTask]], list[int]],
    *,
    left_out: Sequence[LeftOut] = (),
    most: int,
) -> CandidateTasks:
    """Have a task written for each item.

    Args:
        source: where the items are from.
        items: what tasks are begun with, each with the number of its row.
        write: writes and verifies a task, or raises `Unwritten`.
        clusters: returns the cluster of each task; no cluster is in two splits.
        left_out: rows that hold no item.
        most: the most tasks that are written at the same time.

    Raises:
        LudusError: the model could not answer.
    """

    async def begun(item: tuple[int, Item]) -> WrittenTask | LeftOut:
        try:
            return await write(item[1])
        except Unwritten as refusal:
            return LeftOut(item[0], *map(str, refusal.args))
        except TOO_LONG:
            return LeftOut(item[0], "too long for the model", "what it reads has no room in it")

    kept: dict[str, tuple[int, WrittenTask]] = {}
    lost = list(left_out)
    for (row, _), result in zip(items, await at_once(items, begun, most), strict=True):
        if isinstance(result, LeftOut):
            lost.append(result)
        elif (name := digest(result.question)) in kept:
            lost.append(LeftOut(row, "repeated", f"row {kept[name][0]}"))
        else:
            kept[name] = row, result
    return CandidateTasks(
        source,
        len(items) + len(left_out),
        [
            (row, MathsProblem(id=name, question=task.question, gold=task.answer))
            for name, (row, task) in kept.items()
        ],
        clusters([task for _, task in kept.values()]),
        lost,
        {name: task.columns for name, (_, task) in kept.items()},
    )
