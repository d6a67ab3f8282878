"""Problems from rows, files and the generator."""

import gzip
import json
import logging
import math
import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs.families.maths import (
    KINDS,
    Maths,
    MathsRows,
    draw,
    last_boxed,
    read_row,
    split_of,
    tex,
)
from ludus.envs.problem_files import UnusableRow, load_problems
from ludus.envs.tasks import GeneratedTasks
from ludus.errors import ConfigError, MissingExtra, RewardUnavailable, UnknownTask, UnknownVerifier

DATA = os.environ.get("LUDUS_DATA_DIR", "")


@pytest.mark.parametrize(
    ("row", "question", "gold"),
    [
        ({"question": "How many?", "answer": "6/2 = <<6/2=3>>3\n#### 1,234"}, "How many?", "1234"),
        ({"question": "Cost?", "answer": "so\n#### $18"}, "Cost?", "18"),
        ({"problem": "P", "solution": "thus \\boxed{7}", "answer": "\\frac12"}, "P", "\\frac12"),
        ({"problem": "P", "solution": "\\boxed{1} or \\boxed{\\frac{1}{2}}"}, "P", "\\frac{1}{2}"),
        ({"problem": "P", "answer": 27.0, "question": "Q"}, "P", "27"),
        ({"problem": "P", "answer": 2.5}, "P", "2.5"),
        ({"problem": "P", "expected_answer": "70"}, "P", "70"),
        ({"question": "Q", "final_answer": ["2"], "solution": ["long"]}, "Q", ["2"]),
        (
            {"Body": "There are 3.", "Question": "How many?", "Answer": 3.0},
            "There are 3. How many?",
            "3",
        ),
        ({"problem": "P", "answer": 0}, "P", "0"),
    ],
)
def test_rows_of_known_layouts(row: dict[str, Any], question: str, gold: object) -> None:
    problem = read_row(row)
    assert (problem.question, problem.gold) == (question, gold)


def test_gsm8k_reasoning_is_kept_without_its_calculator_marks() -> None:
    assert read_row({"question": "Q", "answer": "6/2 = <<6/2=3>>3\n#### 3"}).solution == "6/2 = 3"


@pytest.mark.parametrize(("level", "difficulty"), [(3, 3.0), ("Level 5", 5.0), ("Level ?", None)])
def test_levels_are_difficulties(level: object, difficulty: float | None) -> None:
    assert read_row({"problem": "P", "answer": "1", "level": level}).difficulty == difficulty


@pytest.mark.parametrize(
    "row", [{}, {"problem": "P"}, {"answer": "1"}, {"problem": " ", "answer": "1"},
            {"problem": "P", "answer": None, "solution": "no box"}, {"problem": "P", "answer": []}]
)  # fmt: skip
def test_rows_without_a_question_or_answer_are_unusable(row: dict[str, Any]) -> None:
    with pytest.raises(UnusableRow):
        read_row(row)


def test_named_fields_are_read_instead() -> None:
    row = {"problem": "no", "answer": "no", "ask": "Q", "truth": "1"}
    problem = read_row(row, question="ask", answer="truth")
    assert (problem.question, problem.gold) == ("Q", "1")


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("\\boxed{1}", "1"),
        ("\\boxed{\\frac{1}{2}} .", "\\frac{1}{2}"),
        ("none", ""),
        ("\\boxed{1", ""),
    ],
)
def test_the_last_box_is_read_with_its_braces_balanced(text: str, inside: str) -> None:
    assert last_boxed(text) == inside


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    rows = [{"problem": f"What is {n} + 1000?", "answer": str(n + 1000)} for n in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def ids(env: Maths, split: str) -> list[str]:
    tasks = env.tasks(split)
    assert tasks.size is not None
    return [tasks.at(i).id for i in range(tasks.size)]


def test_splits_have_the_shares_asked_for_and_no_problem_twice(file: Path) -> None:
    env = Maths(str(file), validation=0.2, test=0.3)
    parts = [ids(env, split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [50, 20, 30]
    assert len({one for part in parts for one in part}) == 100


def test_ids_and_splits_do_not_depend_on_the_order_of_the_file(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "reversed.jsonl"
    other.write_text("\n".join(reversed(file.read_text().splitlines())))
    assert ids(Maths(str(file)), "train") == ids(Maths(str(other)), "train")


def test_the_seed_shuffles_and_splits_anew(file: Path) -> None:
    one, two = Maths(str(file), seed=1), Maths(str(file), seed=2)
    assert ids(one, "test") != ids(two, "test")
    assert ids(one, "test") == ids(Maths(str(file), seed=1), "test")


def test_a_test_file_is_the_test_split_and_is_never_trained_on(file: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.jsonl"
    test.write_text("\n".join(file.read_text().splitlines()[:7]))
    env = Maths(str(file), test_source=str(test), validation=0.0)
    assert (len(ids(env, "test")), len(ids(env, "train"))) == (7, 93)
    assert not set(ids(env, "test")) & set(ids(env, "train"))


def test_packed_files_are_read_and_repeated_or_unusable_rows_left_out(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packed = file.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(file.read_bytes() * 2 + b'{"problem": "no answer"}\n'))
    with caplog.at_level(logging.WARNING):
        assert len(load_problems(str(packed), MathsRows())) == 100
    assert "left out 1 rows" in caplog.text
    assert "100 repeated" in caplog.text


def test_an_edited_file_is_read_again(file: Path) -> None:
    assert len(ids(Maths(str(file), test=0, validation=0), "train")) == 100
    file.write_text(file.read_text().splitlines()[0])
    os.utime(file, ns=(1, 1))
    assert len(ids(Maths(str(file), test=0, validation=0), "train")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("{\n", "line 1: not a JSON object"), ("3\n", "line 1"), ("\n", "can be used: it is empty"),
     ('{"a":' + "[" * 9999 + "]" * 9999 + "}", "line 1: not a JSON object"),
     ('{"problem": "P"}\n', "no final answer among the fields problem")],
)  # fmt: skip
def test_files_that_cannot_be_used_say_why(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        Maths(str(path))


def test_a_missing_file_a_broken_archive_and_a_wrong_name_are_told(tmp_path: Path) -> None:
    broken = tmp_path / "x.jsonl.gz"
    broken.write_bytes(b"not gzip")
    for source in (str(tmp_path / "none.jsonl"), str(broken), "a\0.jsonl"):
        with pytest.raises(ConfigError, match="cannot read"):
            Maths(source)
    with pytest.raises(ConfigError, match="neither a path"):
        Maths("problems.csv")


@pytest.mark.parametrize(
    "shares",
    [
        *({"test": -0.1}, {"test": 0.6, "validation": 0.5}),
        *({"test": float("nan")}, {"validation": float("nan")}),
    ],
)
def test_shares_that_cannot_be_are_refused(file: Path, shares: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="shares of the whole"):
        Maths(str(file), **shares)  # type: ignore[arg-type]


def test_an_unknown_split_and_verifier_are_refused(file: Path) -> None:
    with pytest.raises(UnknownTask):
        Maths(str(file)).tasks("dev")
    with pytest.raises(UnknownVerifier, match="maths"):
        Maths(verifier="math")


def test_a_hub_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[data\]'"):
        Maths("openai/gsm8k/main@test")


def test_a_hub_data_set_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="the extra 'data' is not installed")
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text('{"question": "2+2?", "answer": "#### 4"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    assert load_problems("owner/name@train", MathsRows())[0].gold == "4"


@pytest.mark.parametrize(
    ("number", "text"), [(Fraction(3), "3"), (Fraction(-1, 2), "-\\frac{1}{2}"), (Fraction(0), "0")]
)
def test_exact_numbers_as_latex(number: Fraction, text: str) -> None:
    assert tex(number) == text


def test_generated_questions_are_never_in_two_splits() -> None:
    for split in ("train", "validation", "test"):
        tasks = GeneratedTasks(split)
        assert {split_of(draw(tasks.at(i)).question) for i in range(60)} == {split}


def test_the_programs_of_generated_problems_work_out_the_golds() -> None:
    for task in (GeneratedTasks("train").at(index) for index in range(300)):
        problem = draw(task)
        answer = eval(problem.program, {"Fraction": Fraction, "math": math})
        assert tex(Fraction(answer)) == problem.gold, problem


def test_every_kind_of_problem_turns_up() -> None:
    drawn = [draw(GeneratedTasks("train").at(i)) for i in range(400)]
    starts = {problem.question.split()[0] for problem in drawn}
    assert len(KINDS) == 12
    assert {"Solve", "Two", "What", "A", "One", "How", "An"} <= starts
    assert {problem.difficulty for problem in drawn} == {1.0, 2.0, 3.0}


def scored(env: Any, answer: str) -> float:
    reward = env.step(answer)[1]
    assert isinstance(reward, float)
    return reward


def test_a_boxed_answer_in_another_form_earns_the_reward(file: Path) -> None:
    env = ludus.make("ludus/maths-v0", source=str(file))
    env.reset(seed=0)
    gold = int(env.session.env.gold())  # type: ignore[attr-defined]
    assert scored(env, f"so it is \\boxed{{\\frac{{{2 * gold}}}{{2}}}}") == 1.0
    env.reset(seed=0)
    assert scored(env, f"\\boxed{{{gold + 1}}}") == 0.0


def test_a_gold_that_cannot_be_read_is_no_reward(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps({"problem": "P", "answer": "????"}) + "\n")
    env = ludus.make("ludus/maths-v0", source=str(path), test=0.0, validation=0.0)
    env.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        env.step("\\boxed{1}")
    assert caught.value.verdict.status == "invalid"


def test_another_verifier_and_its_options_are_passed_on() -> None:
    env = ludus.make("ludus/maths-v0", verifier="exact")
    env.reset(seed=0)
    assert scored(env, str(env.session.env.gold())) == 1.0  # type: ignore[attr-defined]
    strict = Maths(verifier_options={"preset": "strict"})
    assert strict.verifier is not Maths().verifier
    assert Maths().verifier is Maths().verifier


@pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR names no folder with the data sets")
@pytest.mark.parametrize(
    ("name", "size"),
    [("gsm8k_test.jsonl", 1319), ("gsm8k_train.jsonl.gz", 7473), ("math500.jsonl", 500),
     ("aime24.jsonl", 30), ("aime25.jsonl", 30), ("amc23.jsonl", 40),
     ("olympiadbench.jsonl", 675)],
)  # fmt: skip
def test_real_data_sets_load_and_their_experts_are_right(name: str, size: int) -> None:
    env = ludus.make("ludus/maths-v0", source=f"{DATA}/math/{name}", test=0.0, validation=0.0)
    tasks = env.tasks("train")
    assert tasks.size == size
    for index in range(30):
        env.reset(options={"task": tasks.at(index).id})
        assert scored(env, env.session.env.demonstrate()) == 1.0  # type: ignore[attr-defined]
