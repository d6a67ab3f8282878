"""Every tool format: what it writes it reads, and what must never be executed is not."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent.parsing import TOOL_FORMATS, ToolFormat, call_id, tool_format
from ludus.envs import EnvSession, TextEnv, ToolSpec
from ludus.envs.protocol import Reset, Step
from ludus.envs.tools import tool
from ludus.messages import ToolCall


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return ToolSpec(name=name, description="", parameters={"properties": properties})


SEARCH = spec("search", query="string")
WRITE = spec("write", path="string", lines="integer", more="array")
TOOLS = [SEARCH, WRITE]
FORMATS = [tool_format(name) for name in TOOL_FORMATS]
STRUCTURED = [one for one in FORMATS if one.name != "tags"]


def ids(one: ToolFormat) -> str:
    return one.name


def numbered(one: ToolFormat, calls: list[ToolCall]) -> list[ToolCall]:
    """The calls with the ids that the format gives them."""
    return [
        msgspec.structs.replace(call, id=call_id(one, call, index))
        for index, call in enumerate(calls)
    ]


@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_what_is_written_is_read(one: ToolFormat) -> None:
    call = ToolCall(name="search", arguments={"query": 'who "wrote" it?\n</x> é'}, id="call_0")
    message = one.parse(one.render([call]), tools=TOOLS)
    assert message.tool_calls == numbered(one, [call])
    assert message.text == ""


@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_calls_keep_their_order_and_have_ids_of_their_own(one: ToolFormat) -> None:
    made = [
        ToolCall(name="search", arguments={"query": q}, id=f"call_{i}") for i, q in enumerate("ab")
    ]
    assert one.parse(one.render(made), tools=TOOLS).tool_calls == numbered(one, made)


@pytest.mark.parametrize("one", FORMATS, ids=ids)
@pytest.mark.parametrize(
    "arguments",
    [{"lines": 3}, {"more": [1]}, {"path": "a", "more": []}, {"path": '{"lines": 3}'}, {}],
    ids=str,
)
def test_an_argument_that_is_not_the_first_keeps_its_name(
    one: ToolFormat, arguments: dict[str, Any]
) -> None:
    call = ToolCall(name="write", arguments=arguments, id="call_0")
    read = one.parse(one.render([call], tools=TOOLS), tools=TOOLS).tool_calls
    assert read == numbered(one, [call])


@pytest.mark.parametrize("one", FORMATS, ids=ids)
@pytest.mark.parametrize(
    "text", ["", " 42\n", "a [b] {c} <d> e(f)", "<answer>4</answer>", "{}", "[1]"]
)
def test_prose_is_kept_as_it_is(one: ToolFormat, text: str) -> None:
    message = one.parse(text, tools=TOOLS)
    assert message.text == text
    assert not message.tool_calls


@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_a_call_that_was_cut_is_never_executable(one: ToolFormat) -> None:
    whole = one.render([ToolCall(name="search", arguments={"query": "how high is it"})])
    executable = 0
    for end in range(len(whole)):
        for call in one.parse(whole[:end], complete=False, tools=TOOLS).tool_calls:
            executable += not call.error
            assert call.error or call.arguments == {"query": "how high is it"}
    assert executable <= len("<|tool_calls_section_end|>") + 1  # the call itself is whole there


@pytest.mark.parametrize("one", FORMATS, ids=ids)
@pytest.mark.parametrize(
    "arguments", [{"path": "a b", "lines": 12}, {"query": "not false"}, {}], ids=str
)
def test_the_end_of_a_turn_closes_no_argument(one: ToolFormat, arguments: dict[str, Any]) -> None:
    """Whatever prefix of a call a turn is, what runs was written whole and closed by a mark."""
    name = "search" if "query" in arguments else "write"
    whole = one.render([ToolCall(name=name, arguments=arguments)], tools=TOOLS)
    for end in range(len(whole)):
        for call in one.parse(whole[:end], tools=TOOLS).tool_calls:
            if not call.error:
                assert (call.name, call.arguments | arguments) == (name, arguments)
                given = [value for key, value in arguments.items() if key in call.arguments]
                last = str([name, *given][-1])
                after = whole[whole.rindex(last) + len(last) : end]
                assert re.search(r"[]})/]|end｜?\|?>", after), after


@pytest.mark.parametrize("one", STRUCTURED, ids=ids)
def test_half_a_call_says_that_it_was_cut(one: ToolFormat) -> None:
    whole = one.render([ToolCall(name="write", arguments={"path": "a", "lines": 3})])
    (call,) = one.parse(whole[: len(whole) * 2 // 3], complete=False, tools=TOOLS).tool_calls
    assert "cut" in call.error
    assert call.arguments == {}


@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_a_call_inside_thoughts_is_a_thought(one: ToolFormat) -> None:
    call = ToolCall(name="search", arguments={"query": "x"}, id="call_0")
    written = one.render([call])
    for text in (f"<think>{written}</think>no", f"<think>{written}", f"{written}</think>no"):
        assert not one.parse(text, tools=TOOLS).tool_calls
    after = one.parse(f"<think>{written}</think>\n{written}", tools=TOOLS)
    assert after.tool_calls == numbered(one, [call])


@pytest.mark.slow
@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_a_megabyte_is_read_in_time(
    one: ToolFormat, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    text = one.render([ToolCall(name="search", arguments={"query": "a" * 1_000_000})])
    with costs_at_most(500):
        (call,) = one.parse(text, tools=TOOLS).tool_calls
    assert call.error or len(call.arguments["query"]) == 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("one", FORMATS, ids=ids)
def test_endless_nesting_costs_time_and_nothing_else(
    one: ToolFormat, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(500):
        for mark in ("[", "{", "(", "-", '{"name":', "<function=f>", "[f(a=", "<search>"):
            message = one.parse(mark * 20_000, tools=TOOLS)
            assert all(call.error for call in message.tool_calls), mark


@given(st.text(max_size=200))
@settings(max_examples=80, deadline=None)
def test_any_text_is_read_and_can_be_sent_on(text: str) -> None:
    for one in FORMATS:
        for before in (
            "",
            "[f(",
            '{"name": ',
            "<tool_call>\n<function=f>\n<parameter=a>",
            "<search>",
        ):
            message = one.parse(before + text, tools=TOOLS)
            for call in message.tool_calls:
                msgspec.msgpack.encode(call)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON, max_size=3))
@settings(max_examples=80, deadline=None)
def test_any_arguments_come_back(arguments: dict[str, Any]) -> None:
    call = ToolCall(name="f", arguments=arguments, id="call_0")
    for one in (tool_format("llama3_json"), tool_format("llama3_pythonic"), tool_format("hermes")):
        assert one.parse(one.render([call])).tool_calls == [call]


# --- qwen3-coder ------------------------------------------------------------------------------

CODER = tool_format("qwen3_coder")


def coder(*parameters: tuple[str, str], name: str = "write") -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def test_values_have_the_types_of_the_schema() -> None:
    text = coder(("path", "17"), ("lines", "17"), ("more", '["a", 1]'))
    (call,) = CODER.parse(f"So:\n{text}\nDone.", tools=TOOLS).tool_calls
    assert call.arguments == {"path": "17", "lines": 17, "more": ["a", 1]}


def test_without_a_schema_what_is_json_is_json() -> None:
    (call,) = CODER.parse(coder(("a", "17"), ("b", "x y"), ("c", '"q"'), ("d", "null"))).tool_calls
    assert call.arguments == {"a": 17, "b": "x y", "c": '"q"', "d": None}


def test_a_value_may_hold_tags_and_newlines() -> None:
    code = "  def f():\n    return '</parameter>'\n\n<b></b>"
    (call,) = CODER.parse(coder(("path", code)), tools=TOOLS).tool_calls
    assert call.arguments == {"path": code}


def test_a_value_that_is_not_of_its_type_is_told() -> None:
    (call,) = CODER.parse(coder(("lines", "many")), tools=TOOLS).tool_calls
    assert "'lines' is not JSON" in call.error


def test_the_outer_tag_may_be_left_out() -> None:
    (call,) = CODER.parse("<function=f>\n<parameter=a>\n1\n</parameter>\n</function>").tool_calls
    assert (call.name, call.arguments) == ("f", {"a": 1})


# --- llama 3 ----------------------------------------------------------------------------------

OBJECTS, PYTHON = tool_format("llama3_json"), tool_format("llama3_pythonic")


def test_objects_after_a_tag_or_bare() -> None:
    one = '{"name": "f", "parameters": {"a": 1}}'
    for text in (one, f" {one}\n", f"<|python_tag|>{one}"):
        (call,) = OBJECTS.parse(text).tool_calls
        assert (call.name, call.arguments) == ("f", {"a": 1})
    both = OBJECTS.parse(f'{one}; {{"name": "g"}}').tool_calls
    assert [call.name for call in both] == ["f", "g"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"name": "f", "parameters": {', "not valid JSON"),
        ('{"name": "f", "parameters": 3}', "must be an object"),
        ('{"name": "f"} and so on', "text after"),
        ("<|python_tag|>print(1)", "no JSON object"),
        ('{"name": 3}', "an object with"),
    ],
)
def test_objects_that_are_no_calls_say_why(text: str, says: str) -> None:
    (call,) = OBJECTS.parse(text).tool_calls
    assert says in call.error


@pytest.mark.parametrize("text", ['{"answer": 4}', 'The object {"name": "f"} is a call.'])
def test_objects_that_are_meant_otherwise_are_text(text: str) -> None:
    assert OBJECTS.parse(text).text == text


def test_python_literals_are_read() -> None:
    text = "[f(a=-1, b='x', c=[1.5, None], d={'k': True}, e=(1, 2), g=true), a.b()]"
    first, second = PYTHON.parse(text).tool_calls
    assert first.arguments == {
        "a": -1,
        "b": "x",
        "c": [1.5, None],
        "d": {"k": True},
        "e": [1, 2],
        "g": True,
    }
    assert second.name == "a.b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[f(1)]", "name each argument"),
        ("[f(**{'a': 1})]", "name each argument"),
        ("[f(a=__import__('os').system('false'))]", "must be a literal"),
        ("[f(a=g())]", "must be a literal"),
        ("[f(a=1 + 1)]", "must be a literal"),
        ("[f(a=9**9)]", "must be a literal"),
        ("[f(a=b'x')]", "must be a literal"),
        ("[f(a=1e999)]", "must be a literal"),
        ("[f(a={1: 2})]", "must be strings"),
        ("[f(a=1), 2]", "not a call"),
        ("[f(a=1]", "not a Python list"),
        ("[f(a=1) for x in y]", "not a Python list"),
        ("[f(a='\\ud800')]", "surrogate"),
    ],
)
def test_python_that_is_no_list_of_literal_calls_is_refused(text: str, says: str) -> None:
    broken = [call.error for call in PYTHON.parse(text).tool_calls if call.error]
    assert len(broken) == 1
    assert says in broken[0]


# --- tags -------------------------------------------------------------------------------------

TAGS = tool_format("tags")


def test_a_tag_is_a_call_of_the_tool_of_its_name() -> None:
    message = TAGS.parse("I look.\n<search> Ada </search> <b>x</b>", tools=TOOLS)
    assert message.tool_calls == [ToolCall(name="search", arguments={"query": "Ada"}, id="call_0")]
    assert message.text == "I look.\n <b>x</b>"


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "a</search>b"},
        {"query": " a "},
        {"query": "a</search>b", "limit": 2},
        {"limit": 2},
        {"query": ""},
    ],
)
def test_a_tool_of_several_parameters_is_given_any_text(arguments: dict[str, Any]) -> None:
    properties = {"query": {"type": "string"}, "limit": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    tools = [ToolSpec(name="search", description="", parameters=schema)]
    call = ToolCall(name="search", arguments=arguments, id="call_0")
    assert TAGS.parse(TAGS.render([call], tools=tools), tools=tools).tool_calls == [call]


def test_nothing_is_called_after_the_answer_nor_without_tools() -> None:
    assert not TAGS.parse("<answer>4</answer><search>x</search>", tools=TOOLS).tool_calls
    assert not TAGS.parse("<search>x</search>").tool_calls


def test_a_tag_that_is_not_closed_is_not_executed() -> None:
    (call,) = TAGS.parse("<search>Ada", tools=TOOLS).tool_calls
    assert "not closed" in call.error
    (call,) = TAGS.parse("<search>Ada", complete=False, tools=TOOLS).tool_calls
    assert "cut" in call.error


# --- through an environment -------------------------------------------------------------------


class Library(TextEnv):
    """One tool, and a count of how often it ran."""

    ran = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "begin", {}

    @tool
    def search(self, query: str) -> str:
        """Look something up.

        Args:
            query: what to look for
        """
        self.ran += 1
        return f"found {query}"

    def step(self, action: str) -> Step:
        return "no call", 0.0, False, False, {}


@pytest.mark.parametrize("one", FORMATS, ids=ids)
async def test_good_calls_run_and_broken_ones_come_back_as_observations(one: ToolFormat) -> None:
    env = Library()
    session = EnvSession(env)
    await session.reset(seed=0)
    specs = [known.spec for known in env.tools.values()]
    whole = one.render([ToolCall(name="search", arguments={"query": "Ada"})])
    good = await session.step(one.parse(whole, tools=specs))
    assert [message.text for message in good[0] if not isinstance(message, str)] == ["found Ada"]
    cut = one.parse(whole[: len(whole) - 4], complete=False, tools=specs)
    if cut.tool_calls and cut.tool_calls[0].error:
        told = (await session.step(cut))[0]
        assert not isinstance(told, str)
        assert "not executed" in told[0].text
        assert env.ran == 1
