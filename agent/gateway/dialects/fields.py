"""Reading the fields of a request, whatever the dialect."""

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
"""Fields that belong to the trainer: they are counted, and change nothing."""

Body = Mapping[str, Any]


def overridden(body: Body) -> dict[str, Any]:
    """Return the sampling fields that the client sent."""
    return {name: body[name] for name in SAMPLING if body.get(name) is not None}


def refuse(body: Body, names: Mapping[str, str]) -> None:
    """Refuse fields that change the answer and that the gateway cannot honour.

    Args:
        body: the request.
        names: why each field is refused.
    """
    for name, why in names.items():
        if body.get(name):
            value = msgspec.json.encode(body[name]).decode()[:80]
            raise GatewayRefusal(f"{name} = {value}: {why}; leave it out", parameter=name)


def integer(body: Body, name: str, *, least: int = 1) -> int | None:
    """Return a whole number, or None for an absent field."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GatewayRefusal(
            f"{name} = {value!r}: give a whole number of at least {least}", parameter=name
        )
    return value


def objects(value: object, name: str) -> list[dict[str, Any]]:
    """Return a list of objects."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        kind = type(value).__name__
        raise GatewayRefusal(f"{name} must be a list of objects, and is a {kind}", parameter=name)
    return value


def strings(value: object, name: str) -> list[str]:
    """Return a string or a list of strings as a list, without empty strings."""
    each = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if value is not None and not all(isinstance(text, str) for text in each or [0]):
        raise GatewayRefusal(
            f"{name} = {value!r}: give a string or a list of strings", parameter=name
        )
    return [text for text in each if text]


def content_of(value: object, name: str) -> str | list[Part]:
    """Return the content of a message: text, or parts if the message has an image."""
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
            parts.append(ImagePart(url=_image_url(part)))
        else:
            raise GatewayRefusal(
                f"{name} has a part of type {kind!r}: the gateway carries text", parameter=name
            )
    if any(isinstance(part, ImagePart) for part in parts):
        return parts
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _image_url(part: Body) -> str:
    """Return an image as a URL: OpenAI sends a URL, Anthropic also base64 with a media type."""
    source = part.get("image_url") or part.get("source") or {}
    if isinstance(source, str):
        return source
    if isinstance(source.get("data"), str):
        return f"data:{source.get('media_type') or 'image/png'};base64,{source['data']}"
    return str(source.get("url") or "")


def schema_of(form: Any, name: str) -> str:
    """Return the JSON schema of a response format, as JSON; empty for text.

    OpenAI's chat completions keep the schema in a field `json_schema`, the others beside the type.
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
    """Return a call of the history."""
    read, fault = read_arguments(arguments)
    return ToolCall(name=str(name or ""), arguments=read, id=str(identity or ""), error=fault)


def tools_of(rows: Sequence[Body], parameters: str) -> Iterator[ToolSpec]:
    """Yield the tools on offer, whose schema stands under `parameters`."""
    for row in rows:
        name, schema = row.get("name"), row.get(parameters) or {"type": "object", "properties": {}}
        if not isinstance(name, str) or not name or not isinstance(schema, dict):
            raise GatewayRefusal(
                f"tools has an entry without a name or with a schema that is no object: {row}",
                parameter="tools",
            )
        yield ToolSpec(name=name, description=str(row.get("description") or ""), parameters=schema)


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return msgspec.json.encode(call.arguments).decode()


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


OPENAI_ERRORS = {401: "authentication_error", 404: "not_found_error", 503: "server_error"}


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
