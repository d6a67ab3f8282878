"""This module reads JSON as models write JSON, and refuses values that cannot be sent on.

Raw newlines inside strings are accepted, since models write them. Numbers must fit JSON and
msgpack, strings must be encodable, and the nesting is bounded, so that no later reader runs out of
stack.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ludus.errors import LudusError, Overloaded, RequestRejected, ServerFault, Unauthorized
from ludus.messages import Message, Part, Role, TextPart, ToolCall

from .limits import TokenUsage

CUT = "the call was cut by the token limit"
"""The error of the last call of a turn that was cut; this call is never executed."""
MAX_NESTED = 100
"""Largest number of lists and objects inside each other."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise ValueError(f"the number {digits[:24]} does not fit 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    if not math.isfinite(float(digits)):
        raise ValueError(f"the number {digits[:24]} is too large")
    return float(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


decoder = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def fault_of(decoded: object) -> str:
    """Return why a decoded value cannot be sent on; "" for a value without fault."""
    level: list[object] = [decoded]
    for _ in range(MAX_NESTED + 1):
        if any(isinstance(value, str) and _SURROGATE.search(value) for value in level):
            return "half of a surrogate pair is not text"
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                deeper += value
        if not deeper:
            return ""
        level = deeper
    return f"values are nested more than {MAX_NESTED} deep"


_NO_OBJECT = "arguments must be an object"


def read_arguments(arguments: object) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call, and the fault that makes the arguments useless, or "".

    Some models encode arguments twice, and some write nothing or null for no arguments.
    """
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}, ""
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        try:
            arguments = decoder.decode(arguments.strip())
        except (ValueError, RecursionError) as error:
            return {}, f"arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return {}, _NO_OBJECT
    fault = fault_of(arguments)
    return ({}, fault) if fault else (arguments, "")


SEEN_BELOW = "The result is shown below."
"""The text of a tool's result that is nothing but images."""
UNREADABLE = "unreadable_call"
"""Name under which a model is shown a call of its own that had no readable name."""


class ContextTooLong(RequestRejected):
    """The conversation does not fit the model's context window."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the model."""

    message: Message
    finish: str
    """stop, length, tool_calls or content_filter, as reported by the server."""
    usage: TokenUsage | None = None
    """The tokens used; None where the server does not count tokens."""
    cached: bool = False
    first_token: dict[str, float] | None = None
    """Log-probability of each text that the first token may have, where the request asked for
    `top_logprobs` and the server reports them.
    """
    reasoning_field: str = ""
    """The field in which the server wrote the model's thoughts; servers read them from the same
    field in later requests. Empty if there were none.
    """


def row_of(message: Message, reasoning_field: str = "") -> dict[str, Any]:
    """Convert a message to the chat format; a tool's message is text, see `messages_row`.

    Args:
        message: the message.
        reasoning_field: the field for the model's thoughts; if empty, thoughts are left out.
    """
    # The format has no images in a tool's message; `messages_row` shows them below the result.
    content = message.text or SEEN_BELOW if _shows_result(message) else _content(message.content)
    marked = message.thought_marks is not None  # the server left the thoughts in the text
    row: dict[str, Any] = {
        "role": str(message.role),
        "content": message.written if marked else content,
    }
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name or UNREADABLE,  # servers refuse a call without a name
                    "arguments": msgspec.json.encode(call.arguments).decode(),
                },
            }
            for call in message.tool_calls
        ]
    if reasoning_field and message.reasoning and not marked:
        row[reasoning_field] = message.reasoning
    if message.role is Role.TOOL:
        row["tool_call_id"] = message.tool_call_id
    elif message.name:
        row["name"] = message.name
    return row


def _shows_result(message: Message) -> bool:
    """Say whether a message is a tool's and shows images."""
    return message.role is Role.TOOL and bool(message.images)


def _content(content: str | list[Part]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    rows: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, TextPart):
            rows.append({"type": "text", "text": part.text})
            continue
        url = part.url
        if not url:  # a `data:` URL has to name the type, which the first bytes tell
            kind = "png"
            if part.data.startswith(b"\xff\xd8\xff"):
                kind = "jpeg"
            elif part.data[8:12] == b"WEBP":
                kind = "webp"
            url = f"data:image/{kind};base64,{base64.b64encode(part.data).decode()}"
        rows.append({"type": "image_url", "image_url": {"url": url}})
    return rows


class _Function(msgspec.Struct):
    name: str | None = ""
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = ""


class _Answer(msgspec.Struct):
    role: str | None = None
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Candidate(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    top_logprobs: list[_Candidate] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    message: _Answer
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: TokenUsage | None = None


def read_reply(body: bytes) -> Completion:
    """Read an answer.

    Raises:
        ServerFault: the body is not a chat completion, or the message is not the assistant's.
    """
    try:
        reply = msgspec.json.decode(body, type=_Reply)
        choice = reply.choices[0]
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise ServerFault(f"not a chat completion: {error}: {body[:120]!r}") from None
    answer, was_cut = choice.message, choice.finish_reason == "length"
    if answer.role not in (None, "", Role.ASSISTANT):
        raise ServerFault(f"the server's message has the role {answer.role!r}, not 'assistant'")
    content = answer.content or ""
    if isinstance(content, list):  # some servers write the text in parts
        content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    field = "reasoning_content" if answer.reasoning_content else "reasoning"
    reasoning = answer.reasoning_content or answer.reasoning or ""
    tokens = choice.logprobs.content if choice.logprobs is not None else None
    candidates = tokens[0].top_logprobs if tokens else None
    return Completion(
        message=Message(
            role=Role.ASSISTANT,
            content=content,
            tool_calls=_read_calls(answer, was_cut=was_cut),
            reasoning=reasoning,
        ),
        finish=choice.finish_reason or "stop",
        usage=reply.usage,
        first_token=_by_text(candidates) if candidates else None,
        reasoning_field=field if reasoning else "",
    )


def _by_text(candidates: Sequence[_Candidate]) -> dict[str, float]:
    """Return the log-probability of each text; the probabilities of different tokens with the same
    text (`1` at the start and in the middle of a word) are added.
    """
    logprobs: dict[str, float] = {}
    for each in candidates:
        total = each.logprob
        if each.token in logprobs:
            low, high = sorted((each.logprob, logprobs[each.token]))
            total = high + math.log1p(math.exp(low - high))
        logprobs[each.token] = total
    return logprobs


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def read_models(body: bytes) -> list[str]:
    """Return the models that a server lists; none if the server answers in another form."""
    try:
        return [model.id for model in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _read_calls(answer: _Answer, *, was_cut: bool) -> list[ToolCall]:
    """Return the calls of an answer, in order.

    A call whose arguments are not a JSON object carries an error and is never executed. With
    `was_cut`, the last call is not executed either, however complete the call looks.
    """
    rows = answer.tool_calls or []
    if answer.function_call is not None:  # as older servers write the only call
        rows = [*rows, _Call(function=answer.function_call)]
    calls: list[ToolCall] = []
    for index, row in enumerate(rows):
        # A call without an id gets one of nine letters and digits, as Mistral's servers demand.
        name, identity = row.function.name or "", row.id or f"call{index:05d}"
        arguments, fault = read_arguments(row.function.arguments)
        calls.append(ToolCall(name=name, arguments=arguments, id=identity, error=fault))
    if calls and was_cut:
        calls[-1] = ToolCall(name=calls[-1].name, id=calls[-1].id, error=CUT)
    return calls


def error_of(status: int, body: bytes, retry_after_s: float | None) -> LudusError:
    """Return the typed error for a reply that is not a success."""
    text = body[:200].decode("utf-8", "replace").strip() or "no body"
    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # servers differ in the form
        decoded = msgspec.json.decode(body)
        error = decoded.get("error", decoded) if isinstance(decoded, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            text = " ".join(str(error[key]) for key in ("message", "code") if error.get(key))
    message = f"HTTP {status}: {text[:400]}"
    if status in (401, 403):
        return Unauthorized(f"{message}; hand in the server's API key")
    if status == 429:
        return Overloaded(message, 1.0 if retry_after_s is None else retry_after_s)
    if status >= 500 or status == 408:
        return ServerFault(message)
    if "context_length" in message or "context length" in message:
        return ContextTooLong(message)
    return RequestRejected(message)


def messages_row(messages: Sequence[Message], reasoning_field: str = "") -> list[dict[str, Any]]:
    """Convert a conversation to the chat format.

    The format has no images in a tool's message. The images of all results of a turn follow these
    results in one user message, each with the name of its tool. See `row_of` for `reasoning_field`.
    """
    rows: list[dict[str, Any]] = []
    waiting: list[Part] = []
    for index, message in enumerate(messages):
        rows.append(row_of(message, reasoning_field))
        if _shows_result(message):
            label = TextPart(f"Images of the result of {message.name or message.tool_call_id}:")
            waiting += [label, *message.images]
        last = index + 1 == len(messages) or messages[index + 1].role is not Role.TOOL
        # Nothing may stand between the results of a turn, so the images wait for the last of them.
        if waiting and last:
            rows.append({"role": str(Role.USER), "content": _content(waiting)})
            waiting = []
    return rows
