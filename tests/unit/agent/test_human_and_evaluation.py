import asyncio
import math
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

import ludus
from ludus.agent import (
    Episode,
    HumanPolicy,
    Policy,
    RandomPolicy,
    ScriptedPolicy,
    Stop,
    evaluation,
    play,
)
from ludus.agent.evaluation import evaluate, first_tasks, summarise
from ludus.agent.human_policy import read_line, usage
from ludus.agent.policy import TextPlayer
from ludus.cli.main import main
from ludus.envs import EnvSession, GeneratedTasks, TaskSet, TextEnv, Tool, ToolSpec, make_async
from ludus.envs.gym import Playable
from ludus.envs.protocol import Reset, Step
from ludus.errors import ConfigError, RewardUnavailable, ToolError, UnknownTask
from ludus.estimates import Estimate, mean_over_tasks, pass_at_k, wilson
from ludus.messages import Message, assistant
from ludus.verdict import Verdict


def calculator(expression: str) -> str:
    """Work it out."""
    return expression


def search(query: str, limit: int = 5, exact: bool = False) -> str:
    """Look it up."""
    return query


TOOLS = [Tool(calculator).spec, Tool(search).spec]


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("/calculator 1+1", "calculator", {"expression": "1+1"}),
        ("/calculator  (1 + 2) * 3 ", "calculator", {"expression": "(1 + 2) * 3"}),
        ('/calculator {"expression": "7"}', "calculator", {"expression": "7"}),
        ("/calculator expression=7", "calculator", {"expression": "7"}),
        ("/search red fox", "search", {"query": "red fox"}),
        (
            '/search query="red fox" limit=3 exact=true',
            "search",
            {"query": "red fox", "limit": 3, "exact": True},
        ),
        ("/search", "search", {}),
    ],
)
def test_a_line_that_begins_with_a_slash_calls_a_tool(
    line: str, name: str, arguments: dict[str, Any]
) -> None:
    (call,) = read_line(line, TOOLS).tool_calls
    assert (call.name, call.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("line", "text"), [("42", "42"), ("", ""), ("//etc", "/etc"), (" /x", " /x")]
)
def test_other_lines_are_answers(line: str, text: str) -> None:
    message = read_line(line, TOOLS)
    assert (message.text, message.tool_calls) == (text, [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/calc 1", "did you mean /calculator"),
        ("/zzz", "there is calculator, search"),
        ('/search {"q', "not JSON"),
        ("/calculator expresion=1+1", "did you mean expression="),
        ("/search land=3", "no argument named 'land'; there is"),
    ],
)
def test_calls_that_cannot_be_read_are_told(line: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        read_line(line, TOOLS)


def test_how_a_tool_is_typed() -> None:
    assert [usage(tool) for tool in TOOLS] == [
        "/calculator EXPRESSION",
        "/search query=... [limit=...] [exact=...]",
    ]


async def test_a_person_plays_and_is_asked_again_after_a_slip() -> None:
    lines = iter(["/calc 1", "/calculator 2+2", "4"])
    asked: list[tuple[int, str]] = []

    def ask(new: Sequence[Message], tools: Sequence[ToolSpec], complaint: str) -> str:
        asked.append((len(new), complaint[:7]))
        return next(lines)

    trajectory = (await play(make_async("ludus/arithmetic-v0"), HumanPolicy(ask))).trajectories[0]
    assert asked == [(2, ""), (0, "no tool"), (1, "")]
    assert len(trajectory.turns) == 2
    assert trajectory.stop is Stop.TERMINATED


async def test_a_person_may_leave() -> None:
    def ask(*_: object) -> str:
        raise EOFError

    trajectory = (await play(make_async("ludus/arithmetic-v0"), HumanPolicy(ask))).trajectories[0]
    assert trajectory.stop is Stop.LEFT
    assert trajectory.exclude_from_loss


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (1, 1, 1, 1.0),
        (4, 0, 4, 0.0),
        (4, 1, 1, 0.25),
        (4, 2, 2, 5 / 6),  # one of the six pairs has no passing sample
        (10, 3, 5, 1 - 21 / 252),  # C(7,5) = 21, C(10,5) = 252
        (5, 3, 3, 1.0),  # two failures cannot fill three places
    ],
)
def test_pass_at_k_by_hand(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [(3, 4, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_of_impossible_numbers_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="need 0 <= c <= n"):
        pass_at_k(*wrong)


def test_wilsons_interval_is_the_published_one() -> None:
    # Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611.
    some, none = wilson(81, 263), wilson(0, 20)
    assert (some.low, some.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert (none.low, none.high) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_the_interval_of_a_mean_by_hand() -> None:
    # mean 2, standard deviation 1, three tasks: 2 -+ 1.95996 / sqrt(3)
    made = mean_over_tasks([1.0, 2.0, 3.0])
    assert (made.value, made.low, made.high) == pytest.approx((2.0, 0.868422, 3.131578), abs=1e-5)
    assert mean_over_tasks([1.0]).high == math.inf


class Coin(TextEnv):
    """Right if the policy says the parity of the task; every fifth task has no reward at all."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.task.id, {}

    def step(self, action: str) -> Step:
        index = int(self.task.id.partition("/")[2])
        if index % 5 == 4:
            raise RewardUnavailable(Verdict.unavailable("the judge is away"))
        return "", float(action == str(index % 2)), True, False, {}


def always(said: str) -> Policy:
    return ScriptedPolicy(lambda _: said)


async def test_failures_are_counted_apart_and_never_as_zero() -> None:
    episodes = await evaluate(
        lambda: EnvSession(Coin()), lambda _: always("0"), tasks=10, samples=2, concurrency=3
    )
    assert [e.task for e in episodes] == [f"test/{i}" for i in range(10) for _ in range(2)]
    assert [e.index for e in episodes] == [0, 1] * 10
    made = summarise(episodes)
    # tasks 4 and 9 have no reward; of the other eight, 0 2 6 8 are even
    assert (made.episodes, made.failed, made.tasks) == (20, 4, 8)
    assert made.failures == {"reward_unavailable: the judge is away": 4}
    assert made.reward is not None
    assert made.reward.value == 0.5
    assert {k: e.value for k, e in made.pass_at.items()} == {1: 0.5, 2: 0.5}


async def test_an_evaluation_that_never_waits_can_be_cancelled() -> None:
    seen: list[Episode] = []
    work = evaluate(
        lambda: EnvSession(Coin()), lambda _: always("0"), tasks=100_000, on_episode=seen.append
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await work
    assert len(seen) < 100_000


async def test_samples_of_a_task_share_its_seed_and_differ_in_the_policys() -> None:
    begun: list[int] = []

    class Noting(RandomPolicy):
        def begin(self, *, seed: int = 0) -> Any:
            begun.append(seed)
            return super().begin(seed=seed)

    episodes = await evaluate(
        lambda: EnvSession(Coin()), lambda _: Noting(), tasks=2, samples=3, concurrency=1, seed=2
    )
    assert len(set(begun)) == len(begun) == 6
    assert {e.seed for e in episodes} == {2}
    assert len({e.group for e in episodes}) == 2


async def test_tasks_are_answered_independently_of_each_other() -> None:
    class Heads(TextEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Reset:
            return "heads?", {}

        def step(self, action: str) -> Step:
            return "", float(action == "heads"), True, False, {}

        def tasks(self, split: str) -> TaskSet:
            return GeneratedTasks(split)

    class Flipping:
        trainable = False

        def begin(self, *, seed: int = 0) -> TextPlayer:
            rng = random.Random(seed)

            async def answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
                return assistant(rng.choice(["heads", "tails"]))

            return TextPlayer(answer)

    async def estimate(seed: int) -> Estimate:
        episodes = await evaluate(
            lambda: EnvSession(Heads()), lambda _: Flipping(), tasks=200, seed=seed
        )
        return summarise(episodes).pass_at[1]

    # All tasks with one draw would be right or wrong together, and none of the intervals near 1/2.
    estimates = [await estimate(seed) for seed in range(8)]
    assert sum(made.low <= 0.5 <= made.high for made in estimates) >= 6
    assert len({made.value for made in estimates}) > 2


async def test_an_evaluation_where_all_failed_has_no_mean() -> None:
    class Gone(Coin):
        def step(self, action: str) -> Step:
            raise RewardUnavailable(Verdict.unavailable("away"))

    made = summarise(await evaluate(lambda: EnvSession(Gone()), lambda _: always("0"), tasks=3))
    assert (made.failed, made.reward, made.pass_at) == (3, None, {})


async def test_sessions_are_closed_also_after_a_failure() -> None:
    opened: list[EnvSession] = []
    closed: list[object] = []

    class Closing(Coin):
        def close(self) -> None:
            closed.append(self)

    def open_session() -> Playable:
        opened.append(EnvSession(Closing()))
        return opened[-1]

    await evaluate(open_session, lambda _: always("0"), tasks=6, concurrency=2)
    assert len(opened) == len(closed) == 3  # two players and the one that lists the tasks


async def test_a_session_that_cannot_be_closed_costs_no_episode() -> None:
    class Unclosable(Coin):
        def close(self) -> None:
            raise RuntimeError("stuck")

    episodes = await evaluate(lambda: EnvSession(Unclosable()), lambda _: always("0"), tasks=4)
    assert len(episodes) == 4


async def test_an_evaluation_in_a_call_that_never_returns_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "GIVE_UP_S", 0.1)
    begun = asyncio.Event()

    class Stuck(Coin):
        began = False

        async def step(self, action: str) -> Step:  # type: ignore[override]
            self.began = True
            begun.set()
            await asyncio.sleep(600)
            raise AssertionError("nobody waits so long")

        async def close(self) -> None:
            if self.began:
                await asyncio.sleep(600)

    work = asyncio.create_task(
        evaluate(lambda: EnvSession(Stuck()), lambda _: always("0"), tasks=2)
    )
    await begun.wait()
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=60)
    assert done == {work}
    assert work.cancelled()


async def test_tasks_are_read_page_by_page_and_an_unknown_split_is_refused() -> None:
    session = EnvSession(Coin())
    assert [t.id for t in await first_tasks(session, "test", 1203)][-1] == "test/1202"
    with pytest.raises(UnknownTask):
        await first_tasks(session, "dev", 1)


async def test_a_split_without_tasks_is_refused() -> None:
    from ludus.envs import GeneratedTasks

    class Empty(Coin):
        def tasks(self, split: str) -> GeneratedTasks:
            return GeneratedTasks(split, size=0)

    with pytest.raises(ConfigError, match="has no tasks"):
        await first_tasks(EnvSession(Empty()), "test", 5)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """JSON Schemas of what tools take."""
    whole, short = st.integers(-200, 200), st.integers(0, 30)
    leaves = st.one_of(
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string"}, {}]),
        st.builds(lambda value: {"const": value}, whole),
        st.builds(lambda values: {"enum": values}, st.lists(st.text(), min_size=1)),
        st.builds(
            lambda n, k: {"type": "string", "minLength": n, "maxLength": n + k}, short, short
        ),
        st.builds(
            lambda kind, low, more: {"type": kind, **low, **more},
            st.sampled_from(["integer", "number", ["integer", "null"]]),
            st.builds(
                lambda key, n: {key: n}, st.sampled_from(["minimum", "exclusiveMinimum"]), whole
            ),
            st.builds(lambda n: {"maximum": 202 + n}, short),
        ),
        st.builds(lambda n: {"type": "integer", "multipleOf": n}, st.integers(1, 9)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda of, n: {"type": "array", "items": of, "minItems": n}, inner, short),
            st.builds(lambda of: {"anyOf": of}, st.lists(inner, min_size=1, max_size=3)),
            st.builds(
                lambda of, some: {"type": "object", "properties": of, "required": list(of)[:some]},
                st.dictionaries(st.text(max_size=4), inner, max_size=4),
                short,
            ),
        ),
        max_leaves=8,
    )


async def plays_within_the_schema(schema: dict[str, Any], seed: int) -> None:
    parameters = {
        "type": "object",
        "properties": {"value": schema, "more": {"$ref": "#/$defs/tree"}},
        "required": ["value", "more"],
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    player = RandomPolicy().begin(seed=seed)
    for _ in range(4):
        turn = await player.act([], [ToolSpec(name="act", description="", parameters=parameters)])
        for call in turn.message.tool_calls:
            jsonschema.validate(call.arguments, parameters)


@settings(max_examples=30)
@given(schemas(), st.integers(0, 9))
async def test_the_arguments_of_the_random_policy_fit_the_schema(
    schema: dict[str, Any], seed: int
) -> None:
    await plays_within_the_schema(schema, seed)


@pytest.mark.slow
@settings(max_examples=200)
@given(schemas(), st.integers(0, 9))
async def test_the_arguments_of_the_random_policy_fit_many_more_schemas(
    schema: dict[str, Any], seed: int
) -> None:
    await plays_within_the_schema(schema, seed)


async def test_the_random_policy_is_fixed_by_its_seed_and_breaks_nothing() -> None:
    def run(seed: int) -> Any:
        return play(make_async("ludus/arithmetic-v0"), RandomPolicy(), sampling_seed=seed)

    one, two = (await run(3)).trajectories[0], (await run(3)).trajectories[0]
    assert [t.message for t in one.turns] == [t.message for t in two.turns]
    for seed in range(20):
        assert (await run(seed)).trajectories[0].verdict.ok


class Counting(TextEnv):
    """Pays each word, and ends after three."""

    def reset(self, *, seed=None, options=None):
        self.words = []
        return "go", {}

    def step(self, action):
        self.words.append(action)
        return " ".join(self.words), 0.5, len(self.words) == 3, False, {}


def test_a_person_sees_rewards_and_takes_a_line_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ludus.register("tests/counting-v0")(Counting)
    typed = iter(["/undo", "one", "wrong", "/undo", "/help", "two", "three"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert main(["play", "tests/counting-v0"]) == 0
    screen = capsys.readouterr().out
    assert "nothing to take back" in screen
    assert "one wrong" in screen
    assert "one two" in screen
    assert screen.count("reward +0.5") == 4  # after one, wrong, one again, and two
    assert "one two three" in screen  # what the last word was answered
    assert "reward 1.5" in screen
