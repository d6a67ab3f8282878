"""inspect_ai: its solvers ask the policy, and its scorers say the reward."""

from pathlib import Path

import pytest

import ludus
from ludus.envs import GymEnv
from ludus.envs.checks import check_env
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message
from ludus.verdict import Status
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
TASKS = str(Path(__file__).with_name("in_tasks") / "evaluations.py")


def opened(name: str) -> GymEnv:
    return ludus.make(f"inspect/{name}", python=python_with("inspect"), path=TASKS)


def shown(observation: str | list[Message]) -> str:
    return observation if isinstance(observation, str) else observation[-1].text


def test_an_answer_is_scored_by_the_tasks_own_scorer() -> None:
    env = opened("sums")
    for said, reward in (("{right}", 1.0), ("It is {right}", 1.0), ("0", 0.0), ("", 0.0)):
        observation, info = env.reset(seed=2)
        assert info["briefing"].system_prompt == "Be brief."
        number = int(shown(observation).partition("+")[0])
        assert env.step(said.format(right=2 * number))[1] == reward
    env.close()


def test_choices_are_asked_for_as_the_package_asks_a_model() -> None:
    env = opened("choices")
    observation, _ = env.reset(seed=0)
    assert "A) x" in shown(observation)
    right = shown(observation).partition("pick ")[2][0]
    assert env.step(f"ANSWER: {right}")[1] == 1.0
    env.close()


def test_a_solver_that_asks_twice_has_two_turns() -> None:
    env = opened("twice")
    env.reset(seed=0)
    observation, reward, over, *_ = env.step("8")
    assert (shown(observation), reward, over) == ("Are you sure?", 0.0, False)
    _, reward, over, *_ = env.step("7")
    assert (reward, over) == (1.0, True)
    env.close()


def test_a_scorer_that_needs_a_model_is_no_reward() -> None:
    env = opened("graded")
    env.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        env.step("because")
    assert caught.value.verdict.status is Status.ERROR
    env.close()


@pytest.mark.parametrize(
    ("name", "said"), [("boxed", "it brings a sandbox of its own"), ("no_such", "cannot be made")]
)
def test_what_cannot_be_played_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        opened(name)


@pytest.mark.parametrize("name", ["gsm8k", "agieval-v0"])  # a task, and a family of nine tasks
def test_an_evaluation_without_its_data_names_the_download(name: str) -> None:
    with pytest.raises(ConfigError, match="its data set cannot be had here"):
        ludus.make(f"inspect/{name}", python=python_with("inspect"))


@pytest.mark.parametrize("name", ["sums", "choices"])
def test_evaluations_pass_the_whole_check(name: str) -> None:
    given = {"python": python_with("inspect"), "path": TASKS}
    assert not check_env(format_served(f"inspect/{name}", given)).failures
