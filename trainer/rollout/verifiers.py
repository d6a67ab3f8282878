"""Opens the verifiers of a run, in this process or on ludus servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ludus.envs.serving.connect import RemoteServer, connect
from ludus.errors import UnknownVerifier
from ludus.rewards import Verifier, make_verifier
from ludus.secret import Secret

from ..config import RewardConfig
from .scoring import WeightedVerifier


async def open_verifiers(
    rewards: Sequence[RewardConfig], stack: AsyncExitStack
) -> list[WeightedVerifier]:
    """Make each verifier; `stack` closes the connections of served verifiers.

    Raises:
        UnknownVerifier: no verifier has that name, in this process or on the server.
        RemoteError: a server could not be asked.
    """
    servers: dict[tuple[str, Secret], RemoteServer] = {}
    made: list[WeightedVerifier] = []
    for one in rewards:
        url, hash_sign, name = one.name.rpartition("#")
        if not hash_sign:
            verifier = make_verifier(one.name)
        else:
            key = (url, one.token)
            if key not in servers:
                servers[key] = connect(url, token=one.token if one.token else None)
                stack.push_async_callback(servers[key].aclose)
            verifier = await _served(servers[key], name)
        made.append(WeightedVerifier(one.name, verifier, one.weight, one.timeout_s))
    return made


async def _served(server: RemoteServer, name: str) -> Verifier:
    """Return a verifier on a server; a verifier that compares groups there compares groups here."""
    cards = {card.name: card for card in await asyncio.to_thread(server.verifiers)}
    if name not in cards:
        raise UnknownVerifier.near(
            name, list(cards), hint=f"{server.urls[0]} serves {', '.join(cards) or 'none'}"
        )
    return server.group_verifier(name) if cards[name].group else server.verifier(name)
