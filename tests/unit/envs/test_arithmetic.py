import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import ludus
from ludus.envs.families.arithmetic import (
    Arithmetic,
    DemoFault,
    evaluate,
    generate,
    read_answer,
    split_of,
)
from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", Fraction(14)),
        ("(2+3)*4", Fraction(20)),
        ("2-3-4", Fraction(-5)),  # from the left
        ("24/4/3", Fraction(2)),
        ("2-(3-4)", Fraction(3)),
        ("-3*-2", Fraction(6)),
        ("--3", Fraction(3)),
        ("+4", Fraction(4)),
        ("-(1+2)", Fraction(-3)),
        ("2*-(1+2)", Fraction(-6)),
        ("1/3+1/6", Fraction(1, 2)),
        (" 7 \t/ 2\n", Fraction(7, 2)),
        ("((((5))))", Fraction(5)),
        ("007", Fraction(7)),
    ],
)
def test_values_worked_out_by_hand(text: str, value: Fraction) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "1+", "*1", "()", "(1", "1)", ")(", "1 2", "1(2)", "2**3", "2^3", "1/0", "1/(2-2)",
     "x", "1.5", "1e9", "__import__('os')", "1" * 31, "1+" * 250 + "1", "1,000", "²"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ToolError):
        evaluate(text)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 12))
def test_a_generated_expression_has_the_value_python_gives_it(seed: int, operations: int) -> None:
    made = generate(random.Random(seed), operations=operations)
    fractions = "".join(f"Fraction({c})" if c.isdigit() else c for c in _numbers(made.text))
    assert eval(fractions, {"Fraction": Fraction}) == made.value == evaluate(made.text)
    assert sum(made.text.count(o) for o in "+-*/") == operations


def _numbers(text: str) -> list[str]:
    parts: list[str] = []
    for character in text:
        if character.isdigit() and parts and parts[-1].isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" -7/3 ", Fraction(-7, 3)),
        ("0.5", Fraction(1, 2)),
        ("42", Fraction(42)),
        ("+3", Fraction(3)),
        ("-7/3.", Fraction(-7, 3)),
        ("\u22127/3", Fraction(-7, 3)),
    ],
)
def test_answers_that_are_numbers(text: str, value: Fraction) -> None:
    assert read_answer(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "1/0", "-14/6", "4/1", "07/3", "1e5", "1_000", "x", "4 2", "inf", "nan", "9" * 1001, "."],
)
def test_answers_that_are_not(text: str) -> None:
    assert read_answer(text) is None


def played(env: Any, action: str | Message) -> tuple[str, float, bool]:
    observation, reward, terminated, _, _ = env.step(action)
    said = observation if isinstance(observation, str) else observation[0].text
    return said, reward, terminated


def test_the_right_value_earns_one_and_ends() -> None:
    env = ludus.make(Arithmetic(min_operations=1, max_operations=1, operators="/", max_number=9))
    top, bottom = map(int, str(env.reset(seed=1)[0]).split("/"))
    assert played(env, f" {Fraction(top, bottom)} ") == ("", 1.0, True)
    env.reset(seed=1)
    assert played(env, "1/0") == ("", 0.0, True)


@pytest.mark.parametrize("operators", ["+-*/", "/"])
def test_the_question_given_back_is_no_answer(operators: str) -> None:
    env = ludus.make("ludus/arithmetic-v0", operators=operators, max_operations=2)
    for seed in range(300):
        question = str(env.reset(seed=seed)[0])
        tenfold = "/".join(f"{number}0" for number in question.split("/"))
        for echo in (question, f"+{question}", f"0{question}", tenfold):
            env.reset(seed=seed)
            assert played(env, echo) == ("", 0.0, True), echo


def test_the_calculator_answers_and_the_episode_goes_on() -> None:
    env = ludus.make("ludus/arithmetic-v0")
    env.reset(seed=0)
    call = assistant("", [ToolCall(name="calculator", arguments={"expression": "1/2-2"})])
    assert played(env, call) == ("-3/2", 0.0, False)
    wrong = assistant("", [ToolCall(name="calculator", arguments={"expression": "1/0"})])
    assert played(env, wrong) == ("calculator: division by zero", 0.0, False)


def test_difficulty_is_the_number_of_operations_shown() -> None:
    env = ludus.make("ludus/arithmetic-v0", max_operations=5)
    for index in range(30):
        task = env.tasks("train").at(index)
        text = str(env.reset(options={"task": task.id})[0])
        assert task.difficulty == sum(text.count(o) for o in "+-*/")


def expressions(env: Any, split: str, tasks: int) -> list[str]:
    found = (env.tasks(split).at(index) for index in range(tasks))
    return [str(env.reset(options={"task": task.id, "split": split})[0]) for task in found]


@pytest.mark.parametrize("most", [4000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_expression_of_a_test_task_is_one_of_a_train_task(most: int) -> None:
    # The demo's settings: some 13 000 expressions, so that chance alone would repeat most.
    env = ludus.make("ludus/arithmetic-v0", max_operations=2, max_number=9, operators="+-*")
    test, train = expressions(env, "test", 2000), expressions(env, "train", most)
    assert set(test).isdisjoint(train)
    assert len(set(test)) > 500
    assert set(expressions(env, "validation", 500)).isdisjoint([*test, *train])


def test_a_task_shows_the_same_expression_each_time() -> None:
    env = ludus.make("ludus/arithmetic-v0")
    assert expressions(env, "test", 20) == expressions(env, "test", 20)


def test_eight_expressions_in_ten_are_for_training() -> None:
    rng = random.Random(0)
    drawn = [split_of(generate(rng, operations=3).text) for _ in range(4000)]
    # 4 standard deviations of a binomial over 4000: 101 at p = 0.8, 76 at p = 0.1.
    assert abs(drawn.count("train") - 3200) <= 101
    assert abs(drawn.count("test") - 400) <= 76


def test_a_small_space_of_expressions_is_divided_among_the_splits() -> None:
    env = ludus.make("ludus/arithmetic-v0", max_operations=1, max_number=3)
    shown = {split: set(expressions(env, split, 200)) for split in ("train", "validation", "test")}
    assert all(shown.values())
    assert sum(map(len, shown.values())) == len(set.union(*shown.values())) == 32


def test_a_space_too_small_to_divide_is_refused_and_says_what_to_enlarge() -> None:
    with pytest.raises(ConfigError, match=r"too few expressions have 1 operations.*max_number"):
        Arithmetic(max_operations=1, max_number=1, operators="+")


def expert_return(env: Any, seed: int) -> float:
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, over, _, _ = env.step(env.session.env.demonstrate())
        total += reward
    return total


def test_the_expert_is_always_right() -> None:
    env = ludus.make("ludus/arithmetic-v0")
    assert all(expert_return(env, seed) == 1.0 for seed in range(50))


@pytest.mark.parametrize("fault", [DemoFault.SKIP_CALCULATOR, DemoFault.WRONG_OPERATOR])
def test_a_biased_demonstrator_slips_as_often_as_it_was_told(fault: DemoFault) -> None:
    env = ludus.make("ludus/arithmetic-v0", demo_fault=fault, demo_fault_rate=0.7)
    right = sum(expert_return(env, seed) for seed in range(300))
    # 90 of 300 without a slip, and a few slips that are right by chance; 4 standard deviations
    # of a binomial with p = 0.3 are 32.
    assert 58 <= right <= 132


@pytest.mark.parametrize(
    "arguments",
    [{"min_operations": 0}, {"min_operations": 4, "max_operations": 2}, {"max_operations": 65},
     {"operators": ""}, {"operators": "+^"}, {"max_number": 0}, {"demo_fault": "nap"},
     {"demo_fault_rate": math.nan}, {"demo_fault_rate": 1.5}, {"max_number": 10**30},
     {"max_number": 10**5000}, {"max_operations": 64, "max_number": 1000}],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Arithmetic(**arguments)
