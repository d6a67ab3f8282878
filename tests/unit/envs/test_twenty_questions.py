"""ludus/twenty-questions-v0: the scripted user, whose answers are always true, and the game."""

import random
from typing import Any

import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.families.twenty_questions import (
    PROPERTIES,
    NotUnderstood,
    Thing,
    TwentyQuestions,
    draw_things,
    questions_needed,
    understand,
)
from ludus.errors import ConfigError

NAMES = ("drelk", "snoofty", "vamb")
THING = Thing(
    "drelk",
    {"colour": "red", "material": "wood", "size": "medium", "shape": "flat", "place": "attic",
     "sound": "silent"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is it red?", True),
        ("is it BLUE", False),
        ("Is it red or blue?", True),
        ("Is it blue, green or red?", True),
        ("Is it wooden?", True),
        ("Could you tell me whether it is made of glass?", False),
        ("Is it red and flat?", True),
        ("Is it a red woollen thing?", False),
        ("Is it a red wooden thing?", True),
        ("Is it blue or flat?", True),
        ("Is it blue or round?", False),
        ("Is it blue, or is it in the kitchen or the attic?", True),
        ("Is it larger than small?", True),
        ("Is it bigger than medium?", False),
        ("Is it smaller than a large one?", True),
        ("Is it smaller than the large ones?", True),
        ("Does it rattle?", False),
        ("Is it quiet?", True),
        ("Is it the drelk?", True),
        ("Drelk?", True),
        ("Is it the vamb?", False),
    ],
)
def test_the_user_answers_by_hand(question: str, answer: bool) -> None:
    assert understand(question, NAMES).is_true(THING) is answer


@pytest.mark.parametrize("question", ["Is it the drelk?", "the Drelk!", "drelk"])
def test_naming_a_thing_is_a_guess(question: str) -> None:
    assert understand(question, NAMES).guess == "drelk"
    assert understand("Is it red?", NAMES).guess == ""


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("", "ask about a property"),
        ("Tell me what it is.", "ask about a property"),
        ("Is it bluish?", "ask about a property"),
        ("Is it not red?", "without 'not'"),
        ("Isn't it red?", "without 'isnt'"),
        ("Isn\u2019t it red?", "without 'isnt'"),
        ("Is it neither red nor blue?", "without"),
        ("Is it anything but red?", "without 'but'"),
        ("Is it red? Is it flat?", "one question at a time"),
        ("Is it the drelk and red?", "one of the two"),
        ("Is it the drelk or the vamb?", "name one thing"),
        ("Is it red and blue?", "and"),
        ("Is it red and flat or round?", "and"),
        ("Is it darker than black?", "without 'than'"),
        ("Is it small or larger?", "without 'larger'"),
        ("Is it large or below?", "without 'below'"),
        ("Is it non-red?", "without 'non'"),
        ("Does it lack wood?", "without 'lack'"),
        ("Can we rule out red?", "without 'rule'"),
        ("Is it false that it is red?", "without 'false'"),
        ("You don't mean a red thing, do you?", "without 'dont'"),
        ("Is it larger than small and red?", "ask nothing else"),
        ("Is it larger than tiny and smaller than huge?", "compare with one size"),
        ("red " * 400, "too long"),
        ("数" * 2_000, "too long"),
        ("\x00", "ask about a property"),
    ],
)
def test_what_could_be_misread_is_not_answered(question: str, why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        understand(question, NAMES)


def test_a_synonym_is_what_it_stands_for() -> None:
    for word, value in (("wooden", "wood"), ("hums", "humming"), ("metal", "iron")):
        for thing in draw_things(random.Random(0), 40):
            asked = understand(f"Is it {word}?", [])
            assert asked.is_true(thing) == (value in thing.values.values())


def test_things_have_different_names_and_values_that_no_question_is_made_of() -> None:
    for seed in range(20):
        things = draw_things(random.Random(seed), 96)
        assert len({thing.name for thing in things}) == 96
        assert len({tuple(thing.values.values()) for thing in things}) == 96
        words = {value for values in PROPERTIES.values() for value in values}
        assert not words & {thing.name for thing in things}


@pytest.mark.parametrize(("count", "needed"), [(2, 2), (3, 3), (16, 5), (17, 6), (40, 7), (96, 8)])
def test_questions_needed_by_hand(count: int, needed: int) -> None:
    """log2 rounded up, and one to name it: 2^4 = 16 < 17 <= 2^5."""
    assert questions_needed(count) == needed


def session(**arguments: Any) -> EnvSession:
    return make_async("ludus/twenty-questions-v0", **arguments)


def env_of(made: EnvSession) -> TwentyQuestions:
    assert isinstance(made.env, TwentyQuestions)
    return made.env


async def test_a_wrong_name_loses() -> None:
    made = session()
    await made.reset(seed=0)
    secret = env_of(made).secret.name
    wrong = next(thing.name for thing in env_of(made).things if thing.name != secret)
    observation, reward, terminated, _, _ = await made.step(f"Is it the {wrong}?")
    assert (observation, reward, terminated) == (f"No, it is the {secret}!", 0.0, True)


@pytest.mark.parametrize(
    ("few", "many", "slack"), [(2, 2, 0), (3, 9, 0), (20, 48, 2), (40, 40, 0), (96, 96, 0)]
)
@pytest.mark.parametrize("tasks", [15, pytest.param(60, marks=pytest.mark.slow)])
async def test_the_expert_always_wins_even_without_slack(
    few: int, many: int, slack: int, tasks: int
) -> None:
    made = session(min_things=few, max_things=many, slack=slack)
    for index in range(tasks):
        await made.reset(options={"task": f"train/{index}"})
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = await made.step(env_of(made).demonstrate())
            total, over = total + reward, terminated or truncated
        assert total == 1.0


async def test_the_answers_always_leave_what_is_meant() -> None:
    made, rng = session(), random.Random(0)
    values = [value for values in PROPERTIES.values() for value in values]
    for seed in range(30):
        await made.reset(seed=seed)
        over = False
        while not over:
            one, other = rng.sample(values, 2)
            question = rng.choice((f"Is it {one}?", f"Is it {one} or {other}?"))
            _, _, terminated, truncated, _ = await made.step(question)
            over = terminated or truncated
            assert env_of(made).secret in env_of(made).candidates


@pytest.mark.parametrize("way", ["halves", "one by one"])
async def test_names_without_the_table_win_no_more_than_one_guess_does(way: str) -> None:
    made, won = session(min_things=40, max_things=40), 0.0
    for seed in range(200):
        await made.reset(seed=seed)
        names = [thing.name for thing in env_of(made).things]
        over = False
        while not over:
            asked = names[: max(1, len(names) // 2)] if way == "halves" else names[:1]
            answer, reward, terminated, truncated, info = await made.step(
                f"Is it the {' or the '.join(asked)}?"
            )
            names = asked if str(answer).startswith("Yes") else names[len(asked) :] or names
            won, over = won + reward, terminated or truncated
        assert info["thing"] == env_of(made).secret.name
    # One guess among 40: 0.025 of the episodes, standard deviation 0.011.
    assert won / 200 < 0.08


async def test_what_is_not_understood_costs_a_question() -> None:
    made = session(min_things=2, max_things=2, slack=1)
    await made.reset(seed=0)
    observation, reward, terminated, _, _ = await made.step("Hm.")
    assert observation == (
        "I do not understand: ask about a property, such as 'Is it red?', or name the one "
        "thing: 'Is it the ...?'. 2 questions left."
    )
    assert (reward, terminated) == (0.0, False)
    assert str((await made.step("x" * 1_000_000))[0]).endswith("1 question left.")
    observation, reward, terminated, _, _ = await made.step("Hm.")
    assert str(observation).endswith("There are no questions left.")
    assert (reward, terminated) == (0.0, True)


async def test_thoughts_are_not_part_of_the_question() -> None:
    made = session()
    await made.reset(seed=0)
    name = env_of(made).secret.name
    _, reward, *_ = await made.step(f"<think>not red?</think>Is it the {name}?")
    assert reward == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_things": 1}, "got 1, 48"),
        ({"max_things": 97}, "<= 96"),
        ({"min_things": 5, "max_things": 4}, "got 5, 4"),
        ({"slack": -1}, "slack"),
    ],
)
def test_settings_that_cannot_be_say_why(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        session(**arguments)
