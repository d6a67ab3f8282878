"""Numbers of a recipe that move: by the step, by a metric, or as the multiplier of a bound.

A file writes a schedule in the place of the number:

    [algorithm.kl]
    place = "loss"
    coefficient = { schedule = "linear", start = 0.1, end = 0.0, steps = 200 }

    [[shaping]]
    name = "kimi_length_rewards"
    weight = { schedule = "dual", metric = "reward/mean", at_most = 0.8, rate = 0.05 }

The second is dual ascent: the weight of the length reward grows while the mean reward is above 0.8,
and shrinks, to 0 at least, while it is below. With `at_least` it is the other way round.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ludus.errors import ConfigError

MOVING = ("algorithm.", "shaping.", "sampling.filter_options.", "sampling.rules.")
"""Beginnings of the paths of numbers that may move; `sampling.drop_solved_at` may, too."""
PATIENCE = 10
"""Steps in a row at the end of a multiplier's range after which its bound cannot be met."""


class _Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Linear(_Schedule, frozen=True, tag_field="schedule", tag="linear"):
    """From `start` to `end` in `steps` steps, and `end` from then on.

    >>> Linear(start=1.0, end=0.0, steps=4).at(1)
    0.75
    """

    start: float
    end: float
    steps: int
    after: int = 0
    """Steps before the number begins to move."""

    def at(self, step: int) -> float:
        """Return the value after `step` steps."""
        return self.start + (self.end - self.start) * self.share(step)

    def share(self, step: int) -> float:
        """Return the share of the way that is behind, in [0, 1]."""
        return min(1.0, max(0, step - self.after) / max(self.steps, 1))


class Cosine(Linear, frozen=True, tag_field="schedule", tag="cosine"):
    """Like `Linear`, along half a wave: slow, fast, slow."""

    def at(self, step: int) -> float:
        """Return the value after `step` steps."""
        wave = (1 - math.cos(math.pi * self.share(step))) / 2
        return self.start + (self.end - self.start) * wave


class Exponential(Linear, frozen=True, tag_field="schedule", tag="exponential"):
    """ZeroSearch's rise: `start + (base^(i/m) - 1) / (base - 1) (end - start)`, slow at first.

    Source: arXiv 2505.04588, equation 3, base 4.

    >>> Exponential(start=0.0, end=0.75, steps=2).at(1)
    0.25
    """

    base: float = 4.0

    def at(self, step: int) -> float:
        """Return the value after `step` steps."""
        way = (self.base ** self.share(step) - 1) / (self.base - 1)
        return self.start + (self.end - self.start) * way


class Stairs(_Schedule, frozen=True, tag_field="schedule", tag="stairs"):
    """A factor `gamma` every `every` steps, not below `least`: the curriculum of Train long, think
    short (arXiv 2508.08940), as `curriculum_budget` has it.
    """

    start: float
    gamma: float
    every: int
    least: float = 1.0

    def at(self, step: int) -> float:
        """Return the value after `step` steps."""
        from ..algorithms import curriculum_budget  # torch, which a list of recipes needs not

        return curriculum_budget(
            step, start=self.start, gamma=self.gamma, every=self.every, least=self.least
        )


class Follow(_Schedule, frozen=True, tag_field="schedule", tag="follow"):
    """A metric of the step before, through a line of points (metric, value) in rising order."""

    metric: str
    points: tuple[tuple[float, float], ...]
    start: float
    """The value before the metric was measured."""

    def moved(self, value: float, measured: float) -> float:
        """Return the next value, which for a metric outside of the points is that of the end."""
        (first, low), *later = self.points
        if measured <= first:
            return low
        for right, high in later:
            if measured <= right:
                return low + (high - low) * (measured - first) / (right - first)
            first, low = right, high
        return low


class Dual(_Schedule, frozen=True, tag_field="schedule", tag="dual"):
    """The multiplier of `metric <= at_most` (or `metric >= at_least`) by dual ascent:
    `clip(lambda + rate (metric - at_most), least, most)`.

    R2VPO's multiplier is this with `update/ratio_variance`; a KL controller with `update/kl`.

    >>> Dual(metric="update/kl", at_most=0.1, rate=2.0).moved(1.0, 0.3)
    1.4
    """

    metric: str
    rate: float
    at_most: float | None = None
    at_least: float | None = None
    start: float = 0.0
    least: float = 0.0
    most: float = 1e3

    def excess(self, measured: float) -> float:
        """Return by how much the bound is broken; negative within the bound."""
        if self.at_most is not None:
            return measured - self.at_most
        assert self.at_least is not None, "refused by `take_schedules`"
        return self.at_least - measured

    def moved(self, value: float, measured: float) -> float:
        """Return the next value."""
        return min(self.most, max(self.least, value + self.rate * self.excess(measured)))


class AdaptiveKL(_Schedule, frozen=True, tag_field="schedule", tag="adaptive_kl"):
    """The coefficient of a KL term by the controller of Ziegler et al.; see
    `adaptive_kl_coefficient`.
    """

    target: float
    horizon: float
    metric: str = "update/kl"
    start: float = 0.2
    updates: float = 1.0
    """By how much a step counts, in the units of `horizon`."""

    def moved(self, value: float, measured: float) -> float:
        """Return the next value."""
        from ..algorithms import adaptive_kl_coefficient

        return adaptive_kl_coefficient(
            value, measured, target=self.target, horizon=self.horizon, steps=self.updates
        )


Timed = Linear | Cosine | Exponential | Stairs
Moved = Follow | Dual | AdaptiveKL
Schedule = Timed | Moved
_SCHEDULE: Any = Schedule


def take_schedules(
    table: Mapping[str, object], recipe: str
) -> tuple[dict[str, object], dict[str, Schedule]]:
    """Return a recipe's table with first values in the place of schedules, and the schedules by
    path.

    Raises:
        ConfigError: a schedule cannot be read, or stands where no number may move.
    """
    schedules: dict[str, Schedule] = {}

    def taken(value: object, path: str) -> object:
        if isinstance(value, Mapping) and "schedule" in value:
            schedule = schedules[path] = _read(value, f"recipe {recipe!r}: {path}")
            if path != "sampling.drop_solved_at" and not path.startswith(MOVING):
                raise ConfigError(
                    f"recipe {recipe!r}: {path} cannot move during a run; numbers below "
                    f"{', '.join(MOVING)} can"
                )
            return first_value(schedule)
        if isinstance(value, Mapping):
            return {name: taken(inner, f"{path}.{name}") for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [taken(inner, f"{path}.{place}") for place, inner in enumerate(value)]
        return value

    known = table.get("schedules", {})  # of a recipe that was written out with its first values
    plain = {name: taken(value, name) for name, value in table.items() if name != "schedules"}
    return {**plain, **({"schedules": known} if known else {})}, schedules


def first_value(schedule: Schedule) -> float:
    """Return the value of a schedule at the first step."""
    return schedule.at(0) if isinstance(schedule, Timed) else schedule.start


def _read(value: Mapping[str, object], where: str) -> Schedule:
    try:
        schedule: Schedule = msgspec.convert(dict(value), _SCHEDULE)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    if problem := _not_finite(schedule) or _problem(schedule):
        raise ConfigError(f"{where}: {problem}")
    return schedule


def _problem(schedule: Schedule) -> str:
    """Return why no run can follow a schedule of finite numbers; empty if a run can."""
    match schedule:
        case Dual():
            if (schedule.at_most is None) is (schedule.at_least is None):
                return "a bound is either at_most or at_least"
            if not schedule.least <= schedule.start <= schedule.most:
                return f"start = {schedule.start:g} is outside of [least, most]"
            if not schedule.rate > 0:
                return f"rate must be positive, got {schedule.rate:g}"
        case Follow(points=points):
            places = [place for place, _ in points]
            if not places or places != sorted(set(places)):
                return "points must be pairs (metric, value) in rising order of the metric"
        case Linear(steps=steps, after=after) if steps < 1 or after < 0:
            return f"steps must be at least 1 and after at least 0, got {steps} and {after}"
        case Exponential(base=base) if not (base > 0 and base != 1):
            return f"base must be positive and other than 1, got {base:g}"
        case AdaptiveKL(target=target, horizon=horizon) if not (target > 0 and horizon > 0):
            return f"target and horizon must be positive, got {target:g} and {horizon:g}"
        case AdaptiveKL(updates=updates, horizon=horizon) if not 0 < 0.2 * updates < horizon:
            return (
                f"updates must be positive and less than five times the horizon, or a step could "
                f"turn the sign of the coefficient; got {updates:g} and {horizon:g}"
            )
        case AdaptiveKL(start=start) if not start > 0:
            return f"start must be positive, since it is only multiplied, got {start:g}"
        case Stairs(every=every, gamma=gamma) if every < 1 or not gamma > 0:
            return "every must be at least 1 and gamma positive"
        case Stairs(gamma=gamma) if gamma > 1:
            return f"gamma = {gamma:g} rises without end; take linear or exponential to an end"
        case Stairs(start=start, least=least) if start < least:
            return f"start = {start:g} is below least = {least:g}"
        case _:
            pass
    return ""


def _not_finite(schedule: Schedule) -> str:
    """Return the problem of a number that TOML can write and no run can follow; empty if none."""
    for name in schedule.__struct_fields__:
        value = getattr(schedule, name)
        if name == "most" and value == math.inf:  # a multiplier without an upper end
            continue
        numbers = [number for pair in value for number in pair] if name == "points" else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            return f"{name} must be finite, got {value}"
    return ""


class Numbers:
    """The numbers of a run that move, with their state.

    Args:
        schedules: those of the recipe.
        step: the steps that are done.
    """

    def __init__(self, schedules: Mapping[str, Schedule], *, step: int = 0) -> None:
        self.schedules = dict(schedules)
        self._moved = {
            path: first_value(schedule)
            for path, schedule in schedules.items()
            if not isinstance(schedule, Timed)
        }
        self._at_end: dict[str, int] = {}
        """Steps in a row that a multiplier stood at the end of its range with its bound broken."""
        self._seen: set[str] = set()
        self.step = step

    @property
    def values(self) -> dict[str, float]:
        """The values for the next step, by path."""
        timed = {
            path: schedule.at(self.step)
            for path, schedule in self.schedules.items()
            if isinstance(schedule, Timed)
        }
        return timed | self._moved

    def learned(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Move the numbers after a step, and return notes for a person, a line each.

        A metric that a step has not measured, such as a held-out score between evaluations, or
        that came out infinite or as no number, leaves its number where it is.

        Args:
            step: the steps that are done.
            metrics: the numbers of the step.

        Raises:
            ConfigError: no step so far has measured a metric that a schedule reads.
        """
        self.step = step
        notes: list[str] = []
        for path, schedule in self.schedules.items():
            if isinstance(schedule, Timed):
                continue
            measured = metrics.get(schedule.metric)
            if measured is None:
                self._refuse_unknown(path, schedule.metric, metrics)
                continue
            self._seen.add(schedule.metric)
            if not math.isfinite(measured):
                continue
            self._moved[path] = schedule.moved(self._moved[path], measured)
            if isinstance(schedule, Dual):
                notes += self._unmet(path, schedule, measured)
        return notes

    def _refuse_unknown(self, path: str, metric: str, metrics: Mapping[str, float]) -> None:
        if metric in self._seen or metric.startswith("eval/") or not metrics.get("update/updates"):
            return
        near = difflib.get_close_matches(metric, metrics, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else " (metrics.jsonl has the names)"
        raise ConfigError(f"{path} follows {metric!r}, which no step measures{hint}")

    def _unmet(self, path: str, schedule: Dual, measured: float) -> Sequence[str]:
        stands = self._moved[path] >= schedule.most and schedule.excess(measured) > 0
        count = self._at_end[path] = self._at_end.get(path, 0) + 1 if stands else 0
        if count != PATIENCE:
            return []
        bound, sign = (
            (schedule.at_least, ">=") if schedule.at_most is None else (schedule.at_most, "<=")
        )
        return [
            f"the bound {schedule.metric} {sign} {bound:g} is not met although {path} stands at "
            f"its most, {schedule.most:g}, for {count} steps: the last measured {measured:.4g}; "
            "loosen the bound, or raise most"
        ]

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "moved": dict(self._moved),
            "at_end": dict(self._at_end),
            "seen": sorted(self._seen),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept; new numbers begin afresh."""
        moved = state["moved"]
        self._moved |= {path: moved[path] for path in self._moved if path in moved}
        self._at_end = dict(state["at_end"])
        # A state of an older version does not say which metrics were measured.
        moving = (each for each in self.schedules.values() if not isinstance(each, Timed))
        self._seen = set(state.get("seen", [schedule.metric for schedule in moving]))
