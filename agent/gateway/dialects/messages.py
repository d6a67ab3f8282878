"""Anthropic's messages: `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from ludus.messages import Message, Role

from ...trajectory import Finish
from ..wire import AgentAnswer, AgentRequest, GatewayRefusal
from .fields import (
    Body,
    call_of,
    content_of,
    event,
    integer,
    objects,
    overridden,
    schema_of,
    strings,
    tools_of,
    truth,
)

HEADER = "x-anthropic-billing-header"
"""A system line that a harness changes with each request: every prefix would break at it."""
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}


class AnthropicMessages:
    """Translates messages."""

    path = "/messages"

    def read(self, body: Mapping[str, Any]) -> AgentRequest:
        """Read a request; see `Dialect.read`."""
        if integer(body, "max_tokens") is None:
            raise GatewayRefusal("max_tokens is missing, and this protocol requires it")
        choice, form = body.get("tool_choice") or {}, body.get("output_config") or {}
        tools = objects(body.get("tools") or [], "tools")
        named = [tool.get("name") for tool in tools if "input_schema" not in tool]
        if named:
            raise GatewayRefusal(
                f"tools {named} run at the provider; send tools with an input_schema"
            )
        rows = objects(body.get("messages"), "messages")
        return AgentRequest(
            messages=[*_system(body.get("system")), *(each for row in rows for each in _read(row))],
            tools=list(tools_of(tools, "input_schema")),
            model=str(body.get("model") or "policy"),
            max_tokens=integer(body, "max_tokens"),
            stop=strings(body.get("stop_sequences"), "stop_sequences"),
            calls=choice.get("type") != "none",
            unforced=choice.get("type") in ("any", "tool"),
            parallel=truth(choice, "disable_parallel_tool_use") is not True,
            stream=truth(body, "stream") is True,
            schema=schema_of(form.get("format") or body.get("output_format"), "output_format"),
            overridden=overridden(body),
        )

    def reply(self, answer: AgentAnswer) -> dict[str, Any]:
        """Return the body of a reply."""
        choice = answer.choices[0]
        return _head(answer) | {
            "content": _blocks(choice.message, answer.id),
            **_end(answer),
            "usage": _usage(answer),
        }

    async def events(self, answer: AgentAnswer, request: AgentRequest) -> AsyncIterator[bytes]:
        """Yield the reply as events."""

        def named(kind: str, **fields: Any) -> bytes:
            return event({"type": kind, **fields}, kind)

        opened: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        usage = _usage(answer) | {"output_tokens": 0}
        yield named("message_start", message=_head(answer) | opened | {"usage": usage})
        for index, block in enumerate(_blocks(answer.choices[0].message, answer.id)):
            empty, deltas = _deltas(block)
            yield named("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield named("content_block_delta", index=index, delta=delta)
            yield named("content_block_stop", index=index)
        yield named("message_delta", delta=_end(answer), usage={"output_tokens": answer.sampled})
        yield named("message_stop")

    def error(self, refusal: GatewayRefusal) -> dict[str, Any]:
        """Return the body of an error."""
        kind = TYPES.get(refusal.status, "invalid_request_error")
        message = refusal.message
        if refusal.code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        return {"type": "error", "error": {"type": kind, "message": message}}


def _system(value: object) -> list[Message]:
    if isinstance(value, list):
        value = [
            block
            for block in objects(value, "system")
            if not str(block.get("text", "")).startswith(HEADER)
        ]
    content = content_of(value, "system")
    return [Message(role=Role.SYSTEM, content=content)] if content else []


def _read(row: Body) -> list[Message]:
    """Return the messages of a row: results of tools come before the text."""
    role, content = row.get("role"), row.get("content")
    if role not in ("user", "assistant", "system"):
        raise GatewayRefusal(f"messages has the role {role!r}; known are user and assistant")
    blocks = (
        [{"type": "text", "text": content}]
        if isinstance(content, str)
        else objects(content, "content")
    )
    kinds = {"tool_result", "tool_use", "thinking", "redacted_thinking"}
    text = content_of([block for block in blocks if block.get("type") not in kinds], "content")
    if role == "assistant":
        calls = [
            call_of(block.get("name"), block.get("input"), block.get("id"))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        thoughts = [str(block.get("thinking") or "") for block in blocks]
        message = Message(role=Role.ASSISTANT, content=text, tool_calls=calls)
        return [msgspec.structs.replace(message, reasoning="".join(thoughts))]
    results = [
        Message(
            role=Role.TOOL,
            content=content_of(block.get("content"), "content"),
            tool_call_id=str(block.get("tool_use_id") or ""),
        )
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    own = [Message(role=Role(role), content=text)] if text or not results else []
    return [*results, *own]


def _blocks(message: Message, identity: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        thinking = {"type": "thinking", "thinking": message.reasoning}
        blocks.append(thinking | {"signature": identity})
    if message.text or not message.tool_calls:
        blocks.append({"type": "text", "text": message.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return blocks


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the opening of a block, and the deltas that fill the block."""
    if block["type"] == "text":
        text = {"type": "text_delta", "text": block["text"]}
        return block | {"text": ""}, [text] if block["text"] else []
    if block["type"] == "thinking":
        return block | {"thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    written = msgspec.json.encode(block["input"]).decode()
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": written}]


def _end(answer: AgentAnswer) -> dict[str, str | None]:
    choice = answer.choices[0]
    if choice.message.tool_calls:
        reason = "tool_use"
    elif choice.stop:
        reason = "stop_sequence"
    else:
        reason = "max_tokens" if choice.finish is Finish.LENGTH else "end_turn"
    return {"stop_reason": reason, "stop_sequence": choice.stop or None}


def _head(answer: AgentAnswer) -> dict[str, Any]:
    identity = f"msg_{answer.id}"
    return {"id": identity, "type": "message", "role": "assistant", "model": answer.model}


def _usage(answer: AgentAnswer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.sampled,
    }
