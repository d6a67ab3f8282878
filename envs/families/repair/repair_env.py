"""Python cells that run shell commands inside a sandbox session.

    user       The files integers.py, text.py hold 4 small functions. One of them does not do ...
    assistant  read_file(path="text.py")
    tool       def shifted(text: str, places: int) -> str: ...
    assistant  write_file(path="text.py", content=...)
    assistant  run(command="python -m doctest text.py")
    assistant  submit()                               reward 1

The functions are our own; a mistake changes one node of the syntax tree. Hidden tests of all
functions decide; they run outside the sandbox in which the policy works.
"""

from __future__ import annotations

import asyncio
import random
from enum import StrEnum
from typing import Any

import msgspec

from ludus.errors import ConfigError, RewardUnavailable, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.sandboxes import GradeOptions, grade_async
from ludus.verdict import Verdict

from ...protocol import Info, TextEnv
from ...tasks import GeneratedTasks, Task, TaskSet
from ...tools import ToolResult, tool
from ..coding.tools import MAX_RUN_S, TOOL_TIMEOUT_S, Workbench, shortened, shown
from .cases import library
from .faults import Repair, draw, faults_of

_MAX_FILES = 200

PREPARE = f"""
def _ludus_shell(command, timeout_s):
    import os, signal, subprocess, sys
    script = (
        'python() {{ "%s" "$@"; }}; python3() {{ python "$@"; }}; export -f python python3; '
        'eval "$1"' % sys.executable
    )
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", command],
        stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True,
    )
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"[stopped after {{timeout_s:g}} s]")
    else:
        if code:
            print(f"[exit code {{code}}]")

def _ludus_list():
    import os
    count = 0
    for folder, folders, names in os.walk("."):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name))
            if count == {_MAX_FILES}:
                print("...")
                return
            print(path, os.lstat(path).st_size)
            count += 1
"""
"""Code that is run at the start of each session."""

LIST = "_ludus_list()"


def shell_cell(command: str, timeout_s: float) -> str:
    """Return a cell that runs `command` in bash and prints the output at once.

    At the end the cell prints the exit code, if that is not 0, or that the command was stopped.
    """
    return f"_ludus_shell({command!r}, {timeout_s!r})"


class MistakeReport(StrEnum):
    """How much the first observation says about the mistake."""

    NOTHING = "nothing"
    """Says that there is a mistake, and nothing else."""
    FUNCTION = "function"
    """Says which function has the mistake."""
    CALL = "call"
    """Shows a call that goes wrong, with its right result."""


class RepairTasks(GeneratedTasks):
    """A task set with a set of files per seed; the difficulty is the number of functions."""

    def __init__(self, split: str, functions: tuple[int, int]) -> None:
        super().__init__(split)
        self.functions = functions

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty."""
        task = super().at(index)
        count = float(self.functions_of(task))
        return Task(id=task.id, split=task.split, seed=task.seed, difficulty=count)

    def functions_of(self, task: Task) -> int:
        """Return how many functions the files of `task` hold."""
        return random.Random(f"functions/{task.seed}").randint(*self.functions)


class CodeRepair(TextEnv):
    """An environment in which broken functions have to be repaired; hidden tests decide.

    Args:
        min_functions: the fewest functions in the files.
        max_functions: the most functions in the files.
        faults: how many of the functions are broken.
        report: what is said about the mistakes: `nothing`, which `function`, or a `call` that goes
            wrong.
        turns: the most turns; an episode without a submission by then earns nothing.
        partial: reward the share of failing tests that pass in the end, less those that newly fail.
        run_timeout_s: the time limit of a single command, in seconds.
        timeout_s: the time limit for grading a single file, in seconds.
        max_letters: how many characters of a command's output are shown, about.

    Raises:
        ConfigError: a setting is out of range.
    """

    system_prompt = (
        "You repair Python code. Look at the files, change what is wrong, and call `submit` when "
        "you are done; hidden tests decide. The docstrings are right."
    )
    deterministic = False  # commands may read the clock, and hash seeds differ

    def __init__(
        self,
        *,
        min_functions: int = 1,
        max_functions: int = 4,
        faults: int = 1,
        report: str = MistakeReport.CALL,
        turns: int = 16,
        partial: bool = False,
        run_timeout_s: float = 10.0,
        timeout_s: float = 10.0,
        max_letters: int = 4000,
    ) -> None:
        library_size = len(library())
        if not 1 <= faults <= min_functions <= max_functions <= library_size:
            raise ConfigError(
                f"need 1 <= faults <= min_functions <= max_functions <= {library_size}, got "
                f"{faults}, {min_functions}, {max_functions}"
            )
        if faults > (possible := min(len(faults_of(split)) for split in ("validation", "test"))):
            raise ConfigError(f"faults must be at most {possible}, got {faults}")
        if report not in list(MistakeReport):
            raise ConfigError(f"report must be one of {', '.join(MistakeReport)}, got {report!r}")
        if turns < 1 or max_letters < 100:
            raise ConfigError(f"need turns >= 1 and max_letters >= 100, got {turns}, {max_letters}")
        if not 0 < run_timeout_s <= MAX_RUN_S:
            raise ConfigError(
                f"run_timeout_s must be above 0, at most {MAX_RUN_S:g}, got {run_timeout_s}"
            )
        self.functions = (min_functions, max_functions)
        self.faults = faults
        self.report = MistakeReport(report)
        self.turns = turns
        self.partial = partial
        self.run_timeout_s = run_timeout_s
        self.max_letters = max_letters
        self.options = GradeOptions(timeout_s=timeout_s, partial=partial)
        self.repair = Repair({}, {}, {}, ())
        self.bench = Workbench()
        self.calls = 0

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no mistake is in two splits."""
        return RepairTasks(split, self.functions)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Describe the files and the mistakes; the first call of a tool creates the files."""
        await self.bench.close()
        count = RepairTasks(self.task.split, self.functions).functions_of(self.task)
        self.repair = draw(self.task, count, self.faults)
        self.bench = Workbench(self.repair.files, prepare=PREPARE)
        self.calls = 0
        briefing = msgspec.structs.replace(self.briefing(), max_turns=self.turns)
        files = self.repair.files
        place = (
            f"file {next(iter(files))} holds"
            if len(files) == 1
            else (f"files {', '.join(files)} hold")
        )
        contents = "a small function" if count == 1 else f"{count} small functions"
        broken = {1: "One of them does" if count > 1 else "It does"}.get(
            self.faults, f"{self.faults} of them do"
        )
        lines = [
            f"The {place} {contents}. {broken} not do what the docstring says.",
            *self._reports(),
        ]
        return "\n".join([*lines, "Each file is tested on its own."]), {"briefing": briefing}

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def list_files(self) -> str:
        """The files there are, with their sizes in bytes."""
        self.calls += 1
        execution = await self.bench.run(LIST, timeout_s=self.run_timeout_s)
        return shown(execution, timeout_s=self.run_timeout_s, max_letters=self.max_letters)

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def read_file(self, path: str) -> str:
        """The text of a file.

        Args:
            path: such as text.py
        """
        self.calls += 1
        return shortened(await self.bench.read(path), 4 * self.max_letters)

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def write_file(self, path: str, content: str) -> str:
        """Make a file, or replace all of its text.

        Args:
            path: such as text.py
            content: the whole text
        """
        self.calls += 1
        await self.bench.write(path, content)
        return f"{path} written"

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def run(self, command: str) -> str:
        """Run a shell command in the folder of the files, such as `python -m doctest text.py`.

        Args:
            command: for bash
        """
        self.calls += 1
        cell = shell_cell(command, self.run_timeout_s)
        execution = await self.bench.run(cell, timeout_s=self.run_timeout_s + 5.0)
        return shown(execution, timeout_s=self.run_timeout_s, max_letters=self.max_letters)

    @tool(timeout_s=TOOL_TIMEOUT_S, concurrent=False)
    async def submit(self) -> ToolResult:
        """Hand the files in, as they are now, to be graded by hidden tests."""
        verdict = await self._graded()
        return ToolResult(content="Graded.", reward=verdict.unwrap(), terminated=True)

    async def step(self, action: str | Message) -> tuple[str, Verdict, bool, bool, Info]:
        """Treat an answer without a call as a submission."""
        return "Graded.", await self._graded(), True, False, {}

    async def _graded(self) -> Verdict:
        """Grade the files in the present state, and close the session.

        Raises:
            RewardUnavailable: there is no sandbox, or it broke.
        """
        try:
            files = [await self.bench.read(file) for file in self.repair.files]
        except ToolError as error:
            return Verdict.of(0.0, f"the files cannot be read: {error}")
        finally:
            await self.bench.close()  # other episodes may be waiting for a session
        tests = self.repair.tests.values()
        verdicts = await asyncio.gather(*map(self._graded_file, files, tests))
        detail = "; ".join(
            f"{file}: {verdict.detail}"
            for file, verdict in zip(self.repair.files, verdicts, strict=True)
        )
        if not self.partial:
            return Verdict.of(min(verdict.unwrap() for verdict in verdicts), detail)
        totals = [len(tests) for tests in self.repair.tests.values()]
        failing = sum(
            round(total * (1.0 - verdict.unwrap()))
            for total, verdict in zip(totals, verdicts, strict=True)
        )
        return Verdict.of(max(0.0, 1.0 - failing / self.repair.failing), detail)

    async def _graded_file(self, source: str, tests: list[str]) -> Verdict:
        try:
            verdict = await grade_async(source, tests, options=self.options)
        except ConfigError as error:  # the tests are ours, so the sandbox is at fault
            verdict = Verdict.unavailable(f"nothing can be graded here: {error}")
        if not verdict.ok:
            raise RewardUnavailable(verdict)
        return verdict

    def _reports(self) -> list[str]:
        if self.report is MistakeReport.FUNCTION:
            return [f"Broken: {fault.function.name}" for fault in self.repair.faults]
        if self.report is MistakeReport.NOTHING:
            return []
        return [
            f"Wrong: {fault.function.calls[case]} should {_outcome(fault.function.results[case])}"
            for fault in self.repair.faults
            for case in fault.failing[:1]
        ]

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        await self.bench.close()

    def gold(self) -> dict[str, Any]:
        """Return the hidden tests of each file."""
        return {"tests": self.repair.tests}

    def demonstrate(self) -> Message:
        """List, read, repair, try, and submit: return the next call of that script."""
        broken = [f for f, text in self.repair.right.items() if self.repair.files[f] != text]
        script = [
            ToolCall(name="list_files"),
            *(ToolCall(name="read_file", arguments={"path": file}) for file in broken),
            *(
                ToolCall(
                    name="write_file", arguments={"path": file, "content": self.repair.right[file]}
                )
                for file in broken
            ),
            ToolCall(name="run", arguments={"command": "python -m doctest *.py && echo fine"}),
        ]
        call = script[self.calls] if self.calls < len(script) else ToolCall(name="submit")
        return assistant("", [call])


def _outcome(result: str) -> str:
    return f"raise {result}" if result == ValueError.__name__ else f"return {result}"
