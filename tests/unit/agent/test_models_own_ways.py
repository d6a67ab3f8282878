"""Calls as models write them where they stray from their format, one way to stray a test."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent.parsing import HermesFormat, ToolFormat, tool_format
from ludus.agent.parsing.arguments import (
    MAX_PYTHON_CHARS,
    UnreadableLiteral,
    read_literal,
    read_value,
)
from ludus.envs import ToolSpec
from ludus.messages import ToolCall

HERMES, CODER, TAGS = HermesFormat(), tool_format("qwen3_coder"), tool_format("tags")
OBJECTS, PYTHON = tool_format("llama3_json"), tool_format("llama3_pythonic")


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return ToolSpec(name=name, description="", parameters=parameters)


TOOLS = [
    spec("search", query="string"),
    spec("edit", path="string", line="integer", options="object", marks="array", force="boolean"),
    spec("now"),
    spec("get-weather", city="string"),
    spec("python", code="string"),
]
SEARCH = ("search", {"query": "x"})


def read(one: ToolFormat, text: str, *, complete: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """The calls that would be run; what could not be read stands as its reason."""
    calls = one.parse(text, complete=complete, tools=TOOLS).tool_calls
    return [(call.error or call.name, call.arguments) for call in calls]


def reason(one: ToolFormat, text: str, *, complete: bool = True) -> str:
    (call,) = one.parse(text, complete=complete, tools=TOOLS).tool_calls
    assert call.error
    assert call.arguments == {}
    return call.error


# --- hermes ------------------------------------------------------------------------------------


def test_arguments_beside_the_name_are_not_dropped_in_silence() -> None:
    said = reason(HERMES, '<tool_call>{"name": "search", "query": "x"}</tool_call>')
    assert said == "the arguments belong into an object under \"arguments\"; found 'query'"


def test_what_templates_and_servers_put_beside_the_name_is_no_argument() -> None:
    text = '<tool_call>{"type": "function", "id": "c1", "index": 0, "name": "now"}</tool_call>'
    assert read(HERMES, text) == [("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n<think>hm</think>{"name": "now"}\n</tool_call>',
        '<tool_call>{"name": "search", "arguments": <think>hm</think>{"query": "x"}}</tool_call>',
    ],
)
def test_thoughts_inside_a_call_make_it_unreadable_and_that_is_told(text: str) -> None:
    assert "not valid JSON" in reason(HERMES, text)


# --- qwen3-coder -------------------------------------------------------------------------------


def coder(body: str) -> str:
    return f"<tool_call>\n<function=edit>\n{body}\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("{'a': True, 'b': None}", "options", {"a": True, "b": None}),
        ('{"a": True,}', "options", {"a": True}),
        ("['a', 'it\\'s']", "marks", ["a", "it's"]),
        ("('a', 1)", "marks", ["a", 1]),
        ('"[1, 2]"', "marks", [1, 2]),
        ('"{\\"a\\": 1}"', "options", {"a": 1}),
        ("TRUE", "force", True),
        ("false", "force", False),
        ("007", "line", 7),
        ("+3", "line", 3),
        ('"3"', "line", 3),
        ("None", "options", None),
    ],
)
def test_a_value_that_is_no_string_may_be_written_as_python_writes_it(
    written: str, key: str, value: Any
) -> None:
    (call,) = read(CODER, coder(f"<parameter={key}>\n{written}\n</parameter>"))
    assert call == ("edit", {key: value})
    assert type(call[1][key]) is type(value)


@pytest.mark.parametrize(
    "written", ["", "many", "1_000", "[x]", "open('f')", "{1: 2}", "[f() for f in g]", "2**99"]
)
def test_a_value_that_is_neither_json_nor_a_literal_is_told(written: str) -> None:
    said = reason(CODER, coder(f"<parameter=marks>\n{written}\n</parameter>"))
    assert said.startswith("the parameter 'marks' is not JSON")


@pytest.mark.parametrize("word", ["none", "NULL", "TRUE", "{'a': 1}", ".5"])
def test_where_a_string_may_stand_a_word_is_a_string(word: str) -> None:
    assert read_value(word, {"string", "null", "boolean", "object", "number"}) == word


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n",
        "<function=search>\n<parameter=query>\nx\n</parameter>\n",
        '<tool_call>\n<function="search">\n<parameter="query">\nx\n</parameter>\n</function>',
        "<tool_call>\n<function='search'>\n<parameter='query'>x</parameter></function></tool_call>",
    ],
)
def test_a_function_ends_with_its_call_and_names_may_be_quoted(text: str) -> None:
    assert read(CODER, text) == [SEARCH]


@pytest.mark.parametrize("end", ["</parameter></tool_call>", "</parameter>\n</tool_call>; 1"])
def test_the_end_of_a_call_inside_a_value_is_part_of_it(end: str) -> None:
    code = f's = "{end}"\nprint(s)'
    text = CODER.render([ToolCall(name="python", arguments={"code": code})])
    assert read(CODER, text) == [("python", {"code": code})]


def test_functions_that_end_with_their_calls_may_follow_each_other() -> None:
    one = "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</tool_call>\n"
    assert read(CODER, one * 3) == [SEARCH] * 3
    assert [name for name, _ in read(CODER, one * 3, complete=False)] == ["search"] * 3


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>',
        '<tool_call>\n<function name="search">\n</function>\n</tool_call>',
        "<tool_call>search</tool_call>",
        "<tool_call>",
        "<function=search\nwith spaces>",
    ],
)
def test_a_call_in_another_way_is_no_silent_prose(text: str) -> None:
    assert reason(CODER, text).startswith("a call is <function=name>")


def test_a_call_after_one_in_another_way_is_made() -> None:
    text = f"<tool_call>search</tool_call> <tool_call> {CODER.render([ToolCall(name='now')])}"
    first, second, third = read(CODER, text)
    assert first[0].startswith("a call is")
    assert second[0].startswith("a call is")
    assert third == ("now", {})


@pytest.mark.parametrize("end", range(len("<tool_call>"), len("<tool_call>\n<function=search>")))
def test_the_beginning_of_a_call_says_that_it_was_cut(end: int) -> None:
    text = "I look. <tool_call>\n<function=search>"[: len("I look. ") + end]
    assert reason(CODER, text, complete=False) == "the call was cut by the token limit"
    assert CODER.parse(text, complete=False, tools=TOOLS).text == "I look."


def test_a_call_that_may_go_on_is_not_ended_by_the_end_of_the_text() -> None:
    text = "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n"
    assert "cut" in reason(CODER, text, complete=False)


# --- llama 3, JSON -----------------------------------------------------------------------------

CALL = '{"name": "search", "parameters": {"query": "x"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```<|eot_id|>",
        f"<think>so</think>\n```json\n{CALL}\n```",
        '<function=search>{"query": "x"}</function>',
        '<function=search>\n{"query": "x"}\n</function><|eom_id|>',
        '{"type": "function", "name": "search", "parameters": {"query": "x"}}',
    ],
)
def test_a_fence_and_the_tag_of_llama_3_1_are_around_the_call(text: str) -> None:
    assert read(OBJECTS, text) == [SEARCH]


def test_each_call_may_have_a_tag_of_its_own() -> None:
    assert read(OBJECTS, f'<|python_tag|>{CALL}<|python_tag|>{{"name": "now"}}') == [
        SEARCH,
        ("now", {}),
    ]
    named = '<function=search>{"query": "x"}</function><function=now>{}</function>'
    assert read(OBJECTS, named) == [SEARCH, ("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada Lovelace"}',
        '{"name": "Ada", "age": 36}',
        '[{"name": "Ada"}, {"name": "Bob"}]',
        '{"function": "sine"}',
        '```json\n{"answer": 4}\n```',
        "```python\nprint(1)\n```",
    ],
)
def test_an_object_that_is_an_answer_is_no_call(text: str) -> None:
    message = OBJECTS.parse(text, tools=TOOLS)
    assert (message.text, message.tool_calls) == (text, [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"function": "search", "parameters": {"query": "x"}}', "an object with"),
        ('{"function_name": "search", "arguments": {}}', "an object with"),
        ('{"name": "search", "query": "x"}', "belong into an object"),
        ("{'name': 'search', 'parameters': {'query': 'x'}}", "not valid JSON"),
        ('{"type": "function", "name": "search", "parameters": {"query": "x}', "not valid JSON"),
        ('{"type": "function", "function": {"name": "search"', "not valid JSON"),
        ('<function=search>{"query": "x"}', "is not closed"),
        ("<function=search>query: x</function>", "not valid JSON"),
        (f"```json\n{CALL}\n```\nThis looks it up.", "text after"),
    ],
)
def test_what_was_meant_as_a_call_and_cannot_be_read_is_told(text: str, says: str) -> None:
    assert says in reason(OBJECTS, text)
    assert "cut" in reason(OBJECTS, text, complete=False)


# --- llama 3, pythonic -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("[get-weather(city='Ulm')]", ("get-weather", {"city": "Ulm"})),
        ("[now(), get-weather(city='a-b (c)')]", ("get-weather", {"city": "a-b (c)"})),
        ("[trip(from='Ulm', class='2', to='x, from = y')]",
         ("trip", {"from": "Ulm", "class": "2", "to": "x, from = y"})),
        ("<|python_start|>[search(query='x')]<|python_end|><|eot_id|>", SEARCH),
        ("```python\n[search(query='x')]\n```", SEARCH),
        ("[import.module(x='import = 3')]", ("import.module", {"x": "import = 3"})),
    ],
)  # fmt: skip
def test_names_python_would_not_take_are_read(text: str, call: tuple[str, Any]) -> None:
    assert read(PYTHON, text)[-1] == call


def test_an_argument_given_twice_is_told() -> None:
    assert read(PYTHON, "[edit(line=1, line=2), now()]") == [
        ("line is given twice", {}),
        ("now", {}),
    ]


def test_code_in_a_fence_is_no_call() -> None:
    text = "```python\n[f(x) for x in y]\n```"
    assert PYTHON.parse(text, tools=TOOLS).text == text


NAMES = st.sampled_from(["from", "class", "a", "get-weather", "x.y-z", "None_", "lambda", "name_0"])
TEXTS = st.text("ab-(=,' \"\\\n[from", max_size=14)


@given(
    st.lists(st.tuples(NAMES, st.dictionaries(NAMES, TEXTS, max_size=3)), min_size=1, max_size=3)
)
@settings(max_examples=150, deadline=None)
def test_whatever_the_names_what_is_rendered_is_read(
    drawn: list[tuple[str, dict[str, str]]],
) -> None:
    calls = [
        ToolCall(name=name, id=f"call_{index}", arguments={
            key: value for key, value in given.items() if key.isidentifier()
        })
        for index, (name, given) in enumerate(drawn)
    ]  # fmt: skip
    assert PYTHON.parse(PYTHON.render(calls)).tool_calls == calls


@pytest.mark.parametrize("unit", ['"\\', "'\\", "a-", "(from ", "[a  ", "'''"])
def test_names_are_found_in_time_whatever_the_quotes(
    unit: str, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(200):
        read(PYTHON, f"[f({unit * (MAX_PYTHON_CHARS // len(unit) - 4)}")


# --- literals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "f'{x}'", "[1, *x]", "1 + 1", "{**a}", "b'x'", "1j", "9" * 30, "[" * 300,
     "x" * (MAX_PYTHON_CHARS + 1), "...", "", "1e999"],
)  # fmt: skip
def test_what_is_more_than_a_literal_is_refused(text: str) -> None:
    with pytest.raises(UnreadableLiteral):
        read_literal(text)
