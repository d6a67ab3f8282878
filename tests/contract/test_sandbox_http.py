"""Programs, batches, gradings and REPLs over real HTTP: what works, and what is refused and how."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import open_sandbox
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.serving.sandbox_wire import Bounds
from ludus.sandboxes.serving.server import SandboxService
from ludus.wire.server import HttpServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUNDS = Bounds(
    max_timeout_s=20,
    max_output_bytes=200_000,
    max_reply_bytes=300_000,
    max_grade_s=60,
    max_repls=3,
    repl_ttl_s=30,
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    try:
        sandbox = await open_sandbox(size=2)
    except ConfigError as error:
        pytest.skip(f"no sandbox holds here: {error}")
    service = SandboxService(Runner(slots=2, bounds=BOUNDS, sandbox=sandbox))
    async with (
        HttpServer([service], max_body_bytes=2 << 20) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        yield session


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **kwargs: Any
) -> tuple[int, Any]:
    async with http.request(method, path, json=body, **kwargs) as reply:
        return reply.status, await reply.json()


async def execute(http: aiohttp.ClientSession, code: str, **fields: Any) -> Any:
    status, reply = await ask(http, "POST", "/v1/execute", {"code": code, **fields})
    assert status == 200, reply
    return reply


async def refusal(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, str, str]:
    status, reply = await ask(http, "POST", path, body)
    return status, reply["error"]["code"], reply["error"]["message"]


# --- programs -----------------------------------------------------------------------------------


async def test_the_card_says_what_runs_code_and_within_which_bounds(
    http: aiohttp.ClientSession,
) -> None:
    status, card = await ask(http, "GET", "/v1/sandbox")
    assert status == 200
    assert "python" in card["languages"]
    assert (card["slots"], card["sessions"]) == (2, True)
    assert card["bounds"]["max_timeout_s"] == 20


async def test_a_program_is_run_with_input_files_and_arguments(http: aiohttp.ClientSession) -> None:
    program = (
        "import sys\n"
        "print(input(), sys.argv[1], open('d/in', 'rb').read())\n"
        "open('out', 'wb').write(b'\\xff')\n"
        "sys.exit(3)"
    )
    reply = await execute(
        http,
        program,
        stdin="line\n",
        argv=["word"],
        files={"d/in": base64.b64encode(b"\xfe").decode()},
        fetch_files=["out", "missing"],
    )
    assert (reply["status"], reply["exit_code"]) == ("error", 3)
    assert reply["stdout"] == "line word b'\\xfe'\n"
    assert base64.b64decode(reply["files"]["out"]) == b"\xff"
    assert "missing" in reply["refused"]
    assert reply["usage"]["wall_s"] > 0


async def test_in_msgpack_bytes_are_bytes(http: aiohttp.ClientSession) -> None:
    body = {
        "code": "import sys\nprint(sys.stdin.buffer.read() + open('f', 'rb').read())",
        "stdin_bytes": b"a\xff",
        "files": {"f": b"b"},
        "fetch_files": ["f"],
    }
    headers = {"Content-Type": "application/msgpack"}
    async with http.post(
        "/v1/execute", data=msgspec.msgpack.encode(body), headers=headers
    ) as answer:
        reply = msgspec.msgpack.decode(await answer.read())
    assert (reply["stdout"], reply["files"]) == ("b'a\\xffb'\n", {"f": b"b"})


@pytest.mark.parametrize(
    ("code", "fields", "status"),
    [
        ("while True: pass", {"timeout_s": 0.3}, "timeout"),
        ("import time; time.sleep(60)", {"timeout_s": 0.3}, "timeout"),
        ("x = bytearray(1 << 30)", {"memory_bytes": 128 << 20}, "oom"),
        ("while True: print('x' * 1000)", {"output_bytes": 5000}, "output_limit"),
        ("import os; os.abort()", {}, "error"),
    ],
)
async def test_every_status_of_a_program_is_a_200(
    http: aiohttp.ClientSession, code: str, fields: dict[str, Any], status: str
) -> None:
    assert (await execute(http, code, **fields))["status"] == status


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"timeout_s": 21}, "timeout_s is 21; this server grants at most 20"),
        ({"cpu_s": 21}, "cpu_s"),
        ({"memory_bytes": 1 << 40}, "memory_bytes"),
        ({"output_bytes": 1 << 30}, "output_bytes"),
        ({"compile_s": 100}, "compile_s"),
        ({"timeout_s": 0}, "$.timeout_s"),
        ({"timeout_s": "ten"}, "$.timeout_s"),
        ({"timeout_s": -1}, "$.timeout_s"),
        ({"code": 5}, "$.code"),
        ({"cdoe": ""}, "cdoe"),
        ({"files": {"a": "not base64!"}}, "$.files"),
        ({"stdin": "a", "stdin_bytes": "aGk="}, "stdin"),
    ],
)
async def test_what_is_wrong_or_not_granted_is_422_and_named(
    http: aiohttp.ClientSession, fields: dict[str, Any], named: str
) -> None:
    status, code, message = await refusal(http, "/v1/execute", {"code": "1", **fields})
    assert (status, code) == (422, "invalid")
    assert named in message


@pytest.mark.parametrize(
    "fields",
    [
        {"files": {"../escape": ""}},
        {"files": {"/etc/x": ""}},
        {"fetch_files": ["../../etc/passwd"]},
        {"files": {"a": "", "a/b": ""}},
        {"network": True},
    ],
)
async def test_what_a_sandbox_cannot_try_is_422(
    http: aiohttp.ClientSession, fields: dict[str, Any]
) -> None:
    status, code, _ = await refusal(http, "/v1/execute", {"code": "1", **fields})
    assert (status, code) == (422, "invalid_option")


async def test_an_unknown_language_is_404_and_names_the_near_miss(
    http: aiohttp.ClientSession,
) -> None:
    status, code, message = await refusal(
        http, "/v1/execute", {"code": "1", "language": "verilogg"}
    )
    assert (status, code) == (404, "unknown_language")
    assert "did you mean 'verilog'" in message


@pytest.mark.parametrize("data", [b"", b"{", b"\0", b"{]"])
async def test_malformed_json_is_400(http: aiohttp.ClientSession, data: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/execute", "/v1/execute_batch", "/v1/grade", "/v1/repls", "/v1/repls/a/run"):
        async with http.post(path, data=data, headers=headers) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (400, "malformed")


@pytest.mark.parametrize("data", [b'{"code": "\xff"}', b'{"code": "\\ud800"}', b'{"code": "",}'])
async def test_text_that_is_none_is_400(http: aiohttp.ClientSession, data: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/execute", data=data, headers=headers) as reply:
        assert (reply.status, (await reply.json())["error"]["code"]) == (400, "malformed")


async def test_an_oversized_body_is_413(http: aiohttp.ClientSession) -> None:
    data = io.BytesIO(json.dumps({"code": "#" * (3 << 20)}).encode())
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/execute", data=data, headers=headers) as reply:
        error = (await reply.json())["error"]
    assert (reply.status, error["code"]) == (413, "too_large")
    assert str(2 << 20) in error["message"]


# --- batches ------------------------------------------------------------------------------------


async def test_each_item_of_a_batch_has_its_own_status(http: aiohttp.ClientSession) -> None:
    items = [
        {"code": "print(1)"},
        {"code": "1/0"},
        {"code": 7},
        {"code": "1", "language": "no-such"},
        {"code": "1", "files": {"../x": ""}},
        {"code": "print(2)"},
    ]
    status, reply = await ask(http, "POST", "/v1/execute_batch", {"items": items})
    assert status == 200
    answered = reply["items"]
    assert [item["status"] for item in answered] == [200, 200, 422, 404, 422, 200]
    assert answered[0]["execution"]["stdout"] == "1\n"
    assert answered[1]["execution"]["status"] == "error"
    assert answered[5]["execution"]["stdout"] == "2\n"
    assert "execution" not in answered[2]


async def test_a_batch_that_would_say_too_much_says_so_item_by_item(
    http: aiohttp.ClientSession,
) -> None:
    item = {"code": "print('x' * 150_000)", "output_bytes": 200_000}
    _, reply = await ask(http, "POST", "/v1/execute_batch", {"items": [item] * 3})
    statuses = sorted(one["status"] for one in reply["items"])
    assert statuses == [200, 413, 413]  # 150,001 bytes each; 300,000 are granted


@pytest.mark.parametrize("count", [0, 257])
async def test_a_batch_has_1_to_256_items(http: aiohttp.ClientSession, count: int) -> None:
    body = {"items": [{"code": "1"}] * count}
    assert (await refusal(http, "/v1/execute_batch", body))[:2] == (422, "invalid")


# --- gradings -----------------------------------------------------------------------------------


async def test_a_grading_has_a_verdict_and_the_result_of_each_test(
    http: aiohttp.ClientSession,
) -> None:
    body = {
        "solution": "def f(n):\n    return n + 1",
        "tests": ["assert f(1) == 2", "assert f(2) == 4"],
        "options": {"partial": True},
    }
    status, reply = await ask(http, "POST", "/v1/grade", body)
    assert status == 200
    assert reply["verdict"]["reward"] == 0.5
    assert [one["passed"] for one in reply["results"]] == [True, False]


async def test_tests_that_cannot_be_used_are_an_invalid_verdict_without_a_reward(
    http: aiohttp.ClientSession,
) -> None:
    body = {"solution": "x = 1", "tests": ["assert ("]}
    status, reply = await ask(http, "POST", "/v1/grade", body)
    assert (status, reply["verdict"]["status"]) == (200, "invalid")
    assert "reward" not in reply["verdict"]


async def test_a_hostile_solution_has_an_ok_verdict_of_0(http: aiohttp.ClientSession) -> None:
    for solution in ("import os; os._exit(0)", "while True: pass", "x = bytearray(1 << 34)"):
        body = {
            "solution": solution,
            "tests": ["assert f() == 1"],
            "options": {"timeout_s": 0.5, "memory_bytes": 128 << 20},
        }
        _, reply = await ask(http, "POST", "/v1/grade", body)
        assert (reply["verdict"]["status"], reply["verdict"]["reward"]) == ("ok", 0)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"solution": "", "tests": ["1"], "kind": "essay"}, 422, "invalid_option"),
        ({"solution": "", "tests": ["1"], "options": {"compare": "x"}}, 422, "invalid_option"),
        ({"solution": "", "tests": ["1"], "options": {"timeout_s": 0}}, 422, "invalid"),
        ({"solution": "", "tests": ["1"], "options": {"tiemout_s": 1}}, 422, "invalid"),
        ({"solution": "", "tests": {}}, 422, "invalid"),
    ],
)
async def test_a_grading_that_cannot_be_tried_is_refused(
    http: aiohttp.ClientSession, body: Any, status: int, code: str
) -> None:
    got, reply = await ask(http, "POST", "/v1/grade", body)
    assert got == status
    assert reply.get("error", {}).get("code", "") == code


async def test_a_grading_that_could_take_too_long_is_refused_before_it_starts(
    http: aiohttp.ClientSession,
) -> None:
    tests = [{"input": "", "output": ""}] * 7
    body = {"solution": "", "tests": tests, "kind": "stdin", "options": {"timeout_s": 10}}
    status, code, message = await refusal(http, "/v1/grade", body)  # 7 times 10 s
    assert (status, code) == (422, "invalid")
    assert "70" in message
    assert "60" in message


# --- REPLs --------------------------------------------------------------------------------------


async def cell(http: aiohttp.ClientSession, name: str, seq: int, code: str, **more: Any) -> Any:
    body = {"seq": seq, "code": code, **more}
    return await ask(http, "POST", f"/v1/repls/{name}/run", body)


async def create(http: aiohttp.ClientSession, name: str, **more: Any) -> tuple[int, Any]:
    return await ask(http, "POST", "/v1/repls", {"repl": name, **more})


async def test_a_repl_keeps_its_state_and_its_files(http: aiohttp.ClientSession) -> None:
    assert (await create(http, "state"))[0] == 200
    assert (await cell(http, "state", 0, "x = 6"))[0] == 200
    status, reply = await cell(http, "state", 1, "x * 7")
    assert (status, reply["execution"]["stdout"]) == (200, "42\n")
    data = base64.b64encode(b"\xff\0").decode()
    write = {"files": {"d/f": data}}
    assert (await ask(http, "POST", "/v1/repls/state/write", write))[1]["written"] == ["d/f"]
    await cell(http, "state", 2, "open('g', 'wb').write(open('d/f', 'rb').read() * 2)")
    status, reply = await ask(http, "POST", "/v1/repls/state/read", {"path": "g"})
    assert base64.b64decode(reply["data"]) == b"\xff\0\xff\0"
    for path, code in (("h", "file_refused"), ("../h", "invalid_option")):
        answer = await refusal(http, "/v1/repls/state/read", {"path": path})
        assert answer[:2] == (422, code)
    assert (await ask(http, "DELETE", "/v1/repls/state"))[1] == {"repl": "state", "ended": True}


async def test_a_cell_sent_again_is_answered_and_not_run_again(http: aiohttp.ClientSession) -> None:
    await create(http, "again")
    first = await cell(http, "again", 0, "n = globals().get('n', 0) + 1; n")
    assert await cell(http, "again", 0, "n = globals().get('n', 0) + 1; n") == first
    assert (await cell(http, "again", 1, "n"))[1]["execution"]["stdout"] == "1\n"
    status, reply = await cell(http, "again", 1, "another")
    assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
    status, reply = await cell(http, "again", 5, "n")
    assert (status, "seq 5 skips; the next is 2" in reply["error"]["message"]) == (409, True)
    await ask(http, "DELETE", "/v1/repls/again")


async def test_a_cell_sent_again_while_it_runs_is_joined(http: aiohttp.ClientSession) -> None:
    await create(http, "joined")
    code = "import time; time.sleep(0.3); k = globals().get('k', 0) + 1; k"
    answers = await asyncio.gather(*(cell(http, "joined", 0, code) for _ in range(3)))
    assert [reply["execution"]["stdout"] for _, reply in answers] == ["1\n"] * 3
    running = asyncio.create_task(cell(http, "joined", 1, "time.sleep(0.3)"))
    await asyncio.sleep(0.1)
    status, reply = await cell(http, "joined", 2, "k")
    assert (status, "is still running" in reply["error"]["message"]) == (409, True)
    await running
    assert (await cell(http, "joined", 2, "k"))[1]["execution"]["stdout"] == "1\n"
    await ask(http, "DELETE", "/v1/repls/joined")


async def test_a_late_cell_is_interrupted_and_its_repl_lives_on(
    http: aiohttp.ClientSession,
) -> None:
    await create(http, "late")
    _, reply = await cell(http, "late", 0, "while True: pass", timeout_s=0.3)
    assert reply["execution"]["status"] == "timeout"
    assert (await cell(http, "late", 1, "'alive'"))[1]["execution"]["stdout"] == "'alive'\n"
    await ask(http, "DELETE", "/v1/repls/late")


async def test_a_repl_that_ended_itself_is_410_and_says_why(http: aiohttp.ClientSession) -> None:
    await create(http, "dead")
    for seq in (0, 1):
        status, reply = await cell(http, "dead", seq, "import os; os._exit(1)")
        assert (status, reply["error"]["code"]) == (410, "session_gone")
        assert "its process ended" in reply["error"]["message"]
    assert (await create(http, "dead"))[0] == 410


async def test_a_name_nobody_made_is_410(http: aiohttp.ClientSession) -> None:
    for path, body in (
        ("run", {"seq": 0, "code": ""}),
        ("write", {"files": {}}),
        ("read", {"path": "f"}),
    ):
        status, reply = await ask(http, "POST", f"/v1/repls/nobody/{path}", body)
        assert (status, reply["error"]["code"]) == (410, "session_gone")


async def test_delete_is_idempotent_and_comes_before_a_late_create(
    http: aiohttp.ClientSession,
) -> None:
    for _ in range(2):
        assert await ask(http, "DELETE", "/v1/repls/gone") == (
            200,
            {"repl": "gone", "ended": False},
        )
    status, reply = await create(http, "gone")
    assert (status, reply["error"]["code"]) == (410, "session_gone")


async def test_a_create_sent_again_finds_the_repl_made(http: aiohttp.ClientSession) -> None:
    made = await asyncio.gather(*(create(http, "once") for _ in range(4)))
    assert all(answer == made[0] for answer in made)
    assert made[0][0] == 200
    status, reply = await create(http, "once", memory_bytes=1 << 28)
    assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
    await ask(http, "DELETE", "/v1/repls/once")


async def test_too_many_repls_are_429_and_an_idle_one_makes_room(
    http: aiohttp.ClientSession,
) -> None:
    for name in ("one", "two"):
        await create(http, name)
    await create(http, "brief", idle_ttl_s=1.5)
    async with http.post("/v1/repls", json={"repl": "four"}) as reply:
        error = (await reply.json())["error"]
        assert (reply.status, int(reply.headers["Retry-After"]) >= 1) == (429, True)
    assert (error["code"], error["queue_depth"], error["limit"]) == ("overloaded", 3, 3)
    await asyncio.sleep(2.0)
    status, reply = await cell(http, "brief", 0, "1")
    assert (status, "idle for 1.5 s" in reply["error"]["message"]) == (410, True)
    assert (await create(http, "four"))[0] == 200
    for name in ("one", "two", "four"):
        await ask(http, "DELETE", f"/v1/repls/{name}")


async def test_a_repl_that_nobody_asks_again_ends_by_itself(http: aiohttp.ClientSession) -> None:
    await create(http, "left", idle_ttl_s=0.3)
    async with asyncio.timeout(60):
        while "ludus_repls 0.0" not in await (await http.get("/metrics")).text():
            await asyncio.sleep(0.2)


async def test_a_repl_at_work_is_not_idle(http: aiohttp.ClientSession) -> None:
    await create(http, "busy", idle_ttl_s=0.2)
    _, reply = await cell(http, "busy", 0, "import time; time.sleep(0.8); 'done'")
    assert reply["execution"]["stdout"] == "'done'\n"
    await ask(http, "DELETE", "/v1/repls/busy")


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 129])
async def test_a_name_that_is_none_is_422(http: aiohttp.ClientSession, name: str) -> None:
    assert (await create(http, name))[1]["error"]["code"] == "invalid"


# --- what is told --------------------------------------------------------------------------------


async def test_metrics_and_openapi_tell_of_the_sandbox(http: aiohttp.ClientSession) -> None:
    await execute(http, "print(1)")
    async with http.get("/metrics") as reply:
        text = await reply.text()
    for line in (
        'ludus_sandbox_runs_total{operation="execute",status="ok"}',
        'ludus_sandbox_seconds_count{operation="execute"}',
        "ludus_sandbox_queue_seconds_count",
        "ludus_sandbox_slots_busy 0.0",
        "ludus_sandbox_waiting 0.0",
        "ludus_repls 0.0",
        'ludus_queue_depth{service="sandbox"} 0.0',
    ):
        assert line in text, line
    _, document = await ask(http, "GET", "/openapi.json")
    assert set(document["paths"]) >= {
        *("/v1/sandbox", "/v1/execute", "/v1/execute_batch", "/v1/grade", "/v1/repls"),
        *("/v1/repls/{repl}", "/v1/repls/{repl}/run"),
        *("/v1/repls/{repl}/read", "/v1/repls/{repl}/write"),
    }
    assert "Execution" in json.dumps(document["paths"]["/v1/execute"])
