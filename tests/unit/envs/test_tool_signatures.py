"""Every kind of typed function as a tool: its schema, its checks, its documentation."""

import dataclasses
import functools
import json
import threading
import types
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union

import jsonschema
import msgspec
import pytest

from ludus.envs import AddedTools, EnvSession, TextEnv, Tool, build_env, make, tool
from ludus.envs.tools import ToolFault
from ludus.envs.tools.function import read_docstring
from ludus.errors import ConfigError, InvalidTool
from ludus.messages import ToolCall, assistant


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


def literal(mode: Literal["a", "b", 3]) -> Any:
    """Take it."""
    return mode


def optional(limit: int | None = None, old: Optional[str] = "x") -> Any:  # noqa: UP045 (both ways)
    """Take it."""
    return [limit, old]


def union(value: int | str | list[int], other: Union[bool, float] = 1.5) -> Any:  # noqa: UP007
    """Take it."""
    return [value, other]


def nested(table: dict[str, list[tuple[int, str]]], names: set[str] | None = None) -> Any:
    """Take it."""
    return [table, sorted(names or [])]


def shapes(point: Point, address: Address, pair: Pair, colour: Colour = Colour.RED) -> Any:
    """Take it."""
    return [point.x + point.y, address["street"], pair.right, colour.value]


def recursive(tree: Tree) -> Any:
    """Take it."""
    return sum(child.value for child in tree.children)


def bounded(
    n: Annotated[int, msgspec.Meta(ge=1, le=9)], word: Annotated[str, msgspec.Meta(max_length=3)]
) -> Any:
    """Take it."""
    return [n, word]


def defaults(items: list[int] = [1, 2], table: dict[str, int] = {"a": 1}) -> Any:  # noqa: B006
    """Take it."""
    items.append(3)
    return [items, table]


def bare(anything, second=3) -> Any:  # type: ignore[no-untyped-def]
    """Take it."""
    return [anything, second]


def by_position(a: int, /, b: int, *, c: int = 0) -> Any:
    """Take it."""
    return [a, b, c]


async def later(a: int) -> Any:
    """Take it."""
    return a


class Adder:
    def __call__(self, a: int) -> Any:
        """Take it."""
        return a + 1


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (literal, {"mode": "a"}, "a"),
        (literal, {"mode": 3}, "3"),
        (optional, {}, '[null,"x"]'),
        (optional, {"limit": 3, "old": None}, "[3,null]"),
        (union, {"value": "s"}, '["s",1.5]'),
        (union, {"value": [1], "other": True}, "[[1],true]"),
        (nested, {"table": {"a": [[1, "b"]]}, "names": ["x"]}, '[{"a":[[1,"b"]]},["x"]]'),
        (
            shapes,
            {"point": {"x": 1}, "address": {"street": "s"}, "pair": [1, "r"], "colour": "blue"},
            '[1,"s","r","blue"]',
        ),
        (recursive, {"tree": {"value": 0, "children": [{"value": 4}, {"value": 5}]}}, "9"),
        (bounded, {"n": 9, "word": "abc"}, '[9,"abc"]'),
        (defaults, {}, '[[1,2,3],{"a":1}]'),
        (bare, {"anything": "x"}, '["x",3]'),
        (by_position, {"a": 1, "b": 2}, "[1,2,0]"),
        (later, {"a": 7}, "7"),
        (functools.partial(by_position, 1), {"b": 2}, "[1,2,0]"),
        (functools.partial(later), {"a": 7}, "7"),
        (Adder(), {"a": 1}, "2"),
    ],
)
async def test_arguments_come_in_by_type(
    function: Callable[..., Any], arguments: dict[str, Any], result: str
) -> None:
    made = Tool(function)
    jsonschema.Draft202012Validator.check_schema(made.spec.parameters)
    jsonschema.validate(arguments, made.spec.parameters)  # the schema says what is taken
    json.dumps(made.spec.as_openai())
    for _ in range(2):  # defaults are not shared between calls
        answered = await made.call(arguments)
        assert (answered.content, answered.error) == (result, False)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (literal, {"mode": "c"}),
        (optional, {"limit": "3"}),
        (optional, {"limit": 3.5}),
        (union, {"value": {"a": 1}}),
        (union, {"value": ["a"]}),
        (nested, {"table": {"a": [[1]]}}),
        (shapes, {"point": {"y": 1}, "address": {"street": "s"}, "pair": [1, "r"]}),
        (shapes, {"point": {"x": 1}, "address": {}, "pair": [1, "r"]}),
        (shapes, {"point": {"x": 1}, "address": {"street": "s"}, "pair": [1]}),
        (recursive, {"tree": {"value": 0, "children": [3]}}),
        (bounded, {"n": 10, "word": "abc"}),
        (bounded, {"n": 9, "word": "abcd"}),
        (by_position, {"b": 2}),
        (by_position, {"a": 1, "b": 2, "d": 4}),
    ],
)
async def test_arguments_of_other_types_are_refused_by_schema_and_tool_alike(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    made = Tool(function)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(arguments, made.spec.parameters)
    result = await made.call(arguments)
    assert result.fault is ToolFault.INVALID
    assert result.content.startswith(f"invalid arguments for {function.__name__}: ")


def test_defaults_are_in_the_schema() -> None:
    properties = Tool(defaults).spec.parameters["properties"]
    assert properties["items"]["default"] == [1, 2]
    assert properties["table"]["default"] == {"a": 1}
    assert Tool(optional).spec.parameters.get("required", []) == []


def generator() -> Any:
    """Yield."""
    yield 1


def loose(*things: int) -> Any:
    """Take all."""


def keywords(**things: int) -> Any:
    """Take all."""


def lost(value: "Nowhere") -> Any:  # type: ignore[name-defined]  # noqa: F821 # pyright: ignore
    """Take it."""


def two_shapes(value: Point | Address) -> Any:
    """Take it."""


def odd_one(first: int, second: threading.Thread) -> Any:
    """Take both."""


def selfless() -> str:
    """Look."""
    return ""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (generator, "yields"),
        (loose, "name each argument"),
        (keywords, "name each argument"),
        (lost, "cannot be resolved"),
        (two_shapes, "cannot be validated"),
        (odd_one, "cannot be validated, because of 'second'"),
        (types.MethodType(selfless, "an object"), "a method takes self first"),
    ],
)
def test_signatures_that_cannot_be_told_are_refused_by_name(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(InvalidTool, match=f"tool '{function.__name__}'.*{said}"):
        Tool(function)


GOOGLE = """Look it up.

More of it.

Args:
    query: what to look
        for
    limit (int, optional): how many
    *rest: the rest: all of it

Returns:
    query: not this one
"""
NUMPY = """Look it up.

More of it.

Parameters
----------
query : str
    what to look
    for
limit : int, optional
    how many
rest
    the rest: all of it

Returns
-------
query
    not this one
"""
REST = """Look it up.

More of it.

:param query: what to look
    for
:param int limit: how many
:param rest: the rest: all of it
:returns: nothing
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST])
def test_docstrings_of_three_styles_say_the_same(text: str) -> None:
    assert read_docstring(text) == (
        "Look it up.\n\nMore of it.",
        {"query": "what to look for", "limit": "how many", "rest": "the rest: all of it"},
    )


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("Notes\n\non a thing", "Notes\n\non a thing"),
        ("Do it.\n\nExample:\n    f(1)", "Do it."),
        ("Do it.\n\nArgs:\n", "Do it."),
        ("Time: now", "Time: now"),
    ],
)
def test_what_is_no_section_stays_in_the_description(text: str, summary: str) -> None:
    assert read_docstring(text) == (summary, {})


# --- tools that are not the environment's own ---------------------------------------------------


class Sum(TextEnv):
    """Say the sum."""

    reset_options = {"easy": bool}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.number = self.rng.randint(1, 9)
        return f"{self.number}+1", {}

    @tool
    def hint(self) -> str:
        """Give a hint."""
        return f"more than {self.number}"

    def step(self, action: str) -> Any:
        return "", float(action == str(self.number + 1)), True, False, {}

    def gold(self) -> str:
        return str(self.number + 1)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_an_environment_is_played_with_tools_beside_its_own() -> None:
    with pytest.raises(ConfigError, match="more_turns must be 0 or more, got -1"):
        AddedTools(Sum(), [Tool(add)], more_turns=-1)
    session = EnvSession(AddedTools(Sum(), [Tool(add)]), "sum-v0")
    shown, info = await session.reset(seed=4, options={"easy": True})
    assert [one.name for one in info["briefing"].tools] == ["hint", "add"]
    number = int(str(shown).partition("+")[0])
    calls = [
        ToolCall(name="add", arguments={"a": number, "b": 1}, id="1"),
        ToolCall(name="hint", id="2"),
    ]
    told = (await session.step(assistant("", calls)))[0]
    assert [message.text for message in told if not isinstance(message, str)] == [
        str(number + 1),
        f"more than {number}",
    ]
    assert (await session.step(str(number + 1)))[1] == 1.0
    plain = await EnvSession(Sum()).reset(seed=4)
    assert plain[0] == shown  # the same task, drawn alike


async def test_calls_of_added_tools_do_not_use_up_the_turns_of_the_environment() -> None:
    session = EnvSession(AddedTools(build_env("ludus/maths-v0"), [Tool(add)], more_turns=3))
    call = assistant("", [ToolCall(name="add", arguments={"a": 1, "b": 2}, id="1")])
    await session.reset(seed=4)
    ends = [(await session.step(call))[3] for _ in range(3)]
    assert ends == [False, False, False]
    gold = session.env.gold()
    _, reward, terminated, truncated, _ = await session.step(f"\\boxed{{{gold}}}")
    assert (reward, terminated, truncated) == (1.0, True, False)
    await session.reset(seed=4)
    assert [(await session.step(call))[3] for _ in range(4)] == [False, False, False, True]


async def test_what_is_said_counts_against_the_bound_of_the_environment() -> None:
    class Talk(Sum):
        max_turns = 2

        def step(self, action: str) -> Any:
            return "Go on.", 0.0, False, False, {}

    session = EnvSession(AddedTools(Talk(), [Tool(add)]))
    await session.reset(seed=4)
    call = assistant("", [ToolCall(name="add", arguments={"a": 1, "b": 2}, id="1")])
    ends = [(await session.step(said))[3] for said in ("one", call, call, "two")]
    assert ends == [False, False, False, True]


def test_such_an_environment_is_a_gymnasium_one_too() -> None:
    env = make(AddedTools(Sum(), [Tool(add)]))
    shown, _ = env.reset(seed=1)
    number = int(str(shown).partition("+")[0])
    assert env.step(str(number + 1))[1] == 1.0
    env.close()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools have the name 'add'"):
        AddedTools(Sum(), [Tool(add), Tool(add)])
    with pytest.raises(ConfigError, match="two tools have the name 'hint'"):
        AddedTools(Sum(), [Tool(add, name="hint")])
