"""Output that brought a parser down, kept it busy or made it run what was not meant."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from ludus.agent.parsing import TOOL_FORMATS, HermesFormat, ToolFormat, call_id, tool_format
from ludus.envs import ToolSpec
from ludus.messages import ToolCall

HERMES, CODER, TAGS = HermesFormat(), tool_format("qwen3_coder"), tool_format("tags")
OBJECTS, PYTHON = tool_format("llama3_json"), tool_format("llama3_pythonic")
FORMATS = [tool_format(name) for name in TOOL_FORMATS]


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return ToolSpec(name=name, description="", parameters=parameters)


TOOLS = [spec("ferry", port="string", berth="integer"), spec("tides", port="string"), spec("ring")]
FERRY = ("ferry", {"port": "Kiel"})


def read(one: ToolFormat, text: str, *, complete: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """The calls that would be run; what could not be read stands as its reason."""
    calls = one.parse(text, complete=complete, tools=TOOLS).tool_calls
    return [(call.error or call.name, call.arguments) for call in calls]


def reason(one: ToolFormat, text: str, *, complete: bool = True) -> str:
    (call,) = one.parse(text, complete=complete, tools=TOOLS).tool_calls
    assert call.error
    assert call.arguments == {}
    return call.error


# --- none brings a parser down -----------------------------------------------------------------

WHOLE = [
    '<function=ferry>{"port": "Kiel"}</function>',
    '<think>so</think>\n<|python_tag|>{"name": "ferry", "parameters": {"port": "Kiel"}}<|eom_id|>',
    '```json\n[{"name": "ferry", "parameters": {"port": "Kiel"}}]\n```',
    "<|python_start|>[ferry(port='Kiel'), tides(port=\"Kiel\")]<|python_end|>",
    "<tool_call>\n<function=ferry>\n<parameter=port>\nKiel\n</parameter>\n</tool_call>",
    '<tool_call>[{"name": "ferry", "arguments": {"port": "Kiel"}}, {"name": "ring"}]</tool_call>',
    '<ferry>{"port": "Kiel", "berth": 3}</ferry>',
]


@pytest.mark.parametrize("whole", WHOLE)
def test_a_turn_cut_anywhere_is_read_by_every_format(whole: str) -> None:
    known = {"Kiel", 3}
    for one in FORMATS:
        for end in range(len(whole) + 1):
            for call in one.parse(whole[:end], complete=False, tools=TOOLS).tool_calls:
                assert call.error or known.issuperset(call.arguments.values()), (one.name, end)


@pytest.mark.parametrize("text", ["<function=", "<function=fer", "<function=a b", "<function=>{}"])
def test_half_a_tag_of_llama_is_a_call_that_cannot_be_read(text: str) -> None:
    assert reason(OBJECTS, text) == "no JSON object after the tag"
    assert "cut" in reason(OBJECTS, text, complete=False)


def test_a_tag_with_its_arguments_inside_is_told_and_not_swallowed() -> None:
    said = reason(OBJECTS, '<function=ferry {"port": "Kiel"}></function>')
    assert said == "no JSON object after the tag"


@pytest.mark.parametrize("length", [10, 300, 600, 2000, 50_000])
def test_a_name_of_any_number_of_parts_is_read_or_refused(length: int) -> None:
    (call,) = read(PYTHON, f"[{'a.' * length}b(port=1)]")
    assert call[0] == f"{'a.' * length}b" or "not a Python list" in call[0]


def test_a_method_of_a_literal_is_no_tool() -> None:
    assert reason(PYTHON, "[ferry.x(), 'a'.join(b=1)][:1]") == "not a Python list of calls"
    assert read(PYTHON, "[ring(), 'a'.join(b=1)]")[1][0] == "an element of the list is not a call"


def test_thousands_of_parameters_cost_as_much_as_their_text(
    costs_at_most: Callable[[int], AbstractContextManager[None]],
) -> None:
    many = "".join(f"<parameter=a{index}>1</parameter>" for index in range(36_000))
    with costs_at_most(400):
        ((_, arguments),) = read(CODER, f"<function=ferry>{many}</function>")
    assert len(arguments) == 36_000


# --- thoughts ----------------------------------------------------------------------------------

SEED = "<seed:tool_call>\n<function=ferry>\n<parameter=port>Kiel</parameter>\n</function>\n"


def seed(port: str) -> str:
    return SEED.replace("Kiel", port) + "</seed:tool_call>"


@pytest.mark.parametrize("opened", ["<seed:think>", "<seed:think>\n", ""])
def test_what_seed_drafts_in_its_thoughts_is_not_run(opened: str) -> None:
    text = f"{opened}I write {seed('Oslo')}, or so.</seed:think>\n{seed('Kiel')}"
    assert read(CODER, text) == [FERRY]
    cut = "<seed:cot_budget_reflect>I have used 9 tokens.</seed:cot_budget_reflect>"
    assert read(CODER, f"{opened}{cut} {seed('Oslo')}</seed:think>\nNo ferry.") == []


def test_thoughts_of_seed_that_never_end_run_nothing() -> None:
    text = f"<seed:think>I write {seed('Oslo')}"
    for complete in (True, False):
        assert read(CODER, text, complete=complete) == []
    half = SEED.removesuffix("</parameter>\n</function>\n")
    assert read(CODER, f"{half} no.</seed:think>{seed('Kiel')}") == [FERRY]


# --- calls announced by a tag ------------------------------------------------------------------

CALL = '{"name": "ferry", "parameters": {"port": "Kiel"}}'


@pytest.mark.parametrize(
    ("one", "call"),
    [
        (OBJECTS, f"<|python_tag|>{CALL}<|eom_id|>"),
        (OBJECTS, f"<|python_tag|> [{CALL}]"),
        (OBJECTS, '<|python_tag|><function=ferry>{"port": "Kiel"}</function>'),
        (OBJECTS, f"<|python_start|>{CALL}<|python_end|><|eot|>"),
        (PYTHON, "<|python_start|>[ferry(port='Kiel')]<|python_end|><|eom|>"),
        (PYTHON, "<|python_tag|>ferry(port='Kiel')"),
    ],
)
def test_a_tag_announces_a_call_after_something_was_said(one: ToolFormat, call: str) -> None:
    message = one.parse(f"<think>so</think>I ask.\n{call}", tools=TOOLS)
    assert message.text == "<think>so</think>I ask."
    assert [(made.name, made.arguments) for made in message.tool_calls] == [FERRY]
    assert "cut" in reason(one, f"I ask. {call}", complete=False)
    assert read(one, f"<think>I could {call}") == []
    assert read(one, f"I could {call}, but no.</think>No.") == []


@pytest.mark.parametrize("one", [OBJECTS, PYTHON], ids=lambda one: one.name)
def test_a_tag_somebody_talks_about_announces_nothing(one: ToolFormat) -> None:
    text = "Calls begin with <|python_tag|> or <|python_start|>, see [1] and f(x)."
    assert one.parse(text, tools=TOOLS).text == text


def test_an_announced_call_may_hold_tags() -> None:
    text = CALL.replace("Kiel", "</think> <|python_tag|>{")
    assert read(OBJECTS, f"I ask. <|python_tag|>{text}")[0][0] == "ferry"
    text = "I ask. <|python_start|>[ferry(port='</think>')]"
    assert read(PYTHON, text) == [("ferry", {"port": "</think>"})]


@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_an_object_that_begins_with_its_arguments_is_a_call_too(key: str) -> None:
    assert read(OBJECTS, f'{{"{key}": {{"port": "Kiel"}}, "name": "ferry"}}') == [FERRY]
    assert "not valid JSON" in reason(OBJECTS, f"{{'{key}': {{'port': 'Kiel'}}, 'name': 'ferry'}}")
    assert "cut" in reason(OBJECTS, f'{{"{key}": {{"port": "Ki', complete=False)


# --- lists of Python calls ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["ferry(port='Kiel')", "ferry(port='Kiel'), ring()", "```python\nferry(port='Kiel')\n```"],
)
def test_the_brackets_may_be_left_out_around_tools_on_offer(text: str) -> None:
    assert read(PYTHON, text)[0] == FERRY
    assert read(PYTHON, text, complete=False)[-1][0] == "the call was cut by the token limit"


@pytest.mark.parametrize(
    "text",
    [
        "ferry (the tool) found nothing.",
        "ferry(port='Ki",
        "ferry(port='Kiel') # and",
        "sail(port='Kiel')",
        "[Smith (2020)] says so.",
        "[f(x), g(y)] is the list.",
        "print(ferry(port='Kiel'))",
    ],
)
def test_prose_that_begins_like_a_call_is_prose(text: str) -> None:
    whole = read(PYTHON, text)
    assert whole == ([FERRY] if text.endswith("# and") else [])


def test_a_call_of_a_tool_that_is_not_there_is_a_call() -> None:
    assert read(PYTHON, "[sail(port='Kiel')]") == [("sail", {"port": "Kiel"})]
    assert read(PYTHON, "[sail()]") == [("sail", {})]
    assert "not a Python list" in reason(PYTHON, "[sail(port='Ki]")


def test_signs_are_part_of_numbers_and_of_nothing_else() -> None:
    assert read(PYTHON, "[ferry(berth=+2), ferry(berth=-2.5)]") == [
        ("ferry", {"berth": 2}),
        ("ferry", {"berth": -2.5}),
    ]
    assert "must be a literal" in reason(PYTHON, "[ferry(berth=-True)]")


@pytest.mark.parametrize("key", ["per-page", "$top", "user.name", "@type", "from", "None", "ü"])
def test_whatever_an_argument_is_called_it_is_read_as_it_is_written(key: str) -> None:
    call = ToolCall(name="ferry", arguments={key: "a = b, c-d=1", "berth": 1}, id="call_0")
    assert PYTHON.parse(PYTHON.render([call]), tools=TOOLS).tool_calls == [call]


# --- the tags of Qwen3-Coder, and others ---------------------------------------------------------


def test_a_function_without_a_name_is_no_call() -> None:
    for name in ("", " ", '""', "''"):
        said = reason(CODER, f"<tool_call><function={name}></function></tool_call>")
        assert said.startswith("a call is <function=name>")


@pytest.mark.parametrize(
    "inside", ['{"port": "Kiel"}', "Kiel", "<port>Kiel</port>", '<parameter name="port">Kiel']
)
def test_arguments_in_another_way_are_shown_the_right_one(inside: str) -> None:
    text = f"<tool_call>\n<function=ferry>\n{inside}\n</function>\n</tool_call>"
    assert reason(CODER, text).startswith("a call is <function=name>")


def test_line_ends_of_windows_are_the_layout_and_not_the_value() -> None:
    text = SEED.replace(">Kiel<", ">\nKiel\n<").replace("\n", "\r\n")
    assert read(CODER, text) == [FERRY]
    assert read(CODER, SEED.replace("Kiel", "\nKiel\r\n")) == [("ferry", {"port": "Kiel\r"})]


@pytest.mark.parametrize(("written", "value"), [("3.0", 3), ("3.5", 3.5), ("-2e3", -2000)])
def test_a_whole_number_is_an_integer_where_one_is_wanted(written: str, value: float) -> None:
    ((_, arguments),) = read(CODER, f"<function=ferry><parameter=berth>{written}</parameter>")
    assert arguments == {"berth": value}
    assert type(arguments["berth"]) is type(value)


def test_an_object_with_one_known_argument_is_the_arguments() -> None:
    assert read(TAGS, '<ferry>{"port": "Kiel", "deck": 2}</ferry>') == [
        ("ferry", {"port": "Kiel", "deck": 2})
    ]
    assert read(TAGS, '<ferry>{"deck": 2}</ferry>') == [("ferry", {"port": '{"deck": 2}'})]


def test_an_answer_tag_somebody_talks_about_is_no_answer() -> None:
    text = "The result goes between <answer> tags.\n<ferry>Kiel</ferry>"
    assert read(TAGS, text) == [FERRY]
    assert read(TAGS, f"{text} <answer>4</answer>") == []


def test_a_name_given_twice_is_told_in_short() -> None:
    name = "a" * 50_000
    assert len(reason(PYTHON, f"[ferry({name}=1, {name}=2)]")) < 120


# --- what is written is read -------------------------------------------------------------------

PIECES = [
    "</parameter>", "<tool_response>", "</think>", "<think>", "<seed:think>", "<|python_tag|>",
    "<|eot_id|>", "<search>", "</tides", "\n", "\r\n", "\t", " ", "'", '"', "\\", "\\n", "{",
    "}", "[", "]", "(", ")", ";", ",", "#", "=", "&lt;", "\x00", "\u2028", "é", "\U0001f600",
    "null", "3", "-",
]  # fmt: skip
VALUES = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
CALLS = st.lists(
    st.fixed_dictionaries({"port": VALUES}).map(lambda given: ("tides", given))
    | st.dictionaries(st.sampled_from(["port"]), VALUES).map(lambda given: ("ferry", given))
    | st.fixed_dictionaries({"port": VALUES, "berth": st.integers(-(2**63), 2**64 - 1)}).map(
        lambda given: ("ferry", given)
    )
    | st.just(("ring", dict[str, Any]())),
    min_size=1,
    max_size=4,
)


def each_format_reads_what_it_writes(drawn: list[tuple[str, dict[str, Any]]]) -> None:
    for one in FORMATS:
        calls = [
            ToolCall(
                name=name,
                id=f"call_{index}",
                arguments=alone(given) if one.name == "tags" else given,
            )
            for index, (name, given) in enumerate(drawn)
        ]
        wanted = [
            msgspec.structs.replace(call, id=call_id(one, call, index))
            for index, call in enumerate(calls)
        ]
        read = one.parse(one.render(calls, tools=TOOLS), tools=TOOLS).tool_calls
        assert read == wanted, one.name


@given(CALLS)
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read_whatever_the_values_hold(
    drawn: list[tuple[str, dict[str, Any]]],
) -> None:
    each_format_reads_what_it_writes(drawn)


@pytest.mark.slow
@given(CALLS)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_in_many_more_cases(
    drawn: list[tuple[str, dict[str, Any]]],
) -> None:
    each_format_reads_what_it_writes(drawn)


def alone(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, a single one without the space around it: a tag's content has none."""
    return {key: value.strip() for key, value in given.items()} if len(given) == 1 else given
