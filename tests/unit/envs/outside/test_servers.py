"""Servers of other projects: recorded exchanges, and servers that are down, late, of another
version, or answer nonsense.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ludus.envs import make_async
from ludus.envs.outside.servers.exchange import PeerServer
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, ToolCall, assistant, tool_result, user
from ludus.verdict import Status, Verdict

SCHEMA = {
    "action": {"type": "object", "properties": {"message": {"type": "string"},
               "metadata": {"type": "object"}}, "required": ["message"]},
    "observation": {}, "state": {},
}  # fmt: skip

Answer = Callable[[dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def openenv(answer: Answer, *, schema: Any = SCHEMA) -> AsyncGenerator[str]:
    """Serve OpenEnv's WebSocket with the answers that `answer` gives."""

    async def play(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            told = await answer(json.loads(message.data))
            if told is None:
                break
            await ws.send_str(told if isinstance(told, str) else json.dumps(told))
        return ws

    async def tell(_: web.Request) -> web.Response:
        return web.json_response(schema) if schema is not None else web.Response(status=404)

    async with served({("GET", "/schema"): tell, ("GET", "/ws"): play}) as url:
        yield url


@asynccontextmanager
async def served(routes: dict[tuple[str, str], Any]) -> AsyncGenerator[str]:
    app = web.Application()
    for (method, path), handler in routes.items():
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None  # pyright: ignore
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # pyright: ignore
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def seen(text: Any, reward: float | None = None, *, done: bool = False) -> dict[str, Any]:
    data = {"observation": text, "reward": reward, "done": done}
    return {"type": "observation", "data": data}


async def echoes(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as a counting echo does: the seed at reset, and reward 1 at the word `end`."""
    if asked["type"] == "reset":
        return seen({"echoed": f"seed {asked['data']['seed']}", "metadata": {}})
    said = asked["data"]["message"]
    return seen({"echoed": said}, float(said == "end"), done=said == "end")


async def failure(url: str, action: str | Message = "x", **arguments: Any) -> Verdict:
    """Play an episode that has no reward, and say why."""
    env = make_async(f"openenv/{url}", **arguments)
    try:
        await env.reset(seed=0)
        await env.step(action)
    except RewardUnavailable as error:
        return error.verdict
    finally:
        await env.close()
    raise AssertionError("the episode had a reward")


async def test_an_episode_is_played_over_a_socket() -> None:
    async with openenv(echoes) as url:
        env = make_async(f"openenv/{url}")
        for task, number in (("train/3", 3), ("test/3", 2 * 2**30 + 3)):
            observation, _ = await env.reset(options={"task": task})
            assert observation == f"seed {number}"
        assert (await env.step("salve"))[:3] == ("salve", 0.0, False)
        assert (await env.step("end"))[:3] == ("end", 1.0, True)
        await env.close()


async def test_a_server_that_is_down_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    verdict = await failure(f"http://127.0.0.1:{port}")
    assert verdict.status is Status.UNAVAILABLE
    assert verdict.retryable
    assert "/schema" in verdict.detail


async def test_an_answer_in_pieces_is_read_whole() -> None:
    async def tell(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for piece in (b'{"text": "', *[b"x" * 50_000] * 4, b'"}'):
            await answer.write(piece)
            await asyncio.sleep(0.01)
        return answer

    async with served({("GET", "/long"): tell}) as url:
        server = PeerServer("kind", url, 10)
        status, told = await server.ask("GET", "/long")
        await server.close()
    assert (status, len(told["text"])) == (200, 200_000)


async def test_a_late_answer_is_never_that_of_another_step() -> None:
    """The server's stock client takes the late reply of a step for the answer to the next."""

    async def slow(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["type"] == "step" and asked["data"]["message"] == "slow":
            await asyncio.sleep(0.4)
            return seen({"echoed": "slow"}, 1.0)
        return await echoes(asked)

    async with openenv(slow) as url:
        env = make_async(f"openenv/{url}", timeout_s=0.2)
        await env.reset(seed=0)
        with pytest.raises(RewardUnavailable, match=r"no answer to step within 0\.2 s"):
            await env.step("slow")
        await asyncio.sleep(0.5)
        await env.reset(seed=1)
        assert (await env.step("quick"))[:2] == ("quick", 0.0)
        await env.close()


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        ("this is no JSON", Status.ERROR, "the answer to step cannot be read"),
        ({"type": "observation", "data": 3}, Status.ERROR, "the answer to step cannot be read"),
        ({"type": "state", "data": {}}, Status.ERROR, "step is answered by 'state'"),
        (seen({}, 1e400, done=True), Status.ERROR, "the answer to step cannot be read"),
        (seen({"a": "b"}, None, done=True), Status.ERROR, "no step of it had a reward"),
        (None, Status.UNAVAILABLE, "the connection was closed at step"),
        (
            {"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "board is None"}},
            Status.ERROR,
            "EXECUTION_ERROR: board is None",
        ),
        (
            {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1 of 1"}},
            Status.UNAVAILABLE,
            "CAPACITY_REACHED: 1 of 1",
        ),
    ],
)
async def test_an_answer_that_is_none_is_no_reward(reply: Any, status: Status, said: str) -> None:
    async def answer(asked: dict[str, Any]) -> Any:
        return await echoes(asked) if asked["type"] == "reset" else reply

    async with openenv(answer) as url:
        verdict = await failure(url)
    assert verdict.status is status
    assert said in verdict.detail


@pytest.mark.parametrize("schema", [None, [], {"action": 7}])
async def test_a_server_of_another_version_is_told(schema: Any) -> None:
    async with openenv(echoes, schema=schema) as url:
        verdict = await failure(url)
    assert verdict.status is Status.ERROR
    assert "is it a server of OpenEnv 0.2 or newer?" in verdict.detail


@pytest.mark.parametrize("observation", [None, [], {"tools": None}])
async def test_a_server_that_lists_no_tools_is_told(observation: Any) -> None:
    async def answer(asked: dict[str, Any]) -> Any:
        return seen("begin" if asked["type"] == "reset" else observation)

    async with openenv(answer, schema={"action": {"properties": None}}) as url:
        verdict = await failure(url)
    assert verdict.status is Status.ERROR
    assert "it lists no tools" in verdict.detail


async def test_a_server_that_reads_nothing_more_is_unavailable() -> None:
    async def stall(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.receive()
        await ws.send_str(json.dumps(seen("begin")))
        assert isinstance(request.transport, asyncio.ReadTransport)
        request.transport.pause_reading()
        await asyncio.sleep(1.0)
        request.transport.abort()
        return ws

    async def tell(_: web.Request) -> web.Response:
        return web.json_response(SCHEMA)

    async with served({("GET", "/schema"): tell, ("GET", "/ws"): stall}) as url:
        env = make_async(f"openenv/{url}", timeout_s=0.3)
        await env.reset(seed=0)
        with pytest.raises(RewardUnavailable, match=r"no answer to step within 0\.3 s"):
            await env.step("x" * 20_000_000)
        await env.close()


async def test_an_action_that_the_server_refuses_is_the_policys() -> None:
    async def refuses(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["type"] == "step" and asked["data"]["message"] == "bad":
            return {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "too short"}}
        return await echoes(asked)

    async with openenv(refuses) as url:
        env = make_async(f"openenv/{url}")
        await env.reset(seed=0)
        shown, reward, over, *_ = await env.step("bad")
        assert (shown, reward, over) == ("The action was refused: too short", 0.0, False)
        assert (await env.step("end"))[1] == 1.0
        await env.close()


async def test_an_action_of_several_fields_is_json() -> None:
    fields = {"row": {"type": "integer"}, "mark": {"type": "string"}}
    schema = {"action": {"properties": fields, "required": ["row", "mark"]}}

    async def board(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["type"] == "reset":
            return seen({"rows": [1, 2], "turn": "x"})
        return seen({"rows": [asked["data"]["row"]], "turn": "o"}, 0.5, done=True)

    async with openenv(board, schema=schema) as url:
        env = make_async(f"openenv/{url}")
        assert (await env.reset(seed=0))[0] == '{"rows": [1, 2], "turn": "x"}'
        shown, reward, over, *_ = await env.step("to the top")
        assert "The action cannot be read" in str(shown)
        assert (reward, over) == (0.0, False)
        shown, reward, over, *_ = await env.step('{"row": 2, "mark": "x"}')
        assert (shown, reward, over) == ('{"rows": [2], "turn": "o"}', 0.5, True)
        await env.close()


async def test_tools_of_the_server_are_tools_of_the_policy() -> None:
    async def tools(asked: dict[str, Any]) -> dict[str, Any]:
        data = asked["data"]
        if asked["type"] == "reset":
            return seen({})
        if data["type"] == "list_tools":
            tool = {"name": "add", "description": "Add.", "input_schema": {"type": "object"}}
            return seen({"tools": [tool]})
        total = sum(data["arguments"].values())
        return seen({"result": str(total)}, 1.0, done=True)

    async with openenv(tools, schema={"action": {"properties": {}}}) as url:
        env = make_async(f"openenv/{url}")
        _, info = await env.reset(seed=0)
        assert [tool.name for tool in info["briefing"].tools] == ["add"]
        call = ToolCall(name="add", arguments={"a": 2, "b": 3}, id="c")
        shown, reward, over, *_ = await env.step(assistant("", [call]))
        assert [message.text for message in shown if isinstance(message, Message)] == ["5"]
        assert (reward, over) == (1.0, True)
        await env.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="name the server's address"):
        make_async(f"openenv/{url}")


ROW = {
    "responses_create_params": {
        "input": [
            {"role": "developer", "content": "Use the tool."},
            {"role": "user", "content": [{"type": "input_text", "text": "Weather in Rome?"}]},
        ],
        "tools": [
            {"type": "function", "name": "get_weather", "description": "Look up.",
             "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
             "strict": True}
        ],
    },
    "expected": "cold",
}  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path) -> str:
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps(ROW) + "\n")
    return str(place)


class Weather:
    """A resources server in the manner of NeMo Gym: a session by cookie, a tool, a verifier."""

    def __init__(self, **verified: Any) -> None:
        self.verified = verified or {"reward": 1.0, "reward_components": {"said": 1.0}}
        self.heard: list[tuple[str, Any, str]] = []

    async def hear(self, request: web.Request) -> Any:
        body = await request.json()
        self.heard.append((request.path, body, request.cookies.get("Weather___w", "")))
        return body

    async def seed(self, request: web.Request) -> web.Response:
        await self.hear(request)
        response = web.json_response({})
        response.set_cookie("Weather___w", "signed-session")
        return response

    async def tool(self, request: web.Request) -> web.Response:
        body = await self.hear(request)
        return web.json_response({"city": body["city"], "weather": "cold"})

    async def verify(self, request: web.Request) -> web.Response:
        body = await self.hear(request)
        return web.json_response({**body, **self.verified})

    def routes(self) -> dict[tuple[str, str], Any]:
        return {
            ("POST", "/seed_session"): self.seed,
            ("POST", "/get_weather"): self.tool,
            ("POST", "/verify"): self.verify,
        }


CALL = assistant("", [ToolCall(name="get_weather", arguments={"city": "Rome"}, id="call_7")])


async def test_a_nemo_gym_episode_has_tools_a_cookie_and_a_verdict(rows: str) -> None:
    server = Weather()
    async with served(server.routes()) as url:
        env = make_async(f"nemo-gym/{url}", data=rows)
        shown, info = await env.reset(seed=0)
        assert info["briefing"].system_prompt == "Use the tool."
        assert [one.text for one in shown if isinstance(one, Message)] == ["Weather in Rome?"]
        results, reward, over, *_ = await env.step(CALL)
        assert isinstance(results[0], Message)
        assert json.loads(results[0].text) == {"city": "Rome", "weather": "cold"}
        assert (reward, over) == (0.0, False)
        _, reward, over, _, info = await env.step("It is cold.")
        assert (reward, over) == (1.0, True)
        assert info["verdict"].parts == {"said": (1.0, 1.0)}
        await env.close()
    paths = [(path, cookie) for path, _, cookie in server.heard]
    assert paths == [
        ("/seed_session", ""), ("/get_weather", "signed-session"), ("/verify", "signed-session")
    ]  # fmt: skip
    verified = server.heard[-1][1]
    assert verified["expected"] == "cold"
    kinds = [item["type"] for item in verified["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]


@pytest.mark.parametrize(
    ("verified", "status", "said"),
    [
        (
            {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "503"},
            Status.UNAVAILABLE,
            "judge_failed 503",
        ),
        (
            {
                "reward": 0.0,
                "mask_sample": True,
                "failure_kind": "session_lost",
                "failure_reason": "no such session",
            },
            Status.UNAVAILABLE,
            "session_lost no such session",
        ),
        ({"reward": 1.0, "mask_sample": True}, Status.UNAVAILABLE, "does not say why"),
        (
            {"reward": 0.0, "mask_sample": False, "_ng_failure_class": "agent_timeout"},
            Status.UNAVAILABLE,
            "agent_timeout",
        ),
        (
            {"reward": 0.0, "instance_config": {"mask_sample": True}, "failure_reason": "OOM"},
            Status.UNAVAILABLE,
            "OOM",
        ),
        ({"score": 1.0}, Status.ERROR, "/verify answers without a reward"),
        ({"reward": "high"}, Status.ERROR, "the reward is 'high', not a number"),
        ({"reward": None}, Status.ERROR, "the reward is None, not a number"),
    ],
)
async def test_a_nemo_gym_failure_is_no_reward(
    rows: str, verified: dict[str, Any], status: Status, said: str
) -> None:
    async with served(Weather(**verified).routes()) as url:
        env = make_async(f"nemo-gym/{url}", data=rows)
        await env.reset(seed=0)
        with pytest.raises(RewardUnavailable) as caught:
            await env.step("It is cold.")
        assert caught.value.verdict.status is status
        assert said in caught.value.verdict.detail
        await env.close()


@pytest.mark.parametrize(
    "verified",
    [
        {"reward": 0.5, "mask_sample": False},
        {"reward": -2.5},
        {"reward": 7},
        {"reward": 0.5, "mask_sample": False, "failure_kind": "judge_unparseable",
         "failure_reason": "read by the second parser"},
        {"reward": 0.5, "mask_sample": None, "failure_kind": None, "failure_reason": None},
    ],
)  # fmt: skip
async def test_a_nemo_gym_sample_that_is_not_masked_counts(
    rows: str, verified: dict[str, Any]
) -> None:
    async with served(Weather(**verified).routes()) as url:
        env = make_async(f"nemo-gym/{url}", data=rows)
        await env.reset(seed=0)
        assert (await env.step("It is cold."))[1:3] == (verified["reward"], True)
        await env.close()


async def test_calls_that_a_nemo_gym_row_begins_with_are_shown_with_their_outputs(
    tmp_path: Path,
) -> None:
    row = json.loads(json.dumps(ROW))
    row["responses_create_params"]["input"] = [
        {"role": "user", "content": "Weather in Rome?"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "which city?"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rome!"}]},
    ]
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps(row) + "\n")
    async with served(Weather().routes()) as url:
        env = make_async(f"nemo-gym/{url}", data=str(place))
        shown, _ = await env.reset(seed=0)
        await env.close()
    call = ToolCall(name="get_weather", arguments={}, id="c")
    said = tool_result("which city?", call)
    assert shown == [user("Weather in Rome?"), assistant("", [call]), said, user("Rome!")]


async def test_a_route_of_nemo_gyms_protocol_is_no_tool(tmp_path: Path) -> None:
    """A row that lists them as tools would let the policy score or end its own session."""
    names = ["close_session", "verify", "seed_session", "aggregate_metrics", "mcp"]
    row = json.loads(json.dumps(ROW))
    row["responses_create_params"]["tools"] += [{"type": "function", "name": one} for one in names]
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps(row) + "\n")
    server = Weather()
    async with served(server.routes()) as url:
        env = make_async(f"nemo-gym/{url}", data=str(place))
        _, info = await env.reset(seed=0)
        assert [tool.name for tool in info["briefing"].tools] == ["get_weather"]
        results, *_ = await env.step(
            assistant("", [ToolCall(name=name, arguments={}, id=name) for name in names])
        )
        assert all("no tool named" in one.text for one in results if isinstance(one, Message))
        assert [path for path, *_ in server.heard] == ["/seed_session"]
        await env.close()


async def test_a_nemo_gym_server_that_fails_is_told(rows: str) -> None:
    async def breaks(_: web.Request) -> web.Response:
        return web.json_response("RuntimeError('no session')", status=500)

    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(text="<html>welcome</html>")

    for routes, said in (
        ({("POST", "/seed_session"): breaks}, "answers 500"),
        ({("POST", "/seed_session"): nonsense}, "is not JSON"),
        ({("POST", "/run"): breaks}, "is it a resources server?"),
    ):
        async with served(routes) as url:
            env = make_async(f"nemo-gym/{url}", data=rows)
            with pytest.raises(RewardUnavailable) as caught:
                await env.reset(seed=0)
            assert caught.value.verdict.status is Status.ERROR
            assert said in caught.value.verdict.detail
            await env.close()


async def test_a_nemo_gym_server_that_is_down_or_slow_is_unavailable(rows: str) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.json_response({"reward": 1.0})

    with socket.create_server(("127.0.0.1", 0)) as probe:
        down = f"http://127.0.0.1:{probe.getsockname()[1]}"
    env = make_async(f"nemo-gym/{down}", data=rows)
    with pytest.raises(RewardUnavailable, match="/seed_session") as caught:
        await env.reset(seed=0)
    assert caught.value.verdict.status is Status.UNAVAILABLE
    await env.close()
    async with served({**Weather().routes(), ("POST", "/verify"): slow}) as url:
        env = make_async(f"nemo-gym/{url}", data=rows, timeout_s=0.3)
        await env.reset(seed=0)
        with pytest.raises(
            RewardUnavailable, match=r"no answer to /verify within 0\.3 s"
        ) as caught:
            await env.step("It is cold.")
        assert caught.value.verdict.status is Status.UNAVAILABLE
        assert caught.value.verdict.retryable
        await env.close()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("", "has no rows"),
        ("{}", "no responses_create_params"),
        ("[", "not a JSON object"),
        ("\n\n[", "jsonl:3 is not a JSON object"),
        ('{"responses_create_params": {"input": ["text"]}}', "jsonl:1: its input or a tool"),
        ('{"responses_create_params": {"tools": [{"type": "function"}]}}', "KeyError: 'name'"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(
    tmp_path: Path, content: str | None, said: str
) -> None:
    place = tmp_path / "rows.jsonl"
    if content is not None:
        place.write_text(content + "\n")
    with pytest.raises(ConfigError, match=said):
        make_async("nemo-gym/http://127.0.0.1:1", data=str(place))
    with pytest.raises(ConfigError, match="data=FILE"):
        make_async("nemo-gym/http://127.0.0.1:1")
