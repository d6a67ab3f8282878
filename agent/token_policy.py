"""The trainable policy: token ids in, token ids out.

The ids of a segment only ever grow. After each turn the new messages are rendered alone and
appended to the ids as they were sampled. If the template cannot extend them, the whole conversation
is rendered afresh as a new segment (a drift).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message

from .chat import ChatFormat
from .engine import Engine, Sampling
from .trajectory import Finish, Segment, Turn

MIN_ANSWER_TOKENS = 4
"""A window with less room than this is full."""


class TokenPolicy:
    """Samples from an engine in a chat format.

    Args:
        engine: what samples.
        chat_format: how messages become ids and back.
        sampling: `max_tokens` is per turn; the seed is replaced for each episode and turn.
        window: the context window in tokens, prompt and answers; None is the engine's own.
    """

    trainable = True

    def __init__(
        self,
        engine: Engine,
        chat_format: ChatFormat,
        sampling: Sampling,
        *,
        window: int | None = None,
    ) -> None:
        self.engine = engine
        self.chat_format = chat_format
        self.sampling = sampling
        self.window = min(window or engine.max_length, engine.max_length)

    def begin(self, *, seed: int = 0) -> TokenPlayer:
        """A player whose sampling is fixed by `seed`."""
        return TokenPlayer(self, seed)


class TokenPlayer:
    """Plays one episode in token space."""

    def __init__(self, policy: TokenPolicy, seed: int) -> None:
        self.policy = policy
        self.segments: list[Segment] = []
        self._seed = seed
        self._seen = 0
        self._ids: list[int] = []
        self._sampled = 0

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | None:
        """Answer the conversation; None if the window leaves no room."""
        turn = Turn(observation=list(messages[self._seen :]))
        turn.obs_ids = self._extend(messages, tools)
        room = self.policy.window - len(self._ids)
        if room < MIN_ANSWER_TOKENS:
            return None
        await self._sample(turn, min(self.policy.sampling.max_tokens, room))
        self.segments[-1].turns.append(turn)
        self._seen = len(messages) + 1
        return turn

    def _extend(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Bring `_ids` up to where the policy speaks; the ids that were appended to the
        running segment.
        """
        if self.segments and self.segments[-1].turns:
            ended = self.segments[-1].turns[-1].finish is Finish.STOP
            new = self.policy.chat_format.extension(messages[self._seen :], ended=ended)
            if new is not None:
                self._ids += new
                return new
            self.segments[-1].break_reason = "drift"
        self._ids = self.policy.chat_format.prompt(messages, tools)
        self.segments.append(Segment(prompt_ids=list(self._ids)))
        return []

    async def _sample(self, turn: Turn, budget: int) -> None:
        sampling = msgspec.structs.replace(
            self.policy.sampling,
            max_tokens=budget,
            seed=(self._seed * 1_000_003 + self._sampled) & 0x7FFFFFFF,
            stop_token_ids=self.policy.chat_format.stop_token_ids,
        )
        generation = await self.policy.engine.generate(self._ids, sampling)
        turn.out_ids, turn.logprobs = generation.ids, generation.logprobs
        turn.versions, turn.finish = generation.versions, generation.finish
        complete = generation.finish is Finish.STOP
        turn.message = self.policy.chat_format.parse(generation.ids, complete=complete)
        self._ids += generation.ids
        self._sampled += len(generation.ids)
