"""A model behind a server, for the evaluation of agents: answers are text without token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.errors import RequestRejected
from ludus.llm.chat_wire import ContextTooLong
from ludus.messages import Message

from ..chat_policy import ChatPolicy
from ..images import PlacedImage
from ..rows import Prompt, Spent
from ..trajectory import Finish, Turn
from .wire import GatewayRefusal

LARGEST_ANSWER = 1 << 18
"""Tokens that no server gives in one answer: a budget above is not told, since servers refuse a
`max_tokens` beyond their window.
"""
NO_WINDOW = 1 << 31
"""Stands for a window that only the server knows."""


class TextWriter:
    """A `PolicyWriter` that has a server answer conversations; rows hold messages and no ids.

    Args:
        policy: the model, with its sampling and its tool format.
    """

    keeps_ids, sees_images, constrains = False, True, True

    def __init__(self, policy: ChatPolicy) -> None:
        self._policy, self._wire = policy, policy.wire()
        self.window = policy.window or NO_WINDOW
        self.max_tokens = policy.answer_tokens or NO_WINDOW

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return no ids; see `PolicyWriter.open`."""
        return []

    def extend(self, turn: Turn, new: Sequence[Message]) -> list[int] | None:
        """Return no ids; see `PolicyWriter.extend`."""
        return []

    def placed(self, ids: Sequence[int], messages: Sequence[Message]) -> list[PlacedImage]:
        """Return no places; the server places the images."""
        return []

    def quoted(self, message: Message) -> Message:
        """Return the message unchanged: the server takes care of marks."""
        return message

    async def sample(
        self, prompt: Prompt, turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> Spent:
        """Ask the server; see `PolicyWriter.sample`.

        Raises:
            GatewayRefusal: the conversation is longer than the server takes.
            RemoteError: the server failed, or could not be asked.
        """
        rows, offer = self._wire.request(prompt.messages, tools)
        fields: dict[str, Any] = {}
        if budget < min(self.max_tokens, LARGEST_ANSWER):
            fields["max_tokens"] = budget
        if prompt.schema:
            schema = msgspec.json.decode(prompt.schema)
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            fields["response_format"] = form
        try:
            completion = await self._policy.ask(rows, offer, seed, **fields)
        except ContextTooLong as error:
            raise GatewayRefusal(
                str(error), code="context_length_exceeded", parameter="messages"
            ) from None
        except RequestRejected as error:
            if not prompt.schema:
                raise
            raise GatewayRefusal(
                f"the server may not take the response_format: {error}", parameter="response_format"
            ) from None
        turn.message = self._wire.read(completion, tools)
        turn.finish = Finish.LENGTH if completion.finish == "length" else Finish.STOP
        usage = completion.usage
        if usage is None:
            ruler = self._policy.ruler
            return Spent(ruler.prompt(rows, offer), ruler.tokens([turn.message]))
        return Spent(usage.prompt_tokens, usage.completion_tokens)

    def read(self, turn: Turn, tools: Sequence[ToolSpec], ids: Sequence[int]) -> Message:
        """Return what the server said, with calls as text only; see `PolicyWriter.read`."""
        assert turn.message is not None
        return Message(
            role=turn.message.role, content=turn.message.text, reasoning=turn.message.reasoning
        )

    def decode(self, ids: Sequence[int], *, marks: bool = False) -> str:
        """Return an empty text: a server's answer has no ids."""
        return ""
