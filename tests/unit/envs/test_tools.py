import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import pytest

import ludus
from ludus.agent import ScriptedPolicy, Stop, play
from ludus.envs import EnvSession, TextEnv, Tool, ToolResult, tool
from ludus.envs.tools import ToolFault, tools_of
from ludus.envs.tools.running import MAX_GIVEN_UP
from ludus.errors import RewardUnavailable, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict


def crash() -> str:
    """Crash."""
    raise KeyError("bug")


def calling(name: str) -> ScriptedPolicy:
    """Calls the tool once, then ends the episode."""

    def script(messages: Sequence[Message]) -> Message:
        done = messages[-1].role == "tool"
        return assistant("", [] if done else [ToolCall(name=name, id="c")])

    return ScriptedPolicy(script)


class Point(msgspec.Struct):
    x: int
    y: int = 0


def search(query: str, limit: int = 5, order: Literal["new", "old"] = "new") -> str:
    """Look things up.

    More about it.

    Args:
        query: what to look for,
            over two lines
        limit (int): how many
    """
    return f"{query} {limit} {order}"


def test_the_signature_gives_the_schema_and_the_docstring_the_descriptions() -> None:
    spec = Tool(search).spec
    assert spec.name == "search"
    assert spec.description == "Look things up.\n\nMore about it."
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for, over two lines"},
            "limit": {"type": "integer", "description": "how many", "default": 5},
            "order": {"enum": ["new", "old"], "default": "new"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


async def test_defaults_are_filled_in() -> None:
    assert await Tool(search).call({"query": "fox"}) == ToolResult(content="fox 5 new")


async def test_a_value_that_is_no_choice_is_told_the_choices() -> None:
    result = await Tool(search).call({"query": "fox", "order": "oldest"})
    assert result.content.endswith("it is one of 'new', 'old'")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query"),
        ({"query": 3}, "str"),
        ({"query": "x", "limit": "many"}, "int"),
        ({"query": "x", "limit": True}, "int"),
        ({"query": "x", "order": "best"}, "best"),
        ({"query": "x", "colour": "red"}, "colour"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_policy(
    arguments: dict[str, Any], said: str
) -> None:
    result = await Tool(search).call(arguments)
    assert result.error
    assert result.content.startswith("invalid arguments for search: ")
    assert said in result.content


async def test_a_tool_may_refuse_and_the_policy_is_told_why() -> None:
    def refuse() -> str:
        """Refuse."""
        raise ToolError("not today")

    said = ToolResult.failed(ToolFault.REFUSED, "refuse: not today")
    assert await Tool(refuse).call({}) == said


async def test_a_result_that_cannot_be_told_names_the_tool_and_the_value() -> None:
    def secret() -> Any:
        """Return a value that is not text."""
        return threading.Lock()

    said = (await Tool(secret).call({})).content
    wanted = "text, an image, what is JSON, or a ToolResult"
    assert f"tool 'secret' must return {wanted}, got lock: <" in said


class Buggy(TextEnv):
    """Its tools crash: one by mistake, one as part of the task."""

    def reset(self, **_: Any) -> Any:
        return "begin", {}

    def step(self, action: str) -> Any:
        return "", 1.0, True, False, {}

    @tool
    def broken(self) -> str:
        """Break."""
        raise KeyError("bug")

    @tool(on_crash="tell")
    def brittle(self) -> str:
        """Break too."""
        raise KeyError("bug")


async def test_a_bug_in_a_tool_of_an_environment_is_not_the_policys_fault() -> None:
    made = (await play(EnvSession(Buggy()), calling("broken"))).trajectories[0]
    assert (made.stop, made.verdict.status) == (Stop.ENV_ERROR, "error")
    assert made.exclude_from_loss
    assert made.exclude_from_baseline


@pytest.mark.parametrize("make", [lambda: Buggy().tools["brittle"], lambda: Tool(crash)])
async def test_a_crash_of_other_tools_is_an_observation(
    make: Callable[[], Tool], caplog: pytest.LogCaptureFixture
) -> None:
    result = await make().call({})
    assert (result.error, result.fault) == (True, ToolFault.CRASHED)
    assert result.content.endswith(" failed: KeyError: 'bug'")
    assert "crashed" in caplog.text  # and somebody is told


async def test_what_ludus_could_not_do_is_passed_on() -> None:
    def lost() -> str:
        """Lose a server."""
        raise RewardUnavailable(Verdict.unavailable("away"))

    with pytest.raises(RewardUnavailable):
        await Tool(lost).call({})


async def test_a_late_tool_is_cut_off() -> None:
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return ""

    result = await Tool(slow, timeout_s=0.01).call({})
    assert result == ToolResult.failed(ToolFault.TIMEOUT, "slow: no answer within 0.01 s")


async def test_a_plain_tool_that_hangs_is_given_up_and_refuses_until_it_is_done() -> None:
    held = threading.Event()

    def hang() -> str:
        """Hang."""
        held.wait(600)
        return "at last"

    hanging = Tool(hang, timeout_s=0.05)
    for _ in range(MAX_GIVEN_UP):
        assert (await hanging.call({})).fault is ToolFault.TIMEOUT
    again = await hanging.call({})
    assert (again.fault, "still busy" in again.content) == (ToolFault.REFUSED, True)
    held.set()
    while (await hanging.call({})).fault is ToolFault.REFUSED:
        await asyncio.sleep(0.01)
    assert (await hanging.call({})).content == "at last"


async def test_a_plain_method_with_a_timeout_does_not_hold_the_environment() -> None:
    class Hanging(Buggy):
        @tool(timeout_s=0.05)
        def hang(self) -> str:
            """Hang."""
            time.sleep(0.5)
            return ""

    made = (await play(EnvSession(Hanging()), calling("hang"))).trajectories[0]
    assert made.stop is Stop.TERMINATED
    assert made.turns[1].observation[0].text == "hang: no answer within 0.05 s"
    assert made.metrics["tool_timeout"] == 1.0
    assert ludus.make(Hanging()).reset(seed=0)[0] == "begin"  # on the background loop


async def test_a_timeout_inside_a_tool_is_its_own_failure() -> None:
    async def impatient() -> str:
        """Raise one."""
        raise TimeoutError("inner")

    assert (await Tool(impatient).call({})).content == "impatient failed: TimeoutError: inner"


async def test_ten_megabytes_come_back_from_both_ends() -> None:
    def flood() -> str:
        """Say much."""
        return "a" * 10_000_000 + "end"

    content = (await Tool(flood, max_chars=100).call({})).content
    # 50 characters of each end; 10,000,003 - 100 between them
    assert content == "a" * 50 + "\n[... 9,999,903 characters left out ...]\n" + "a" * 47 + "end"
    assert len((await Tool(flood).call({})).content) < 66_000


async def test_a_megabyte_of_arguments_is_refused_unread() -> None:
    result = await Tool(search).call({"query": "x" * 1_000_000})
    # 1,000,000 and {"query":""} are 1,000,012 bytes
    assert result.fault is ToolFault.INVALID
    assert "they have 1,000,012 bytes; at most 262,144 are taken" in result.content


async def test_arguments_that_are_no_json_are_the_policys_fault() -> None:
    nested: Any = []
    for _ in range(20_000):
        nested = [nested]
    for value in ("\ud800", 10**5000, math.inf, nested):
        result = await Tool(search).call({"query": value})
        assert result.fault is ToolFault.INVALID
        assert result.content.startswith("invalid arguments for search: ")


async def test_what_cannot_be_sent_is_replaced_in_a_result() -> None:
    def odd() -> str:
        """Say half a character."""
        return "a\ud800b"

    assert (await Tool(odd).call({})).content == "a?b"


async def test_a_result_that_cannot_be_sent_is_a_crash() -> None:
    def odd() -> object:
        """Return what JSON has not."""
        return object()

    assert (await Tool(odd).call({})).fault is ToolFault.CRASHED


async def test_structs_come_in_and_other_values_go_out_as_json() -> None:
    def move(point: Point) -> dict[str, int]:
        """Move."""
        return {"x": point.x + 1}

    assert (await Tool(move).call({"point": {"x": 2}})).content == '{"x":3}'


def test_arguments_must_be_named() -> None:
    def loose(*things: str) -> str:
        """Take all."""
        return ""

    with pytest.raises(TypeError, match="name each argument"):
        Tool(loose)


def test_tools_are_those_of_the_class_and_its_bases_in_order() -> None:
    class Base:
        @tool
        def one(self) -> str:
            """One."""
            return "1"

        @tool
        def two(self) -> str:
            """Two."""
            return "2"

    class Derived(Base):
        @tool
        def three(self) -> str:
            """Three."""
            return "3"

        def one(self) -> str:
            """Another one."""
            return "one"

    assert list(tools_of(Derived())) == ["one", "two", "three"]


def test_two_objects_do_not_share_tools() -> None:
    class Env(TextEnv):
        def reset(self, **_: Any) -> Any:
            return "", {}

        def step(self, action: str) -> Any:
            return "", 0.0, True, False, {}

        @tool
        def me(self) -> str:
            """Me."""
            return str(id(self))

    left, right = Env(), Env()
    assert left.tools["me"].function() == str(id(left))
    assert right.tools["me"].function() == str(id(right))


def test_the_openai_form() -> None:
    assert Tool(search).spec.as_openai()["function"]["name"] == "search"
