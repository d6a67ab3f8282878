"""Bad answers of a policy: the episode goes on or ends, and counts."""

from collections.abc import Sequence
from typing import Any

import pytest

from ludus.agent import EpisodeLimits, ScriptedPolicy, Stop, Trajectory, play
from ludus.agent.parsing import HermesFormat, OneCall, ToolFormat, tool_format
from ludus.envs import EnvSession, TextEnv, ToolResult, make_async, tool
from ludus.errors import ServerUnreachable
from ludus.messages import Message


class Errand(TextEnv):
    """Look twice, then say done. Every text but `done` is waved away."""

    max_calls: int | None = 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.looks = 0
        return "begin", {}

    @tool
    def look(self, where: str) -> ToolResult:
        """Look somewhere.

        Args:
            where: which way
        """
        self.looks += 1
        if where == "down the well":
            raise ServerUnreachable("the well has gone")
        return ToolResult(content=f"looked {where}", reward=0.25)

    def step(self, action: str) -> Any:
        done = action == "done"
        return "hm?", 0.5 if done else 0.0, done, False, {}


def look(where: str) -> str:
    return f'<tool_call>\n{{"name": "look", "arguments": {{"where": "{where}"}}}}\n</tool_call>'


async def played(
    *turns: str,
    one: ToolFormat | None = None,
    env: TextEnv | None = None,
    limits: EpisodeLimits | None = None,
    complete: bool = True,
) -> Trajectory:
    """The episode of a policy that says `turns`, as a model says them; the last for ever."""
    session = EnvSession(env or Errand())
    tools = [known.spec for known in session.env.tools.values()]
    reading, said = one or HermesFormat(), iter(turns)
    last = turns[-1]

    def script(_: Sequence[Message]) -> Message:
        return reading.parse(next(said, last), complete=complete, tools=tools)

    return (await play(session, ScriptedPolicy(script), limits=limits)).trajectories[0]


def shown(made: Trajectory, turn: int) -> list[str]:
    return [message.text for message in made.turns[turn].observation]


async def test_empty_output_is_an_action_that_does_nothing() -> None:
    made = await played("", "", look("up"), "done")
    assert (made.stop, made.ret) == (Stop.TERMINATED, 0.75)
    assert shown(made, 1) == ["hm?"]


async def test_only_thinking_is_no_answer_and_no_call() -> None:
    made = await played(f"<think>should I {look('up')}", "<think>done</think>", "done")
    assert (made.stop, made.ret) == (Stop.TERMINATED, 0.5)
    assert "tool_calls" not in made.metrics


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (HermesFormat(), '<tool_call>{"name": "look", "arguments": {"where": "up"'),
        (tool_format("tags"), "<look>up"),
    ],
)
async def test_an_unclosed_tag_comes_back_as_an_observation_and_is_counted(
    one: ToolFormat, text: str
) -> None:
    made = await played(text, "done", one=one)
    (told,) = shown(made, 1)
    assert told.startswith("this call was not executed: ")
    assert made.metrics["parse_errors"] == made.metrics["tool_unreadable"] == 1.0
    assert made.ret == 0.5


async def test_a_cut_call_comes_back_as_an_observation_and_is_counted() -> None:
    made = await played('<tool_call>{"name": "look", "argum', "done", complete=False)
    assert shown(made, 1) == ["this call was not executed: the call was cut by the token limit"]
    assert made.metrics["parse_errors"] == 1.0


async def test_of_two_calls_where_one_is_allowed_the_first_is_run() -> None:
    made = await played(look("up") + look("down"), "done")
    assert shown(made, 1) == [
        "looked up",
        "this call was not executed: 1 a turn, and this is call 2",
    ]
    assert (made.metrics["tool_excess"], made.ret) == (1.0, 0.75)


async def test_the_format_may_choose_the_last_of_two_calls() -> None:
    env = Errand()
    env.max_calls = None
    made = await played(
        look("up") + look("down"), "done", env=env, one=OneCall(HermesFormat(), "last")
    )
    assert shown(made, 1) == [
        "this call was not executed: one call a turn: only the last is run",
        "looked down",
    ]


async def test_an_unknown_tool_is_told_what_there_is() -> None:
    made = await played('<tool_call>{"name": "' + "x" * 5000 + '"}</tool_call>', "done")
    (told,) = shown(made, 1)
    assert told.endswith("; there is look")
    assert len(told) < 200
    assert made.metrics["tool_unknown"] == 1.0


async def test_arguments_that_do_not_fit_are_told() -> None:
    made = await played('<tool_call>{"name": "look", "arguments": {"x": 1}}</tool_call>', "done")
    assert shown(made, 1)[0].startswith("invalid arguments for look: ")
    assert made.metrics["tool_invalid"] == 1.0


async def test_a_megabyte_as_an_argument_is_refused() -> None:
    made = await played(look("x" * 1_000_000), "done")
    assert "at most 262,144 are taken" in shown(made, 1)[0]
    assert made.ret == 0.5


async def test_talking_on_and_on_without_a_call_ends_an_episode_that_counts() -> None:
    made = await played("well", limits=EpisodeLimits(max_turns=64))
    assert (made.stop, len(made.turns), made.verdict.reward) == (Stop.NO_CALLS, 10, 0.0)
    assert not made.exclude_from_loss
    assert not made.exclude_from_baseline


async def test_a_call_that_runs_starts_the_count_again_and_a_broken_one_does_not() -> None:
    limits = EpisodeLimits(max_turns=64, max_idle_turns=3)
    calm = await played("a", "b", look("up"), "c", "d", "done", limits=limits)
    assert calm.stop is Stop.TERMINATED
    broken = await played("a", "<tool_call>{", look("up" * 200_000), "c", limits=limits)
    assert (broken.stop, len(broken.turns)) == (Stop.NO_CALLS, 3)
    endless = EpisodeLimits(max_turns=20, max_idle_turns=0)
    assert (await played("a", limits=endless)).stop is Stop.MAX_TURNS


async def test_where_there_are_no_tools_talking_is_not_idle() -> None:
    env = make_async("ludus/ledger-v0", turns=16)
    made = await play(env, ScriptedPolicy(lambda _: "n"), limits=EpisodeLimits(max_idle_turns=3))
    assert made.trajectories[0].stop is Stop.TERMINATED


async def test_an_environment_that_dies_in_the_middle_counts_for_nothing() -> None:
    made = await played(look("up"), look("down the well"))
    assert (made.stop, made.verdict.status) == (Stop.ENV_ERROR, "unavailable")
    assert made.exclude_from_loss
    assert made.exclude_from_baseline
    assert made.verdict.reward is None
