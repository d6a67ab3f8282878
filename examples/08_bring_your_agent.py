"""Three agents of other projects, evaluated and trained as they are. Each needs its own package.

    pip install openai    # or: langgraph langchain-openai, or pydantic-ai-slim[openai]
    ludus eval ludus/arithmetic-v0 --policy local --model smollm2 --tasks 8 \
        --agent examples/08_bring_your_agent.py:openai_sdk
    ludus train grpo --env ludus/arithmetic-v0 --model.path MODEL \
        --agent examples/08_bring_your_agent.py:langgraph
"""

from ludus.agent.gateway import AgentTask


def openai_sdk(task: AgentTask) -> str:
    """A call of OpenAI's SDK."""
    from openai import OpenAI

    client = OpenAI(base_url=task.base_url, api_key=task.key)
    messages = [{"role": str(each.role), "content": each.text} for each in task.messages]
    answer = client.chat.completions.create(model=task.model, messages=messages)
    return answer.choices[0].message.content or ""


def langgraph(task: AgentTask) -> str:
    """A graph of LangGraph, which could hold tools."""
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model=task.model, base_url=task.base_url, api_key=task.key)
    graph = create_react_agent(model, tools=[])
    messages = [(str(each.role), each.text) for each in task.messages]
    return str(graph.invoke({"messages": messages})["messages"][-1].text)


def pydantic_ai(task: AgentTask) -> str:
    """An agent of Pydantic AI."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=task.base_url, api_key=task.key)
    system, *questions = [each.text for each in task.messages]
    agent = Agent(OpenAIChatModel(task.model, provider=provider), system_prompt=system)
    return agent.run_sync("\n".join(questions)).output
