"""Environments of other projects in processes of their own: what may go wrong, done for real."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs import registry
from ludus.envs.checks import check_env
from ludus.envs.outside.inside import walls
from ludus.envs.outside.match import Match, MatchTurn
from ludus.envs.outside.peer_env import SEEDS_PER_SPLIT, PeerEnv
from ludus.envs.outside.process import interpreter
from ludus.errors import ConfigError, RewardUnavailable, UnknownTask
from ludus.verdict import Status

from .conftest import ADAPTER, PEER, Open  # pyright: ignore

SANDBOXES = str(Path(__file__).resolve().parents[4] / "sandboxes")
NEEDS_WALLS = pytest.mark.skipif(
    bool(walls.missing(SANDBOXES)), reason=f"no walls here: {walls.missing(SANDBOXES)}"
)


def verdict_of(gym: object, action: str) -> tuple[Status, str]:
    """Play an action whose reward cannot be had, and say why."""
    with pytest.raises(RewardUnavailable) as caught:
        gym.step(action)  # type: ignore[attr-defined]
    return caught.value.verdict.status, caught.value.verdict.detail


def test_a_peer_that_prints_passes_the_whole_check(open_peer: Open) -> None:
    env = open_peer("echo")
    report = check_env(env, max_return=1.0)
    assert not report.failures


def test_splits_are_ranges_of_the_peers_seeds(open_peer: Open) -> None:
    env = open_peer("echo")
    shown = {
        split: [env.reset(options={"task": f"{split}/{n}"})[0] for n in range(12)]
        for split in ("train", "validation", "test")
    }
    assert len({tuple(one) for one in shown.values()}) == 3
    assert env.tasks("test").size == SEEDS_PER_SPLIT == 2**30


def test_listed_tasks_have_the_peers_sizes(open_peer: Open) -> None:
    env = open_peer("listed")
    assert [env.tasks(split).size for split in ("train", "validation", "test")] == [3, 0, 1]


def test_an_observation_of_plain_data_is_shown_as_json(open_peer: Open) -> None:
    env = open_peer("data")
    observation, _ = env.reset(seed=0)
    gold = env.session.env.gold()  # type: ignore[attr-defined]
    assert observation == f'{{"n": [1, 2], "word": "{gold[::-1]}"}}'


def test_an_observation_that_is_no_data_is_no_episode(open_peer: Open) -> None:
    with pytest.raises(RewardUnavailable, match=r"a adapter\.Opaque, neither text nor plain data"):
        open_peer("opaque").reset(seed=0)


@pytest.mark.parametrize(
    ("family", "status", "said"),
    [
        ("not-finite", Status.ERROR, "the reward is nan, not a finite number"),
        ("not-a-number", Status.ERROR, "the reward is 'well done', not a number"),
        ("raises", Status.ERROR, "KeyError: 'board'"),
        ("exits", Status.ERROR, "sys.exit(3)"),
        ("dies", Status.UNAVAILABLE, "exit code 7"),
        ("wrong-form", Status.ERROR, "answered step wrongly: Expected `str | array`, got `int`"),
    ],
)
def test_a_failure_of_the_peer_is_never_a_reward(
    open_peer: Open, family: str, status: Status, said: str
) -> None:
    env = open_peer(family)
    env.reset(seed=0)
    found, detail = verdict_of(env, "x")
    assert found is status
    assert said in detail
    assert env.reset(seed=0)[0]  # the next episode begins, in a new process where the old one died


def test_a_reset_that_fails_is_told(open_peer: Open) -> None:
    with pytest.raises(RewardUnavailable, match="failed at reset: RuntimeError: no such level"):
        open_peer("fails-at-reset").reset(seed=0)


@pytest.mark.parametrize("family", ["sleeps", "spins", "starts"])
def test_a_step_that_never_ends_is_ended_with_all_it_started(open_peer: Open, family: str) -> None:
    env = open_peer(family, timeout_s=0.5, walls=False)
    env.reset(seed=0)
    child = env.session.env._child  # type: ignore[attr-defined]  # pyright: ignore
    assert child is not None
    status, detail = verdict_of(env, "x")
    assert status is Status.UNAVAILABLE
    assert "no answer within 0.5 s; exit code -9" in detail
    deadline = time.monotonic() + 60
    while _group_lives(child.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_environment_that_hangs_holds_up_no_other(open_peer: Open) -> None:
    good, bad = open_peer("echo"), open_peer("sleeps", timeout_s=0.3)
    good.reset(seed=3)
    bad.reset(seed=3)
    verdict_of(bad, "x")
    expert = good.session.env.demonstrate()  # type: ignore[attr-defined]
    assert good.step(expert)[1] == 1.0


def test_rewards_are_mapped_by_the_bounds_that_the_peer_declares(open_peer: Open) -> None:
    env = open_peer("bounded", unit_rewards=True)
    for said, mapped in (("-1", 0.0), ("3", 1.0), ("0", 0.25)):
        env.reset(seed=0)
        assert env.step(said)[1] == mapped


def test_rewards_are_the_peers_own_by_default(open_peer: Open) -> None:
    env = open_peer("bounded")
    env.reset(seed=0)
    assert env.step("-0.5")[1] == -0.5


def test_a_reward_outside_the_declared_bounds_is_told(open_peer: Open) -> None:
    env = open_peer("bounded", unit_rewards=True)
    env.reset(seed=0)
    assert verdict_of(env, "4") == (
        Status.ERROR,
        "peer/bounded gave the reward 4, outside the declared -1 to 3",
    )


def test_rewards_without_bounds_cannot_be_mapped(open_peer: Open) -> None:
    with pytest.raises(ConfigError, match="declares no bounds of its rewards"):
        open_peer("echo", unit_rewards=True)


def test_a_peer_without_seeds_says_so_and_passes(open_peer: Open) -> None:
    report = check_env(open_peer("without-seeds", kind={"deterministic": False}))
    skipped = {one.rule: one.detail for one in report.findings if one.outcome == "skipped"}
    assert skipped["replay"] == "the environment says deterministic = False"


def test_a_family_that_the_peer_does_not_have_is_refused(open_peer: Open) -> None:
    with pytest.raises(ConfigError, match="no family 'nothing'"):
        open_peer("nothing")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('cannot import name X from Y')", "ImportError: cannot import name X"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; print('bye', flush=True); os._exit(4)", "it printed: bye"),
        ("def load(settings): return 1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("import time; print('loading', flush=True); time.sleep(600)", "no answer within 2 s"),
    ],
)
def test_a_package_that_cannot_be_imported_is_told(
    open_peer: Open, tmp_path: Path, source: str, said: str
) -> None:
    adapter = tmp_path / "adapter.py"
    adapter.write_text(source)
    limit_s = 2 if "sleep" in source else 60
    with pytest.raises(ConfigError, match="peer cannot be loaded by") as caught:
        open_peer("echo", kind={"adapter": str(adapter)}, start_timeout_s=limit_s)
    assert said in str(caught.value)


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="python='/no/such/python' is not a program"):
        PeerEnv(PEER, "echo", python="/no/such/python")
    with pytest.raises(ConfigError, match="peer cannot be loaded by"):
        PeerEnv(PEER, "echo", python="true", start_timeout_s=5)


def test_an_interpreter_that_dies_ends_its_environments_and_another_is_started(
    open_peer: Open,
) -> None:
    env = open_peer("endless")
    env.reset(seed=0)
    process = interpreter(
        env.session.env._python,  # type: ignore[attr-defined]  # pyright: ignore
        str(ADAPTER), memory_bytes=4096 << 20, timeout_s=10, label="peer",
    )  # fmt: skip
    os.kill(process._process.pid, 9)  # pyright: ignore
    process._process.has_ended(60)  # pyright: ignore
    status, detail = verdict_of(env, "x")
    assert status is Status.UNAVAILABLE
    assert "peer/endless was lost at step" in detail
    assert env.reset(seed=0)[0]


ADAPTER_WITH_A_DISK = """
import tempfile

def load(settings):
    tempfile.tempdir = {folder!r}
    return {{"version": "1"}}

def make(family, settings):
    return Env()

class Env:
    def about(self):
        return {{}}

    def reset(self, task):
        return {{"observation": "begin"}}

    def step(self, action):
        return {{"observation": "", "reward": 1.0, "terminated": True, "truncated": False}}
"""


def test_an_environment_that_cannot_be_begun_costs_no_other(
    open_peer: Open, tmp_path: Path
) -> None:
    folder, adapter = tmp_path / "disk", tmp_path / "adapter.py"
    adapter.write_text(ADAPTER_WITH_A_DISK.format(folder=str(folder)))
    folder.mkdir()
    kind = {"adapter": str(adapter), "scratch": True}
    env = open_peer("first", kind=kind)
    env.reset(seed=0)
    folder.rename(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"cannot be made: .*No such file or directory"):
        open_peer("second", kind=kind)
    assert env.step("x")[1] == 1.0
    (tmp_path / "gone").rename(folder)
    assert open_peer("third", kind=kind).reset(seed=0)[0]


def test_a_program_of_the_policy_runs_in_the_sandbox(open_peer: Open, tmp_path: Path) -> None:
    env = open_peer("runs")
    env.reset(seed=0)
    observation, reward, *_ = env.step("print(int(input()) * 8 + 2)")
    assert (observation, reward) == ("42\n", 1.0)
    marked = tmp_path / "marked"
    env.reset(seed=0)
    observation, reward, *_ = env.step(f"open({str(marked)!r}, 'w').write('here')")
    assert reward == 0.0
    assert not marked.exists()


ATTACKS = {
    "a file is written": "open({marked!r}, 'w').write('x')",
    "a file of the host is read": "open({secret!r}).read()",
    "a program is started": "__import__('subprocess').check_call('echo x > {marked}', shell=True)",
    "the process becomes another": "__import__('os').execv('/bin/sh', ['sh', '-c', 'id'])",
    "the owner is signalled": "__import__('os').kill({owner}, 0)",
    "the environment's variables of the owner are read": "open('/proc/{owner}/environ').read()",
    "a socket is opened": "__import__('socket').create_connection(('127.0.0.1', {port}))",
}


@NEEDS_WALLS
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_peer_evaluates_reaches_nothing_of_the_machine(
    open_peer: Open, tmp_path: Path, attack: str
) -> None:
    secret, marked = tmp_path / "secret", tmp_path / "marked"
    secret.write_text("gold")
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = ATTACKS[attack].format(
            marked=str(marked), secret=str(secret), owner=os.getpid(),
            port=server.getsockname()[1],
        )  # fmt: skip
        walled = open_peer("evaluates")
        walled.reset(seed=0)
        observation, reward, *_ = walled.step(text)
        assert reward == 0.0, observation
        assert not marked.exists()
        if "execv" in text:  # the control would leave the connection without an answer
            return
        control = open_peer("evaluates", walls=False)
        control.reset(seed=0)
        observation, reward, *_ = control.step(text)
    assert reward == 1.0 or marked.exists(), observation


@NEEDS_WALLS
def test_a_file_that_a_setting_names_can_be_read_behind_the_walls(
    open_peer: Open, tmp_path: Path
) -> None:
    place = tmp_path / "data.jsonl"
    place.write_text("row")
    env = open_peer("evaluates", kind={"files": ("data",)}, data=str(place))
    env.reset(seed=0)
    assert env.step(f"open({str(place)!r}).read()")[0] == "row"


def test_a_secret_of_the_owner_is_not_given_to_the_peer(
    open_peer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "very secret")
    env = open_peer("evaluates", walls=False, memory_mb=777)  # a process of its own
    env.reset(seed=0)
    seen, *_ = env.step("sorted(__import__('os').environ)")
    assert "PATH" in seen
    assert "LUDUS_TOKEN" not in seen


# --- games: whatever happens to a player, no other waits for ever ---------------------------------


GAME = "peer/two-words-v0"


def game_of_two(*, seat: int, reset_s: float = 0.0) -> PeerEnv:
    """A game of two players."""
    return PeerEnv(PEER, "game", python=sys.executable, reset_s=reset_s)


@pytest.fixture
def game() -> Iterator[str]:
    ludus.register(GAME)(game_of_two)
    yield GAME
    del registry._ENVIRONMENTS.registered[GAME]


async def joined(match: Match) -> tuple[MatchTurn, "asyncio.Task[MatchTurn]"]:
    """Begin a game; return the first player's turn, and what the second waits for."""
    second = asyncio.create_task(match.join(1, "train/0", None))
    return await asyncio.wait_for(match.join(0, "train/0", None), 20), second


async def playing_through(match: Match) -> list[float]:
    """Play a whole game, and return the rewards."""
    _, second = await joined(match)
    first = asyncio.create_task(match.act(0, "salve"))
    assert (await second).observation == "salve was said"
    second = asyncio.create_task(match.act(1, "vale"))
    assert (await first).observation == "vale was said"
    ends = await asyncio.gather(match.act(0, "ave"), second)
    return [end.reward for end in ends]


async def told(waiting: Any) -> str:
    """What a player is told of a game without rewards, at once."""
    end = await asyncio.wait_for(waiting, 5)
    assert end.over
    return "" if end.failure is None else end.failure.detail


async def test_a_game_that_cannot_begin_is_told_to_all(game: str) -> None:
    match = Match(game)
    first = asyncio.create_task(match.join(0, "no-such-split/0", None))
    await asyncio.sleep(0)
    with pytest.raises(UnknownTask):
        await match.join(1, "no-such-split/0", None)
    assert "UnknownTask" in await told(first)
    assert await playing_through(match) == [1.0, 0.0]
    await match.close()


async def test_a_turn_that_comes_after_the_end_of_its_game_is_told_to_nobody(game: str) -> None:
    match = Match(game, turn_timeout_s=0.5)
    _, second = await joined(match)
    first = asyncio.create_task(match.act(0, "think"))
    assert "player 1 waited for 0.5 s" in await told(second)
    assert await told(first)
    match.turn_timeout_s = 20
    assert await playing_through(match) == [1.0, 0.0]
    await match.close()


async def test_a_player_who_leaves_while_a_game_is_made_ends_it(game: str) -> None:
    match = Match(game, reset_s=1.0)
    second = asyncio.create_task(match.join(1, "train/0", None))
    first = asyncio.create_task(match.join(0, "train/0", None))
    await asyncio.sleep(0.3)
    await match.leave(0)
    assert await told(second) == "player 0 left the game"
    assert await told(first) == "player 0 left the game"
    assert await playing_through(match) == [1.0, 0.0]
    await match.close()


async def test_a_player_who_is_cancelled_holds_no_seat_and_ends_the_game(game: str) -> None:
    match = Match(game)
    gone = asyncio.create_task(match.join(1, "train/0", None))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    first = asyncio.create_task(match.join(0, "train/0", None))
    await asyncio.sleep(0.2)
    assert not first.done(), "the game waits for a second player"
    second = asyncio.create_task(match.join(1, "train/0", None))
    await asyncio.wait_for(first, 20)
    gone = asyncio.create_task(match.act(0, "think"))
    await asyncio.sleep(0.3)
    gone.cancel()
    assert await told(second) == "player 0 gave up"
    assert await playing_through(match) == [1.0, 0.0]
    await match.close()


async def test_who_waits_for_others_is_told_when_the_match_is_closed(game: str) -> None:
    match = Match(game)
    waiting = asyncio.create_task(match.join(0, "train/0", None))
    await asyncio.sleep(0)
    await match.close()
    assert await told(waiting) == "the match was closed"
