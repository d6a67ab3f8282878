"""A kind of environments of another project, whose package is a file beside the tests."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.envs import GymEnv, make
from ludus.envs.outside.kinds import EnvKind
from ludus.envs.outside.peer_env import PeerEnv

ADAPTER = Path(__file__).with_name("peer_adapter.py")
PEER = EnvKind(
    name="peer",
    about="A peer in miniature.",
    requires=("no-such-distribution-of-ludus-tests",),
    package="json",
    adapter=str(ADAPTER),
    any_family=True,
)

Open = Callable[..., GymEnv]


@pytest.fixture
def open_peer() -> Iterator[Open]:
    """Makes an environment of the peer; closes all of them in the end."""
    made: list[GymEnv] = []

    def open_one(family: str, *, kind: dict[str, Any] | None = None, **arguments: Any) -> GymEnv:
        chosen = dataclasses.replace(PEER, **(kind or {}))
        made.append(make(PeerEnv(chosen, family, python=sys.executable, **arguments)))
        return made[-1]

    yield open_one
    for one in made:
        one.close()
