"""Agents of other projects, unmodified, play through the gateway with their official SDKs; what
they are given is held against the engine's own log.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("langgraph")
pytest.importorskip("smolagents")

from ludus.agent import Stop
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict
from tests.peers.agents_played import AGENTS
from tests.unit.agent.gateway_engine import LoggedEngine, chat_format, check_capture, serving

ROWS = {"smolagents": 8}
"""The most rows of agents that do not echo what they were given: it writes calls as text."""


class CallingEngine(LoggedEngine):
    """Calls the tool twice, then answers."""

    def _drawn(self, rng: random.Random) -> Message:
        if len(self.log) % 3 == 2:
            return assistant(f"the final answer is {rng.random()} ")
        call = ToolCall(name="look", arguments={"key": "k", "depth": 1}, id="call_0")
        return assistant(rng.choice(["", "thinking aloud "]), [call])


@pytest.mark.parametrize("name", sorted(AGENTS))
async def test_an_agent_plays_and_each_of_its_tokens_is_captured(name: str) -> None:
    engine = CallingEngine(chat_format())
    async with serving(engine) as (gateway, _):
        rollout = gateway.open()
        variables = os.environ | {
            "OPENAI_BASE_URL": f"{gateway.url}/v1",
            "OPENAI_API_BASE": f"{gateway.url}/v1",
            "OPENAI_API_KEY": rollout.key,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_BASE_URL": gateway.url,
            "ANTHROPIC_API_KEY": rollout.key,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("agents_played.py")),
            name,
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(300):
            printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()[-3000:]
        rollout.end(Stop.TERMINATED)
        trajectory = rollout.trajectory(Verdict.of(1.0))
        check_capture(engine, rollout, trajectory.segments)
        assert rollout.counts["calls"] >= 3
        assert trajectory.metrics["trained_share"] == 1.0
        assert len(trajectory.segments) <= ROWS.get(name, 1)
