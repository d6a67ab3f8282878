"""Tools from typed Python functions: JSON Schema, validation, call.

    @tool
    def calculator(self, expression: str) -> str:
        '''Work out an arithmetic expression.

        Args:
            expression: digits, + - * / and parentheses
        '''

The signature gives the schema, the docstring the descriptions. Arguments are validated before the
function is called, and what is wrong with them is told to the policy, not raised.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec

from ludus.errors import ToolError

Function = TypeVar("Function", bound=Callable[..., Any])
DEFAULT_TIMEOUT_S = 30.0


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is shown of a tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments, an object."""

    def as_openai(self) -> dict[str, Any]:
        """The tool in the `tools` list of the OpenAI chat format, which chat templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may return instead of text, when the call itself earns a reward or ends the
    episode.
    """

    content: str
    reward: float = 0.0
    terminated: bool = False
    error: bool = False
    """Whether the call failed; counted, and shown to the policy as any result."""


class Tool:
    """A function the policy may call."""

    def __init__(
        self, function: Callable[..., Any], *, name: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.function = function
        self.timeout_s = timeout_s
        summary, described = _read_docstring(inspect.getdoc(function) or "")
        self._arguments = _arguments_struct(function, described)
        self.spec = ToolSpec(
            name=name or function.__name__, description=summary, parameters=_schema(self._arguments)
        )

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Validate `arguments` and call the function. What is wrong with them comes back as
        the result.
        """
        try:
            checked = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            return ToolResult(
                content=f"invalid arguments for {self.spec.name}: {error}", error=True
            )
        try:
            return _as_result(await self._run(msgspec.structs.asdict(checked)))
        except ToolError as error:
            return ToolResult(content=f"{self.spec.name}: {error}", error=True)

    async def _run(self, arguments: dict[str, Any]) -> object:
        made = self.function(**arguments)
        if not inspect.isawaitable(made):
            return made
        return await _within(made, self.timeout_s, self.spec.name)


async def _within(work: Awaitable[object], timeout_s: float, name: str) -> object:
    try:
        return await asyncio.wait_for(work, timeout_s)
    except TimeoutError:
        raise ToolError(f"no answer within {timeout_s:g} s") from None


def tool(function: Function) -> Function:
    """Mark a method as a tool of its environment."""
    function.__ludus_tool__ = True  # type: ignore[attr-defined]
    return function


def tools_of(owner: object) -> dict[str, Tool]:
    """The `@tool` methods of `owner`, by name, in the order they are written.

    Built once per object: schemas do not change during an episode.
    """
    cached: dict[str, Tool] | None = owner.__dict__.get("__ludus_tools__")
    if cached is None:
        cached = {name: Tool(getattr(owner, name)) for name in _marked(type(owner))}
        owner.__dict__["__ludus_tools__"] = cached
    return cached


def _marked(cls: type) -> list[str]:
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if getattr(value, "__ludus_tool__", False):
                names[name] = None
    return list(names)


def _as_result(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=value)
    return ToolResult(content=msgspec.json.encode(value).decode())


def _arguments_struct(
    function: Callable[..., Any], described: dict[str, str]
) -> type[msgspec.Struct]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"tool {function.__name__!r}: *{name} cannot be described to a policy; name "
                "each argument"
            )
        hint = hints.get(name, str)
        if name in described:
            hint = Annotated[hint, msgspec.Meta(description=described[name])]
        fields.append(
            (name, hint)
            if parameter.default is parameter.empty
            else (name, hint, parameter.default)
        )
    return msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components(
        [struct], ref_template="#/$defs/{name}"
    )
    name = reference["$ref"].rpartition("/")[2]
    schema = components.pop(name)
    schema.pop("title", None)
    return {**schema, "$defs": components} if components else schema


_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a Google docstring into its text before `Args:` and the description of each
    argument.
    """
    head, _, rest = text.partition("\nArgs:\n")
    described: dict[str, str] = {}
    last = ""
    for line in rest.splitlines():
        if line and not line[0].isspace():
            break
        match = _ARGUMENT.match(line)
        if match:
            last = match[1]
            described[last] = match[2].strip()
        elif last and line.strip():
            described[last] += " " + line.strip()
    return head.strip(), described
