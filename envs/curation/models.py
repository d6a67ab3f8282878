"""The models that task sets are measured with, and written by."""

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

Item = TypeVar("Item")
Result = TypeVar("Result")


TOO_LONG = (NoRoomToAnswer, ContextTooLong)
"""What a model raises for a conversation that it cannot read whole."""


class WritesAnswers(Protocol):
    """Answers conversations: a server's model, or one that is sampled in this process."""

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation; return the text without thoughts, and whether it ended by
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

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation, as `WritesAnswers.write` describes."""
        return await self.writer.write(
            messages, max_tokens=max_tokens, temperature=temperature, seed=seed
        )


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


async def ask_for(
    model: TaskModel, prompt: str, *fields: str, max_tokens: int, temperature: float, seed: int
) -> dict[str, str] | None:
    """Ask for a JSON object with texts in `fields`; None for an answer that does not end with
    one.
    """
    asked = f"{prompt}\n\nEnd with a JSON object with the fields {', '.join(fields)}."
    text, ended = await model.write(
        [user(asked)], max_tokens=max_tokens, temperature=temperature, seed=seed
    )
    try:
        row: dict[str, Any] = verdict_of(text, fields[0]) if ended else {}
    except UnreadableVerdict:
        return None
    if not all(isinstance(row.get(name), str) and row[name].strip() for name in fields):
        return None
    return {name: row[name].strip() for name in fields}


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
