"""Context managers over a chat server: real requests, to a model that knows what it is shown."""

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.agent import ChatPolicy, EpisodeLimits, Stop, Trajectory, TurnKind, play
from ludus.agent.context import ContextSettings, make_context
from ludus.envs import EnvSession, TextEnv, make_async, tool
from ludus.errors import ConfigError
from ludus.messages import system, user

LETTERS = 4
"""A token of this server's model."""


def count(request: dict[str, Any]) -> int:
    """Tokens of a prompt, as this server counts."""
    return len(json.dumps(request["messages"]) + json.dumps(request.get("tools", []))) // LETTERS


def broken_rule(messages: list[dict[str, Any]]) -> str:
    """What OpenAI's servers refuse: calls without a result each, results without a call."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a tool message must follow its call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return "every tool call must be answered"
        waiting = [call["id"] for call in message.get("tool_calls", [])]
    return "every tool call must be answered" if waiting else ""


Answer = dict[str, Any] | str
Model = Callable[[dict[str, Any]], Answer]


class Server:
    """A chat server around a model in Python, with the rules and the limit of real ones."""

    def __init__(self) -> None:
        self.model: Model = lambda _: "n"
        self.limit = 10**9
        self.counts_tokens = True
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self.policies: list[ChatPolicy] = []

    async def handle(self, http: web.Request) -> web.Response:
        request = await http.json()
        tokens = count(request)
        if tokens > self.limit:
            said = f"maximum context length is {self.limit} tokens, the prompt has {tokens}"
            return web.json_response({"error": {"message": said}}, status=400)
        if rule := broken_rule(request["messages"]):
            return web.json_response({"error": {"message": rule}}, status=400)
        if "tool_choice" in request and "tools" not in request:
            return web.json_response({"error": {"message": "tool_choice needs tools"}}, status=400)
        self.requests.append(request | {"tokens": tokens})
        made = self.model(request)
        message = {"role": "assistant", "content": made} if isinstance(made, str) else made
        finish = message.pop("finish", "stop")
        body: dict[str, Any] = {"choices": [{"message": message, "finish_reason": finish}]}
        if self.counts_tokens:
            spoken = len(json.dumps(message)) // LETTERS
            body["usage"] = {"prompt_tokens": tokens, "completion_tokens": spoken}
        return web.json_response(body)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/chat/completions", made.handle)
    async with TestServer(app) as running:
        made.url = str(running.make_url("/v1"))
        yield made
        for one in made.policies:
            await one.close()


def policy(
    server: Server, window: int | None, manager: Any = "none", **settings: Any
) -> ChatPolicy:
    context = make_context(ContextSettings(manager=manager, **settings))
    made = ChatPolicy(server.url, "m", window=window, context=context, max_tokens=16, api_key="")
    server.policies.append(made)
    return made


def is_summary(request: dict[str, Any]) -> bool:
    return "Write a summary" in request["messages"][-1]["content"]


def registers(request: dict[str, Any]) -> dict[str, str]:
    """What can be known from the window: registers in summaries and writes, newest last."""
    known: dict[str, str] = {}
    for message in request["messages"][1:]:
        if message["role"] == "user":
            text = message["content"].partition("The conversation has grown")[0]
            known.update(re.findall(r"\b([a-z])(\d)(?=[a-z]\d|\b)", text))
            known.update(re.findall(r"(?<=\d)([a-z])(\d)", text))
    return known


def rememberer(request: dict[str, Any]) -> Answer:
    """Plays LedgerRelay as well as its window allows."""
    known = registers(request)
    if is_summary(request):
        written = "".join(name + digit for name, digit in sorted(known.items()))
        return f"<think>hm</think><summary>{written}</summary>"
    asked = re.search(r"\?([a-z])", request["messages"][-1]["content"])
    return known.get(asked[1], "0") if asked else "n"


async def ledger(chat: ChatPolicy, seed: int, **more: Any) -> Trajectory:
    env = make_async("ludus/ledger-v0", turns=24, gap=12, **more)
    try:
        return (await play(env, chat, seed=seed, split="test")).trajectories[0]
    finally:
        await env.close()


async def test_summaries_carry_what_a_truncated_window_loses(server: Server) -> None:
    server.model = rememberer
    won: dict[str, int] = {}
    for manager, settings in {
        "summarize": {"last_pair": "carry", "summary_tokens": 16},
        "keep_last_k": {"keep": 4},
        "discard": {},
    }.items():
        chat = policy(server, 330, manager, **settings)
        made = [await ledger(chat, seed) for seed in range(12)]
        won[manager] = sum(one.ret == 1.0 for one in made)
        assert all(len(one.segments) > 1 for one in made)
    acts = [one["tokens"] for one in server.requests if not is_summary(one)]
    assert max(acts) <= 330  # W, as the server counts
    assert won["summarize"] == 12
    assert won["keep_last_k"] <= 4  # at chance, 1 in 10
    assert won["discard"] <= 4


async def test_windows_and_what_was_shown_in_each_are_kept(server: Server) -> None:
    server.model = rememberer
    chat = policy(server, 330, "summarize", last_pair="carry", summary_tokens=16)
    made = await ledger(chat, 3)
    assert [one.break_reason for one in made.segments[:-1]] == ["summary"] * (
        len(made.segments) - 1
    )
    assert made.metrics["summaries"] == len(made.segments) - 1
    for segment in made.segments[:-1]:
        assert [turn.kind for turn in segment.turns[:-1]] == [TurnKind.ACT] * (
            len(segment.turns) - 1
        )
        assert segment.turns[-1].kind is TurnKind.SUMMARY
    reopened = made.segments[1].turns[0].observation
    assert "Your summary of the work so far:\n" in reopened[1].text
    shown = [message.text for one in made.turns for message in one.observation]
    writes = [text for text in shown if re.fullmatch(r"[a-z]\d", text)]
    assert len(set(writes)) > 3


async def test_without_a_manager_the_servers_own_limit_ends_the_episode(server: Server) -> None:
    server.model, server.limit = rememberer, 330
    chat = policy(server, None)
    made = await ledger(chat, 1)
    assert (made.stop, made.exclude_from_baseline) == (Stop.CONTEXT_FULL, False)


async def test_a_window_of_ones_own_ends_it_before_the_server_has_to(server: Server) -> None:
    server.model = rememberer
    chat = policy(server, 330)
    made = await ledger(chat, 1)
    assert made.stop is Stop.CONTEXT_FULL
    assert max(one["tokens"] for one in server.requests) <= 330


async def test_a_server_that_refuses_too_long_a_prompt_is_asked_for_less(server: Server) -> None:
    """The window was set too large: the manager is asked all the same."""
    server.model, server.limit = rememberer, 400
    chat = policy(server, 10_000, "summarize", summary_tokens=16)
    made = await ledger(chat, 2)
    assert made.stop is Stop.TERMINATED
    assert made.metrics["summaries"] >= 1
    assert made.metrics["discarded_turns"] >= made.metrics["summaries"]


async def test_where_the_server_counts_no_tokens_letters_are_counted(server: Server) -> None:
    server.model, server.counts_tokens = rememberer, False
    chat = policy(server, 250, "summarize", last_pair="carry", summary_tokens=16)
    made = await ledger(chat, 5)
    assert made.stop is Stop.TERMINATED
    assert made.ret == 1.0
    assert made.metrics["summaries"] >= 1
    assert max(one["tokens"] for one in server.requests if not is_summary(one)) <= 400


class Reader(TextEnv):
    """Read pages one after the other, then say the number of the last."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.page = 0
        return "Read ten pages, then say the number on the last one.", {}

    @tool
    def turn_page(self) -> str:
        """Read the next page."""
        self.page += 1
        return f"page {self.page}: " + "blah " * 20

    def step(self, action: str) -> Any:
        return "", float(action == "10"), True, False, {}


def turner(request: dict[str, Any]) -> Answer:
    """Turns pages until it has seen the tenth; sums up which page it was."""
    pages = [int(n) for m in request["messages"] for n in re.findall(r"page (\d+)", m["content"])]
    last = max(pages, default=0)
    if is_summary(request):
        return f"<summary>page {last}</summary>"
    if last >= 10:
        return "10"
    call = {"id": f"c{last}", "type": "function"}
    return {"content": None, "tool_calls": [call | {"function": {"name": "turn_page"}}]}


@pytest.mark.parametrize("last_pair", ["discard", "carry", "keep"])
async def test_calls_and_results_stay_together_whatever_becomes_of_the_last_pair(
    last_pair: str, server: Server
) -> None:
    """The server refuses conversations in which they do not."""
    server.model = turner
    chat = policy(server, 300, "summarize", last_pair=last_pair, summary_tokens=32)
    made = (await play(EnvSession(Reader()), chat)).trajectories[0]
    assert made.stop is Stop.TERMINATED, made.verdict.detail
    assert made.metrics["summaries"] >= 1
    # what is dropped is read again; what is carried or kept is not
    assert made.ret == (1.0 if last_pair != "discard" else made.ret)
    asked = [one for one in server.requests if is_summary(one)]
    assert all(one["tool_choice"] == "none" and one["max_tokens"] == 32 for one in asked)


@pytest.mark.parametrize("manager", ["keep_last_k", "discard"])
async def test_cut_windows_keep_calls_and_results_together(manager: str, server: Server) -> None:
    server.model = turner
    chat = policy(server, 300, manager, keep=2)
    made = (await play(EnvSession(Reader()), chat)).trajectories[0]
    assert (made.stop, made.ret) == (Stop.TERMINATED, 1.0)  # the newest page says how far it is


@pytest.mark.parametrize(
    "manager",
    [
        "clear?keep=1&placeholder=-&threshold=0.8",
        "clear?keep=1&placeholder=-&threshold=0.8&clear_inputs=true",
        "records?keep=1&record_chars=16",
        "mem1",
        "agent_fold",
        "memagent?chunk_tokens=2000&instruction=Write a summary now.",
        "memory",
        "clear?keep=1+memory+summarize?last_pair=carry",
    ],
)
async def test_other_managers_send_what_a_server_accepts(manager: str, server: Server) -> None:
    """Calls and results are together in every request, or the server would refuse it."""
    server.model = turner
    chat = policy(server, 900, manager, summary_tokens=64, threshold=0.6)
    made = (await play(EnvSession(Reader()), chat)).trajectories[0]
    assert (made.stop, made.ret) == (Stop.TERMINATED, 1.0), made.verdict.detail
    if manager != "mem1":  # which opens a window each turn, whatever the length
        assert all(request["tokens"] <= 900 for request in server.requests)
    assert len(made.segments) > 1


async def test_the_environment_hears_no_state_over_chat(server: Server) -> None:
    def stateful(request: dict[str, Any]) -> Answer:
        known = registers(request)
        written = "".join(name + digit for name, digit in sorted(known.items()))
        return f"<IS>{written}</IS>{rememberer(request)}"

    server.model = stateful
    made = [await ledger(policy(server, 400, "mem1"), seed) for seed in range(4)]
    assert [one.ret for one in made] == [1.0] * 4
    longest = max(request["tokens"] for request in server.requests)
    assert longest < 200  # of episodes that take some 900


async def test_another_model_summarises_over_a_server_of_its_own(server: Server) -> None:
    def either(request: dict[str, Any]) -> Answer:
        if request["model"] != "scribe":
            return rememberer(request)
        text = request["messages"][-1]["content"]
        known = re.findall(r"\[user\] ([a-z])(\d)$", text, re.MULTILINE)
        earlier = re.findall(r"([a-z])(\d)(?=[a-z]\d|\n|$)", text.partition("work so far:")[2])
        written = "".join(name + digit for name, digit in dict([*earlier, *known]).items())
        return f"<summary>{written}</summary>"

    server.model = either
    address = {"summariser_url": server.url, "summariser_model": "scribe"}
    made = [await ledger(policy(server, 260, "resum", carry=True, **address), n) for n in range(4)]
    assert [one.ret for one in made] == [1.0] * 4
    asked = [request for request in server.requests if request["model"] == "scribe"]
    assert asked
    assert all(segment.break_reason in ("resum", "") for one in made for segment in one.segments)
    assert all(turn.kind is TurnKind.ACT for one in made for turn in one.turns)


async def test_a_summary_that_calls_a_tool_runs_nothing_and_is_counted(server: Server) -> None:
    def calling(request: dict[str, Any]) -> Answer:
        if is_summary(request):
            call = {"id": "x", "type": "function", "function": {"name": "turn_page"}}
            return {"content": "page 3", "tool_calls": [call]}
        return turner(request)

    server.model = calling
    env = Reader()
    chat = policy(server, 300, "summarize", last_pair="keep", summary_tokens=32)
    made = (await play(EnvSession(env), chat, limits=EpisodeLimits(max_turns=40))).trajectories[0]
    assert made.metrics["summaries_with_calls"] == made.metrics["summaries"] >= 1
    acts = sum(turn.kind is TurnKind.ACT for turn in made.turns)
    assert env.page == acts - (made.stop is Stop.TERMINATED)


@pytest.mark.parametrize(
    ("said", "metric"),
    [("", "summaries_empty"), ({"content": "cut off", "finish": "length"}, "summaries_cut")],
)
async def test_odd_summaries_are_summaries_and_counted(
    said: Answer, metric: str, server: Server
) -> None:
    def odd(request: dict[str, Any]) -> Answer:
        made = said if isinstance(said, str) else dict(said)
        return made if is_summary(request) else turner(request)

    server.model = odd
    chat = policy(server, 300, "summarize", max_summaries=2, summary_tokens=32)
    made = (await play(EnvSession(Reader()), chat)).trajectories[0]
    assert made.stop is Stop.MAX_SUMMARIES
    assert made.metrics[metric] == 2.0


async def test_a_window_that_opens_full_ends_instead_of_being_cut_for_ever(server: Server) -> None:
    server.model = turner
    for manager in ("summarize", "keep_last_k", "discard"):
        chat = policy(server, 90, manager)
        made = (await play(EnvSession(Reader()), chat)).trajectories[0]
        assert made.stop is Stop.CONTEXT_FULL


async def test_a_branch_is_folded_away_over_chat(server: Server) -> None:
    def folding(request: dict[str, Any]) -> Answer:
        def call(name: str, **arguments: str) -> Answer:
            function = {"name": name, "arguments": json.dumps(arguments)}
            made = {"id": f"f{len(server.requests)}", "type": "function", "function": function}
            return {"content": None, "tool_calls": [made]}

        text = json.dumps(request["messages"])
        if "ten pages were read" in text:
            return "10"
        if "You are in a branch" not in text:
            return call("branch", prompt="read ten pages")
        if "page 10:" in text:
            return call("return_branch", message="ten pages were read")
        return call("turn_page")

    server.model = folding
    chat = policy(server, 5_000, "fold")
    made = (await play(EnvSession(Reader()), chat)).trajectories[0]
    assert (made.stop, made.ret) == (Stop.TERMINATED, 1.0), made.verdict.detail
    assert made.metrics["folds"] == 1.0
    assert "page 3" not in json.dumps(server.requests[-1]["messages"])


async def test_windows_that_cannot_hold_a_step_are_refused_beforehand(server: Server) -> None:
    opening = [system("S" * 300), user("U")]
    policy(server, 2_000, "summarize").check(opening, [])
    with pytest.raises(ConfigError, match="no window would hold a step"):
        policy(server, 400, "summarize").check(opening, [])
    with pytest.raises(ConfigError, match="no window would hold a step"):
        policy(server, 110, "discard").check(opening, [])
    with pytest.raises(ConfigError, match="needs a window"):
        policy(server, None, "keep_last_k")
