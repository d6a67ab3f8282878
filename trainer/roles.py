"""The policies of roles that the run's own policy does not play: frozen or learning policies.

A role that learns has a learner, an optimizer and an engine of its own, with the recipe and the
settings of the run. Only its own learner is given its rollouts. Each checkpoint keeps its model in
the folder `roles/NAME`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ludus.agent import TokenPolicy
from ludus.errors import ConfigError

from .config import LoraConfig, TrainConfig
from .engines.local import LocalEngine
from .learning.policy_model import load_policy
from .learning.update import Updater
from .models.checkpoint import load_state
from .models.devices import DTYPES, pick_device
from .models.loading import load_tokenizer
from .models.tiny import find_model
from .open_engine import EngineStart, engine_limits, local_engine
from .open_learner import open_learner, open_updater, reading_options
from .ranks.group import place_of
from .ranks.launch import restore_learner
from .recipes.algorithm import Algorithm
from .recipes.recipe import Recipe
from .recipes.resolution import UpdatePlan
from .rollout.collect import Group
from .run.folder import RunFolder
from .settings.parts import RoleConfig

FOLDER = "roles"
"""Folder of the roles' models inside a checkpoint."""


@dataclass(frozen=True)
class RolePolicies:
    """Who plays the roles that the run's own policy does not play."""

    playing: Mapping[str, TokenPolicy] = field(default_factory=dict[str, TokenPolicy])
    """The policy of each such role."""
    updaters: Mapping[str, Updater] = field(default_factory=dict[str, Updater])
    """The updater of each role that learns by itself."""

    @property
    def frozen(self) -> Collection[str]:
        """The roles whose policies do not learn."""
        return self.playing.keys() - self.updaters.keys()

    def own(self, groups: Sequence[Group], role: str = "") -> list[Group]:
        """Return the groups that one learner is given.

        Args:
            groups: groups of one role each, as `compared` makes them.
            role: a role of `updaters`; empty is the run's own learner, which is given the groups of
                all other roles.
        """
        return [
            group
            for group in groups
            if (role_of(group) == role if role else role_of(group) not in self.updaters)
        ]

    def learn(
        self, groups: Sequence[Group], lead: Updater, *, step: int, seed: int
    ) -> dict[str, float]:
        """Let each role that learns by itself learn from the role's groups; return the metrics.

        Args:
            groups: all groups of the step, each of one role.
            lead: the run's own updater, whose moving numbers, texts and watched rollouts are used
                for all roles.
            step: the number of finished steps.
            seed: the seed of the mini-batches, as for the run's own policy.
        """
        role_metrics: dict[str, float] = {}
        for name, updater in self.updaters.items():
            updater.texts, updater.watched = lead.texts, lead.watched
            updater.adopt(lead.values)
            updater.refusals, updater.learned = [], []
            experience = updater.gather(self.own(groups, name), step)
            if experience is None:
                continue
            with updater.learner.steady.changing(to=step + 1):
                generator = torch.Generator().manual_seed(seed)
                metrics = updater.step(experience, generator=generator)
            role_metrics |= {f"role/{name}/{metric}": value for metric, value in metrics.items()}
        return role_metrics

    async def publish(self, step: int) -> None:
        """Hand the new weights of each role that learns to its engine."""
        for name, updater in self.updaters.items():
            await self.playing[name].engine.set_weights(updater.learner.source(), step)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the models."""
        return {
            name: {
                "learner": updater.learner.state(),
                "entropy_coefficient": updater.entropy.coefficient,
            }
            for name, updater in self.updaters.items()
        }


def role_of(group: Group) -> str:
    """Return the role of a group whose rollouts all have one."""
    (trajectory, *_) = group.episodes[0].trajectories
    return trajectory.role


@dataclass(frozen=True, kw_only=True)
class RolesStart:
    """What the policies of roles are opened with."""

    config: TrainConfig
    algorithm: Algorithm
    plan: UpdatePlan
    policy: TokenPolicy
    """The run's policy, whose chat format and token budgets are used for all roles."""
    folder: RunFolder
    version: int
    """The number of finished steps."""
    checkpoint: Path | None = None
    """The checkpoint that the run continues from; None for a new run."""


async def open_roles(start: RolesStart, stack: AsyncExitStack) -> RolePolicies:
    """Open the policies of the roles that the run's own policy does not play.

    Raises:
        ConfigError: a model has another tokenizer than the run's, or the checkpoint has no policy
            of a role.
    """
    playing: dict[str, TokenPolicy] = {}
    updaters: dict[str, Updater] = {}
    for role in start.config.role:
        if not (role.model or role.learns):
            continue
        playing[role.name] = policy = copy(start.policy)
        if role.learns:
            updaters[role.name], policy.engine = await _learning(start, role)
        else:
            path = _same_tokens(start.config, role.name, find_model(role.model))
            device = pick_device(start.config.model.device)
            model = load_policy(
                path, LoraConfig(), dtype=DTYPES[start.config.model.dtype], device=device
            )
            policy.engine = LocalEngine(model, engine_limits(start.config))
        stack.push_async_callback(policy.engine.close)
    return RolePolicies(playing, updaters)


def refuse_learners(config: TrainConfig, recipe: Recipe) -> None:
    """Refuse settings that do not work beside roles with a learner of their own.

    Raises:
        ConfigError: a role learns by itself, and there is such a setting; the message names both.
    """
    learning = [role.name for role in config.role if role.learns]
    place = place_of()
    unsupported = {
        "several ranks": place is not None and place.world > 1,
        "learner": bool(config.learner),
        "sampling.vocabulary": recipe.sampling.vocabulary is not None,
    }
    if learning and (given := [name for name, used in unsupported.items() if used]):
        raise ConfigError(
            f"role {learning[0]!r} learns by itself, in this process, which does not work with "
            f"{', '.join(given)}: leave out role.learns, or that"
        )


async def _learning(start: RolesStart, role: RoleConfig) -> tuple[Updater, LocalEngine]:
    path = str(find_model(role.model or start.config.model.path))
    config, kept = replace(start.config, model=replace(start.config.model, path=path)), None
    if start.checkpoint is not None:
        path = str(start.checkpoint / FOLDER / role.name)
        kept = load_state(start.checkpoint).get("roles", {}).get(role.name)
        if kept is None:
            raise ConfigError(
                f"{str(start.checkpoint)!r} has no policy of role {role.name!r}: go on with the "
                "roles of the checkpoint"
            )
    _same_tokens(start.config, role.name, path)
    values = "values" in start.algorithm.needs
    learner = open_learner(
        config,
        path,
        reading_options(config, None, values=values),
        updates=start.plan.settings.count,
        resumed=kept is not None,
    )
    updater = open_updater(config, start.algorithm, learner, None, start.plan)
    if kept is not None:
        restore_learner(learner, kept["learner"], Path(path))
        updater.entropy.coefficient = kept["entropy_coefficient"]
    learner.steady.version = start.version
    engine = await local_engine(
        EngineStart(
            config=config, path=path, learner=learner, folder=start.folder, version=start.version
        )
    )
    return updater, engine


def _same_tokens(config: TrainConfig, name: str, path: str) -> str:
    """Return `path` if the model there has the tokenizer of the run's model.

    Raises:
        ConfigError: it has another one.
    """
    own: Any = load_tokenizer(path)
    runs: Any = load_tokenizer(config.model.path)
    if own.get_vocab() != runs.get_vocab():
        raise ConfigError(
            f"role {name!r}: the tokenizer of {path} is not that of {config.model.path}; the "
            "roles of an episode read the same tokens"
        )
    return path
