"""The trainable policy: token ids in, token ids out.

The ids of a segment only ever grow. After each turn the new messages are rendered alone and
appended to the sampled ids. If the template cannot extend the ids, the whole conversation is
rendered afresh as a new segment (a drift). The context manager cuts a full window.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message

from .chat import ChatFormat
from .context import ContextManager, KeepEverything, Sizes, TokenBounds, measure_sizes
from .engine import Engine, Generation, Sampling
from .token_player import Span, TokenPlayer


class TokenPolicy:
    """Samples from an engine in a chat format.

    Args:
        engine: the sampling engine.
        chat_format: how messages become ids and back.
        sampling: `max_tokens` is per turn; the seed is replaced for each episode and turn.
        window: W, the working context in tokens for prompt and answers; None means the engine's.
        context: decides how to continue when the window is full; by default the episode ends. A
            summary may exceed the window, up to the engine's limit.
    """

    trainable = True

    def __init__(
        self,
        engine: Engine,
        chat_format: ChatFormat,
        sampling: Sampling,
        *,
        window: int | None = None,
        context: ContextManager | None = None,
    ) -> None:
        self.engine = engine
        self.chat_format = chat_format
        self.sampling = sampling
        self.window = min(window or engine.max_length, engine.max_length)
        self.context: ContextManager = context or KeepEverything()

    def begin(self, *, seed: int = 0) -> TokenPlayer:
        """Return a player whose sampling is fixed by `seed`."""
        return TokenPlayer(
            self.chat_format,
            self,
            self.context,
            self.bounds,
            seed=seed,
        )

    async def speak(self, ids: Sequence[int], span: Span) -> Generation:
        """Sample the next span of an episode."""
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=span.max_tokens,
            seed=span.seed,
            stop_token_ids=self.chat_format.stop_token_ids,
        )
        return await self.engine.generate(ids, sampling, images=span.images)

    def check(self, opening: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Refuse settings that cannot work for episodes with this opening.

        Raises:
            ConfigError: no window would hold a step, or a summary would not fit.
        """
        self.context.check(
            context_sizes(
                self.chat_format,
                self.context,
                opening,
                tools,
                self.bounds,
            )
        )

    @property
    def bounds(self) -> TokenBounds:
        """The bounds of an episode's windows, segments and answers."""
        return TokenBounds(
            window=self.window, row=self.engine.max_length, answer=self.sampling.max_tokens
        )


def context_sizes(
    chat_format: ChatFormat,
    context: ContextManager,
    opening: Sequence[Message],
    tools: Sequence[ToolSpec],
    bounds: TokenBounds,
) -> Sizes:
    """Measure the lengths in tokens that `ContextManager.check` needs."""
    all_tools = [*tools, *context.tools]

    def measure_instruction(instruction: Message) -> int:
        extension = chat_format.extension([instruction], ended=False)
        return len(extension or chat_format.prompt([instruction], []))

    return measure_sizes(
        context,
        opening,
        bounds,
        measure=lambda messages: len(chat_format.prompt(messages, all_tools)),
        measure_instruction=measure_instruction,
    )
