"""ludus/functions-v0: answers worked out by hand, and everything a caller can do wrong."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent import EpisodeLimits, RandomPolicy, ScriptedPolicy, Stop, play
from ludus.envs import EnvSession, make_async
from ludus.envs.families.functions import Functions
from ludus.envs.families.functions.functions_env import GAMES, calls_of
from ludus.envs.families.functions.moves import FunctionGame, Merge, Shorten, Sort
from ludus.envs.families.functions.problems import Islands, LargestRun, Loop, Pair, Rising, Roads
from ludus.envs.tools import ToolFault
from ludus.errors import ConfigError
from ludus.messages import ToolCall, assistant

TOWN = {"A": ["B", "C"], "B": ["A", "D"], "C": ["A", "D"], "D": ["B", "C", "E"], "E": ["D"]}


async def said(game: FunctionGame, name: str, **arguments: Any) -> Any:
    return await game.tools[name].call(arguments)


@pytest.mark.parametrize(
    ("game", "right", "wrong"),
    [
        # -2 1 -3 4 -1 2 1 -5 4: 4 - 1 + 2 + 1 = 6 is the largest sum
        (LargestRun([-2, 1, -3, 4, -1, 2, 1, -5, 4]), {"first": 3, "last": 6},
         [{"first": 3, "last": 5}, {"first": 6, "last": 3}, {"first": 0, "last": 99},
          {"first": -6, "last": -3}]),
        (LargestRun([-3, -1, -2]), {"first": 1, "last": 1}, [{"first": 0, "last": 0}]),
        # 2 + 7 and 4 + 5 are both 9
        (Pair([2, 4, 7, 5], 9), {"first": 0, "second": 2}, [{"first": 0, "second": 1}]),
        (Pair([2, 4, 7, 5], 9), {"first": 3, "second": 1}, [{"first": 0, "second": -2}]),
        (Pair([4, 9, 4], 8), {"first": 0, "second": 2}, [{"first": 0, "second": 0}]),
        # 10 9 2 5 3 7 101 18: 2 5 7 101 or 2 3 7 18, four of them
        (Rising([10, 9, 2, 5, 3, 7, 101, 18]), {"positions": [2, 4, 5, 7]},
         [{"positions": [2, 4, 5]}, {"positions": [7, 5, 4, 2]}, {"positions": []},
          {"positions": [0, 6, 6, 6]}, {"positions": [2, 3, 5, 99]}]),
        # two islands by sides (the corner does not count): 3 squares and 1
        (Islands(["##.", "#.#", "..."]), {"islands": 2, "largest": 3},
         [{"islands": 1, "largest": 4}, {"islands": 2, "largest": 1}]),
        (Roads(TOWN, "A", "E"), {"way": ["A", "C", "D", "E"]},
         [{"way": ["A", "E"]}, {"way": ["A", "B", "A", "B", "D", "E"]}, {"way": []},
          {"way": ["E", "D", "B", "A"]}, {"way": ["A", "X", "D", "E"]}]),
        (Roads(TOWN, "A", "E"), {"way": ["A", "B", "D", "E"]}, []),
        # A B C D, and from D back to B: the circle is B C D
        (Loop(["A", "B", "C", "D"], 1), {"first": "B", "places": 3},
         [{"first": "A", "places": 3}, {"first": "B", "places": 4}]),
        (Loop(["A"], 0), {"first": "A", "places": 1}, []),
    ],
)  # fmt: skip
async def test_answers_are_judged_by_what_they_say(
    game: FunctionGame, right: dict[str, Any], wrong: list[dict[str, Any]]
) -> None:
    result = await said(game, "done", **right)
    assert (result.reward, result.terminated, result.error) == (1.0, True, False)
    for answer in wrong:
        result = await said(game, "done", **answer)
        assert (result.reward, result.terminated) == (0.0, True), answer


def test_the_answers_of_the_algorithms_by_hand() -> None:
    assert LargestRun([-2, 1, -3, 4, -1, 2, 1, -5, 4]).answer() == [3, 6]
    assert Pair([2, 4, 7, 5], 9).answer() == [0, 2]
    assert Rising([3, 1, 2]).answer() == [[1, 2]]
    assert Islands(["#.#", "#.#", "..#"]).answer() == [2, 3]
    assert Roads(TOWN, "A", "E").answer() == ["A", "B", "D", "E"]
    assert Loop(["A", "B", "C"], 0).answer() == ["A", 3]
    assert Merge([2, 9], [1, 5]).answer() == [1, 2, 5, 9]
    assert Shorten("aaabcc").answer() == "a3b1c2"


def test_how_many_calls_an_expert_makes_by_hand() -> None:
    assert calls_of(LargestRun([1, 2, 3])) == 5  # length, three items, done
    assert calls_of(Pair([2, 4, 7, 5], 9)) == 5  # complete at the third item
    assert calls_of(Islands(["#.", ".#"])) == 6  # size, four squares, done
    assert calls_of(Roads(TOWN, "A", "E")) == 5  # A, B, C, D shows E, done
    assert calls_of(Loop(["A", "B", "C"], 1)) == 5  # start, three steps, done
    # looks at 2|1, 2|5, 9|5 and takes; then 9 alone is taken without a look
    assert calls_of(Merge([2, 9], [1, 5])) == 8
    # 2 1 3: length; 2>1 and a swap; 2<3; done
    assert calls_of(Sort([2, 1, 3])) == 5
    assert calls_of(Shorten("aab")) == 7  # length, three letters, two runs written, done


async def test_cards_are_taken_one_by_one_and_stay_taken() -> None:
    game = Merge([2, 9], [5])
    assert (await said(game, "tops")).content == "left: 2, right: 5"
    assert (await said(game, "take", pile="right")).content == "taken: 5"
    assert (await said(game, "tops")).content == "left: 2, right: empty"
    assert (await said(game, "take", pile="right")).fault is ToolFault.REFUSED
    assert (await said(game, "take", pile="middle")).fault is ToolFault.INVALID
    for _ in range(2):
        await said(game, "take", pile="left")
    assert (await said(game, "done")).reward == 0.0


async def test_a_row_is_sorted_unseen() -> None:
    game = Sort([3, 1, 2])
    assert (await said(game, "compare", first=0, second=1)).content == "the one at 0 is larger"
    assert (await said(game, "compare", first=1, second=1)).content == "the same"
    assert (await said(game, "compare", first=0, second=3)).fault is ToolFault.REFUSED
    assert (await said(game, "compare", first=-1, second=0)).fault is ToolFault.REFUSED
    assert (await said(game, "length")).content == "3"
    for first, second in ((0, 1), (1, 2)):
        await said(game, "swap", first=first, second=second)
    assert game.items == [1, 2, 3]
    assert (await said(game, "done")).reward == 1.0


async def test_a_swap_that_cannot_be_leaves_the_row_as_it_is() -> None:
    game = Sort([3, 1, 2])
    assert (await said(game, "swap", first=0, second=9)).fault is ToolFault.REFUSED
    assert game.items == [3, 1, 2]


async def test_what_is_written_stays_and_is_bounded() -> None:
    game = Shorten("aab")
    await said(game, "write", text="a2")
    assert (await said(game, "write", text="b1")).content == "written so far: 4 letters"
    assert (await said(game, "write", text="x" * 10_000)).fault is ToolFault.REFUSED
    assert (await said(game, "done")).reward == 1.0
    await said(game, "write", text="!")
    assert (await said(game, "done")).reward == 0.0


@pytest.mark.parametrize("name", GAMES)
@given(seed=st.integers(0, 10**6), calls=st.integers(10, 90))
@settings(max_examples=15, deadline=None)
def test_the_expert_is_right_on_every_kind(name: str, seed: int, calls: int) -> None:
    game = GAMES[name].draw(random.Random(seed), calls)
    results = [game.tools[one.name].function(**one.arguments) for one in game.expert()]
    assert (results[-1].reward, results[-1].terminated) == (1.0, True)


@pytest.mark.parametrize("name", GAMES)
def test_the_same_seed_draws_the_same_problem_and_others_another(name: str) -> None:
    texts = [GAMES[name].draw(random.Random(seed), 30).text() for seed in range(40)]
    assert texts == [GAMES[name].draw(random.Random(seed), 30).text() for seed in range(40)]
    assert len(set(texts)) == 40


def test_tasks_take_from_ten_to_ninety_calls_of_every_kind_alike() -> None:
    tasks = Functions().tasks("train")
    calls = [tasks.at(index).difficulty or 0 for index in range(300)]
    assert 10 <= min(calls) <= 13
    assert 85 <= max(calls) <= 90
    kinds = Counter(tasks.game(tasks.at(index)).name for index in range(300))
    assert set(kinds) == set(GAMES)
    assert min(kinds.values()) >= 15  # 33 of each are to be expected


def test_splits_share_no_problem() -> None:
    env = Functions(min_calls=4, max_calls=14, games=["sort", "islands"])
    texts = {
        split: {env.tasks(split).game(env.tasks(split).at(i)).text() for i in range(300)}
        for split in ("train", "validation", "test")
    }
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"games": ["chess"]}, "games are largest_run"),
        ({"min_calls": 3}, "4 <= min_calls"),
        ({"max_calls": 201}, "<= 200"),
        ({"min_calls": 50, "max_calls": 52}, "min_calls \\+ 4"),
        ({"slack": 0.5}, "slack >= 1"),
        ({"calls_per_turn": 0}, "calls_per_turn >= 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Functions(**arguments)


async def test_each_episode_brings_the_tools_of_its_problem() -> None:
    session = EnvSession(Functions(games=["roads"]))
    _, info = await session.reset(seed=3)
    assert [one.name for one in info["briefing"].tools] == ["roads_from", "done"]
    assert info["briefing"].max_turns == 2 * calls_of(session.env.game)  # type: ignore[attr-defined]
    both = [ToolCall(name="roads_from", arguments={"place": "x"}, id=str(i)) for i in range(2)]
    told = (await session.step(assistant("", both)))[0]
    assert [message.text for message in told if not isinstance(message, str)] == [
        "roads_from: there is no place called 'x'",
        "this call was not executed: 1 a turn, and this is call 2",
    ]


async def test_random_calls_and_talk_earn_nothing() -> None:
    for seed in range(12):
        env = make_async("ludus/functions-v0")
        limits = EpisodeLimits(max_idle_turns=0)
        made = await play(env, RandomPolicy(), sampling_seed=seed, seed=seed, limits=limits)
        assert made.trajectories[0].ret == 0.0
    talk = await play(make_async("ludus/functions-v0"), ScriptedPolicy(lambda _: "42"))
    assert talk.trajectories[0].stop is Stop.NO_CALLS
