"""verifiers: tasksets as environments, with the rewards of their own functions."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import ludus
from ludus.envs.checks import check_env
from ludus.envs.tasks import SPLITS
from ludus.errors import ConfigError, RewardUnavailable
from ludus.verdict import Status
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
TASKS = str(Path(__file__).with_name("in_tasks"))


def test_a_taskset_has_splits_prompts_and_weighted_rewards() -> None:
    env = ludus.make("verifiers/capital-tasks", python=python_with("verifiers"), path=TASKS)
    sizes = [env.tasks(split).size or 0 for split in ("train", "validation", "test")]
    assert sum(sizes) == 40
    assert all(sizes)
    for said, reward in (("{city}", 2.0), ("wrong", 0.0), ("x" * 21, -0.5), ("", 0.0)):
        shown, info = env.reset(seed=1)
        number = str(shown).split()[-1].rstrip("?")
        assert info["briefing"].system_prompt == "Answer by a name."
        _, earned, over, _, told = env.step(said.format(city=f"city {number}"))
        assert (earned, over) == (reward, True)
        assert set(told["rewards"]) == {"exact", "wordy"}
        assert set(told["metrics"]) == {"length"}
    env.close()


@pytest.mark.slow
def test_120_episodes_have_the_rewards_of_the_packages_own_agent() -> None:
    """Three answers to each of 40 tasks, right, short and wordy in turn."""
    python = Path(python_with("verifiers"))
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    if shutil.which("uv", path=path) is None:
        pytest.skip("verifiers starts its agents with uv, which is not on the path")
    answers = [
        {
            f"The capital of land {n}?": (f"city {n}", "no", "x" * 21)[(n + turn) % 3]
            for n in range(40)
        }
        for turn in range(3)
    ]
    program = Path(__file__).with_name("in_verifiers_episodes.py")
    played = subprocess.run(
        [str(python), str(program), TASKS], env={**os.environ, "PATH": path},
        input=json.dumps(answers), capture_output=True, text=True, timeout=500, check=True,
    )  # fmt: skip
    rounds = json.loads(played.stdout.partition("rounds: ")[2])
    assert {reward for rewards in rounds for reward in rewards.values()} == {2.0, 0.0, -0.5}
    env = ludus.make("verifiers/capital-tasks", python=str(python), path=TASKS)
    splits = [env.tasks(split) for split in SPLITS]
    tasks = [one.at(index).id for one in splits for index in range(one.size or 0)]
    for said, wanted in zip(answers, rounds, strict=True):
        rewards = dict[str, float]()
        for task in tasks:
            prompt = str(env.reset(options={"task": task})[0])
            rewards[prompt] = float(env.step(said[prompt])[1])
        assert rewards == wanted
    env.close()


def test_a_taskset_passes_the_whole_check() -> None:
    given = {"python": python_with("verifiers"), "path": TASKS}
    assert not check_env(format_served("verifiers/capital-tasks", given)).failures


def test_a_reward_function_that_fails_is_no_reward() -> None:
    env = ludus.make("verifiers/broken-tasks", python=python_with("verifiers"), path=TASKS)
    env.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        env.step("x")
    assert caught.value.verdict.status is Status.ERROR
    assert "the answer key is gone" in caught.value.verdict.detail
    env.close()


def test_a_taskset_that_needs_a_container_is_refused() -> None:
    with pytest.raises(ConfigError, match="it needs a container, a runtime in which it scores"):
        ludus.make("verifiers/container-tasks", python=python_with("verifiers"), path=TASKS)


def test_a_taskset_that_is_not_installed_is_told() -> None:
    with pytest.raises(ConfigError, match="ludus env install verifiers --package NAME"):
        ludus.make("verifiers/no-such-taskset", python=python_with("verifiers"))
