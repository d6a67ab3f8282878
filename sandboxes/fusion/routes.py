"""SandboxFusion's routes, so that verl and other users only have to change an address.

Their clients know neither 429 nor `Retry-After`: they wait for `compile_timeout + run_timeout + 10`
seconds and try again after a 504. So work waits here within that time, and is answered with 504 if
it cannot be done in time. Work that failed by the sandbox's fault is tried again meanwhile, and is
never answered with `Failed`, which would blame the program.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from ludus.errors import LudusError
from ludus.wire.faults import Refused
from ludus.wire.routes import Context, Load, Nothing, Path, Route, get, post

from ..languages import LANGUAGES, UnknownLanguage, find_language
from ..over_http.runner import Runner
from ..protocol import Execution, ExecutionStatus, Limits, Program
from . import fusion_wire as wire
from .fusion_wire import (
    JupyterBody,
    JupyterReply,
    RunCodeBody,
    RunCodeReply,
    SubmitBody,
    SubmitReply,
)
from .notebook import Cells, run_cells
from .router import RouterBody, RouterItem, plain_item, router_item
from .submit import judge

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
                route, token_in_path=True, dialect=True, retry_status=GATEWAY_TIMEOUT
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
        limits = self._limits(body.total_timeout, body.memory_limit_MB)
        async with _within(body.total_timeout + CLIENT_EXTRA_S - MARGIN_S):
            notebook = await run_cells(
                self._runner,
                Cells(body.cells, body.cell_timeout),
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
        return list(
            await asyncio.gather(*(self._script(*pair, limits, deadline) for pair in pairs))
        )

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
                limits = self._limits(body.run_timeout, body.memory_limit_MB)
                program = Program(
                    code=code,
                    language=language,
                    limits=msgspec.structs.replace(limits, compile_s=body.compile_timeout),
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

    def _limits(self, timeout_s: float, memory_mb: int) -> Limits:
        """Return the limits of a run.

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
