"""The client against a real server that misbehaves on demand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.agent import ChatPolicy, Finish, Stop, play
from ludus.envs import make_async
from ludus.errors import (
    BudgetExceeded,
    ConfigError,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
    Unauthorized,
)
from ludus.llm.chat_wire import ContextTooLong
from ludus.llm.client import ChatClient
from ludus.llm.limits import TokenBudget
from ludus.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCall,
    assistant,
    tool_result,
    user,
)
from ludus.wire.client import RetryPolicy

QUICK = RetryPolicy(timeout_s=60.0, attempt_timeout_s=20.0, first_wait_s=0.01, max_wait_s=0.02)
Reply = web.Response | Callable[[dict[str, Any]], Any]


def answer(
    content: str | None = "42", *, finish: str = "stop", calls: Any = None, **more: Any
) -> web.Response:
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    return web.json_response(
        {
            "choices": [{"message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        | more
    )


class Model:
    """A chat server that gives the replies it was told, in order, the last one again and again."""

    def __init__(self) -> None:
        self.replies: list[Callable[[dict[str, Any]], Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.now = self.most = 0
        self.url = ""
        self.clients: list[ChatClient] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.times.append(time.monotonic())
        self.headers.append(dict(request.headers))
        body = await request.json()
        self.requests.append(body)
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            made = reply(body)
            return await made if asyncio.iscoroutine(made) else made
        finally:
            self.now -= 1


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    made = Model()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/chat/completions", made.handle)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}, {"id": "large"}]})

    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        made.url = str(server.make_url("/v1"))
        yield made
        for one in made.clients:
            await one.close()


def client(model: Model, **options: Any) -> ChatClient:
    given: dict[str, Any] = {"api_key": "", "patience": QUICK, **options}
    made = ChatClient(model.url, "tiny", **given)
    model.clients.append(made)
    return made


def status(code: int, body: Any = None, **headers: str) -> Callable[[dict[str, Any]], web.Response]:
    return lambda _: web.json_response(
        body or {"error": {"message": "no"}}, status=code, headers=headers
    )


async def test_an_answer_with_usage(model: Model) -> None:
    model.replies = [lambda _: answer("hello")]
    asked = client(model, api_key="secret")
    made = await asked.complete([user("hi")], temperature=0.5, max_tokens=9)
    assert (made.message, made.finish) == (assistant("hello"), "stop")
    assert (asked.usage.prompt_tokens, asked.usage.completion_tokens) == (7, 3)
    assert model.requests == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0.5,
            "max_tokens": 9,
        }
    ]
    assert model.headers[0]["Authorization"] == "Bearer secret"


async def test_no_key_is_sent_unless_given(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-server")
    model.replies = [lambda _: answer()]
    asked = client(model, api_key=None)
    await asked.complete([user("hi")])
    assert "Authorization" not in model.headers[0]


async def test_calls_tools_and_images_are_written_as_the_format_says(model: Model) -> None:
    model.replies = [lambda _: answer()]
    call = ToolCall(name="add", arguments={"a": 1}, id="c1")
    picture = Message(
        role=Role.USER, content=[TextPart("see"), ImagePart(data=b"\xff\xd8\xff\xdb")]
    )
    asked = client(model)
    await asked.complete([picture, assistant("", [call]), tool_result("3", call)])
    first, second, third = model.requests[0]["messages"]
    assert first["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/jpeg;base64,/9j/2w=="},
    }
    assert second["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    assert third == {"role": "tool", "content": "3", "tool_call_id": "c1"}


async def test_calls_in_the_answer_are_read_and_bad_ones_carry_an_error(model: Model) -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "", "type": "function", "function": {"name": "add", "arguments": '{"a": '}},
        {"id": "z", "type": "function", "function": {"name": "add", "arguments": "[1]"}},
    ]
    model.replies = [lambda _: answer(None, calls=calls, finish="tool_calls")]
    asked = client(model)
    made = (await asked.complete([user("hi")])).message
    assert made.tool_calls[0] == ToolCall(name="add", arguments={"a": 1}, id="x")
    assert [bool(c.error) for c in made.tool_calls] == [False, True, True]
    assert made.text == ""


@pytest.mark.parametrize("code", [429, 500, 502, 503, 408])
async def test_what_may_pass_is_asked_again(model: Model, code: int) -> None:
    model.replies = [status(code), status(code), lambda _: answer()]
    asked = client(model)
    assert (await asked.complete([user("hi")])).message.text == "42"
    assert (len(model.requests), asked.retries) == (3, 2)


@pytest.mark.parametrize(
    ("code", "error"),
    [(400, RequestRejected), (404, RequestRejected), (401, Unauthorized), (403, Unauthorized)],
)
async def test_what_cannot_pass_is_not_asked_again(
    model: Model, code: int, error: type[Exception]
) -> None:
    model.replies = [status(code, {"error": {"message": "unknown field", "code": "bad"}})]
    asked = client(model)
    with pytest.raises(error, match="unknown field bad"):
        await asked.complete([user("hi")])
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "wait", ["0.4", formatdate(time.time() + 3600, usegmt=True)], ids=["seconds", "date"]
)
async def test_the_server_says_how_long_to_wait(model: Model, wait: str) -> None:
    model.replies = [status(429, **{"Retry-After": wait}), lambda _: answer()]
    asked = client(model)
    if wait == "0.4":
        await asked.complete([user("hi")])
        assert model.times[1] - model.times[0] >= 0.4
    else:  # an hour is more than the client's patience, so it does not wait at all
        with pytest.raises(Overloaded):
            await asked.complete([user("hi")])


async def test_a_server_that_stays_down_is_given_up(model: Model) -> None:
    model.replies = [status(503)]
    # the waits grow, so the last try is far from the deadline on a starved machine too
    asked = client(model, patience=RetryPolicy(timeout_s=2.0, first_wait_s=0.01, max_wait_s=1.0))
    with pytest.raises(ServerFault):
        await asked.complete([user("hi")])
    assert len(model.requests) > 2


async def test_a_late_answer_is_given_up_and_asked_for_again(model: Model) -> None:
    async def late(_: Any) -> web.Response:
        await asyncio.sleep(5)
        return answer()

    model.replies = [late, lambda _: answer("now")]
    asked = client(
        model, patience=RetryPolicy(timeout_s=3, attempt_timeout_s=0.1, first_wait_s=0.01)
    )
    assert (await asked.complete([user("hi")])).message.text == "now"
    model.replies = [late]
    asked.patience = RetryPolicy(timeout_s=0.3, attempt_timeout_s=0.1, first_wait_s=0.01)
    with pytest.raises(RequestTimeout):
        await asked.complete([user("hi")])


async def test_nobody_there_is_told_with_the_address() -> None:
    asked = ChatClient("http://127.0.0.1:9/v1", "m", patience=RetryPolicy(timeout_s=1))
    try:
        with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9.*is the model's server run"):
            await asked.complete([user("hi")])
    finally:
        await asked.close()


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"choices": []}', "<html>", '{"choices": [{}]}'])
async def test_an_answer_that_makes_no_sense_is_a_fault(model: Model, body: str) -> None:
    model.replies = [lambda _: web.Response(text=body)]
    asked = client(model, patience=RetryPolicy(timeout_s=3.0, first_wait_s=60.0, max_wait_s=60.0))
    with pytest.raises(ServerFault, match="not a chat completion"):
        await asked.complete([user("hi")])


async def test_no_more_requests_at_once_than_asked_for(model: Model) -> None:
    async def slow(_: Any) -> web.Response:
        await asyncio.sleep(0.02)
        return answer()

    model.replies = [slow]
    asked = client(model, concurrency=3)
    await asyncio.gather(*(asked.complete([user(str(i))]) for i in range(12)))
    assert model.most == 3


async def test_equal_requests_are_answered_from_the_cache(model: Model, tmp_path: Path) -> None:
    model.replies = [lambda body: answer(f"{body.get('seed')}")]
    asked = client(model, cache=tmp_path)
    first = await asked.complete([user("hi")], seed=1)
    again = await asked.complete([user("hi")], seed=1)
    other = await asked.complete([user("hi")], seed=2)
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert (again.message, other.message.text) == (first.message, "2")
    assert len(model.requests) == 2
    assert asked.usage.total == 20
    anew = client(model, cache=tmp_path)
    assert (await anew.complete([user("hi")], seed=1)).cached


async def test_samples_differ_in_the_cache_where_the_seed_is_not_sent(
    model: Model, tmp_path: Path
) -> None:
    model.replies = [lambda _: answer("a"), lambda _: answer("b")]
    asked = client(model, cache=tmp_path)
    said = [
        (await asked.complete([user("hi")], seed=s, send_seed=False)).message.text
        for s in (1, 2, 1)
    ]
    assert said == ["a", "b", "a"]
    assert all("seed" not in request for request in model.requests)


async def test_failures_are_never_cached(model: Model, tmp_path: Path) -> None:
    model.replies = [status(400), lambda _: answer("good")]
    asked = client(model, cache=tmp_path)
    with pytest.raises(RequestRejected):
        await asked.complete([user("hi")])
    assert (await asked.complete([user("hi")])).message.text == "good"


async def test_a_damaged_cache_file_is_asked_for_again(model: Model, tmp_path: Path) -> None:
    model.replies = [lambda _: answer("good")]
    asked = client(model, cache=tmp_path)
    await asked.complete([user("hi")])
    (file,) = tmp_path.glob("*/*.json")
    file.write_text("damaged")
    assert (await asked.complete([user("hi")])).message.text == "good"
    assert len(model.requests) == 2


async def test_no_request_starts_when_the_budget_is_spent(model: Model) -> None:
    model.replies = [lambda _: answer()]
    budget = TokenBudget(15)
    asked = client(model, budget=budget)
    await asked.complete([user("1")])
    await asked.complete([user("2")])
    with pytest.raises(BudgetExceeded, match=r"15 tokens is spent \(20 used\)"):
        await asked.complete([user("3")])
    assert len(model.requests) == 2


async def test_a_server_that_does_not_count_cannot_keep_a_budget(model: Model) -> None:
    model.replies = [lambda _: answer(usage=None)]
    asked = client(model, budget=TokenBudget(100))
    with pytest.raises(ConfigError, match="counts no tokens"):
        await asked.complete([user("1")])


async def test_the_model_is_looked_for_before_the_work(model: Model) -> None:
    asked = client(model)
    await asked.ensure_served()
    asked.model = "tyni"
    with pytest.raises(ConfigError, match=r"no model 'tyni'; it has \['tiny', 'large'\]"):
        await asked.ensure_served()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="looks like"):
        ChatClient("localhost:8000", "m")


# --- ChatPolicy -------------------------------------------------------------------------------


async def test_a_chat_policy_plays_an_episode_with_tools(model: Model) -> None:
    def think(body: dict[str, Any]) -> web.Response:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return answer(last["content"])
        arguments = json.dumps({"expression": last["content"]})
        function = {"name": "calculator", "arguments": arguments}
        return answer(None, calls=[{"id": "c", "type": "function", "function": function}])

    model.replies = [think]
    policy = ChatPolicy(client=client(model), temperature=0.2, max_tokens=99)
    session = make_async("ludus/arithmetic-v0")
    trajectory = (await play(session, policy, seed=4, sampling_seed=7)).trajectories[0]
    assert not policy.trainable
    assert (trajectory.verdict.reward, len(trajectory.turns)) == (1.0, 2)
    assert model.requests[0]["tools"][0]["function"]["name"] == "calculator"
    assert [r["seed"] for r in model.requests] == [7000, 7001]
    assert (model.requests[0]["temperature"], model.requests[0]["max_tokens"]) == (0.2, 99)


async def test_a_conversation_that_no_longer_fits_is_a_full_context(model: Model) -> None:
    said = {"error": {"message": "maximum context length is 16", "code": "context_length_exceeded"}}
    model.replies = [status(400, said)]
    policy = ChatPolicy(client=client(model))
    trajectory = (await play(make_async("ludus/arithmetic-v0"), policy)).trajectories[0]
    assert trajectory.stop is Stop.CONTEXT_FULL
    assert issubclass(ContextTooLong, RequestRejected)


async def test_a_server_that_fails_is_a_failed_episode_and_no_zero(model: Model) -> None:
    model.replies = [status(401)]
    policy = ChatPolicy(client=client(model))
    trajectory = (await play(make_async("ludus/arithmetic-v0"), policy)).trajectories[0]
    assert (trajectory.stop, trajectory.verdict.reward) == (Stop.POLICY_ERROR, None)
    assert trajectory.exclude_from_baseline


async def test_an_answer_that_was_cut_says_so(model: Model) -> None:
    model.replies = [lambda _: answer("4", finish="length")]
    policy = ChatPolicy(client=client(model))
    trajectory = (await play(make_async("ludus/arithmetic-v0"), policy)).trajectories[0]
    assert trajectory.turns[0].finish is Finish.LENGTH


# --- thoughts ----------------------------------------------------------------------------------


def thoughtful(field: str, *, calls: Any = None) -> Callable[[dict[str, Any]], web.Response]:
    def reply(_: dict[str, Any]) -> web.Response:
        message = {"role": "assistant", "content": "42", "tool_calls": calls, field: "hm"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    return reply


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_in_the_field_in_which_they_came(model: Model, field: str) -> None:
    model.replies = [thoughtful(field)]
    asked = client(model)
    said = (await asked.complete([user("a")])).message
    await asked.complete([user("a"), said, user("b")])
    first, second = model.requests
    assert [sorted(row) for row in first["messages"]] == [["content", "role"]]
    assert second["messages"][1] == {"role": "assistant", "content": "42", field: "hm"}


async def test_a_server_that_wants_no_thoughts_is_asked_without_them(model: Model) -> None:
    def strict(body: dict[str, Any]) -> web.Response:
        if any("reasoning_content" in row for row in body["messages"]):
            said = {"message": "reasoning_content is not allowed in the input"}
            return web.json_response({"error": said}, status=400)
        return thoughtful("reasoning_content")(body)

    model.replies = [strict]
    asked = client(model)
    said = (await asked.complete([user("a")])).message
    for _ in range(2):
        assert (await asked.complete([user("a"), said, user("b")])).message.text == "42"
    assert ["reasoning_content" in str(one["messages"]) for one in model.requests] == [
        False, True, False, False
    ]  # fmt: skip


async def test_thoughts_are_not_sent_where_no_server_gave_any_or_nobody_wants_them(
    model: Model,
) -> None:
    model.replies = [lambda _: answer(), thoughtful("reasoning")]
    thought = Message(role=Role.ASSISTANT, content="4", reasoning="hm")
    await client(model).complete([user("a"), thought, user("b")])
    never = client(model, send_reasoning=False)
    said = (await never.complete([user("a")])).message
    await never.complete([user("a"), said, user("b")])
    assert not any("hm" in str(one) for one in model.requests)


async def test_a_policy_whose_calls_are_text_sends_thoughts_back_too(model: Model) -> None:
    said = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'

    def reply(body: dict[str, Any]) -> web.Response:
        text = said if len(body["messages"]) < 4 else "2"
        message = {"role": "assistant", "content": text, "reasoning": "hm"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    model.replies = [reply]
    policy = ChatPolicy(client=client(model), tool_format="hermes")
    await play(make_async("ludus/arithmetic-v0"), policy, seed=0)
    assert [row.get("reasoning") for row in model.requests[1]["messages"]][2:3] == ["hm"]
