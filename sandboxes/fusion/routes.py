"""SandboxFusion's routes, so that verl and other users only have to change an address.

The expected outputs stay on the server; the program gets inputs alone. A fault of the sandbox ends
the request with a status after which clients try again, and never counts as a failed test.

The two router clients read different fields of the same answer, `execution` and `text`; both are
filled. The result of a script is the value of its last expression.

Their clients know neither 429 nor `Retry-After`: they wait for `compile_timeout + run_timeout + 10`
seconds and try again after a 504. So work waits here within that time, and is answered with 504 if
it cannot be done in time. Work that failed by the sandbox's fault is tried again meanwhile, and is
never answered with `Failed`, which would blame the program.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ludus.background import all_or_none
from ludus.errors import LudusError
from ludus.wire.faults import Refused
from ludus.wire.routes import Context, Load, Nothing, Path, Route, get, post

from ..languages import LANGUAGES, UnknownLanguage, find_language
from ..protocol import Execution, ExecutionStatus, Limits, Program
from ..serving.runner import Runner
from . import fusion_wire as wire
from .custom_extraction import extract_custom
from .extraction import TYPES, blocks_of, choose
from .fusion_wire import (
    SANDBOX_ERROR,
    SUCCESS,
    JupyterBody,
    JupyterReply,
    RunCodeBody,
    RunCodeReply,
    SubmitBody,
    SubmitReply,
    TestCase,
)
from .notebook import Cells, Notebook, run_cells

DATASET_TYPE = "CommonOJDataset"
COMPILE_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = {"cpp": 10.0, "go": 10.0, "java": 10.0}
SCRIPT_TIMEOUT_S = 20.0
"""The protocol's time limit for other languages, in seconds, where a request gives none."""

SHOWN = 1000
"""The most characters of each text of a test in the reply, unless `return_full_case` is set."""

_RELATIVE = 1e-5
_LEAST = 1e-10

RunCode = Callable[[RunCodeBody], Awaitable[RunCodeReply]]


class OjCase(msgspec.Struct, frozen=True):
    """A test of a CommonOJ row."""

    input: dict[str, str]
    output: dict[str, str]


async def judge(runner: Runner, body: SubmitBody, run_code: RunCode) -> SubmitReply:
    """Judge a completion.

    Raises:
        Refused: the row, language or extraction logic cannot be used (422), or the sandbox failed
            (503).
        QueueFull: no slot was free in time.
    """
    language = body.config.language
    if not language:
        raise Refused("config.language must be given for CommonOJDataset", "invalid")
    try:
        find_language(language)
    except UnknownLanguage as error:
        raise Refused(str(error), "unknown_language") from error
    cases = cases_of(body)
    blocks = blocks_of(body.completion, language)
    if logic := body.config.custom_extract_logic:
        patience_s = runner.bounds.queue_timeout_s
        blocks += await extract_custom(runner, body.completion, logic, patience_s=patience_s)
    block = choose(blocks, language)
    code = block.code if block else ""
    program = RunCodeBody(code=code, language=language)
    outcomes = await _judge_cases(runner, body, program, cases, run_code)
    return SubmitReply(
        id=body.id,
        accepted=all(outcome.passed for outcome in outcomes),
        extracted_code=code,
        full_code=code,
        tests=outcomes,
        extracted_type=TYPES.get(block.priority) if block else "empty",
    )


def cases_of(body: SubmitBody) -> list[OjCase]:
    """Return the tests of the row in the request.

    Raises:
        Refused: the row is of another type, or holds no tests.
    """
    kind = body.config.dataset_type
    if kind not in (None, DATASET_TYPE):
        raise Refused(f"dataset_type {kind!r} is not offered here; {DATASET_TYPE} is", "invalid")
    row = body.config.provided_data
    if not isinstance(row, dict) or "test" not in row:
        raise Refused(
            f"dataset {body.dataset!r} is not stored here; give its row as config.provided_data, "
            "with 'test': [{'input': {'stdin': ...}, 'output': {'stdout': ...}}]",
            "invalid",
        )
    try:
        test = row["test"]
        cases = (
            msgspec.json.decode(test, type=list[OjCase])
            if isinstance(test, str)
            else msgspec.convert(test, list[OjCase])
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"config.provided_data['test']: {error}", "invalid") from None
    if not cases or not all("stdin" in case.input and "stdout" in case.output for case in cases):
        raise Refused(
            "every test needs input.stdin and output.stdout, and one is needed", "invalid"
        )
    return cases


async def _judge_cases(
    runner: Runner, body: SubmitBody, program: RunCodeBody, cases: list[OjCase], run_code: RunCode
) -> list[TestCase]:
    """Judge the cases, `runner.slots` at a time, up to the first failure in order."""
    config = body.config
    run_s = config.run_timeout or RUN_TIMEOUT_S.get(program.language, SCRIPT_TIMEOUT_S)
    compile_s = config.compile_timeout or COMPILE_TIMEOUT_S
    runner.check_grading_time(run_s * len(cases))
    stop_early = not config.extra.get("run_all_cases", False)
    full_case = bool(config.extra.get("return_full_case", False))

    async def judge_case(case: OjCase) -> TestCase:
        request = msgspec.structs.replace(
            program, stdin=case.input["stdin"], run_timeout=run_s, compile_timeout=compile_s
        )
        return judged(case, await run_code(request), full_case=full_case)

    outcomes: list[TestCase] = []
    for start in range(0, len(cases), runner.slots):
        wave = cases[start : start + runner.slots]
        for outcome in await all_or_none(judge_case(case) for case in wave):
            if outcome.exec_info.status == SANDBOX_ERROR:
                raise Refused(outcome.exec_info.message, "sandbox_failed")
            outcomes.append(outcome)
            if stop_early and not outcome.passed:
                return outcomes
    return outcomes


def judged(case: OjCase, reply: RunCodeReply, *, full_case: bool) -> TestCase:
    """Judge the output of a single test."""
    output = (reply.run_result.stdout or "") if reply.run_result else ""
    passed = reply.status == SUCCESS and same_lines(output, case.output["stdout"])
    half = (SHOWN - 3) // 2

    def shown(streams: dict[str, str]) -> dict[str, str]:
        # Long texts are shortened to both ends.
        return {
            name: text if full_case or len(text) <= SHOWN else f"{text[:half]}...{text[-half:]}"
            for name, text in streams.items()
        }

    test_info = {"input": shown(case.input), "output": shown(case.output)}
    return TestCase(passed=passed, exec_info=reply, test_info=test_info)


def same_lines(output: str, expected: str) -> bool:
    r"""Return whether two outputs are the same to CommonOJ.

    They are compared line by line, ignoring case and space at the ends of lines; numbers may differ
    from the expected number by a relative 1e-5.

    >>> same_lines("YES \n0.333334", "yes\n0.333333")
    True
    """
    output_lines, expected_lines = output.strip().split("\n"), expected.strip().split("\n")
    return len(output_lines) == len(expected_lines) and all(
        map(_same_line, output_lines, expected_lines)
    )


def _same_line(output_line: str, expected_line: str) -> bool:
    output_line, expected_line = output_line.strip().lower(), expected_line.strip().lower()
    if output_line == expected_line:
        return True
    try:
        value, expected = float(output_line), float(expected_line)
    except ValueError:
        return False
    distance = abs(value - expected)
    return math.isfinite(distance) and distance / max(abs(expected), _LEAST) < _RELATIVE


class RouterBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /execute_batch`."""

    scripts: list[str]
    languages: list[str]
    timeout: float
    """The limit of each script, in seconds."""
    request_timeout: float
    """How long the client waits for the whole batch, in seconds."""


class RouterLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a script."""

    stdout: list[str]
    stderr: list[str]


class RouterExecution(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a script."""

    results: list[dict[str, Any]]
    """Displayed values, with `text` and `is_main_result`; the latter marks a last expression."""
    logs: RouterLogs
    error: dict[str, Any] | None = None
    """The error, with `name`, `value` and `traceback`."""
    execution_count: int | None = None


class RouterItem(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a script of the batch."""

    execution: RouterExecution | None = None
    """None where nothing is known about the script: the client then leaves the script out."""
    text: str | None = None
    exception_str: str | None = None


def router_item(notebook: Notebook) -> RouterItem:
    """Make the answer to a script that was run as the only cell of a notebook."""
    execution = notebook.execution
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return RouterItem(exception_str=f"the sandbox failed: {execution.detail}")
    if not notebook.complete:
        return _stopped(
            str(execution.status),
            execution.detail or f"exit code {execution.exit_code}",
            execution.stderr,
        )
    (cell,) = notebook.cells
    texts = [str(bundle.get("text/plain", "")) for bundle in cell.display]
    last = len(texts) - 1
    results: list[dict[str, Any]] = [
        {"text": text, "is_main_result": number == last} for number, text in enumerate(texts)
    ]
    text = results[-1]["text"] if results else cell.stdout
    error = cell.error[0] if cell.error else {}
    error_of_cell = {
        "name": str(error.get("ename", "")),
        "value": str(error.get("evalue", "")),
        "traceback": "".join(map(str, error.get("traceback", []))),
    }
    return RouterItem(
        execution=RouterExecution(
            results=results,
            logs=RouterLogs(stdout=_lines(cell.stdout), stderr=_lines(cell.stderr)),
            error=error_of_cell if cell.error else None,
            execution_count=1,
        ),
        text=None if cell.error else text,
        exception_str=str(error.get("ename", "error")) if cell.error else None,
    )


def plain_item(status: ExecutionStatus, stdout: str, stderr: str, detail: str) -> RouterItem:
    """Make the answer to a script in another language than Python: the output."""
    if status is ExecutionStatus.INFRA_ERROR:
        return RouterItem(exception_str=f"the sandbox failed: {detail}")
    if status is not ExecutionStatus.OK:
        return _stopped(str(status), detail or stderr[-400:], stderr)
    logs = RouterLogs(stdout=_lines(stdout), stderr=_lines(stderr))
    return RouterItem(execution=RouterExecution(results=[], logs=logs), text=stdout)


def _stopped(name: str, value: str, stderr: str) -> RouterItem:
    """Make the answer to a script that was stopped or ended early, by the script's fault."""
    error = {"name": name, "value": value, "traceback": ""}
    logs = RouterLogs(stdout=[], stderr=_lines(stderr))
    return RouterItem(
        execution=RouterExecution(results=[], logs=logs, error=error),
        exception_str=f"{name}: {value}",
    )


def _lines(text: str) -> list[str]:
    return [text] if text else []


CLIENT_EXTRA_S = 10.0
"""How long SandboxFusion's clients wait beyond the limits they send, in seconds."""

MARGIN_S = 1.0
"""The part of `CLIENT_EXTRA_S` that the answer needs to reach the client."""

RETRY_EVERY_S = 0.2
GATEWAY_TIMEOUT = 504

_PYTEST = (
    "import sys, pytest\nsys.exit(pytest.main(['--no-header', 'test_main.py', *sys.argv[1:]]))\n"
)


class FusionService:
    """Serves SandboxFusion's protocol, and the batch route of open-r1's routers.

    Args:
        runner: the runner of the `SandboxService` on the same server, which starts and stops it.
    """

    name = "sandbox_fusion"

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def routes(self) -> list[Route]:
        """Return the routes that `docs/http.md` lists."""
        table = [
            get("/v1/ping", self.ping, Nothing, str, "Whether it is there"),
            post("/run_code", self.run_code, RunCodeBody, RunCodeReply, "Run a program"),
            post("/run_jupyter", self.run_jupyter, JupyterBody, JupyterReply, "Run cells"),
            post("/submit", self.submit, SubmitBody, SubmitReply, "Judge a completion"),
            post("/execute_batch", self.batch, RouterBody, list[RouterItem], "Run scripts"),
        ]
        return [
            dataclasses.replace(
                route,
                token_in_path=True,
                dialect=True,
                retry_status=GATEWAY_TIMEOUT,
                scope="" if route.method == "GET" else "execute",
            )
            for route in table
        ]

    async def start(self, context: Context) -> None:
        """Do nothing: the sandbox service starts the runner."""

    async def stop(self) -> None:
        """Do nothing: the sandbox service stops the runner."""

    def load(self) -> Load:
        """Return the load of the gate."""
        gate = self._runner.gate
        return Load(queue_depth=gate.waiting + gate.busy, limit=gate.max_waiting + gate.width)

    # --- handlers -------------------------------------------------------------------------------

    async def ping(self, path: Path, query: Nothing) -> str:
        """Answer `GET /v1/ping`: the server is alive."""
        return "pong"

    async def run_code(self, path: Path, body: RunCodeBody) -> RunCodeReply:
        """Answer `POST /run_code`: run a program."""
        try:
            _, language = find_language("python" if body.language == "pytest" else body.language)
        except UnknownLanguage as error:
            if body.language not in wire.LANGUAGES:
                raise Refused(str(error), "unknown_language") from error
            message = f"{body.language!r} is not offered here; {', '.join(sorted(LANGUAGES))} are"
            return RunCodeReply(status=wire.SANDBOX_ERROR, message=message)
        execution = await self._retry(body)
        return wire.run_code_reply(execution, compiles=bool(language.compile))

    async def run_jupyter(self, path: Path, body: JupyterBody) -> JupyterReply:
        """Answer `POST /run_jupyter`: run the cells of a notebook."""
        if body.kernel != "python3":
            raise Refused(f"kernel {body.kernel!r} is not offered here; python3 is", "invalid")
        if not 0 <= body.cell_timeout < math.inf:
            raise Refused(
                f"cell_timeout = {body.cell_timeout}: give seconds, or 0 for no limit", "invalid"
            )
        limits = self._limits(body.total_timeout, body.memory_limit_MB)
        async with _within(body.total_timeout + CLIENT_EXTRA_S - MARGIN_S):
            notebook = await run_cells(
                self._runner,
                # A timer takes no number of seconds that is longer than a life.
                Cells(body.cells, min(body.cell_timeout, body.total_timeout)),
                Program(
                    code="",
                    limits=limits,
                    files=wire.read_files(body.files),
                    fetch_files=body.fetch_files,
                ),
                patience_s=CLIENT_EXTRA_S - MARGIN_S,
            )
        execution = notebook.execution
        if execution.status is ExecutionStatus.INFRA_ERROR:
            message = f"the sandbox failed: {execution.detail}"
            return JupyterReply(status=wire.SANDBOX_ERROR, message=message)
        driver = msgspec.structs.replace(wire.command_result(execution), stdout="")
        if not notebook.complete:
            message = execution.detail or f"the kernel ended in cell {len(notebook.cells) + 1}"
            return JupyterReply(status=wire.FAILED, message=message, driver=driver)
        return JupyterReply(
            status=wire.SUCCESS,
            message="",
            driver=driver,
            cells=notebook.cells,
            files=wire.write_files(execution.files),
        )

    async def submit(self, path: Path, body: SubmitBody) -> SubmitReply:
        """Answer `POST /submit`: judge a completion."""

        async def run_code(request: RunCodeBody) -> RunCodeReply:
            return await self.run_code({}, request)

        return await judge(self._runner, body, run_code)

    async def batch(self, path: Path, body: RouterBody) -> list[RouterItem]:
        """Answer `POST /execute_batch`: run many scripts."""
        if len(body.scripts) != len(body.languages):
            raise Refused(
                f"{len(body.scripts)} scripts and {len(body.languages)} languages", "invalid"
            )
        run_s = min(body.timeout, max(MARGIN_S, body.request_timeout - MARGIN_S))
        limits = self._limits(run_s, wire.UNLIMITED)
        deadline = time.monotonic() + max(MARGIN_S, body.request_timeout - MARGIN_S)
        pairs = zip(body.scripts, body.languages, strict=True)
        return await all_or_none(self._script(*pair, limits, deadline) for pair in pairs)

    async def _script(
        self, script: str, language: str, limits: Limits, deadline: float
    ) -> RouterItem:
        left_s = max(0.01, deadline - time.monotonic())
        try:
            async with asyncio.timeout(left_s):
                program = Program(code=script, language=language, limits=limits)
                if find_language(language)[0] == "python":
                    ran = await run_cells(
                        self._runner,
                        Cells([script]),
                        program,
                        patience_s=left_s,
                        operation="script",
                    )
                    return router_item(ran)
                execution = await self._runner.run(
                    program, patience_s=left_s, operation="script", bounded=False
                )
        except TimeoutError:
            return RouterItem(exception_str="not done within request_timeout")
        except LudusError as error:  # one script must not spoil the others
            return RouterItem(exception_str=str(error))
        return plain_item(execution.status, execution.stdout, execution.stderr, execution.detail)

    # --- running --------------------------------------------------------------------------------

    async def _retry(self, body: RunCodeBody) -> Execution:
        """Run a program, again and again while the sandbox fails and the client waits.

        Raises:
            QueueFull: no slot was free in that time.
            Refused: the time was over, or the request is wrong.
        """
        needs_s = body.run_timeout + body.compile_timeout
        deadline = time.monotonic() + needs_s + CLIENT_EXTRA_S - MARGIN_S
        async with _within(deadline - time.monotonic()):
            while True:
                patience_s = max(0.01, deadline - time.monotonic() - needs_s)
                files = wire.read_files(body.files)
                code, language = body.code, body.language
                if language == "pytest":
                    files["test_main.py"] = code.encode()
                    code, language = _PYTEST, "python"
                program = Program(
                    code=code,
                    language=language,
                    limits=self._limits(
                        body.run_timeout, body.memory_limit_MB, compile_s=body.compile_timeout
                    ),
                    stdin=body.stdin or "",
                    files=files,
                    fetch_files=body.fetch_files,
                    argv=body.args if body.language == "pytest" else (),
                )
                execution = await self._runner.run(
                    program, patience_s=patience_s, operation="run_code", bounded=False
                )
                may_retry = time.monotonic() + RETRY_EVERY_S + needs_s < deadline
                if execution.status is not ExecutionStatus.INFRA_ERROR or not may_retry:
                    return execution
                await asyncio.sleep(RETRY_EVERY_S)

    def _limits(
        self, timeout_s: float, memory_mb: int, *, compile_s: float | None = None
    ) -> Limits:
        """Return the limits of a run; None for `compile_s` is a run without a compiler.

        Raises:
            Refused: a limit is not above 0, or is more than this server grants. Running with less
                than was asked for would be unfair to the program.
        """
        bounds = self._runner.bounds
        try:
            limits = Limits(
                timeout_s=timeout_s,
                cpu_s=timeout_s,
                memory_bytes=wire.memory_bytes(memory_mb, bounds.max_memory_bytes),
                output_bytes=bounds.max_output_bytes,
                compile_s=timeout_s if compile_s is None else compile_s,
            )
        except ValueError as error:
            raise Refused(str(error), "invalid") from None
        self._runner.check(limits)
        return limits


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    """Bound some work by the time that the client waits.

    Raises:
        Refused: the work was not done in time.
    """
    try:
        async with asyncio.timeout(max(0.01, seconds)):
            yield
    except TimeoutError:
        raise Refused(
            f"not done within {seconds:.3g} s: the server is overloaded", "deadline"
        ) from None
