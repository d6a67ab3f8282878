"""gem: its games, its problems from a file, and its programs in the sandbox of ludus."""

import json
from pathlib import Path

import pytest

import ludus
from ludus.envs.checks import check_env
from ludus.errors import ConfigError
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers


def test_a_game_is_won_by_its_rules() -> None:
    env = ludus.make("gem/GuessTheNumber-v0", python=python_with("gem"), variant="easy")
    won = 0
    for index in range(6):
        env.reset(options={"task": f"test/{index}"})
        low, high, reward, over = 1, 10, 0.0, False
        while not over:
            guess = (low + high) // 2
            shown, reward, over, *_ = env.step(f"\\boxed{{{guess}}}")
            low, high = (guess + 1, high) if "is higher" in str(shown) else (low, guess - 1)
        won += reward == 1.0
    assert won >= 4  # four guesses of ten numbers
    env.close()


@pytest.mark.parametrize("name", ["Mastermind", "Minesweeper", "Sudoku", "reasoning-gym"])
def test_games_pass_the_whole_check(name: str) -> None:
    assert not check_env(format_served(f"gem/{name}-v0", {"python": python_with("gem")})).failures


def test_reasoning_gym_inside_gem_reads_answers_too(tmp_path: Path) -> None:
    marked = tmp_path / "marked"
    env = ludus.make("gem/reasoning-gym-v0", python=python_with("gem"), variant="n_queens")
    env.reset(seed=0)
    hostile = f"\\boxed{{__import__('os').system('touch {marked}')}}"
    assert env.step(hostile)[1] == 0.0
    assert not marked.exists()
    env.close()


def test_a_data_set_is_a_file_of_its_rows(tmp_path: Path) -> None:
    rows = [{"problem": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(30)]
    place = tmp_path / "rows.jsonl"
    place.write_text("\n".join(map(json.dumps, rows)))
    env = ludus.make("gem/math-GSM8K-v0", python=python_with("gem"), data=str(place))
    sizes = [env.tasks(split).size or 0 for split in ("train", "validation", "test")]
    assert sum(sizes) == 30
    for said, reward in (("\\boxed{%d}", 1.0), ("\\boxed{1000}", 0.0), ("%d", 0.0)):
        question, _ = env.reset(seed=1)
        number = int(str(question).split()[2].partition("+")[0])
        _, got, terminated, truncated, _ = env.step(said % (2 * number) if "%d" in said else said)
        assert (got, terminated, truncated) == (reward, True, False)
    env.close()
    named = format_served("gem/math-GSM8K-v0", {"python": python_with("gem"), "data": str(place)})
    assert not check_env(named).failures


def test_a_data_set_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="needs the data set axon-rl/GSM-8k"):
        ludus.make("gem/math-GSM8K-v0", python=python_with("gem"))


def test_programs_run_in_the_sandbox_and_nowhere_else(tmp_path: Path) -> None:
    tests = {"inputs": ["3\n", "5\n"], "outputs": ["9\n", "25\n"]}
    place = tmp_path / "rows.jsonl"
    place.write_text(json.dumps({"problem": "Print the square.", "tests": tests}))
    marked = tmp_path / "marked"
    env = ludus.make("gem/code-CodeContest-v0", python=python_with("gem"), data=str(place))
    programs = {
        "print(int(input()) ** 2)": 1.0,
        "print(9)": 0.0,
        f"open({str(marked)!r}, 'w').write('x')\nprint(int(input()) ** 2)": 0.0,
        "import sys; sys.exit(3)": 0.0,
    }
    for program, reward in programs.items():
        env.reset(seed=0)
        assert env.step(f"```python\n{program}\n```")[1] == reward, program
    env.reset(seed=0)
    assert env.step("no program")[1] == -0.1  # what gem gives for an answer without one
    assert not marked.exists()
    env.close()
