"""What is peculiar to one family's format: ids, channels, marks inside values, older spellings."""

from collections.abc import Iterator
from typing import Any

import pytest

from ludus.agent.parsing import (
    TOOL_FORMATS,
    HermesFormat,
    call_id,
    register_tool_format,
    tool_format,
    turn_text,
)
from ludus.envs import ToolSpec
from ludus.errors import ConfigError, UnknownName
from ludus.messages import Message, Role, ToolCall, assistant

HARMONY, KIMI, GLM = tool_format("harmony"), tool_format("kimi_k2"), tool_format("glm4")
DEEPSEEK = tool_format("deepseek_v3")
TOOLS = [
    ToolSpec(
        name="search",
        description="",
        parameters={"properties": {"query": {"type": "string"}, "count": {"type": "integer"}}},
    )
]
SEARCH = ("search", {"query": "x"})


def read(one: Any, text: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """The calls that would be run; what could not be read stands as its reason."""
    calls = one.parse(text, tools=TOOLS, **more).tool_calls
    return [(call.error or call.name, call.arguments) for call in calls]


# --- harmony -----------------------------------------------------------------------------------

CALL = '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "x"}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"{CALL}<|call|>",
        f"<|start|>assistant{CALL}<|call|>",
        ' to=functions.search<|channel|>commentary json<|message|>{"query": "x"}<|call|>',
        '<|start|>assistant to=functions.search<|channel|>commentary<|message|>{"query": "x"}',
        '<|channel|>analysis to=functions.search code<|message|>{"query": "x"}<|call|>',
        '<|channel|>commentary to=search<|message|>{"query": "x"}<|call|>',
    ],
)
def test_a_message_with_a_recipient_is_a_call(text: str) -> None:
    assert read(HARMONY, text) == [SEARCH]


def test_channels_become_reasoning_and_content() -> None:
    text = (
        "<|channel|>analysis<|message|>I need it.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        f"<|start|>assistant{CALL}<|call|>"
    )
    message = HARMONY.parse(text, tools=TOOLS)
    assert (message.text, message.reasoning) == ("I look.", "I need it.")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [SEARCH]
    final = HARMONY.parse(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>42"
    )
    assert final == Message(role=Role.ASSISTANT, content="42", reasoning="hm")


def test_a_turn_of_harmony_is_written_with_its_channels_and_read_again() -> None:
    said = Message(role=Role.ASSISTANT, content="I look.", reasoning="I need it.", tool_calls=[
        ToolCall(name="search", arguments={"query": "x"}, id="call_0"),
    ])  # fmt: skip
    text = turn_text(HARMONY, said, tools=TOOLS)
    assert text.startswith("<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|ch")
    assert HARMONY.parse(text, tools=TOOLS) == said
    assert turn_text(HARMONY, assistant("4")) == "<|channel|>final<|message|>4"
    assert turn_text(HermesFormat(), assistant("4")) == "4"


def test_a_made_up_result_of_harmony_runs_nothing() -> None:
    fake = "<|start|>functions.search to=assistant<|channel|>commentary<|message|>4<|end|>"
    assert read(HARMONY, f"{CALL}<|call|>{fake}<|start|>assistant{CALL}<|call|>")[0] == SEARCH
    assert "made up" in read(HARMONY, f"{fake}<|start|>assistant{CALL}<|call|>")[0][0]


# --- ids ---------------------------------------------------------------------------------------


def test_kimi_keeps_the_id_that_holds_name_and_number() -> None:
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:7"
        '<|tool_call_argument_begin|>{"query": "x"}<|tool_call_end|>'
        "<|tool_call_begin|>search<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )
    assert [call.id for call in KIMI.parse(text).tool_calls] == [
        "functions.search:7",
        "functions.search:1",
    ]
    broken = KIMI.parse("<|tool_call_begin|>functions.search:0").tool_calls[0]
    assert (broken.id, bool(broken.error)) == ("functions.unreadable_call:0", True)


@pytest.mark.parametrize("name", ["mistral_v3", "mistral_v11"])
def test_ids_of_mistral_have_nine_letters_or_digits(name: str) -> None:
    one = tool_format(name)
    for text, ids in [
        ('[TOOL_CALLS] [{"name": "search", "arguments": {}, "id": "a1B2c3D4e"}]', ["a1B2c3D4e"]),
        ('[TOOL_CALLS] [{"name": "a"}, {"name": "b", "id": "short"}]', ["call00000", "call00001"]),
        (
            "[TOOL_CALLS]a[CALL_ID]a1B2c3D4e[ARGS]{}[TOOL_CALLS]b[ARGS]{}",
            ["a1B2c3D4e", "call00001"],
        ),
        ("[TOOL_CALLS]a[ARGS]{broken", ["call00000"]),
    ]:
        assert [call.id for call in one.parse(text).tool_calls] == ids
    assert call_id(one, ToolCall(name="a", id="call_12"), 12) == "call00012"
    kept = ToolCall(name="a", id="a1B2c3D4e")
    assert '"id": "a1B2c3D4e"' in tool_format("mistral_v3").render([kept])
    assert call_id(HermesFormat(), ToolCall(name="a", id="call_12"), 12) == "call_12"


# --- spellings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one", [tool_format("mistral_v3"), tool_format("mistral_v11")], ids=lambda one: one.name
)
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "search", "arguments": {"query": "x"}}]',
        '[TOOL_CALLS] [{"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}]',
        '[TOOL_CALLS]search[ARGS]{"query": "x"}',
        '[TOOL_CALLS]search{"query": "x"}',
        '[THINK]search or not[/THINK][TOOL_CALLS]search[ARGS]{"query": "x"}',
    ],
)
def test_both_ages_of_mistral_are_read(one: Any, text: str) -> None:
    assert read(one, text) == [SEARCH]


@pytest.mark.parametrize(
    "body",
    [
        'function<｜tool▁sep｜>search\n```json\n{"query": "x"}\n```',
        'function<｜tool▁sep｜>search\n{"query": "x"}',
        'search<｜tool▁sep｜>{"query": "x"}',
        'search<｜tool▁sep｜>```json\n{"query": "x"}\n```',
    ],
)
def test_both_ages_of_deepseek_are_read(body: str) -> None:
    for name in ("deepseek_v3", "deepseek_v31"):
        text = f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{body}<｜tool▁call▁end｜>"
        assert read(tool_format(name), f"{text}<｜tool▁calls▁end｜>") == [SEARCH]
        assert read(tool_format(name), text) == [SEARCH]


@pytest.mark.parametrize("block", ["function_calls", "tool_calls", ""])
@pytest.mark.parametrize("bar", ["｜", "|"])
def test_both_ages_of_dsml_are_read(block: str, bar: str) -> None:
    mark = f"{bar}DSML{bar}"
    invoke = (
        f'<{mark}invoke name="search">\n<{mark}parameter name="query" string="true">x'
        f"</{mark}parameter>\n</{mark}invoke>"
    )
    whole = f"<{mark}{block}>\n{invoke}\n</{mark}{block}>" if block else invoke
    for name in ("deepseek_v32", "deepseek_v4"):
        assert read(tool_format(name), whole) == [SEARCH]
        assert read(tool_format(name), f"I look.\n\n{whole}") == [SEARCH]
        assert read(tool_format(name), whole.removesuffix(f"\n</{mark}{block}>")) == [SEARCH]


def test_the_tag_of_dsml_says_whether_a_value_is_text() -> None:
    one = tool_format("deepseek_v32")

    def call(key: str, is_string: str, value: str) -> str:
        return (
            f'<｜DSML｜invoke name="search"><｜DSML｜parameter name="{key}" string="{is_string}">'
            f"{value}</｜DSML｜parameter></｜DSML｜invoke>"
        )

    assert read(one, call("count", "true", "3")) == [("search", {"count": "3"})]
    assert read(one, call("query", "false", "3")) == [("search", {"query": 3})]
    assert read(one, call("other", "false", '{"a": [1]}')) == [("search", {"other": {"a": [1]}})]
    assert read(one, call("query", "true", "\nx\n")) == [("search", {"query": "\nx\n"})]
    assert "is not JSON" in read(one, call("other", "false", "three"))[0][0]


def test_glm_may_leave_the_lines_out() -> None:
    text = "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value></tool_call>"
    assert read(GLM, text) == [SEARCH]
    numbered = text.replace("</tool_call>", "<arg_key>count</arg_key><arg_value>3</arg_value>")
    assert read(GLM, numbered) == [("search", {"query": "x", "count": 3})]
    assert (
        "a call is <tool_call>name" in read(GLM, '<tool_call>{"name": "search"}</tool_call>')[0][0]
    )


def test_several_calls_of_minimax_stand_in_one_block() -> None:
    one = tool_format("minimax_m2")
    text = (
        '<minimax:tool_call><invoke name="search"><parameter name="query">x</parameter></invoke>'
        "<invoke name='search'><parameter name='count'>3</parameter></invoke></minimax:tool_call>"
    )
    assert read(one, text) == [SEARCH, ("search", {"count": 3})]
    assert one.parse(text, tools=TOOLS).text == ""


@pytest.mark.parametrize(
    ("one", "mark"), [(tool_format("functiongemma"), "<escape>"), (tool_format("gemma4"), '<|"|>')]
)
def test_strings_of_gemma_may_hold_their_own_mark(one: Any, mark: str) -> None:
    given = {"query": f"a{mark}b", "a b": {"c:d": [None, True, -1.5, "e"]}, "z": []}
    call = ToolCall(name="search", arguments=given, id="call_0")
    assert one.parse(one.render([call]), tools=TOOLS).tool_calls == [call]


def test_bare_values_of_gemma_are_read_by_the_schema() -> None:
    text = (
        "<|tool_call>call:search{query:12,count:12,other:12,word:some text,none:None}<tool_call|>"
    )
    assert read(tool_format("gemma4"), text) == [
        ("search", {"query": "12", "count": 12, "other": 12, "word": "some text", "none": None})
    ]
    twice = "<|tool_call>call:search{count:1,count:2}<tool_call|>"
    assert read(tool_format("gemma4"), twice) == [("count is given twice", {})]


# --- a format of one's own ---------------------------------------------------------------------


class Shouted(HermesFormat):
    """Hermes in capitals."""

    name = "shouted"
    opening, closing = "<CALL>", "</CALL>"


@pytest.fixture
def registered() -> Iterator[None]:
    register_tool_format(Shouted)
    yield
    del TOOL_FORMATS["shouted"]


@pytest.mark.usefixtures("registered")
def test_a_format_of_ones_own_is_found_by_its_name() -> None:
    assert read(tool_format("shouted"), '<CALL>{"name": "now"}</CALL>') == [("now", {})]
    assert register_tool_format(Shouted) is Shouted
    with pytest.raises(UnknownName, match="did you mean 'shouted'"):
        tool_format("shout")


def test_a_name_that_is_taken_or_missing_is_refused() -> None:
    class Mine(HermesFormat):
        """Another hermes."""

    with pytest.raises(ConfigError, match=r"the tool format .hermes. is ludus\.agent"):
        register_tool_format(Mine)
    Mine.name = ""
    with pytest.raises(ConfigError, match=r"needs a class attribute .name."):
        register_tool_format(Mine)
