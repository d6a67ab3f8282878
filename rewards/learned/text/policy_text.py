"""What a reward may ask of a model of language: probabilities of given texts, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ludus.errors import LudusError
from ludus.messages import Message


class NoRoomToAnswer(LudusError, ValueError):
    """A conversation fills what the model reads."""


class PolicyText(Protocol):
    """A model with its tokenizer and chat template: the policy's engine in training, or a model of
    a folder on a server.
    """

    @property
    def name(self) -> str:
        """Which model it is."""
        ...

    @property
    def max_length(self) -> int:
        """Most tokens of a scored text with its context."""
        ...

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation, up to where the model speaks."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, nothing added."""
        ...

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """The log-probability of each of `ids` given those before it, in nats at temperature 1;
        the first reads 0.
        """
        ...

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation: the text, and whether it ended by itself.

        Raises:
            NoRoomToAnswer: the conversation fills what the model reads.
        """
        ...

    async def close(self) -> None:
        """Release what was opened for this alone; the policy's engine goes on."""
        ...


@runtime_checkable
class ReadsPolicy(Protocol):
    """A verifier that wants the policy in training; `ludus train` hands it over before the run."""

    def use_policy(self, policy: PolicyText, /) -> None:
        """Score with `policy` from now on."""
        ...
