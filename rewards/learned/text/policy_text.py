"""The protocol by which a reward asks a language model for probabilities of texts and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ludus.errors import LudusError
from ludus.messages import Message


class NoRoomToAnswer(LudusError, ValueError):
    """A conversation leaves no token of the model's context for an answer."""


class PolicyText(Protocol):
    """A language model with tokenizer and chat template: the policy's engine in training, or a
    folder's model on a server.
    """

    @property
    def name(self) -> str:
        """The name of the model, for messages."""
        ...

    @property
    def max_length(self) -> int:
        """Most tokens of a scored text with its context."""
        ...

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, up to where the model speaks."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens around the text."""
        ...

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each of `ids` given the ids before, in nats at temperature
        1. The first id has none before it, and gets 0.
        """
        ...

    async def write(
        self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int
    ) -> tuple[str, bool]:
        """Answer a conversation; return the text, and whether the answer ended by itself.

        Raises:
            NoRoomToAnswer: the conversation fills the tokens that the model reads.
        """
        ...

    async def close(self) -> None:
        """Release a model that was loaded for a reward alone; the policy's engine stays open."""
        ...


@runtime_checkable
class ReadsPolicy(Protocol):
    """A verifier that scores with the policy, which `ludus train` hands over before the run."""

    def use_policy(self, policy: PolicyText, /) -> None:
        """Score with `policy` from now on."""
        ...
