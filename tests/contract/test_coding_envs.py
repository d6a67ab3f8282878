"""The programming environments play whole, on generated problems and on published ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import ludus
from ludus.envs.gym import GymEnv
from ludus.verdict import Verdict

DATA = os.environ.get("LUDUS_DATA_DIR", "")


pytestmark = pytest.mark.usefixtures("a_sandbox")


def answered(env: GymEnv, task: str, response: str | None = None) -> tuple[float, Verdict]:
    """Reward and verdict of a response; of the expert's where none is given."""
    env.reset(options={"task": task})
    said = env.session.env.demonstrate() if response is None else response  # type: ignore[attr-defined]
    _, reward, terminated, _, info = env.step(said)
    assert terminated
    return reward, info["verdict"]


@pytest.mark.parametrize("forms", ["function", "program"])
def test_the_expert_of_generated_problems_is_right_and_less_is_not(forms: str) -> None:
    env = ludus.make("ludus/coding-v0", forms=forms, min_steps=2, max_steps=4)
    noticed = 0
    for index in range(12):
        assert answered(env, f"train/{index}")[0] == 1.0
        solution: str = env.session.env.problem.solution  # type: ignore[attr-defined]
        head, _, *rest = solution.splitlines(keepends=True)
        assert answered(env, f"train/{index}", head + "    return None\n")[0] == 0.0
        noticed += answered(env, f"train/{index}", "".join([head, *rest]))[0] == 0.0
    assert noticed >= 9  # a first step such as sorting may not matter to the result


def test_partial_credit_is_the_share_of_tests() -> None:
    env = ludus.make("ludus/coding-v0", forms="function", partial=True)
    env.reset(options={"task": "train/0"})
    tests: list[str] = env.session.env.gold()["tests"]  # type: ignore[attr-defined]
    given, _, expected = tests[0].removeprefix("assert solve").partition(" == ")
    memorised = f"def solve(items):\n    return {expected} if items == {given} else None\n"
    assert answered(env, "train/0", memorised)[0] == pytest.approx(1 / len(tests))


def published(name: str, **options: Any) -> tuple[GymEnv, list[str]]:
    env = ludus.make(
        "ludus/coding-v0", source=f"{DATA}/code/{name}", test=0.0, validation=0.0, **options
    )
    tasks = env.tasks("train")
    assert tasks.size is not None
    return env, [tasks.at(index).id for index in range(tasks.size)]


needs_data = pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR names no folder with data sets")
FILES = [("HumanEval.jsonl.gz", 164), ("mbpp.jsonl", 974)]


@needs_data
@pytest.mark.parametrize(("name", "size"), FILES)
def test_published_solutions_are_right_and_junk_is_not(name: str, size: int) -> None:
    env, ids = published(name)
    assert len(ids) == size
    for task in ids[:20]:
        assert answered(env, task)[0] == 1.0, task
        assert answered(env, task, "```python\npass\n```")[0] == 0.0, task


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), FILES)
def test_all_published_solutions_are_right(name: str, size: int) -> None:
    env, ids = published(name)
    wrong = {
        task: verdict.detail for task in ids if (verdict := answered(env, task)[1]).reward != 1
    }
    assert (len(ids), wrong) == (size, {})


@needs_data
def test_a_body_alone_completes_a_human_eval_prompt_and_a_whole_function_needs_no_imports() -> None:
    env, _ = published("HumanEval.jsonl.gz")
    body = "    return sorted(set(xs for xs in l))\n"  # HumanEval/34: unique
    assert answered(env, "HumanEval/34", body)[0] == 1.0
    annotated = "def filter_integers(values: List[Any]) -> List[int]:\n"
    whole = f"{annotated}    return [x for x in values if type(x) is int]\n"  # HumanEval/22
    assert answered(env, "HumanEval/22", whole)[0] == 1.0


@needs_data
def test_helpers_of_a_prompt_are_the_tests_own() -> None:
    env, _ = published("HumanEval.jsonl.gz")
    cheat = "def poly(*_):\n    return 0\ndef find_zero(xs):\n    return 0\n"  # HumanEval/32
    assert answered(env, "HumanEval/32", cheat)[0] == 0.0


def test_without_a_sandbox_the_reward_is_unavailable() -> None:
    program = (
        "import ludus\n"
        "env = ludus.make('ludus/coding-v0')\n"
        "env.reset(seed=0)\n"
        "try:\n    print(env.step('def solve(items): return 0'))\n"
        "except ludus.RewardUnavailable as error:\n    print(error.verdict.status.value)\n"
    )
    environment = {**os.environ, "LUDUS_SANDBOX": "slots-nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "unavailable", done
