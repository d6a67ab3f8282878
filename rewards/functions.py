"""Functions as verifiers: what a score function returns, read as a verdict."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from ludus.errors import InvalidScore
from ludus.verdict import Verdict

from .protocol import Sample

Scored = Verdict | float | bool
ScoreFunction = Callable[[Sample], Scored | Awaitable[Scored]]


class FunctionVerifier:
    """A plain function as a verifier. A number or a bool becomes an ok verdict."""

    def __init__(self, function: ScoreFunction) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.never_blocks = never_blocks(function)

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
