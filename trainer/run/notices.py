"""Notices: warnings that the metrics of a step give to a person, and when each is shown.

Each notice is a function from the facts of a step to a sentence with the numbers and a remedy, or
None. `NoticeBoard` decides when a notice is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from ludus.metrics import LineFile

from ..config import TrainConfig
from ..recipes.conflicts import GROUP_ESTIMATORS
from ..recipes.recipe import Recipe

MOST = 0.9
"""Share from which a statement is said to hold for nearly all."""
HALF = 0.5
GAP = 0.1
"""Difference in nats per token between learner and sampler that rounding does not explain."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The facts that notices read."""

    numbers: Mapping[str, float]
    """The metrics of the step; see `summarize_step`."""
    config: TrainConfig
    recipe: Recipe
    reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reasons for which episodes have no reward, with their counts."""
    refusals: tuple[str, ...] = ()
    """Reasons for which updates were refused, with the rollouts and the files that hold them."""

    def get(self, name: str) -> float:
        """Return a metric; 0 if the step has no metric of that name."""
        return self.numbers.get(name, 0.0)

    @property
    def trained(self) -> float:
        """Number of tokens that updates were made from."""
        return self.get("update/tokens")


Notice = Callable[[StepFacts], str | None]


def refused(facts: StepFacts) -> str | None:
    """Holds if an update would have spoilt the weights."""
    if not facts.refusals:
        return None
    return (
        f"{len(facts.refusals)} update(s) were refused, and the weights kept: "
        f"{'; '.join(facts.refusals)}. After {facts.config.trainer.max_refused} in a row the run "
        "stops (trainer.max_refused)"
    )


def without_reward(facts: StepFacts) -> str | None:
    """Holds if episodes were left out because the reward is unknown."""
    lost, played = facts.get("reward/unavailable"), facts.get("episode/count")
    if not lost:
        return None
    why = "; ".join(f"{n} x {reason}" for reason, n in list(facts.reasons.items())[:3])
    return (
        f"{lost:.0f} of {played:.0f} episodes have no reward and are left out of loss and "
        f"baseline: {why}. Look at what failed; a service that is only slow or full wants a longer "
        "reward.timeout_s or fewer episodes at once (rollout.concurrency)"
    )


def verifiers_asked_again(facts: StepFacts) -> str | None:
    """Holds if verifiers were unavailable at first."""
    again = facts.get("episode/verifier_retries") * facts.get("episode/count")
    if not again:
        return None
    lost = facts.get("episode/verifier_gave_up") * facts.get("episode/count")
    return (
        f"verifiers were unavailable and asked again {again:.0f} times in "
        f"{facts.get('episode/count'):.0f} episodes; {lost:.0f} episodes are lost by it. If it "
        "goes on, give the verifier more workers, or play fewer episodes at once "
        "(rollout.concurrency)"
    )


def nothing_trained(facts: StepFacts) -> str | None:
    """Holds if no token reached the loss."""
    if facts.trained or facts.refusals:
        return None
    start = f"no token of {facts.get('episode/count'):.0f} episodes was trained on"
    if not facts.get("episode/tokens"):
        return (
            f"{start}: the policy sampled none ({_stops(facts)}). Where the window is full before "
            "the first turn, raise rollout.window or take a model with a longer context"
        )
    masked = {
        "filter": "the recipe's group filter drops every group: tasks are all too easy or all too "
        "hard for it (sampling.filter); take other tasks, or more rollouts a task "
        "(rollout.group_size)",
        "overlong": "every rollout ended by a limit, and the recipe leaves those out of the loss "
        "(algorithm.overlong): raise rollout.max_turns, rollout.max_tokens or rollout.window",
        "correction": "the recipe's corrections drop every token (algorithm.corrections): learner "
        "and sampler disagree, or a bound is too narrow",
        "excluded": "every rollout with trained tokens is excluded from the loss",
    }
    for name, why in masked.items():
        if facts.get(f"update/dropped_{name}") >= MOST:
            return f"{start}: {why}"
    return f"{start}: {_shares(facts)}"


def no_signal(facts: StepFacts) -> str | None:
    """Holds if every advantage is zero."""
    if not facts.trained or "update/signal" not in facts.numbers or facts.get("update/signal"):
        return None
    reward, groups = facts.get("reward/mean"), facts.get("group/count")
    start = "nothing was learned: every advantage is zero"
    if facts.get("group/equal") == 1.0:
        start += (
            f", since the rollouts of each of the {groups:.0f} groups earned the same "
            f"(mean reward {reward:.3f}; {_stops(facts)})"
        )
    remedy = (
        "If they all fail: easier tasks, a warm start (ludus sft), longer limits or more rollouts "
        "a task (rollout.group_size). If they all succeed: harder tasks"
    )
    return f"{start}. {remedy}"


def context_full(facts: StepFacts) -> str | None:
    """Holds if episodes end because the window is full."""
    share = facts.get("stop/context_full")
    if share < HALF:
        return None
    window = facts.config.rollout.window
    size = f"rollout.window = {window} tokens" if window else "the model's window"
    return (
        f"{share:.0%} of {facts.get('episode/count'):.0f} episodes ended context_full after "
        f"{facts.get('episode/turns'):.1f} turns: {size} is too small for them. Raise "
        "rollout.window, shorten what the environment says, or cut the context "
        "(--context.manager summarize)"
    )


def cut_turns(facts: StepFacts) -> str | None:
    """Holds if answers are cut by the token budget."""
    share = facts.get("turn/cut")
    if share < HALF:
        return None
    return (
        f"{share:.0%} of the turns were cut at rollout.max_tokens = "
        f"{facts.config.rollout.max_tokens}; a call that is cut is never run. Raise it"
    )


def unread_calls(facts: StepFacts) -> str | None:
    """Holds if tool calls cannot be parsed."""
    calls, broken = facts.get("episode/tool_calls"), facts.get("episode/parse_errors")
    if not calls or broken < HALF * calls:
        return None
    return (
        f"{broken / calls:.0%} of the tool calls could not be read as model.tool_format = "
        f"{facts.config.model.tool_format!r} (template.txt names the format in use): name the one "
        "that the model writes, or warm it up"
    )


def no_calls(facts: StepFacts) -> str | None:
    """Holds if episodes end because the policy calls no tool."""
    share = facts.get("stop/no_calls")
    if share < HALF:
        return None
    return (
        f"{share:.0%} of the episodes ended no_calls: the policy calls no tool it is offered. "
        "Look at an episode (ludus view); the model may write another model.tool_format, or need a "
        "warm start"
    )


def lone_groups(facts: StepFacts) -> str | None:
    """Holds if groups have fewer than two rewards to compare."""
    lone = facts.get("group/lone")
    compares = facts.recipe.algorithm.advantage in GROUP_ESTIMATORS
    if not compares or lone < HALF or facts.recipe.sampling.group_size < 2:
        return None
    return (
        f"{lone:.0%} of {facts.get('group/count'):.0f} groups have fewer than two rollouts with a "
        f"reward, and {facts.recipe.algorithm.advantage} compares rollouts of a task: their "
        "advantages are zero. See why the others have none"
    )


def all_alike(facts: StepFacts) -> str | None:
    """Holds if the policy no longer explores."""
    share = facts.get("group/identical")
    if share < MOST or facts.recipe.sampling.group_size < 2:
        return None
    return (
        f"in {share:.0%} of the groups all rollouts are the same, token by token: the policy has "
        "collapsed, and a group says nothing. Lower trainer.lr, raise rollout.temperature, add "
        "algorithm.entropy.coefficient, or stop here if the reward "
        f"({facts.get('reward/mean'):.3f}) is what you want"
    )


def repeated_tasks(facts: StepFacts) -> str | None:
    """Holds if a step plays a task more than once."""
    groups, tasks = facts.get("group/count"), facts.get("group/tasks")
    if not tasks or tasks >= groups:
        return None
    return (
        f"the {groups:.0f} groups of the step play {tasks:.0f} different tasks: the split "
        f"{facts.config.split!r} has no more that are not retired; take fewer tasks per step "
        "(rollout.tasks_per_step)"
    )


def clipped(facts: StepFacts) -> str | None:
    """Holds if the clip stops nearly everything that would be learned."""
    share = facts.get("update/clip_low") + facts.get("update/clip_high")
    if share < MOST:
        return None
    return (
        f"the clip stops {share:.0%} of the tokens: the policy has moved too far from the one that "
        "sampled. Lower trainer.lr or trainer.updates_per_step, or widen the recipe's bounds"
    )


def one_sided(facts: StepFacts) -> str | None:
    """Holds if the advantages of a comparison all have the same sign."""
    positive, signal = facts.get("update/positive"), facts.get("update/signal")
    compares = facts.recipe.algorithm.advantage in GROUP_ESTIMATORS
    if not compares or not signal or 0 < positive < 1:
        return None
    sign = "positive" if positive else "negative"
    return (
        f"every advantage that reached the loss is {sign}, though rollouts are compared: filters "
        f"or masks have left one side of the groups only ({_shares(facts)})"
    )


def no_gradient(facts: StepFacts) -> str | None:
    """Holds if the advantages are not zero but the gradient is."""
    if not facts.trained or not facts.get("update/signal") or facts.get("update/grad_norm"):
        return None
    if facts.refusals:
        return None
    return (
        f"the gradient is exactly zero, though {facts.get('update/signal'):.0%} of the trained "
        "tokens have an advantage: everything is clipped or weighed by zero, or the loss does not "
        "reach the weights"
    )


def no_rate(facts: StepFacts) -> str | None:
    """Holds if the learning rate is zero."""
    if not facts.trained or facts.get("update/lr") > 0:
        return None
    return (
        f"the learning rate is 0 (trainer.lr = {facts.config.trainer.lr:g}, lr_decay "
        f"{facts.config.trainer.lr_decay!r}): nothing moves"
    )


def samplers_gap(facts: StepFacts) -> str | None:
    """Holds if the engine samples from another distribution than the learner's.

    Older weights are another distribution, so where some tokens are older than the learner, those
    of its own version are looked at.
    """
    stale = bool(facts.get("staleness/max"))
    name = "fresh_sampler_gap" if stale else "old_sampler_gap"
    gap = facts.get(f"update/{name}")
    if gap < GAP:
        return None
    which = " on the tokens that its own weights have sampled" if stale else ""
    probe = facts.numbers.get("engine/probe_gap")
    probed = "" if probe is None else f" (the last probe of the server found {probe:.2g} nats)"
    return (
        f"learner and sampler differ by {gap:.3f} nats per token{which}, more than rounding does: "
        "the engine may sample other weights, another temperature or another precision "
        f"(model.dtype){probed}"
    )


def _stops(facts: StepFacts) -> str:
    ends = {
        name.removeprefix("stop/"): share
        for name, share in facts.numbers.items()
        if name.startswith("stop/")
    }
    most = max(ends, key=lambda name: ends[name], default="")
    return f"{ends[most]:.0%} of the episodes ended {most}" if most else "no episode ended"


def _shares(facts: StepFacts) -> str:
    """Describe in words what was kept from the loss."""
    shown = [
        f"{facts.get(f'update/dropped_{name}'):.0%} by {words}"
        for name, words in (
            ("filter", "the group filter"),
            ("overlong", "the overlong mask"),
            ("correction", "corrections"),
            ("excluded", "exclusion"),
        )
        if facts.get(f"update/dropped_{name}")
    ]
    return f"of the sampled tokens were left out: {', '.join(shown) or 'none'}"


NOTICES: Mapping[str, Notice] = {
    function.__name__: function
    for function in (
        refused,
        without_reward,
        verifiers_asked_again,
        nothing_trained,
        no_signal,
        context_full,
        cut_turns,
        unread_calls,
        no_calls,
        lone_groups,
        all_alike,
        repeated_tasks,
        clipped,
        one_sided,
        no_gradient,
        no_rate,
        samplers_gap,
    )
}
"""Every notice of a step by name."""


def notices_of(facts: StepFacts) -> dict[str, str]:
    """Return the notices that hold, by name."""
    said = {name: notice(facts) for name, notice in NOTICES.items()}
    return {name: text for name, text in said.items() if text is not None}


logger = logging.getLogger(__name__)

FILE = "notices.jsonl"
PREFIX = "notice/"
"""Prefix of a notice's name in the metrics of each step in which the notice holds."""


class ToldNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that is shown to a person."""

    step: int
    name: str
    count: int
    """Number of steps of the run in which the notice has held."""
    text: str


@runtime_checkable
class Listener(Protocol):
    """A watcher that shows notices."""

    def on_notice(self, notice: ToldNotice) -> None:
        """Called with a notice that a person should see."""
        ...


class NoticeBoard:
    """Shows a notice the first, third, tenth, thirtieth ... time that the notice holds, and writes
    every shown notice to a file.

    Args:
        lines: the file, with a JSON object in each line.
        watcher: receives the notices if it has `on_notice`; otherwise they are logged as warnings.
        counts: number of steps in which each notice held before, for a run that continues.
    """

    def __init__(self, lines: LineFile, watcher: object, counts: Mapping[str, int]) -> None:
        self._lines = lines
        self._watcher = watcher
        self._counts = dict(counts)

    def post(self, step: int, notices: Mapping[str, str]) -> None:
        """Count the notices of a step, and show every notice that is due."""
        for name, text in notices.items():
            count = self._counts[name] = self._counts.get(name, 0) + 1
            if is_told(count):
                again = f"in {count} steps so far: " if count > 1 else ""
                notice = ToldNotice(step=step, name=name, count=count, text=again + text)
                self._lines.append(msgspec.json.encode(notice))
                if isinstance(self._watcher, Listener):
                    self._watcher.on_notice(notice)
                else:
                    logger.warning("step %d: %s", notice.step, notice.text)


def is_told(count: int) -> bool:
    """Whether a notice that has held `count` times is shown.

    >>> [count for count in range(1, 200) if is_told(count)]
    [1, 3, 10, 30, 100]
    """
    # A count is 1 or 3 times a power of ten if only that digit is left without the zeros.
    while count % 10 == 0:
        count //= 10
    return count in (1, 3)


def counts_of(rows: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Count, from the lines of `metrics.jsonl`, the steps in which each notice held."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row:
            if name.startswith(PREFIX):
                counts[name.removeprefix(PREFIX)] = counts.get(name.removeprefix(PREFIX), 0) + 1
    return counts


def read_notices(folder: Path) -> list[ToldNotice]:
    """Read the notices of a run in order; a line that a crash cut short is left out."""
    path, notices = folder / FILE, list[ToldNotice]()
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            notices.append(msgspec.json.decode(line, type=ToldNotice))
        except msgspec.DecodeError:
            continue
    return notices
