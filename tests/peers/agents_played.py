"""Agents as their projects' pages write them. Nothing here knows of ludus: the base URLs and keys
come from the environment, as for any model's server.

    python agents_played.py NAME TRACE [ROUNDS]

TRACE is a file for what the agent holds at the end: a row for each answer of the model, its text
and its calls, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RUNNER = asyncio.Runner()  # one event loop, since the SDK's client stays
MODEL, TURNS = "any-name", 4
Trace = list[tuple[str, list[tuple[str, Any]]]]
"""Text and calls of each answer."""


def look(key: str, depth: int = 0) -> str:
    """Look something up.

    Args:
        key: what to look up.
        depth: how deep to look.
    """
    return f"found {key} at {depth}"


SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}, "depth": {"type": "integer"}}}


def chat_trace(messages: Iterable[dict[str, Any]]) -> Trace:
    """The answers among messages of chat completions."""
    return [
        (
            message.get("content") or "",
            [
                (call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message.get("tool_calls") or []
            ],
        )
        for message in messages
        if message["role"] == "assistant"
    ]


class OpenAILoop:
    """A loop over OpenAI's chat completions."""

    def __init__(self, *, stream: bool) -> None:
        from openai import OpenAI

        self.client, self.stream = OpenAI(), stream
        function = {"name": "look", "description": "Look something up.", "parameters": SCHEMA}
        self.tools: Any = [{"type": "function", "function": function}]

    def ask(self, messages: list[Any], **more: Any) -> Any:
        asked: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": self.tools, **more}
        if not self.stream:
            return self.client.chat.completions.create(**asked)
        with self.client.chat.completions.stream(**asked) as events:
            for _event in events:
                pass
            return events.get_final_completion()

    def run(self, messages: list[Any], turns: int) -> list[Any]:
        for _ in range(turns):
            message = self.ask(messages).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "ok"})
            if not message.tool_calls:
                messages.append({"role": "user", "content": "go on"})
        return messages


def openai_loop(index: int, *, stream: bool) -> Trace:
    return chat_trace(OpenAILoop(stream=stream).run([user(f"begin {index}")], TURNS))


def openai_wild(index: int) -> Trace:
    """Forks, repeats, asks for several samples, edits, compacts and changes its tools."""
    loop = OpenAILoop(stream=index % 2 == 1)
    head = [{"role": "system", "content": "Be brief."}, user(f"begin {index}")]
    messages = loop.run(list(head), 3)
    trace = chat_trace(messages)
    fork = loop.run([*messages[:3], *results(messages[2]), user("another way")], 2)
    trace += chat_trace(fork)[1:]
    loop.stream = False
    samples = loop.ask([*messages, user("once more")], n=3).choices
    trace += chat_trace(choice.message.model_dump(exclude_none=True) for choice in samples)
    loop.ask([*messages, user("once more")])
    edited = [dict(message) for message in messages]
    edited[2]["content"] = "What I never said."
    loop.ask(edited)
    said = next((text for text, _ in trace if len(text) > 20), "nothing")
    compacted = loop.run([head[0], user(f"So far: {said}\nGo on.")], 2)
    trace += chat_trace(compacted)
    loop.tools = [*loop.tools, *renamed(loop.tools)]
    loop.ask(messages)
    return trace


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    return [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]


def renamed(tools: list[Any]) -> list[Any]:
    return [{**tool, "function": {**tool["function"], "name": "look_again"}} for tool in tools]


def anthropic_loop(index: int, *, stream: bool) -> Trace:
    import anthropic

    client = anthropic.Anthropic()
    messages: list[Any] = [user(f"begin {index}, stream {stream}")]
    tools: Any = [{"name": "look", "description": "Look something up.", "input_schema": SCHEMA}]
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 64, "system": "Be brief."}
    for _ in range(TURNS):
        if stream:
            with client.messages.stream(messages=messages, tools=tools, **asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(messages=messages, tools=tools, **asked)
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        messages.append({"role": "assistant", "content": blocks})
        outputs = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        messages.append({"role": "user", "content": outputs or "go on"})
    client.messages.count_tokens(model=MODEL, messages=messages)
    return [
        (
            "".join(block["text"] for block in message["content"] if block["type"] == "text"),
            [(b["name"], b["input"]) for b in message["content"] if b["type"] == "tool_use"],
        )
        for message in messages
        if message["role"] == "assistant"
    ]


def langgraph_agent(index: int) -> Trace:
    """A graph with memory that goes on, and is then wound back to an earlier state: a fork."""
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(ChatOpenAI(model=MODEL), [look], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": str(index)}, "recursion_limit": 20}
    first = agent.invoke({"messages": [("user", f"begin {index}")]}, config)["messages"]
    earlier = agent.get_state(config).config
    second = agent.invoke({"messages": [("user", "go on")]}, config)["messages"]
    forked = agent.invoke({"messages": [("user", "another way")]}, earlier)["messages"]
    new = [*second, *forked[len(first) :]]
    return [
        (str(message.text), [(call["name"], call["args"]) for call in message.tool_calls])
        for message in new
        if message.type == "ai"
    ]


def smolagents_agent(index: int) -> Trace:
    from smolagents import ActionStep, OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel(
        model_id=MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    agent = ToolCallingAgent(tools=[tool(look)], model=model, max_steps=TURNS)
    agent.run(f"begin {index}")
    trace: Trace = []
    for step in agent.memory.steps:
        message = step.model_output_message if isinstance(step, ActionStep) else None
        if message is not None:
            calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
            read = [(n, json.loads(a) if isinstance(a, str) else a) for n, a in calls]
            trace.append((message.content or "", read))
    return trace


def openai_agents(index: int, *, stream: bool) -> Trace:
    """An agent with a tool, and with a second agent as another tool."""
    from agents import Agent, Runner, function_tool

    helper = Agent(name="helper", instructions="Help.", model=MODEL)
    tools = [
        function_tool(look),
        helper.as_tool(tool_name="ask_helper", tool_description="Asks the helper."),
    ]
    agent = Agent(name="a", instructions="Be brief.", tools=tools, model=MODEL)

    async def run() -> Any:
        if not stream:
            return await Runner.run(agent, f"begin {index}", max_turns=8)
        streamed = Runner.run_streamed(agent, f"begin {index}", max_turns=8)
        async for _ in streamed.stream_events():
            pass
        return streamed

    trace: Trace = []
    for response in RUNNER.run(run()).raw_responses:
        text, calls = "", []
        for item in response.output:
            if item.type == "message":
                text += "".join(part.text for part in item.content)
            elif item.type == "function_call":
                calls.append((item.name, json.loads(item.arguments)))
        trace.append((text, calls))
    return trace


def pydantic_agent(index: int, model: str) -> Trace:
    """An agent whose second run shows only the end of the first: it compacts."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    agent = Agent(f"{model}:{MODEL}", tools=[look])
    first = agent.run_sync(f"begin {index}").all_messages()
    second = agent.run_sync("go on", message_history=first).all_messages()
    third = agent.run_sync(f"So far: {second[-1].parts[-1].content}. Go on.").all_messages()  # type: ignore[union-attr]
    return [
        (
            "".join(part.content for part in message.parts if isinstance(part, TextPart)),
            [(p.tool_name, p.args_as_dict()) for p in message.parts if isinstance(p, ToolCallPart)],
        )
        for message in [*second, *third]
        if isinstance(message, ModelResponse)
    ]


AGENTS: dict[str, Callable[[int], Trace]] = {
    "openai": lambda index: openai_loop(index, stream=False),
    "openai-stream": lambda index: openai_loop(index, stream=True),
    "openai-wild": openai_wild,
    "anthropic": lambda index: anthropic_loop(index, stream=False),
    "anthropic-stream": lambda index: anthropic_loop(index, stream=True),
    "langgraph": langgraph_agent,
    "smolagents": smolagents_agent,
    "openai-agents": lambda index: openai_agents(index, stream=False),
    "openai-agents-stream": lambda index: openai_agents(index, stream=True),
    "pydantic-ai-chat": lambda index: pydantic_agent(index, "openai-chat"),
    "pydantic-ai-responses": lambda index: pydantic_agent(index, "openai"),
    "pydantic-ai-anthropic": lambda index: pydantic_agent(index, "anthropic"),
}

if __name__ == "__main__":
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    answers: Trace = []
    for number in range(rounds):
        answers += AGENTS[sys.argv[1]](number)
    Path(sys.argv[2]).write_text(json.dumps(answers))
