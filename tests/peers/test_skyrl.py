"""`skyrl_gym`, unmodified, makes and plays a ludus environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError

from . import games

skyrl_gym: Any = pytest.importorskip("skyrl_gym", reason="make test-peers installs skyrl-gym")
from ludus.integrations.skyrl import rows  # noqa: E402

ENV = "peers/sums-v0"


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    skyrl_gym.register(id="ludus", entry_point="ludus.integrations.skyrl:LudusEnv")


def played(task: str, *said: str) -> tuple[Any, list[Any]]:
    env = skyrl_gym.make("ludus", env_config={"env": ENV}, extras={"task": task, "max_turns": 9})
    begun, _ = env.init([{"role": "system", "content": "Be brief."}])
    steps = [env.step(text) for text in said]
    env.close()
    return begun, steps


def test_rewards_are_those_of_the_environment() -> None:
    for row, script in zip(rows(ENV, games.EPISODES), games.scripts(), strict=True):
        assert row["extra_info"]["task"] == script.task
        begun, steps = played(script.task, *script.lines)
        assert begun[0] == {"role": "system", "content": "Be brief."}
        assert begun[-1] == {"role": "user", "content": script.question}
        assert sum(step["reward"] for step in steps) == script.reward
        assert [step["done"] for step in steps] == [False] * script.calls + [True]


def test_calls_are_played_and_only_declared_tools_are_told() -> None:
    ask = '<tool_call>\n{"name": "gold", "arguments": {}}\n</tool_call>'
    begun, (called, asked, slept, ended) = played("train/3", games.CALL, ask, "sleep 0", "1")
    assert called["observations"][0]["content"] == "<tool_response>\n3\n</tool_response>"
    assert (called["reward"], called["done"]) == (0.0, False)
    assert "no tool" in asked["observations"][0]["content"]
    assert slept["reward"] == 0.25
    assert (ended["reward"], ended["done"]) == (0.0, True)
    seen = json.dumps([begun, called, asked, slept, ended])
    assert games.SECRET not in seen
    assert '\\"add\\"' in seen
    assert "demonstrate" not in seen


def test_a_verdict_that_is_not_ok_is_raised() -> None:
    for broken in ("break", "crash"):
        with pytest.raises(ludus.RewardUnavailable):
            played("train/3", broken)
    assert played("train/3", "1")[1][0]["reward"] == 0.0  # positive control: a wrong answer


def test_mistakes_are_told() -> None:
    with pytest.raises(ConfigError, match="env='me/env-v0'"):
        skyrl_gym.make("ludus")
    with pytest.raises(ludus.LudusError, match="peers/sums-v0"):
        skyrl_gym.make("ludus", env_config={"env": "peers/sum-v0"})
