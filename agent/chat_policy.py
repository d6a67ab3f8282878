"""Any model behind an OpenAI-compatible server as a policy: for evaluation, never for training.

Such a server gives text, not the tokens it sampled, so its turns carry none and the trainer refuses
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm import ChatClient, ContextTooLong
from ludus.messages import Message

from .chat_tools import ServerTools, TextTools, ToolWire
from .parsing import tool_format as find_format
from .trajectory import Finish, Segment, Stop, Turn


class ChatPolicy:
    """Asks a model for each action.

    Args:
        base_url: up to and with `/v1`.
        model: as the server calls it.
        temperature: of the sampling; None leaves it to the server.
        max_tokens: of one answer; None leaves it to the server.
        send_seed: False for servers that refuse the field `seed`.
        sampling: further fields of the request, such as `top_p`.
        tool_format: how the model writes calls into its text, such as `hermes`, where its server
            knows no tools; empty leaves tools and calls to the server.
        client: one to share; then `base_url`, `model` and `client_options` are not used.
        client_options: of `ChatClient`: api_key, patience, concurrency, cache, budget.
    """

    trainable = False

    def __init__(
        self,
        base_url: str = "",
        model: str = "",
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        send_seed: bool = True,
        sampling: dict[str, Any] | None = None,
        tool_format: str = "",
        client: ChatClient | None = None,
        **client_options: Any,
    ) -> None:
        self.client = client or ChatClient(base_url, model, **client_options)
        self.send_seed = send_seed
        self.tool_format = find_format(tool_format) if tool_format else None
        chosen = {"temperature": temperature, "max_tokens": max_tokens, **(sampling or {})}
        self.sampling = {name: value for name, value in chosen.items() if value is not None}

    def begin(self, *, seed: int = 0) -> ChatPlayer:
        """A player whose requests carry `seed`, so that samples differ and can be repeated."""
        return ChatPlayer(self, seed)

    async def close(self) -> None:
        """Close the connections to the model's server."""
        await self.client.close()


class ChatPlayer:
    """Plays one episode in messages."""

    def __init__(self, policy: ChatPolicy, seed: int) -> None:
        self.policy = policy
        self.segments: list[Segment] = [Segment()]
        self._seed = seed
        self._seen = 0
        text = policy.tool_format
        self._wire: ToolWire = ServerTools() if text is None else TextTools(text)

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        """Answer the conversation; a stop if it no longer fits the model's context.

        Raises:
            LudusError: the server could not answer; see `ChatClient.complete`.
        """
        shown, offer = self._wire.request(messages, tools)
        try:
            completion = await self.policy.client.complete(
                shown,
                tools=offer,
                seed=self._seed * 1_000 + len(self.segments[-1].turns),
                send_seed=self.policy.send_seed,
                **self.policy.sampling,
            )
        except ContextTooLong:
            return Stop.CONTEXT_FULL
        turn = Turn(
            observation=list(messages[self._seen :]),
            message=self._wire.read(completion, tools),
            finish=Finish.LENGTH if completion.finish == "length" else Finish.STOP,
        )
        self._seen = len(messages) + 1
        self.segments[-1].turns.append(turn)
        return turn
