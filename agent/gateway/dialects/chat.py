"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from ludus.messages import Message, Role

from ...trajectory import Finish
from ..wire import AgentAnswer, AgentRequest, Choice, GatewayRefusal
from .fields import (
    arguments_text,
    call_of,
    content_of,
    event,
    integer,
    objects,
    openai_error,
    overridden,
    refuse,
    schema_of,
    strings,
    tools_of,
    truth,
)

REFUSED = {
    "logit_bias": "it would change what the policy samples",
    "top_logprobs": "only sampled tokens have a log-probability, which logprobs alone asks for",
    "functions": "the old form of tools is not read; send tools",
    "audio": "the gateway carries text",
    "prediction": "the policy samples every token itself",
}
ROLES = {"developer": Role.SYSTEM} | {str(role): role for role in Role}


class ChatCompletions:
    """Translates chat completions."""

    path = "/chat/completions"

    def read(self, body: Mapping[str, Any]) -> AgentRequest:
        """Read a request; see `Dialect.read`."""
        refuse(body, REFUSED)
        if "messages" not in body:
            raise GatewayRefusal("messages is missing", parameter="messages")
        choice = body.get("tool_choice")
        samples = integer(body, "n")
        tools = [row.get("function") or {} for row in objects(body.get("tools") or [], "tools")]
        return AgentRequest(
            messages=[_message(row) for row in objects(body["messages"], "messages")],
            tools=list(tools_of(tools, "parameters")),
            model=str(body.get("model") or "policy"),
            max_tokens=integer(body, "max_completion_tokens") or integer(body, "max_tokens"),
            samples=1 if samples is None else samples,
            stop=strings(body.get("stop"), "stop"),
            calls=choice != "none",
            unforced=choice == "required" or isinstance(choice, dict),
            parallel=truth(body, "parallel_tool_calls") is not False,
            stream=truth(body, "stream") is True,
            usage_in_stream=truth(body.get("stream_options") or {}, "include_usage") is True,
            logprobs=truth(body, "logprobs") is True,
            schema=schema_of(body.get("response_format"), "response_format"),
            overridden=overridden(body),
        )

    def reply(self, answer: AgentAnswer) -> dict[str, Any]:
        """Return the body of a reply."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "refusal": None} | _written(choice.message),
                "finish_reason": _finish(choice),
                "logprobs": _logprobs(choice),
            }
            for index, choice in enumerate(answer.choices)
        ]
        return _head(answer, "chat.completion") | {"choices": choices, "usage": _usage(answer)}

    async def events(self, answer: AgentAnswer, request: AgentRequest) -> AsyncIterator[bytes]:
        """Yield the reply as events."""
        head = _head(answer, "chat.completion.chunk")

        def chunk(index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": index, "delta": delta, "finish_reason": finish}
            return event(head | {"choices": [choice]})

        for index, choice in enumerate(answer.choices):
            message = choice.message
            yield chunk(index, {"role": "assistant", "content": ""})
            if message.reasoning:
                yield chunk(index, {"reasoning_content": message.reasoning})
            if message.text:
                yield chunk(index, {"content": message.text})
            for position, call in enumerate(message.tool_calls):
                function = {"name": call.name, "arguments": ""}
                opened = {"index": position, "id": call.id, "type": "function"}
                yield chunk(index, {"tool_calls": [opened | {"function": function}]})
                part = {"index": position, "function": {"arguments": arguments_text(call)}}
                yield chunk(index, {"tool_calls": [part]})
            if choice.tokens:
                last = {"index": index, "delta": {}, "finish_reason": None}
                yield event(head | {"choices": [last | {"logprobs": _logprobs(choice)}]})
            yield chunk(index, {}, _finish(choice))
        if request.usage_in_stream:
            yield event(head | {"choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, refusal: GatewayRefusal) -> dict[str, Any]:
        """Return the body of an error."""
        return openai_error(refusal)


def _message(row: Mapping[str, Any]) -> Message:
    role = ROLES.get(str(row.get("role")))
    if role is None:
        raise GatewayRefusal(
            f"messages has the role {row.get('role')!r}; known are {', '.join(sorted(ROLES))}",
            parameter="messages",
        )
    if row.get("function_call"):
        raise GatewayRefusal(
            f"messages has function_call = {row['function_call']!r:.80}: the old form of calls is "
            "not read; send tool_calls, each with an id",
            parameter="messages",
        )
    calls = [
        call_of(function.get("name"), function.get("arguments"), call.get("id"))
        for call in objects(row.get("tool_calls") or [], "tool_calls")
        for function in [call.get("function") or {}]
    ]
    return Message(
        role=role,
        content=content_of(row.get("content"), "content"),
        tool_calls=calls if role is Role.ASSISTANT else [],
        tool_call_id=str(row.get("tool_call_id") or "") if role is Role.TOOL else "",
        name=str(row.get("name") or "") if role is Role.TOOL else "",
        reasoning=str(row.get("reasoning_content") or row.get("reasoning") or ""),
    )


def _written(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"content": message.text or (None if message.tool_calls else "")}
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in message.tool_calls
        ]
    return row


def _finish(choice: Choice) -> str:
    if choice.message.tool_calls:
        return "tool_calls"
    return "length" if choice.finish is Finish.LENGTH else "stop"


def _logprobs(choice: Choice) -> dict[str, Any] | None:
    if not choice.tokens:
        return None
    rows = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logprob in choice.tokens
    ]
    return {"content": rows, "refusal": None}


def _head(answer: AgentAnswer, kind: str) -> dict[str, Any]:
    identity = f"chatcmpl-{answer.id}"
    return {"id": identity, "object": kind, "created": answer.created, "model": answer.model}


def _usage(answer: AgentAnswer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.sampled,
        "total_tokens": answer.prompt_tokens + answer.sampled,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
