"""Random text and random tool calls: the baseline that every policy should beat."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ludus.envs import ToolSpec
from ludus.envs.spaces import TextSpace
from ludus.messages import Message, ToolCall, assistant

from .policy import TextPlayer

CALL_RATE = 0.5


class RandomPolicy:
    """Says random text, or, where tools exist, calls a tool half of the time."""

    trainable = False

    def begin(self, *, seed: int = 0) -> TextPlayer:
        """Return a player whose choices are fixed by `seed`."""
        rng, space = random.Random(seed), TextSpace(seed)

        async def answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
            if not tools or rng.random() >= CALL_RATE:
                return assistant(space.sample())
            tool = rng.choice(list(tools))
            arguments = {name: space.sample() for name in tool.parameters.get("properties", {})}
            return assistant("", [ToolCall(name=tool.name, arguments=arguments, id="call_0")])

        return TextPlayer(answer)
