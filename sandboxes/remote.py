"""The tier `remote`: programs run on another machine, by a ludus server or a SandboxFusion server.

    sandbox = await open_sandbox("remote:http://10.0.0.7:8765")      # token: LUDUS_TOKEN

The isolation is that of the server's tier; a SandboxFusion server does not tell. What keeps the
server from answering is an `infra_error`: nothing is known about the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ludus.errors import ConfigError, LudusError, RequestRejected
from ludus.secret import without_credentials
from ludus.wire.client import AsyncTransport
from ludus.wire.roster import DNS, FILE

from .fusion.fusion_sandbox import FusionSandbox, pings
from .grading.hidden_tests import DEFAULT_OPTIONS, GradeOptions, Grading
from .protocol import REMOTE, Execution, Program, Sandbox
from .serving.client import Answer, SandboxCalls
from .serving.remote_repl import RemoteRepl
from .serving.sandbox_wire import ExecuteBody, GradeBody, ReplOptions, SandboxCard


class RemoteSandbox(Sandbox):
    """A sandbox on a ludus server.

    Args:
        url: the server's address, `http://host:port`.
        token: the server's bearer token; by default the environment variable LUDUS_TOKEN.
        timeout_s: how long, in seconds from the first failure, a call is tried again.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 120.0) -> None:
        self._transport = AsyncTransport()
        self._calls = SandboxCalls(url, self._transport, token=token, timeout_s=timeout_s)
        self.url = self._calls.client.url

    @property
    def tier(self) -> str:
        """The name of the tier, `remote`."""
        return REMOTE

    async def card(self) -> SandboxCard:
        """Return the server's tier, languages and bounds.

        Raises:
            RemoteError: the server gives no answer.
        """
        return await self._calls.card()

    async def run(self, program: Program) -> Execution:
        """Run a program on the server; see `Sandbox.run`.

        Raises:
            ConfigError, UnknownLanguage: the server cannot run the program.
            Unauthorized: the token is wrong.
        """
        return await self._calls.execute(ExecuteBody.of(program))

    async def execute_batch(self, bodies: Sequence[ExecuteBody]) -> list[Answer]:
        """Run many programs in a single request; see `SandboxCalls.execute_batch`."""
        return await self._calls.execute_batch(bodies)

    async def grade_in_detail(
        self,
        solution: str,
        tests: Sequence[object],
        *,
        kind: str = "assert",
        options: GradeOptions = DEFAULT_OPTIONS,
    ) -> Grading:
        """Grade `solution` on the server; see `ludus.sandboxes.grade_in_detail`."""
        body = GradeBody(solution=solution, tests=list(tests), kind=kind, options=options)
        return await self._calls.grade(body)

    async def open_repl(self, *, name: str = "", **options: Unpack[ReplOptions]) -> RemoteRepl:
        """Start a REPL on the server; see `RemoteRepl.open`."""
        return await RemoteRepl.open(self._calls, name=name, **options)

    async def close(self) -> None:
        """Close all connections to the server. Idempotent."""
        await self._transport.close()


async def open_remote(address: str, *, token: str | None = None) -> Sandbox:
    """Return the sandbox at `address`, `http://...` or `remote:http://...`, of either kind.

    Raises:
        ConfigError: no sandbox server answers (the message has the answer that came), or several
            servers are named.
    """
    url = address.removeprefix(f"{REMOTE}:")
    if "," in url or url.startswith((DNS, FILE)):
        raise ConfigError(
            f"{without_credentials(url)!r} names several servers, and a sandbox has one: give a "
            "single address, or that of a proxy in front of them"
        )
    sandbox = RemoteSandbox(url, token=token)
    try:
        await sandbox.card()
    except LudusError as error:
        await sandbox.close()
        if isinstance(error, RequestRejected) and await pings(url):
            return FusionSandbox(url)
        raise ConfigError(f"no sandbox server at {url}: {error}") from error
    return sandbox


async def examine_remote(address: str) -> tuple[list[str], list[str]]:
    """Run a program at `address`; return the problems, and notes about the server."""
    try:
        sandbox = await open_remote(address)
    except ConfigError as error:
        return [str(error)], []
    try:
        execution = await sandbox.execute("print(6 * 7)")
        problems = [] if execution.stdout == "42\n" else [f"a program does not run: {execution}"]
        if isinstance(sandbox, RemoteSandbox):
            card = await sandbox.card()
            return problems, [
                f"a ludus server at {sandbox.url}: tier {card.tier}, {card.slots} slots"
            ]
        url = sandbox.url if isinstance(sandbox, FusionSandbox) else ""
        return problems, [f"a SandboxFusion server at {url}: how it isolates is not told"]
    except LudusError as error:
        return [str(error)], []
    finally:
        await sandbox.close()
