"""Requests that were not answered, and environments that are late."""

from __future__ import annotations

import asyncio
from typing import Any

import ludus
from ludus.agent import Stop
from ludus.agent.gateway import AgentLimits, AgentTask, run_agent
from ludus.agent.gateway.tree import Cause, Tree
from ludus.agent.trajectory import Turn
from ludus.envs import TextEnv, make_async
from ludus.messages import assistant, user
from tests.unit.agent.gateway_engine import LoggedEngine, bearer, chat_format, serving


@ludus.register("test/asleep-v0")
class Asleep(TextEnv):
    async def reset(self, **_: Any) -> tuple[str, dict[str, Any]]:
        await asyncio.sleep(600)
        return "", {}

    def step(self, action: str) -> Any:
        raise NotImplementedError


async def never(task: AgentTask) -> str:
    raise NotImplementedError


async def test_an_environment_that_is_late_is_named_with_the_limit() -> None:
    env = make_async("test/asleep-v0")
    async with serving(LoggedEngine(chat_format())) as (gateway, _):
        episode = await run_agent(env, never, gateway, limits=AgentLimits(timeout_s=0.1))
    (trajectory,) = episode.trajectories
    assert trajectory.stop is Stop.ENV_ERROR
    assert trajectory.verdict.detail == "test/asleep-v0 did not reset within 0.1 s"


def test_a_request_that_got_no_answer_is_not_repeated_by_its_next_attempt() -> None:
    tree, asked = Tree(), [user("begin")]
    tree.discard(tree.add(tree.place(asked, []), [1], Turn()))
    assert tree.place(asked, []).cause is Cause.START
    first = tree.add(tree.place(asked, []), [1], Turn())
    tree.answer(first, assistant("so"))
    further = [*asked, assistant("so"), user("go on")]
    tree.discard(tree.add(tree.place(further, []), [], Turn()))
    assert tree.place(further, []).cause is None
    tree.discard(tree.add(tree.place(asked, []), [1], Turn()))
    assert tree.place(asked, []).cause is Cause.RETRY


async def test_a_body_without_end_and_a_key_of_any_bytes_are_the_clients_mistake() -> None:
    async with serving(LoggedEngine(chat_format())) as (gateway, http):
        deep = b'{"messages": ' + b"[" * 100_000
        reply = await http.post(
            "/v1/chat/completions", content=deep, headers=bearer(gateway.open())
        )
        assert (reply.status_code, "nested too deeply" in reply.text) == (400, True)
        key = {b"Authorization": b"Bearer \xff\xfe"}
        reply = await http.post("/rollouts", content=b"{}", headers=key)
        assert (reply.status_code, "operator's key" in reply.text) == (401, True)
        key = {b"Authorization": f"Bearer {gateway.operator_key}".encode()}
        reply = await http.post("/rollouts", content=b'{"max_calls": 0}', headers=key)
        assert (reply.status_code, "max_calls" in reply.text) == (400, True)
