"""`ludus/files-v0`: the policy puts a tree of files in order, by shell commands in a sandbox.

    user       1. Delete every empty file. 2. Move every .log file ... into a new folder archive
    assistant  shell(command="find . -type f")
    tool       ./inbox/alder12.log ...
    assistant  shell(command="find . -type f -empty -delete && mkdir archive && ...")
    assistant  done()                                             reward 1

The final tree is compared with the tree that the chores lead to, file by file. Empty folders do
not count, nor do line feeds at the end of a file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...splits import split_of
from ...tasks import GeneratedTasks, Task
from ...tools import ToolResult, tool
from .chores import CHORES, Chore
from .shell import Shell
from .trees import Tree, draw_tree, same

MAX_DRAWS = 10_000
TOOL_TIMEOUT_S = 180.0
"""A limit above the time to open a session plus the longest command. The limits that matter are
inside the tool, where it is known whose fault a delay is.
"""
MAX_COMMAND_S = 60.0
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
    """A task set with a job per seed; the difficulty is the number of chores."""

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
        self._jobs = ((min_chores, max_chores), (min_files, max_files), tuple(kinds or CHORES))
        self.turns = turns
        self.command_timeout_s, self.max_letters = command_timeout_s, max_letters
        self.job = Job(tree={}, chores=[])
        self.shell_: Shell | None = None  # `shell` is the tool
        self._done = 0
        for shell_tool in self.tools.values():
            shell_tool.timeout_s = TOOL_TIMEOUT_S

    def tasks(self, split: str) -> Jobs:
        """Return an endless task set; no job is in two splits."""
        return Jobs(split, *self._jobs)

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
