"""An environment in which shell commands put a tree of files in order, in a sandbox session.

`_GUEST` is the part that runs in the sandbox: two functions in the session's own interpreter, which
commands cannot reach by name, since they run in processes of their own. Only the resulting files
are judged, and the expected files never enter the sandbox.

    user       1. Delete every empty file. 2. Move every .log file ... into a new folder archive
    assistant  shell(command="find . -type f")
    tool       ./inbox/alder12.log ...
    assistant  shell(command="find . -type f -empty -delete && mkdir archive && ...")
    assistant  done()                                             reward 1

The final tree is compared with the tree that the chores lead to, file by file. Empty folders do
not count, nor do line feeds at the end of a file.
"""

from __future__ import annotations

import base64
import binascii
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...problem_files import split_of
from ...protocol import Briefing, Info, TextEnv
from ...tasks import GeneratedTasks, Task
from ...tools import ToolResult, tool
from ..coding.tools import Workbench, shortened
from .chores import CHORES, Chore, Tree, draw_tree, same

TOP = "top"
"""The folder of the tree, in the session's working folder; commands run there."""
MAX_FILES, MAX_BYTES = 2_000, 512 * 1024
"""Limits of a tree that is read back, in files and bytes; no chore leads to a larger tree."""
MAX_COMMAND_BYTES = 131_071
"""The longest argument that Linux passes to a program, without the final null byte."""

_GUEST = f"""
import base64 as _b64, json as _json, os as _os, signal as _signal, subprocess as _sp
import time as _time, select as _select

def _ludus_shell(command, timeout_s, max_bytes):
    process = _sp.Popen(["bash", "-c", command], cwd={TOP!r}, stdin=_sp.DEVNULL, stdout=_sp.PIPE,
                        stderr=_sp.STDOUT, start_new_session=True)
    output, limit, deadline = b"", "", _time.monotonic() + timeout_s
    while True:
        left_s = deadline - _time.monotonic()
        ready = _select.select([process.stdout], [], [], max(0.0, min(left_s, 0.2)))[0]
        part = _os.read(process.stdout.fileno(), 65536) if ready else None
        output += part or b""
        if len(output) > max_bytes:
            limit = "too much output"
        elif left_s <= 0:
            limit = "timeout"
        # The output never ends while a background process holds it open, so that the end of bash,
        # with nothing left to read, ends the command too.
        if limit or part == b"" or (part is None and process.poll() is not None):
            break
    if not limit:
        try:  # a command may close its output long before it ends
            process.wait(max(0.0, deadline - _time.monotonic()))
        except _sp.TimeoutExpired:
            limit = "timeout"
    if limit:
        _os.killpg(process.pid, _signal.SIGKILL)
    code = process.wait()
    process.stdout.close()
    output = _b64.b64encode(output[:max_bytes]).decode()
    print(_json.dumps({{"output": output, "limit": limit, "code": code}}))

def _ludus_tree(max_files, max_bytes):
    files, size = {{}}, 0
    for folder, folders, names in _os.walk({TOP!r}):
        links = [name for name in folders if _os.path.islink(_os.path.join(folder, name))]
        for name in names + links:
            path = _os.path.join(folder, name)
            place = _os.path.relpath(path, {TOP!r})
            shown = place.encode("utf-8", "replace").decode()
            files[shown] = None
            plain = _os.path.isfile(path) and not _os.path.islink(path) and shown == place
            try:
                size += _os.path.getsize(path) if plain else 0
                if len(files) > max_files or size > max_bytes:
                    print(_json.dumps({{"too_large": True}}))
                    return
                if plain:
                    with open(path, "rb") as stream:
                        content = stream.read(max_bytes + 1)
                    files[shown] = _b64.b64encode(content).decode()
            except OSError:  # it may not be read, or is gone
                pass
    print(_json.dumps({{"files": files}}))

_os.makedirs({TOP!r}, exist_ok=True)
"""


class _CommandReply(msgspec.Struct):
    output: str
    """Base64, since output need not be UTF-8."""
    limit: str = ""
    """The limit that ended the command; empty if the command ended by itself."""
    code: int = 0


class _TreeReply(msgspec.Struct):
    files: dict[str, str | None] = {}
    """The content by path, in base64; None for what is no plain file, cannot be read, or has a name
    that is not UTF-8.
    """
    too_large: bool = False


ReplyT = TypeVar("ReplyT", _CommandReply, _TreeReply)


class Shell:
    """Runs commands in the top folder of a tree of files.

    Args:
        tree: the files at the start of each new session.
        timeout_s: the time limit of a single command, in seconds.
        max_letters: about how many characters of a command's output are shown.
    """

    def __init__(self, tree: Tree, *, timeout_s: float, max_letters: int) -> None:
        files = {f"{TOP}/{path}": content for path, content in tree.items()}
        self._bench = Workbench(files, prepare=_GUEST)
        self._timeout_s = timeout_s
        self._max_letters = max_letters

    async def run(self, command: str) -> str:
        """Run a command; return the output, and how the command ended if not normally.

        Raises:
            ToolError: bash cannot be given the command; or the command ended the session, and the
                next command finds the tree as it was at the start.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        encoded = command.encode("utf-8", "replace")
        if b"\0" in encoded or len(encoded) > MAX_COMMAND_BYTES:
            raise ToolError(
                f"the command has {len(encoded):,} bytes; give at most {MAX_COMMAND_BYTES:,}, none "
                "of them null"
            )
        # In base64 no character of the command needs quoting inside the source of the call.
        data = base64.b64encode(encoded).decode()
        code = (
            f"_ludus_shell(_b64.b64decode({data!r}).decode(), {self._timeout_s}, "
            f"{8 * self._max_letters})"
        )
        reply = await self._run_helper(code, _CommandReply)
        text = base64.b64decode(reply.output).decode("utf-8", "replace").rstrip("\n")
        ending = ""
        if reply.limit:
            ending = f"[stopped: {reply.limit}]"
        elif reply.code:
            ending = f"[exit code {reply.code}]"
        parts = [shortened(text, self._max_letters), ending]
        return "\n".join(part for part in parts if part) or "(no output)"

    async def tree(self) -> Tree | None:
        """Return the content of all files by path; None if the files are too many or too large, or
        not all are plain files of UTF-8 text.

        Raises:
            ToolError: an earlier command ended the session.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        reply = await self._run_helper(f"_ludus_tree({MAX_FILES}, {MAX_BYTES})", _TreeReply)
        if reply.too_large or None in reply.files.values():
            return None
        try:
            return {
                path: base64.b64decode(content or "", validate=True).decode()
                for path, content in reply.files.items()
            }
        except (binascii.Error, UnicodeDecodeError):
            return None

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        await self._bench.close()

    async def _run_helper(self, code: str, reply_type: type[ReplyT]) -> ReplyT:
        """Call a helper of `_GUEST` in the session, and read the printed JSON."""
        # The helper stops a late command itself, and the session goes on. The longer limit of the
        # run is only reached where the helper does not answer.
        execution = await self._bench.run(code, timeout_s=self._timeout_s + 10)
        try:
            return msgspec.json.decode(execution.stdout, type=reply_type)
        except (msgspec.DecodeError, UnicodeError) as error:
            await self._bench.close()
            raise ToolError(
                "the session was broken by what ran in it; the next command begins anew, with "
                "the files of the beginning"
            ) from error


MAX_DRAWS = 10_000
"""How many jobs are drawn for a task before the settings are refused."""
TOOL_TIMEOUT_S = 180.0
"""A limit above the time to open a session plus the longest command. The limits that matter are
inside the tool, where it is known whose fault a delay is.
"""
MAX_COMMAND_S = 60.0
"""The longest `command_timeout_s`, in seconds."""
NO_CALL = "Use the shell; call done when the files are as they should be."


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of files, and the chores to do on the tree, in order."""

    tree: Tree
    chores: list[Chore]

    @property
    def text(self) -> str:
        """The numbered chores, in the words that the policy reads."""
        lines = [f"{number}. {chore.text}" for number, chore in enumerate(self.chores, 1)]
        return "\n".join(lines)

    @property
    def result(self) -> Tree:
        """The tree after all chores."""
        return self.chores[-1].result


class Jobs(GeneratedTasks):
    """A task set with a job per seed; the difficulty is the number of chores.

    Args:
        split: the split of the tasks.
        chores: the fewest and the most chores of a job.
        files: the fewest and the most files at the start.
        kinds: the kinds of chores to draw from.
    """

    def __init__(
        self, split: str, chores: tuple[int, int], files: tuple[int, int], kinds: Sequence[str]
    ) -> None:
        super().__init__(split)
        self.chores, self.files, self.kinds = chores, files, tuple(kinds)

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        return msgspec.structs.replace(task, difficulty=float(len(self.job(task).chores)))

    def job(self, task: Task) -> Job:
        """Return the first job drawn from the task's seed that is of the task's split."""
        rng = random.Random(f"files/{task.seed}")
        for _ in range(MAX_DRAWS):
            new_job = self._draw(rng)
            if (
                new_job is not None
                and split_of(f"{new_job.text}{sorted(new_job.tree)}") == task.split
            ):
                return new_job
        raise ConfigError(
            f"no job of split {task.split!r} has so many chores of {', '.join(self.kinds)}; allow "
            "more kinds or files"
        )

    def _draw(self, rng: random.Random) -> Job | None:
        tree = start = draw_tree(rng, rng.randint(*self.files))
        chores: list[Chore] = []
        for _ in range(rng.randint(*self.chores)):
            chore = CHORES[rng.choice(self.kinds)](rng, tree)
            if chore is None or same(chore.result, tree):  # impossible here, or nothing to do
                return None
            if chore.makes and any(earlier.makes == chore.makes for earlier in chores):
                return None
            chores.append(chore)
            tree = chore.result
        return Job(tree=start, chores=chores) if not same(start, tree) else None


class Files(TextEnv):
    """An environment in which shell commands put a tree of files in order.

    Args:
        min_chores: the fewest chores, which are done one after the other.
        max_chores: the most chores.
        min_files: the fewest files at the start.
        max_files: the most files at the start.
        kinds: the kinds of chores to draw from: gather, sweep, rename, replace, find, count, join,
            tidy, file_by_year, drop. Empty means all.
        turns: the most turns.
        command_timeout_s: the time limit of a single command, in seconds.
        max_letters: about how many characters of a command's output are shown.

    Raises:
        ConfigError: a setting is out of range.
    """

    system_prompt = (
        "Put the files in order with the shell, which is in their top folder. Do the chores in "
        "their order, leave everything else as it is, then call done."
    )
    deterministic = False  # a command may read the clock

    def __init__(
        self,
        *,
        min_chores: int = 1,
        max_chores: int = 3,
        min_files: int = 10,
        max_files: int = 30,
        kinds: Sequence[str] = (),
        turns: int = 16,
        command_timeout_s: float = 10.0,
        max_letters: int = 4000,
    ) -> None:
        unknown = [name for name in kinds if name not in CHORES]
        if unknown:
            raise ConfigError(f"kinds are {', '.join(CHORES)}, got {unknown[0]!r}")
        if not 1 <= min_chores <= max_chores <= 6:
            raise ConfigError(
                f"need 1 <= min_chores <= max_chores <= 6, got {min_chores}, {max_chores}"
            )
        if not 4 <= min_files <= max_files <= 200:
            raise ConfigError(
                f"need 4 <= min_files <= max_files <= 200, got {min_files}, {max_files}"
            )
        if turns < 1 or max_letters < 100 or not 0 < command_timeout_s <= MAX_COMMAND_S:
            raise ConfigError(
                "need turns >= 1, max_letters >= 100 and command_timeout_s above 0, at most "
                f"{MAX_COMMAND_S:g}, got {turns}, {max_letters}, {command_timeout_s}"
            )
        self._bounds = ((min_chores, max_chores), (min_files, max_files), tuple(kinds or CHORES))
        self.turns = turns
        self.command_timeout_s, self.max_letters = command_timeout_s, max_letters
        self.job = Job(tree={}, chores=[])
        self.shell_: Shell | None = None  # `shell` is the tool
        self._done = 0
        for shell_tool in self.tools.values():
            shell_tool.timeout_s = TOOL_TIMEOUT_S

    def tasks(self, split: str) -> Jobs:
        """Return an endless task set; no job is in two splits."""
        return Jobs(split, *self._bounds)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the chores; the first call of a tool opens the sandbox session."""
        await self.close()
        self.job, self._done = self.tasks(self.task.split).job(self.task), 0
        self.shell_ = Shell(
            self.job.tree, timeout_s=self.command_timeout_s, max_letters=self.max_letters
        )
        briefing: Briefing = msgspec.structs.replace(self.briefing(), max_turns=self.turns)
        return self.job.text, {"briefing": briefing}

    @tool(concurrent=False)
    async def shell(self, command: str) -> str:
        """Run a command with bash in the top folder and see what it writes.

        Args:
            command: what to run
        """
        return await self._open_shell().run(command)

    @tool(concurrent=False)
    async def done(self) -> ToolResult:
        """Say that the files are as they should be, which ends the task."""
        # Judge the final tree. The verdict does not say what is wrong: that would show what is
        # expected.
        tree = await self._open_shell().tree()
        right = tree is not None and same(tree, self.job.result)
        verdict = Verdict.of(
            float(right), "The files are right." if right else "They are not right."
        )
        return ToolResult(content=verdict.detail, reward=verdict.unwrap(), terminated=True)

    def _open_shell(self) -> Shell:
        assert self.shell_ is not None, "reset comes first"
        return self.shell_

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer a turn without a call, which changes nothing."""
        return NO_CALL, 0.0, False, False, {}

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        shell, self.shell_ = self.shell_, None
        if shell is not None:
            await shell.close()

    def gold(self) -> dict[str, str]:
        """Return the content of each file, by path, after all chores are done."""
        return self.job.result

    def demonstrate(self) -> Message:
        """Run the command of the next chore, and call `done` after the last."""
        self._done += 1
        if self._done <= len(self.job.chores):
            command = self.job.chores[self._done - 1].command
            call = ToolCall(name="shell", arguments={"command": command}, id="call_0")
        else:
            call = ToolCall(name="done", id="call_0")
        return assistant("", [call])
