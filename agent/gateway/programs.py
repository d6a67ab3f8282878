"""Agents: functions, programs that run on this machine, and programs in a sandbox from which only
the gateway can be reached.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import msgspec

from ludus.background import end_task
from ludus.errors import ConfigError, LudusError
from ludus.messages import Message
from ludus.sandboxes.local.slot_sandbox import SlotSandbox
from ludus.sandboxes.network import NetworkPolicy
from ludus.sandboxes.open import open_with
from ludus.sandboxes.owners import prefix_of_folders, stale_folders
from ludus.sandboxes.protocol import MIB, ExecutionStatus, Limits
from ludus.sandboxes.settings import SandboxSettings

MAX_ANSWER_BYTES = 1 << 20
"""The longest answer that is read from an agent."""
FOLDERS = "ludus-agent-"
"""The beginning of the names of temporary folders in which agents find the task and leave the
answer. Folders of a trainer that was killed are removed at the next start.
"""
KILL_AFTER_S = 0.5
"""Seconds between SIGTERM and SIGKILL for an agent that is out of time."""
MAX_PROMPT_BYTES = 100_000
"""The longest prompt that is given in a variable, for which Linux allows 128 KiB. A longer prompt,
or a prompt with a null character, is only in the file of the task.
"""
SECRETS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")
"""Endings of the names of variables that an agent's process does not inherit."""

GUARDED = """\
exec 3<&0 </dev/null
((read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 &)
exec 3<&-
exec "$@"
"""
"""A shell script that runs its arguments as itself and, on the side, kills its process group once
the pipe at its standard input is closed: no program outlives a trainer that was killed.
"""


class AgentFailed(LudusError, RuntimeError):
    """The agent's program or function failed."""


class AgentTimeout(AgentFailed):
    """The agent's program was out of time."""


class AgentHostFailed(LudusError, RuntimeError):
    """The sandbox of the agent has failed, which is not the agent's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """The task of an agent, with the addresses of the gateway."""

    base_url: str
    """The gateway's address for OpenAI's clients, which ends with /v1."""
    anthropic_url: str
    """The gateway's address for Anthropic's clients."""
    key: str
    """The API key, which names the rollout."""
    task: str
    """The id of the task."""
    messages: list[Message]
    """The messages with which the environment opens the episode."""
    model: str = "policy"
    """The name of the model, for clients that need one; the gateway takes any."""

    @property
    def prompt(self) -> str:
        """The opening messages as a single text."""
        return "\n\n".join(message.text for message in self.messages if message.text)

    def row(self) -> bytes:
        """The task as the JSON that programs are given in a file."""
        return msgspec.json.encode({"task": self.task, "messages": self.messages})


Result = str | Message | None
Agent = Callable[[AgentTask], Result | Awaitable[Result]]
"""A function that plays a task and returns the final answer; None where the policy's last words are
the answer. A plain function runs on a thread.
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
        for folder in stale_folders(FOLDERS):
            shutil.rmtree(folder, ignore_errors=True)

    async def __call__(self, task: AgentTask) -> str:
        """Run the program.

        Raises:
            AgentFailed: the program ended with another status than 0.
        """
        with tempfile.TemporaryDirectory(prefix=prefix_of_folders(FOLDERS)) as folder:
            task_file, answer_file = Path(folder, "task.json"), Path(folder, "answer")
            await asyncio.to_thread(task_file.write_bytes, task.row())
            inherited = {
                name: value for name, value in os.environ.items() if not name.endswith(SECRETS)
            }
            gateway = _variables(task, task.base_url, task.anthropic_url)
            files = {"LUDUS_TASK": str(task_file), "LUDUS_ANSWER": str(answer_file)}
            # Our own pipes: with asyncio's, a program would not end before its last child ends.
            async with (
                _piped() as (output, output_end),
                _piped() as (errors, errors_end),
                _lifeline() as lifeline,
            ):
                process = await asyncio.create_subprocess_exec(
                    *("sh", "-c", GUARDED, "sh", *shlex.split(self.command)),
                    env=inherited | gateway | files | self.variables,
                    stdin=lifeline,
                    stdout=output_end,
                    stderr=errors_end,
                    start_new_session=True,
                )
                try:
                    await process.wait()
                finally:
                    await _end_group(process)
            if process.returncode:
                tail = errors.decode("utf-8", "replace").strip()[-400:]
                raise AgentFailed(f"the agent ended with status {process.returncode}: {tail}")
            return await asyncio.to_thread(_read_answer, answer_file, output)


@asynccontextmanager
async def _piped() -> AsyncGenerator[tuple[bytearray, int]]:
    """Open a pipe for a program's output.

    Yields:
        The output, complete once the context has ended, and the file descriptor of the end of the
        pipe that the program writes to.
    """
    reading_end, writing_end = os.pipe()
    stream, output = asyncio.StreamReader(), bytearray()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(reading_end, "rb")
    )
    reading = asyncio.create_task(_drain(stream, output))
    try:
        yield output, writing_end
    finally:
        os.close(writing_end)
        # The pipe ends with the group. A process that has left the group may hold it open.
        await asyncio.wait([reading], timeout=KILL_AFTER_S)
        await end_task(reading)
        transport.close()


@asynccontextmanager
async def _lifeline() -> AsyncGenerator[int]:
    """Open a pipe to which nothing is written; yields the end that reads, for `GUARDED`."""
    reading_end, writing_end = os.pipe()
    try:
        yield reading_end
    finally:
        os.close(reading_end)
        os.close(writing_end)


async def _drain(stream: asyncio.StreamReader, output: bytearray) -> None:
    """Read a stream to the end into `output`, of which the last `MAX_ANSWER_BYTES` are kept."""
    while piece := await stream.read(1 << 16):
        output += piece
        del output[:-MAX_ANSWER_BYTES]


def _read_answer(file: Path, output: bytearray) -> str:
    if not file.is_file():
        return output.decode("utf-8", "replace").strip()
    with file.open("rb") as stream:
        return stream.read(MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()


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
    fits = len(prompt.encode()) <= MAX_PROMPT_BYTES and "\0" not in prompt
    return ({"LUDUS_PROMPT": prompt} if fits else {}) | {
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
    """The isolation tier, such as slots-root; auto takes the strongest that holds here. Empty runs
    the program as a process of this machine.
    """
    image: str = ""
    """An image of the container engine to run the program in; implies the tier docker."""
    readable: tuple[str, ...] = ()
    """Folders that the program may read, at the same paths, such as its virtual environment. Files
    outside these folders that the command names are copied into the program's working folder.
    """
    memory_mb: int = 2048
    """The most memory of the program and its child processes together, in MiB."""

    @property
    def is_wanted(self) -> bool:
        """Whether a sandbox is asked for."""
        return bool(self.tier or self.image)


_SCRIPT = """
gateway=$http_proxy
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export OPENAI_BASE_URL=$gateway/v1 OPENAI_API_BASE=$gateway/v1 ANTHROPIC_BASE_URL=$gateway
export LUDUS_TASK=$PWD/task.json LUDUS_ANSWER=$PWD/answer
exec env "$@"
"""
"""Runs the agent. The sandbox's only way out is a proxy, which passes every request to the gateway.
So the proxy's address is given to clients as the address of the gateway, and not as a proxy.
"""
_OWN_FILES = ("task.json", "answer")
_SET_INSIDE = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")


@dataclass(frozen=True, slots=True)
class SandboxedCommand:
    """An agent that is a program in a sandbox; a call runs the program once."""

    words: list[str]
    files: dict[str, bytes]
    """The files beside the program, by name."""
    sandbox: SlotSandbox
    limits: Limits
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further variables of the program; see `AgentCommand`."""

    async def __call__(self, task: AgentTask) -> str:
        """Run the program.

        Raises:
            AgentFailed: the program failed, or needed more than the sandbox gives.
            AgentHostFailed: the sandbox failed.
            AgentTimeout: the program was out of time.
        """
        gateway = {
            name: value
            for name, value in _variables(task, "", "").items()
            if name not in _SET_INSIDE
        }
        variables = [f"{name}={value}" for name, value in (gateway | {**self.variables}).items()]
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
    """Return the command line for the sandbox, and by name the files to copy in.

    Words that name something in a readable folder become absolute paths. A word that names another
    file becomes the name of the copy, which lies in the program's working folder.
    """
    words = shlex.split(command)
    if words[0] == sys.executable:  # its virtual environment is not in the sandbox
        words[0] = os.path.realpath(sys.executable)
    shown = [os.path.abspath(place) for place in readable]
    names: dict[Path, str] = {}
    for index, word in enumerate(words[1:], start=1):
        path = Path(os.path.abspath(word))
        # os.path, since a whole script may be a word: it answers False where a name is too long.
        if not os.path.exists(path):
            continue
        if any(path.is_relative_to(place) for place in shown):
            words[index] = str(path)
        elif os.path.isfile(path):
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
        yield SandboxedCommand(words, files, sandbox, limits, command.variables)
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


def _module_of(path: Path) -> ModuleType:
    """Import a file ending in .py, under a name that no other file has."""
    digest = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
    name = f"ludus_agent_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None, "of a file ending in .py"
    module = importlib.util.module_from_spec(spec)
    # Registered, since dataclasses and pickle look up the module of a class by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _function_of(place: str, name: str) -> Agent:
    try:
        if place.endswith(".py"):
            if not Path(place).is_file():
                raise ConfigError(f"agent {place}:{name}: no such file")
            module = _module_of(Path(place))
        else:
            module = importlib.import_module(place)
    except (ModuleNotFoundError, SyntaxError) as error:
        raise ConfigError(f"agent {place}:{name}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"agent {place}:{name}: {place} has no function {name!r}")
    try:
        inspect.signature(function).bind("task")
    except TypeError as error:
        raise ConfigError(
            f"agent {place}:{name} must take one AgentTask, def {name}(task): {error}"
        ) from None
    except ValueError:
        pass  # a builtin without a signature can only be tried
    agent: Agent = function
    return agent
