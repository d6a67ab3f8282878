"""Agents: functions, programs of this machine, and programs in a sandbox that reach the gateway
and nothing else.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ludus.background import end_task
from ludus.errors import ConfigError, LudusError
from ludus.messages import Message
from ludus.sandboxes.local.slot_sandbox import SlotSandbox
from ludus.sandboxes.network import NetworkPolicy
from ludus.sandboxes.open import open_with
from ludus.sandboxes.protocol import MIB, ExecutionStatus, Limits
from ludus.sandboxes.settings import SandboxSettings

MAX_ANSWER_BYTES = 1 << 20
"""The longest answer that is read from an agent."""
KILL_AFTER_S = 0.5
"""Seconds between SIGTERM and SIGKILL for an agent that is out of time."""
MAX_PROMPT_BYTES = 100_000
"""The longest prompt in a variable, of which Linux takes 128 KiB; longer ones are in the file."""
SECRETS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
"""Ends of the names of variables that an agent's process does not inherit."""


class AgentFailed(LudusError, RuntimeError):
    """The agent's program or function failed."""


class AgentTimeout(AgentFailed):
    """The agent's program was out of time."""


class AgentHostFailed(LudusError, RuntimeError):
    """What the agent runs in has failed, which is not the agent's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """What an agent is given."""

    base_url: str
    """For OpenAI's clients; it ends with /v1."""
    anthropic_url: str
    """For Anthropic's clients."""
    key: str
    """The API key, which names the rollout."""
    task: str
    """The id of the task."""
    messages: list[Message]
    """The opening of the environment."""
    model: str = "policy"

    @property
    def prompt(self) -> str:
        """The opening messages as a single text."""
        return "\n\n".join(message.text for message in self.messages if message.text)

    def row(self) -> bytes:
        """The task as the JSON that programs are given in a file."""
        return msgspec.json.encode({"task": self.task, "messages": self.messages})


Result = str | Message | None
Agent = Callable[[AgentTask], Result | Awaitable[Result]]
"""Returns the final answer; None where the policy's last words are the answer. A plain function
runs on a thread.
"""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """An agent that is a program; a call runs the program once.

    The program finds the gateway in OPENAI_BASE_URL, OPENAI_API_BASE, OPENAI_API_KEY, OPENAI_MODEL,
    ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY, the prompt in LUDUS_PROMPT, and in LUDUS_TASK a JSON
    file with `task` and `messages`. Its answer is the file that LUDUS_ANSWER names if it was
    written, or else what was printed.

    Raises:
        ConfigError: the command is empty, or its program does not exist.
    """

    command: str
    variables: dict[str, str] = field(default_factory=dict)
    """Further variables of the program."""

    def __post_init__(self) -> None:
        _words(self.command)

    async def __call__(self, task: AgentTask) -> str:
        """Run the program.

        Raises:
            AgentFailed: the program ended with another status than 0.
        """
        with tempfile.TemporaryDirectory(prefix="ludus-agent-") as folder:
            given, answer = Path(folder, "task.json"), Path(folder, "answer")
            await asyncio.to_thread(given.write_bytes, task.row())
            # Pipes of our own: asyncio's would let the end of a program wait for its children's.
            async with _piped() as (printed, out), _piped() as (complaints, err):
                inherited = {
                    name: value for name, value in os.environ.items() if not name.endswith(SECRETS)
                }
                gateway = _variables(task, task.base_url, task.anthropic_url)
                own = {"LUDUS_TASK": str(given), "LUDUS_ANSWER": str(answer)}
                environment = inherited | gateway | own | self.variables
                process = await asyncio.create_subprocess_exec(
                    *shlex.split(self.command),
                    env=environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
                try:
                    await process.wait()
                finally:
                    await _end_group(process)
            if process.returncode:
                tail = complaints.decode("utf-8", "replace").strip()[-400:]
                raise AgentFailed(f"the agent ended with status {process.returncode}: {tail}")
            return await asyncio.to_thread(_read_answer, answer, printed)


@asynccontextmanager
async def _piped() -> AsyncGenerator[tuple[bytearray, int]]:
    """Open a pipe for a program's output; yields what was said, complete at the end, and the
    program's end of the pipe.
    """
    ours, theirs = os.pipe()
    stream, said = asyncio.StreamReader(), bytearray()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ours, "rb")
    )
    reading = asyncio.create_task(_drain(stream, said))
    try:
        yield said, theirs
    finally:
        os.close(theirs)
        # The pipe ends with the group. A process that has left the group may hold it open.
        await asyncio.wait([reading], timeout=KILL_AFTER_S)
        await end_task(reading)
        transport.close()


async def _drain(stream: asyncio.StreamReader, kept: bytearray) -> None:
    """Read a stream to the end, and keep the last part of the output."""
    while piece := await stream.read(1 << 16):
        kept += piece
        del kept[:-MAX_ANSWER_BYTES]


def _read_answer(file: Path, printed: bytearray) -> str:
    if not file.is_file():
        return printed.decode("utf-8", "replace").strip()
    with file.open("rb") as written:
        return written.read(MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """End the process group of a program, and read the exit status."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), KILL_AFTER_S)
            if number is signal.SIGTERM and not _group_lives(process.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ConfigError(
            f"the agent's command {command!r} cannot be split into words: {error}"
        ) from None


def _words(command: str) -> list[str]:
    """Return the words of a command whose program exists.

    Raises:
        ConfigError: the command is empty, or its program does not exist.
    """
    words = _split(command)
    if not words:
        raise ConfigError("the agent's command is empty; give one such as 'python agent.py'")
    if shutil.which(words[0]) is None:
        hint = ""
        if words[0].endswith(".py") and Path(words[0]).is_file():
            hint = f"; a program is run by 'python {command}', a function is named {words[0]}:NAME"
        raise ConfigError(f"the agent's command {command!r}: no program {words[0]!r}{hint}")
    return words


def _variables(task: AgentTask, base_url: str, anthropic_url: str) -> dict[str, str]:
    """Return the environment variables by which a program finds the gateway and the task."""
    prompt = task.prompt
    shown = {"LUDUS_PROMPT": prompt} if len(prompt.encode()) <= MAX_PROMPT_BYTES else {}
    return shown | {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": task.key,
        "OPENAI_MODEL": task.model,
        "ANTHROPIC_BASE_URL": anthropic_url,
        "ANTHROPIC_API_KEY": task.key,
    }


@dataclass(frozen=True, kw_only=True)
class AgentSandbox:
    """The sandbox of an agent's program, from which only the gateway can be reached."""

    tier: str = ""
    """The isolation tier: auto takes the strongest that holds here, as slots-root names one. Empty
    runs the program as a process of this machine.
    """
    image: str = ""
    """An image of the container engine to run the program in; implies the tier docker."""
    readable: tuple[str, ...] = ()
    """Folders that the program may read, at the same paths, such as its virtual environment. Files
    that the command names are put beside it.
    """
    memory_mb: int = 2048
    """The most memory of the program and all that it starts."""

    @property
    def is_wanted(self) -> bool:
        """Whether a sandbox is asked for."""
        return bool(self.tier or self.image)


_SCRIPT = """
way=$http_proxy
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export OPENAI_BASE_URL=$way/v1 OPENAI_API_BASE=$way/v1 ANTHROPIC_BASE_URL=$way
export LUDUS_TASK=$PWD/task.json LUDUS_ANSWER=$PWD/answer
exec env "$@"
"""
"""Runs the agent. The way out of the sandbox is the gateway, so that its address is that of the
gateway, and no proxy is left to ask.
"""
_OWN_FILES = ("task.json", "answer")
_SET_INSIDE = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")


@dataclass(frozen=True, slots=True)
class SandboxedCommand:
    """An agent that is a program in a sandbox; a call runs the program once."""

    words: list[str]
    files: dict[str, bytes]
    """The files beside it, by name."""
    sandbox: SlotSandbox
    limits: Limits

    async def __call__(self, task: AgentTask) -> str:
        """Run the program.

        Raises:
            AgentFailed: the program failed, or needed more than the sandbox gives.
            AgentHostFailed: the sandbox failed.
            AgentTimeout: the program was out of time.
        """
        variables = [
            f"{name}={value}"
            for name, value in _variables(task, "", "").items()
            if name not in _SET_INSIDE
        ]
        execution = await self.sandbox.run_command(
            ["sh", "-c", _SCRIPT, "sh", *variables, *self.words],
            limits=self.limits,
            files={**self.files, "task.json": task.row()},
            fetch_files=["answer"],
            network=True,
        )
        if execution.status is ExecutionStatus.INFRA_ERROR:
            raise AgentHostFailed(f"the agent's sandbox failed: {execution.detail}")
        if execution.status is ExecutionStatus.TIMEOUT:
            raise AgentTimeout(execution.detail)
        if not execution.ok:
            tail = execution.stderr.strip()[-400:]
            how = execution.detail or f"status {execution.exit_code}"
            raise AgentFailed(f"the agent ended with {how}: {tail}")
        answer = execution.files.get("answer", execution.stdout.encode())
        return answer[:MAX_ANSWER_BYTES].decode("utf-8", "replace").strip()


def _inside(command: str, readable: Sequence[str]) -> tuple[list[str], dict[str, bytes]]:
    """Return the command line for the sandbox, and by name the files to copy in: files that the
    command names and that are in no readable folder.
    """
    words = shlex.split(command)
    if words[0] == sys.executable:  # its virtual environment is not in the sandbox
        words[0] = os.path.realpath(sys.executable)
    shown = [os.path.abspath(place) for place in readable]
    names: dict[Path, str] = {}
    for index, word in enumerate(words[1:], start=1):
        path = Path(os.path.abspath(word))
        if any(path.is_relative_to(place) for place in shown):
            words[index] = str(path)
        elif os.path.isfile(path):  # a whole script may be a word: too long for a name is no error
            if path not in names:
                taken = {*names.values(), *_OWN_FILES}
                names[path] = f"{index}-{path.name}" if path.name in taken else path.name
            words[index] = names[path]
    return words, {name: path.read_bytes() for path, name in names.items()}


@asynccontextmanager
async def sandboxed(
    command: AgentCommand, settings: AgentSandbox, *, gateway: str, agents: int, timeout_s: float
) -> AsyncGenerator[SandboxedCommand]:
    """Open a sandbox for an agent's program.

    Args:
        command: the program.
        settings: the sandbox.
        gateway: "ADDRESS:PORT", all that the program reaches.
        agents: how many run at once.
        timeout_s: seconds of wall and of CPU time of one run.

    Raises:
        ConfigError: no tier holds here, or a path does not exist.
    """
    words, files = await asyncio.to_thread(_inside, command.command, settings.readable)
    sandbox = await open_with(
        None if settings.tier in ("", "auto") else settings.tier,
        SandboxSettings(
            size=agents,
            image=settings.image or None,
            network=NetworkPolicy(hosts=(), origin=gateway),
            readable=settings.readable,
        ),
    )
    try:
        if not isinstance(sandbox, SlotSandbox):
            raise ConfigError(
                f"agent_sandbox.tier {settings.tier!r} gives programs no way to the gateway; take "
                "auto, slots-root, slots-userns or docker"
            )
        limits = Limits(timeout_s=timeout_s, cpu_s=timeout_s, memory_bytes=settings.memory_mb * MIB)
        yield SandboxedCommand(words, files, sandbox, limits)
    finally:
        await sandbox.close()


def agent_of(name: str) -> Agent:
    """Return the agent that a setting names.

    Args:
        name: a command (`python agent.py`), or a function: `agent.py:run` or `package.module:run`.

    Raises:
        ConfigError: nothing of that name can be run.
    """
    place, separator, function = name.rpartition(":")
    if separator and function.isidentifier() and " " not in name:
        return _function_of(place, function)
    words = _split(name)
    if words and words[0] in ("python", "python3"):  # the one that ludus runs in
        words[0] = sys.executable
    return AgentCommand(shlex.join(words))


def _function_of(place: str, name: str) -> Agent:
    try:
        if place.endswith(".py"):
            path = Path(place)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ConfigError(f"agent {place}:{name}: no such file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigError(f"agent {place}:{name}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"agent {place}:{name}: {place} has no function {name!r}")
    agent: Agent = function
    return agent
