"""One policy playing one environment, and what is left of an episode that breaks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ludus.agent import EpisodeLimits, Finish, ScriptedPolicy, Segment, Stop, Turn, play
from ludus.envs import Briefing, EnvSession, TextEnv, ToolSpec, tool
from ludus.envs.protocol import Reset, Step
from ludus.errors import (
    Overloaded,
    RequestTimeout,
    RewardUnavailable,
    ServerUnreachable,
    SessionGone,
    ToolError,
)
from ludus.messages import Message, Role, ToolCall, assistant
from ludus.verdict import Verdict


class Walk(TextEnv):
    """Three steps of 0.25, 0.5 and 1, told by text; `fault` strikes at the second."""

    system_prompt = "Walk."
    answer_format = "Say go."

    def __init__(self, fault: BaseException | None = None, steps: int = 3) -> None:
        self.fault = fault
        self.steps = steps
        self.heard: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.heard = []
        return "begin", {}

    def step(self, action: str) -> Step:
        self.heard.append(action)
        n = len(self.heard)
        if self.fault is not None and n == 2:
            raise self.fault
        return f"after {n}", 0.25 * 2 ** (n - 1), n == self.steps, False, {}

    @tool
    def look(self, where: str) -> str:
        """Look."""
        if where == "up":
            raise ToolError("too bright")
        return f"nothing {where}"


def saying(*said: str | Message) -> ScriptedPolicy:
    lines = list(said)
    return ScriptedPolicy(lambda messages: lines[sum(m.role == "assistant" for m in messages)])


async def test_the_policy_sees_the_briefing_and_a_conversation_that_grows() -> None:
    seen: list[list[str]] = []

    def script(messages: Sequence[Message]) -> str:
        seen.append([f"{m.role}: {m.text}" for m in messages])
        return f"go {len(seen)}"

    episode = await play(EnvSession(Walk()), ScriptedPolicy(script), task="train/3", seed=5)
    assert seen[0] == ["system: Walk.\nSay go.", "user: begin"]
    assert seen[2] == [
        *seen[0],
        "assistant: go 1",
        "user: after 1",
        "assistant: go 2",
        "user: after 2",
    ]
    assert (episode.task, episode.seed, episode.split) == ("train/3", 5, "train")


async def test_the_return_is_the_sum_of_the_turns_rewards() -> None:
    trajectory = (await play(EnvSession(Walk()), saying("a", "b", "c"))).trajectories[0]
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.5, 1.0]
    assert trajectory.ret == 1.75
    assert trajectory.verdict == Verdict.of(1.75, parts={"env": (1.75, 1.0)})
    assert (trajectory.stop, trajectory.terminated) == (Stop.TERMINATED, True)
    assert not trajectory.exclude_from_loss
    assert not trajectory.exclude_from_baseline


async def test_each_turn_keeps_what_was_new_and_what_was_said() -> None:
    trajectory = (await play(EnvSession(Walk()), saying("a", "b", "c"))).trajectories[0]
    said = [t.message.text for t in trajectory.turns if t.message]
    new = [[m.text for m in turn.observation] for turn in trajectory.turns]
    assert said == ["a", "b", "c"]
    assert new == [["Walk.\nSay go.", "begin"], ["after 1"], ["after 2"]]


async def test_tool_calls_are_counted_and_answered() -> None:
    look = assistant("", [ToolCall(name="look", arguments={"where": "down"}, id="1")])
    up = assistant("", [ToolCall(name="look", arguments={"where": "up"}, id="2")])
    cut = assistant("", [ToolCall(name="", error="cut", id="3")])
    policy = saying(look, up, cut, "a", "b", "c")
    trajectory = (await play(EnvSession(Walk()), policy)).trajectories[0]
    counts = {"tool_calls": 3.0, "tool_errors": 2.0, "parse_errors": 1.0}
    counts |= {"tool_refused": 1.0, "tool_unreadable": 1.0, "tools_offered": 1.0}
    assert trajectory.metrics == counts
    answers = [m.text for t in trajectory.turns for m in t.observation if m.role is Role.TOOL]
    assert answers == ["nothing down", "look: too bright", "this call was not executed: cut"]


async def test_the_agents_own_limit_ends_an_episode_that_counts() -> None:
    policy = saying("a", "b", "c")
    episode = await play(EnvSession(Walk()), policy, limits=EpisodeLimits(max_turns=2))
    trajectory = episode.trajectories[0]
    assert (trajectory.stop, trajectory.terminated) == (Stop.MAX_TURNS, False)
    assert trajectory.verdict.reward == 0.75
    assert not trajectory.exclude_from_loss


async def test_without_a_limit_of_the_agent_the_environments_own_holds_however_long() -> None:
    class Bounded(Walk):
        def __init__(self, most: int | None) -> None:
            super().__init__(steps=1000)
            self.most = most

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
            super().reset()
            return "begin", {"briefing": Briefing(system_prompt="Walk.", max_turns=self.most)}

        def step(self, action: str) -> Step:
            return "on", 0.0, False, False, {}

    on_and_on = ScriptedPolicy(lambda _: "on")
    for most, played in ((300, 300), (None, 256)):
        made = (await play(EnvSession(Bounded(most)), on_and_on)).trajectories[0]
        assert (made.stop, len(made.turns)) == (Stop.MAX_TURNS, played)


@pytest.mark.parametrize(
    ("fault", "stop", "status"),
    [
        (RewardUnavailable(Verdict.unavailable("judge")), Stop.REWARD_UNAVAILABLE, "unavailable"),
        (RewardUnavailable(Verdict.invalid("gold")), Stop.REWARD_UNAVAILABLE, "invalid"),
        (ServerUnreachable("gone"), Stop.ENV_ERROR, "unavailable"),
        (SessionGone("restart"), Stop.ENV_ERROR, "unavailable"),
        (Overloaded("full"), Stop.ENV_ERROR, "unavailable"),
        (RequestTimeout("no answer within 40 s"), Stop.ENV_ERROR, "unavailable"),
        (TimeoutError("the env's own"), Stop.ENV_ERROR, "error"),
        (KeyError("bug"), Stop.ENV_ERROR, "error"),
        (asyncio.CancelledError(), Stop.ENV_ERROR, "error"),  # of a task that the env waited for
    ],
)
async def test_a_failure_is_never_a_reward(fault: BaseException, stop: Stop, status: str) -> None:
    trajectory = (await play(EnvSession(Walk(fault)), saying("a", "b", "c"))).trajectories[0]
    assert (trajectory.stop, str(trajectory.verdict.status)) == (stop, status)
    assert trajectory.verdict.reward is None
    assert trajectory.exclude_from_loss
    assert trajectory.exclude_from_baseline
    assert [turn.reward for turn in trajectory.turns] == [0.25, 0.0]


async def test_a_remote_timeout_is_told_with_its_own_words() -> None:
    fault = RequestTimeout("no answer within 40 s")
    trajectory = (await play(EnvSession(Walk(fault)), saying("a", "b"))).trajectories[0]
    assert trajectory.verdict.detail == "RequestTimeout: no answer within 40 s"


async def test_an_episode_that_takes_too_long_is_cut_off() -> None:
    async def slow(_: Sequence[Message]) -> str:
        await asyncio.sleep(60)
        return "late"

    limits = EpisodeLimits(episode_timeout_s=0.05)
    trajectory = (await play(EnvSession(Walk()), ScriptedPolicy(slow), limits=limits)).trajectories[
        0
    ]
    assert trajectory.stop is Stop.TIMEOUT
    assert trajectory.verdict == Verdict.unavailable("no end within 0.05 s")
    assert trajectory.exclude_from_loss


async def test_a_policy_that_fails_is_told_apart_from_an_env_that_does() -> None:
    def broken(_: Sequence[Message]) -> str:
        raise ValueError("engine down")

    trajectory = (await play(EnvSession(Walk()), ScriptedPolicy(broken))).trajectories[0]
    assert trajectory.stop is Stop.POLICY_ERROR
    assert trajectory.verdict == Verdict.unavailable("ValueError: engine down")


async def test_an_unknown_task_is_a_failed_episode_and_names_the_task() -> None:
    episode = await play(EnvSession(Walk()), saying("a"), task="train/x")
    assert episode.task == "train/x"
    assert episode.trajectories[0].stop is Stop.ENV_ERROR
    assert episode.trajectories[0].segments == []


class Fixed:
    """A policy whose turns are given."""

    trainable = False

    def __init__(self, *turns: Turn | Stop) -> None:
        self.turns = list(turns)
        self.segments = [Segment()]

    def begin(self, *, seed: int = 0) -> "Fixed":
        return self

    async def act(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn | Stop:
        turn = self.turns.pop(0)
        if isinstance(turn, Turn):
            self.segments[-1].turns.append(turn)
        return turn


def turn(text: str, finish: Finish = Finish.STOP) -> Turn:
    return Turn(message=assistant(text), finish=finish)


async def test_half_an_answer_of_a_dropped_request_is_not_acted_on() -> None:
    env = Walk()
    trajectory = (await play(EnvSession(env), Fixed(turn("a", Finish.ABORT)))).trajectories[0]
    assert env.heard == []
    assert (trajectory.stop, trajectory.exclude_from_loss) == (Stop.POLICY_ERROR, True)


async def test_a_dropped_request_is_a_line_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await play(EnvSession(Walk()), Fixed(turn("a", Finish.ABORT)))
    (record,) = caplog.records
    assert "the engine dropped the request" in record.getMessage()
    assert not record.exc_info


async def test_a_full_context_ends_an_episode_that_counts() -> None:
    trajectory = (await play(EnvSession(Walk()), Fixed(turn("a"), Stop.CONTEXT_FULL))).trajectories[
        0
    ]
    assert (trajectory.stop, trajectory.verdict.reward) == (Stop.CONTEXT_FULL, 0.25)
    assert not trajectory.exclude_from_loss


async def test_an_answer_that_was_cut_and_ended_the_episode_is_told() -> None:
    env = EnvSession(Walk(steps=1))
    trajectory = (await play(env, Fixed(turn("a", Finish.LENGTH)))).trajectories[0]
    assert (trajectory.stop, trajectory.terminated) == (Stop.LENGTH, True)


async def test_the_last_verdict_of_the_env_gives_parts_and_detail() -> None:
    class Judged(Walk):
        def step(self, action: str) -> Step:
            verdict = Verdict.of(0.5, "half right", parts={"form": (0.5, 1.0)})
            return "", verdict, True, False, {}

    trajectory = (await play(EnvSession(Judged()), saying("a"))).trajectories[0]
    assert trajectory.verdict == Verdict.of(0.5, "half right", parts={"form": (0.5, 1.0)})


async def test_an_episodes_own_briefing_is_what_the_policy_is_told() -> None:
    class Told(Walk):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
            return "x", {"briefing": Briefing(system_prompt="Other.", max_turns=1)}

    seen: list[str] = []
    policy = ScriptedPolicy(lambda messages: seen.append(messages[0].text) or "a")
    trajectory = (await play(EnvSession(Told()), policy)).trajectories[0]
    assert seen == ["Other."]
    assert trajectory.stop is Stop.MAX_TURNS
