"""`ludus/maths-tools-v0`: Python keeps its names, answers are scored, faults are told."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus.envs.gym import GymEnv
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant

pytestmark = pytest.mark.usefixtures("a_sandbox")


def begun(task: str = "train/0", **options: Any) -> GymEnv:
    env = ludus.make("ludus/maths-tools-v0", **options)
    env.reset(options={"task": task})
    return env


def run(env: GymEnv, code: str) -> str:
    shown, _, _, _, _ = env.step(assistant("", [ToolCall(name="run", arguments={"code": code})]))
    assert isinstance(shown, list)
    return shown[0].text


def test_names_stay_defined_within_an_episode_and_not_beyond_it() -> None:
    env = begun()
    assert run(env, "from fractions import Fraction\nx = Fraction(1, 3)") == "(no output)"
    assert run(env, "x * 3") == "Fraction(1, 1)"
    env.reset(options={"task": "train/1"})
    assert "NameError" in run(env, "x")
    env.close()


def test_an_answer_ends_the_episode_and_what_was_printed_is_no_answer() -> None:
    env = begun()
    gold = str(env.session.env.gold())
    run(env, f"print({gold!r})")
    _, reward, terminated, _, _ = env.step("It was printed.")
    assert terminated
    assert reward == 0.0
    env.reset(options={"task": "train/0"})
    _, reward, terminated, _, _ = env.step(rf"\boxed{{{gold}}}")
    assert terminated
    assert reward == 1.0
    env.close()


def test_a_cell_that_does_not_stop_is_stopped_and_told() -> None:
    env = begun(run_timeout_s=0.5)
    assert "[stopped after 0.5 s]" in run(env, "while True:\n    pass")
    assert run(env, "1 + 1") == "2"
    env.close()


def test_problems_of_a_file_are_demonstrated_without_a_program(tmp_path: Any) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text('{"question": "What is 6 times 7?", "answer": "42"}\n')
    env = ludus.make("ludus/maths-tools-v0", source=str(path), validation=0.0, test=0.0)
    env.reset()
    _, reward, terminated, _, _ = env.step(env.session.env.demonstrate())
    assert (terminated, reward) == (True, 1.0)
    env.close()


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"run_timeout_s": 0}, {"max_letters": 5}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ludus.make("ludus/maths-tools-v0", **wrong)
