import asyncio
from typing import Any, Literal

import msgspec
import pytest

from ludus.envs import TextEnv, Tool, ToolResult, tool
from ludus.envs.tools import tools_of
from ludus.errors import ToolError


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

    assert await Tool(refuse).call({}) == ToolResult(content="refuse: not today", error=True)


async def test_a_bug_in_a_tool_is_not_the_policys_fault() -> None:
    def broken() -> str:
        """Break."""
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await Tool(broken).call({})


async def test_a_late_tool_is_cut_off() -> None:
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return ""

    result = await Tool(slow, timeout_s=0.01).call({})
    assert (result.error, result.content) == (True, "slow: no answer within 0.01 s")


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
