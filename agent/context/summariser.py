"""Models that summarise for a policy: a server, or an engine of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ludus.errors import RemoteError
from ludus.llm import ChatClient
from ludus.messages import Message

from ..chat import ChatFormat
from ..engine import Engine, Sampling, refuse_broken
from ..trajectory import Finish

TIMEOUT_S = 120.0


class Summariser(Protocol):
    """Writes summaries that the policy goes on from and is not trained on."""

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Return the answer to a conversation that asks for a summary.

        Raises:
            LudusError: no answer could be had.
        """
        ...

    async def close(self) -> None:
        """Release what the summariser holds."""
        ...


class ServerSummariser:
    """A model behind an OpenAI-compatible server.

    Args:
        client: the connection, with its own timeouts and retries; closed with the summariser.
        temperature: the sampling temperature; 0 makes equal windows give equal summaries.
    """

    def __init__(self, client: ChatClient, *, temperature: float = 0.0) -> None:
        self.client, self.temperature = client, temperature

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Ask the server."""
        answer = await self.client.complete(
            messages, max_tokens=max_tokens, temperature=self.temperature
        )
        return answer.message.text

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()


class EngineSummariser:
    """An engine with weights of its own, which no training step changes.

    Args:
        engine: the engine; closed with the summariser.
        chat_format: the chat format of the engine's model.
        sampling: temperature and the like; `max_tokens` and stop tokens are replaced.
        timeout_s: the time limit of a summary, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        chat_format: ChatFormat,
        *,
        sampling: Sampling | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.engine, self.chat_format, self.timeout_s = engine, chat_format, timeout_s
        self.sampling = sampling or Sampling(temperature=0.0)

    async def write(self, messages: Sequence[Message], max_tokens: int) -> str:
        """Sample a summary.

        Raises:
            RemoteError: the engine was not done in time, or dropped the request.
            BrokenGeneration: the engine's answer is malformed.
        """
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=max_tokens,
            stop_token_ids=self.chat_format.stop_token_ids,
        )
        ids = self.chat_format.prompt(messages, [])
        images = self.chat_format.placed(ids, messages)
        try:
            async with asyncio.timeout(self.timeout_s):
                generation = await self.engine.generate(ids, sampling, images=images)
        except TimeoutError:
            raise RemoteError(f"no summary from the engine within {self.timeout_s:g} s") from None
        refuse_broken(generation, max_tokens)
        if generation.finish is Finish.ABORT:
            raise RemoteError("the engine dropped the request for a summary")
        return self.chat_format.parse(generation.ids, complete=True, calls=False, marks=False).text

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()
