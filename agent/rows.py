"""The writing of rows: a conversation becomes ids, which then only grow.

Whoever decides what a policy reads next (the context manager of an episode, or an agent behind the
gateway) writes by these three steps: `open` renders a conversation, `extension_behind` renders
what is new behind a sampled turn, and `sample` adds the policy's turn. The sampled ids are never
decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message

from .chat import ChatFormat
from .engine import Engine, Sampling, refuse_broken
from .trajectory import Finish, Turn

MIN_ANSWER_TOKENS = 4
"""A row with less room than this counts as full."""


def extension_behind(
    turn: Turn, new: Sequence[Message], chat_format: ChatFormat
) -> list[int] | None:
    """Return the ids that follow `turn` so that the policy can answer `new`, or None if the
    template would rewrite earlier text.
    """
    return chat_format.extension(
        new,
        ended=chat_format.ends_turn(turn.out_ids),
        thought=turn.message is not None and turn.message.thinks,
        last=turn.out_ids[-1] if turn.out_ids else None,
    )


class TokenWriter:
    """Writes rows in a model's chat format with what an engine samples.

    Args:
        chat_format: how messages become ids and back.
        engine: the sampling engine.
        sampling: `max_tokens` is the most of one turn; the seed is replaced for each turn.
    """

    def __init__(self, chat_format: ChatFormat, engine: Engine, sampling: Sampling) -> None:
        self.chat_format = chat_format
        self.engine = engine
        self.sampling = sampling

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the ids of a whole conversation up to the point where the policy speaks."""
        return self.chat_format.prompt(messages, tools)

    async def sample(
        self, ids: Sequence[int], turn: Turn, *, budget: int, seed: int, tools: Sequence[ToolSpec]
    ) -> None:
        """Sample at most `budget` tokens behind `ids` into `turn`, and parse them.

        Raises:
            BrokenGeneration: the engine's answer cannot become a row.
        """
        sampling = msgspec.structs.replace(
            self.sampling,
            max_tokens=budget,
            seed=seed,
            stop_token_ids=self.chat_format.stop_token_ids,
        )
        generation = await self.engine.generate(ids, sampling)
        refuse_broken(generation, budget)
        turn.out_ids, turn.logprobs = generation.ids, generation.logprobs
        turn.versions, turn.finish = generation.versions, generation.finish
        turn.message = self.read(turn, tools, ids)

    def read(self, turn: Turn, tools: Sequence[ToolSpec], ids: Sequence[int]) -> Message:
        """Return the message that the sampled ids of `turn` say behind `ids`; calls only where
        there are `tools`.
        """
        return self.chat_format.parse(
            turn.out_ids,
            complete=turn.finish is Finish.STOP,
            calls=bool(tools),
            tools=tools,
            prompt=ids,
        )
