"""The rules of a sampling policy that are about length, and the table of all rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor

from ludus.agent import Episode
from ludus.errors import ConfigError

from ..algorithms import laser_d_level, laser_d_target, palu_budget
from ..recipes.recipe import Call
from .collect import Group
from .issues import Issue
from .rules import (
    Dars,
    ExpandRule,
    HintRule,
    PoolRule,
    ResetRule,
    Roc,
    Rule,
    RuleView,
    Tempered,
    TreeRule,
    UncertainRule,
    VineRule,
    asked,
    length_of,
    right,
    scored,
)
from .self_play import SelfPlay


class LengthTarget(Rule, frozen=True):
    """L1: a length in tokens, drawn for each task from [low, high], told to the policy and given to
    `l1_exact_rewards` or `l1_max_rewards` as `target`.
    """

    low: int = 100
    high: int = 4000
    told: str = "Think for {target} tokens."

    gives: ClassVar[frozenset[str]] = frozenset({"target"})

    def check(self, group_size: int) -> str:
        """Refuse an empty range and a text without the number."""
        if not 0 < self.low <= self.high:
            return f"need 0 < low <= high, got {self.low} and {self.high}"
        if "{target}" not in self.told:
            return f"told must have {{target}} in it, got {self.told!r}"
        return ""

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Draw the length of a task."""
        target = view.rng.randint(self.low, self.high)
        note = self.told.replace("{target}", str(target))
        return issue.asking(note=note, marks={"target": float(target)})


class LaserD(Rule, frozen=True):
    """LASER-D: the target of a group is that of its difficulty now, and the targets follow the
    lengths of right answers.
    """

    thresholds: tuple[float, ...]
    """Lengths in tokens to choose from, ascending."""
    every: int = 20
    """Steps between two estimates of the targets."""
    samples: int = 500
    """Most right answers of a difficulty that an estimate reads, the newest."""

    gives: ClassVar[frozenset[str]] = frozenset({"target"})

    def check(self, group_size: int) -> str:
        """Refuse thresholds that do not rise."""
        rises = list(self.thresholds) == sorted(set(self.thresholds))
        return "" if self.thresholds and rises else "thresholds must rise"

    def finish(self, episodes: Sequence[Episode], view: RuleView, state: Mapping[str, Any]) -> None:
        """Give the rollouts of a group the target length of its difficulty."""
        level = level_of(episodes)
        target = state.get("targets", [self.thresholds[-1]] * 3)[level]
        for episode in episodes:
            asked(episode)["target"] = float(target)

    def learned(self, groups: Sequence[Group], state: dict[str, Any]) -> None:
        """Keep the lengths of right answers, and estimate the targets every so often."""
        lengths: list[list[float]] = state.setdefault("lengths", [[], [], []])
        for group in groups:
            level = level_of(group.episodes)
            lengths[level] += [
                length_of(each) for each in group.episodes if scored(each) and right(each)
            ]
            del lengths[level][: -self.samples]
        state["steps"] = state.get("steps", 0) + 1
        if state["steps"] % self.every:
            return
        limits = torch.tensor(self.thresholds, dtype=torch.float64)
        size = max((len(group.episodes) for group in groups), default=1)
        state["targets"] = [
            laser_d_target(coverage(lengths[level], limits), limits, rollouts=size, level=level)
            if lengths[level]
            else self.thresholds[-1]
            for level in range(3)
        ]


class Palu(Rule, frozen=True):
    """PALU: the target is a quantile of the lengths of right answers once `accuracy` of a step's
    rollouts are right; `max_length` before.
    """

    accuracy: float
    quantile: float
    max_length: float

    gives: ClassVar[frozenset[str]] = frozenset({"target"})

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Give the budget of the last step."""
        return issue.asking(marks={"target": float(state.get("budget", self.max_length))})

    def learned(self, groups: Sequence[Group], state: dict[str, Any]) -> None:
        """Take the budget of this step."""
        episodes = [each for group in groups for each in group.episodes if scored(each)]
        if episodes:
            state["budget"] = palu_budget(
                torch.tensor([right(each) for each in episodes]),
                torch.tensor([length_of(each) for each in episodes]),
                target=self.accuracy,
                quantile=self.quantile,
                max_length=self.max_length,
            )


class HistoryRule(Rule, frozen=True):
    """HAPO: give the length of the task's shortest right answer to `hapo_history_rewards`."""

    gives: ClassVar[frozenset[str]] = frozenset({"shortest"})

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Give the length that the memory has."""
        shortest = view.memory.shortest
        return issue if shortest is None else issue.asking(marks={"shortest": shortest})


class Budget(Rule, frozen=True):
    """A limit of tokens a turn; a schedule makes the limit a curriculum."""

    tokens: float

    def check(self, group_size: int) -> str:
        """Refuse no tokens at all."""
        return "" if self.tokens >= 1 else f"tokens must be at least 1, got {self.tokens:g}"

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Bound the turns."""
        return issue.asking(max_tokens=max(1, round(self.tokens)))


class Interrupt(Rule, frozen=True):
    """ScaleRL's interruptions: thoughts that take a share of the turn's tokens, drawn for each task
    from [low, high], are ended by a phrase that is not trained, and the answer has the rest.
    """

    phrase: str = (
        "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>"
    )
    low: float = 0.70
    """10,000 of the 14,336 tokens of a response in ScaleRL."""
    high: float = 0.84
    """12,000 of them."""

    def check(self, group_size: int) -> str:
        """Refuse shares that leave no thoughts or no answer."""
        if not 0 < self.low <= self.high < 1 or not self.phrase:
            return f"need 0 < low <= high < 1 and a phrase, got {self.low} and {self.high}"
        return ""

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Draw the share of a task."""
        share = view.rng.uniform(self.low, self.high)
        return Issue(
            parts=tuple(
                msgspec.structs.replace(
                    lot,
                    asked=msgspec.structs.replace(lot.asked, thoughts=share, phrase=self.phrase),
                )
                for lot in issue.parts
            )
        )


def level_of(episodes: Sequence[Episode]) -> int:
    """Return LASER-D's difficulty of a group: 0 easy, 1 medium, 2 hard."""
    outcomes = [float(right(each)) for each in episodes if scored(each)]
    if not outcomes:
        return 2
    return int(
        laser_d_level(torch.tensor(outcomes), torch.zeros(len(outcomes), dtype=torch.long))[0]
    )


def coverage(lengths: Sequence[float], limits: Tensor) -> Tensor:
    """Return the share of right answers within each limit, [K]."""
    sizes = torch.tensor(lengths, dtype=torch.float64)
    return (sizes.unsqueeze(0) <= limits.unsqueeze(1)).double().mean(1)


RULES: dict[str, type[Rule]] = {
    "dars": Dars,
    "roc": Roc,
    "hint": HintRule,
    "pool": PoolRule,
    "length_target": LengthTarget,
    "laser_d": LaserD,
    "palu": Palu,
    "history": HistoryRule,
    "budget": Budget,
    "interrupt": Interrupt,
    "tempered": Tempered,
    "tree": TreeRule,
    "vine": VineRule,
    "uncertain": UncertainRule,
    "expand": ExpandRule,
    "self_play": SelfPlay,
    "reset": ResetRule,
}


def grows(calls: Iterable[Call]) -> bool:
    """Return whether a rule plays trees."""
    return any(issubclass(RULES.get(call.name, Rule), TreeRule) for call in calls)


def rule_of(call: Call, group_size: int) -> Rule:
    """Return the rule that a recipe names, with its options checked.

    Raises:
        ConfigError: there is no such rule, or its options cannot be.
    """
    kind = RULES.get(call.name)
    if kind is None:
        near = difflib.get_close_matches(call.name, RULES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(RULES)}"
        raise ConfigError(f"sampling.rules: no rule named {call.name!r}; {hint}")
    options = {"options": call.options} if kind is ResetRule else call.options
    try:
        rule = msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sampling.rules: {call.name}: {error}") from None
    if problem := rule.check(group_size):
        raise ConfigError(f"sampling.rules: {call.name}: {problem}")
    return rule


def given_by(calls: Iterable[Call]) -> frozenset[str]:
    """Return the names of `Inputs` that rules give."""
    kinds = [RULES[call.name] for call in calls if call.name in RULES]
    return frozenset(name for kind in kinds for name in kind.gives)
