"""Environments of docs/environments.md whose process dies in the middle: no reward, no zero."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

import ludus
from ludus.agent import ScriptedPolicy, play
from ludus.envs.serving.connect import RemoteServer
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Status

LOOK: dict[str, str | Message] = {
    "ludus/search-v0": assistant("", [ToolCall(name="search", arguments={"query": "mayor"})]),
    "ludus/sql-v0": assistant("", [ToolCall(name="run_sql", arguments={"query": "SELECT 1"})]),
    "ludus/wikigame-v0": "nowhere",
    "ludus/twenty-questions-v0": "Is it red?",
}


@contextmanager
def served(env_id: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A server of one environment; its address."""
    command = [sys.executable, "-m", "ludus", "serve", env_id, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield line.split()[-1], process
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", LOOK)
async def test_an_episode_whose_server_is_killed_is_excluded(env_id: str) -> None:
    if env_id == "ludus/search-v0":
        pytest.importorskip("bm25s", reason="the extra 'search' is not installed")
    with served(env_id) as (url, process):
        server: RemoteServer = ludus.connect(url, timeout_s=2.0)
        env = server.make_async(env_id)
        turns = 0

        async def act(messages: object) -> str | Message:
            nonlocal turns
            turns += 1
            if turns == 2:
                process.kill()
                process.wait(timeout=60)
            return LOOK[env_id]

        episode = await asyncio.wait_for(play(env, ScriptedPolicy(act)), 60)
        (trajectory,) = episode.trajectories
        assert turns == 2
        assert trajectory.verdict.status is Status.UNAVAILABLE
        assert trajectory.verdict.reward is None
        assert trajectory.exclude_from_loss
        assert trajectory.exclude_from_baseline
        await server.aclose()
