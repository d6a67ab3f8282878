"""Questions about pictures of shapes."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from PIL import Image

from ludus.envs import EnvSession
from ludus.envs.families.image_prompt.scenes import COLOURS
from ludus.envs.families.shapes import PLACES, DrawnShape, ShapesQuiz, picture_of, read_answer
from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant

PAGES = ((DrawnShape("top left", "red", "circle"), DrawnShape("center", "blue", "square")),)


async def begun(env: ShapesQuiz, index: int = 0, split: str = "train") -> list[Message]:
    session = EnvSession(env)
    observation, _ = await session.reset(options={"task": f"{split}/{index}", "split": split})
    assert isinstance(observation, list)
    return observation


def seen(png: bytes) -> dict[str, set[tuple[int, ...]]]:
    """The colours in each cell of a picture, read by Pillow."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    cell = image.width // 3
    found: dict[str, set[tuple[int, ...]]] = {}
    for number, place in enumerate(PLACES):
        row, column = divmod(number, 3)
        box = (column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
        colours = image.crop(box).getcolors(65_536) or []
        found[place] = {colour for _, colour in colours if isinstance(colour, tuple)}
    return found


@pytest.mark.parametrize("size", [48, 96, 200])
def test_a_picture_shows_each_thing_in_its_cell_alone(size: int) -> None:
    found = seen(picture_of(PAGES[0], size=size, seed="any"))
    white = (255, 255, 255)
    expected: dict[str, set[tuple[int, ...]]] = {place: {white} for place in PLACES}
    expected["top left"] = {white, COLOURS["red"]}
    expected["center"] = {white, COLOURS["blue"]}
    assert found == expected


def test_the_seed_moves_things_within_their_cells() -> None:
    pictures = {picture_of(PAGES[0], size=96, seed=str(seed)) for seed in range(20)}
    assert len(pictures) > 15


@pytest.mark.parametrize(
    ("said", "reward"),
    [("red", 1.0), (" Red.\n", 1.0), ("blue", 0.0), ("a red circle", 0.0), ("red blue", 0.0)],
)
async def test_the_right_word_alone_is_right(said: str, reward: float) -> None:
    env = ShapesQuiz(ask="colour")
    await begun(env)
    env.pages = PAGES
    env.question = env.question._replace(answer="red")
    _, given, terminated, *_ = env.step(said)
    assert (given, terminated) == (reward, True)


async def test_counts_are_over_all_pages_and_may_be_words() -> None:
    env = ShapesQuiz(ask="count", pages=3)
    (shown,) = await begun(env)
    assert "on all pages?" in shown.text
    assert shown.text.endswith("This is page 1 of 3.")
    colour = shown.text.split(" are ")[1].split()[0]
    expected = sum(thing.colour == colour for page in env.pages for thing in page)
    assert env.gold() == str(expected)
    words = ["", "one", "two", "three", "four"]
    if expected < len(words):
        assert env.step(words[expected])[1] == 1.0


async def test_nothing_but_the_picture_tells_the_answer() -> None:
    env = ShapesQuiz(ask="colour,shape")
    for index in range(40):
        (shown,) = await begun(env, index)
        assert env.gold() not in shown.text
        assert len(shown.images) == 1


@pytest.mark.parametrize("things", [4, 9])
async def test_what_a_question_asks_for_tells_no_count(things: int) -> None:
    """The most frequent count is right as often as one of `things` counts, and 0, are on average:
    a third with up to four shapes. It was six in seven where colours were drawn one by one.
    """
    env, tasks = ShapesQuiz(ask="count", max_things=things), 300
    counts = Counter[str]()
    for index in range(tasks):
        await begun(env, index)
        counts[env.gold()] += 1
    expected = sum(1 / (number + 1) for number in range(1, things + 1)) / things
    assert counts.most_common(1)[0][1] / tasks < expected + 0.1
    assert set(counts) >= {str(number) for number in range(things)}


def test_numbers_may_be_words() -> None:
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    assert [read_answer(f"{word.title()}.") for word in words] == [str(n) for n in range(11)]


async def test_a_page_is_the_result_of_look() -> None:
    env = ShapesQuiz(pages=2)
    session = EnvSession(env)
    observation, info = await session.reset(seed=0)
    assert isinstance(observation, list)
    assert info["briefing"].shows_images
    calls = [ToolCall(name="look", arguments={"page": page}, id=str(page)) for page in (2, 1, 3)]
    answer, reward, terminated, *_, info = await session.step(assistant("", calls))
    assert isinstance(answer, list)
    assert [len(message.images) for message in answer] == [1, 1, 0]
    assert answer[1].images == observation[0].images
    assert "there are pages 1 to 2" in answer[2].text
    assert (reward, terminated, info["tool_errors"]) == (0.0, False, 1)


async def test_the_expert_needs_the_pages_of_the_question() -> None:
    for index in range(12):
        env = ShapesQuiz(pages=4)
        session = EnvSession(env)
        await session.reset(options={"task": f"train/{index}"})
        looked: list[int] = []
        total = 0.0
        while True:
            action = env.demonstrate()
            if isinstance(action, Message):
                looked.append(action.tool_calls[0].arguments["page"])
            _, reward, terminated, truncated, _ = await session.step(action)
            total += reward
            if terminated or truncated:
                break
        assert total == 1.0
        assert looked == [page for page in env.question.pages if page != 1]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ask": "colour,smell"}, "'smell'"),
        ({"min_things": 0}, "1 <= min_things"),
        ({"max_things": 10}, "got 1, 10"),
        ({"pages": 17}, "1 to 16"),
        ({"size": 20}, "48 to 1024"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ShapesQuiz(**settings)  # pyright: ignore[reportArgumentType]
