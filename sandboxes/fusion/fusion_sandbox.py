"""A sandbox whose programs run on a SandboxFusion server.

The server's protocol says less than that of ludus: it limits wall time but not CPU time, has no
status for memory, and does not say whether and how programs are isolated. A right program that
prints more than a pipe holds is timed out by the server, which cannot be distinguished here.
"""

from __future__ import annotations

import base64
import binascii
import math

from ludus.errors import ConfigError, LudusError, RemoteError, RequestRejected, ServerFault
from ludus.wire.client import AsyncTransport, Client, RetryPolicy
from ludus.wire.codec import Format

from ..languages import find_language
from ..paths import as_bytes, check_fetch, check_files
from ..protocol import MIB, REMOTE, Execution, ExecutionStatus, Limits, Program, Sandbox, Usage
from ..serving.client import try_patiently
from . import fusion_wire as wire

CLIENT_EXTRA_S = 10.0
"""How many seconds an attempt waits beyond the program's limits, as other clients do."""

ROOM_BYTES = 32 * MIB
"""The most bytes of uploaded files."""

_OUT_OF_MEMORY = ("MemoryError", "numpy.core._exceptions._ArrayMemoryError")


class FusionSandbox(Sandbox):
    """A sandbox on a SandboxFusion server.

    Args:
        url: the server's address, without `/run_code`.
        timeout_s: how long, in seconds from the first failure, a call is tried again.
    """

    def __init__(self, url: str, *, timeout_s: float = 120.0) -> None:
        self._transport = AsyncTransport()
        policy = RetryPolicy(timeout_s=timeout_s)
        self._client = Client(url, self._transport, policy=policy, format=Format.JSON)
        self.url = self._client.url

    @property
    def tier(self) -> str:
        """The name of the tier, `remote`."""
        return REMOTE

    async def run(self, program: Program) -> Execution:
        """Run a program on the server; see `Sandbox.run`.

        Raises:
            ConfigError, UnknownLanguage: the server's protocol cannot express the run.
        """
        body = request_of(program)
        try:
            reply = await self._run(body)
        except RequestRejected as error:
            raise ConfigError(f"{self.url} refuses it: {error}") from error
        except RemoteError as error:
            detail = f"{type(error).__name__}: {error}"
            return Execution(status=ExecutionStatus.INFRA_ERROR, detail=detail)
        return execution_of(reply, program)

    async def _run(self, body: wire.RunCodeBody) -> wire.RunCodeReply:
        """Send a run until an answer or a hopeless error; runs leave nothing behind.

        Raises:
            RemoteError: the program could not be run.
        """
        request = self._client.build("POST", "/run_code", body)
        attempt_s = body.compile_timeout + body.run_timeout + CLIENT_EXTRA_S

        async def attempt() -> wire.RunCodeReply:
            reply = await self._client.attempt(request, wire.RunCodeReply, attempt_s)
            if reply.status == wire.SANDBOX_ERROR:
                error = ServerFault(f"it answers SandboxError: {reply.message[:400]}")
                error.retryable = True
                raise error
            return reply

        return await try_patiently(self._client, attempt)

    async def close(self) -> None:
        """Close all connections to the server. Idempotent."""
        await self._transport.close()


async def pings(url: str) -> bool:
    """Return whether a SandboxFusion server answers at `url`."""
    transport = AsyncTransport()
    try:
        return await Client(url, transport, format=Format.JSON).get("/v1/ping", str) == "pong"
    except LudusError:
        return False
    finally:
        await transport.close()


def request_of(program: Program) -> wire.RunCodeBody:
    """Express a run in the protocol's terms.

    Raises:
        ConfigError, UnknownLanguage: the protocol cannot express the run.
    """
    if program.argv or program.network:
        raise ConfigError("a SandboxFusion server takes neither argv nor network=True")
    name = find_language(program.language)[0]
    if name not in wire.LANGUAGES:
        raise ConfigError(f"a SandboxFusion server does not run {name!r}")
    data = check_files(program.files, room_bytes=ROOM_BYTES)
    limits, stdin = program.limits, program.stdin
    try:
        stdin = stdin.decode() if isinstance(stdin, bytes) else stdin
    except UnicodeDecodeError as error:
        raise ConfigError(f"a SandboxFusion server takes text as stdin: {error}") from error
    return wire.RunCodeBody(
        code=as_bytes(program.code, "code").decode(),
        language=name,
        compile_timeout=limits.compile_s,
        run_timeout=limits.timeout_s,
        memory_limit_MB=math.ceil(limits.memory_bytes / MIB),
        stdin=stdin,
        files={path: base64.b64encode(content).decode() for path, content in data.items()},
        fetch_files=check_fetch(program.fetch_files),
    )


def execution_of(reply: wire.RunCodeReply, program: Program) -> Execution:
    """Express the result of a run on the server in ludus's terms."""
    limits = program.limits
    compiled, run = reply.compile_result, reply.run_result
    if compiled and not (compiled.status == wire.FINISHED and compiled.return_code == 0):
        return _execution_of(compiled, limits, compiled=False)
    if run is None or wire.BROKEN in (run.status, compiled.status if compiled else ""):
        detail = f"the reply makes no sense: {reply.status!r} with {run}"
        return Execution(status=ExecutionStatus.INFRA_ERROR, detail=detail[:400])
    sent = reply.files
    files: dict[str, bytes] = {}
    unsent = {
        path: "the server did not send it" for path in program.fetch_files if path not in sent
    }
    for path, data in sent.items():
        try:
            files[path] = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            unsent[path] = f"what the server sent is not base64: {error}"
    return _execution_of(run, limits, files=files, refused_files=unsent)


def _execution_of(
    result: wire.CommandResult,
    limits: Limits,
    *,
    compiled: bool = True,
    files: dict[str, bytes] | None = None,
    refused_files: dict[str, str] | None = None,
) -> Execution:
    stdout, stderr = result.stdout or "", result.stderr or ""
    room = limits.output_bytes
    status, detail = _status(result, stderr), ""
    if max(len(stdout), len(stderr)) > room and status is not ExecutionStatus.TIMEOUT:
        status, detail = ExecutionStatus.OUTPUT_LIMIT, f"more than {room} bytes of output"
    stopped = status in (ExecutionStatus.TIMEOUT, ExecutionStatus.OOM, ExecutionStatus.OUTPUT_LIMIT)
    return Execution(
        status=status,
        stdout=stdout[:room],
        stderr=stderr[:room],
        exit_code=None if stopped else result.return_code,
        usage=Usage(wall_s=result.execution_time or 0.0),
        files=files or {},
        refused=refused_files or {},
        detail=detail,
        compiled=compiled,
    )


def _status(result: wire.CommandResult, stderr: str) -> ExecutionStatus:
    if result.status == wire.TIMED_OUT:
        return ExecutionStatus.TIMEOUT
    if result.return_code == 0:
        return ExecutionStatus.OK
    last = stderr.rstrip().rpartition("\n")[2]
    out_of_memory = result.return_code == 1 and last.startswith(_OUT_OF_MEMORY)
    return ExecutionStatus.OOM if out_of_memory else ExecutionStatus.ERROR
