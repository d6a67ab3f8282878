"""What models really write when they mean a call: each known way to read it wrong, by name."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent.chat_tools import ServerTools, TextTools, wire_names
from ludus.agent.parsing import (
    TOOL_FORMATS,
    HermesFormat,
    OneCall,
    ToolFormat,
    call_id,
    tool_format,
    turn_text,
)
from ludus.agent.parsing.arguments import read_value, types_of
from ludus.agent.parsing.scan import MAX_CALLS
from ludus.envs import ToolSpec
from ludus.errors import ServerFault
from ludus.llm.chat_wire import Completion, read_reply, row_of
from ludus.messages import Message, ToolCall, assistant, system, tool_result, user

HERMES, CODER, TAGS = HermesFormat(), tool_format("qwen3_coder"), tool_format("tags")
OBJECTS, PYTHON = tool_format("llama3_json"), tool_format("llama3_pythonic")
FORMATS = [tool_format(name) for name in TOOL_FORMATS]
BETWEEN_TAGS = [HERMES, CODER, TAGS]
WHOLE_TURN = [OBJECTS, PYTHON]


def spec(name: str, **schemas: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": schemas}
    return ToolSpec(name=name, description="", parameters=parameters)


STRING = {"type": "string"}
TOOLS = [
    spec("search", query=STRING),
    spec("write", path=STRING, lines={"type": "integer"}, mode={"enum": ["a", "w"]}),
]


def made(one: ToolFormat, *queries: str) -> str:
    return one.render([ToolCall(name="search", arguments={"query": query}) for query in queries])


def read(one: ToolFormat, text: str, **more: Any) -> Message:
    return one.parse(text, tools=TOOLS, **more)


def queries(message: Message) -> list[Any]:
    return [call.arguments.get("query") for call in message.tool_calls if not call.error]


def name_of(one: ToolFormat) -> str:
    return one.name


every = pytest.mark.parametrize("one", FORMATS, ids=name_of)
tagged = pytest.mark.parametrize("one", BETWEEN_TAGS, ids=name_of)


# --- what stands inside an argument is argument ------------------------------------------------


@pytest.mark.parametrize("mark", ["</tool_call>", "<tool_call>", "<tool_response>", "</think>"])
@pytest.mark.parametrize("one", [HERMES, CODER, OBJECTS, PYTHON], ids=name_of)
def test_a_tag_inside_an_argument_is_part_of_it(one: ToolFormat, mark: str) -> None:
    query = f"what is {mark} for?"
    assert queries(read(one, made(one, query))) == [query]
    assert queries(read(one, f"<think>hm</think>\n{made(one, query)}")) == [query]


def test_a_closing_tag_of_a_parameter_inside_its_value_is_part_of_it() -> None:
    code = "print('</parameter>')\nprint('</function>')"
    text = f"<function=search>\n<parameter=query>\n{code}\n</parameter>\n</function>"
    assert queries(read(CODER, text)) == [code]


# --- thoughts ----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("before", ["", "\n ", "Okay. "])
def test_calls_inside_thoughts_are_not_made(one: ToolFormat, before: str) -> None:
    written = made(one, "x")
    for text in (
        f"{before}<think>I could {written}",
        f"{before}<think>{written}</think>no",
        f"{before}<think>\n{written}\n</think>",
    ):
        assert not read(one, text).tool_calls, text


@every
def test_thoughts_that_the_template_opened_end_at_their_closing_tag(one: ToolFormat) -> None:
    wanted, unwanted = made(one, "wanted"), made(one, "unwanted")
    assert queries(read(one, f"{unwanted} or so\n</think>\n{wanted}")) == ["wanted"]


@tagged
def test_half_a_call_in_thoughts_does_not_swallow_the_call_after_them(one: ToolFormat) -> None:
    half = made(one, "draft")[:-15]
    assert queries(read(one, f"{half} no.\n</think>\n{made(one, 'x')}")) == ["x"]


@tagged
def test_the_first_call_after_several_thoughts_is_made(one: ToolFormat) -> None:
    text = f"<think>a</think>b<think>{made(one, 'no')}</think>c{made(one, 'yes')}d"
    message = read(one, text)
    assert queries(message) == ["yes"]
    assert message.text.endswith("cd")


@tagged
def test_a_closing_tag_somebody_talks_about_ends_nothing(one: ToolFormat) -> None:
    text = f"<think>a</think>{made(one, 'x')} and </think> is a tag"
    assert queries(read(one, text)) == ["x"]


@every
@pytest.mark.parametrize("text", ["<think>", "<think>only thoughts", "<think>a</think>", "", " \n"])
def test_only_thoughts_and_nothing_at_all_are_text_and_no_error(one: ToolFormat, text: str) -> None:
    assert read(one, text) == assistant(text)


# --- cut ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", WHOLE_TURN, ids=name_of)
def test_a_turn_that_was_cut_after_a_whole_call_might_have_gone_on(one: ToolFormat) -> None:
    calls = read(one, made(one, "a", "b"), complete=False).tool_calls
    assert [bool(call.error) for call in calls] == [False, True]
    assert "cut" in calls[-1].error


@every
def test_no_prefix_of_a_call_is_ever_run_with_other_arguments(one: ToolFormat) -> None:
    whole = made(one, 'a "b" </x> c')
    for end in range(len(whole)):
        for call in read(one, whole[:end], complete=False).tool_calls:
            assert call.error or call.arguments == {"query": 'a "b" </x> c'}


def test_a_cut_call_of_a_server_is_never_run_however_whole_it_looks() -> None:
    for arguments in ("", '{"query": "a', '{"query": "a"}'):
        row = {"id": "1", "function": {"name": "search", "arguments": arguments}}
        whole = {"id": "0", "function": {"name": "search", "arguments": '{"query": "b"}'}}
        reply = {"message": {"tool_calls": [whole, row]}, "finish_reason": "length"}
        first, last = read_reply(json.dumps({"choices": [reply]}).encode()).message.tool_calls
        assert (first.error, first.arguments) == ("", {"query": "b"})
        assert (last.error, last.arguments) == ("the call was cut by the token limit", {})


# --- JSON as models write it --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "search", "arguments": {"query": "x"}}',
        '{"name": "search", "parameters": {"query": "x"}}',
        '{"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}',
        '{"type": "function", "function": {"name": "search", "arguments": {"query": "x"}}}',
        '{"arguments": {"query": "x"}, "name": "search", "id": 3}',
        '[{"name": "search", "arguments": {"query": "x"}}]',
    ],
)
def test_the_ways_to_write_one_call_are_read_alike(body: str) -> None:
    wanted = [ToolCall(name="search", arguments={"query": "x"}, id="call_0")]
    assert read(HERMES, f"<tool_call>{body}</tool_call>").tool_calls == wanted
    assert read(OBJECTS, body).tool_calls == wanted or body.startswith('{"arg')


@pytest.mark.parametrize("nothing", ['"arguments": null', '"arguments": ""', '"arguments": {}'])
def test_no_arguments_may_be_written_as_nothing(nothing: str) -> None:
    (call,) = read(HERMES, f'<tool_call>{{"name": "f", {nothing}}}</tool_call>').tool_calls
    assert (call.name, call.arguments, call.error) == ("f", {}, "")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "a"}\n{"name": "b"}</tool_call>',
        '<tool_call>[{"name": "a"}, {"name": "b"}]</tool_call>',
        '<tool_call>{"name": "a"}\n<tool_call>{"name": "b"}</tool_call>',
        '<tool_call>{"name": "a"}</tool_call>text<tool_call>{"name": "b"}',
    ],
)
def test_two_calls_are_two_however_they_are_put_together(text: str) -> None:
    calls = read(HERMES, text).tool_calls
    assert [(call.name, call.id, call.error) for call in calls] == [
        ("a", "call_0", ""),
        ("b", "call_1", ""),
    ]


@pytest.mark.parametrize(
    "body",
    [
        "{'name': 'f', 'arguments': {}}",
        '{"name": "f", "arguments": {"a": 1,}}',
        '{"name": "f", "arguments": {"a": 1}',
        '```json\n{"name": "f"}\n```',
        '{"name": "f"}}',
        '{"name": "f", "arguments": {"a": "b"c"}}',
        "null",
        '"f"',
    ],
)
def test_what_is_not_json_is_told_and_nothing_is_repaired(body: str) -> None:
    (call,) = read(HERMES, f"<tool_call>{body}</tool_call>").tool_calls
    assert call.error
    assert call.arguments == {}


@pytest.mark.parametrize("depth", [99, 150, 900, 985, 990, 995, 5000])
def test_values_nested_too_deep_to_travel_are_refused(depth: int) -> None:
    value = "[" * depth + "]" * depth
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'
    (call,) = read(HERMES, text).tool_calls
    assert bool(call.error) == (depth > 99)
    msgspec.msgpack.encode(call)


# --- values as text -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (STRING, "17", "17"),
        (STRING, "null", "null"),
        ({"type": "integer"}, " 17\n", 17),
        ({"type": "boolean"}, "True", True),
        ({"type": "array"}, "[1, null]", [1, None]),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "17", "17"),
        ({"anyOf": [STRING, {"type": "null"}]}, "None", None),
        ({"anyOf": [STRING, {"type": "integer"}]}, "17", 17),
        ({"anyOf": [STRING, {"type": "integer"}]}, "17.5", "17.5"),
        ({"anyOf": [STRING, {"type": "number"}]}, "17", 17),
        ({"enum": ["a", "b"]}, "a", "a"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": "1"}, "1", "1"),
        ({"$ref": "#/$defs/Kind"}, "7", "7"),
        ({"$ref": "#/definitions/Word"}, "7", "7"),
        ({"$ref": "#/nothing/Word"}, "7", 7),
        ({"type": "dict"}, '{"a": 1}', {"a": 1}),
        ({"type": "float"}, "1.5", 1.5),
        ({"type": "String"}, "1.5", "1.5"),
        ({"type": "any"}, "1.5", 1.5),
        ({}, "x y", "x y"),
        (True, "3", 3),
        ({"$ref": "#/$defs/Loop"}, "3", 3),
    ],
)
def test_text_is_read_by_what_the_schema_allows(schema: Any, text: str, value: Any) -> None:
    root = {
        "$defs": {"Kind": {"enum": ["7"]}, "Loop": {"$ref": "#/$defs/Loop"}},
        "definitions": {"Word": {"type": "string"}},
        "nothing": None,
    }
    got = read_value(text, types_of(schema, root))
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "body",
    [
        "<parameter=path>\na\n<parameter=lines>\n3\n</parameter>\n</function>",
        "<parameter=path>a<parameter=lines>3</function>",
        "<parameter=path>\na\n</parameter>\n<parameter=lines>\n3\n</function>\n</tool_call>",
        "<parameter=path>\na\n<parameter=lines>\n3\n</tool_call>",
    ],
)
def test_a_parameter_that_was_not_closed_ends_as_vllm_and_sglang_end_it(body: str) -> None:
    (call,) = read(CODER, f"<tool_call>\n<function=write>\n{body}").tool_calls
    assert (call.arguments, call.error) == ({"path": "a", "lines": 3}, "")


def test_the_outer_tag_of_seed_models_is_part_of_the_call() -> None:
    inner = "<function=search><parameter=query>x</parameter></function>"
    message = read(CODER, f"Hm. <seed:tool_call>{inner}</seed:tool_call>")
    assert (message.text, queries(message)) == ("Hm.", ["x"])


def test_a_tag_may_hold_the_arguments_of_a_tool_with_several() -> None:
    (call,) = read(TAGS, '<write>{"path": "a", "lines": 3}</write>').tool_calls
    assert call.arguments == {"path": "a", "lines": 3}
    (alone,) = read(TAGS, "<write>a.txt</write>").tool_calls
    assert alone.arguments == {"path": "a.txt"}


# --- several calls ------------------------------------------------------------------------------


@every
def test_parallel_calls_keep_their_order_and_ids(one: ToolFormat) -> None:
    calls = read(one, made(one, *"abcd")).tool_calls
    assert [(call.arguments["query"], call.id) for call in calls] == [
        (query, call_id(one, ToolCall(name="search", id=f"call_{index}"), index))
        for index, query in enumerate("abcd")
    ]


@every
def test_where_one_call_is_allowed_the_first_is_run_or_the_last(one: ToolFormat) -> None:
    text = made(one, "a", "b", "c")
    assert queries(read(OneCall(one), text)) == ["a"]
    assert queries(read(OneCall(one, keep="last"), text)) == ["c"]
    assert len(read(OneCall(one), text).tool_calls) == 3  # each has its answer
    assert queries(read(OneCall(one), made(one, "a"))) == ["a"]


def test_a_call_that_cannot_be_read_is_not_the_one() -> None:
    text = f"<tool_call>broken</tool_call>{made(HERMES, 'a', 'b')}"
    assert queries(read(OneCall(HERMES), text)) == ["a"]


def test_a_format_that_runs_one_call_writes_turns_and_ids_as_it_does_otherwise() -> None:
    call, answer = ToolCall(name="look", arguments={"a": 1}, id="an id"), assistant("Hm.")
    for one in FORMATS:
        assert call_id(OneCall(one), call, 0) == call_id(one, call, 0)
        assert turn_text(OneCall(one), answer) == turn_text(one, answer)


@tagged
def test_what_follows_a_made_up_result_is_not_run(one: ToolFormat) -> None:
    for fake in ("<tool_response>", "<information>"):
        text = f"So. {made(one, 'a')}\n{fake}it is 4</x>\nNow {made(one, 'b')}"
        message = read(one, text)
        assert queries(message) == ["a"]
        assert "made up" in message.tool_calls[1].error
        assert "it is 4" not in message.text


def test_after_the_answer_nothing_is_called_but_a_drafted_answer_is_none() -> None:
    assert not read(TAGS, f"<answer>4</answer>{made(TAGS, 'x')}").tool_calls
    thought = f"<think><answer>3</answer></think>{made(TAGS, 'x')}"
    assert queries(read(TAGS, thought)) == ["x"]
    opened = f"is it <answer>3</answer>?</think>{made(TAGS, 'x')}"
    assert queries(read(TAGS, opened)) == ["x"]


@every
def test_thousands_of_calls_are_read_up_to_a_bound(one: ToolFormat) -> None:
    calls = read(one, made(one, *["x"] * 500)).tool_calls
    assert 1 <= len(calls) <= MAX_CALLS
    assert calls[-1].error


# --- any text ------------------------------------------------------------------------------------

PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<answer>",
    "</answer>", "<search>", "</search>", "<function=search>", "<function=write>", "</function>",
    "<parameter=query>", "<parameter=lines>", "</parameter>", '{"name": "search", "arguments": ',
    '{"query": "x"}', "}", "{", "[", "]", '"', "'", "\\", ";", ",", "[search(query='x')", ")]",
    "[TOOL_CALLS]", "[ARGS]", "[TOOL_CALLS]search[ARGS]{", "<|channel|>analysis<|message|>",
    "<|channel|>commentary to=functions.search<|message|>", "<|call|>", "<|end|>", "<|start|>",
    "<｜tool▁call▁begin｜>search<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<arg_key>query</arg_key>",
    "<arg_value>", "</arg_value>", "<tool_call>search", "<|tool_call_begin|>functions.search:3",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<start_function_call>call:search{",
    "<|tool_call>call:search{", "query:", "<escape>", '<|"|>', "<end_function_call>",
    "<tool_call|>", '<invoke name="search">', '<parameter name="query">', "</invoke>",
    "<tool_calls>", "</tool_calls>", "<minimax:tool_call>", "[THINK]", "[/THINK]", "\nUser:",
    "<｜DSML｜tool_calls>", '<｜DSML｜invoke name="search">', "</｜DSML｜invoke>",
    '<｜DSML｜parameter name="query" string="false">', "</｜DSML｜parameter>",
    "<information>", "</information>", "```", "`", "<!--", "-->",
    "(", "<|python_tag|>", "<|eot_id|>", "null", "1e999", "\n", " ", "\ud800", "\x00", "é", "3",
]  # fmt: skip


WRITTEN = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=24)


def is_read_alike_and_can_be_sent_on(text: str, *, complete: bool) -> None:
    for one in FORMATS:
        message = read(one, text, complete=complete)
        assert message == read(one, text, complete=complete)
        assert [call.id for call in message.tool_calls] == [
            call_id(one, call, index) for index, call in enumerate(message.tool_calls)
        ]
        for call in message.tool_calls:
            msgspec.msgpack.encode(call)
            json.dumps(call.arguments, allow_nan=False).encode()
            assert not (call.error and call.arguments)


@given(WRITTEN, st.booleans())
@settings(max_examples=60, deadline=None)
def test_whatever_is_written_is_read_alike_each_time_and_can_be_sent_on(
    pieces: list[str], complete: bool
) -> None:
    is_read_alike_and_can_be_sent_on("".join(pieces), complete=complete)


@pytest.mark.slow
@given(WRITTEN, st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_is_read_alike_in_many_more_cases(
    pieces: list[str], complete: bool
) -> None:
    is_read_alike_and_can_be_sent_on("".join(pieces), complete=complete)


@given(st.text(max_size=40), st.text(max_size=40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_call_is_found_wherever_prose_without_marks_surrounds_it(
    before: str, after: str, thought: bool
) -> None:
    marks = str.maketrans(dict.fromkeys("<[]>\"'`“‘«:", "("))  # quoted is not called
    clean = before.translate(marks), after.translate(marks)
    head = f"<think>{clean[1]}</think>" if thought else ""
    for one in BETWEEN_TAGS:
        message = read(one, f"{head}{clean[0]}{made(one, 'x')}{clean[1]}")
        assert queries(message) == ["x"]


WORDS = st.lists(
    st.sampled_from(["so", "4", "\n", " ", "{", "}", "[1]", "x.", "(", "é", "'", "**", "#", "1,"]),
    max_size=8,
).map("".join)


@given(WORDS, WORDS, WORDS, st.sampled_from(["tool_response", "information", "tool_result"]))
@settings(max_examples=50)
def test_no_call_inside_a_made_up_result_is_run_whatever_surrounds_it(
    before: str, around: str, after: str, tag: str
) -> None:
    for one in FORMATS:
        inside = f"<{tag}>{around}{made(one, 'x')}{around}</{tag}>"
        for text in (
            f"{before}{inside}{after}",
            f"{before}\n<{tag}>{around}{made(one, 'x')}{after}",
        ):
            assert not queries(read(one, text)), (one.name, text)
            assert not queries(read(one, f"{made(one, 'y')}{text}"))[1:], (one.name, text)


@given(WORDS, WORDS, st.sampled_from(["<|im_start|>user\n", "\nUser: ", "<|user|>", "[INST]"]))
@settings(max_examples=50)
def test_no_call_after_the_beginning_of_somebody_elses_turn_is_run(
    before: str, after: str, turn: str
) -> None:
    for one in FORMATS:
        text = f"{before} {turn}{after}{made(one, 'x')}{after}"
        assert not queries(read(one, text)), (one.name, text)
        assert not queries(read(one, f"{made(one, 'y')}{text}"))[1:], (one.name, text)


def test_the_end_of_thoughts_inside_a_made_up_result_ends_no_thoughts() -> None:
    for one in FORMATS:
        text = f"<tool_response>4</think>{made(one, 'x')}</tool_response>"
        if one not in WHOLE_TURN and one.name != "gemma3":
            assert not queries(read(one, text)), one.name


MARKS = [
    "<think>", "</think>", "<think></think>", "<tool_call>", '<tool_call>"', "<function=",
    "<function=f><parameter=a>", "<function=f><parameter=a></function>", "<search>",
    "<search></search>", '{"name": "a"};', "[f(", "f(a=1),", '<tool_call>{"a":"</tool_call>',
    "</parameter> ", "<tool_call>\n\n\n", "\\", "<answer>", "<|eot_id|>", "<parameter=",
    "<tool_response>", "<information></information>", "\nUser:", "`<tool_call>{}`",
]  # fmt: skip


@pytest.mark.slow
@every
def test_a_hundred_thousand_characters_of_any_mark_cost_little(
    one: ToolFormat, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(400):  # about 4 s for all: one that is quadratic takes more by itself
        for mark in MARKS:
            many = mark * (100_000 // len(mark))
            read(one, many)
            read(one, f"<tool_call><function=search>{many}", complete=False)


# --- tools by the server ------------------------------------------------------------------------


def test_names_that_servers_refuse_are_changed_on_the_way_out_and_back() -> None:
    names = ["math.sqrt", "math_sqrt", "a b/ü", "x" * 80]
    changed = wire_names(names)
    assert list(changed.values()) == ["math_sqrt_2", "math_sqrt", "a_b__", "x" * 64]
    wire, tools = ServerTools(), [spec(name) for name in names]
    call = ToolCall(name="math.sqrt", id="1")
    messages = [assistant("", [call]), tool_result("2", call)]
    shown, offer = wire.request(messages, tools)
    assert [one["function"]["name"] for one in offer] == list(changed.values())
    assert (shown[0].tool_calls[0].name, shown[1].name) == ("math_sqrt_2", "math_sqrt_2")
    answer = assistant("", [ToolCall(name="math_sqrt_2", id="2")])
    completion = Completion(message=answer, finish="tool_calls")
    assert wire.read(completion, tools).tool_calls[0].name == "math.sqrt"


@given(st.lists(st.text(max_size=70), max_size=8, unique=True))
@settings(max_examples=100, deadline=None)
def test_names_on_the_wire_are_servers_names_and_never_alike(names: list[str]) -> None:
    wire = list(wire_names(names).values())
    assert len(set(wire)) == len(names)
    assert all(len(name) <= 64 for name in wire)


@pytest.mark.parametrize(
    "row",
    [
        {"function": {"name": None, "arguments": None}},
        {"id": None, "function": {}},
        {"function": {"name": "f", "arguments": "[1]"}},
        {"function": {"name": "f", "arguments": '{"a": NaN}'}},
        {"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}},
    ],
)
def test_odd_calls_of_a_server_are_read_or_say_why(row: dict[str, Any]) -> None:
    reply = {"choices": [{"message": {"tool_calls": [row]}, "finish_reason": "tool_calls"}]}
    (call,) = read_reply(json.dumps(reply).encode()).message.tool_calls
    assert call.id == "call00000"  # nine letters and digits, as Mistral's servers want
    assert bool(call.error) == bool(row["function"].get("arguments"))
    assert row_of(assistant("", [call]))["tool_calls"][0]["function"]["name"]


@pytest.mark.parametrize("role", ["user", "tool", "system", "Assistant"])
def test_a_server_that_answers_in_somebody_elses_name_is_at_fault(role: str) -> None:
    message = {"role": role, "content": "4", "tool_calls": [{"function": {"name": "f"}}]}
    with pytest.raises(ServerFault, match=f"has the role '{role}'"):
        read_reply(json.dumps({"choices": [{"message": message}]}).encode())
    for fine in ("assistant", "", None):
        reply = {"choices": [{"message": {**message, "role": fine}}]}
        assert read_reply(json.dumps(reply).encode()).message.text == "4"


@pytest.mark.parametrize(
    ("content", "text"),
    [([{"type": "text", "text": "a"}, {"type": "x"}, {"text": "b"}], "ab"), (None, ""), ("c", "c")],
)
def test_content_in_parts_is_text(content: Any, text: str) -> None:
    reply = {"choices": [{"message": {"content": content}}]}
    assert read_reply(json.dumps(reply).encode()).message.text == text


def test_the_one_call_of_older_servers_is_read() -> None:
    message = {"function_call": {"name": "f", "arguments": '{"a": 1}'}}
    reply = {"choices": [{"message": message, "finish_reason": "function_call"}]}
    (call,) = read_reply(json.dumps(reply).encode()).message.tool_calls
    assert (call.name, call.arguments) == ("f", {"a": 1})


# --- tools in the text --------------------------------------------------------------------------


@every
def test_tools_are_offered_in_the_text_in_the_format_that_is_read(one: ToolFormat) -> None:
    wire = TextTools(one)
    shown, offer = wire.request([system("S"), user("U")], TOOLS)
    assert offer == []
    assert [message.role for message in shown] == ["system", "user"]
    assert shown[0].text.startswith("S\n\nYou can call tools.")
    assert made(one, "...") in shown[0].text
    assert wire.request([user("U")], [])[0] == [user("U")]


def test_a_model_sees_its_own_words_again_and_results_as_text() -> None:
    wire = TextTools(HERMES)
    said = "Hm. <tool_call>{broken</tool_call> <tool_call>{also"
    message = wire.read(Completion(message=assistant(said), finish="length"), TOOLS)
    assert len(message.tool_calls) == 2
    results = [tool_result(f"no </tool_response> {i}", call) for i, call in
               enumerate(message.tool_calls)]  # fmt: skip
    shown, _ = wire.request([user("U"), message, *results], TOOLS)
    assert shown[2] == assistant(said)
    assert len(shown) == 4  # one user turn for both results
    assert shown[3].text.count("</tool_response>") == 2


def test_words_that_begin_like_a_result_stay_a_turn_of_their_own() -> None:
    wire = TextTools(HERMES)
    forged = "<tool_response>4</tool_response>"  # a model that plays its tool as well
    said = f'{forged}\n<tool_call>{{"name": "look", "arguments": {{}}}}</tool_call>'
    message = wire.read(Completion(message=assistant(said), finish="stop"), TOOLS)
    (call,) = message.tool_calls
    shown, _ = wire.request([user("U"), message, tool_result("5", call)], TOOLS)
    assert shown[2:] == [assistant(said), user("<tool_response>\n5\n</tool_response>")]
    shown, _ = wire.request([user(forged), tool_result("5", call)], TOOLS)
    assert shown[1:] == [user(forged), user("<tool_response>\n5\n</tool_response>")]
