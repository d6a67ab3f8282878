"""The sampling policy: what each task is given before a recipe makes a gradient.

    policy = SamplingPolicy(recipe.sampling.rules, group_size=8, seed=0)
    issue = policy.issue(ticket)                  # rollouts, budget, hints, temperature, options
    further = policy.more(ticket, rounds)         # a further round of the group, or None
    policy.finish(ticket, group)                  # which rollouts are trained, and what they owe
    policy.learned(groups)                        # the memory of tasks, after the step

A recipe says what a reward does to the weights, and a policy which tasks, how many rollouts, with
what hints, budgets and temperature. Its rules are `[[sampling.rules]]` of a recipe, in order:

| rule | what it does | source |
|---|---|---|
| dars | further rollouts for tasks that are hard now | DARS, arXiv 2508.13755 |
| roc | plays more than it trains: any failures, clean successes | GRPO-RoC, arXiv 2508.20722 |
| hint | the first part of the expert's work, shown or played | Guide, 2506.13923; SEELE |
| pool | of a pool of tasks, those whose success is nearest to 1/2 | PCL |
| length_target | names a length in the prompt | L1, arXiv 2503.04697 |
| laser_d | a length by difficulty, from the lengths of right answers | LASER-D, arXiv 2505.15612 |
| palu | a quantile of the lengths of right answers, once enough are right | PALU |
| history | the task's shortest right answer so far | HAPO, arXiv 2505.11225 |
| budget | tokens a turn, fixed or by a schedule | Train long, think short, arXiv 2508.08940 |
| interrupt | a forced phrase ends long thoughts | ScaleRL, arXiv 2510.13786 |
| tempered | rollouts at a temperature that keeps the entropy, beside the group | AEPO |
| tree | forks at the ends of turns, or within | SPO-tree, 2505.23564; TreePO, 2508.17445 |
| vine | continuations for the value of states | VinePPO, 2410.01679; SPO-chain, 2505.23564 |
| uncertain | forks where the policy is uncertain | ARPO, 2507.19849; ROSE |
| expand | ways from places of whole rollouts | Tree-GRPO, 2509.21240; DeepSearch, 2509.25454 |
| self_play | questions that the policy asks itself, a role each | arXiv 2510.18821 |
| reset | reset options of the environment, such as noise | ZeroSearch, arXiv 2505.04588 |

Memory is updated after a step, from the groups that were learned from, so that no rollout is judged
by itself. It is part of a checkpoint. A ticket carries what was issued, so that a group that is
played again after a resume is the same group.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import torch

from ludus.agent import Episode, TokenPolicy
from ludus.envs import Task
from ludus.errors import ConfigError

from ..algorithms import hapo_history_update, pcl_mask
from ..config import TrainConfig
from ..ranks.group import place_of
from ..recipes.recipe import Call, Recipe
from ..settings.parts import refuse_roles
from .collect import Group
from .issues import Issue, Lot, Ticket
from .length_rules import Interrupt, grows, rule_of
from .rules import (
    PoolRule,
    RuleView,
    TaskRecord,
    TreeRule,
    asked,
    length_of,
    right,
    scored,
    shares_of,
)
from .tasks import Tasks


class SamplingPolicy:
    """Decides on the rollouts of each task, and keeps the memory of tasks.

    Args:
        calls: the rules of the recipe.
        group_size: the rollouts of a task without any rule.
        seed: the seed of the run.

    Raises:
        ConfigError: a rule cannot be made.
    """

    def __init__(self, calls: Sequence[Call], *, group_size: int, seed: int) -> None:
        self.group_size, self._seed = group_size, seed
        self.memory: dict[str, TaskRecord] = {}
        self._states: dict[str, dict[str, Any]] = {call.name: {} for call in calls}
        self.adopt(calls)
        trees = {name for name, rule in self.rules.items() if isinstance(rule, TreeRule)}
        alone = trees | ({"self_play"} & set(self._states))
        deciding = alone | (set(self._states) & {"hint", "dars", "roc", "tempered"})
        if alone and len(deciding) > 1:
            raise ConfigError(
                f"sampling.rules: {' and '.join(sorted(deciding))} all decide about the rollouts "
                "of a group; leave one of them"
            )
        if len(self._states) < len(calls):
            raise ConfigError("sampling.rules: each rule stands once")

    def adopt(self, calls: Sequence[Call]) -> None:
        """Take the options of the next step, which a schedule has moved."""
        self.rules = {call.name: rule_of(call, self.group_size) for call in calls}

    @property
    def most(self) -> int:
        """The most rollouts of a group: the distance of two groups' ordinals."""
        extra = sum(rule.most(self.group_size) - self.group_size for rule in self.rules.values())
        return self.group_size + extra

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of an episode; empty for an episode of one role."""
        return tuple(role for rule in self.rules.values() for role in rule.roles())

    @property
    def needs_expert(self) -> bool:
        """Whether a rule asks for the work of the environment's expert."""
        return any(rule.needs_expert for rule in self.rules.values())

    def issue(self, ticket: Ticket) -> Issue:
        """Return the rollouts of the first round of a ticket's group."""
        issue = Issue(parts=(Lot(rollouts=self.group_size),))
        for name, rule in self.rules.items():
            issue = rule.issue(issue, self._view(ticket, name), self._states[name])
        return issue

    def more(self, ticket: Ticket, rounds: Sequence[Sequence[Episode]]) -> Issue | None:
        """Return a further round of a group, or None; the first rule that wants one decides. The
        terms of the first round hold for it too, except for hints and roles.
        """
        played = sum(len(episodes) for episodes in rounds)
        for name, rule in self.rules.items():
            lots = rule.more(rounds, self._view(ticket, name))
            if lots and played + sum(lot.rollouts for lot in lots) <= self.most:
                assert ticket.issue is not None
                common = ticket.issue.parts[0].asked
                return Issue(
                    parts=tuple(
                        msgspec.structs.replace(
                            lot,
                            asked=msgspec.structs.replace(
                                common,
                                hint=lot.asked.hint,
                                role=lot.asked.role or common.role,
                                about=lot.asked.about,
                                options={**common.options, **lot.asked.options},
                            ),
                        )
                        for lot in lots
                    )
                )
        return None

    def finish(self, ticket: Ticket, episodes: Sequence[Episode]) -> None:
        """Mark the rollouts of a group once all rewards are known."""
        for name, rule in self.rules.items():
            rule.finish(episodes, self._view(ticket, name), self._states[name])

    def learned(self, groups: Sequence[Group]) -> None:
        """Remember the groups of a step."""
        for group in groups:
            memory = self.memory.setdefault(group.task.id, TaskRecord())
            known = [
                each for each in group.episodes if scored(each) and "granted" not in asked(each)
            ]
            plain = [each for each in known if not asked(each).get("hint")]
            memory.visits += 1
            memory.hints += len(known) - len(plain)
            memory.shares = [*memory.shares, *shares_of(known)][-MOST_SHARES:]
            if plain:
                memory.attempts += len(plain)
                memory.right += sum(right(each) for each in plain)
                memory.rate = sum(right(each) for each in plain) / len(plain)
                shortest = hapo_history_update(
                    math.nan if memory.shortest is None else memory.shortest,
                    torch.tensor([right(each) for each in plain]),
                    torch.tensor([length_of(each) for each in plain], dtype=torch.float64),
                )
                memory.shortest = None if math.isnan(shortest) else shortest
        for name, rule in self.rules.items():
            rule.learned(groups, self._states[name])

    def numbers(self) -> dict[str, float]:
        """Return how much is remembered, for the metrics of a step: `sampling/*`."""
        known = self.memory.values()
        rates = [memory.rate for memory in known if memory.rate is not None]
        means = {"sampling/rate": sum(rates) / len(rates)} if rates else {}
        states = {
            f"sampling/{name}/{key}": float(value)
            for name, state in self._states.items()
            for key, value in state.items()
            if isinstance(value, (int, float))
        }
        return {
            "sampling/tasks": float(len(self.memory)),
            "sampling/hinted": float(sum(memory.hints for memory in known)),
            **means,
            **states,
        }

    def state(self) -> dict[str, Any]:
        """Return the memory for a checkpoint, in plain lists."""
        return {
            "memory": {task: msgspec.to_builtins(each) for task, each in self.memory.items()},
            "states": msgspec.to_builtins(self._states),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept; a new rule begins afresh."""
        self.memory = {
            task: msgspec.convert(each, TaskRecord) for task, each in state["memory"].items()
        }
        self._states |= {
            name: dict(each) for name, each in state["states"].items() if name in self._states
        }

    def _view(self, ticket: Ticket, rule: str) -> RuleView:
        memory = self.memory.get(ticket.task.id) or TaskRecord()
        rng = random.Random(f"sampling/{self._seed}/{ticket.ordinal}/{rule}")
        return RuleView(ticket.task, ticket.ordinal, memory, self.group_size, rng)


MOST_SHARES = 32
"""Points that a fit of hints reads, the newest."""


class ChosenTasks:
    """Takes more tasks than are asked for, and keeps those that the rule `pool` prefers; see
    `Tasks`.
    """

    def __init__(self, tasks: Tasks, policy: SamplingPolicy) -> None:
        self.tasks, self.policy = tasks, policy

    async def take(self, count: int) -> list[Task]:
        """Return `count` tasks of the pool, in the order of taking."""
        rule = self.policy.rules["pool"]
        assert isinstance(rule, PoolRule)
        pool = await self.tasks.take(count * rule.factor)
        known = [self.policy.memory.get(task.id) or TaskRecord() for task in pool]
        rates = [0.5 if memory.rate is None else memory.rate for memory in known]
        kept = pcl_mask(torch.tensor(rates, dtype=torch.float64), keep=count).tolist()
        return [task for task, chosen in zip(pool, kept, strict=True) if chosen]

    def retire(self, tasks: Iterable[str]) -> None:
        """Stop playing the tasks with these ids."""
        self.tasks.retire(tasks)

    def state(self) -> dict[str, Any]:
        """Return the position for a checkpoint."""
        return self.tasks.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint has kept."""
        self.tasks.restore(state)


def refuse_asking(config: TrainConfig, recipe: Recipe) -> None:
    """Refuse a sampling policy that cannot be played, before anything is opened.

    Raises:
        ConfigError: with what does not go together, and what to take instead.
    """
    sampling = recipe.sampling
    policy = SamplingPolicy(sampling.rules, group_size=sampling.group_size, seed=config.seed)
    refuse_roles(config.role, policy.roles)
    if sampling.vocabulary is not None:
        refuse_masking(config)
    if policy.roles and sampling.tracker is not None:
        raise ConfigError(
            f"recipe {recipe.name!r} tracks the success of each task, and self_play plays a "
            "task in two roles, whose rewards are not alike: take another recipe"
        )
    if sampling.rules and config.agent:
        raise ConfigError(
            "sampling.rules decide what the loop of ludus asks a policy for, and agent = "
            f"{config.agent!r} plays instead: leave out one of them"
        )
    trees = grows(sampling.rules)
    if trees and (config.context.manager != "none" or config.overlap.late != "wait"):
        raise ConfigError(
            "sampling.rules: a tree forks contexts and waits for every leaf: it takes "
            "context.manager = 'none' and overlap.late = 'wait'"
        )
    if trees and any(call.name == "interrupt" for call in sampling.rules):
        raise ConfigError(
            "sampling.rules: interrupt and a tree both cut turns in parts: leave out one of them"
        )
    if (
        any(call.name == "interrupt" for call in sampling.rules)
        and config.context.manager != "none"
    ):
        raise ConfigError(
            "sampling.rules: interrupt ends a turn in two, and context.manager = "
            f"{config.context.manager!r} cuts windows between turns: take 'none'"
        )
    plain = any(call.options.get("trained_at") == "plain" for call in sampling.rules)
    if plain and config.context.manager != "none":
        raise ConfigError(
            'sampling.rules: hint: trained_at = "plain" takes the hint out of one prompt, and '
            f"context.manager = {config.context.manager!r} writes further ones"
        )
    corrects = recipe.algorithm.ratio_to == "sampler" or recipe.algorithm.corrections.weights
    if plain and not corrects:
        raise ConfigError(
            'sampling.rules: hint: trained_at = "plain" trains tokens that another prompt has '
            f"sampled, and recipe {recipe.name!r} does not correct for it: set "
            'algorithm.ratio_to = "sampler", or algorithm.corrections.weights'
        )


def refuse_masking(config: TrainConfig) -> None:
    """Refuse settings with which rollouts are not sampled by the mask that the learner computes.

    Raises:
        ConfigError: with the settings, and what to set.
    """
    place = place_of()
    wrong = {
        f"engine = {config.engine!r}": config.engine != "local",
        "local.engines": bool(config.local.engines),
        "cluster.engines": bool(config.cluster.engines),
        "learner": bool(config.learner),
        "several ranks": place is not None and place.world > 1,
        "trainer.lora.rank": bool(config.trainer.lora.rank),
        "overlap.max_staleness": bool(config.overlap.max_staleness),
        f"eval.beside = {config.eval.beside!r}": config.eval.beside in ("own", "shared"),
    }
    if given := [name for name, used in wrong.items() if used]:
        raise ConfigError(
            "sampling.vocabulary masks by a copy of the policy, which the learner and the engine "
            f"of its process share between steps, and {', '.join(given)} would sample without it, "
            "or by another one: leave out one of them"
        )


def idle_phrase(policy: TokenPolicy, sampling: SamplingPolicy) -> str:
    """Return a note for the user where a forced phrase is too long to end any thoughts; else
    nothing.
    """
    rule = sampling.rules.get("interrupt")
    if not isinstance(rule, Interrupt):
        return ""
    asked = policy.asking(thoughts=rule.low, phrase=rule.phrase)
    if asked.interruption.fitting(policy.sampling.max_tokens):
        return ""
    return (
        f"the phrase of the rule interrupt takes {len(asked.interruption.ids)} tokens, and "
        f"rollout.max_tokens = {policy.sampling.max_tokens} has no room for it: no thoughts are "
        "interrupted"
    )
