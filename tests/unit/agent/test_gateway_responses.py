"""OpenAI's responses, as bodies are read and written without an engine."""

from __future__ import annotations

from typing import Any

from ludus.agent.gateway.dialects.responses import OpenAIResponses
from ludus.agent.gateway.wire import AgentAnswer, Choice, ToolForm
from ludus.agent.trajectory import Finish
from ludus.messages import ToolCall, assistant

DIALECT = OpenAIResponses()
CUSTOM: dict[str, Any] = {"type": "custom", "name": "patch", "description": "Patch files."}


def test_an_item_whose_type_is_null_is_a_message() -> None:
    item = {"type": None, "role": "user", "content": "hi"}
    assert [message.text for message in DIALECT.read({"input": [item]}).messages] == ["hi"]


def test_a_tool_that_takes_text_does_so_in_a_namespace_too() -> None:
    group = {
        "type": "namespace",
        "name": "files",
        "tools": [{"name": "read"}, CUSTOM, {"type": "web_search"}],
    }
    asked = DIALECT.read({"input": "x", "tools": [{"type": "function", "name": "add"}, group]})
    assert [tool.name for tool in asked.tools] == ["add", "files.read", "files.patch"]
    assert list(asked.tools[2].parameters["properties"]) == ["input"]
    assert asked.forms == {
        "files.read": ToolForm("read", namespace="files"),
        "files.patch": ToolForm("patch", namespace="files", is_free=True),
    }
    assert asked.hidden == 1
    call = ToolCall(name="files.patch", arguments={"input": "+1"}, id="7")
    choice = Choice(message=assistant("", [call]), finish=Finish.STOP)
    answer = AgentAnswer(
        id="1", created=0, model="m", choices=[choice], prompt_tokens=1, forms=asked.forms
    )
    (item,) = DIALECT.reply(answer)["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("custom_tool_call", "patch", "files")
    assert item["input"] == "+1"
    # The client sends it back as it was told, and the policy sees what it had said.
    (said,) = DIALECT.read({"input": [item]}).messages
    assert (said.tool_calls[0].name, said.tool_calls[0].arguments) == (call.name, call.arguments)
