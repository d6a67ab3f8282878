"""The settings of playing and judging: the sections rollout, overlap, eval, audit and reward of a
run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError
from ludus.secret import NO_SECRET, Secret, refuse_credentials

from .run import keep_secret, not_negative, positive


@dataclass(frozen=True)
class RolloutConfig:
    """Settings of the rollouts: how many, how long, and how to sample."""

    tasks_per_step: int = 16
    """Tasks in a step; each task is a group of rollouts."""
    group_size: int = 0
    """Rollouts of each task; 0 takes the recipe's value."""
    max_tokens: int = 256
    """Largest number of sampled tokens in a turn."""
    temperature: float = 0.0
    """Sampling temperature; 0 takes the recipe's value, since greedy rollouts of a group would all
    be the same.
    """
    window: int = 0
    """Context window in tokens; 0 takes the engine's own."""
    max_turns: int = 0
    """Largest number of turns in an episode, summaries counted; 0 takes the environment's own
    limit, or 256.
    """
    episode_timeout_s: float = 600.0
    """Seconds that an episode may take; a longer one is ended, and has no reward."""
    concurrency: int = 256
    """Number of episodes that are played at the same time."""
    retries: int = 3
    """Number of times that an episode is played again after a failure that was not the policy's."""
    max_failed: float = 0.0
    """The largest share of a step's episodes that may be without a reward before the run stops. 0
    takes 0.5 where an agent plays, since a policy must not avoid bad rewards by breaking its agent,
    and 1 elsewhere.
    """

    def __post_init__(self) -> None:
        for name in ("tasks_per_step", "max_tokens", "episode_timeout_s", "concurrency"):
            positive(f"rollout.{name}", getattr(self, name))
        for name in ("group_size", "temperature", "window", "max_turns", "retries"):
            not_negative(f"rollout.{name}", getattr(self, name))
        if not 0 <= self.max_failed <= 1:
            raise ConfigError(f"rollout.max_failed is a share from 0 to 1, got {self.max_failed}")


@dataclass(frozen=True)
class AsyncConfig:
    """Settings of rollouts that are played while the learner works."""

    max_staleness: int = 0
    """How many steps generation may run ahead of the learner (AReaL's eta); 0 plays the rollouts of
    a step with the weights that the step starts from, while the learner rests.
    """
    deadline: int = 0
    """The most steps between the issue of a rollout and the step that trains it, at least
    max_staleness; 0 sets no such bound, and max_staleness bounds the average only.
    """
    deadline_s: float = 0.0
    """Seconds from the issue of a group to the end of its late rollouts; 0 is no bound besides
    rollout.episode_timeout_s.
    """
    late: Literal["wait", "mask", "drop"] = "wait"
    """What becomes of rollouts that are not finished at the deadline: with wait the learner waits
    these rollouts; with mask they are left out and the rest of their group is trained; with drop
    the whole group is left out. The last two favour short answers; bias/length in the metrics says
    by how much.
    """
    min_group: int = 2
    """The fewest finished rollouts with which a group is trained without its late ones."""
    correction: Literal["auto", "none"] = "auto"
    """Whether a recipe without a correction for stale tokens gets truncated importance weights:
    auto adds these weights where rollouts run ahead of the learner.
    """
    outage_s: float = 60.0
    """Seconds to wait for servers of the environment that cannot be reached, before the run saves a
    checkpoint and ends.
    """
    publish_timeout_s: float = 900.0
    """Seconds that the engine may take to install new weights."""
    stall_s: float = 120.0
    """Seconds without any progress after which a warning says what is waited for."""
    stall_limit_s: float = 0.0
    """Seconds without any progress after which the run saves a checkpoint and ends; 0 is never."""

    def __post_init__(self) -> None:
        for name in ("max_staleness", "deadline", "deadline_s", "outage_s", "stall_limit_s"):
            not_negative(f"overlap.{name}", getattr(self, name))
        for name in ("min_group", "publish_timeout_s", "stall_s"):
            positive(f"overlap.{name}", getattr(self, name))
        if self.deadline and self.deadline < self.max_staleness:
            raise ConfigError(
                f"overlap.deadline is {self.deadline} steps, but overlap.max_staleness = "
                f"{self.max_staleness} issues rollouts that are trained later than that in any "
                "case; lower max_staleness, or raise deadline"
            )
        if self.late == "wait" and self.deadline_s:
            raise ConfigError(
                f"overlap.deadline_s is {self.deadline_s:g}, and overlap.late = 'wait' waits "
                "beyond it: the setting would change nothing; set late to mask or drop, or bound "
                "episodes by rollout.episode_timeout_s"
            )
        if self.late != "wait" and not (self.deadline or self.deadline_s):
            raise ConfigError(
                f"overlap.late is {self.late!r}, but no rollout is ever late: set "
                "overlap.deadline (steps) or overlap.deadline_s"
            )


@dataclass(frozen=True)
class EvalConfig:
    """Settings of the evaluation on held-out tasks."""

    every: int = 0
    """Steps between evaluations; 0 evaluates only before and after the run."""
    tasks: int = 128
    """Number of held-out tasks that are played."""
    split: str = "test"
    """The split of the environment's tasks that are held out."""
    temperature: float = 0.0
    """Sampling temperature of evaluation; 0 is greedy."""
    samples: int = 1
    """Episodes of each task; more than one also measures pass@k."""
    passing: float = 1.0
    """The reward from which an episode passes, for pass@k."""
    beside: Literal["auto", "no", "own", "shared"] = "auto"
    """Whether training goes on during an evaluation. With no, training stops; own evaluates one
    version with an engine and weights of its own; shared evaluates with the engine of training,
    whose weights may change during the evaluation. auto means shared where rollouts run ahead of
    the learner (overlap.max_staleness), and no elsewhere.
    """
    keep_best: bool = True
    """Whether the checkpoint with the best mean reward is kept, as checkpoints/best: by held-out
    reward where eval.every plays held-out tasks on the way, else by the training reward of the
    three steps after it. It takes the room of one checkpoint.
    """
    stop_at: float | None = None
    """Mean reward from which the run ends early; None never ends early."""
    patience: int = 0
    """Evaluations in a row without a new best mean reward after which the run ends early; 0 never
    ends early.
    """

    def __post_init__(self) -> None:
        positive("eval.tasks", self.tasks)
        positive("eval.samples", self.samples)
        for name in ("every", "temperature", "patience"):
            not_negative(f"eval.{name}", getattr(self, name))
        for name in ("passing", "stop_at"):
            if getattr(self, name) is not None and not math.isfinite(getattr(self, name)):
                raise ConfigError(f"eval.{name} must be finite, got {getattr(self, name)}")
        if self.samples > 1 and not self.temperature:
            raise ConfigError(
                f"eval.samples is {self.samples}, but eval.temperature is 0: greedy episodes of a "
                "task are all the same; raise eval.temperature, or take one sample"
            )
        early = self.patience or self.stop_at is not None
        if early and not self.every:
            raise ConfigError(
                "eval.stop_at and eval.patience end a run at an evaluation, but eval.every is 0: "
                "none is made before the end; set eval.every"
            )


@dataclass(frozen=True)
class AuditConfig:
    """Settings of the audit during training: the detectors of `ludus audit` over its episodes."""

    every: int = 0
    """Steps between audits of a step's episodes; 0 audits none. An audit plays nothing and takes
    milliseconds for each episode. Its metrics are audit/*, which the run's findings compare with
    the reward.
    """

    def __post_init__(self) -> None:
        not_negative("audit.every", self.every)


@dataclass(frozen=True)
class RewardConfig:
    """A verifier whose verdict is part of the reward."""

    name: str
    """Name of a local verifier, or `url#name` of a served verifier."""
    weight: float = 1.0
    """The factor of the verdict in the sum with the environment's reward."""
    timeout_s: float = 60.0
    """Seconds that a verdict may take; a late one is asked for again. An episode that gets none
    has no reward.
    """
    token: Secret = NO_SECRET
    """Bearer token of the verifier's server, best given as env:NAME; empty takes the environment
    variable LUDUS_TOKEN.
    """

    def __post_init__(self) -> None:
        keep_secret(self, "token")
        refuse_credentials("reward.name", self.name)
        positive("reward.timeout_s", self.timeout_s)
        if not math.isfinite(self.weight) or not self.weight:
            raise ConfigError(f"reward.weight must be finite and not 0, got {self.weight}")
        if self.token and "#" not in self.name:
            raise ConfigError(
                f"reward {self.name!r} is a verifier of this process: reward.token would change "
                "nothing"
            )
