"""A loopback server for environments of this process that may block.

`ludus train` and `ludus eval` play such environments in the same killable worker processes as
`ludus serve`, through a server that listens on the loopback address for this process alone.
"""

from __future__ import annotations

import secrets

from ludus.isolation.group import WorkerLimits
from ludus.wire.server import HttpServer

from .connect import RemoteServer, connect
from .served import ServedEnv
from .server import EnvService
from .sessions import SessionLimits


class OwnServer:
    """Plays an environment in worker processes, for a single event loop.

    Args:
        env: the environment, with constructor arguments (`me/env-v0?length=3`).
        call_timeout_s: the limit in seconds for one reset, step or tool. A process with a late call
            is killed, and the sessions in the process end without a reward.
        max_sessions: how many sessions may be open at a time.
    """

    def __init__(
        self, env: str | ServedEnv, *, call_timeout_s: float, max_sessions: int = 4096
    ) -> None:
        self._served = ServedEnv.parse(env) if isinstance(env, str) else env
        self._token = secrets.token_urlsafe(24)
        limits = SessionLimits(step_timeout_s=call_timeout_s, max_sessions=max_sessions)
        service = EnvService([self._served], limits=limits, workers=WorkerLimits())
        self._server = HttpServer([service], token=self._token)
        self._client: RemoteServer | None = None

    async def start(self) -> RemoteServer:
        """Start the server and the worker processes; returns a connection.

        Raises:
            LudusError: the environment cannot be built.
        """
        await self._server.start()
        self._client = connect(self._server.url, token=self._token)
        return self._client

    async def stop(self) -> None:
        """Close the connection and end the worker processes."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.aclose()
            finally:
                await self._server.stop()


def may_block(name: str) -> bool:
    """Whether the environment `name` must run in worker processes, since the class does not declare
    `never_blocks`. The environment is not built to find out.

    Raises:
        UnknownEnv: the name is not registered; the message names the nearest id.
    """
    return not ServedEnv.parse(name).declares_never_blocks
