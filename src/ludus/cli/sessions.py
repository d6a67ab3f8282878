"""The environments named on the command line: `ID`, `ID?argument=value`, or `URL#ID` on a
server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from ludus.envs import make_async
from ludus.envs.gym import Playable
from ludus.envs.serving.connect import connect
from ludus.envs.serving.offload import OwnThreads
from ludus.envs.serving.own_server import OwnServer, may_block
from ludus.errors import ConfigError
from ludus.wire.address import parse_served

from .names import NameKind, ensure_known, kind_of

PROBE_S = 5.0
"""The limit in seconds of the first request to a server, so that a person learns soon of a wrong
address.
"""


def named(name: str, url: str) -> str:
    """Check the name of an environment, and put the server's `url` in front if given.

    Raises:
        ConfigError: the name is that of a verifier, or has arguments although a server has the
            environment.
        UnknownThing: no environment or verifier of this name is registered.
    """
    ensure_known(name if not url else f"{url}#{name}")
    if "?" in name and (url or "#" in name):
        raise ConfigError(
            f"{name!r}: a server fixes the constructor arguments of its environments; give them to "
            "ludus serve, and leave out what follows the '?' here"
        )
    if kind_of(name) is not NameKind.ENVIRONMENT:
        raise ConfigError(f"{name!r} is a verifier; an environment's id ends in -vN (ludus list)")
    return f"{url}#{name}" if url else name


@asynccontextmanager
async def opener(
    name: str, threads: OwnThreads | None = None, *, call_timeout_s: float = 0.0
) -> AsyncGenerator[Callable[[], Playable]]:
    """Yield a function that opens sessions of `name` on the running loop.

    Afterwards the connection or the worker processes are closed, but not the sessions.

    Args:
        name: the environment, as `named` returns it.
        threads: threads to play environments of this process on; None plays them on the loop.
        call_timeout_s: if more than 0, environments of this process that may block are played in
            worker processes, each call for at most so many seconds.
    """
    url, remote, env_id = name.rpartition("#")
    if not remote:
        bare, arguments = parse_served(name)
        if call_timeout_s > 0 and may_block(bare):
            own_server = OwnServer(name, call_timeout_s=call_timeout_s)
            server = await own_server.start()
            try:
                yield lambda: server.make_async(bare)
            finally:
                await own_server.stop()
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
    # One request with a short limit, which finds a wrong address or id. The sessions themselves use
    # a connection with the usual limits.
    async with connect(url, timeout_s=PROBE_S) as probe:
        await probe.make_async(env_id).describe()
    async with connect(url) as server:
        yield lambda: server.make_async(env_id)
