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
from tests.unit.agent.gateway_engine import LoggedEngine, chat_format, serving


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
