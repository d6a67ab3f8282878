r"""The interface of sandboxes: programs with limits go in, an `Execution` comes out.

    execution = ludus.sandboxes.execute("print(6 * 7)")
    execution.status, execution.stdout          # ok, "42\n"

Whatever the program did is data. The status `infra_error` alone is a fault of the sandbox: nothing
is known about the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypedDict, Unpack, runtime_checkable

import msgspec

REMOTE = "remote"
"""The tier of sandboxes on a server, which isolate as it does; never chosen automatically."""
MIB = 1 << 20


class ExecutionStatus(StrEnum):
    """The ways in which a run can end."""

    OK = "ok"
    """The program ended with exit code 0."""
    ERROR = "error"
    """The program ended with another exit code or by a signal, or started too many processes."""
    TIMEOUT = "timeout"
    """The program reached the limit of CPU time, or of wall time (waiting for a core does not
    count).
    """
    OOM = "oom"
    """The program needed more memory than the limit."""
    OUTPUT_LIMIT = "output_limit"
    """The program wrote more output than the limit; what came before the limit is kept."""
    INFRA_ERROR = "infra_error"
    """The sandbox failed, so nothing is known about the program; try again."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run.

    Raises:
        ValueError: a limit is not above 0, or has no end.
    """

    timeout_s: float = 10.0
    """The limit of wall time, in seconds; time spent waiting for a core does not count."""
    cpu_s: float = 10.0
    """The limit of CPU time of the program and all descendants together, in seconds."""
    memory_bytes: int = 512 * MIB
    """The limit on the memory of all processes and files together."""
    output_bytes: int = MIB
    """The most bytes of standard output, of standard error, and of all fetched files together."""
    compile_s: float = 30.0
    """The limit of the compiler's CPU time and wall time, in seconds, where a language has a
    compiler.
    """

    def __post_init__(self) -> None:
        for name in ("timeout_s", "cpu_s", "memory_bytes", "output_bytes", "compile_s"):
            if not 0 < (limit := getattr(self, name)) < math.inf:
                wanted = "finite" if limit == math.inf else "above 0"
                raise ValueError(f"{name} must be {wanted}, got {limit!r}")


DEFAULT_LIMITS = Limits()


class ProgramInputs(TypedDict, total=False):
    """The inputs of a program besides the code; see `Program`."""

    stdin: str | bytes
    files: Mapping[str, bytes | str]
    fetch_files: Sequence[str]
    argv: Sequence[str]
    network: bool


class RunOptions(ProgramInputs, total=False):
    """The options of `execute` besides the code and the language; see `program_of`."""

    timeout_s: float
    cpu_s: float | None
    memory_bytes: int
    output_bytes: int


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run, with limits and all inputs."""

    code: str
    """The source text."""
    language: str = "python"
    """A name or alias of a language in `LANGUAGES`."""
    limits: Limits = DEFAULT_LIMITS
    stdin: str | bytes = ""
    files: Mapping[str, bytes | str] = {}
    """The files written to the work directory before the program starts, content by path."""
    fetch_files: Sequence[str] = ()
    """Paths of files that are read back afterwards, into `Execution.files`."""
    argv: Sequence[str] = ()
    """The arguments of the program, without the program's name."""
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
    """Describe a program by separate arguments for each of the limits.

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
        cpu_s=timeout_s if cpu_s is None else cpu_s,
        memory_bytes=memory_bytes,
        output_bytes=output_bytes,
    )
    return Program(code=code, language=language, limits=limits, **inputs)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources a run used: wall and CPU time in seconds, and memory in bytes."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    """The peak resident memory of the run's largest process."""
    queue_s: float = 0.0
    """Seconds spent waiting for a free slot, which are not part of `wall_s`."""


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run: how the run ended, what was written, and what was used."""

    status: ExecutionStatus
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    """The exit code, or the negative number of the signal that ended the program.

    None if the sandbox stopped the run or failed.
    """
    usage: Usage = Usage()
    files: dict[str, bytes] = {}
    """The files that were read back, content by path."""
    refused: dict[str, str] = {}
    """The reasons why files that were asked for are not in `files`, by path."""
    detail: str = ""
    """A sentence that says which limit was exceeded or what failed; empty otherwise."""
    compiled: bool = True
    """False if the compiler refused the program; the compiler's messages are in `stderr`."""
    tier: str = ""
    """The isolation tier of the run (`slots-root`, `docker`, ...); empty if the server does not
    tell.
    """

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with exit code 0."""
        return self.status is ExecutionStatus.OK


@runtime_checkable
class Sandbox(Protocol):
    """A place to run untrusted code, isolated from this machine and from other runs.

    To write another sandbox, derive from this class and define `tier`, `run` and `close`.
    """

    @property
    def tier(self) -> str:
        """The name of the isolation tier: `slots-root`, `docker`, ..."""
        ...

    async def run(self, program: Program) -> Execution:
        """Run a program, and return how the run ended, with output and usage.

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
        """Release all resources of the sandbox. A second call does nothing."""
        ...
