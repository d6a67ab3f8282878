"""The words of the sandbox protocol: what clients send and servers answer.

An `Execution` travels as it is. Bytes (files) are base64 in JSON and plain in msgpack.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ludus.verdict import Verdict
from ludus.wire.faults import Fault

from ..grading import DEFAULT_OPTIONS, GradeOptions
from ..protocol import DEFAULT_LIMITS, MIB, Execution, Limits

ReplName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9._:-]{1,128}$", description="chosen by the client; unique to it"
    ),
]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Bytes = Annotated[int, msgspec.Meta(gt=0)]
Seq = Annotated[int, msgspec.Meta(ge=0)]
MAX_BATCH = 256
SESSION_MEMORY_BYTES = 1024 * MIB
CELL_TIMEOUT_S = 30.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a server grants, whoever asks."""

    max_timeout_s: float = 300.0
    """Of one run or cell: wall and CPU time, each."""
    max_memory_bytes: int = 4096 * MIB
    max_output_bytes: int = 16 * MIB
    """Of each output stream of one run, and of all fetched files together."""
    max_reply_bytes: int = 64 * MIB
    """Of all output in the reply to one batch; items beyond it are `too_large`."""
    max_grade_s: float = 1800.0
    """Of one grading: the time of each input times their number, where each has its own."""
    max_queue: int = 1024
    """Requests waiting for a slot; past it 429."""
    queue_timeout_s: float = 30.0
    """How long a request waits for a slot, unless it asks for less or more; then 429."""
    max_repls: int = 32
    """Past it, creating one is refused with 429."""
    max_snapshots: int = 64
    repl_ttl_s: float = 600.0
    """A REPL or snapshot nobody uses for so long is ended."""
    repl_lifetime_s: float = 6 * 3600.0
    """No REPL and no snapshot lives longer."""

    def __post_init__(self) -> None:
        for name in Bounds.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")


class SandboxCard(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/sandbox`."""

    instance: str
    """Random name of this run of the server: another one after a restart, and no REPL is left."""
    tier: str
    """The isolation code runs behind."""
    languages: list[str]
    slots: int
    """Programs at a time."""
    sessions: bool
    """Whether it has REPLs."""
    bounds: Bounds


class ExecuteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/execute`, and one item of `/v1/execute_batch`."""

    code: str
    language: str = "python"
    timeout_s: Seconds | None = None
    """Wall time, not counting time the machine kept it waiting for a core. What is left out of the
    limits is as in `Limits`, or as much as the server grants.
    """
    cpu_s: Seconds | None = None
    """Of all its processes together; `timeout_s` if left out."""
    memory_bytes: Bytes | None = None
    output_bytes: Bytes | None = None
    compile_s: Seconds | None = None
    """CPU and wall time of the compiler, where the language has one."""
    stdin: str = ""
    stdin_bytes: bytes = b""
    """Instead of `stdin`, where it is not text."""
    files: dict[str, bytes] = {}
    fetch_files: list[str] = []
    argv: list[str] = []
    network: bool = False
    """A way out, where the server's operator allows one."""
    queue_timeout_s: Seconds | None = None
    """How long to wait for a slot; the server's own bound if left out."""

    def limits(self, bounds: Bounds) -> Limits:
        """The limits of the run."""
        timeout_s = self.timeout_s or min(DEFAULT_LIMITS.timeout_s, bounds.max_timeout_s)
        compile_s = min(DEFAULT_LIMITS.compile_s, bounds.max_timeout_s)
        memory_bytes = min(DEFAULT_LIMITS.memory_bytes, bounds.max_memory_bytes)
        output_bytes = min(DEFAULT_LIMITS.output_bytes, bounds.max_output_bytes)
        return Limits(
            timeout_s=timeout_s,
            cpu_s=self.cpu_s or timeout_s,
            memory_bytes=self.memory_bytes or memory_bytes,
            output_bytes=self.output_bytes or output_bytes,
            compile_s=self.compile_s or compile_s,
        )


class ExecuteBatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/execute_batch`."""

    items: list[ExecuteBody]


class ExecuteBatchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `ExecuteBatchRequest` as the server reads it: each item on its own, so that a wrong one
    does not spoil the others.
    """

    items: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ExecuteItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one item of a batch."""

    status: int
    """200, or the status of `error`."""
    execution: Execution | None = None
    error: Fault | None = None


class ExecuteBatchReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, in the order of the items."""

    items: list[ExecuteItem]


class GradeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/grade`; what the fields mean is said by `ludus.sandboxes.grade`."""

    solution: str
    tests: list[Any]
    kind: str = "assert"
    options: GradeOptions = DEFAULT_OPTIONS
    queue_timeout_s: Seconds | None = None


class GradeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one test said."""

    passed: bool
    detail: str
    seconds: float


class GradeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, also where there is no reward: that is a fact, not a failure of the request."""

    verdict: Verdict
    results: list[GradeResult]
    """Of the tests that were run, in order."""
    tier: str = ""
    """The isolation it ran behind."""


class ReplBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/repls`."""

    repl: ReplName
    cpu_s: Seconds = 3600.0
    """Of the whole session."""
    memory_bytes: Bytes | None = None
    """1 GiB if left out, or as much as the server grants."""
    output_bytes: Bytes | None = None
    """Of each cell, and of each file read; 1 MiB if left out, or as much as the server grants."""
    idle_ttl_s: Seconds | None = None
    """Ends it after so long without a request; at most, and by default, the server's bound."""

    def limits(self, bounds: Bounds) -> Limits:
        """The limits of the session, and of each cell's output."""
        memory_bytes = min(SESSION_MEMORY_BYTES, bounds.max_memory_bytes)
        output_bytes = min(DEFAULT_LIMITS.output_bytes, bounds.max_output_bytes)
        return Limits(
            timeout_s=bounds.repl_lifetime_s,
            cpu_s=self.cpu_s,
            memory_bytes=self.memory_bytes or memory_bytes,
            output_bytes=self.output_bytes or output_bytes,
        )


class ReplReply(msgspec.Struct, frozen=True, kw_only=True):
    """A REPL that is there."""

    repl: str
    instance: str


class CellBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/repls/{repl}/run`."""

    seq: Seq
    """Counts the cells of the REPL from 0: one sent again is answered, not run twice."""
    code: str
    timeout_s: Seconds | None = None
    """30 s if left out, or as much as the server grants."""


class CellReply(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell did."""

    repl: str
    seq: int
    execution: Execution


class WriteBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/repls/{repl}/write`."""

    files: dict[str, bytes]


class ReadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/repls/{repl}/read`."""

    path: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are now in the REPL's directory."""

    repl: str
    written: list[str]


class FileReply(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a REPL."""

    repl: str
    path: str
    data: bytes


class SnapshotBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/repls/{repl}/snapshot`."""

    snapshot: ReplName
    idle_ttl_s: Seconds | None = None
    """Ends it after so long without a restore; at most, and by default, the server's bound."""


class SnapshotReply(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that is there."""

    snapshot: str
    repl: str
    instance: str


class RestoreBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/snapshots/{snapshot}/restore`."""

    repl: ReplName
    """Of the new REPL, which goes on from the snapshot; its first cell has seq 0."""
    idle_ttl_s: Seconds | None = None


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot is no more, whether it was this request that ended it or not."""

    snapshot: str
    ended: bool
    """Whether it was there."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A REPL is no more, whether it was this request that ended it or not."""

    repl: str
    ended: bool
    """Whether it was there."""
