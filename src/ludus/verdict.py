"""A `Verdict`: what an answer is worth, or why nobody can say.

A verdict separates the policy's fault from ours. A wrong, empty or looping answer is `ok` with a
low reward. An unreadable gold, a lost worker or a bug in the scorer is *not* ok and carries no
reward at all, so that a failure can never be averaged into a gradient.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self

import msgspec

from ludus.errors import RewardUnavailable


class Status(StrEnum):
    """The outcome of scoring, which says who is at fault."""

    OK = "ok"
    """The answer was scored. The reward is a fact about the response."""
    INVALID = "invalid"
    """The request or its gold cannot be used; retrying will not help."""
    UNAVAILABLE = "unavailable"
    """The scorer was late, lost or overloaded; retrying may help."""
    ERROR = "error"
    """The scorer has a bug."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reward with parts, or the reason why the reward is missing.

    Raises:
        ValueError: a reward on a status that is not ok, a missing or non-finite reward on a status
            that is ok, or a part, its weight or a reward of a turn that is not finite.
    """

    status: Status
    reward: float | None = None
    parts: dict[str, tuple[float, float]] = {}
    """name -> (value, weight): the parts that the reward was composed of."""
    metrics: dict[str, float] = {}
    """Numbers worth plotting that are not part of the reward; numbers that are not finite are left
    out.
    """
    detail: str = ""
    """A sentence for a person: why this reward, or why none."""
    retryable: bool = False
    turn_rewards: list[float] = []
    """How much of the reward each turn earned, one for each message of the assistant in the
    response, in order. What they do not add up to was earned by the whole response. Empty where
    nothing is known of turns.
    """

    def __post_init__(self) -> None:
        if self.status is Status.OK:
            if self.reward is None or not math.isfinite(self.reward):
                raise ValueError(f"an ok verdict needs a finite reward, got {self.reward!r}")
        elif self.reward is not None:
            raise ValueError(
                f"a failure is never a reward: status {self.status!s} with reward {self.reward!r}"
            )
        if not all(math.isfinite(number) for part in self.parts.values() for number in part):
            raise ValueError(f"the parts of a reward are finite, got {self.parts!r:.200}")
        # JSON has no NaN: a record or a reply with one could not be read again.
        if not all(map(math.isfinite, self.metrics.values())):
            finite = {name: each for name, each in self.metrics.items() if math.isfinite(each)}
            msgspec.structs.force_setattr(self, "metrics", finite)
        if self.turn_rewards and not (self.ok and all(map(math.isfinite, self.turn_rewards))):
            raise ValueError(
                f"rewards of turns belong to an ok verdict and are finite, got {self.status!s} "
                f"with {self.turn_rewards!r:.80}"
            )

    @classmethod
    def of(
        cls,
        reward: float,
        detail: str = "",
        *,
        parts: Mapping[str, tuple[float, float]] | None = None,
        metrics: Mapping[str, float] | None = None,
        turn_rewards: Sequence[float] = (),
    ) -> Self:
        """Return an ok verdict.

        >>> Verdict.of(1.0).ok
        True
        """
        try:
            number = float(reward)
        except TypeError:
            hint = "; is an await missing?" if inspect.isawaitable(reward) else ""
            raise TypeError(
                f"a reward is a number, got {type(reward).__name__}: {reward!r:.80}{hint}"
            ) from None
        return cls(
            status=Status.OK,
            reward=number,
            detail=detail,
            parts=dict(parts or {}),
            metrics=dict(metrics or {}),
            turn_rewards=list(turn_rewards),
        )

    @classmethod
    def invalid(cls, detail: str) -> Self:
        """Return a verdict without a reward: the request or the gold cannot be used."""
        return cls(status=Status.INVALID, detail=detail)

    @classmethod
    def unavailable(cls, detail: str) -> Self:
        """Return a verdict without a reward: the scorer was late, lost or overloaded."""
        return cls(status=Status.UNAVAILABLE, detail=detail, retryable=True)

    @classmethod
    def error(cls, detail: str) -> Self:
        """Return a verdict without a reward: the scorer has a bug."""
        return cls(status=Status.ERROR, detail=detail)

    @property
    def ok(self) -> bool:
        """Whether the verdict has a reward."""
        return self.status is Status.OK

    def unwrap(self) -> float:
        """Return the reward.

        Raises:
            RewardUnavailable: the verdict has no reward.
        """
        if self.reward is None:
            raise RewardUnavailable(self)
        return self.reward
