"""Environments named on the command line: `ID`, `ID?argument=value`, or `URL#ID` on a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from ludus.envs import make_async
from ludus.envs.gym import Playable
from ludus.envs.serving.connect import connect
from ludus.envs.serving.own_server import OwnServer, may_block
from ludus.envs.serving.own_threads import OwnThreads
from ludus.errors import ConfigError
from ludus.wire.arguments import parse_served

from .names import NameKind, ensure_known, kind_of

PROBE_S = 5.0
"""A wrong address or id is told after at most so long."""


def named(name: str, url: str) -> str:
    """`name` on the server `url`, if there is one.

    Raises:
        ConfigError: it is the name of a verifier.
        UnknownThing: nobody registered it.
    """
    ensure_known(name if not url else f"{url}#{name}")
    if "?" in name and (url or "#" in name):
        raise ConfigError(
            f"{name!r}: constructor arguments are fixed by whoever serves the environment; give "
            "them to ludus serve"
        )
    if kind_of(name) is not NameKind.ENVIRONMENT:
        raise ConfigError(f"{name!r} is a verifier; an environment's id ends in -vN (ludus list)")
    return f"{url}#{name}" if url else name


@asynccontextmanager
async def opener(
    name: str, threads: OwnThreads | None = None, *, call_timeout_s: float = 0.0
) -> AsyncGenerator[Callable[[], Playable]]:
    """Opens sessions of `name` on the running loop; closes the connection, not the sessions.

    Args:
        name: of the environment.
        threads: where those in this process are played; otherwise on the loop.
        call_timeout_s: if more than 0, environments of this process that may block are played in
            worker processes, each call for at most so long.
    """
    url, remote, env_id = name.rpartition("#")
    if not remote:
        bare, arguments = parse_served(name)
        if call_timeout_s > 0 and may_block(bare):
            home = OwnServer(name, call_timeout_s=call_timeout_s)
            server = await home.start()
            try:
                yield lambda: server.make_async(bare)
            finally:
                await home.stop()
            return
        if threads is None:
            yield lambda: make_async(bare, **arguments)
            return
        await threads.start()
        try:
            yield lambda: threads.place(make_async(bare, **arguments))
        finally:
            await threads.stop()
        return
    async with connect(url, timeout_s=PROBE_S) as probe:
        await probe.make_async(env_id).describe()
    async with connect(url) as server:
        yield lambda: server.make_async(env_id)
