"""The tier `remote`: calls and outcomes are as in slots here, on a ludus server and on one that
speaks SandboxFusion's protocol.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from ludus.errors import ConfigError, SessionGone, SessionLost
from ludus.sandboxes import (
    Execution,
    ExecutionStatus,
    GradeOptions,
    Limits,
    Sandbox,
    UnknownLanguage,
    examine,
    open_sandbox,
)
from ludus.sandboxes.fusion.fusion_sandbox import FusionSandbox
from ludus.sandboxes.fusion.routes import FusionService
from ludus.sandboxes.grading.hidden_tests import grade_in_detail
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.server import HttpServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "secret"
LIMITS = Limits(timeout_s=5, cpu_s=5, memory_bytes=256 << 20, output_bytes=10_000)


@asynccontextmanager
async def serving(token: str = "") -> AsyncGenerator[HttpServer]:
    try:
        sandbox = await open_sandbox(size=2)
    except ConfigError as error:
        pytest.skip(f"no sandbox holds here: {error}")
    runner = Runner(slots=2, sandbox=sandbox)
    async with HttpServer([SandboxService(runner), FusionService(runner)], token=token) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ludus() -> AsyncIterator[RemoteSandbox]:
    async with serving(TOKEN) as server:
        sandbox = RemoteSandbox(server.url, token=TOKEN)
        yield sandbox
        await sandbox.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fusion() -> AsyncIterator[FusionSandbox]:
    async with serving(TOKEN) as server:
        sandbox = FusionSandbox(f"{server.url}/{TOKEN}")
        yield sandbox
        await sandbox.close()


@pytest.fixture(params=["ludus", "fusion"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return request.getfixturevalue(request.param)


async def run(sandbox: Sandbox, code: str, **more: Any) -> Execution:
    return await sandbox.execute(code, limits=more.pop("limits", LIMITS), **more)


# --- both kinds of server -------------------------------------------------------------------------


async def test_both_are_sandboxes_of_the_tier_remote(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, Sandbox)
    assert sandbox.tier == "remote"


async def test_input_files_and_output_travel(sandbox: Sandbox) -> None:
    program = (
        "print(input(), open('d/in', 'rb').read())\n"
        "open('out', 'wb').write(b'\\xff')\n"
        "import sys; print('complaint', file=sys.stderr)"
    )
    done = await run(
        sandbox, program, stdin="línea\n", files={"d/in": b"\xfe"}, fetch_files=["out", "missing"]
    )
    assert (done.status, done.exit_code) == (ExecutionStatus.OK, 0)
    assert done.stdout == "línea b'\\xfe'\n"
    assert done.stderr == "complaint\n"
    assert done.files == {"out": b"\xff"}
    assert list(done.refused) == ["missing"]


@pytest.mark.parametrize(
    ("code", "limits", "status"),
    [
        ("import sys; sys.exit(3)", {}, ExecutionStatus.ERROR),
        ("while True: pass", {"timeout_s": 0.4, "cpu_s": 0.4}, ExecutionStatus.TIMEOUT),
        ("print('x' * 20_000)", {}, ExecutionStatus.OUTPUT_LIMIT),
    ],
)
async def test_what_a_program_does_is_the_same_there(
    sandbox: Sandbox, code: str, limits: dict[str, Any], status: ExecutionStatus
) -> None:
    given = {"memory_bytes": 256 << 20, "output_bytes": 10_000, **limits}
    done = await run(sandbox, code, limits=Limits(**given))
    assert done.status is status
    assert done.exit_code == (3 if status is ExecutionStatus.ERROR else None)


async def test_a_program_that_does_not_compile_says_so(sandbox: Sandbox) -> None:
    done = await run(sandbox, "int main( {", language="cpp")
    assert (done.status, done.compiled) == (ExecutionStatus.ERROR, False)
    assert done.stderr


async def test_what_cannot_be_tried_raises_as_it_does_here(sandbox: Sandbox) -> None:
    with pytest.raises(UnknownLanguage):
        await run(sandbox, "x", language="cobol")
    for more in ({"files": {"../x": ""}}, {"fetch_files": ["/etc/passwd"]}, {"network": True}):
        with pytest.raises(ConfigError):
            await run(sandbox, "x", **more)


async def test_tests_by_input_and_output_are_graded(sandbox: Sandbox) -> None:
    tests = [{"input": "1", "output": "2"}, {"input": "2", "output": "4"}]
    options = GradeOptions(partial=True, timeout_s=5)
    right = await grade_in_detail(sandbox, "print(int(input()) * 2)", tests, kind="stdin")
    assert right.verdict.reward == 1.0
    half = await grade_in_detail(
        sandbox, "print(2)\nimport os; os._exit(0)", tests, kind="stdin", options=options
    )
    assert half.verdict.ok
    assert [result.passed for result in half.results][1] is False


# --- a ludus server -------------------------------------------------------------------------------


async def test_on_a_ludus_server_out_of_memory_is_told(ludus: RemoteSandbox) -> None:
    done = await run(ludus, "x = bytearray(1 << 30)")
    assert done.status is ExecutionStatus.OOM


async def test_on_a_ludus_server_arguments_and_bytes_travel(ludus: RemoteSandbox) -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.buffer.read())"
    done = await run(ludus, code, argv=["a", "b c"], stdin=b"\xff")
    assert done.stdout == "['a', 'b c'] b'\\xff'\n"


async def test_on_a_ludus_server_every_kind_of_test_is_graded(ludus: RemoteSandbox) -> None:
    solution = "def f(n):\n    return n + 1"
    right = await grade_in_detail(ludus, solution, ["assert f(1) == 2", "assert f(2) == 3"])
    assert (right.verdict.reward, len(right.results)) == (1.0, 2)
    calls = [{"input": [1], "output": 2}]
    options = GradeOptions(entry_point="f")
    right = await grade_in_detail(ludus, solution, calls, kind="function_call", options=options)
    assert right.verdict.reward == 1.0
    wrong = await grade_in_detail(ludus, solution, ["assert f(1) == 3"])
    assert wrong.verdict.reward == 0.0
    unusable = await grade_in_detail(ludus, solution, ["assert ("])
    assert unusable.verdict.status == "invalid"
    with pytest.raises(ConfigError, match="no kind of tests"):
        await grade_in_detail(ludus, solution, ["1"], kind="essay")


async def test_on_a_ludus_server_a_repl_keeps_its_state(ludus: RemoteSandbox) -> None:
    async with await ludus.open_repl() as repl:
        await repl.run("x = 6")
        cells = [repl.run(f"x += 1; print({n}, x)") for n in range(5)]
        done = await asyncio.gather(*cells)
        assert [one.stdout for one in done] == [f"{n} {7 + n}\n" for n in range(5)]
        assert (await repl.run("1/0")).status is ExecutionStatus.ERROR
        with pytest.raises(ConfigError):
            await repl.run("1", timeout_s=1e6)
        assert (await repl.run("x")).stdout == "11\n"
    with pytest.raises(SessionGone):
        await repl.run("x")


async def test_who_ended_a_repl_is_told_by_type_and_not_by_words(ludus: RemoteSandbox) -> None:
    # The name has every word by which a server may speak of itself.
    name = "the-server-stopped-its-slot-it-was-idle"
    async with await ludus.open_repl(name=name) as repl:
        for _ in range(2):
            with pytest.raises(SessionGone) as ended:
                await repl.run("import os; os._exit(0)")
            assert not isinstance(ended.value, SessionLost)
    async with await ludus.open_repl(idle_ttl_s=0.3) as repl:
        await asyncio.sleep(1)
        for _ in range(2):
            with pytest.raises(SessionLost, match="idle"):
                await repl.run("x")


async def test_the_doctor_names_what_is_there(ludus: RemoteSandbox, monkeypatch: Any) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", TOKEN)
    finding = await examine(f"remote:{ludus.url}")
    assert finding.holds
    assert (finding.tier, "a ludus server" in finding.notes[0]) == ("remote", True)
    assert (await ludus.card()).tier in finding.notes[0]
    finding = await examine("remote:http://127.0.0.1:9")
    assert not finding.holds
    assert "no sandbox server at" in finding.problems[0]


@pytest.mark.slow
async def test_execute_and_grade_use_the_server_that_the_environment_names(
    ludus: RemoteSandbox,
) -> None:
    program = (
        "from ludus.sandboxes import execute, grade\n"
        "print(execute('print(6 * 7)').stdout, end='')\n"
        "print(grade('x = 1', ['assert x == 1']).reward)\n"
    )
    environment = {**os.environ, "LUDUS_SANDBOX": f"remote:{ludus.url}", "LUDUS_TOKEN": TOKEN}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.stdout == "42\n1.0\n", done.stderr


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root")
async def test_no_attack_succeeds_through_a_ludus_server(ludus: RemoteSandbox) -> None:
    suite = attack_suite()
    results: dict[str, str] = {}
    with suite.Targets() as targets:
        for name, body in suite.ATTACKS.items():
            program = suite.program(body)
            cpu_s = suite.CPU_S.get(name, 3)
            limits = Limits(timeout_s=5, cpu_s=cpu_s, memory_bytes=256 << 20)
            done = await ludus.execute(program, argv=[json.dumps(targets)], limits=limits)
            results[name] = f"{done.status}|{done.stdout}{done.stderr[-200:]}{done.detail}"
    results["a run after all of them"] = (await run(ludus, "print('fine')")).stdout
    suite.check_held(results, (await ludus.card()).tier)


def attack_suite() -> ModuleType:
    """The table of attacks that every tier must hold against."""
    path = Path(__file__).with_name("test_sandbox_attacks.py")
    spec = importlib.util.spec_from_file_location("attacks", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- a SandboxFusion server -----------------------------------------------------------------------


async def test_calls_cannot_be_graded_by_a_fusion_server(fusion: FusionSandbox) -> None:
    with pytest.raises(ConfigError, match="need slots"):
        await grade_in_detail(fusion, "def f(): pass", ["assert f() == 1"])


async def test_its_address_is_recognised(fusion: FusionSandbox) -> None:
    opened = await open_sandbox(f"remote:{fusion.url}")
    assert isinstance(opened, FusionSandbox)
    assert (await opened.execute("print(1)")).stdout == "1\n"
    await opened.close()
    finding = await examine(fusion.url)
    assert "how it isolates is not told" in finding.notes[0]


class Stand:
    """A server that answers as a SandboxFusion server in trouble does."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def run_code(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.json_response(body, status=status)


@asynccontextmanager
async def standing(*answers: tuple[int, Any]) -> AsyncGenerator[tuple[Stand, FusionSandbox]]:
    stand, application = Stand(*answers), web.Application()
    application.router.add_post("/run_code", stand.run_code)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    sandbox = FusionSandbox(f"http://{host}:{port}", timeout_s=2)
    try:
        yield stand, sandbox
    finally:
        await sandbox.close()
        await runner.cleanup()


RESULT = {"status": "Finished", "execution_time": 0.1, "return_code": 0, "stdout": "1\n"}
FINE = {"status": "Success", "message": "", "run_result": RESULT, "files": {}}
BROKEN = {"status": "SandboxError", "message": "no space left", "run_result": None, "files": {}}


async def test_its_requests_are_those_of_its_own_clients() -> None:
    async with standing((200, FINE)) as (stand, sandbox):
        await sandbox.execute("print(1)", limits=LIMITS, stdin="in", files={"f": b"\xff"})
    assert stand.asked == [
        {
            "code": "print(1)",
            "language": "python",
            "compile_timeout": 30.0,
            "run_timeout": 5.0,
            "memory_limit_MB": 256,
            "stdin": "in",
            "files": {"f": "/w=="},
            "fetch_files": [],
            "args": [],
        }
    ]


@pytest.mark.parametrize("trouble", [(200, BROKEN), (504, {}), (502, {}), (503, {"detail": "x"})])
async def test_trouble_of_the_server_is_tried_again(trouble: tuple[int, Any]) -> None:
    async with standing(trouble, trouble, (200, FINE)) as (stand, sandbox):
        assert (await sandbox.execute("print(1)")).stdout == "1\n"
    assert len(stand.asked) == 3


@pytest.mark.parametrize("trouble", [(200, BROKEN), (504, {}), (500, {"detail": "boom"})])
async def test_trouble_that_lasts_is_an_infra_error(trouble: tuple[int, Any]) -> None:
    async with standing(trouble) as (_, sandbox):
        done = await sandbox.execute("print(1)")
    assert done.status is ExecutionStatus.INFRA_ERROR
    assert done.detail


async def test_a_request_it_refuses_raises_and_is_sent_once() -> None:
    async with standing((422, {"detail": "language"})) as (stand, sandbox):
        with pytest.raises(ConfigError, match="refuses it"):
            await sandbox.execute("print(1)")
    assert len(stand.asked) == 1
