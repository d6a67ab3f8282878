"""OpenAI's responses without state: `POST /v1/responses`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, system, user

from ...trajectory import Finish
from ..wire import AgentAnswer, AgentRequest, GatewayRefusal, ToolForm
from .fields import (
    Body,
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
    tools_of,
    truth,
)

REFUSED = {
    "previous_response_id": "the gateway keeps no conversations; send the whole input",
    "conversation": "the gateway keeps no conversations; send the whole input",
    "background": "answers are given when they are asked for",
    "prompt": "templates are the provider's; send instructions and input",
    "top_logprobs": "log-probabilities are given by /v1/chat/completions, those of sampled tokens",
}
LOGPROBS = "message.output_text.logprobs"
CALLS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
"""By type of item: its field, and the events in which the field is streamed."""
CHOICES = ("function", "custom", "allowed_tools")
"""The types of `tool_choice` that name tools of the client."""
FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
ROLES = {"developer": Role.SYSTEM, "system": Role.SYSTEM, "user": Role.USER}


class OpenAIResponses:
    """Translates responses."""

    path = "/responses"

    def read(self, body: Mapping[str, Any]) -> AgentRequest:
        """Read a request; see `Dialect.read`."""
        refuse(body, REFUSED)
        if LOGPROBS in (body.get("include") or []):
            raise GatewayRefusal(
                f"include has {LOGPROBS!r}: {REFUSED['top_logprobs']}; leave it out",
                parameter="include",
            )
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") not in CHOICES:
            raise GatewayRefusal(
                f"tool_choice {choice.get('type')!r} runs at the provider; choose a function",
                parameter="tool_choice",
            )
        tools, forms, hidden = _offered(objects(body.get("tools") or [], "tools"))
        given = body.get("input")
        messages = [user(given)] if isinstance(given, str) else _messages(objects(given, "input"))
        if instructions := body.get("instructions"):
            messages.insert(0, system(str(instructions)))
        return AgentRequest(
            messages=messages,
            tools=tools,
            forms=forms,
            hidden=hidden,
            model=str(body.get("model") or "policy"),
            max_tokens=integer(body, "max_output_tokens"),
            calls=choice != "none",
            unforced=choice == "required" or isinstance(choice, dict),
            parallel=truth(body, "parallel_tool_calls") is not False,
            stream=truth(body, "stream") is True,
            schema=schema_of((body.get("text") or {}).get("format"), "text.format"),
            overridden=overridden(body),
        )

    def reply(self, answer: AgentAnswer) -> dict[str, Any]:
        """Return the body of a reply."""
        was_cut = answer.choices[0].finish is Finish.LENGTH
        return _head(answer, "incomplete" if was_cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if was_cut else None,
            "output": _items(answer),
            "usage": {
                "input_tokens": answer.prompt_tokens,
                "input_tokens_details": {"cached_tokens": answer.cached_tokens},
                "output_tokens": answer.sampled,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.prompt_tokens + answer.sampled,
            },
        }

    async def events(self, answer: AgentAnswer, request: AgentRequest) -> AsyncIterator[bytes]:
        """Yield the reply as events."""
        number = count()

        def named(kind: str, **fields: Any) -> bytes:
            return event({"type": kind, "sequence_number": next(number), **fields}, kind)

        opened = _head(answer, "in_progress") | {"output": [], "usage": None}
        yield named("response.created", response=opened)
        yield named("response.in_progress", response=opened)
        for index, item in enumerate(_items(answer)):
            place = {"output_index": index, "item_id": item["id"]}
            if item["type"] in CALLS:
                field, kind = CALLS[item["type"]]
                empty = item | {field: "", "status": "in_progress"}
                yield named("response.output_item.added", output_index=index, item=empty)
                yield named(f"response.{kind}.delta", **place, delta=item[field])
                yield named(f"response.{kind}.done", **place, **{field: item[field]})
            elif item["type"] == "message":
                empty = item | {"content": [], "status": "in_progress"}
                yield named("response.output_item.added", output_index=index, item=empty)
                part = item["content"][0]
                place |= {"content_index": 0}
                yield named("response.content_part.added", **place, part=part | {"text": ""})
                if part["text"]:
                    text = {"delta": part["text"], "logprobs": []}
                    yield named("response.output_text.delta", **place, **text)
                whole = {"text": part["text"], "logprobs": []}
                yield named("response.output_text.done", **place, **whole)
                yield named("response.content_part.done", **place, part=part)
            else:
                empty = item | {"summary": []}
                yield named("response.output_item.added", output_index=index, item=empty)
            yield named("response.output_item.done", output_index=index, item=item)
        body = self.reply(answer)
        yield named(f"response.{body['status']}", response=body)

    def error(self, refusal: GatewayRefusal) -> dict[str, Any]:
        """Return the body of an error."""
        return openai_error(refusal)


def _offered(
    rows: Sequence[Body], group: str = ""
) -> tuple[list[ToolSpec], dict[str, ToolForm], int]:
    """Return the tools on offer, the forms of tools that are no plain functions, and the number of
    tools that run at the provider and are left out; `group` is the namespace of the rows.
    """
    tools: list[ToolSpec] = []
    forms: dict[str, ToolForm] = {}
    hidden = 0
    for row in rows:
        # In a namespace a tool without a type is a function.
        kind = row.get("type") or ("function" if group else None)
        if kind in ("function", "custom"):
            is_free = kind == "custom"
            shaped = {**row, "parameters": FREE_TEXT} if is_free else row
            (tool,) = tools_of([shaped], "parameters")
            seen = msgspec.structs.replace(tool, name=_seen_name(tool.name, group))
            if group or is_free:
                forms[seen.name] = ToolForm(tool.name, namespace=group, is_free=is_free)
            tools.append(seen)
        elif kind == "namespace" and not group:
            inner = _offered(objects(row.get("tools"), "tools"), str(row.get("name") or ""))
            tools += inner[0]
            forms |= inner[1]
            hidden += inner[2]
        else:
            hidden += 1
    return tools, forms, hidden


def _seen_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _messages(items: list[dict[str, Any]]) -> list[Message]:
    """Return the messages of a list of items; consecutive items of the policy's turn form a single
    message.
    """
    messages: list[Message] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind in ("function_call_output", "custom_tool_call_output"):
            output = content_of(item.get("output"), "output")
            result = Message(role=Role.TOOL, content=output, tool_call_id=str(item.get("call_id")))
            messages.append(result)
        elif kind in CALLS or item.get("role") == "assistant":
            piece = _piece(item)
            if messages and messages[-1].role is Role.ASSISTANT:
                first = messages.pop()
                piece = msgspec.structs.replace(
                    first,
                    content=first.text + piece.text,
                    tool_calls=[*first.tool_calls, *piece.tool_calls],
                )
            messages.append(piece)
        elif kind == "message":
            role = ROLES.get(str(item.get("role")))
            if role is None:
                raise GatewayRefusal(f"input has the role {item.get('role')!r}", parameter="input")
            messages.append(Message(role=role, content=content_of(item.get("content"), "content")))
        # Thoughts and items of kinds to come are passed over: the ids of the turn hold them.
    return messages


def _piece(item: Body) -> Message:
    if item.get("type") in CALLS:
        name = _seen_name(str(item.get("name") or ""), str(item.get("namespace") or ""))
        arguments: object = item.get("arguments")
        if item["type"] == "custom_tool_call":
            arguments = {"input": str(item.get("input") or "")}
        return Message(
            role=Role.ASSISTANT, tool_calls=[call_of(name, arguments, item.get("call_id"))]
        )
    return Message(role=Role.ASSISTANT, content=content_of(item.get("content"), "content"))


def _items(answer: AgentAnswer) -> list[dict[str, Any]]:
    message = answer.choices[0].message
    items: list[dict[str, Any]] = []
    if message.reasoning:
        summary = [{"type": "summary_text", "text": message.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary})
    if message.text or not message.tool_calls:
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
        head = {"type": "message", "id": f"msg_{answer.id}", "role": "assistant"}
        items.append(head | {"status": "completed", "content": [part]})
    for call in message.tool_calls:
        form = answer.forms.get(call.name) or ToolForm(call.name)
        item = {"id": f"fc_{call.id}", "call_id": call.id, "name": form.name, "status": "completed"}
        group = {"namespace": form.namespace} if form.namespace else {}
        if form.is_free:
            text = str(call.arguments.get("input", ""))
            items.append(item | group | {"type": "custom_tool_call", "input": text})
            continue
        arguments = arguments_text(call)
        items.append(item | group | {"type": "function_call", "arguments": arguments})
    return items


def _head(answer: AgentAnswer, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": None,
        "top_p": None,
    }
