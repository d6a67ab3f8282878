"""Ids of other projects' environments: `KIND/FAMILY-v0`, or the address of a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any

from ludus.errors import ConfigError, UnknownEnv

from ..protocol import TextEnv
from .kinds import EnvKind, catalogue, find_kind, kind_names
from .peer_env import PeerEnv

Factory = Callable[..., TextEnv]


@dataclass(frozen=True)
class ServerKind:
    """A kind of servers of other projects, whose environments are named by an address."""

    about: str
    """What the kind is, in a sentence."""
    player: str
    """The class that plays an environment of the server, as `module:Class`."""


SERVERS: dict[str, ServerKind] = {
    "openenv": ServerKind(
        "an environment on a server of OpenEnv, over its WebSocket",
        "ludus.envs.outside.servers.openenv:OpenEnvClient",
    ),
    "ors": ServerKind(
        "an environment on a server of the Open Reward Standard, by its tools",
        "ludus.envs.outside.servers.ors:OrsClient",
    ),
    "nemo-gym": ServerKind(
        "an environment on a resources server of NeMo Gym, with rows of its data set",
        "ludus.envs.outside.servers.nemo_gym:NemoGymClient",
    ),
}
"""The kinds of servers, by name."""
SHIPPED: dict[str, str] = {"textworld": "ludus/textworld-v0"}
"""Names of other projects whose environments ludus ships an environment for."""
_VERSION = re.compile(r"-v0$")


def is_outside(env_id: str) -> bool:
    """Whether the part of an id before the first slash is a kind of another project.

    >>> is_outside("reasoning-gym/countdown-v0"), is_outside("ludus/arithmetic-v0")
    (True, False)
    """
    head, slash, _ = env_id.partition("/")
    if head in SHIPPED:
        return True
    return bool(slash) and (head in SERVERS or head in kind_names())


def is_bare_kind(env_id: str) -> bool:
    """Whether an id is the name of a kind alone, which lacks a family or an address.

    >>> is_bare_kind("alfworld"), is_bare_kind("alfworld/all-v0")
    (True, False)
    """
    return env_id in SERVERS or env_id in kind_names()


def outside_factory(env_id: str) -> Factory:
    """Return what makes the environment of an id for which `is_outside` or `is_bare_kind` holds.

    Raises:
        UnknownEnv: the kind has no such family; the message names the near miss.
        ConfigError: the family needs what cannot be had.
    """
    head, _, path = env_id.partition("/")
    if head in SHIPPED:
        raise UnknownEnv(f"no environment named {env_id!r}; ludus brings {SHIPPED[head]}")
    if head in SERVERS:
        module, _, attribute = SERVERS[head].player.partition(":")
        player: Any = getattr(import_module(module), attribute)
        return update_wrapper(partial(player, path), player, updated=())
    kind = find_kind(head)
    named = partial(PeerEnv, kind, _family(kind, path, env_id))
    return update_wrapper(named, PeerEnv, updated=())


def _family(kind: EnvKind, path: str, env_id: str) -> str:
    family, listed = _VERSION.sub("", path), catalogue(kind.name)
    if not family:
        families = listed.families if listed else []
        free = (
            candidate.name
            for candidate in families
            if not candidate.needs and not candidate.problem
        )
        example = next(free, families[0].name if families else "FAMILY")
        raise UnknownEnv(
            f"no environment named {env_id!r}: name a family, as in {kind.name}/{example}-v0 "
            "(ludus list --available)"
        )
    known = listed.family(family) if listed else None
    if known is None and not kind.any_family and listed is not None:
        ids = [f"{kind.name}/{candidate.name}-v0" for candidate in listed.families]
        raise UnknownEnv.near(env_id, ids, hint="ludus list --available")
    if known is not None and known.problem:
        raise ConfigError(f"{env_id} cannot be played: {known.problem}")
    return family
