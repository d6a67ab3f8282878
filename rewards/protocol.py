"""The verifier contract: a `Sample` goes in, a `Verdict` comes out.

    @ludus.verifier("me/exact")
    def exact(sample: ludus.Sample) -> bool:
        return sample.text.strip() == sample.gold

A verifier is any object with `score(sample)`, sync or async. A plain function is usually enough. A
verifier that holds something (a pool, a model, a client) is a class, and may add `close()`. A
verifier that compares several answers with each other adds `score_group(samples)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from ludus.messages import ImagePart, Message, assistant
from ludus.thoughts import AUTO, NONE, apart
from ludus.verdict import Verdict


class Sample(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """An answer to be scored, with its prompt and gold."""

    response: str | list[Message]
    """The policy's response: the final text, or the whole conversation."""
    gold: Any = None
    """The reference that the answer is compared with, in the form that the verifier documents."""
    prompt: str | list[Message] = ""
    info: dict[str, Any] = {}
    """Anything else the verifier documents (test cases, a rubric, limits)."""
    images: list[ImagePart] = []
    thoughts: str = AUTO
    """The marks around the thoughts in the response; see `ludus.thoughts`. A response with thoughts
    becomes messages whose `content` is what was said.
    """

    def __post_init__(self) -> None:
        given = self.response
        messages = [assistant(given)] if isinstance(given, str) else given
        response = [apart(message, self.thoughts) for message in messages]
        if response != messages:
            msgspec.structs.force_setattr(self, "response", response)

    @property
    def answer(self) -> Message:
        """The last assistant message of the response; an empty one where there is none."""
        if isinstance(self.response, str):
            return assistant(self.response)
        answers = [message for message in self.response if message.role == "assistant"]
        return answers[-1] if answers else assistant()

    @property
    def text(self) -> str:
        """What the response says; for a conversation, what its last assistant message says."""
        return self.answer.text

    @property
    def silence(self) -> str:
        """Why nothing was said, as the end of a verdict's detail; empty where something was."""
        return (
            "; the thoughts never end, so that nothing is said" if self.answer.only_thinks else ""
        )

    def marked(self, thoughts: str) -> Sample:
        """Return the sample with other marks around thoughts; `none` leaves them in the text."""
        response = self.response
        if not isinstance(response, str):
            response = [
                msgspec.structs.replace(
                    message, content=message.written, reasoning="", thought_marks=None
                )
                if message.thinks
                else message
                for message in response
            ]
        return msgspec.structs.replace(self, response=response, thoughts=thoughts)

    def heard_by(self, verifier: object) -> Sample:
        """Return the sample as `verifier` hears it: thoughts are in the text if it says
        `hears_thoughts`.
        """
        return self.marked(NONE) if getattr(verifier, "hears_thoughts", False) else self


@runtime_checkable
class Verifier(Protocol):
    """Scores answers. Blocking work belongs in a pool, never in an `async def score`.

    A server calls verifiers in worker processes, which are killed if they hang. A verifier whose
    time is bounded by construction to about a millisecond may set the attribute `never_blocks =
    True`, and is then called in the server's own process. One that scores how thoughts are written
    sets `hears_thoughts = True`; all others are given what was said.
    """

    def score(self, sample: Sample, /) -> Verdict | Awaitable[Verdict]:
        """Judge `sample`. Never raises for what the policy wrote: that is an ok verdict
        with a low reward.
        """
        ...


@runtime_checkable
class GroupVerifier(Verifier, Protocol):
    """Scores the answers of a group against each other (pairwise, listwise)."""

    def score_group(
        self, samples: Sequence[Sample], /
    ) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Score all `samples` of a task together; the result has a verdict for each sample, in
        order.
        """
        ...


@runtime_checkable
class BatchVerifier(Protocol):
    """Scores many samples in a single call, as a model does.

    A batch verifier is registered, served and called like any verifier: ludus gathers single
    samples into batches (`ludus.rewards.learned.batching`).

    Optional attributes and methods, by name:
        max_batch: largest number of samples in a call (16).
        max_wait_ms: milliseconds that the first sample of a batch waits for others (5.0).
        memory_bytes: memory that is kept for good; a server adds up what its models need.
        prepare(sample): returns what `score_batch` is given in place of the sample. The method runs
            on several threads while a batch is computed, and may raise
            `RewardUnavailable(Verdict.invalid(...))`.
        start(): called once in the process that computes, before its first batch; the place to
            move a model to a GPU.
        card(): a dict of plain data that says which weights, preprocessing and device are used.
    """

    def score_batch(self, samples: Sequence[Any], /) -> Sequence[Verdict | float]:
        """Score all `samples`, or what `prepare` made of them; return a verdict or number for each,
        in order.

        The method may block: it is called on a thread of its own, one batch at a time.
        """
        ...
