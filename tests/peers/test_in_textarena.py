"""TextArena: games by one policy and by several, with the package's own rewards."""

import asyncio
import json
import os
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.agent import Episode, ScriptedPolicy, play
from ludus.envs import make_async
from ludus.envs.checks import check_env
from ludus.envs.outside import Match
from ludus.errors import ConfigError
from ludus.messages import Message
from ludus.verdict import Status
from ludus.wire.address import format_served

from .in_pythons import python_with

pytestmark = pytest.mark.peers
REPLAY = Path(__file__).with_name("in_textarena_replay.py")
GAMES = {
    "TicTacToe": r"\[[0-8]\]",
    "ConnectFour": r"\[col [0-6]\]",
    "Nim": r"\[\d \d\]",
    "KuhnPoker": r"\[[a-z]+\]",
    "IteratedPrisonersDilemma": r"\[(?:cooperate|defect)\]",
    "PigDice": r"\[(?:roll|hold)\]",
    "Othello": r"\[\d, ?\d\]",
}
"""Games of two players, with the form of a move."""
FALLBACK = {"TicTacToe": "[4]", "ConnectFour": "[col 3]", "Nim": "[0 1]", "PigDice": "[hold]"}


def player(name: str, seed: int, said: list[str]) -> ScriptedPolicy:
    """Return a policy that says a random move among those the game has shown."""
    draw = random.Random(seed)

    def choose(messages: Sequence[Message]) -> str:
        shown = re.findall(GAMES[name], "\n".join(one.text for one in messages))
        said.append(draw.choice(shown) if shown else FALLBACK.get(name, "[0]"))
        return said[-1]

    return ScriptedPolicy(choose)


def replayed(python: str, asked: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-s", str(REPLAY)], input=json.dumps(asked), capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"}, timeout=120, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


async def played(match: Match, policies: Sequence[ScriptedPolicy], task: str) -> list[Episode]:
    return list(
        await asyncio.gather(
            *(
                play(make_async(seat), policy, task=task, role=f"player-{seat.number}")
                for seat, policy in zip(match.seats, policies, strict=True)
            )
        )
    )


@pytest.mark.parametrize("name", GAMES)
async def test_a_game_is_played_by_two_policies(name: str) -> None:
    """Each policy has an episode of its own, and the rewards are those of the package when it is
    played with the same actions.
    """
    python = python_with("textarena")
    match = Match(f"textarena/{name}-v0", python=python, turn_timeout_s=60)
    assert len(match.seats) == 2
    for index in range(2):
        said: list[str] = []  # of both, in the order of turns
        policies = [player(name, seed, said) for seed in (index, index + 10)]
        episodes = await played(match, policies, f"train/{index}")
        rewards = [episode.trajectories[0].ret for episode in episodes]
        peer_id = match.game.about.peer_id
        asked = {"id": peer_id, "players": 2, "seed": index, "actions": said}
        told = replayed(python, asked)
        assert told["done"]
        assert rewards == [told["rewards"]["0"], told["rewards"]["1"]]
        assert [one.trajectories[0].role for one in episodes] == ["player-0", "player-1"]
    await match.close()


async def test_a_player_who_never_had_a_turn_has_no_episode() -> None:
    """The first player of Nim loses by two invalid moves: the second wins and did nothing."""
    match = Match("textarena/Nim-v0", python=python_with("textarena"), turn_timeout_s=60)
    policies = [ScriptedPolicy(lambda _: "no move"), ScriptedPolicy(lambda _: "[0 1]")]
    first, second = await played(match, policies, "train/0")
    assert first.trajectories[0].ret == -1.0
    verdict = second.trajectories[0].verdict
    assert verdict.status is Status.INVALID
    assert "no turn for player 1 in this game" in verdict.detail
    await match.close()


async def test_a_player_who_leaves_ends_the_game_for_all_without_a_reward() -> None:
    match = Match("textarena/TicTacToe-v0", python=python_with("textarena"), turn_timeout_s=30)
    said: list[str] = []

    def fails(messages: Sequence[Message]) -> str:
        raise RuntimeError("the engine is gone")

    async def leave(number: int, policy: ScriptedPolicy) -> Episode:
        session = make_async(match.seats[number])
        episode = await play(session, policy, task="train/0")
        await session.close()
        return episode

    first, second = await asyncio.gather(
        leave(0, player("TicTacToe", 0, said)), leave(1, ScriptedPolicy(fails))
    )
    for episode in (first, second):
        assert not episode.trajectories[0].verdict.ok
    assert "player 1 left the game" in str(first.trajectories[0].verdict)
    await match.close()


async def test_a_player_who_never_answers_ends_the_game() -> None:
    match = Match("textarena/TicTacToe-v0", python=python_with("textarena"), turn_timeout_s=0.5)
    said: list[str] = []

    async def sleeps(messages: Sequence[Message]) -> str:
        await asyncio.sleep(2)
        return "[0]"

    policies = [player("TicTacToe", 0, said), ScriptedPolicy(sleeps)]
    first, second = await played(match, policies, "train/0")
    assert not first.trajectories[0].verdict.ok
    assert not second.trajectories[0].verdict.ok
    assert "waited for 0.5 s for the others" in str(first.trajectories[0].verdict)
    await match.close()


def test_a_game_of_one_player_has_no_seats() -> None:
    with pytest.raises(ConfigError, match="is not a game of several players"):
        Match("textarena/GuessTheNumber-v0", python=python_with("textarena"))


def test_a_game_of_one_player_has_the_packages_rewards() -> None:
    python = python_with("textarena")
    env = ludus.make("textarena/GuessTheNumber-v0", python=python)
    for index in range(3):
        env.reset(options={"task": f"test/{index}"})
        said, total, over = list[str](), 0.0, False
        for number in range(1, 21):
            if not over:
                said.append(f"[{number}]")
                _, reward, over, _, _ = env.step(said[-1])
                total += reward
        seed = (2 << 30) + index
        asked = {"id": "GuessTheNumber-v0", "players": 1, "seed": seed, "actions": said}
        assert over
        assert replayed(python, asked) == {"done": True, "rewards": {"0": total}}
    env.close()


@pytest.mark.parametrize(("arguments", "rounds"), [({}, 5), ({"variant": "short"}, 3)])
def test_a_game_without_a_variant_is_the_plain_id_of_the_package(
    arguments: dict[str, Any], rounds: int
) -> None:
    # the package registers IndianPoker-v0-short, of 3 rounds, before IndianPoker-v0, of 5
    python = python_with("textarena")
    env = ludus.make("textarena/IndianPoker-v0", python=python, **arguments)
    assert f"{rounds} round(s) total" in str(env.reset(seed=0)[0])
    env.close()


@pytest.mark.parametrize(
    "named", ["FrozenLake-v0?variant=hardcore", "TicTacToe-v0", "KuhnPoker-v0"]
)
def test_games_pass_the_whole_check(named: str) -> None:
    name, _, arguments = named.partition("?")
    given = dict([arguments.split("=")]) if arguments else {}
    python = python_with("textarena")
    assert not check_env(format_served(f"textarena/{name}", {**given, "python": python})).failures


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"variant": "hrad"}, "no variant of Sudoku named 'hrad'; near: hard"),
        ({"seat": 3}, "seat is from 0 to 0, or -1, got 3"),
        ({"opponent": "best"}, "opponent is 'random' or 'say:TEXT', got 'best'"),
        ({"no_such": 1}, "unexpected keyword argument 'no_such'"),
    ],
)
def test_what_a_game_does_not_take_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        ludus.make("textarena/Sudoku-v0", python=python_with("textarena"), **arguments)
