"""Output that brought a parser down, kept it busy or made it run what was not meant."""

import time
from typing import Any

import pytest

from ludus.agent.parsing import (
    TOOL_FORMATS,
    HermesFormat,
    Llama3JsonFormat,
    Llama3PythonicFormat,
    Qwen3CoderFormat,
    TagFormat,
    ToolFormat,
    tool_format,
)
from ludus.envs import ToolSpec

HERMES, CODER, TAGS = HermesFormat(), Qwen3CoderFormat(), TagFormat()
OBJECTS, PYTHON = Llama3JsonFormat(), Llama3PythonicFormat()
FORMATS = [tool_format(name) for name in TOOL_FORMATS]


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return ToolSpec(name=name, description="", parameters=parameters)


TOOLS = [
    spec("ferry", port="string", berth="integer"),
    spec("tides", port="string"),
    spec("ring"),
]
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


def test_thousands_of_parameters_cost_as_much_as_their_text() -> None:
    many = "".join(f"<parameter=a{index}>1</parameter>" for index in range(36_000))
    started = time.process_time()
    ((_, arguments),) = read(CODER, f"<function=ferry>{many}</function>")
    assert time.process_time() - started < 4
    assert len(arguments) == 36_000
