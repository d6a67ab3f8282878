"""A policy that asks a model behind an OpenAI-compatible server: for evaluation, never for
training.

Such a server returns text and not the sampled tokens, so the turns carry no tokens and the
trainer refuses this policy.
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
from .context import ContextManager, KeepEverything, TokenBounds, measure_sizes
from .parsing import tool_format as find_format

ANSWER_TOKENS = 256
"""Tokens assumed for one action when a window is checked and `max_tokens` is not given."""


class ChatPolicy:
    """Asks a model behind a server for each action.

    Args:
        base_url: the server's address including `/v1`.
        model: the model's name on the server.
        temperature: the sampling temperature; None leaves the choice to the server.
        max_tokens: the most tokens of one answer; None leaves the choice to the server.
        send_seed: False for servers that refuse the field `seed`.
        sampling: further fields of the request, such as `top_p`.
        tool_format: how the model writes calls into its text, such as `hermes`, for servers without
            tool support; empty leaves tools and calls to the server.
        window: the working context in tokens, approximately; None uses what the server accepts.
        context: decides how to continue when the window is full; by default the episode ends.
        client: a client to share; `base_url`, `model` and `client_options` are then ignored.
        client_options: options of `ChatClient`: api_key, patience, concurrency, cache, budget,
            send_reasoning.

    Raises:
        ConfigError: a context manager that needs a window was given none.
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
        if window is None and self.context.needs_window:
            raise ConfigError(
                f"context manager {self.context.name!r} needs a window: say how many tokens it has "
                "(--window)"
            )
        self.client = client or ChatClient(base_url, model, **client_options)
        self.send_seed = send_seed
        self.tool_format = find_format(tool_format) if tool_format else None
        defaults = {"temperature": temperature, "max_tokens": max_tokens, **(sampling or {})}
        self.sampling = {name: value for name, value in defaults.items() if value is not None}
        self.ruler = Ruler()

    def begin(self, *, seed: int = 0) -> ChatPlayer:
        """Return a player whose requests carry `seed`, so that samples differ and can be
        repeated.
        """
        return ChatPlayer(
            self,
            self._wire(),
            self.context,
            window=self.window,
            seed=seed,
        )

    async def ask(
        self, messages: Sequence[Message], offer: list[dict[str, Any]], seed: int, **fields: Any
    ) -> Completion:
        """Send a conversation; see `ChatClient.complete`."""
        if "max_tokens" in fields and "max_completion_tokens" in self.sampling:
            # This server knows the bound on an answer by its other name.
            fields["max_completion_tokens"] = fields.pop("max_tokens")
        request = {**self.sampling, **fields}
        return await self.client.complete(
            messages, tools=offer, seed=seed, send_seed=self.send_seed, **request
        )

    def check(self, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Refuse settings that cannot work for episodes with this opening; lengths are estimates.

        Raises:
            ConfigError: no window would hold a step, or a summary would not fit.
        """
        if self.window is None:
            return
        all_tools, wire = [*tools, *self.context.tools], self._wire()
        sizes = measure_sizes(
            self.context,
            opening,
            TokenBounds(  # without a row: a summary may run past the working context
                window=self.window,
                answer=min(self.answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS, self.window // 4),
            ),
            measure=lambda messages: self.ruler.prompt(*wire.request(messages, all_tools)),
            measure_instruction=lambda instruction: self.ruler.tokens([instruction]),
        )
        self.context.check(sizes)

    async def close(self) -> None:
        """Close the connections to the model's server, and what the context manager holds."""
        await self.context.close()
        await self.client.close()

    @property
    def answer_tokens(self) -> int | None:
        """The most tokens of one action, as far as known."""
        max_tokens = self.sampling.get("max_tokens", self.sampling.get("max_completion_tokens"))
        return max_tokens if isinstance(max_tokens, int) else None

    def _wire(self) -> ToolWire:
        return ServerTools() if self.tool_format is None else TextTools(self.tool_format)
