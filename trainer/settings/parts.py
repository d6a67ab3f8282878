"""The settings of what a run is made of besides one environment: several of them, and stages."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.secret import NO_SECRET, Secret, refuse_credentials

from .run import keep_secret, not_negative, positive

STAGE_KINDS = {
    "rl": "data min_reward batch_size",
    "sft": "recipe sampling tasks_per_step group_size max_tokens",
    "play": "data min_reward batch_size tokens until lr",
}
"""What a stage may do, with the fields that such a stage does not read."""


@dataclass(frozen=True)
class EnvironmentConfig:
    """One of several environments of a run, with metrics, baselines and evaluation of its own."""

    env: str
    """Environment id, with constructor arguments as a query."""
    name: str = ""
    """The name in metrics and task ids; empty is the last part of the id: arithmetic-v0."""
    weight: float = 1.0
    """The share of the run's tasks, relative to the other environments."""
    env_url: str = ""
    """Address of a ludus server with the environment; empty plays in this process."""
    env_token: Secret = NO_SECRET
    """Bearer token of that server, best given as env:NAME."""

    def __post_init__(self) -> None:
        keep_secret(self, "env_token")
        refuse_credentials("environment.env", self.env)
        refuse_credentials("environment.env_url", self.env_url)
        positive("environment.weight", self.weight)
        if not self.env:
            raise ConfigError("environment.env is empty; name an environment (ludus list)")
        if "::" in self.title or "/" in self.title:
            raise ConfigError(f"environment.name is {self.title!r}; leave out '/' and '::'")

    @property
    def title(self) -> str:
        """The name in metrics and task ids."""
        return self.name or self.env.partition("?")[0].rpartition("/")[2]


@dataclass(frozen=True)
class RoleConfig:
    """A role of episodes with several roles, and who plays the role."""

    name: str
    """The role, as the sampling policy calls it: proposer."""
    model: str = ""
    """Folder of the weights that play the role, which do not learn unless `learns` says so; empty
    is the run's own policy, which learns from the role.
    """
    learns: bool = False
    """Whether a second policy plays the role and learns from it alone. It begins as `model`, or as
    the run's own begins.
    """

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("role.name is empty; name a role of the sampling policy")


def refuse_roles(given: Sequence[RoleConfig], played: Sequence[str]) -> None:
    """Refuse roles that nobody plays, and policies for no role.

    Args:
        given: the roles of the settings; without any, the run's policy plays all.
        played: the roles of the sampling policy.

    Raises:
        ConfigError: with the role.
    """
    refuse_doubles("role", [each.name for each in given])
    names = [each.name for each in given]
    for name in names:
        if name not in played:
            there = (
                f"it has {', '.join(played)}" if played else "it has none (--sampling self_play)"
            )
            raise ConfigError(f"role {name!r} is none of the sampling policy: {there}")
    for name in played:
        if given and name not in names:
            raise ConfigError(
                f"role {name!r} has no policy: add [[role]] with name = {name!r}, without model if "
                "the run's own policy plays it"
            )
    if given and all(each.model or each.learns for each in given):
        raise ConfigError(
            "every role has a model of its own, and the run's own policy plays none: leave out "
            "role.model and role.learns of one of them"
        )


@dataclass(frozen=True)
class StageConfig:
    """A stage of a run; each begins with the weights of the one before, and with a fresh
    optimizer. What a stage leaves out is the run's.
    """

    name: str
    steps: int = 0
    """Steps of this stage."""
    kind: str = "rl"
    """rl learns from rewards; sft from what the environment's expert does, or from `data`; play
    learns nothing, and keeps every episode that the policy plays for a later stage. It plays all
    its tasks, whatever the run's `tokens` have left for it.
    """
    data: str = ""
    """What sft learns from: the name of an earlier stage, whose kept episodes it is, or what `ludus
    sft --data` takes. Empty is the expert.
    """
    min_reward: float | None = None
    """The least reward of an episode of `data`: with 1 this is rejection sampling, and after
    several stages that play, expert iteration.
    """
    env: str = ""
    env_url: str = ""
    split: str = ""
    recipe: str = ""
    sampling: str = ""
    lr: float = 0.0
    """The learning rate; 0 is trainer.lr."""
    tasks_per_step: int = 0
    group_size: int = 0
    max_tokens: int = 0
    tokens: int = 0
    """Tokens after which the stage ends; 0 takes what the run's `tokens` leave."""
    batch_size: int = 64
    """Demonstrations of an update, for sft."""
    until: float | None = None
    """Ends the stage early: at this held-out reward (eval.stop_at, with eval.every) for rl, below
    this mean loss in nats per token (stop_loss) for sft; None never does.
    """

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ConfigError(f"stage.name is {self.name!r}; give each stage a name without '/'")
        if self.kind not in STAGE_KINDS:
            near = difflib.get_close_matches(self.kind, STAGE_KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"take {' or '.join(STAGE_KINDS)}"
            raise ConfigError(f"stage {self.name!r}: kind is {self.kind!r}; {hint}")
        if self.steps < 1:
            raise ConfigError(
                f"stage {self.name!r} has no end: set its steps (until only ends a stage early)"
            )
        for name in ("lr", "tasks_per_step", "group_size", "max_tokens", "tokens"):
            not_negative(f"stage.{name}", getattr(self, name))
        positive("stage.batch_size", self.batch_size)
        unread = f"{STAGE_KINDS[self.kind]} {'env env_url' if self.data else ''}"
        for name in unread.split():
            if getattr(self, name) != getattr(StageConfig, name):
                kind = f"{self.kind}{' with data' if self.kind == 'sft' and self.data else ''}"
                raise ConfigError(
                    f"stage {self.name!r}: {name} would change nothing in a stage of kind {kind}; "
                    "leave it out"
                )
        if self.min_reward is not None and not (self.data and math.isfinite(self.min_reward)):
            raise ConfigError(
                f"stage {self.name!r}: min_reward is {self.min_reward} and chooses episodes of "
                f"data, which is {self.data!r}"
            )
        if self.until is not None and not math.isfinite(self.until):
            raise ConfigError(f"stage {self.name!r}: until must be finite, got {self.until}")


def refuse_doubles(kind: str, names: Sequence[str]) -> None:
    """Refuse names that stand twice.

    Raises:
        ConfigError: with the first such name.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two {kind}s are named {name!r}; give one of them another name")
