"""Random text and random tool calls: the floor every policy should stand above."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ludus.envs import ToolSpec
from ludus.envs.spaces import TextSpace
from ludus.messages import Message, ToolCall, assistant

from .policy import TextPlayer

CALL_RATE = 0.5


class RandomPolicy:
    """Says random text; where there are tools, half of the time it calls one with random text."""

    trainable = False

    def begin(self, *, seed: int = 0) -> TextPlayer:
        """A player whose choices are fixed by `seed`."""
        rng, space = random.Random(seed), TextSpace(seed)

        async def answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
            if not tools or rng.random() >= CALL_RATE:
                return assistant(space.sample())
            tool = rng.choice(list(tools))
            arguments = {name: space.sample() for name in tool.parameters.get("properties", {})}
            return assistant("", [ToolCall(name=tool.name, arguments=arguments, id="call_0")])

        return TextPlayer(answer)
