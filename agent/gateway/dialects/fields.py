"""What all dialects share: reading fields of a request, and writing events and OpenAI's errors.

A field of an unexpected shape may raise AttributeError, KeyError, TypeError or ValueError: the
service tells the client that the field has another shape than the protocol's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import read_arguments
from ludus.messages import ImagePart, Part, TextPart, ToolCall

from ..wire import GatewayRefusal

SAMPLING = (
    "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "min_p",
    "repetition_penalty",
)  # fmt: skip
"""Fields that the trainer decides: a field of a client is counted, and changes nothing."""

Body = Mapping[str, Any]
"""A request, or an object inside one."""


def overridden(body: Body) -> dict[str, Any]:
    """Return the sampling fields that the client sent."""
    return {name: body[name] for name in SAMPLING if body.get(name) is not None}


def refuse(body: Body, reasons: Mapping[str, str]) -> None:
    """Refuse fields that change the answer and that the gateway cannot honour.

    Args:
        body: the request.
        reasons: why each field is refused, by the field's name. A field that is false, empty or 0
            asks for nothing, and is not refused.

    Raises:
        GatewayRefusal: the request has such a field.
    """
    for name, reason in reasons.items():
        if body.get(name):
            value = msgspec.json.encode(body[name]).decode()[:80]
            raise GatewayRefusal(f"{name} = {value}: {reason}; leave it out", parameter=name)


def integer(body: Body, name: str, *, least: int = 1) -> int | None:
    """Return the whole number in a field, or None for an absent field.

    Raises:
        GatewayRefusal: the value is something else, or below `least`.
    """
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GatewayRefusal(
            f"{name} = {value!r}: give a whole number of at least {least}", parameter=name
        )
    return value


def truth(body: Body, name: str) -> bool | None:
    """Return the truth value in a field, or None for an absent field.

    Raises:
        GatewayRefusal: the value is something else, such as the text "false".
    """
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise GatewayRefusal(f"{name} = {value!r:.80}: give true or false", parameter=name)
    return value


def objects(value: object, name: str) -> list[dict[str, Any]]:
    """Check that a value is a list of objects, and return the value.

    Raises:
        GatewayRefusal: the value is something else; the message names the field `name`.
    """
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        kind = type(value).__name__
        raise GatewayRefusal(f"{name} must be a list of objects, and is a {kind}", parameter=name)
    return value


def strings(value: object, name: str) -> list[str]:
    """Return a string or a list of strings as a list, without empty strings; [] for None.

    Raises:
        GatewayRefusal: `value` is something else; the message names the field `name`.
    """
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise GatewayRefusal(
            f"{name} = {value!r:.200}: give a string or a list of strings", parameter=name
        )
    return [text for text in texts if text]


def content_of(value: object, name: str) -> str | list[Part]:
    """Return the content of a message: a text, or the parts of a message with an image.

    Raises:
        GatewayRefusal: a part is neither text nor an image.
    """
    if value is None or isinstance(value, str):
        return value or ""
    parts: list[Part] = []
    for part in objects(value, name):
        kind = part.get("type")
        if isinstance(part.get("text"), str):
            parts.append(TextPart(part["text"]))
        elif isinstance(part.get("refusal"), str):
            parts.append(TextPart(part["refusal"]))
        elif kind in ("image_url", "input_image", "image"):
            parts.append(ImagePart(url=_image_url(part, name)))
        else:
            raise GatewayRefusal(
                f"{name} has a part of type {kind!r}: the gateway carries text and images",
                parameter=name,
            )
    if any(isinstance(part, ImagePart) for part in parts):
        return parts
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _image_url(part: Body, name: str) -> str:
    """Return an image as a URL: OpenAI sends a URL, Anthropic also base64 with a media type."""
    source = part.get("image_url") or part.get("source") or {}
    if isinstance(source, str):
        return source
    if isinstance(source.get("data"), str):
        return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    url = str(source.get("url") or "")
    if not url:
        raise GatewayRefusal(f"{name} has an image without a URL or data", parameter=name)
    return url


def schema_of(form: Any, name: str) -> str:
    """Return the JSON schema of a response format, as JSON; empty for text.

    OpenAI's chat completions keep the schema in a field `json_schema`, the others beside the type.

    Raises:
        GatewayRefusal: the format is unknown, or has no schema; the message names the field `name`.
    """
    named: dict[str, Any] = form if isinstance(form, dict) else {"type": form or "text"}
    kind = named.get("type", "text")
    if kind == "text":
        return ""
    schema: Any = {"type": "object"} if kind == "json_object" else None
    if kind == "json_schema":
        schema = (named.get("json_schema") or named).get("schema")
    if not isinstance(schema, dict):
        raise GatewayRefusal(
            f"{name} {kind!r}: ask for text, json_object or json_schema, which needs a schema that "
            "is an object",
            parameter=name,
        )
    return msgspec.json.encode(schema).decode()


def call_of(name: object, arguments: object, identity: object) -> ToolCall:
    """Return a call of the conversation. Arguments that are not JSON become the call's `error`."""
    read, fault = read_arguments(arguments)
    return ToolCall(name=str(name or ""), arguments=read, id=str(identity or ""), error=fault)


def tools_of(rows: Sequence[Body], parameters: str) -> Iterator[ToolSpec]:
    """Yield the tools on offer.

    Args:
        rows: the tools as the dialect has them.
        parameters: the key of the schema of a tool's parameters.

    Raises:
        GatewayRefusal: a tool has no name, or a schema that is no object.
    """
    for row in rows:
        name, schema = row.get("name"), row.get(parameters) or {"type": "object", "properties": {}}
        if not isinstance(name, str) or not name or not isinstance(schema, dict):
            raise GatewayRefusal(
                "tools has an entry without a name or with a schema that is no object: "
                f"{row!r:.200}",
                parameter="tools",
            )
        yield ToolSpec(name=name, description=str(row.get("description") or ""), parameters=schema)


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return msgspec.json.encode(call.arguments).decode()


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event with JSON. Without a name, the event has no line `event:`."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


OPENAI_ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
    503: "server_error",
}
"""The type of an error by status; all others are an `invalid_request_error`."""


def openai_error(refusal: GatewayRefusal) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    return {
        "error": {
            "message": refusal.message,
            "type": OPENAI_ERRORS.get(refusal.status, "invalid_request_error"),
            "param": refusal.parameter,
            "code": refusal.code,
        }
    }
