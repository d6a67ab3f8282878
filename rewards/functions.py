"""Functions as verifiers; and what a verifier returned, read as a verdict.

A result that cannot be used becomes a verdict without a reward, and never a reward of zero.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence

from ludus.errors import InvalidScore, RemoteError, RewardUnavailable
from ludus.verdict import Verdict
from ludus.wire.codec import encode

from .protocol import Sample, Verifier

Scored = Verdict | float | bool
ScoreFunction = Callable[[Sample], Scored | Awaitable[Scored]]


class FunctionVerifier:
    """A plain function as a verifier. A number or a bool becomes an ok verdict."""

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.never_blocks = never_blocks(function)
        self.hears_thoughts = bool(getattr(function, "hears_thoughts", False))

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
        return Verdict.of(float(scored))
    raise InvalidScore(
        f"{name} must return a Verdict, a number or a bool, got {type(scored).__name__}: "
        f"{scored!r:.80}"
    )


def never_blocks(target: object) -> bool:
    """Return whether a verifier or its factory declares that it never blocks."""
    return bool(getattr(target, "never_blocks", False))


def name_of(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


def failed(name: str, error: BaseException) -> Verdict:
    """Return the verdict for an exception that the verifier `name` raised."""
    if isinstance(error, RewardUnavailable):
        return error.verdict
    if isinstance(error, RemoteError):  # a judge behind HTTP
        description = f"{type(error).__name__}: {error}"
        return Verdict.unavailable(description) if error.retryable else Verdict.error(description)
    if isinstance(error, TimeoutError):  # The verifier waited for something else, in vain.
        return Verdict.unavailable(f"{name}: {type(error).__name__}: {error}".rstrip(": "))
    return Verdict.error(f"{name} raised {type(error).__name__}: {error}")


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
