"""Any model behind an OpenAI-compatible server as a policy: for evaluation, never for training.

Such a server gives text, not the tokens it sampled, so its turns carry none and the trainer refuses
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.llm import ChatClient, Completion
from ludus.messages import Message

from .chat_player import ChatPlayer, Ruler
from .chat_tools import ServerTools, TextTools, ToolWire
from .context import ContextManager, History, KeepEverything, Sizes, WriteSummary
from .parsing import tool_format as find_format

ANSWER_TOKENS = 256
"""Room for one action where a window is checked and `max_tokens` says nothing."""


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
        window: the working context in tokens, about; None is what the server takes.
        context: what happens when the window is full; by default the episode ends.
        client: one to share; then `base_url`, `model` and `client_options` are not used.
        client_options: of `ChatClient`: api_key, patience, concurrency, cache, budget.

    Raises:
        ConfigError: a context manager without a window it could keep to.
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
        window: int | None = None,
        context: ContextManager | None = None,
        client: ChatClient | None = None,
        **client_options: Any,
    ) -> None:
        self.context: ContextManager = context or KeepEverything()
        self.window = window
        if window is None and self.context.name not in ("none", "fold"):
            raise ConfigError(
                f"context manager {self.context.name!r} needs a window: say how many tokens it has "
                "(--window)"
            )
        self.client = client or ChatClient(base_url, model, **client_options)
        self.send_seed = send_seed
        self.tool_format = find_format(tool_format) if tool_format else None
        chosen = {"temperature": temperature, "max_tokens": max_tokens, **(sampling or {})}
        self.sampling = {name: value for name, value in chosen.items() if value is not None}
        self._ruler = Ruler()

    def begin(self, *, seed: int = 0) -> ChatPlayer:
        """A player whose requests carry `seed`, so that samples differ and can be repeated."""
        return ChatPlayer(
            self,
            self._wire(),
            self.context,
            window=self.window,
            max_tokens=self._answer_tokens,
            ruler=self._ruler,
            seed=seed,
        )

    async def ask(
        self, messages: Sequence[Message], offer: list[dict[str, Any]], seed: int, **fields: Any
    ) -> Completion:
        """Send a conversation; see `ChatClient.complete`."""
        return await self.client.complete(
            messages, tools=offer, seed=seed, send_seed=self.send_seed, **self._fields(fields)
        )

    def check(self, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Refuse settings that cannot work with episodes that open like this one; lengths are
        estimates.

        Raises:
            ConfigError: no window would hold a step, or a summary would not fit.
        """
        if self.window is None:
            return
        every = [*tools, *self.context.tools]
        wire, reopened, instruction = self._wire(), list(opening), 0
        room = 0
        step = self.context.when_full(History(tuple(opening)))
        if isinstance(step, WriteSummary):
            room = step.max_tokens  # a summary may run past the working context
            reopened = step.resume("").messages
            instruction = self._ruler.tokens([step.instruction])
        sizes = Sizes(
            window=self.window,
            row=self.window + instruction + room,
            opening=self._ruler.prompt(*wire.request(opening, every)),
            reopened=self._ruler.prompt(*wire.request(reopened, every)),
            instruction=instruction,
            answer=min(self._answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS, self.window // 4),
        )
        self.context.check(sizes)

    async def close(self) -> None:
        """Close the connections to the model's server."""
        await self.client.close()

    @property
    def _answer_tokens(self) -> int | None:
        given = self.sampling.get("max_tokens", self.sampling.get("max_completion_tokens"))
        return given if isinstance(given, int) else None

    def _fields(self, over: dict[str, Any]) -> dict[str, Any]:
        """The fields of a request; a bound on its answer goes where this server's stands."""
        fields = dict(over)
        if "max_tokens" in fields and "max_completion_tokens" in self.sampling:
            fields["max_completion_tokens"] = fields.pop("max_tokens")
        return {**self.sampling, **fields}

    def _wire(self) -> ToolWire:
        return ServerTools() if self.tool_format is None else TextTools(self.tool_format)
