"""Agents as their projects' pages write them. Nothing here knows of ludus: the base URLs and keys
come from the environment, as for any model's server.

    python agents_played.py NAME
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

MODEL, TURNS = "any-name", 4


def look(key: str, depth: int = 0) -> str:
    """Look something up.

    Args:
        key: what to look up.
        depth: how deep to look.
    """
    return f"found {key} at {depth}"


SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}, "depth": {"type": "integer"}}}


def openai_loop(*, stream: bool) -> None:
    from openai import OpenAI

    client = OpenAI()
    function = {"name": "look", "description": "Look something up.", "parameters": SCHEMA}
    tools: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "user", "content": f"begin, stream {stream}"}]
    for _ in range(TURNS):
        asked: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**asked) as events:
                for _event in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "ok"})
        if not message.tool_calls:
            messages.append({"role": "user", "content": "go on"})


def anthropic_loop(*, stream: bool) -> None:
    import anthropic

    client = anthropic.Anthropic()
    messages: list[Any] = [{"role": "user", "content": f"begin, stream {stream}"}]
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
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        messages.append({"role": "user", "content": results or "go on"})
    client.messages.count_tokens(model=MODEL, messages=messages)


def langgraph_agent() -> None:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(ChatOpenAI(model=MODEL), [look])
    agent.invoke({"messages": [("user", "begin")]}, {"recursion_limit": 20})


def smolagents_agent() -> None:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    model = OpenAIModel(
        model_id=MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    ToolCallingAgent(tools=[tool(look)], model=model, max_steps=TURNS).run("begin")


def openai_agents(*, stream: bool) -> None:
    from agents import Agent, Runner, function_tool

    agent = Agent(name="a", instructions="Be brief.", tools=[function_tool(look)], model=MODEL)

    async def run() -> None:
        if not stream:
            await Runner.run(agent, "begin", max_turns=8)
            return
        streamed = Runner.run_streamed(agent, "begin", max_turns=8)
        async for _ in streamed.stream_events():
            pass

    asyncio.run(run())


def pydantic_agent(model: str) -> None:
    from pydantic_ai import Agent

    Agent(f"{model}:{MODEL}", tools=[look]).run_sync("begin")


AGENTS: dict[str, Callable[[], None]] = {
    "openai": lambda: openai_loop(stream=False),
    "openai-stream": lambda: openai_loop(stream=True),
    "anthropic": lambda: anthropic_loop(stream=False),
    "anthropic-stream": lambda: anthropic_loop(stream=True),
    "langgraph": langgraph_agent,
    "smolagents": smolagents_agent,
    "openai-agents": lambda: openai_agents(stream=False),
    "openai-agents-stream": lambda: openai_agents(stream=True),
    "pydantic-ai-chat": lambda: pydantic_agent("openai-chat"),
    "pydantic-ai-responses": lambda: pydantic_agent("openai"),
    "pydantic-ai-anthropic": lambda: pydantic_agent("anthropic"),
}

if __name__ == "__main__":
    AGENTS[sys.argv[1]]()
