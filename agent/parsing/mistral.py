"""The formats of Mistral: a JSON list up to its seventh tokenizer, a name and arguments from the
eleventh on.

    [TOOL_CALLS] [{"name": "search", "arguments": {"query": "x"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]search[ARGS]{"query": "x"}[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}

Each of the two formats reads calls of both kinds, and writes its own. Ids have nine letters or
digits, since Mistral's own templates and servers refuse others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .arguments import CUT, after_space, decoder, numbered
from .marked_json import JsonGrammar
from .scan import scan

_CALLS, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_GRAMMAR = JsonGrammar(
    beginning=re.compile(re.escape(_CALLS)),
    header=re.compile(
        rf"{re.escape(_CALLS)}\s*(?P<name>[^\s\[\]{{}}\"]{{1,256}})\s*"
        rf"(?:{re.escape(_ID)}\s*(?P<id>[A-Za-z0-9]{{9}})\s*)?(?:{re.escape(_ARGUMENTS)}|(?=\{{))"
    ),
    closing=None,
    form=f"a call is {_CALLS}name{_ARGUMENTS}, then a JSON object",
)
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


class MistralV11Format:
    """Calls of Mistral models from the eleventh tokenizer on: a name, then arguments."""

    name = "mistral_v11"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read_calls = partial(_read, complete=complete)
        message = scan(text, _GRAMMAR.find, read_calls)
        calls = [_with_id(call, number) for number, call in enumerate(message.tool_calls)]
        return msgspec.structs.replace(message, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "".join(
            f"{_CALLS}{call.name}{_ARGUMENTS}{json.dumps(call.arguments, ensure_ascii=False)}"
            for call in calls
        )

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return an id that this model's templates accept; see `HasCallIds`."""
        return _with_id(call, number).id


class MistralV3Format(MistralV11Format):
    """Calls of Mistral models up to the seventh tokenizer: a JSON list."""

    name = "mistral_v3"

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        rows = [
            {"name": call.name, "arguments": call.arguments}
            | ({"id": call.id} if _MISTRAL_ID.fullmatch(call.id) else {})
            for call in calls
        ]
        return f"{_CALLS} {json.dumps(rows, ensure_ascii=False)}" if calls else ""


def _with_id(call: ToolCall, number: int) -> ToolCall:
    """Return the call with its own id if that has nine characters, else with one of its number."""
    if _MISTRAL_ID.fullmatch(call.id):
        return call
    return msgspec.structs.replace(call, id=f"call{number:05d}")


def _read(text: str, start: int, identity: str, *, complete: bool) -> tuple[list[ToolCall], int]:
    """Return the calls after the mark at `start`, and the position to continue at."""
    body = after_space(text, start + len(_CALLS))
    # A list, or an object without the list around it; anything else is a name with arguments.
    if not text.startswith(("[{", "{", "[]", "[ ", "[\n"), body):
        return _GRAMMAR.read(text, start, identity, complete=complete)
    try:
        decoded, end = decoder.raw_decode(text, body)
    except (ValueError, RecursionError) as error:
        next_calls = text.find(_CALLS, body)
        fault = CUT if not complete and next_calls < 0 else f"not valid JSON: {error}"
        after = next_calls if next_calls >= 0 else len(text)
        return [ToolCall(name="", id=identity, error=fault)], after
    if isinstance(decoded, dict) and not complete and after_space(text, end) == len(text):
        # A list may be closed by its bracket; after a lone object more of the turn may follow.
        return [ToolCall(name="", id=identity, error=CUT)], end
    rows = decoded if isinstance(decoded, list) and decoded else [decoded]
    calls = numbered(rows, identity)
    for number, row in enumerate(rows):
        own_id = row.get("id") if isinstance(row, dict) else None
        if isinstance(own_id, str) and _MISTRAL_ID.fullmatch(own_id):
            calls[number] = msgspec.structs.replace(calls[number], id=own_id)
    return calls, end
