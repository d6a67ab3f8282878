"""inspect_ai: its solvers ask the policy, and its scorers say the reward."""

import json
import subprocess
from pathlib import Path

import pytest

import ludus
from ludus.envs import GymEnv
from ludus.envs.checks import check_env
from ludus.envs.tasks import SPLITS
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message
from ludus.verdict import Status
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
TASKS = str(Path(__file__).with_name("in_tasks") / "evaluations.py")

THEIRS = """
import importlib.util, json, sys
import inspect_ai
from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.scorer import value_to_float

@modelapi(name="scripted")
class Scripted(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        return ModelOutput.from_content("scripted/model", answers[input[-1].text])

spec = importlib.util.spec_from_file_location("evaluations", sys.argv[1])
evaluations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(evaluations)
rounds = []
for answers in json.load(sys.stdin):
    model = get_model("scripted/model", memoize=False)
    (log,) = inspect_ai.eval(evaluations.sums(), model=model, display="none", log_dir=sys.argv[2])
    number = value_to_float()
    rounds.append({one.input: number(one.scores["match"].value) for one in log.samples})
print("rounds:", json.dumps(rounds))
"""


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


def test_120_episodes_have_the_rewards_of_the_packages_own_evaluation(tmp_path: Path) -> None:
    """Three answers to each of 40 samples, right, wordy and wrong in turn."""
    answers = [
        {f"{n}+{n}?": (str(2 * n), f"It is {2 * n}", "0")[(n + turn) % 3] for n in range(1, 41)}
        for turn in range(3)
    ]
    evaluated = subprocess.run(
        [python_with("inspect"), "-c", THEIRS, TASKS, str(tmp_path)],
        input=json.dumps(answers), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    rounds = json.loads(evaluated.stdout.partition("rounds: ")[2])
    assert {reward for rewards in rounds for reward in rewards.values()} == {0.0, 1.0}
    env = opened("sums")
    splits = [env.tasks(split) for split in SPLITS]
    tasks = [one.at(index).id for one in splits for index in range(one.size or 0)]
    for said, wanted in zip(answers, rounds, strict=True):
        rewards = dict[str, float]()
        for task in tasks:
            question = shown(env.reset(options={"task": task})[0])
            rewards[question] = float(env.step(said[question])[1])
        assert rewards == wanted
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
