"""Calls of one turn that run beside each other, shown by how many run at once."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ludus.envs import AddedTools, EnvSession, TextEnv, Tool, ToolResult, tool
from ludus.envs.protocol import Reset, Step
from ludus.errors import RewardUnavailable, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict


class Crowd:
    """Lets calls wait for each other: each goes on once `size` of them are there at once."""

    def __init__(self, size: int) -> None:
        self.size, self.inside, self.most = size, 0, 0
        self.full = asyncio.Event()

    async def join(self) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside >= self.size:
            self.full.set()
        await asyncio.wait_for(self.full.wait(), 60)
        self.inside -= 1
        return self.most


class Rooms(TextEnv):
    """An environment whose tools meet in a crowd."""

    max_turns = 8

    def __init__(self, crowd: Crowd, at_once: int = 8) -> None:
        self.crowd = crowd
        self.max_parallel_calls = at_once
        self.log: list[str] = []
        self.meeting = threading.Barrier(3, timeout=20)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "begin", {}

    def step(self, action: str) -> Step:
        return "end", 0.0, True, False, {}

    @tool
    async def meet(self, name: str) -> ToolResult:
        """Meet the others."""
        await self.crowd.join()
        self.log.append(name)
        return ToolResult(content=name, reward=1.0)

    @tool
    async def last_first(self, place: int) -> str:
        """Answer later the earlier the call."""
        for _ in range(50 - 10 * place):
            await asyncio.sleep(0)
        self.log.append(str(place))
        return str(place)

    @tool(concurrent=False)
    async def write(self, name: str) -> str:
        """Write in order."""
        before = len(self.log)
        await asyncio.sleep(0)
        assert len(self.log) == before, "somebody else ran"
        self.log.append(name)
        return name

    @tool(concurrent=True)
    def think(self, name: str) -> str:
        """Meet the others on a thread."""
        self.meeting.wait()
        return name

    @tool
    def plain(self, name: str) -> str:
        """Run on the thread of the environment."""
        return f"{name} {threading.get_ident()}"

    @tool
    async def refuse(self, name: str) -> str:
        """Refuse."""
        raise ToolError(f"not {name}")

    @tool(timeout_s=0.05)
    async def hang(self) -> str:
        """Hang."""
        await asyncio.sleep(60)
        return ""

    @tool
    async def leave(self) -> ToolResult:
        """End the episode."""
        self.log.append("left")
        return ToolResult(content="bye", reward=2.0, terminated=True)

    @tool
    async def lose(self) -> str:
        """Lose a server."""
        raise RewardUnavailable(Verdict.unavailable("away"))


def turn(*calls: tuple[str, dict[str, Any]]) -> Message:
    made = [ToolCall(name=name, arguments=given, id=f"c{i}") for i, (name, given) in
            enumerate(calls)]  # fmt: skip
    return assistant("", made)


async def played(env: TextEnv, message: Message) -> tuple[list[tuple[str, str]], float, bool]:
    session = EnvSession(env)
    await session.reset(seed=0)
    told, reward, terminated, _, _ = await session.step(message)
    assert isinstance(told, list)
    return [(one.tool_call_id, one.text) for one in told], reward, terminated


def meetings(names: Sequence[str]) -> Message:
    return turn(*(("meet", {"name": name}) for name in names))


async def test_four_async_calls_run_at_once_and_answer_in_their_order() -> None:
    env = Rooms(Crowd(4))
    told, reward, _ = await played(env, meetings("abcd"))
    assert told == [("c0", "a"), ("c1", "b"), ("c2", "c"), ("c3", "d")]
    assert (env.crowd.most, reward) == (4, 4.0)


async def test_results_keep_the_order_of_the_calls_when_they_finish_in_another() -> None:
    env = Rooms(Crowd(1))
    told, _, _ = await played(env, turn(*(("last_first", {"place": at}) for at in range(4))))
    assert [text for _, text in told] == ["0", "1", "2", "3"]
    assert env.log == ["3", "2", "1", "0"]


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_no_more_run_at_once_than_the_environment_says(at_once: int) -> None:
    env = Rooms(Crowd(at_once), at_once)
    told, _, _ = await played(env, meetings("abcdef"))
    assert env.crowd.most == at_once
    assert [text for _, text in told] == list("abcdef")


async def test_calls_that_are_not_concurrent_wait_for_all_others() -> None:
    env = Rooms(Crowd(2))
    message = turn(
        ("meet", {"name": "a"}), ("meet", {"name": "b"}), ("write", {"name": "c"}),
        ("write", {"name": "d"}), ("meet", {"name": "e"}), ("meet", {"name": "f"}),
    )  # fmt: skip
    await played(env, message)
    assert env.log[2:4] == ["c", "d"]
    assert sorted(env.log[:2]) == ["a", "b"]


async def test_plain_methods_run_at_once_only_where_they_say_so() -> None:
    env = Rooms(Crowd(1))
    told, _, _ = await played(env, turn(*(("think", {"name": name}) for name in "abc")))
    assert [text for _, text in told] == ["a", "b", "c"]  # all three met at the barrier
    told, _, _ = await played(env, turn(*(("plain", {"name": "x"}) for _ in range(3))))
    assert {text for _, text in told} == {f"x {threading.get_ident()}"}


async def test_plain_functions_that_were_added_say_so_too() -> None:
    meeting = threading.Barrier(2, timeout=20)

    def wait(name: str) -> str:
        """Wait for the other."""
        meeting.wait()
        return name

    env = AddedTools(Rooms(Crowd(1)), [Tool(wait, concurrent=True)])
    told, _, _ = await played(env, turn(("wait", {"name": "a"}), ("wait", {"name": "b"})))
    assert [text for _, text in told] == ["a", "b"]
    assert not Tool(wait).concurrent


async def test_one_that_fails_loses_no_other() -> None:
    env = Rooms(Crowd(2))
    message = turn(
        ("meet", {"name": "a"}), ("refuse", {"name": "b"}), ("hang", {}), ("nobody", {}),
        ("meet", {"wrong": 1}), ("meet", {"name": "c"}),
    )  # fmt: skip
    told, reward, _ = await played(env, message)
    assert told[0][1] == "a"
    assert told[1][1] == "refuse: not b"
    assert told[2][1] == "hang: no answer within 0.05 s"
    assert told[3][1].startswith("no tool named 'nobody'")
    assert told[4][1].startswith("invalid arguments for meet")
    assert (told[5][1], reward) == ("c", 2.0)


async def test_nothing_is_told_after_the_end_of_the_episode() -> None:
    env = Rooms(Crowd(1), at_once=2)
    message = turn(("meet", {"name": "a"}), ("leave", {}), ("meet", {"name": "b"}))
    told, reward, terminated = await played(env, message)
    assert [text for _, text in told] == ["a", "bye"]
    assert (reward, terminated) == (3.0, True)


async def test_calls_that_have_not_begun_when_the_episode_ends_are_not_run() -> None:
    env = Rooms(Crowd(1), at_once=2)
    await played(env, turn(("leave", {}), ("meet", {"name": "a"}), *[("meet", {"name": "b"})] * 4))
    assert "b" not in env.log


async def test_what_ludus_could_not_do_ends_the_episode_after_the_others_are_done() -> None:
    env = Rooms(Crowd(2))
    with pytest.raises(RewardUnavailable):
        await played(env, turn(("meet", {"name": "a"}), ("lose", {}), ("meet", {"name": "b"})))
    assert sorted(env.log) == ["a", "b"]


async def test_a_turn_that_is_given_up_leaves_no_call_running() -> None:
    env = Rooms(Crowd(99))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await played(env, meetings("abc"))
    assert env.crowd.most == 3
    assert env.log == []
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
