r"""A ludus server as a sandbox for callers without an event loop: scripts and notebooks.

with ludus.sandboxes.connect("http://127.0.0.1:8765") as server:
    server.execute("print(6 * 7)").stdout               # "42\n"
    with server.repl() as repl:
        repl.run("x = 6")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, Unpack

from ludus.verdict import Verdict
from ludus.wire.client import run_blocking
from ludus.wire.sync_transport import SyncTransport

from ..grading.hidden_tests import DEFAULT_OPTIONS, GradeOptions, Grading
from ..protocol import Execution, RunOptions, program_of
from .client import Answer, SandboxCalls
from .remote_repl import RemoteRepl
from .sandbox_wire import ExecuteBody, GradeBody, SandboxCard


class BlockingSandbox:
    """A sandbox on a ludus server; every call blocks. Safe to share between threads.

    Args:
        url: the server's address, `http://host:port`.
        token: the server's bearer token; by default the environment variable LUDUS_TOKEN.
        timeout_s: how long, in seconds from the first failure, a call is tried again.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 120.0) -> None:
        self._transport = SyncTransport()
        self._calls = SandboxCalls(url, self._transport, token=token, timeout_s=timeout_s)

    def card(self) -> SandboxCard:
        """Return the server's tier, languages and bounds."""
        return run_blocking(self._calls.card())

    def execute(
        self, code: str, language: str = "python", **options: Unpack[RunOptions]
    ) -> Execution:
        """Run a program; see `ludus.sandboxes.execute`."""
        body = ExecuteBody.of(program_of(code, language, **options))
        return run_blocking(self._calls.execute(body))

    def execute_batch(self, bodies: Iterable[ExecuteBody]) -> list[Answer]:
        """Run many programs in a single request; see `SandboxCalls.execute_batch`."""
        return run_blocking(self._calls.execute_batch(list(bodies)))

    def grade(
        self,
        solution: str,
        tests: Sequence[object],
        *,
        kind: str = "assert",
        options: GradeOptions = DEFAULT_OPTIONS,
    ) -> Verdict:
        """Grade a solution; see `ludus.sandboxes.grade`."""
        return self.grade_in_detail(solution, tests, kind=kind, options=options).verdict

    def grade_in_detail(
        self,
        solution: str,
        tests: Sequence[object],
        *,
        kind: str = "assert",
        options: GradeOptions = DEFAULT_OPTIONS,
    ) -> Grading:
        """Grade a solution, and return the result of each test as well."""
        body = GradeBody(solution=solution, tests=list(tests), kind=kind, options=options)
        return run_blocking(self._calls.grade(body))

    def repl(self, *, name: str = "", idle_ttl_s: float | None = None) -> BlockingRepl:
        """Start a REPL; see `RemoteRepl.open`."""
        opening = RemoteRepl.open(self._calls, name=name, idle_ttl_s=idle_ttl_s)
        return BlockingRepl(run_blocking(opening))

    def close(self) -> None:
        """Close all connections to the server."""
        run_blocking(self._transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingRepl:
    """A REPL on a server; every call blocks. Not safe to share between threads."""

    def __init__(self, repl: RemoteRepl) -> None:
        self._repl = repl
        self.name = repl.name

    def run(self, code: str, *, timeout_s: float = 30.0) -> Execution:
        """Run a cell; see `RemoteRepl.run`."""
        return run_blocking(self._repl.run(code, timeout_s=timeout_s))

    def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files into the REPL's directory."""
        run_blocking(self._repl.write(files))

    def read(self, path: str) -> bytes:
        """Read a file of the REPL's directory."""
        return run_blocking(self._repl.read(path))

    def close(self) -> None:
        """End the REPL on the server."""
        run_blocking(self._repl.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(url: str, *, token: str | None = None, timeout_s: float = 120.0) -> BlockingSandbox:
    """Return the sandbox of a ludus server for blocking calls; `RemoteSandbox` is async."""
    return BlockingSandbox(url, token=token, timeout_s=timeout_s)
