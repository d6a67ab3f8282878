"""The verifier contract: a `Sample` goes in, a `Verdict` comes out.

    @ludus.verifier("me/exact")
    def exact(sample: ludus.Sample) -> bool:
        return sample.text.strip() == sample.gold

A verifier is any object with `score(sample)`, sync or async. A plain function is usually enough. A
verifier that holds something (a pool, a model, a client) is a class, and may add `close()`. A
verifier that compares several answers with each other adds `score_group(samples)`.

A result that cannot be used becomes a verdict without a reward, and never a reward of zero.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from ludus.errors import InvalidScore, RemoteError, RewardUnavailable, error_text
from ludus.messages import ImagePart, Message, assistant
from ludus.thoughts import AUTO, MARK, MARKS, NONE, apart
from ludus.verdict import Verdict
from ludus.wire.codec import encode


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
        if isinstance(given, str) and self.thoughts in MARKS and MARK.search(given) is None:
            return
        messages = [assistant(given)] if isinstance(given, str) else given
        if not isinstance(messages, list | tuple) or not all(
            isinstance(message, Message) for message in messages
        ):
            raise TypeError(f"response must be a text or a list of Message, got {given!r:.80}")
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
        return self.response if isinstance(self.response, str) else self.answer.text

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
    sets `hears_thoughts = True`; all others are given what was said. Of several servers a client
    may ask a second one where the first is late, if the verifier never blocks and is not
    `deterministic = False`, or sets `cheap_to_repeat = True`.
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


Scored = Verdict | float | bool
ScoreFunction = Callable[[Sample], Scored | Awaitable[Scored]]


class FunctionVerifier:
    """A plain function as a verifier. A number or a bool becomes an ok verdict."""

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.never_blocks = never_blocks(function)
        self.hears_thoughts = bool(getattr(function, "hears_thoughts", False))
        self.cheap_to_repeat = cheap_to_repeat(function)

    def score(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Call the score function."""
        scored = self.function(sample)
        name = name_of(self.function)
        return (
            _await_score(scored, name) if inspect.isawaitable(scored) else as_verdict(scored, name)
        )


async def _await_score(scored: Awaitable[Scored], name: str) -> Verdict:
    return as_verdict(await scored, name)


def as_verdict(scored: object, name: str = "a verifier") -> Verdict:
    """Read what the verifier function `name` returned.

    Raises:
        InvalidScore: the function returned neither a verdict nor a number.

    >>> as_verdict(True).reward
    1.0
    """
    if isinstance(scored, Verdict):
        return scored
    if isinstance(scored, (bool, int, float)):
        # An integer may be too large for a float, and even to be written out.
        if not -sys.float_info.max <= scored <= sys.float_info.max:
            written = repr(scored) if isinstance(scored, float) else "a larger integer"
            raise InvalidScore(f"{name} must return a finite number, got {written}")
        return Verdict.of(float(scored))
    hint = ""
    if scored is None:
        hint = "; is a return missing?"
    elif hasattr(scored, "item"):  # numbers of numpy and torch
        hint = "; one number of an array is given by .item()"
    raise InvalidScore(
        f"{name} must return a Verdict, a number or a bool, got {type(scored).__name__}: "
        f"{scored!r:.80}{hint}"
    )


def never_blocks(target: object) -> bool:
    """Return whether a verifier or its factory declares that it never blocks."""
    return bool(getattr(target, "never_blocks", False))


def cheap_to_repeat(target: object) -> bool:
    """Return whether scoring a sample twice costs little and gives the same verdict: as the
    verifier declares, else whether it never blocks and is deterministic.
    """
    is_light = never_blocks(target) and bool(getattr(target, "deterministic", True))
    return bool(getattr(target, "cheap_to_repeat", is_light))


def name_of(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def failed(name: str, error: BaseException) -> Verdict:
    """Return the verdict for an exception that the verifier `name` raised."""
    if isinstance(error, RewardUnavailable):
        return error.verdict
    description = f"{type(error).__name__}: {error_text(error)}"
    if isinstance(error, RemoteError):  # a judge behind HTTP
        return Verdict.unavailable(description) if error.retryable else Verdict.error(description)
    if isinstance(error, TimeoutError):  # The verifier waited for something else, in vain.
        return Verdict.unavailable(f"{name}: {description}".rstrip(": "))
    return Verdict.error(f"{name} raised {description}")


def is_bug(error: BaseException) -> bool:
    """Return whether an exception is a bug of the verifier, whose traceback should be logged."""
    return not isinstance(error, (RewardUnavailable, RemoteError, TimeoutError))


def usable(name: str, value: object) -> Verdict:
    """Return the verdict of the verifier `name` if the verdict can be sent, otherwise a failure."""
    try:
        verdict = as_verdict(value, name)
        encode(verdict)
    except (TypeError, ValueError, RecursionError) as error:
        return Verdict.error(f"{name} gave no usable verdict: {error}")
    return verdict


def one_each(value: object, number: int) -> Sequence[object]:
    """Return the results of `score_group`, a result for each of `number` samples."""
    if isinstance(value, Verdict):  # The call failed as a whole, which holds for each sample.
        return [value] * number
    if isinstance(value, Sequence) and len(value) == number:
        return value
    return [Verdict.error(f"score_group must give {number} verdicts, got {value!r:.80}")] * number


def is_async_verifier(verifier: Verifier) -> bool:
    """Return whether `score` is a coroutine function."""
    function = verifier.function if isinstance(verifier, FunctionVerifier) else verifier.score
    return inspect.iscoroutinefunction(function)
