import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent.parsing import HermesFormat, tool_format
from ludus.errors import UnknownName
from ludus.messages import Message, ToolCall

hermes = HermesFormat()


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


ADD = '{"name": "add", "arguments": {"a": 1, "b": [2.5, null]}}'


def test_plain_text_is_kept_as_it_is() -> None:
    assert hermes.parse(" 42\n") == Message(role="assistant", content=" 42\n")  # type: ignore[arg-type]


def test_a_call_and_the_text_around_it() -> None:
    message = hermes.parse(f"Let me see.\n{call(ADD)}\nSo.")
    assert message.text == "Let me see.\n\nSo."
    assert message.tool_calls == [
        ToolCall(name="add", arguments={"a": 1, "b": [2.5, None]}, id="call_0")
    ]


def test_several_calls_are_kept_in_order_with_ids_of_their_own() -> None:
    message = hermes.parse(call('{"name": "a"}') + call('{"name": "b"}'))
    assert [(c.name, c.id) for c in message.tool_calls] == [("a", "call_0"), ("b", "call_1")]


def test_a_closing_tag_inside_an_argument_does_not_end_the_call() -> None:
    body = json.dumps({"name": "write", "arguments": {"text": "a </tool_call> b"}})
    message = hermes.parse(call(body))
    assert message.tool_calls[0].arguments == {"text": "a </tool_call> b"}
    assert message.text == ""


def test_raw_newlines_inside_strings_are_read() -> None:
    made = hermes.parse(call('{"name": "f", "arguments": {"code": "a\n\tb"}}')).tool_calls[0]
    assert made.arguments == {"code": "a\n\tb"}


def test_arguments_encoded_twice_and_under_their_other_name_are_read() -> None:
    twice = hermes.parse(call('{"name": "f", "arguments": "{\\"a\\": 1}"}')).tool_calls[0]
    other = hermes.parse(call('{"name": "f", "parameters": {"a": 1}}')).tool_calls[0]
    assert twice.arguments == other.arguments == {"a": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("add(1, 2)", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"name": "f"', "not valid JSON"),
        ("[1]", 'object with "name"'),
        ('{"arguments": {}}', 'object with "name"'),
        ('{"name": 3}', 'object with "name"'),
        ('{"name": "f", "arguments": [1]}', "must be an object"),
        ('{"name": "f", "arguments": "x"}', "not JSON"),
        ('{"name": "f"} trailing', "text after"),
        ('{"name": "f", "arguments": {"x": NaN}}', "NaN is not JSON"),
        ('{"name": "f", "arguments": {"x": 1e999}}', "too large"),
        ('{"name": "f", "arguments": {"x": %s}}' % ("9" * 5000), "64 bits"),
        ('{"name": "f", "arguments": {"x": 18446744073709551616}}', "64 bits"),
        ('{"name": "f", "arguments": {"x": "\\ud800"}}', "surrogate"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_call_that_cannot_be_read_says_why_and_has_no_name_to_run(body: str, said: str) -> None:
    message = hermes.parse(call(body))
    assert len(message.tool_calls) == 1
    assert said in message.tool_calls[0].error
    assert msgspec.json.encode(message)  # it travels


def test_a_call_that_was_cut_is_never_executed() -> None:
    cut = hermes.parse('so <tool_call>\n{"name": "f", "argu', complete=False)
    assert cut.tool_calls[0].error == "the call was cut by the token limit"
    unclosed = hermes.parse('<tool_call>\n{"name": "f", "arguments": {}}', complete=False)
    assert unclosed.tool_calls[0].error == "the call was cut by the token limit"


def test_a_missing_closing_tag_at_the_end_of_a_turn_is_forgiven() -> None:
    assert hermes.parse('<tool_call>\n{"name": "f"}').tool_calls == [
        ToolCall(name="f", id="call_0")
    ]


def test_a_good_call_before_a_cut_one_stays_good() -> None:
    message = hermes.parse(call(ADD) + '<tool_call>{"na', complete=False)
    assert [bool(c.error) for c in message.tool_calls] == [False, True]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
utf8 = st.text(st.characters(codec="utf-8"))


drawn_calls = st.lists(
    st.tuples(utf8, st.dictionaries(utf8, json_values, max_size=3)), min_size=1, max_size=3
)


def reads_what_it_renders(drawn: list[tuple[str, dict[str, object]]]) -> None:
    calls = [ToolCall(name=n, arguments=a, id=f"call_{i}") for i, (n, a) in enumerate(drawn)]
    assert hermes.parse(hermes.render(calls)).tool_calls == calls


@settings(max_examples=30, deadline=None)
@given(drawn_calls)
def test_what_is_rendered_is_read_back(drawn: list[tuple[str, dict[str, object]]]) -> None:
    reads_what_it_renders(drawn)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(drawn_calls)
def test_what_is_rendered_is_read_back_in_more_cases(
    drawn: list[tuple[str, dict[str, object]]],
) -> None:
    reads_what_it_renders(drawn)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "f"}', "{", "}", "x", "\n", '"'])
    )
)
def test_no_text_breaks_the_parser(parts: list[str]) -> None:
    for complete in (True, False):
        hermes.parse("".join(parts), complete=complete)


@pytest.mark.parametrize(
    "unit", ["<tool_call>", "<tool_call>{</tool_call>", '<tool_call>{"name":"a"}']
)
def test_long_hostile_text_is_read_in_time(
    unit: str, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(200):
        hermes.parse(unit * 4000)


def test_an_unknown_format_names_the_near_miss() -> None:
    with pytest.raises(UnknownName, match="did you mean 'hermes'"):
        tool_format("herms")
