"""The messages of the sandbox protocol: what clients send and servers answer.

An `Execution` travels as it is. Bytes (files) are base64 in JSON and plain in msgpack.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec

from ludus.verdict import Verdict
from ludus.wire.faults import Fault

from ..grading.hidden_tests import DEFAULT_OPTIONS, GradeOptions
from ..paths import encode_files
from ..protocol import DEFAULT_LIMITS, MIB, Execution, Limits, Program

ReplName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9._:-]{1,128}$(?!\n)", description="chosen by the client; unique to it"
    ),
]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Bytes = Annotated[int, msgspec.Meta(gt=0)]
Seq = Annotated[int, msgspec.Meta(ge=0)]
MAX_BATCH = 256
SESSION_MEMORY_BYTES = 1024 * MIB
CELL_TIMEOUT_S = 30.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of what a server grants to any client."""

    max_timeout_s: float = 300.0
    """The longest wall time, and the longest CPU time, of a run or cell, in seconds."""
    max_memory_bytes: int = 4096 * MIB
    max_output_bytes: int = 16 * MIB
    """The most bytes of each output stream of a run, and of all fetched files together."""
    max_reply_bytes: int = 64 * MIB
    """The most bytes of output in the reply to a batch; items beyond are `too_large`."""
    max_grade_s: float = 1800.0
    """The longest time of a grading, in seconds: where each input has a time limit, the limit times
    the number of inputs.
    """
    max_queue: int = 1024
    """How many requests may wait for a slot; a further request is refused with 429."""
    queue_timeout_s: float = 30.0
    """How long a request waits for a slot, in seconds, unless it sets another time; then 429."""
    max_repls: int = 32
    """How many REPLs may be open; a further REPL is refused with 429."""
    max_snapshots: int = 64
    repl_ttl_s: float = 600.0
    """After how many seconds without use a REPL or snapshot is ended."""
    repl_lifetime_s: float = 6 * 3600.0
    """The longest lifetime of a REPL or snapshot, in seconds."""

    def __post_init__(self) -> None:
        for name in Bounds.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")


class SandboxCard(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `GET /v1/sandbox`."""

    instance: str
    """A random name of this run of the server. After a restart the name is another, and all REPLs
    are gone.
    """
    tier: str
    """The isolation behind which code runs."""
    languages: list[str]
    slots: int
    """How many programs run at a time."""
    sessions: bool
    """Whether the server has REPLs."""
    bounds: Bounds


class ExecuteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/execute`, and an item of `/v1/execute_batch`."""

    code: str
    language: str = "python"
    timeout_s: Seconds | None = None
    """Wall time in seconds, without the time that the machine kept the program waiting for a core.
    A limit that is left out is that of `Limits`, or what the server grants if that is less.
    """
    cpu_s: Seconds | None = None
    """CPU time of all the program's processes together, in seconds; by default `timeout_s`."""
    memory_bytes: Bytes | None = None
    output_bytes: Bytes | None = None
    compile_s: Seconds | None = None
    """CPU and wall time of the compiler in seconds, where the language has one."""
    stdin: str = ""
    stdin_bytes: bytes = b""
    """Standard input that is not text; instead of `stdin`."""
    files: dict[str, bytes] = {}
    fetch_files: list[str] = []
    argv: list[str] = []
    network: bool = False
    """Whether the program gets a network, where the server's operator allows that."""
    queue_timeout_s: Seconds | None = None
    """How long to wait for a slot, in seconds; by default the server's bound."""

    @classmethod
    def of(cls, program: Program) -> ExecuteBody:
        """Return the request to run a program.

        Raises:
            ConfigError: a text is not valid Unicode.
        """
        limits, stdin = program.limits, program.stdin
        return cls(
            code=program.code,
            language=program.language,
            timeout_s=limits.timeout_s,
            cpu_s=limits.cpu_s,
            memory_bytes=limits.memory_bytes,
            output_bytes=limits.output_bytes,
            compile_s=limits.compile_s,
            stdin="" if isinstance(stdin, bytes) else stdin,
            stdin_bytes=stdin if isinstance(stdin, bytes) else b"",
            files=encode_files(program.files),
            fetch_files=list(program.fetch_files),
            argv=list(program.argv),
            network=program.network,
        )

    def program(self, bounds: Bounds) -> Program:
        """Return the program, with the default limits filled in."""
        timeout_s = self.timeout_s or min(DEFAULT_LIMITS.timeout_s, bounds.max_timeout_s)
        compile_s = min(DEFAULT_LIMITS.compile_s, bounds.max_timeout_s)
        memory_bytes = min(DEFAULT_LIMITS.memory_bytes, bounds.max_memory_bytes)
        output_bytes = min(DEFAULT_LIMITS.output_bytes, bounds.max_output_bytes)
        return Program(
            code=self.code,
            language=self.language,
            limits=Limits(
                timeout_s=timeout_s,
                cpu_s=self.cpu_s or timeout_s,
                memory_bytes=self.memory_bytes or memory_bytes,
                output_bytes=self.output_bytes or output_bytes,
                compile_s=self.compile_s or compile_s,
            ),
            stdin=self.stdin or self.stdin_bytes,
            files=self.files,
            fetch_files=self.fetch_files,
            argv=self.argv,
            network=self.network,
        )


class ExecuteBatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/execute_batch`."""

    items: list[ExecuteBody]


class ExecuteBatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `ExecuteBatchRequest` with items that are not decoded so far.

    Each item is decoded separately, so that a wrong item does not spoil the others.
    """

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ExecuteItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an item of a batch."""

    status: int
    """200, or the HTTP status of `error`."""
    execution: Execution | None = None
    error: Fault | None = None


class ExecuteBatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a batch, in the order of the items."""

    items: list[ExecuteItem]


class GradeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/grade`; `ludus.sandboxes.grade` describes the fields."""

    solution: str
    tests: list[Any]
    kind: str = "assert"
    options: GradeOptions = DEFAULT_OPTIONS
    queue_timeout_s: Seconds | None = None


class GradeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a single test."""

    passed: bool
    detail: str
    seconds: float


class GradeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to `POST /v1/grade`; a verdict without a reward is a reply too, not an error."""

    verdict: Verdict
    results: list[GradeResult]
    """The results of the tests that were run, in order."""
    tier: str = ""
    """The isolation behind which the grading ran."""


class ReplOptions(TypedDict, total=False):
    """The options of a new REPL as keyword arguments; see `ReplBody`."""

    cpu_s: float
    memory_bytes: int | None
    output_bytes: int | None
    idle_ttl_s: float | None


class ReplBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/repls`."""

    repl: ReplName
    cpu_s: Seconds = 3600.0
    """The CPU time of the whole session, in seconds."""
    memory_bytes: Bytes | None = None
    """The memory of the session; by default 1 GiB, or what the server grants if that is less."""
    output_bytes: Bytes | None = None
    """The most bytes of each cell's output and of each file read; by default 1 MiB, or what the
    server grants if that is less.
    """
    idle_ttl_s: Seconds | None = None
    """After how many seconds without a request the REPL is ended; at most, and by default, the
    server's bound.
    """

    def limits(self, bounds: Bounds) -> Limits:
        """Return the limits of the session, and of each cell's output."""
        memory_bytes = min(SESSION_MEMORY_BYTES, bounds.max_memory_bytes)
        output_bytes = min(DEFAULT_LIMITS.output_bytes, bounds.max_output_bytes)
        return Limits(
            timeout_s=bounds.repl_lifetime_s,
            cpu_s=self.cpu_s,
            memory_bytes=self.memory_bytes or memory_bytes,
            output_bytes=self.output_bytes or output_bytes,
        )


class ReplReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a request that made a REPL."""

    repl: str
    instance: str


class CellBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/repls/{repl}/run`."""

    seq: Seq
    """Counts the cells of the REPL from 0: a cell that is sent again is answered, not run twice."""
    code: str
    timeout_s: Seconds | None = None
    """The wall time of the cell in seconds; by default 30, or what the server grants if that is
    less.
    """


class CellReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell."""

    repl: str
    seq: int
    execution: Execution


class WriteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/repls/{repl}/write`."""

    files: dict[str, bytes]


class ReadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/repls/{repl}/read`."""

    path: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of files that were written into the REPL's directory."""

    repl: str
    written: list[str]


class FileReply(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file of a REPL."""

    repl: str
    path: str
    data: bytes


class SnapshotBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/repls/{repl}/snapshot`."""

    snapshot: ReplName
    idle_ttl_s: Seconds | None = None
    """After how many seconds without a restore the snapshot is ended; at most, and by default, the
    server's bound.
    """


class SnapshotReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a request that took a snapshot."""

    snapshot: str
    repl: str
    instance: str


class RestoreBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/snapshots/{snapshot}/restore`."""

    repl: ReplName
    """The name of the new REPL, which goes on from the snapshot; its first cell has seq 0."""
    idle_ttl_s: Seconds | None = None


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a request to delete a snapshot, which is gone in any case."""

    snapshot: str
    ended: bool
    """Whether there was such a snapshot."""


class ReplEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a request to end a REPL, which is gone in any case."""

    repl: str
    ended: bool
    """Whether there was such a REPL."""
