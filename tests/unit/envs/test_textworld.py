"""ludus/textworld-v0: what a player sees, by hand; with textworld installed, its games played."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.checks import check_env
from ludus.envs.families.textworld import (
    MadeGames,
    Situation,
    TextWorld,
    View,
    ViewFact,
    build_pool,
)
from ludus.envs.families.textworld.games import answer, plain_description
from ludus.errors import ConfigError, MissingExtra, UnknownTask


def situation(*facts: str) -> Situation:
    """From facts written as `at(P, cellar)`."""
    read = [fact.rstrip(")").partition("(")[::2] for fact in facts]
    return Situation(
        facts=tuple(ViewFact(name, tuple(arguments.split(", "))) for name, arguments in read),
        commands=(),
        way=None,
    )


CELLAR = situation(
    "at(P, cellar)", "at(safe, cellar)", "at(shelf, cellar)", "at(box, cellar)", "at(lamp, attic)",
    "closed(safe)", "in(crown, safe)", "on(key, shelf)", "open(box)", "in(coin, box)",
    "in(map, I)", "north_of(studio, cellar)", "east_of(attic, cellar)", "west_of(wall, cellar)",
    "south_of(cellar, studio)", "free(cellar, attic)", "free(attic, cellar)",
    "link(cellar, gate, studio)", "link(studio, gate, cellar)", "locked(gate)",
)  # fmt: skip


def test_a_player_sees_what_is_there_and_not_into_what_is_closed() -> None:
    assert View(CELLAR).look() == (
        "You are in the cellar.\n"
        "You see: safe (closed); shelf (on it: key); box (open, in it: coin).\n"
        "Exits: north (through gate (locked)), east.\n"
        "You carry: map."
    )


def test_an_empty_room_says_so() -> None:
    assert View(situation("at(P, void)")).look() == (
        "You are in the void.\nYou see: nothing.\nExits: none.\nYou carry: nothing."
    )


def test_an_open_door_is_said_once() -> None:
    seen = View(
        situation("at(P, a)", "north_of(b, a)", "free(a, b)", "link(a, door, b)", "open(door)")
    )
    assert "Exits: north (through door (open))." in seen.look()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("inventory", "You carry: map."),
        ("examine safe", "safe (closed). The safe looks strong."),
        ("examine shelf", "shelf (on it: key)."),
        ("open box", View(CELLAR).look()),
        ("look", View(CELLAR).look()),
    ],
)
def test_commands_are_answered(command: str, shown: str) -> None:
    descriptions = {"safe": "The [noun] looks strong. [if open]It is open.[end if] Really."}
    assert answer(command, CELLAR, descriptions) == shown


@pytest.mark.parametrize(
    ("description", "plain"),
    [
        ("", ""),
        ("It is a [noun].", "It is a safe."),
        ("Heavy. [if open]Open.[end if]", "Heavy."),
        ("[if open]Open.[end if]", ""),
    ],
)
def test_descriptions_are_cut_where_they_depend_on_the_state(description: str, plain: str) -> None:
    assert plain_description("safe", description) == plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rooms": 0}, "rooms must be from 1 to 20"),
        ({"objects": 99}, "objects"),
        ({"min_steps": 6}, "got 6, 5"),
        ({"max_steps": 21}, "got 2, 21"),
        ({"slack": 0.1}, "slack"),
        ({"validation": 0.9, "test": 0.2, "games": "nowhere"}, "shares of the whole"),
        ({"games": "nowhere"}, "no games in 'nowhere'"),
    ],
)
def test_settings_that_cannot_be_say_why(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_async("ludus/textworld-v0", **arguments)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[textworld\]'"):
        make_async("ludus/textworld-v0")


# --- with the library ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("textworld", reason="the extra 'textworld' is not installed")
    return build_pool(
        tmp_path_factory.mktemp("games"),
        train=3,
        validation=1,
        test=1,
        games=MadeGames(rooms=2, objects=3, steps=(2, 3)),
    )


def session(pool: Path, **arguments: Any) -> EnvSession:
    return make_async("ludus/textworld-v0", games=str(pool), **arguments)


def env_of(made: EnvSession) -> TextWorld:
    assert isinstance(made.env, TextWorld)
    return made.env


async def played(made: EnvSession, task: str) -> tuple[list[float], list[str]]:
    """The expert's rewards and what it saw."""
    observation, _ = await made.reset(options={"task": task})
    rewards, seen, over = list[float](), [str(observation)], False
    while not over:
        action = env_of(made).demonstrate()
        assert action is not None
        observation, reward, terminated, truncated, _ = await made.step(action)
        over = terminated or truncated
        rewards.append(reward)
        seen.append(str(observation))
    return rewards, seen


@pytest.mark.slow
async def test_the_expert_wins_every_game_of_a_pool(pool: Path) -> None:
    made = session(pool)
    for split, size in (("train", 3), ("validation", 1), ("test", 1)):
        assert made.tasks(split).size == size
        for index in range(size):
            rewards, seen = await played(made, made.tasks(split).at(index).id)
            assert 1 <= len(rewards) <= 3
            assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
            assert seen[0].startswith("Your task: ")
            assert "You are in the " in seen[0]


@pytest.mark.slow
async def test_a_pool_holds_the_games_that_are_made_from_the_same_seeds(pool: Path) -> None:
    made = make_async("ludus/textworld-v0", rooms=2, objects=3, min_steps=2, max_steps=3)
    for task in ("train/1", "test/0"):
        assert await played(made, task) == await played(session(pool), task)


@pytest.mark.slow
async def test_dense_rewards_are_progress_and_add_up_to_one(pool: Path) -> None:
    made = session(pool, dense=True, slack=20.0)
    rewards, _ = await played(made, "train/0")
    assert rewards == pytest.approx([1 / len(rewards)] * len(rewards))
    rng = random.Random(0)
    await made.reset(options={"task": "train/0"})
    total, over = 0.0, False
    while not over:
        command = rng.choice(env_of(made).situation.commands)
        _, reward, terminated, truncated, _ = await made.step(command)
        total, over = total + reward, terminated or truncated
    way = env_of(made).situation.way
    progress = -1.0 if way is None else 1 - len(way) / len(rewards)
    assert total == pytest.approx(1.0 if env_of(made).situation.won else max(-1.0, progress))


@pytest.mark.slow
async def test_commands_at_random_earn_no_more_than_they_win() -> None:
    pytest.importorskip("textworld", reason="the extra 'textworld' is not installed")
    made, total = make_async("ludus/textworld-v0", dense=True), 0.0
    wins = 0
    for index in range(40):
        rng, over = random.Random(index), False
        await made.reset(options={"task": f"train/{index}"})
        while not over:
            command = rng.choice(env_of(made).situation.commands)
            _, reward, terminated, truncated, _ = await made.step(command)
            total, over = total + reward, terminated or truncated
        wins += env_of(made).situation.won
    # 0.14 a game beside 0.07 won where going away from the goal cost nothing
    assert total <= wins


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, -1])
async def test_the_place_of_a_command_does_not_tell_that_it_wins(place: int) -> None:
    pytest.importorskip("textworld", reason="the extra 'textworld' is not installed")
    made, wins = make_async("ludus/textworld-v0"), 0
    for index in range(40):
        over = False
        observation, _ = await made.reset(options={"task": f"test/{index}"})
        while not over:
            commands = str(observation).split("Possible: ")[1].split(", ")
            observation, _, terminated, truncated, _ = await made.step(commands[place])
            over = terminated or truncated
        wins += env_of(made).situation.won
    assert wins <= 2  # the last one won five of these in the order of the alphabet


@pytest.mark.slow
async def test_what_is_not_possible_is_told_and_takes_a_turn(pool: Path) -> None:
    made = session(pool, slack=2.0)
    observation, info = await made.reset(options={"task": "train/0"})
    turns = info["briefing"].max_turns
    for said in ("fly", "", "x" * 1_000_000, "\x00", "look\nlook")[: turns - 1]:
        observation, reward, terminated, _, info = await made.step(said)
        assert str(observation).startswith("That is not possible now.")
        assert (reward, terminated, info["invalid"]) == (0.0, False, 1)


@pytest.mark.slow
async def test_commands_may_be_written_in_any_case_and_need_not_be_shown(pool: Path) -> None:
    made = session(pool, show_commands=False)
    observation, _ = await made.reset(options={"task": "train/0"})
    assert "Possible:" not in str(observation)
    observation, *_ = await made.step("  INVENTORY ")
    assert str(observation).startswith("You carry: ")


@pytest.mark.slow
def test_a_folder_without_splits_is_split_by_file_name(pool: Path, tmp_path: Path) -> None:
    for index, path in enumerate(sorted(pool.rglob("*.json"))):
        (tmp_path / f"game-{index}.json").write_bytes(path.read_bytes())
    made = session(tmp_path, validation=0.2, test=0.2)
    sizes = [made.tasks(split).size for split in ("train", "validation", "test")]
    assert sizes == [3, 1, 1]
    with pytest.raises(UnknownTask):
        made.tasks("dev")


@pytest.mark.slow
async def test_a_file_that_is_no_game_says_so(pool: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{}")
    made = session(tmp_path, validation=0.0, test=0.0)
    with pytest.raises(ConfigError, match="is not a game of TextWorld"):
        await made.reset()


@pytest.mark.slow
def test_it_keeps_the_contract(pool: Path) -> None:
    check_env(f"ludus/textworld-v0?games={pool}", max_return=1.0)
