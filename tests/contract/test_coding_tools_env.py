"""`ludus/coding-tools-v0`: sessions keep state, errors are told, a lost sandbox is not a zero."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import ludus
from ludus.background import run_on_loop
from ludus.envs.families.coding.tools import Workbench
from ludus.envs.gym import GymEnv
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, ToolCall, assistant

pytestmark = pytest.mark.usefixtures("a_sandbox")


def begun(**options: Any) -> GymEnv:
    env = ludus.make("ludus/coding-tools-v0", forms="function", **options)
    env.reset(options={"task": "train/0"})
    return env


def call(env: GymEnv, name: str, **arguments: Any) -> str:
    """What a tool answers."""
    shown, _, _, _, _ = env.step(assistant("", [ToolCall(name=name, arguments=arguments)]))
    assert isinstance(shown, list)
    return shown[0].text


def solution(env: GymEnv) -> str:
    return str(env.session.env.problem.solution)  # type: ignore[attr-defined]


def test_names_stay_defined_and_the_last_value_is_shown() -> None:
    env = begun()
    assert call(env, "run", code="x = 20\nprint('a')") == "a"
    assert call(env, "run", code="x + 1") == "21"
    env.close()


def test_an_error_is_shown_with_its_line() -> None:
    env = begun()
    shown = call(env, "run", code="def f():\n    return nothing\nf()")
    assert shown.endswith("NameError: name 'nothing' is not defined")
    assert "line 2" in shown
    env.close()


def test_standard_input_can_be_given_and_defines_nothing() -> None:
    env = begun()
    assert call(env, "run", code="print(int(input()) * 2)", stdin="21\n") == "42"
    shown = call(env, "run", code="print(sys.version)", stdin="x")
    assert "NameError" in shown
    assert call(env, "run", code="open(0).read() if 0 else __import__('sys').stdin.read()") == "'x'"
    env.close()


def test_an_endless_run_is_stopped_and_the_names_stay() -> None:
    env = begun(run_timeout_s=0.5)
    call(env, "run", code="x = 1")
    assert call(env, "run", code="while True: pass").endswith("[stopped after 0.5 s]")
    assert call(env, "run", code="x") == "1"
    env.close()


def test_long_output_is_cut_in_the_middle() -> None:
    env = begun(max_letters=100)
    shown = call(env, "run", code="print('a' * 1000 + 'z' * 1000)")
    assert shown.startswith("a" * 50 + "\n[... 1901 letters left out ...]\n")
    assert shown.endswith("z" * 49)
    env.close()


@pytest.mark.parametrize(
    "code",
    ["import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 9)", "import os\nos.close(3)"],
)
def test_a_session_ended_by_what_ran_in_it_is_told_and_a_new_one_begins(code: str) -> None:
    env = begun()
    call(env, "run", code="x = 1")
    assert "the session has ended" in call(env, "run", code=code)
    assert "NameError" in call(env, "run", code="x")
    assert env.step(assistant("", [submission(solution(env))]))[1] == 1.0
    env.close()


def submission(code: str) -> ToolCall:
    return ToolCall(name="submit", arguments={"code": code})


def test_a_sandbox_killed_in_the_middle_makes_the_episode_unusable() -> None:
    env = begun()
    call(env, "run", code="x = 1")
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it died with its parent
            process.kill()
    with pytest.raises(RewardUnavailable, match="unavailable"):
        call(env, "run", code="x")
    env.reset(options={"task": "train/0"})  # the next episode has a sandbox again
    assert call(env, "run", code="1 + 1") == "2"
    assert env.step(assistant("", [submission(solution(env))]))[1] == 1.0
    env.close()


def stopped() -> list[psutil.Process]:
    """Stop all processes below this one: those that a slot starts meanwhile too."""
    while True:
        processes, running = psutil.Process().children(recursive=True), 0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                running += process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
                process.suspend()
        if not running:
            return processes


def test_a_slot_that_dies_before_it_has_run_anything_costs_the_episode_nothing() -> None:
    async def work() -> str:
        bench = Workbench({"note": "kept"})
        await bench.read("note")
        await bench.close()  # its slot waits for the next session
        processes = stopped()
        reading = asyncio.ensure_future(bench.read("note"))
        while bench._session is None:
            await asyncio.sleep(0.01)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        answer = await reading
        await bench.close()
        return answer

    assert run_on_loop(work(), timeout_s=120) == "kept"


def test_without_a_sandbox_the_episode_is_unusable_at_its_first_run() -> None:
    program = (
        "import ludus\n"
        "from ludus.messages import ToolCall, assistant\n"
        "env = ludus.make('ludus/coding-tools-v0')\n"
        "env.reset(seed=0)\n"
        "call = ToolCall(name='run', arguments={'code': '1'})\n"
        "try:\n    print(env.step(assistant('', [call])))\n"
        "except ludus.RewardUnavailable as error:\n    print(error.verdict.status.value)\n"
    )
    environment = {**os.environ, "LUDUS_SANDBOX": "slots-nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "unavailable", done


def test_submissions_that_fail_are_told_how_many_tests_passed_and_no_more() -> None:
    env = begun(submissions=3, partial=True)
    wrong = "def solve(items):\n    return 63\n"  # train/0: the first shown example
    expected = env.session.env.gold()["tests"]  # type: ignore[attr-defined]
    passing = sum(test.endswith("== 63") for test in expected)
    told = call(env, "submit", code=wrong)
    assert told == f"{passing} of 12 tests passed; submissions left: 2."
    assert call(env, "submit", code="") == "There is no code in it; submissions left: 1."
    shown, reward, terminated, _, _ = env.step(wrong)
    assert (shown, reward, terminated) == ("Graded.", passing / 12, True)
    env.close()


def test_a_right_submission_ends_the_episode_at_once() -> None:
    env = begun(submissions=5)
    _, reward, terminated, _, info = env.step(assistant("", [submission(solution(env))]))
    assert (reward, terminated) == (1.0, True)
    assert info["gold"]["entry_point"] == "solve"
    env.close()


def test_an_answer_in_text_is_a_submission() -> None:
    env = begun()
    assert env.step(f"Here:\n```python\n{solution(env)}```\n")[1:3] == (1.0, True)
    env.reset(options={"task": "train/1"})
    assert env.step("I do not know.")[1:3] == (0.0, True)
    env.close()


def test_turns_are_bounded() -> None:
    env = begun(turns=2)
    assert call(env, "run", code="1") == "1"
    _, reward, terminated, truncated, _ = env.step(
        assistant("", [ToolCall(name="run", arguments={"code": "1"})])
    )
    assert (reward, terminated, truncated) == (0.0, False, True)
    env.close()


def test_the_expert_tries_what_the_question_shows_then_submits() -> None:
    env = ludus.make("ludus/coding-tools-v0", forms="function,program")
    for index in range(6):
        env.reset(options={"task": f"train/{index}"})
        first: Message = env.session.env.demonstrate()  # type: ignore[attr-defined]
        shown, reward, over, _, _ = env.step(first)
        assert isinstance(shown, list)
        assert (first.tool_calls[0].name, reward, over) == ("run", 0.0, False)
        assert shown[0].text not in ("False", "(no output)")
        assert env.step(env.session.env.demonstrate())[1:3] == (1.0, True)  # type: ignore[attr-defined]
    env.close()


def test_the_expert_submits_where_the_tests_call_the_function(tmp_path: Path) -> None:
    row = {
        "prompt": "Write f, which adds one.",
        "kind": "function_call",
        "entry_point": "f",
        "tests": [{"input": [1], "output": 2}],
        "solution": "def f(x):\n    return x + 1\n",
    }
    rows = [json.dumps({**row, "id": f"{number}"}) for number in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    source = str(tmp_path / "rows.jsonl")
    env = ludus.make("ludus/coding-tools-v0", source=source, validation=0.0, test=0.0)
    env.reset(options={"split": "train"})
    assert env.step(env.session.env.demonstrate())[1:3] == (0.0, False)  # type: ignore[attr-defined]
    assert env.step(env.session.env.demonstrate())[1:3] == (1.0, True)  # type: ignore[attr-defined]
    env.close()


def test_hidden_tests_are_not_in_the_session() -> None:
    env = begun()
    search = (
        "import gc, os\n"
        "hits = [o for o in gc.get_objects() if type(o) in (str, list) and 'assert s' in o]\n"
        "print(len(hits), os.listdir('.'))"
    )
    assert call(env, "run", code=search) == "0 []"
    env.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"turns": 0},
        {"submissions": 0},
        {"run_timeout_s": 0},
        {"run_timeout_s": 100},
        {"max_letters": 9},
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ludus.make("ludus/coding-tools-v0", **arguments)
