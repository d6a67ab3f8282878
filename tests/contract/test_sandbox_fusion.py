"""SandboxFusion's clients are served as they are: the requests verl, its Python client and open-r1
send, replayed, and what they read of the replies.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import open_sandbox
from ludus.sandboxes.fusion.routes import FusionService
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.serving.sandbox_wire import Bounds
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.server import HttpServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "s3cret+/ü"


@asynccontextmanager
async def serving(
    tier: str | None = None, *, max_timeout_s: float = 300.0, **options: Any
) -> AsyncGenerator[HttpServer]:
    try:
        sandbox = await open_sandbox(tier, size=2)
    except ConfigError as error:
        pytest.skip(f"no sandbox holds here: {error}")
    runner = Runner(
        slots=2, bounds=Bounds(max_queue=1, max_timeout_s=max_timeout_s), sandbox=sandbox
    )
    services = [SandboxService(runner), FusionService(runner)]
    async with HttpServer(services, **options) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serving(max_body_bytes=4 << 20) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        yield session


async def ask(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(path, json=body) as reply:
        return reply.status, await reply.json()


def verl_request(code: str, stdin: str | None = None, **changes: Any) -> bytes:
    """The body verl's reward function and code tool send, to the letter."""
    body = {
        "compile_timeout": 10,
        "run_timeout": 10,
        "code": code,
        "stdin": stdin,
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
    }
    return json.dumps({**body, **changes}).encode()


async def as_verl(
    http: aiohttp.ClientSession, code: str, stdin: str | None = None, **changes: Any
) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    data = verl_request(code, stdin, **changes)
    async with http.post("/run_code", data=data, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        assert reply.content_type == "application/json"
        return await reply.json()


# --- /run_code, as verl sends it ----------------------------------------------------------------


async def test_the_health_check_is_answered_pong(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/ping") as reply:
        assert (reply.status, await reply.json()) == (200, "pong")


async def test_a_program_reads_its_input_and_succeeds(http: aiohttp.ClientSession) -> None:
    reply = await as_verl(http, "print(int(input()) + 1)", "41\n")
    assert reply["status"] == "Success"
    run = reply["run_result"]
    assert (run["status"], run["return_code"], run["stdout"]) == ("Finished", 0, "42\n")
    assert run["execution_time"] > 0
    assert (reply["compile_result"], reply["executor_pod_name"]) == (None, None)


async def test_without_input_a_read_meets_the_end(http: aiohttp.ClientSession) -> None:
    reply = await as_verl(http, "import sys; print(repr(sys.stdin.read()))")
    assert reply["run_result"]["stdout"] == "''\n"


async def test_a_function_is_called_by_a_wrapper_around_the_program(
    http: aiohttp.ClientSession,
) -> None:
    wrapper = """
from string import *
from collections import *
from os import *
from io import *
from sys import *
from builtins import *
from typing import *
import json, sys

class Solution:
    def add(self, a: List[int], b: int) -> List[int]:
        return [x + b for x in a]

def call():
    arguments = [json.loads(line) for line in sys.stdin.read().split('\\n')]
    return getattr(globals()['Solution'](), 'add')(*arguments)

if __name__ == '__main__':
    print(json.dumps(call()))
"""
    reply = await as_verl(http, wrapper, "[1, 2]\n3")
    assert reply["run_result"]["stdout"] == "[4, 5]\n", reply


@pytest.mark.parametrize(
    ("code", "changes", "run_status", "return_code"),
    [
        ("import sys; sys.exit(3)", {}, "Finished", 3),
        ("1/0", {}, "Finished", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "Finished", -9),
        ("while True: pass", {"run_timeout": 1}, "TimeLimitExceeded", None),
        (
            "print('kept', flush=True)\nwhile True: pass",
            {"run_timeout": 1},
            "TimeLimitExceeded",
            None,
        ),
        ("x = bytearray(1 << 30)", {"memory_limit_MB": 128}, "Finished", -9),
    ],
)
async def test_what_a_program_does_wrong_is_failed(
    http: aiohttp.ClientSession,
    code: str,
    changes: dict[str, Any],
    run_status: str,
    return_code: int | None,
) -> None:
    reply = await as_verl(http, code, **changes)
    run = reply["run_result"]
    assert (reply["status"], run["status"]) == ("Failed", run_status)
    assert run["return_code"] == return_code
    assert run["stdout"] == ("kept\n" if "kept" in code else "")


async def test_much_output_is_neither_lost_nor_a_timeout(http: aiohttp.ClientSession) -> None:
    reply = await as_verl(http, "print('x' * 3_000_000)")
    assert (reply["status"], len(reply["run_result"]["stdout"])) == ("Success", 3_000_001)


async def test_a_child_that_keeps_the_output_open_delays_nothing(
    http: aiohttp.ClientSession,
) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('done')"
    async with asyncio.timeout(120):
        reply = await as_verl(http, code)
    assert (reply["status"], reply["run_result"]["stdout"]) == ("Success", "done\n")


async def test_compiled_languages_have_a_compile_result(http: aiohttp.ClientSession) -> None:
    source = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n * 2; }"
    reply = await as_verl(http, source, "21", language="cpp")
    if reply["status"] != "Success" and "not found" in str(reply):
        pytest.skip("no C++ compiler here")
    assert reply["compile_result"]["return_code"] == 0
    assert (reply["status"], reply["run_result"]["stdout"]) == ("Success", "42")
    reply = await as_verl(http, "int main( {", language="cpp")
    assert (reply["status"], reply["run_result"]) == ("Failed", None)
    assert reply["compile_result"]["status"] == "Finished"
    assert reply["compile_result"]["return_code"] != 0
    assert "error" in reply["compile_result"]["stderr"]


async def test_the_compilers_time_is_the_requests(http: aiohttp.ClientSession) -> None:
    slow = (
        "template<int N> struct A { static const int v = A<N-1>::v + A<N-2>::v; };\n"
        "template<> struct A<0> { static const int v = 0; };\n"
        "template<> struct A<1> { static const int v = 1; };\n"
        "constexpr int f(int n) { return n < 2 ? n : f(n-1) + f(n-2); }\n"
        "static_assert(f(31) > 0);\n"
        "static_assert(f(30) > 0);\n"
        "int main() { return A<800>::v; }\n"
    )
    reply = await as_verl(http, slow, language="cpp", compile_timeout=0.05)
    assert (reply["status"], reply["run_result"]) == ("Failed", None)
    assert reply["compile_result"]["status"] == "TimeLimitExceeded"


async def test_bash_and_pytest_are_run_too(http: aiohttp.ClientSession) -> None:
    reply = await as_verl(http, "read x; echo $((x * 2))", "21", language="bash")
    assert reply["run_result"]["stdout"] == "42\n"
    test = "def test_right():\n    assert 1\ndef test_wrong():\n    assert 0"
    reply = await as_verl(http, test, language="pytest", args=["-q"])
    assert reply["status"] == "Failed"
    assert "1 failed, 1 passed" in reply["run_result"]["stdout"], reply
    reply = await as_verl(http, test, language="pytest", args=["-k", "right"])
    assert reply["status"] == "Success", reply


async def test_a_language_this_server_does_not_have_is_ours_to_answer_for(
    http: aiohttp.ClientSession,
) -> None:
    reply = await as_verl(http, "x", language="java")
    assert reply["status"] == "SandboxError"
    assert "'java' is not offered here" in reply["message"]
    status, reply = await ask(http, "/run_code", {"code": "x", "language": "cobol"})
    assert status == 404


async def test_files_go_both_ways_and_never_outside(http: aiohttp.ClientSession) -> None:
    files = {
        "in.txt": base64.b64encode(b"\xffin").decode(),
        "left_out": None,
        "x/IGNORE_THIS_FILE": "!",
    }
    code = "import os\nprint(sorted(os.listdir('.')))\nopen('out', 'wb').write(b'\\xfeout')"
    reply = await as_verl(http, code, files=files, fetch_files=["out", "missing"])
    assert reply["run_result"]["stdout"] == "['in.txt']\n"
    assert {name: base64.b64decode(data) for name, data in reply["files"].items()} == {
        "out": b"\xfeout"
    }
    for field in (
        {"files": {"../../../../tmp/x": ""}},
        {"fetch_files": ["/etc/hostname"]},
        {"fetch_files": ["../../../etc/debian_version"]},
        {"files": {"a": "=x"}},
    ):
        body = {**json.loads(verl_request("1")), **field}
        assert (await ask(http, "/run_code", body))[0] == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"language": "python"}, 422),
        ({"code": 1, "language": "python"}, 422),
        ({"code": "1", "language": "python", "run_timeout": 0}, 422),
        ({"code": "1", "language": "python", "run_timeout": 1e9}, 422),
        ({"code": "1", "language": "python", "compile_timeout": 0}, 422),
        ({"code": "1", "language": "python", "compile_timeout": 1e9}, 422),
        ({"code": "1", "language": "python", "memory_limit_MB": 1 << 30}, 422),
        ({"code": "1", "language": "python", "a_field_of_tomorrow": 1}, 200),
    ],
)
async def test_what_is_wrong_is_refused_and_what_is_unknown_is_ignored(
    http: aiohttp.ClientSession, body: Any, status: int
) -> None:
    assert (await ask(http, "/run_code", body))[0] == status


async def test_a_server_that_grants_little_time_runs_what_asks_for_less() -> None:
    async with serving(max_timeout_s=12.0) as server, aiohttp.ClientSession(server.url) as http:
        assert (await as_verl(http, "print(1)"))["status"] == "Success"
        status, reply = await ask(http, "/run_jupyter", {"cells": ["1"], "total_timeout": 5})
        assert (status, reply["status"]) == (200, "Success")
        logic = "submit_code_blocks([CodeBlock(priority=0, code='print(1)', language='python')])"
        test = {"input": {"stdin": ""}, "output": {"stdout": "1"}}
        config = {
            "dataset_type": "CommonOJDataset",
            "language": "python",
            "run_timeout": 5,
            "compile_timeout": 5,
            "custom_extract_logic": logic,
            "provided_data": {"test": [test]},
        }
        body = {"dataset": "d", "id": 1, "completion": "", "config": config}
        status, reply = await ask(http, "/submit", body)
        assert (status, reply.get("accepted")) == (200, True), reply


async def test_malformed_json_is_400_and_a_large_body_413(http: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/run_code", "/run_jupyter", "/submit", "/execute_batch"):
        async with http.post(path, data=b'{"code": ', headers=headers) as reply:
            assert reply.status == 400

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (1 << 20)

    async with http.post("/run_code", data=chunks(), headers=headers) as reply:
        assert reply.status == 413


# --- the token in the address -------------------------------------------------------------------


async def test_the_token_may_be_the_first_part_of_the_path() -> None:
    async with serving(token=TOKEN) as server, aiohttp.ClientSession(server.url) as http:
        prefix = "/" + quote(TOKEN, safe="")
        body = {"code": "print(1)", "language": "python"}
        status, reply = await ask(http, f"{prefix}/run_code", body)
        assert (status, reply["status"]) == (200, "Success")
        async with http.get(f"{prefix}/v1/ping") as pong:
            assert await pong.json() == "pong"
        assert (await ask(http, "/wrong/run_code", body))[0] == 401
        assert (await ask(http, "/run_code", body))[0] == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with http.post("/run_code", json=body, headers=headers) as answer:
            assert answer.status == 200
        # only there: elsewhere a path would end up in the logs of proxies for nothing
        assert (await ask(http, f"{prefix}/v1/execute", {"code": "1"}))[0] == 404
        async with http.get("/metrics", headers=headers) as metrics:
            assert TOKEN not in await metrics.text()


# --- overload and faults of ours ------------------------------------------------------------------


@pytest.mark.slow
async def test_overload_waits_inside_the_clients_time_and_then_is_504() -> None:
    async with serving() as server, aiohttp.ClientSession(server.url) as http:
        hog = {"code": "import time; time.sleep(30)", "timeout_s": 60}
        hogs = [asyncio.create_task(ask(http, "/v1/execute", hog)) for _ in range(2)]
        await busy(http, 2)
        body = json.loads(verl_request("print(1)", compile_timeout=0.5, run_timeout=0.5))
        # the line of native requests holds 1; these clients know no 429
        answers = await asyncio.gather(*(ask(http, "/run_code", body) for _ in range(5)))
        assert [status for status, _ in answers] == [504] * 5
        # the client gives up after 0.5 + 0.5 + 10 s
        assert not any(hog.done() for hog in hogs)
        assert all(status == 200 for status, _ in await asyncio.gather(*hogs))
        assert (await ask(http, "/run_code", body))[0] == 200


async def test_a_short_overload_only_takes_time(http: aiohttp.ClientSession) -> None:
    code = "import time; time.sleep(0.3); print('done')"
    replies = await asyncio.gather(*(as_verl(http, code) for _ in range(12)))
    assert {reply["run_result"]["stdout"] for reply in replies} == {"done\n"}


async def test_a_server_that_stops_is_504_to_them() -> None:
    async with serving() as server, aiohttp.ClientSession(server.url) as http:
        running = asyncio.create_task(as_verl(http, "import time; time.sleep(0.5); print(1)"))
        await busy(http, 1)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.05)
        body = {"code": "1", "language": "python"}
        assert (await ask(http, "/run_code", body))[0] == 504
        assert (await running)["status"] == "Success"
        await stopping


async def busy(http: aiohttp.ClientSession, slots: int) -> None:
    """Wait until so many slots are in use."""
    async with asyncio.timeout(60):
        while True:
            async with http.get("/metrics") as metrics:
                if f"slots_busy {slots}.0" in await metrics.text():
                    return
            await asyncio.sleep(0.01)


def supervisors() -> list[int]:
    """The processes that hold this process's slots."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                if parent == os.getpid() and b"\0run.launch\0" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


@pytest.mark.slow
async def test_a_fault_of_ours_is_never_failed() -> None:
    """Slots are killed as fast as they start; a program takes a thousand times as long as two kills
    are apart, so that it cannot slip through on a starved machine either.
    """
    tier = "slots-root" if os.geteuid() == 0 else "slots-userns"
    async with serving(tier) as server, aiohttp.ClientSession(server.url) as http:
        ended, killed = asyncio.Event(), 0

        async def kill() -> None:
            nonlocal killed
            while not ended.is_set():
                for pid in supervisors():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
                await asyncio.sleep(0.02)

        killing = asyncio.create_task(kill())
        code, limits = "import time; time.sleep(20)", {"run_timeout": 30, "compile_timeout": 0.1}
        submission = submit_request("```python\n" + code + "\n```", [("", "")])
        submission["config"].update(limits)
        run, judged, cells, scripts = await asyncio.gather(
            ask(http, "/run_code", {**json.loads(verl_request(code)), **limits}),
            ask(http, "/submit", submission),
            ask(http, "/run_jupyter", {"cells": [code], "total_timeout": 30}),
            ask(http, "/execute_batch", router_request([code], timeout=30, request_timeout=40)),
        )
        ended.set()
        await killing
        assert run[0] == 504 or run[1]["status"] == "SandboxError", f"{killed} slots killed"
        assert judged[0] == 504, judged
        assert cells[0] == 504 or cells[1]["status"] == "SandboxError"
        assert scripts[1][0]["execution"] is None
        assert scripts[1][0]["exception_str"]
        reply = await as_verl(http, "print('again')")
        assert reply["run_result"]["stdout"] == "again\n"


# --- /run_jupyter, as SandboxFusion's client sends it ---------------------------------------------


def jupyter_request(*cells: str, **changes: Any) -> dict[str, Any]:
    return {
        "cells": list(cells),
        "cell_timeout": 0,
        "total_timeout": 45,
        "kernel": "python3",
        "files": {},
        "fetch_files": [],
        **changes,
    }


async def test_cells_share_a_namespace_and_show_what_a_notebook_shows(
    http: aiohttp.ClientSession,
) -> None:
    status, reply = await ask(
        http,
        "/run_jupyter",
        jupyter_request(
            "a = 123",
            "a",
            "print(a)",
            'import sys; print("message", file=sys.stderr)',
            'raise RuntimeError("error message")',
            "import os; _ = os.system('echo from a child')",
            "await __import__('asyncio').sleep(0, 'awaited')",
            "display(1, 'two')",
            "(",
            "a + 1;",
        ),
    )
    assert (status, reply["status"], reply["message"]) == (200, "Success", "")
    assert reply["driver"]["status"] == "Finished"
    cells = reply["cells"]
    assert [cell["stdout"] for cell in cells] == [
        *("", "", "123\n", "", "", "from a child\n", "", "", "", "")
    ]
    assert cells[1]["display"] == [{"text/plain": "123"}]
    assert cells[3]["stderr"] == "message\n"
    (error,) = cells[4]["error"]
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "error message")
    assert any("line 1" in line for line in error["traceback"])
    assert cells[6]["display"] == [{"text/plain": "'awaited'"}]
    assert cells[7]["display"] == [{"text/plain": "1"}, {"text/plain": "'two'"}]
    assert cells[8]["error"][0]["ename"] == "SyntaxError"
    assert (cells[9]["display"], cells[9]["error"]) == ([], [])


async def test_rich_values_are_shown_in_every_form_they_offer(http: aiohttp.ClientSession) -> None:
    rich = (
        "class Rich:\n"
        "    def _repr_html_(self): return '<b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def __repr__(self): return 'rich'\n"
        "Rich()"
    )
    _, reply = await ask(http, "/run_jupyter", jupyter_request(rich))
    assert reply["cells"][0]["display"] == [
        {
            "text/plain": "rich",
            "text/html": "<b>",
            "image/png": base64.b64encode(b"\x89PNG").decode(),
        }
    ]


async def test_files_of_cells_go_both_ways(http: aiohttp.ClientSession) -> None:
    body = jupyter_request(
        "import os; os.listdir('.')",
        "f = open('out', 'w'); f.write('kept')",
        files={"in.txt": base64.b64encode(b"in").decode()},
        fetch_files=["out"],
    )
    _, reply = await ask(http, "/run_jupyter", body)
    assert reply["cells"][0]["display"] == [{"text/plain": "['in.txt']"}]
    assert base64.b64decode(reply["files"]["out"]) == b"kept"


async def test_a_late_cell_is_stopped_and_late_cells_are_failed(
    http: aiohttp.ClientSession,
) -> None:
    body = jupyter_request("while True: pass", "'next'", cell_timeout=0.5)
    _, reply = await ask(http, "/run_jupyter", body)
    assert reply["status"] == "Success"
    assert reply["cells"][0]["error"][0]["ename"] == "CellTimeout"
    assert reply["cells"][1]["display"] == [{"text/plain": "'next'"}]
    body = jupyter_request("1", "while True: pass", total_timeout=0.7)
    _, reply = await ask(http, "/run_jupyter", body)
    assert (reply["status"], reply["cells"]) == ("Failed", [])
    assert reply["driver"]["status"] == "TimeLimitExceeded"


FORGE = """
import os
for number in range(3, 99):
    try:
        os.write(number, b'{"stdout": 1}')
    except OSError:
        pass
"""


@pytest.mark.parametrize(
    "cell",
    [
        "import os; os._exit(0)",
        "import os; os.closerange(0, 99)",
        FORGE,
        "print('x' * (70 << 20))",
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()",
        "import sys; sys.stdout = None",
        "x = '[' * 100_000; display(type('E', (), {'__repr__': lambda s: x})())",
    ],
)
async def test_a_cell_that_misbehaves_hurts_only_its_own_notebook(
    http: aiohttp.ClientSession, cell: str
) -> None:
    async with asyncio.timeout(120):  # a thread of a cell may take 600
        status, reply = await ask(http, "/run_jupyter", jupyter_request(cell, total_timeout=60))
    assert (status, reply["status"] in ("Success", "Failed")) == (200, True), reply
    _, reply = await ask(http, "/run_jupyter", jupyter_request("1"))
    assert reply["cells"][0]["display"] == [{"text/plain": "1"}]


async def test_another_kernel_is_refused_by_name(http: aiohttp.ClientSession) -> None:
    status, reply = await ask(http, "/run_jupyter", jupyter_request("1", kernel="bash"))
    assert (status, "python3" in reply["error"]["message"]) == (422, True)


async def test_a_cells_limit_is_seconds_of_any_number_and_none_below_0(
    http: aiohttp.ClientSession,
) -> None:
    status, reply = await ask(http, "/run_jupyter", jupyter_request("1", cell_timeout=-1))
    assert (status, "cell_timeout = -1" in reply["error"]["message"]) == (422, True)
    _, reply = await ask(http, "/run_jupyter", jupyter_request("1", cell_timeout=1e300))
    assert (reply["cells"][0]["display"], reply["cells"][0]["error"]) == ([{"text/plain": "1"}], [])


# --- /submit, as SandboxFusion's client sends it -------------------------------------------------


def submit_request(completion: str, tests: list[tuple[str, str]], **config: Any) -> dict[str, Any]:
    cases = [{"input": {"stdin": given}, "output": {"stdout": wanted}} for given, wanted in tests]
    row = {"id": 7, "content": "Double it.", "labels": {}, "test": cases}
    return {
        "dataset": "my_problems",
        "id": 7,
        "completion": completion,
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": "python",
            "locale": None,
            "is_fewshot": None,
            "compile_timeout": None,
            "run_timeout": None,
            "custom_extract_logic": None,
            "provided_data": row,
            "extra": {},
            **config,
        },
    }


RIGHT = "Double it:\n```python\nprint(int(input()) * 2)\n```\nDone."
TESTS = [("1", "2"), ("2", "4"), ("3", "6")]


async def test_a_right_completion_is_accepted(http: aiohttp.ClientSession) -> None:
    status, reply = await ask(http, "/submit", submit_request(RIGHT, TESTS))
    assert (status, reply["accepted"], reply["id"]) == (200, True, 7)
    assert reply["extracted_code"] == "print(int(input()) * 2)"
    assert reply["extracted_type"] == "fenced"
    assert [test["passed"] for test in reply["tests"]] == [True] * 3
    assert reply["tests"][0]["exec_info"]["run_result"]["stdout"] == "2\n"
    assert reply["tests"][0]["test_info"] == {"input": {"stdin": "1"}, "output": {"stdout": "2"}}


async def test_the_first_failure_ends_it_unless_all_cases_are_asked_for(
    http: aiohttp.ClientSession,
) -> None:
    tests = [("1", "2"), ("2", "5"), ("3", "6"), ("4", "8")]
    _, reply = await ask(http, "/submit", submit_request(RIGHT, tests))
    assert (reply["accepted"], [t["passed"] for t in reply["tests"]]) == (False, [True, False])
    _, reply = await ask(
        http, "/submit", submit_request(RIGHT, tests, extra={"run_all_cases": True})
    )
    assert [t["passed"] for t in reply["tests"]] == [True, False, True, True]


async def test_rows_may_hold_their_tests_as_json(http: aiohttp.ClientSession) -> None:
    body = submit_request(RIGHT, TESTS)
    body["config"]["provided_data"]["test"] = json.dumps(body["config"]["provided_data"]["test"])
    _, reply = await ask(http, "/submit", body)
    assert reply["accepted"] is True


async def test_nothing_to_run_is_not_accepted(http: aiohttp.ClientSession) -> None:
    _, reply = await ask(http, "/submit", submit_request("I do not know.", TESTS))
    assert (reply["accepted"], reply["extracted_type"]) == (False, "empty")


async def test_hostile_programs_are_not_accepted(http: aiohttp.ClientSession) -> None:
    for code in ("import os; os._exit(0)", "while True: pass", "print('2' * 10**7)"):
        body = submit_request(f"```python\n{code}\n```", TESTS[:1], run_timeout=1)
        status, reply = await ask(http, "/submit", body)
        assert (status, reply["accepted"]) == (200, False)


async def test_long_texts_are_cut_unless_the_full_case_is_asked_for(
    http: aiohttp.ClientSession,
) -> None:
    tests = [("1\n" + "x" * 5000, "2")]
    _, reply = await ask(http, "/submit", submit_request(RIGHT, tests))
    assert len(reply["tests"][0]["test_info"]["input"]["stdin"]) < 1001
    whole = submit_request(RIGHT, tests, extra={"return_full_case": True})
    _, reply = await ask(http, "/submit", whole)
    assert len(reply["tests"][0]["test_info"]["input"]["stdin"]) == 5002


async def test_custom_extraction_runs_in_a_slot(
    http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    witness.write_text("secret")
    logic = (
        "code = extract_fenced_code(completion)[0].code\n"
        "code = code[:code.find('assert')]\n"
        f"try:\n    code = 'broken' if open({str(witness)!r}) else code\n"
        "except OSError:\n    pass\n"
        "submit_code_blocks([CodeBlock(priority=40, code=code, language='python')])"
    )
    completion = "```python\nprint(int(input()) * 2)\nassert False\n```"
    body = submit_request(completion, TESTS, custom_extract_logic=logic)
    _, reply = await ask(http, "/submit", body)
    assert (reply["accepted"], reply["extracted_code"]) == (True, "print(int(input()) * 2)\n")


@pytest.mark.parametrize(
    "logic", ["1/0", "submit_code_blocks(['text'])", "import os; os._exit(0)", "print('[]')\nexit("]
)
async def test_extraction_logic_that_fails_is_refused_by_name(
    http: aiohttp.ClientSession, logic: str
) -> None:
    body = submit_request(RIGHT, TESTS, custom_extract_logic=logic)
    status, reply = await ask(http, "/submit", body)
    assert (status, "custom_extract_logic" in reply["error"]["message"]) == (422, True)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"language": None}, "config.language"),
        ({"language": "cobol"}, "cobol"),
        ({"dataset_type": "AutoEvalDataset"}, "AutoEvalDataset"),
        ({"provided_data": None}, "my_problems"),
        ({"provided_data": {"id": 1}}, "test"),
        ({"provided_data": {"test": []}}, "one is needed"),
        ({"provided_data": {"test": "[{"}}, "test"),
        ({"provided_data": {"test": [{"input": {"stdin": 1}, "output": {}}]}}, "Expected `str`"),
        ({"provided_data": {"test": [{"input": {}, "output": {"stdout": ""}}]}}, "input.stdin"),
        ({"run_timeout": 1e4}, "grants at most"),
    ],
)
async def test_a_row_that_cannot_be_used_is_refused_by_name(
    http: aiohttp.ClientSession, config: dict[str, Any], named: str
) -> None:
    status, reply = await ask(http, "/submit", submit_request(RIGHT, TESTS, **config))
    assert status in (404, 422)
    assert named in reply["error"]["message"]


# --- /execute_batch, as open-r1's routers are asked ----------------------------------------------


def router_request(scripts: list[str], **changes: Any) -> dict[str, Any]:
    languages = ["python"] * len(scripts)
    body = {"scripts": scripts, "languages": languages, "timeout": 30, "request_timeout": 28}
    return {**body, **changes}


def main_text(item: Any) -> str | None:
    """What E2B's client takes for the text of an execution."""
    if item["execution"] is None:
        return None
    return next((r["text"] for r in item["execution"]["results"] if r["is_main_result"]), None)


async def test_the_value_of_the_last_expression_is_the_reward(http: aiohttp.ClientSession) -> None:
    script = """
import json, subprocess

def evaluate(code, cases):
    passed = 0
    for case in cases:
        done = subprocess.run(
            ["python3", "-c", code], input=case["input"], text=True, capture_output=True, timeout=5
        )
        passed += done.returncode == 0 and done.stdout.strip() == case["output"]
    return passed / len(cases)

code = json.loads('"print(int(input()) * 2)"')
evaluate(code, [{"input": "1", "output": "2"}, {"input": "2", "output": "5"}])
"""
    status, reply = await ask(
        http, "/execute_batch", router_request([script, "1/0", "print('no value')"])
    )
    assert status == 200
    assert [main_text(item) for item in reply] == ["0.5", None, None]
    assert float(reply[0]["text"]) == 0.5
    assert reply[1]["execution"]["error"]["name"] == "ZeroDivisionError"
    assert (reply[1]["text"], bool(reply[1]["exception_str"])) == (None, True)
    assert reply[2]["execution"]["logs"]["stdout"] == ["no value\n"]


async def test_scripts_that_are_not_done_in_time_have_no_value(http: aiohttp.ClientSession) -> None:
    slow = "import time; time.sleep(600); 1"
    body = router_request(["1.0", slow, slow, slow], timeout=600, request_timeout=3)
    async with asyncio.timeout(120):
        _, reply = await ask(http, "/execute_batch", body)
    assert main_text(reply[0]) == "1.0"
    assert [main_text(item) for item in reply[1:]] == [None] * 3
    assert all(item["exception_str"] for item in reply[1:])


async def test_scripts_in_other_languages_print_their_value(http: aiohttp.ClientSession) -> None:
    body = router_request(["echo 0.5", "x"], languages=["bash", "cobol"])
    _, reply = await ask(http, "/execute_batch", body)
    assert (reply[0]["text"], reply[1]["execution"]) == ("0.5\n", None)
    status, _ = await ask(http, "/execute_batch", router_request(["1"], languages=[]))
    assert status == 422
