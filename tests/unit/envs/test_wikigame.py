"""ludus/wikigame-v0: distances by another library, budgets, and what a policy may write."""

import random
from typing import Any

import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.families.wikigame import WikiGame, page_graph
from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, assistant


def session(**arguments: Any) -> EnvSession:
    return make_async("ludus/wikigame-v0", **arguments)


def env_of(made: EnvSession) -> WikiGame:
    assert isinstance(made.env, WikiGame)
    return made.env


def click(*links: str) -> Message:
    return assistant("", [ToolCall(name="click", arguments={"link": link}) for link in links])


def said(observation: Any) -> str:
    return observation if isinstance(observation, str) else observation[-1].text


def test_distances_are_those_networkx_finds() -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    graph = page_graph(0, 240, "train")
    other = networkx.DiGraph({name: graph.links(name) for name in graph.names})
    for start in graph.names[::23]:
        expected = dict(networkx.single_source_shortest_path_length(other, start))
        assert graph.distances(start) == expected


def test_the_next_step_is_one_click_nearer() -> None:
    graph = page_graph(0, 240, "test")
    for seed in range(40):
        start, target, distance = graph.draw(random.Random(seed), least=2, most=4)
        step = graph.next_step(start, target)
        assert step is not None
        assert step in graph.links(start)
        assert graph.distances(step)[target] == distance - 1
    assert graph.next_step(graph.names[0], graph.names[0]) is None
    assert graph.next_step(graph.names[0], "nowhere") is None


def test_every_distance_comes_up_as_often() -> None:
    graph = page_graph(0, 240, "train")
    drawn = [graph.draw(random.Random(seed), least=2, most=4)[2] for seed in range(300)]
    # 100 of each expected, standard deviation 8.2: 4 of them are 33
    assert all(abs(drawn.count(distance) - 100) < 33 for distance in (2, 3, 4))


def test_a_distance_that_some_two_pages_have_is_found_whatever_numbers_are_drawn() -> None:
    class Stuck(random.Random):
        """Draws the same number for ever."""

        def random(self) -> float:
            return 0.0

        def getrandbits(self, k: int) -> int:
            return 0

    graph = page_graph(0, 60, "train")
    starts_of: dict[int, set[str]] = {}
    for name in graph.names:
        for distance in graph.distances(name).values():
            starts_of.setdefault(distance, set()).add(name)
    assert len(starts_of[7]) == 1, "a rare distance, of one start"
    for distance, starts in starts_of.items():
        for rng in (Stuck(), random.Random(distance)):
            start, target, drawn = graph.draw(rng, least=distance, most=distance)
            assert start in starts
            assert graph.distances(start)[target] == drawn == distance
    with pytest.raises(ConfigError, match="hardly any pages are 8 clicks apart"):
        graph.draw(random.Random(0), least=8, most=8)


async def test_the_expert_takes_the_shortest_way() -> None:
    made = session(min_distance=2, max_distance=5)
    for index in range(20):
        _, info = await made.reset(options={"task": f"validation/{index}"})
        clicks, total, over = 0, 0.0, False
        while not over:
            _, reward, over, _, _ = await made.step(env_of(made).demonstrate())
            clicks, total = clicks + 1, total + reward
        assert (clicks, total) == (info["distance"], 1.0)


async def test_links_are_those_the_page_names() -> None:
    made = session()
    observation, _ = await made.reset(seed=3)
    shown = said(observation)
    assert env_of(made).target in shown
    links = shown.rpartition("Links: ")[2].split("; ")
    assert links == env_of(made).graph.links(env_of(made).page)
    assert all(link in shown.rpartition("Links: ")[0] for link in links)


async def test_names_may_be_written_in_any_case_and_alone() -> None:
    made = session(min_distance=3)
    await made.reset(seed=0)
    link = env_of(made).graph.links(env_of(made).page)[0]
    await made.step(click(f"  {link.upper()} "))
    assert env_of(made).page == link
    other = env_of(made).graph.links(link)[0]
    await made.step(other)
    assert env_of(made).page == other


async def test_a_budget_of_clicks_ends_the_episode_with_nothing() -> None:
    made = session(min_distance=2, max_distance=2, slack=1.5)
    for seed in range(30):
        observation, _ = await made.reset(seed=seed)
        assert "at most 3 clicks" in said(observation)
        env, total, terminated, clicks = env_of(made), 0.0, False, 0
        while not terminated:
            away = [one for one in env.graph.links(env.page) if one != env.target]
            if not away:
                break
            observation, reward, terminated, _, _ = await made.step(click(away[0]))
            total, clicks = total + reward, clicks + 1
        else:
            assert (total, clicks) == (0.0, 3)
            assert "no clicks left" in said(observation)
            return
    raise AssertionError("no seed has three pages to walk away on")


async def test_many_clicks_in_one_turn_cost_as_many() -> None:
    made = session(min_distance=2, max_distance=2, slack=1.0)
    await made.reset(seed=0)
    env = env_of(made)
    wrong = next(one for one in env.graph.links(env.page) if one != env.target)
    steps = [wrong, env.graph.links(wrong)[0], env.target]
    _, _, terminated, _, info = await made.step(click(*steps))
    assert terminated
    assert info["tool_calls"] == 2  # the third is not run: the budget is used up


@pytest.mark.parametrize("link", ["", "Atlantis", "x" * 1_000, "x" * 200_000, "\x00"])
async def test_a_link_that_is_not_there_is_told_and_costs_no_click(link: str) -> None:
    made = session()
    await made.reset(seed=0)
    left = env_of(made).clicks_left
    observation, reward, terminated, _, info = await made.step(click(link))
    assert (reward, terminated, info["tool_errors"]) == (0.0, False, 1)
    assert len(said(observation)) < 800
    await made.step(link)
    assert env_of(made).clicks_left == left


async def test_a_policy_that_never_clicks_is_truncated() -> None:
    made = session(min_distance=2, max_distance=2, slack=1.0)
    await made.reset(seed=0)
    ends = [(await made.step("I am lost."))[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]


async def test_a_clicker_at_random_hardly_ever_arrives() -> None:
    """Measured over 300 tasks of each: 0.07 at 2 clicks, 0.02 at 4."""
    for distance, most in ((2, 0.15), (4, 0.07)):
        made, won, rng = (
            session(min_distance=distance, max_distance=distance),
            0.0,
            random.Random(0),
        )
        for index in range(300):
            await made.reset(options={"task": f"train/{index}"})
            over = False
            while not over:
                link = rng.choice(env_of(made).graph.links(env_of(made).page))
                _, reward, over, _, _ = await made.step(click(link))
                won += reward
        assert won / 300 < most


def test_splits_are_realms_of_their_own() -> None:
    names = [set(page_graph(0, 240, split).names) for split in ("train", "validation", "test")]
    assert not names[0] & names[1]
    assert not names[0] & names[2]
    assert not names[1] & names[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_distance": 0}, "got 0, 4"),
        ({"min_distance": 5}, "got 5, 4"),
        ({"max_distance": 13}, "<= 12"),
        ({"max_distance": 12}, "12 clicks apart"),
        ({"slack": 0.5}, "slack"),
        ({"people": 3}, "people"),
    ],
)
def test_settings_that_cannot_be_say_why(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        session(**arguments)
