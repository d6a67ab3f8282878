"""Checks of what a verifier returned: a result that cannot be used becomes a verdict without a
reward, and never a reward of zero.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ludus.errors import RemoteError, RewardUnavailable
from ludus.verdict import Verdict
from ludus.wire.codec import encode

from .functions import FunctionVerifier, as_verdict
from .protocol import Verifier


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
