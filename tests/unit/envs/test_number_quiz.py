"""The number quiz: what an answer is worth, and that no step of the reward is a place to stay."""

from __future__ import annotations

from collections import Counter

import pytest

from ludus.envs import EnvSession
from ludus.envs.families.number_quiz import KINDS, NumberQuestion, NumberQuiz, worth
from ludus.errors import ConfigError

NEXT = NumberQuestion("after", "Which number comes after 69?", (70,))
LARGE = NumberQuestion("after", "Which number comes after 12344?", (12345,))
SUM = NumberQuestion("sum", "What is 18 + 3?", (21,), "18+3=")
RANGE = NumberQuestion("between", "Name a number between 40 and 60.", range(41, 60))


@pytest.mark.parametrize(
    ("question", "said", "reward"),
    [
        (NEXT, "70", 1.0),
        (NEXT, " 70.\n", 1.0),
        (NEXT, "71", 0.1),
        (NEXT, "69", 0.1),  # the question's own number said back
        (NEXT, "The answer is 70.", 0.5),
        (NEXT, "It's *70*!", 0.5),
        (NEXT, "The answer is 71.", 0.05),
        (
            NEXT,
            "69 is the next number after 70.",
            0.0,
        ),  # the last word is right, the sentence is not
        (NEXT, "70 71", 0.0),
        (NEXT, "70, 71, 72", 0.0),
        (NEXT, "70 70", 0.0),
        (NEXT, "69 + 1 = 70", 0.0),  # an equation that the question does not have
        (NEXT, "-70", 0.0),
        (NEXT, "70.0", 0.0),
        (NEXT, "7 0", 0.0),
        (NEXT, "70th", 0.0),
        (NEXT, "x70", 0.0),
        (NEXT, "7,0", 0.0),
        (NEXT, "0,070", 1.0),
        (LARGE, "12,345", 1.0),
        (LARGE, "12,345.", 1.0),
        (LARGE, "12,346", 0.1),
        (LARGE, "The answer is 12,345.", 0.5),
        (LARGE, "12,34,5", 0.0),
        (LARGE, "1234,5", 0.0),
        (NEXT, "\u0667\u0660", 0.0),  # seventy in other digits
        (NEXT, "0000070", 0.0),  # longer than a number may be
        (NEXT, "70" * 4000, 0.0),
        (NEXT, "After some thought I would say that it is 70", 0.0),  # ten words
        (NEXT, "seventy", 0.0),
        (NEXT, "", 0.0),
        (SUM, "21", 1.0),
        (SUM, "18 + 3 = 21", 0.5),
        (SUM, "18+3=21.", 0.5),
        (SUM, "18 + 3 = 22", 0.05),
        (SUM, "3 + 18 = 21", 0.0),
        (SUM, "18 + 3 = 20 + 1 = 21", 0.0),
        (SUM, "18 + 3 = 21\n\nThis is a classic example", 0.0),
        (RANGE, "41", 1.0),
        (RANGE, "59", 1.0),
        (RANGE, "60", 0.1),  # the ends are not between
        (RANGE, "40", 0.1),
        (RANGE, "between 40 and 60", 0.0),
    ],
)
def test_an_answer_is_worth_what_it_says_as_a_whole(
    question: NumberQuestion, said: str, reward: float
) -> None:
    assert worth(said, question) == reward


async def test_the_verdict_says_which_kind_was_answered_right() -> None:
    session = EnvSession(NumberQuiz(kinds="after"))
    await session.reset(seed=0, options={"task": "test/3", "split": "test"})
    gold = session.env.gold()
    _, reward, terminated, _, info = await session.step(str(gold))
    assert (reward, terminated) == (1.0, True)
    assert info["verdict"].metrics == {"right": 1.0, "right_after": 1.0}


def test_the_same_answer_to_every_question_earns_little() -> None:
    env = NumberQuiz()
    tasks = [env.tasks("test").at(index) for index in range(400)]
    questions = [env.question_of(task) for task in tasks]
    best = max(sum(worth(str(n), one) for one in questions) / 400 for n in range(1, 520))
    assert best < 0.15  # 0.1 for a number alone, and the few that it fits


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_right_by_arithmetic(kind: str) -> None:
    env = NumberQuiz(kinds=kind, max_number=999)
    for index in range(50):
        question = env.question_of(env.tasks("train").at(index))
        words = question.text.rstrip("?.").replace(",", "").split()
        numbers = [int(word) for word in words if word.isdigit()]
        first, last = numbers[0], numbers[-1]
        expected = {
            "after": {first + 1},
            "before": {first - 1},
            "between": set(range(first + 1, last)),
            "larger": {max(numbers)},
            "sum": {sum(numbers)},
        }[kind]
        assert set(question.answers) == expected, question


def test_no_question_is_in_two_splits_and_kinds_are_equally_frequent() -> None:
    env = NumberQuiz()
    asked = {
        split: [env.tasks(split).at(index).problem for index in range(600)]
        for split in ("train", "test")
    }
    assert not set(asked["train"]) & set(asked["test"])
    kinds = Counter(text.split()[0] + text.split()[3] for text in asked["train"])
    # five kinds in 600: 120 each, with a standard deviation of sqrt(600 * .2 * .8) = 9.8
    assert sum(kinds.values()) == 600
    sums = sum(text.startswith("What is") for text in asked["train"])
    assert abs(sums - 120) < 4 * 9.8


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kinds": "after,next"}, "kinds must be some of after,before,between,larger,sum"),
        ({"kinds": ""}, "kinds must be some of"),
        ({"max_number": 20}, "max_number must be from 70 to 99999, got 20"),
        ({"max_number": 100_000}, "got 100000"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        NumberQuiz(**settings)  # pyright: ignore[reportArgumentType]
