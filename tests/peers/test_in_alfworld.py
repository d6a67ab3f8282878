"""ALFWorld: games in its format, with the observations and the score of its own environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ludus.envs import EnvSession, find_env
from ludus.envs.checks import check_env
from ludus.errors import ConfigError
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
PROGRAM = Path(__file__).with_name("in_alfworld_games.py")


def own(*arguments: str, asked: object = None) -> str:
    """Run the project's own code in its interpreter."""
    done = subprocess.run(
        [python_with("alfworld"), "-s", str(PROGRAM), *arguments], input=json.dumps(asked),
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alfworld")
    own("write", str(folder))
    return folder


def session(games: Path, family: str, **settings: Any) -> EnvSession:
    made = find_env(f"alfworld/{family}-v0")(
        python=python_with("alfworld"), data=str(games), **settings
    )
    return EnvSession(made)


@pytest.mark.parametrize(
    "commands",
    [
        ["go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1",
         "open fridge 1", "move apple 1 to fridge 1"],
        ["look", "dance", "", "open fridge 1", "go to fridge 1", "inventory"],
        ["go to countertop 1", "take knife 1 from countertop 1", "go to fridge 1",
         "open fridge 1", "move knife 1 to fridge 1"],
    ],
)  # fmt: skip
async def test_a_game_is_the_projects_own(games: Path, commands: list[str]) -> None:
    kind = "pick_and_place_simple"
    told = json.loads(
        own("replay", str(games), kind, asked={"commands": commands}).splitlines()[-1]
    )
    assert told["games"] == 4
    played = session(games, kind)
    shown, _ = await played.reset(options={"task": "train/0", "split": "train"})
    observations, rewards, ends = [shown], [0.0], [False]
    for command in commands:
        shown, reward, terminated, _, _ = await played.step(command)
        observations.append(shown)
        rewards.append(reward)
        ends.append(terminated)
    await played.close()
    texts = [one if isinstance(one, str) else one[-1].text for one in observations]
    assert texts == [one.strip() for one in told["observations"]]
    assert rewards == [float(won) for won in told["won"]]
    assert ends == told["done"]


@pytest.mark.parametrize("planner", [False, True])
async def test_an_expert_wins_each_game(games: Path, planner: bool) -> None:
    for split in ("train", "test"):
        played = session(games, "all", planner=planner)
        assert played.env.tasks(split).size == 8
        for number in range(8):
            await played.reset(options={"task": f"{split}/{number}", "split": split})
            reward, over = 0.0, False
            while not over:
                said = played.env.demonstrate()
                assert said is not None
                _, reward, over, _, _ = await played.step(said)
            assert reward == 1.0
        await played.close()


async def test_a_walkthrough_that_was_left_has_no_next_command(games: Path) -> None:
    played = session(games, "pick_and_place_simple", max_steps=2, show_commands=True)
    shown, _ = await played.reset(options={"task": "train/0", "split": "train"})
    assert "Commands: go to countertop 1, go to fridge 1" in str(shown)
    assert played.env.demonstrate() == "go to countertop 1"
    await played.step("look")
    assert played.env.demonstrate() is None
    _, reward, terminated, truncated, _ = await played.step("look")
    assert (reward, terminated, truncated) == (0.0, False, True)
    await played.close()


def test_the_whole_check_passes(games: Path) -> None:
    settings = {"python": python_with("alfworld"), "data": str(games)}
    assert not check_env(format_served("alfworld/all-v0", settings)).failures


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"data": "/nowhere"},
            "no solvable game of all in '/nowhere'; it needs .*alfworld-download",
        ),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"speed": 3}, "alfworld has no settings speed"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_env("alfworld/all-v0")(python=python_with("alfworld"), **settings)
