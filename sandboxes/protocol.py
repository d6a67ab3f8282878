"""What running untrusted code looks like from outside: limits go in, an `Execution` comes out.

    execution = ludus.sandboxes.execute("print(6 * 7)")
    execution.status, execution.stdout          # ok, "42\\n"

Whatever the program did is data. `infra_error` alone is ours: the sandbox could not run it,
nothing is known about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypedDict, Unpack, runtime_checkable

import msgspec

MIB = 1 << 20


class ExecutionStatus(StrEnum):
    """How a run ended."""

    OK = "ok"
    """Exit code 0."""
    ERROR = "error"
    """Any other exit code, or a signal it brought on itself."""
    TIMEOUT = "timeout"
    """It used up its CPU time, or its wall time by its own doing."""
    OOM = "oom"
    """It needed more memory than it was given."""
    OUTPUT_LIMIT = "output_limit"
    """It wrote more than it may; what came before the limit is kept."""
    INFRA_ERROR = "infra_error"
    """The sandbox failed. Nothing is known about the program; try again."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one run may use."""

    timeout_s: float = 10.0
    """Wall time, not counting time the machine kept it waiting for a core."""
    cpu_s: float = 10.0
    """CPU time of the program and everything it starts, together."""
    memory_bytes: int = 512 * MIB
    """Memory of all its processes and files together."""
    output_bytes: int = MIB
    """The most bytes of standard output, of standard error, and of all fetched files together."""
    compile_s: float = 30.0
    """CPU and wall time of the compiler, where the language has one."""

    def __post_init__(self) -> None:
        for name in ("timeout_s", "cpu_s", "memory_bytes", "output_bytes", "compile_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()


class ProgramInputs(TypedDict, total=False):
    """What a program is given besides its code; see `Program`."""

    stdin: str | bytes
    files: Mapping[str, bytes | str]
    fetch_files: Sequence[str]
    argv: Sequence[str]
    network: bool


class RunOptions(ProgramInputs, total=False):
    """What `execute` takes besides the code and its language; see `program_of`."""

    timeout_s: float
    cpu_s: float | None
    memory_bytes: int
    output_bytes: int


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run, with all that it is given."""

    code: str
    """The source text."""
    language: str = "python"
    """One of `LANGUAGES`, or another name of one."""
    limits: Limits = DEFAULT_LIMITS
    stdin: str | bytes = ""
    files: Mapping[str, bytes | str] = {}
    """path -> content; written to the work directory before the program starts."""
    fetch_files: Sequence[str] = ()
    """Paths of files that are read back afterwards, into `Execution.files`."""
    argv: Sequence[str] = ()
    """Arguments of the program, without its name."""
    network: bool = False
    """Whether the program may reach what the operator allows."""


def program_of(
    code: str,
    language: str = "python",
    *,
    timeout_s: float = 10.0,
    cpu_s: float | None = None,
    memory_bytes: int = 512 * MIB,
    output_bytes: int = MIB,
    **inputs: Unpack[ProgramInputs],
) -> Program:
    """Describe a program, with the limits given one by one.

    Args:
        code: the source text.
        language: one of `LANGUAGES`.
        timeout_s: the limit of wall time, in seconds.
        cpu_s: the limit of the CPU time of all processes, in seconds; by default `timeout_s`.
        memory_bytes: the most memory of all processes and files together.
        output_bytes: the most bytes of each output stream.
        inputs: what else the program is given; see `Program`.

    Raises:
        ValueError: a limit is not above 0.
    """
    limits = Limits(
        timeout_s=timeout_s,
        cpu_s=cpu_s or timeout_s,
        memory_bytes=memory_bytes,
        output_bytes=output_bytes,
    )
    return Program(code=code, language=language, limits=limits, **inputs)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run used."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    """Peak resident memory of its largest process."""
    queue_s: float = 0.0
    """Time spent waiting for a free slot."""


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did."""

    status: ExecutionStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    """As a shell counts; a negative number is the signal that ended it. None when it was
    stopped.
    """
    usage: Usage = Usage()
    files: dict[str, bytes] = {}
    """The fetched files."""
    refused: dict[str, str] = {}
    """path -> why a file that was asked for is not in `files`."""
    detail: str = ""
    """One sentence: which limit, which fault."""
    compiled: bool = True
    """False when the compiler refused the program; its messages are in `stderr`."""
    tier: str = ""
    """The isolation it ran behind (`slots-root`, `docker`, ...); empty where that is not told."""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end with exit code 0."""
        return self.status is ExecutionStatus.OK


@runtime_checkable
class Sandbox(Protocol):
    """Somewhere to run untrusted code. A sandbox of one's own derives from this class and defines
    `tier`, `run` and `close`.
    """

    @property
    def tier(self) -> str:
        """The name of its isolation: `slots-root`, `docker`, ..."""
        ...

    async def run(self, program: Program) -> Execution:
        """Run a program; returns what it did.

        Raises:
            ConfigError: the program cannot be tried.
            NetworkNotAllowed: the program wants a network, without the operator's leave.
        """
        ...

    async def execute(
        self,
        code: str,
        language: str = "python",
        *,
        limits: Limits = DEFAULT_LIMITS,
        **inputs: Unpack[ProgramInputs],
    ) -> Execution:
        """Run the program that the arguments describe; see `Program` and `run`."""
        return await self.run(Program(code=code, language=language, limits=limits, **inputs))

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...
