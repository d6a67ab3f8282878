"""Opens the verifiers of a run, in this process or on ludus servers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ludus.envs.serving.connect import RemoteServer, connect
from ludus.errors import UnknownVerifier
from ludus.rewards import Verifier, make_verifier
from ludus.rewards.measured import judges_of
from ludus.secret import Secret
from ludus.wire.address import parse_served

from ..config import RewardConfig
from .scoring import WeightedVerifier


async def open_verifiers(
    rewards: Sequence[RewardConfig], stack: AsyncExitStack
) -> list[WeightedVerifier]:
    """Make each verifier; `stack` closes the verifiers of this process and the connections to
    servers.

    Raises:
        ConfigError: a verifier does not take the options that its name carries.
        UnknownVerifier: there is none of that name, here or on its server.
        RemoteError: a server could not be asked.
    """
    servers: dict[tuple[str, Secret], RemoteServer] = {}
    made: list[WeightedVerifier] = []
    for one in rewards:
        url, hash_sign, name = one.name.rpartition("#")
        if not hash_sign:
            bare, options = parse_served(one.name)
            verifier = make_verifier(bare, **options)
            stack.push_async_callback(_close, verifier)
            judges = judges_of(verifier)
        else:
            key = (url, one.token)
            if key not in servers:
                servers[key] = connect(url, token=one.token if one.token else None)
                stack.push_async_callback(servers[key].aclose)
            # A served verifier, which compares groups if the server says so, and the judges behind.
            server = servers[key]
            cards = {card.name: card for card in await asyncio.to_thread(server.verifiers)}
            if name not in cards:
                raise UnknownVerifier.near(
                    name, list(cards), hint=f"{server.urls[0]} serves {', '.join(cards) or 'none'}"
                )
            card = cards[name]
            verifier, judges = (
                server.group_verifier(name) if card.group else server.verifier(name),
                card.judges,
            )
        made.append(WeightedVerifier(one.name, verifier, one.weight, one.timeout_s, tuple(judges)))
    return made


async def _close(verifier: Verifier) -> None:
    close = getattr(verifier, "close", None)
    closed = close() if callable(close) else None
    if inspect.isawaitable(closed):
        await closed
