"""Servers that are killed, overloaded or asked without a token: real processes, real signals.

A fault of ours is a typed error, an `infra_error` or an `unavailable` verdict; never a program's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ludus.errors import ConfigError, ServerUnreachable, SessionGone, Unauthorized
from ludus.sandboxes import (
    Execution,
    ExecutionStatus,
    GradeOptions,
    Limits,
    NetworkPolicy,
    open_sandbox,
)
from ludus.sandboxes.remote import RemoteSandbox
from ludus.sandboxes.serving.blocking import connect
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.serving.sandbox_wire import Bounds, ExecuteBody
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.principals import Principals
from ludus.wire.server import HttpServer

SECRET = "s3cret/+ ü"


class Process:
    """`ludus serve sandbox` as its own process."""

    def __init__(self, *, port: int = 0, slots: int = 2) -> None:
        command = [sys.executable, "-m", "ludus", "serve", f"sandbox?slots={slots}"]
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if " at http" not in line:
            self.kill()
            pytest.skip("no sandbox holds here")
        self.url = line.rpartition(" ")[2].strip()
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@contextmanager
def serving(**options: int) -> Generator[Process]:
    server = Process(**options)
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def in_process(bounds: Bounds, **options: Any) -> AsyncGenerator[HttpServer]:
    try:
        sandbox = await open_sandbox(size=2)
    except ConfigError as error:
        pytest.skip(f"no sandbox holds here: {error}")
    service = SandboxService(Runner(slots=2, bounds=bounds, sandbox=sandbox))
    async with HttpServer([service], **options) as server:
        yield server


@asynccontextmanager
async def remote(url: str, **options: Any) -> AsyncGenerator[RemoteSandbox]:
    sandbox = RemoteSandbox(url, **options)
    try:
        yield sandbox
    finally:
        await sandbox.close()


# --- kill -9 ------------------------------------------------------------------------------------


def children(pid: int) -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found |= {int(entry.name)} if parent == pid else set()
    return found


def descendants(pid: int) -> set[int]:
    found = children(pid)
    return found.union(*map(descendants, found))


@pytest.mark.slow
async def test_killed_in_the_middle_of_programs_the_client_is_told_that_nothing_is_known() -> None:
    with serving() as server:
        async with remote(server.url, timeout_s=0.5) as sandbox:
            assert (await sandbox.execute("print(1)")).ok
            running = [
                asyncio.create_task(sandbox.execute("import time; time.sleep(30)"))
                for _ in range(3)
            ]
            await asyncio.sleep(0.5)
            server.process.send_signal(signal.SIGKILL)
            for done in await asyncio.gather(*running):
                assert done.status is ExecutionStatus.INFRA_ERROR
                assert "no answer from" in done.detail
            grading = await sandbox.grade_in_detail("x = 1", ["assert x == 1"])
            assert grading.verdict.status == "unavailable"
            assert grading.verdict.reward is None


@pytest.mark.slow
async def test_killed_its_slots_die_with_it() -> None:
    with serving() as server:
        async with remote(server.url, timeout_s=0.5) as sandbox:
            task = asyncio.create_task(sandbox.execute("import time; time.sleep(30)"))
            await asyncio.sleep(0.5)
            processes = descendants(server.process.pid)
            assert processes
            server.kill()
            ends = time.monotonic() + 60
            while any(Path(f"/proc/{pid}").exists() for pid in processes):
                assert time.monotonic() < ends, "slots outlived their server"
                await asyncio.sleep(0.02)
            assert (await task).status is ExecutionStatus.INFRA_ERROR


@pytest.mark.slow
async def test_started_again_it_goes_on_and_repls_are_410() -> None:
    with serving() as first:
        async with remote(first.url, timeout_s=60) as sandbox:
            repl = await sandbox.open_repl(name="before")
            await repl.run("x = 1")
            first.kill()
            # programs and gradings wait for it to come back
            waiting = asyncio.create_task(sandbox.execute("print('after')"))
            grading = asyncio.create_task(sandbox.grade_in_detail("x = 1", ["assert x == 1"]))
            await asyncio.sleep(0.3)
            with serving(port=first.port):
                assert (await waiting).stdout == "after\n"
                assert (await grading).verdict.reward == 1.0
                with pytest.raises(SessionGone, match="none was made since this server"):
                    await repl.run("x")
                with pytest.raises(SessionGone, match="is over"):
                    await repl.run("x")
                async with (
                    aiohttp.ClientSession() as http,
                    http.post(
                        f"{first.url}/v1/repls/before/run", json={"seq": 1, "code": "x"}
                    ) as reply,
                ):
                    assert reply.status == 410
                    assert (await reply.json())["error"]["code"] == "session_gone"
                await repl.close()
                again = await sandbox.open_repl(name="another")
                assert (await again.run("'new'")).stdout == "'new'\n"
                await again.close()


@pytest.mark.slow
async def test_a_file_that_is_sent_during_a_long_cell_waits_and_ends_nothing() -> None:
    async with in_process(Bounds()) as server, aiohttp.ClientSession(server.url) as http:

        async def post(path: str, body: dict[str, Any]) -> Any:
            async with http.post(path, json=body) as reply:
                assert reply.status == 200, await reply.text()
                return await reply.json()

        await post("/v1/repls", {"repl": "a"})
        code = "import time; time.sleep(31); 'done'"  # longer than any answer may take
        body = {"seq": 0, "code": code, "timeout_s": 60}
        cell = asyncio.create_task(post("/v1/repls/a/run", body))
        await asyncio.sleep(0.3)
        assert (await post("/v1/repls/a/write", {"files": {"f": "ZGF0YQ=="}}))["written"] == ["f"]
        assert (await cell)["execution"]["stdout"] == "'done'\n"


@pytest.mark.slow
async def test_killed_during_a_cell_its_repl_is_lost_and_not_run_again() -> None:
    with serving() as server:
        async with remote(server.url, timeout_s=0.5) as sandbox:
            repl = await sandbox.open_repl()
            cell = asyncio.create_task(repl.run("import time; time.sleep(30)", timeout_s=60))
            await asyncio.sleep(0.3)
            server.kill()
            with pytest.raises(ServerUnreachable):
                await cell
            with pytest.raises(SessionGone, match="not known whether its last cell ran"):
                await repl.run("1")


@pytest.mark.slow
async def test_a_program_whose_slot_is_killed_is_run_again_in_another() -> None:
    with serving(slots=2) as server:
        async with remote(server.url) as sandbox:
            await sandbox.execute("print(1)")
            running = [
                asyncio.create_task(sandbox.execute("import time; time.sleep(1); print('done')"))
                for _ in range(2)
            ]
            await asyncio.sleep(0.3)
            for pid in children(server.process.pid):
                os.kill(pid, signal.SIGKILL)
            for done in await asyncio.gather(*running):
                assert done.stdout == "done\n", done


async def test_two_sandboxes_of_one_process_share_nothing_and_end_apart() -> None:
    async with in_process(Bounds()) as stays, remote(stays.url) as sandbox:
        running = asyncio.create_task(sandbox.execute("import time; time.sleep(1); print('kept')"))
        async with in_process(Bounds()) as ends, remote(ends.url) as other:
            mine, theirs = await asyncio.gather(
                *(one.execute("import os; print(os.getuid())") for one in (sandbox, other))
            )
            assert os.getuid() != 0 or mine.stdout != theirs.stdout
        assert (await running).stdout == "kept\n"
        bounded = await sandbox.execute(
            "x = bytearray(1 << 30)", limits=Limits(memory_bytes=128 << 20)
        )
        assert bounded.status is ExecutionStatus.OOM


# --- overload -----------------------------------------------------------------------------------

SLEEP = "import time; time.sleep(1)"
LONG_SLEEP = "import time; time.sleep(4)"


async def test_a_full_line_is_429_with_its_length_in_seconds() -> None:
    async with in_process(Bounds(max_queue=2)) as server, aiohttp.ClientSession(server.url) as http:
        running = [
            asyncio.create_task(_post(http, "/v1/execute", {"code": SLEEP})) for _ in range(4)
        ]
        await held(http, busy=2, waiting=2)
        async with http.post("/v1/execute", json={"code": "1"}) as reply:
            assert reply.status == 429
            assert int(reply.headers["Retry-After"]) >= 1
            error = (await reply.json())["error"]
        assert (error["code"], error["retryable"]) == ("overloaded", True)
        assert (error["queue_depth"], error["limit"]) == (4, 4)
        assert error["retry_after_s"] > 0
        async with http.get("/readyz") as ready:
            assert ready.status == 503
        status, reply = await _post(http, "/v1/execute_batch", {"items": [{"code": "1"}] * 2})
        assert status == 200
        assert [item["status"] for item in reply["items"]] == [429, 429]
        status, reply = await _post(http, "/v1/grade", {"solution": "x=1", "tests": ["1"]})
        assert status == 429
        assert all(status == 200 for status, _ in await asyncio.gather(*running))
        async with http.get("/metrics") as metrics:
            assert 'ludus_refused_total{cause="sandbox"} 4.0' in await metrics.text()


async def test_who_waits_no_longer_than_it_wants_is_429() -> None:
    async with in_process(Bounds()) as server, aiohttp.ClientSession(server.url) as http:
        running = [
            asyncio.create_task(_post(http, "/v1/execute", {"code": LONG_SLEEP})) for _ in range(2)
        ]
        await held(http, busy=2)
        status, reply = await _post(http, "/v1/execute", {"code": "1", "queue_timeout_s": 0.1})
        assert (status, "within 0.1 s" in reply["error"]["message"]) == (429, True)
        assert not any(task.done() for task in running)
        await asyncio.gather(*running)


async def test_the_client_comes_back_until_there_is_room() -> None:
    async with (
        in_process(Bounds(max_queue=1)) as server,
        remote(server.url, timeout_s=30) as sandbox,
    ):
        programs = [f"import time; time.sleep(0.1); print({n})" for n in range(12)]
        done = await asyncio.gather(*(sandbox.execute(program) for program in programs))
        assert [one.stdout for one in done] == [f"{n}\n" for n in range(12)]
        bodies = [ExecuteBody(code=program) for program in programs]
        answers = await sandbox.execute_batch(bodies)
        assert [getattr(one, "stdout", one) for one in answers] == [f"{n}\n" for n in range(12)]


async def test_a_client_without_patience_is_told_that_nothing_is_known() -> None:
    async with (
        in_process(Bounds(max_queue=1, queue_timeout_s=0.1)) as server,
        aiohttp.ClientSession(server.url) as http,
        remote(server.url, timeout_s=0.1) as sandbox,
    ):
        hog = {"code": "import time; time.sleep(200)", "timeout_s": 200}
        running = [asyncio.create_task(_post(http, "/v1/execute", hog)) for _ in range(2)]
        await held(http, busy=2)
        body = ExecuteBody(code="1", timeout_s=0.01, queue_timeout_s=0.05)
        answers = await sandbox.execute_batch([body] * 2)
        for answer in answers:
            assert isinstance(answer, Execution)
            assert answer.status is ExecutionStatus.INFRA_ERROR
        for task in running:
            task.cancel()


async def test_clients_that_hang_up_leave_the_line_and_give_their_slots_back() -> None:
    async with in_process(Bounds(max_queue=6)) as server, aiohttp.ClientSession(server.url) as http:
        hog = {"code": "import time; time.sleep(200)", "timeout_s": 200}
        running = [asyncio.create_task(_post(http, "/v1/execute", hog)) for _ in range(8)]
        await held(http, busy=2, waiting=6)  # the line is full
        assert (await _post(http, "/v1/execute", {"code": "1"}))[0] == 429
        for task in running:
            task.cancel()  # closes its connection
        await asyncio.gather(*running, return_exceptions=True)
        async with asyncio.timeout(30):
            while (await _post(http, "/v1/execute", {"code": "print(1)"}))[0] == 429:
                await asyncio.sleep(0.05)
            status, reply = await _post(http, "/v1/execute", {"code": "print(1)"})
        assert (status, reply["stdout"]) == (200, "1\n")


async def test_the_name_of_a_repl_is_no_capability_of_another_principal(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text(
        "".join(f"[{name}]\ntoken = '{name}'\nscopes = ['execute']\n" for name in ("ann", "bob"))
    )
    principals = Principals("", tmp_path / "tokens.toml")

    async with in_process(Bounds(), principals=principals) as server:
        ann, bob = (
            aiohttp.ClientSession(server.url, headers={"Authorization": f"Bearer {name}"})
            for name in ("ann", "bob")
        )
        async with ann, bob:
            assert (await _post(ann, "/v1/repls", {"repl": "mine"}))[0] == 200
            assert (await _post(ann, "/v1/repls/mine/run", {"seq": 0, "code": "x = 42"}))[0] == 200
            for path, body in (
                ("run", {"seq": 1, "code": "x = 0"}),
                ("read", {"path": "a"}),
                ("write", {"files": {"a": ""}}),
                ("snapshot", {"snapshot": "theirs"}),
            ):
                assert (await _post(bob, f"/v1/repls/mine/{path}", body))[0] in (404, 410), path
            async with bob.delete("/v1/repls/mine") as reply:
                assert not (await reply.json())["ended"]
            assert (await _post(bob, "/v1/repls", {"repl": "mine"}))[0] == 409
            run = {"seq": 1, "code": "print(x)"}
            _, answer = await _post(ann, "/v1/repls/mine/run", run)
            assert answer["execution"]["stdout"] == "42\n"


async def test_runs_count_against_the_rate_of_a_principal(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[ann]\ntoken = 'ann'\nscopes = ['execute']\nrate = 0.01\n")
    bearer = {"Authorization": "Bearer ann"}
    async with (
        in_process(Bounds(), principals=Principals("", tokens)) as server,
        aiohttp.ClientSession(server.url, headers=bearer) as ann,
    ):
        replies = [await _post(ann, "/v1/execute", {"code": "1"}) for _ in range(3)]
        assert [status for status, _ in replies] == [200, 429, 429]
        assert "may do 0.01 operations a second" in str(replies[-1][1])


# --- tokens and addresses ------------------------------------------------------------------------


async def test_a_wrong_token_is_401_and_raises() -> None:
    async with in_process(Bounds(), token=SECRET) as server:
        async with aiohttp.ClientSession(server.url) as http:
            for path in ("/v1/execute", "/v1/grade", "/v1/repls", "/v1/execute_batch"):
                for header in ({}, {"Authorization": "Bearer wrong"}):
                    async with http.post(path, json={}, headers=header) as reply:
                        assert reply.status == 401
                        assert reply.headers["WWW-Authenticate"] == "Bearer"
        for token in ("", "wrong"):
            async with remote(server.url, token=token) as sandbox:
                with pytest.raises(Unauthorized):
                    await sandbox.execute("1")
                with pytest.raises(Unauthorized):
                    await sandbox.execute_batch([ExecuteBody(code="1")])
                with pytest.raises(Unauthorized):
                    await sandbox.grade_in_detail("", ["1"])
                with pytest.raises(Unauthorized):
                    await sandbox.open_repl()
                with pytest.raises(ConfigError, match="token"):
                    await open_sandbox(f"remote:{server.url}")


async def test_an_address_where_nothing_is_says_so_when_it_is_opened() -> None:
    with pytest.raises(ConfigError, match="no sandbox server at http://127"):
        await open_sandbox("remote:http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="looks like http://"):
        await open_sandbox("remote:ftp://x")
    for several in ("http://a:1,http://b:1", "dns+http://a:1", "file:/servers"):
        with pytest.raises(ConfigError, match="names several servers, and a sandbox has one"):
            await open_sandbox(f"remote:{several}")


async def test_a_server_that_is_none_of_ours_says_so_when_it_is_opened() -> None:
    async with HttpServer([]) as server:
        with pytest.raises(ConfigError, match="no sandbox server at"):
            await open_sandbox(server.url)


async def test_a_request_that_is_wrong_raises_and_is_not_sent_again() -> None:
    async with in_process(Bounds(max_timeout_s=5)) as server, remote(server.url) as sandbox:
        with pytest.raises(ConfigError, match="timeout_s is 6; this server grants at most 5"):
            await sandbox.execute("1", limits=Limits(timeout_s=6, cpu_s=1, compile_s=1))
        with pytest.raises(ConfigError, match="is not 'exact'"):
            await sandbox.grade_in_detail(
                "", [{}], kind="stdin", options=GradeOptions(compare="x", timeout_s=1)
            )
        answers = await sandbox.execute_batch(
            [ExecuteBody(code="1"), ExecuteBody(code="1", timeout_s=6)]
        )
        assert isinstance(answers[0], Execution)
        assert isinstance(answers[1], ConfigError)


async def test_an_oversized_batch_is_sent_in_pieces_and_an_oversized_program_raises() -> None:
    async with (
        in_process(Bounds(), max_body_bytes=100_000) as server,
        remote(server.url) as sandbox,
    ):
        bodies = [ExecuteBody(code=f"print({n})  # {'x' * 30_000}") for n in range(7)]
        answers = await sandbox.execute_batch(bodies)
        assert [getattr(one, "stdout", one) for one in answers] == [f"{n}\n" for n in range(7)]
        with pytest.raises(ConfigError, match="too large"):
            await sandbox.execute("#" * 200_000)
        answers = await sandbox.execute_batch([*bodies[:2], ExecuteBody(code="#" * 200_000)])
        assert [getattr(one, "stdout", "") for one in answers] == ["0\n", "1\n", ""]
        assert isinstance(answers[2], ConfigError)
        assert "too large" in str(answers[2])


async def test_a_program_with_a_network_is_not_run_again_for_its_output() -> None:
    try:
        slots = await open_sandbox(size=2, network=NetworkPolicy(hosts=("example.org",)))
    except ConfigError as error:
        pytest.skip(f"no sandbox with a network holds here: {error}")
    runner = Runner(slots=2, bounds=Bounds(max_reply_bytes=1000), sandbox=slots)
    async with (
        HttpServer([SandboxService(runner)]) as server,
        aiohttp.ClientSession(server.url) as http,
        remote(server.url) as sandbox,
    ):
        said = {}
        for network in (False, True):
            body = ExecuteBody(code="print('x' * 900)", network=network)
            answers = await sandbox.execute_batch([body] * 3)
            said[network] = sorted(getattr(one, "status", "") for one in answers)
        assert said == {False: ["ok"] * 3, True: ["infra_error"] * 2 + ["ok"]}
        async with http.get("/metrics") as reply:
            counted = await reply.text()
        runs = re.search(r'runs_total\{operation="execute",status="ok"\} (\d+)', counted)
        assert runs is not None
        assert int(runs[1]) == 5 + 3  # without a network the two that did not fit ran once more


# --- blocking use --------------------------------------------------------------------------------


@pytest.mark.slow
def test_scripts_use_it_without_an_event_loop() -> None:
    with serving() as server, connect(server.url) as sandbox:
        assert sandbox.card().slots == 2
        assert sandbox.execute("print(6 * 7)").stdout == "42\n"
        assert sandbox.grade("def f():\n    return 1", ["assert f() == 1"]).reward == 1.0
        assert [
            getattr(one, "stdout", "")
            for one in sandbox.execute_batch(ExecuteBody(code=f"print({n})") for n in range(3))
        ] == ["0\n", "1\n", "2\n"]
        with sandbox.repl() as repl:
            repl.write({"f": "text"})
            assert repl.run("open('f').read()").stdout == "'text'\n"
            assert repl.read("f") == b"text"
            with pytest.raises(OSError, match="no such file"):
                repl.read("missing")
        with pytest.raises(SessionGone):
            repl.run("1")


async def _post(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as reply:
        return reply.status, await reply.json()


async def held(http: aiohttp.ClientSession, *, busy: int, waiting: int = 0) -> None:
    """Wait until so many slots are busy, and so many requests wait."""
    async with asyncio.timeout(60):
        while True:
            async with http.get("/metrics") as metrics:
                told = await metrics.text()
            if f"slots_busy {busy}.0" in told and f"sandbox_waiting {waiting}.0" in told:
                return
            await asyncio.sleep(0.01)
