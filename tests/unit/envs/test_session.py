"""The session is where the contract is enforced."""

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from ludus.envs import Briefing, EnvSession, ListedTasks, Task, TextEnv, ToolResult, ToolSpec, tool
from ludus.envs.protocol import Reset, Step
from ludus.errors import (
    CheckFailed,
    ConfigError,
    EpisodeEnded,
    InvalidAction,
    RewardUnavailable,
    UnknownTask,
)
from ludus.messages import ImagePart, Message, Role, TextPart, ToolCall, assistant
from ludus.verdict import Verdict


class Counter(TextEnv):
    """Ends when told to; says what it was given."""

    system_prompt = "Count."
    max_turns = 3
    reset_options: ClassVar[Mapping[str, type]] = {"start": int}

    def __init__(self, reward: object = 0.5) -> None:
        self.reward = reward
        self.count = 0
        self.given: list[object] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.count = (options or {}).get("start", 0)
        return f"{self.count} {self.rng.random()}", {}

    def step(self, action: str) -> Step:
        self.given.append(action)
        self.count += 1
        return str(self.count), self.reward, action == "stop", False, {"count": self.count}  # type: ignore[return-value]


class Shop(TextEnv):
    """Tools that earn, fail and end."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "what will it be?", {}

    def step(self, action: str) -> Step:
        return f"heard {action}", 0.0, True, False, {}

    @tool
    def buy(self, thing: str, count: int = 1) -> ToolResult:
        """Buy.

        Args:
            thing: what
        """
        return ToolResult(content=f"{count} {thing}", reward=0.25 * count)

    @tool
    async def leave(self) -> ToolResult:
        """Leave."""
        await asyncio.sleep(0)
        return ToolResult(content="bye", terminated=True)


@pytest.mark.parametrize(
    ("attribute", "value", "told"),
    [
        ("max_turns", "12", "max_turns must be a whole number, or None, got '12'"),
        ("system_prompt", ("Count.",), r"system_prompt must be a text, got .* \(a comma behind"),
    ],
)
async def test_a_briefing_that_cannot_be_used_is_told_by_what_is_wrong(
    attribute: str, value: object, told: str
) -> None:
    env = Counter()
    setattr(env, attribute, value)
    with pytest.raises(CheckFailed, match=told):
        await EnvSession(env).reset(seed=0)


async def test_an_observation_that_nobody_awaited_is_told_as_such() -> None:
    class Forgets(Counter):
        async def said(self) -> str:
            return "said"

        def step(self, action: str) -> Any:
            coroutine = self.said()
            coroutine.close()
            return coroutine, 0.0, True, False, {}

    session = EnvSession(Forgets())
    await session.reset(seed=0)
    with pytest.raises(CheckFailed, match=r"got observation of type coroutine: .*is an await miss"):
        await session.step("go")


def calls(*named: tuple[str, dict[str, Any]]) -> Message:
    return assistant(
        "", [ToolCall(name=n, arguments=a, id=f"c{i}") for i, (n, a) in enumerate(named)]
    )


async def test_reset_names_the_task_and_gives_the_briefing() -> None:
    session = EnvSession(Counter(), "me/counter-v0")
    _, info = await session.reset(seed=7)
    assert info["task"] == "train/7"
    assert info["briefing"] == Briefing(system_prompt="Count.", max_turns=3)


async def test_task_and_seed_fix_the_randomness_and_each_of_them_changes_it() -> None:
    session = EnvSession(Counter())
    first = await session.reset(seed=1, options={"task": "train/5"})
    same = await session.reset(seed=1, options={"task": "train/5"})
    other_seed = await session.reset(seed=2, options={"task": "train/5"})
    other_task = await session.reset(seed=1, options={"task": "test/5"})
    assert first == same
    assert len({str(one[0]) for one in (first, other_seed, other_task)}) == 3


async def test_a_step_before_reset_is_refused() -> None:
    with pytest.raises(EpisodeEnded, match="call reset"):
        await EnvSession(Counter(), "me/counter-v0").step("x")


async def test_a_step_after_the_end_is_refused() -> None:
    session = EnvSession(Counter())
    await session.reset()
    assert (await session.step("stop"))[2] is True
    with pytest.raises(EpisodeEnded):
        await session.step("again")


@pytest.mark.parametrize("action", [None, 3, b"x", ["x"], {"role": "assistant"}])
async def test_an_action_of_a_wrong_type_is_refused_and_the_episode_goes_on(action: Any) -> None:
    session = EnvSession(Counter())
    await session.reset()
    with pytest.raises(InvalidAction, match=type(action).__name__):
        await session.step(action)
    assert (await session.step("x"))[0] == "1"


async def test_the_turn_limit_truncates_at_exactly_its_number_of_turns() -> None:
    session = EnvSession(Counter())
    await session.reset()
    ends = [(await session.step("x"))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    with pytest.raises(EpisodeEnded):
        await session.step("x")


async def test_ending_on_the_last_turn_is_an_end_and_not_a_cut() -> None:
    session = EnvSession(Counter())
    await session.reset()
    await session.step("x")
    await session.step("x")
    assert (await session.step("stop"))[2:4] == (True, False)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), True, "1", None])
async def test_a_reward_that_is_no_number_is_no_reward(reward: object) -> None:
    session = EnvSession(Counter(reward))
    await session.reset()
    with pytest.raises(RewardUnavailable) as caught:
        await session.step("x")
    assert caught.value.verdict.status == "error"
    with pytest.raises(EpisodeEnded):
        await session.step("x")


async def test_a_verdict_that_is_not_ok_ends_the_episode_without_a_number() -> None:
    session = EnvSession(Counter(Verdict.unavailable("judge is late")))
    await session.reset()
    with pytest.raises(RewardUnavailable, match="judge is late"):
        await session.step("x")


async def test_a_verdict_gives_its_reward_and_stays_in_info() -> None:
    verdict = Verdict.of(0.75, parts={"form": (0.5, 1.0), "sum": (0.25, 1.0)})
    session = EnvSession(Counter(verdict))
    await session.reset()
    _, reward, _, _, info = await session.step("x")
    assert (reward, info["verdict"]) == (0.75, verdict)


async def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no reset option 'strat'; it takes task, split, start"):
        await EnvSession(Counter(), "c").reset(options={"strat": 1})


async def test_an_option_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="start='x'"):
        await EnvSession(Counter()).reset(options={"start": "x"})


@pytest.mark.parametrize(
    "options",
    [
        {"task": "train/x"},
        {"task": "nowhere/1"},
        {"split": "tset"},
        {"task": "9" * 5000},
        {"task": 3},
    ],
)
async def test_unknown_tasks_and_splits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownTask):
        await EnvSession(Counter()).reset(options=options)


async def test_a_refused_reset_leaves_no_episode_open() -> None:
    session = EnvSession(Counter())
    await session.reset()
    with pytest.raises(UnknownTask):
        await session.reset(options={"task": "nowhere/1"})
    with pytest.raises(EpisodeEnded):
        await session.step("x")


async def test_calls_run_in_order_and_their_rewards_add_up() -> None:
    session = EnvSession(Shop())
    await session.reset()
    observation, reward, terminated, _, info = await session.step(
        calls(("buy", {"thing": "tea"}), ("buy", {"thing": "milk", "count": 2}))
    )
    assert isinstance(observation, list)
    assert [(m.role, m.text, m.tool_call_id, m.name) for m in observation] == [
        (Role.TOOL, "1 tea", "c0", "buy"),
        (Role.TOOL, "2 milk", "c1", "buy"),
    ]
    assert (reward, terminated) == (0.75, False)  # 0.25 * 1 + 0.25 * 2
    assert info == {"tool_calls": 2, "tool_errors": 0}


async def test_calls_after_the_one_that_ends_the_episode_are_not_run() -> None:
    session = EnvSession(Shop())
    await session.reset()
    observation, reward, terminated, _, _ = await session.step(
        calls(("leave", {}), ("buy", {"thing": "tea"}))
    )
    assert (len(observation), reward, terminated) == (1, 0.0, True)


async def test_wrong_calls_are_answered_and_not_raised() -> None:
    session = EnvSession(Shop())
    await session.reset()
    broken = ToolCall(name="buy", error="the call was cut by the token limit")
    observation, _, terminated, _, info = await session.step(
        assistant(
            "",
            [
                ToolCall(name="by", arguments={"thing": "tea"}),
                ToolCall(name="buy", arguments={"thing": 3}),
                ToolCall(name="buy", arguments={"thing": "tea", "colour": "red"}),
                broken,
            ],
        )
    )
    said = [message.text for message in observation if isinstance(message, Message)]
    assert said[0] == "no tool named 'by'; there is buy, leave"
    assert said[1].startswith("invalid arguments for buy")
    assert "colour" in said[2]
    assert said[3] == "this call was not executed: the call was cut by the token limit"
    assert (terminated, info["tool_errors"]) == (False, 4)


async def test_an_env_without_tools_is_given_text_whatever_the_policy_calls() -> None:
    env = Counter()
    session = EnvSession(env)
    await session.reset()
    await session.step(assistant("42", [ToolCall(name="made_up")]))
    assert env.given == ["42"]


class Graded(TextEnv):
    """An episode that declares tools and grades the calls itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        spec = ToolSpec(name="f", description="F.", parameters={"type": "object"})
        return "call f", {"briefing": Briefing(tools=[spec])}

    def step(self, action: Any) -> Step:
        return "", float(action.tool_calls[0].name == "f"), True, False, {}


async def test_an_env_whose_briefing_declares_tools_is_given_the_calls() -> None:
    session = EnvSession(Graded())
    await session.reset()
    assert (await session.step(calls(("f", {}))))[1] == 1.0


async def test_an_action_with_an_image_arrives_as_a_message() -> None:
    env = Counter()
    session = EnvSession(env)
    await session.reset()
    picture = Message(role=Role.ASSISTANT, content=[TextPart("see"), ImagePart(data=b"png")])
    await session.step(picture)
    assert env.given == [picture]


class Broken(TextEnv):
    """Returns what it was told to."""

    def __init__(self, reset: Any = ("x", {}), step: Any = None) -> None:
        self.made = reset, step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.made[0]  # type: ignore[no-any-return]

    def step(self, action: str) -> Step:
        return self.made[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "shown",
    ["a\ud800", "\udcffb", [assistant("x"), assistant("\udc00")], [assistant("\udfff\ud800")]],
)
async def test_half_of_a_character_is_the_environments_fault_and_nobody_elses(shown: Any) -> None:
    with pytest.raises(CheckFailed, match=r"reset\(\) returned an observation that is no text"):
        await EnvSession(Broken((shown, {}))).reset()
    session = EnvSession(Broken(step=(shown, 1.0, True, False, {})))
    await session.reset()
    with pytest.raises(CheckFailed, match=r"step\(\) returned an observation that is no text"):
        await session.step("x")


@pytest.mark.parametrize("made", [None, "x", ("x",), (3, {}), (["x"], {}), ("x", None), ["x", {}]])
async def test_a_reset_that_returns_something_else_names_it(made: Any) -> None:
    with pytest.raises(CheckFailed, match=r"must return \(observation: .*, info: dict\)"):
        await EnvSession(Broken(made)).reset()


@pytest.mark.parametrize(
    "made", [None, ("x", 1.0, True, {}), ("x", 1.0, 1, False, {}), (7, 1.0, True, False, {})]
)
async def test_a_step_that_returns_something_else_names_it(made: Any) -> None:
    session = EnvSession(Broken(step=made))
    await session.reset()
    with pytest.raises(CheckFailed, match="must return \\(observation"):
        await session.step("x")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "got NoneType: None"),
        (("x", 1.0, True, {}), r"got a tuple of 4: \('x', 1.0, True, {}\)"),
        (("x", 1.0, 1, False, {}), "got terminated of type int: 1"),
        ((7, 1.0, True, False, {}), "got observation of type int: 7"),
        (("x", 1.0, True, False, None), "got info of type NoneType: None"),
    ],
)
async def test_what_a_step_returns_is_refused_by_the_part_that_does_not_fit(
    made: Any, said: str
) -> None:
    session = EnvSession(Broken(step=made))
    await session.reset()
    with pytest.raises(CheckFailed, match=f"truncated: bool, info: dict\\); {said}"):
        await session.step("x")


async def test_a_briefing_of_another_type_is_refused() -> None:
    with pytest.raises(CheckFailed, match="must be a Briefing, got dict"):
        await EnvSession(Broken(("x", {"briefing": {}}))).reset()


async def test_an_exception_in_step_ends_the_episode() -> None:
    class Raising(Counter):
        def step(self, action: str) -> Step:
            raise KeyError("bug")

    session = EnvSession(Raising())
    await session.reset()
    with pytest.raises(KeyError):
        await session.step("x")
    with pytest.raises(EpisodeEnded):
        await session.step("x")


async def test_the_envs_own_info_is_not_written_into() -> None:
    mine: dict[str, Any] = {"a": 1}
    session = EnvSession(Broken(("x", mine)))
    await session.reset()
    assert mine == {"a": 1}


def test_a_split_that_does_not_exist_is_refused_before_the_environment_is_asked() -> None:
    class Listed(Counter):
        def tasks(self, split: str) -> ListedTasks:
            return {"train": ListedTasks(split, [Task(id="train/a", split=split)])}[split]

    with pytest.raises(UnknownTask, match=r"'trian'.*'train'"):
        EnvSession(Listed()).tasks("trian")
