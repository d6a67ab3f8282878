"""The arguments of calls: read from JSON and from literals, and given the types of a schema."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import decoder, fault_of, read_arguments
from ludus.messages import ToolCall

_SPACE = re.compile(r"\s*")
_NO_CALL = 'a call is an object with "name" and "arguments"'
_ARGUMENTS = ("arguments", "parameters")
_ABOUT_A_CALL = frozenset({"name", "type", "id", "index"})


class UnreadableCall(Exception):
    """A call cannot be read; holds the reason and the position of the fault."""

    def __init__(self, reason: str, position: int, *, unclosed: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.unclosed = unclosed


def unreadable(identity: str, reason: str) -> ToolCall:
    """Return a call that is not run, with the reason."""
    return ToolCall(name="", id=identity, error=reason)


def sound(name: str, arguments: dict[str, Any], identity: str) -> ToolCall:
    """Return a call, or the reason why its name or its arguments cannot be sent on."""
    if fault := fault_of([name, arguments]):
        return unreadable(identity, fault)
    return ToolCall(name=name, arguments=arguments, id=identity)


def after_space(text: str, start: int) -> int:
    """Return the first position from `start` on that is not white space."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def as_json(call: ToolCall, arguments: str = "arguments") -> str:
    """Return a call as a JSON object with name and arguments."""
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)


def as_text(value: object) -> str:
    """Return an argument in the form of formats with tags: a string unchanged, else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_call(decoded: object, identity: str) -> ToolCall:
    """Convert an object to a call; the field `error` tells what is wrong with an unusable object.

    Arguments may stand under `parameters`, and both inside an object `function`.
    """
    row = decoded
    if isinstance(decoded, dict) and "name" not in decoded:
        inner = decoded.get("function")
        row = inner if isinstance(inner, dict) else decoded
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return unreadable(identity, _NO_CALL)
    name = row["name"]
    if fault := fault_of(name):
        return unreadable(identity, fault)
    if not given_arguments(row) and (stray := sorted(row.keys() - _ABOUT_A_CALL)):
        error = f'the arguments belong into an object under "arguments"; found {stray[0][:80]!r}'
        return unreadable(identity, fault_of(error) or error)
    arguments, error = read_arguments(row.get("arguments", row.get("parameters")))
    return ToolCall(name=name, arguments=arguments, id=identity, error=error)


def numbered(decoded: Sequence[Any], identity: str) -> list[ToolCall]:
    """Convert objects to calls whose ids count on from `identity`, such as `call_3`."""
    name, _, first = identity.rpartition("_")
    numbers = range(int(first), int(first) + len(decoded))
    return [as_call(row, f"{name}_{number}") for row, number in zip(decoded, numbers, strict=True)]


def given_arguments(decoded: object) -> bool:
    """Return whether an object has arguments, which calls do and few other objects."""
    return isinstance(decoded, dict) and any(key in decoded for key in _ARGUMENTS)


MAX_PYTHON_CHARS = 1 << 17
"""The longest text that is parsed. Python's parser needs far more memory than the text."""


class UnreadableLiteral(ValueError):
    """The text is not a literal, or not a list of calls; the message gives the reason."""


def expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        UnreadableLiteral: the text is not an expression, or is too long.
    """
    if len(text) > MAX_PYTHON_CHARS:
        raise UnreadableLiteral(f"{len(text)} characters; at most {MAX_PYTHON_CHARS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes Python does not know
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
        raise UnreadableLiteral(str(error)) from None


def read_literal(text: str) -> object:
    """Return the value of a literal that JSON can represent.

    >>> read_literal("{'a': (1, None), 'b': True}")
    {'a': [1, None], 'b': True}

    Raises:
        UnreadableLiteral: the text is not such a literal.
    """
    return literal(expression(text))


_NAMES = {"true": True, "false": False, "null": None}


def literal(node: ast.expr) -> object:
    """Return the value of a syntax tree that is a literal JSON can represent; tuples become lists.

    Raises:
        UnreadableLiteral: the tree is not such a literal.
    """
    match node:
        case ast.Constant(value=None | bool() | str() as value):
            return value
        case ast.Constant(value=int() as number) if -(1 << 63) <= number < 1 << 64:
            return number
        case ast.Constant(value=float() as number) if math.isfinite(number):
            return number
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=ast.Constant(value=int() | float() as number)) if (
            isinstance(sign, ast.USub | ast.UAdd) and not isinstance(number, bool)
        ):
            return literal(ast.Constant(-number if isinstance(sign, ast.USub) else number))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            mapping: dict[str, object] = {}
            for key, inner in zip(keys, values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise UnreadableLiteral("the keys of a dict must be strings")
                mapping[key.value] = literal(inner)
            return mapping
        case _:
            raise UnreadableLiteral(f"an argument must be a literal, got {type(node).__name__}")


_ALIASES = {
    "dict": "object", "float": "number", "double": "number", "int": "integer", "long": "integer",
    "bool": "boolean", "str": "string", "list": "array", "tuple": "array", "any": "",
}  # fmt: skip
"""Type names outside JSON Schema that hand-written schemas contain."""
_WORDS = {"True": True, "False": False, "None": None}
_WORDS_ALONE = {"true": True, "false": False, "null": None, "none": None}
"""Words with a JSON value, in any case, for places where no string is allowed."""
_NUMBER = re.compile(r"[+-]?(?:\d{1,20}|\d{1,300}\.\d{0,300}|\.\d{1,300})")
"""Numbers that Python accepts and JSON does not: `.5`, `+3`, `007`, `2.`."""
_DEEPEST = 8


def schemas_of(name: str, tools: Sequence[ToolSpec]) -> dict[str, set[str]]:
    """Return the JSON types that each parameter of the tool `name` may have; an empty set means
    any.
    """
    for tool in tools:
        if tool.name == name:
            properties = tool.parameters.get("properties")
            property_schemas = properties if isinstance(properties, Mapping) else {}
            return {
                key: types_of(schema, tool.parameters) for key, schema in property_schemas.items()
            }
    return {}


def types_of(schema: object, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the JSON types that a schema allows; an empty set means that the schema does not say.

    >>> sorted(types_of({"anyOf": [{"type": "string"}, {"type": "null"}]}, {}))
    ['null', 'string']
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return set()
    if "$ref" in schema:
        place, _, name = str(schema["$ref"]).removeprefix("#/").rpartition("/")
        definitions = root.get(place)  # `$defs`, or `definitions` in older schemas
        known = definitions.get(name) if isinstance(definitions, Mapping) else None
        return types_of(known, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            alternatives = [types_of(alternative, root, depth + 1) for alternative in schema[key]]
            return set().union(*alternatives) if all(alternatives) else set()
    type_names = schema.get("type")
    if type_names is None:
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return {type_of(value) for value in allowed} if isinstance(allowed, list) else set()
    names = type_names if isinstance(type_names, list) else [type_names]
    known_types = {
        _ALIASES.get(str(type_name).lower(), str(type_name).lower()) for type_name in names
    }
    return set() if "" in known_types else known_types


def type_of(value: object) -> str:
    """Return the JSON type of a decoded value."""
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[type, str] = {
        str: "string", int: "integer", float: "number", list: "array", dict: "object"
    }  # fmt: skip
    return kinds.get(type(value), "null")


def read_value(text: str, types: set[str]) -> object:
    """Read a value written as plain text.

    If a string is allowed the text is a string, unless another type is allowed too and the text
    parses as that type. Otherwise the text must be JSON or, as models sometimes write, a Python
    literal.

    Raises:
        ValueError: no string is allowed, and the text is not JSON.
    """
    if types == {"string"}:
        return text
    try:
        decoded = _decoded(text.strip(), types)
    except (ValueError, RecursionError):
        if not types or "string" in types:
            return text
        raise
    if isinstance(decoded, str) and not types:
        return text
    kind = type_of(decoded)
    fits = kind in types or (kind == "integer" and "number" in types)
    if "string" in types and (kind == "string" or not fits):
        return text
    is_integer = isinstance(decoded, float) and decoded.is_integer() and abs(decoded) < 1 << 53
    return int(decoded) if is_integer and types & {"integer", "number"} == {"integer"} else decoded


def _decoded(text: str, types: set[str]) -> Any:
    """Return the value of JSON (possibly encoded twice) or of a Python word."""
    if text in _WORDS:
        return _WORDS[text]
    if not types or "string" in types:
        return decoder.decode(text)
    if text.lower() in _WORDS_ALONE:
        return _WORDS_ALONE[text.lower()]
    try:
        decoded = decoder.decode(text)
    except (ValueError, RecursionError):
        # Perhaps a number, list or dict in Python syntax.
        if _NUMBER.fullmatch(text):
            return float(text) if "." in text else decoder.decode(str(int(text)))
        if text.startswith(("[", "{", "(")):
            return read_literal(text)
        raise
    return decoder.decode(decoded) if isinstance(decoded, str) else decoded
