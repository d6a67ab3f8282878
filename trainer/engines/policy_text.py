"""The policy in training, as rewards use the policy to score and write texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ludus.agent import ChatFormat, Engine, Finish, Sampling
from ludus.agent.images import ImageRefused, images_of
from ludus.messages import Message
from ludus.rewards import Verifier
from ludus.rewards.learned.text.policy_text import NoRoomToAnswer, ReadsPolicy


class EngineText:
    """Scores and writes texts with the weights the policy samples from.

    Args:
        engine: the policy's engine, local or vLLM.
        chat_format: the policy's chat format, without tools on offer.
    """

    def __init__(self, engine: Engine, chat_format: ChatFormat) -> None:
        self.engine = engine
        self.chat_format = chat_format

    @property
    def name(self) -> str:
        """The name of the policy in messages, with the version of the weights."""
        return f"the policy at version {self.engine.version}"

    @property
    def max_length(self) -> int:
        """The most tokens of a scored text, context included."""
        return self.engine.max_length

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation, up to where the policy speaks.

        Raises:
            ImageRefused: the conversation shows images, which ids alone do not bring along.
        """
        if shown := images_of(messages):
            raise ImageRefused(
                f"a verifier that reads the policy's own probabilities gets token ids alone, and "
                f"the conversation shows {len(shown)} images"
            )
        return self.chat_format.prompt(messages, [])

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; a special token spelled out inside stays plain text."""
        return self.chat_format.encode_text(text)

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each of `ids` in nats; 0 for the first, which follows
        nothing.
        """
        return await self.engine.logprobs(ids)

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation; return the text, and whether the policy stopped by itself.

        Raises:
            NoRoomToAnswer: the conversation leaves no room to answer.
        """
        ids = self.prompt(messages)
        room = min(max_tokens, self.max_length - len(ids))
        if room < 1:
            raise NoRoomToAnswer(
                f"a conversation of {len(ids)} tokens leaves no room to answer: the policy's "
                f"engine takes {self.max_length} tokens of prompt and answer"
            )
        sampling = Sampling(
            max_tokens=room,
            temperature=temperature,
            seed=seed,
            stop_token_ids=self.chat_format.stop_token_ids,
        )
        generation = await self.engine.generate(ids, sampling)
        message = self.chat_format.parse(
            generation.ids, complete=True, calls=False, marks=False, prompt=ids
        )
        return message.text, generation.finish is Finish.STOP

    async def close(self) -> None:
        """Do nothing: the run closes the engine."""


def hand_over(policy: EngineText, verifiers: Iterable[Verifier]) -> None:
    """Give the policy to every verifier that scores with the policy in training."""
    for verifier in verifiers:
        if isinstance(verifier, ReadsPolicy):
            verifier.use_policy(policy)
