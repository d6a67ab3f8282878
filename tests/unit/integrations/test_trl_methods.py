"""What TRL's reward functions read, and the methods that TRL shows as tools; needs no TRL."""

from __future__ import annotations

import pytest

from ludus.envs.tools.spec import ToolSpec
from ludus.errors import ConfigError
from ludus.integrations.trl import TrlBridge, _method, verifier_reward

CALL = {"type": "function", "function": {"name": "search", "arguments": {}}}


def test_the_result_of_a_tool_is_no_answer() -> None:
    """A rollout that is cut after a call ends with what the tool said, not the policy."""
    asked = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    told = {"role": "tool", "name": "search", "content": "42"}
    said = {"role": "assistant", "content": "42"}
    completions = [[asked, told], [asked, told, said], [said | {"tool_calls": [CALL]}], "42", []]
    reward = verifier_reward("maths", gold="answer")
    assert reward(["q"] * 5, completions, answer=["42"] * 5) == [0.0, 1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("argument", ["max-results", "class", "self"])
def test_an_argument_that_no_method_can_have_is_told(argument: str) -> None:
    tool = ToolSpec(
        name="search", description="", parameters={"properties": {argument: {"type": "string"}}}
    )
    with pytest.raises(ConfigError, match=f"argument '{argument}'"):
        _method(tool)


def test_what_is_appended_to_a_prompt_stays_in_its_row() -> None:
    bridge = TrlBridge("ludus/arithmetic-v0")
    first, second = bridge.rows(2)
    first["prompt"][-1]["content"] += "12 - 7"  # as TRL does at the first observation
    assert second["prompt"][-1]["content"] == ""
    bridge.close()
