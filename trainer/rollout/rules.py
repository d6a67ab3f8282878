"""The rules of a sampling policy: `[[sampling.rules]]` of a recipe; see `sampling`.

A rule is asked when a group is issued, after each of its rounds, when the group has its rewards,
and after the step. What it tells shaping about a rollout is a mark in `Trajectory.asked`, so that a
rollout is judged by what was known when it was issued, also after a resume.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec
import torch
from torch import Tensor

from ludus.agent import Episode
from ludus.envs import Task

from ..algorithms import (
    aepo_temperature,
    dars_extra_rollouts,
    roc_penalties,
    roc_selection_mask,
    seele_hint_fit,
    seele_hint_share,
)
from .collect import Group
from .issues import BranchShape, ForkProbe, Growth, Hint, Issue, Lot, RolloutTerms

UNCHOSEN = "unchosen"
"""The mark of a rollout that its rule has left out of loss and baseline."""


class TaskRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run's memory of a task."""

    visits: int = 0
    """Steps that learned from the task."""
    attempts: int = 0
    """Rollouts without a hint that had a reward."""
    right: int = 0
    """Those of them with a reward above 0."""
    rate: float | None = None
    """The share of right ones at the last visit."""
    shortest: float | None = None
    """Tokens of the shortest right answer."""
    hints: int = 0
    """Rollouts that were given a hint."""
    shares: list[tuple[float, float, int]] = []
    """(share of the expert's work that was given, share right, rollouts) of the last rounds."""


@dataclass(frozen=True, slots=True)
class RuleView:
    """The task, group and memory that a rule may look at."""

    task: Task
    ordinal: int
    memory: TaskRecord
    group_size: int
    """The rollouts of a task without any rule."""
    rng: random.Random
    """Randomness that follows from the run's seed, the group's ordinal and the rule."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of a sampling policy; each hook does nothing unless a rule says otherwise."""

    gives: ClassVar[frozenset[str]] = frozenset()
    """The names of `Inputs` that the rule gives to shaping."""
    needs_expert: ClassVar[bool] = False

    def check(self, group_size: int) -> str:
        """Return the mistake in the options; empty if there is none."""
        return ""

    def roles(self) -> tuple[str, ...]:
        """Return the roles of an episode; empty for an episode of one role."""
        return ()

    def most(self, group_size: int) -> int:
        """Return the most rollouts of a group."""
        return group_size

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Return the rollouts of the first round of a group."""
        return issue

    def more(self, rounds: Sequence[Sequence[Episode]], view: RuleView) -> Sequence[Lot]:
        """Return the rollouts of a further round; empty for none."""
        return ()

    def finish(self, episodes: Sequence[Episode], view: RuleView, state: Mapping[str, Any]) -> None:
        """Mark the rollouts of a group once all rewards are known."""

    def learned(self, groups: Sequence[Group], state: dict[str, Any]) -> None:
        """Update the rule's own state after a step."""


class Dars(Rule, frozen=True):
    """More rollouts for hard tasks: after the first round `dars_extra_rollouts` of its accuracy."""

    max_rollouts: int = 32
    aim: Literal["equal_treatment", "hardness_weighted"] = "equal_treatment"
    spread: Literal["variance", "std"] = "variance"

    def check(self, group_size: int) -> str:
        """Refuse a bound that leaves nothing to add."""
        if self.max_rollouts <= group_size:
            return f"max_rollouts is {self.max_rollouts}, and the group has {group_size} anyhow"
        return ""

    def most(self, group_size: int) -> int:
        """Return `max_rollouts`."""
        return self.max_rollouts

    def more(self, rounds: Sequence[Sequence[Episode]], view: RuleView) -> Sequence[Lot]:
        """Ask for the further rollouts of a hard task, once."""
        outcomes = [right(episode) for episode in rounds[0] if scored(episode)]
        if len(rounds) > 1 or len(outcomes) < 2:
            return ()
        extra = dars_extra_rollouts(
            torch.tensor([sum(outcomes) / len(outcomes)], dtype=torch.float64),
            rollouts=len(rounds[0]),
            max_rollouts=self.max_rollouts,
            schedule=self.aim,
            spread=self.spread,
        )
        return (Lot(rollouts=int(extra)),) if int(extra) else ()


class Roc(Rule, frozen=True):
    """GRPO-RoC: play `rollouts`, train as many as the group has: of the failures any, of the
    successes those with the fewest faulty calls.
    """

    rollouts: int = 16
    least: int = 1
    """The fewest rollouts to keep of each kind that occurs."""

    def check(self, group_size: int) -> str:
        """Refuse a number that leaves nothing to choose from."""
        if self.rollouts <= group_size:
            return f"rollouts is {self.rollouts}; to choose {group_size}, it must be larger"
        return ""

    def most(self, group_size: int) -> int:
        """Return `rollouts`."""
        return max(self.rollouts, group_size)

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Play more."""
        first, *others = issue.parts
        return Issue(parts=(msgspec.structs.replace(first, rollouts=self.rollouts), *others))

    def finish(self, episodes: Sequence[Episode], view: RuleView, state: Mapping[str, Any]) -> None:
        """Choose."""
        choices = [
            episode for episode in episodes if scored(episode) and "granted" not in asked(episode)
        ]
        if len(choices) <= view.group_size:
            return

        def counts(name: str) -> Tensor:
            values = [each.trajectories[0].metrics.get(name, 0.0) for each in choices]
            return torch.tensor(values, dtype=torch.float64)

        turns = torch.tensor([float(len(each.trajectories[0].turns)) for each in choices])
        penalties = roc_penalties(
            counts("tool_calls"),
            counts("tool_errors") + counts("parse_errors"),
            torch.ones(len(choices)),  # an episode has one answer: the end that its reward is for
            turns,
            counts("parse_errors") > 0,
        )
        kept = roc_selection_mask(
            torch.tensor([reward_of(each) for each in choices]),
            penalties,
            keep=view.group_size,
            least=self.least,
            generator=torch.Generator().manual_seed(view.rng.randrange(1 << 62)),
        )
        for episode, chosen in zip(choices, kept.tolist(), strict=True):
            if not chosen:
                leave_out(episode)


class HintRule(Rule, frozen=True):
    """Give the first part of the expert's work: text in the prompt ("shown"), or steps that are
    taken in the environment before the policy begins ("played").

    With `when = "always"` every rollout of a task has the hint; with "failed" a task is played once
    more with it where no rollout of the first round was right (Guide); with "half" the group is
    played in `rounds`, each with the share at which half of the rollouts would be right, by a
    logistic fit to the task's rounds so far (SEELE).
    """

    kind: Literal["shown", "played"] = "shown"
    when: Literal["always", "failed", "half"] = "always"
    share: float = 0.5
    """The share of the expert's work; with "half" that of a task's first round."""
    rounds: int = 2
    """Rounds of a group, with "half"."""
    trained_at: Literal["hinted", "plain"] = "hinted"
    """The prompt at which the tokens are trained. "plain" is the prompt without the hint, and takes
    a recipe whose ratio is to the sampler: `ratio_to = "sampler"` or a correction.
    """
    told: str = "A solution begins like this:"

    needs_expert: ClassVar[bool] = True

    def check(self, group_size: int) -> str:
        """Refuse shares and rounds that cannot be."""
        if not 0 <= self.share <= 1:
            return f"share is a share of the expert's work in [0, 1], got {self.share}"
        if self.kind == "played" and self.trained_at == "plain":
            return 'steps that were played cannot leave the prompt: take trained_at = "hinted"'
        if self.when == "half" and not 1 <= self.rounds <= group_size:
            return f"rounds must be from 1 to the group's {group_size} rollouts, got {self.rounds}"
        return ""

    def most(self, group_size: int) -> int:
        """Return twice the group where failures are played again."""
        return 2 * group_size if self.when == "failed" else group_size

    def hint(self, share: float) -> Hint | None:
        """Return the hint of a share; None for nothing."""
        if share <= 0:
            return None
        return Hint(kind=self.kind, share=share, plain=self.trained_at == "plain", told=self.told)

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Hint the first round, unless hints wait for a failure."""
        if self.when == "failed":
            return issue
        share, count = self.share, view.group_size
        if self.when == "half":
            share = self._share(view.memory.shares)
            count = -(-view.group_size // self.rounds)
        first, *others = issue.parts
        first = Lot(
            rollouts=count if self.when == "half" else first.rollouts,
            asked=msgspec.structs.replace(first.asked, hint=self.hint(share)),
        )
        return Issue(parts=(first, *others))

    def more(self, rounds: Sequence[Sequence[Episode]], view: RuleView) -> Sequence[Lot]:
        """Ask for the next round."""
        if self.when == "always":
            return ()
        if self.when == "failed":
            outcomes = [right(episode) for episode in rounds[0] if scored(episode)]
            if len(rounds) > 1 or not outcomes or any(outcomes):
                return ()
            hinted = RolloutTerms(hint=self.hint(self.share))
            return (Lot(rollouts=view.group_size, asked=hinted),)
        left = view.group_size - sum(len(episodes) for episodes in rounds)
        if left <= 0:
            return ()
        points = [*view.memory.shares, *(point for each in rounds for point in shares_of(each))]
        count = min(left, -(-view.group_size // self.rounds))
        return (Lot(rollouts=count, asked=RolloutTerms(hint=self.hint(self._share(points)))),)

    def _share(self, points: Sequence[tuple[float, float, int]]) -> float:
        if not points:
            return self.share
        intercept, slope = seele_hint_fit(points)
        return seele_hint_share(intercept, slope)


class PoolRule(Rule, frozen=True):
    """PCL: of `factor` times as many tasks, take those whose success is nearest to 1/2. The success
    is that of the task's last visit; 1/2 where it was never played.
    """

    factor: int = 4

    def check(self, group_size: int) -> str:
        """Refuse a pool that leaves no choice."""
        return "" if self.factor > 1 else f"factor must be at least 2, got {self.factor}"


class Tempered(Rule, frozen=True):
    """AEPO: `rollouts` of each task beside its group, at a temperature that is high while the
    entropy of the group's rollouts is at or below `entropy`, and low above. Right ones are trained
    with advantage 1, others are not; none counts in a baseline.
    """

    entropy: float
    """Nats per token."""
    rollouts: int = 2
    high: float = 1.2
    low: float = 0.8

    gives: ClassVar[frozenset[str]] = frozenset({"granted"})

    def most(self, group_size: int) -> int:
        """Return the size of the group plus the extra rollouts."""
        return group_size + self.rollouts

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Add the rollouts."""
        measured = state.get("entropy", self.entropy)
        temperature = aepo_temperature(measured, target=self.entropy, high=self.high, low=self.low)
        beside = RolloutTerms(temperature=temperature, marks={"granted": 1.0})
        return Issue(parts=(*issue.parts, Lot(rollouts=self.rollouts, asked=beside)))

    def finish(self, episodes: Sequence[Episode], view: RuleView, state: Mapping[str, Any]) -> None:
        """Leave out the granted rollouts that are not right."""
        for episode in episodes:
            if "granted" in asked(episode) and not (scored(episode) and right(episode)):
                leave_out(episode)

    def learned(self, groups: Sequence[Group], state: dict[str, Any]) -> None:
        """Measure the entropy of the rollouts at the usual temperature."""
        logprobs = [
            logprob
            for group in groups
            for episode in group.episodes
            if "granted" not in asked(episode)
            for turn in episode.trajectories[0].turns
            for logprob in turn.logprobs
        ]
        if logprobs:
            # an engine's numbers differ in the last digits with what it samples beside
            state["entropy"] = round(-sum(logprobs) / len(logprobs), 4)


class TreeRule(Rule, frozen=True):
    """Trees of rollouts: `roots` of a task, each forked into `branch` at the ends of its first
    `levels` segments, within `tokens` sampled tokens a root. Forks are chosen by what was sampled
    before them alone, so that they bias no value (SPO-tree, TreePO).
    """

    branch: int = 2
    levels: int = 2
    roots: int = 2
    tokens: int = 1 << 30
    least: int = 1
    """Tokens that a child must have left to be worth a fork."""
    spread: bool = False
    """Whether forks stand at the ends of segments 1, branch^2, branch^4, ...: a gradient's noise
    grows with the number of tokens before a choice, and the best number of samples of a segment
    with the root of its noise over its cost.
    """
    cut: int = 0
    """Tokens of a segment within a turn; 0 takes turns as segments."""
    cut_below: float = 1.0
    """Only tokens that were sampled with less probability count in `cut` (SPO: 0.9)."""

    gives: ClassVar[frozenset[str]] = frozenset({"nodes", "leaves", "parents"})

    def check(self, group_size: int) -> str:
        """Refuse trees that do not branch, or have no baseline."""
        if self.branch < 2 or self.levels < 1 or self.roots < 1 or self.tokens < 1:
            return (
                "need branch >= 2, levels >= 1, roots >= 1 and tokens >= 1, got "
                f"{self.branch}, {self.levels}, {self.roots} and {self.tokens}"
            )
        if self.cut < 0 or not 0 < self.cut_below <= 1:
            return f"need cut >= 0 and 0 < cut_below <= 1, got {self.cut} and {self.cut_below}"
        return ""

    def shape(self) -> BranchShape:
        """Return the shape of a root's tree."""
        return BranchShape(
            branch=self.branch,
            levels=self.levels,
            tokens=self.tokens,
            least=self.least,
            spread=self.spread,
            cut=self.cut,
            below=self.cut_below,
        )

    def most(self, group_size: int) -> int:
        """Return the most leaves."""
        return self.roots * self.shape().leaves

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Play roots instead of rollouts."""
        first, *others = issue.parts
        terms = msgspec.structs.replace(first.asked, tree=self.shape())
        return Issue(parts=(Lot(rollouts=self.roots, asked=terms), *others))


class VineRule(TreeRule, frozen=True):
    """VinePPO and SPO-chain: `roots` rollouts are trained, and from the end of each of their first
    `levels` segments, and from the beginning, `continuations` are played for the value of the
    state. These are not trained.
    """

    levels: int = 64
    continuations: int = 9
    """K of VinePPO."""

    gives: ClassVar[frozenset[str]] = TreeRule.gives | {"continuations"}

    def check(self, group_size: int) -> str:
        """Refuse a vine without a value."""
        if self.continuations < 1:
            return f"continuations must be at least 1, got {self.continuations}"
        return super().check(group_size)

    def shape(self) -> BranchShape:
        """Return the shape of a trained rollout."""
        return msgspec.structs.replace(super().shape(), continuations=self.continuations)

    def most(self, group_size: int) -> int:
        """Return the most ways."""
        return super().most(group_size) + self.continuations

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Play the rollouts, and continuations of the beginning."""
        first, *others = super().issue(issue, view, state).parts
        plain = BranchShape(branch=2, levels=0, tokens=self.tokens, for_value=True)
        terms = msgspec.structs.replace(first.asked, tree=plain)
        return Issue(parts=(first, Lot(rollouts=self.continuations, asked=terms), *others))


class UncertainRule(TreeRule, frozen=True):
    """Forks where the policy is uncertain, by beginnings of its next answer that are thrown away:
    the entropy of their tokens (ARPO), or of what they mean (ROSE), over that before the first
    turn.
    """

    probes: int = 1
    """Beginnings sampled at a place."""
    probe_tokens: int = 16
    meaning: bool = False
    """Whether beginnings that say the same are one outcome, and their shares give the entropy."""
    base: float = 0.5
    slope: float = 0.2
    threshold: float = 0.5
    """A place forks where `base + slope * (entropy in nats - that before the first turn)` is above.
    The numbers of ARPO are for an entropy over the logarithm of the vocabulary; these are ours.
    """

    def check(self, group_size: int) -> str:
        """Refuse probes that say nothing."""
        if self.probes < 1 + self.meaning or self.probe_tokens < 1:
            return (
                "need probe_tokens >= 1, probes >= 1, and with meaning at least 2 that may differ, "
                f"got {self.probe_tokens} and {self.probes}"
            )
        return super().check(group_size)

    def shape(self) -> BranchShape:
        """Return the shape of a root's tree."""
        probe = ForkProbe(
            count=self.probes,
            tokens=self.probe_tokens,
            meaning=self.meaning,
            base=self.base,
            slope=self.slope,
            threshold=self.threshold,
        )
        return msgspec.structs.replace(super().shape(), probe=probe)


class ExpandRule(TreeRule, frozen=True):
    """Whole rollouts first, then in each of `rounds` further ways from `nodes` ends of segments:
    from any (Tree-GRPO), or from the most promising, until an end is right (DeepSearch). A search
    does not sample from the policy; `deepsearch_advantages` says what it credits.
    """

    rounds: int = 1
    nodes: int = 2
    search: bool = False
    weights: tuple[float, float, float] = (0.4, 1.0, 0.01)
    """The weights of quality, entropy and depth in the score of a search (ours)."""

    def check(self, group_size: int) -> str:
        """Refuse a tree that does not grow."""
        if self.rounds < 1 or self.nodes < 1:
            return f"need rounds >= 1 and nodes >= 1, got {self.rounds} and {self.nodes}"
        return super().check(group_size)

    def shape(self) -> BranchShape:
        """Return the shape of a root's tree."""
        growth = Growth(
            rounds=self.rounds, nodes=self.nodes, search=self.search, weights=self.weights
        )
        return msgspec.structs.replace(super().shape(), growth=growth)


class ResetRule(Rule, frozen=True):
    """Reset options of the environment, by name; a schedule makes a number rise or fall."""

    options: dict[str, Any] = {}

    def issue(self, issue: Issue, view: RuleView, state: Mapping[str, Any]) -> Issue:
        """Add the options."""
        return issue.asking(options=self.options)


# --- what rules read of a rollout -----------------------------------------------------------------


def asked(episode: Episode) -> dict[str, float]:
    """Return the numbers asked of a rollout (`Trajectory.asked`), to be read and changed."""
    return episode.trajectories[0].asked


def scored(episode: Episode) -> bool:
    """Return whether a rollout has a reward that counts."""
    first = episode.trajectories[0]
    return first.verdict.ok and not first.exclude_from_baseline


def reward_of(episode: Episode) -> float:
    """Return the reward of a rollout that has one."""
    return episode.trajectories[0].verdict.unwrap()


def right(episode: Episode) -> bool:
    """Return whether a rollout that has a reward earned more than 0."""
    return reward_of(episode) > 0


def length_of(episode: Episode) -> float:
    """Return the sampled tokens of a rollout."""
    return float(episode.trajectories[0].sampled_tokens)


def leave_out(episode: Episode) -> None:
    """Take a rollout out of loss and baseline."""
    for trajectory in episode.trajectories:
        trajectory.exclude_from_loss = trajectory.exclude_from_baseline = True
        trajectory.asked[UNCHOSEN] = 1.0


def shares_of(episodes: Sequence[Episode]) -> list[tuple[float, float, int]]:
    """Return (share, share right, rollouts) for each share of a hint among the rollouts."""
    by_share: dict[float, list[bool]] = {}
    for episode in episodes:
        if scored(episode):
            by_share.setdefault(asked(episode).get("hint", 0.0), []).append(right(episode))
    return [(share, sum(each) / len(each), len(each)) for share, each in by_share.items()]
