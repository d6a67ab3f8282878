"""Reads what a docstring says about a function and its arguments (Google, NumPy or reST style).

    @tool
    def calculator(self, expression: str) -> str:
        '''Work out an arithmetic expression.

        Args:
            expression: digits, + - * / and parentheses
        '''

The signature gives the schema, the docstring the descriptions. Arguments are validated before the
function is called. If a call goes wrong, the policy is told and the result has a `ToolFault`: the
arguments do not fit, or the tool refuses, is late or crashes. The length of a result is bounded.

A crash of an environment's own `@tool` method is a bug of the environment: it ends the episode,
which then counts for nothing. So does what ludus itself raises anywhere (a lost server, a reward
that cannot be computed).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
import re
import typing
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, overload

import msgspec

from ludus.errors import InvalidTool, LudusError, ToolError
from ludus.messages import ImagePart

from .running import Late, Threads
from .spec import (
    DEFAULT_TIMEOUT_S,
    MAX_ARGUMENT_BYTES,
    MAX_RESULT_CHARS,
    ToolFault,
    ToolResult,
    ToolSpec,
    bounded,
)

_GOOGLE_HEADING = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|See Also|"
    r"References|Warnings?|Attributes|Keyword Args):?\s*$"
)
_REST_ARGUMENT = re.compile(
    r"^\s*:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$"
)
_REST_FIELD = re.compile(r"^\s*:\w[^:]*:")
_NUMPY_ENTRY = re.compile(r"^(\w+)(?:\s*:.*)?$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    r"""Return the description, without the sections, and the description of each argument.

    >>> read_docstring("Add.\n\nArgs:\n    a: the first\n        number\n")
    ('Add.', {'a': 'the first number'})
    """
    lines = text.expandtabs().splitlines()
    end = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    descriptions: dict[str, str] = {}
    for index, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line):
            descriptions |= _google(lines[index + 1 :])
        elif line.strip() == "Parameters" and _is_rule(lines, index + 1):
            descriptions |= _numpy(lines[index + 2 :])
        elif match := _REST_ARGUMENT.match(line):
            more_lines = _continuation(lines[index + 1 :])
            descriptions[match[1]] = _join_lines(match[2], more_lines)
    return "\n".join(lines[:end]).strip(), descriptions


def _begins_section(lines: Sequence[str], index: int) -> bool:
    """Return whether a line is the heading of a section, in any of the three styles."""
    line = lines[index]
    if _REST_FIELD.match(line):
        return True
    if not _SECTION.match(line):
        return False
    return line.rstrip().endswith(":") or _is_rule(lines, index + 1)


def _is_rule(lines: Sequence[str], index: int) -> bool:
    """Return whether a line is the row of hyphens under a heading of NumPy's style."""
    return index < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[index]) is not None


def _google(lines: Sequence[str]) -> dict[str, str]:
    """Return the descriptions of arguments in the lines after the heading `Args:`."""
    descriptions: dict[str, str] = {}
    # The argument whose description goes on, and the indent of its entry: a line with a deeper
    # indent belongs to the description, also if it looks like an entry ("note: ...").
    last, depth = "", 0
    for line in lines:
        if line.strip() and not line[0].isspace():
            break
        indent = len(line) - len(line.lstrip())
        match = _GOOGLE_ENTRY.match(line)
        if match and (not last or indent <= depth):
            last, depth = match[1], indent
            descriptions[last] = match[2].strip()
        elif last and line.strip():
            descriptions[last] = _join_lines(descriptions[last], [line])
    return descriptions


def _numpy(lines: Sequence[str]) -> dict[str, str]:
    """Return the descriptions of arguments in the lines after `Parameters` and the rule below."""
    descriptions: dict[str, str] = {}
    last = ""
    for index, line in enumerate(lines):
        if _begins_section(lines, index):
            break
        match = _NUMPY_ENTRY.match(line)
        if match:
            last = match[1]
            descriptions[last] = ""
        elif last and line.strip():
            descriptions[last] = _join_lines(descriptions[last], [line])
    return descriptions


def _continuation(lines: Sequence[str]) -> list[str]:
    """Return the lines that continue a reST field: the indented lines before the next field."""
    continuation: list[str] = []
    for line in lines:
        if not line.strip() or not line[0].isspace() or _REST_FIELD.match(line):
            break
        continuation.append(line)
    return continuation


def _join_lines(first: str, more_lines: Sequence[str]) -> str:
    stripped_lines = [line.strip() for line in (first, *more_lines)]
    return " ".join(line for line in stripped_lines if line)


_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Arguments = type[msgspec.Struct]
T = TypeVar("T")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, a partial function, or a callable object."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__name__", type(function).__name__)


def arguments_of(function: Callable[..., Any], described: dict[str, str]) -> Arguments:
    """Return a struct with a field for each argument of `function`.

    Args:
        function: a function with annotations; an argument without annotation is text.
        described: what the docstring says about each argument.

    Raises:
        InvalidTool: the signature cannot be described to a policy; the message says why.
    """
    name = name_of(function)
    hints = _hints(function, name)
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        missing = "; a method takes self first" if inspect.ismethod(function) else ""
        raise InvalidTool(f"tool {name!r}: {error}{missing}") from error
    fields: list[Any] = []
    for key, parameter in parameters.items():
        if parameter.kind in _UNNAMED:
            raise InvalidTool(
                f"tool {name!r}: *{key} cannot be described to a policy; name each argument"
            )
        hint = hints.get(key, str)
        if key in described:
            hint = Annotated[hint, msgspec.Meta(description=described[key])]
        fields.append((key, hint, *_default(parameter.default)))
    try:
        return _struct(name, fields)
    except (TypeError, NameError) as error:
        raise InvalidTool(
            f"tool {name!r}: its arguments cannot be validated{_culprit(fields)}: {error}"
        ) from error


def _struct(name: str, fields: list[Any]) -> Arguments:
    struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    msgspec.json.schema(struct)
    msgspec.json.Decoder(struct)
    return struct


def _culprit(fields: list[Any]) -> str:
    """Name the argument at fault, if a single argument alone is."""
    for key, *hint in fields:
        try:
            _struct("Argument", [(key, *hint)])
        except (TypeError, NameError):
            return f", because of {key!r}"
    return ""


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"tool {name!r}: an annotation cannot be resolved: {error}; define the type at the top "
            "of its module"
        ) from error


def _default(value: Any) -> tuple[Any, ...]:
    """Return a field's default, if any; each call gets a fresh copy of a mutable default."""
    if value is inspect.Parameter.empty:
        return ()
    if isinstance(value, (list, dict, set, bytearray)):
        return (msgspec.field(default_factory=functools.partial(copy.deepcopy, value)),)
    return (value,)


def schema_of(struct: Arguments, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, an object with referenced types under `$defs`."""
    (reference,), components = msgspec.json.schema_components(
        [struct], ref_template="#/$defs/{name}"
    )
    name = reference["$ref"].rpartition("/")[2]
    schema = components.pop(name)
    schema.pop("title", None)
    for key, parameter in inspect.signature(function).parameters.items():
        if isinstance(parameter.default, (list, dict, set)):
            schema["properties"][key]["default"] = msgspec.to_builtins(parameter.default)
    return {**schema, "$defs": components} if components else schema


def call_with(function: Callable[..., T], arguments: dict[str, Any]) -> T:
    """Call `function` with named arguments, even if some parameters are positional-only."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [
        parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY
    ]
    if not by_position:
        return function(**arguments)
    by_name = {key: value for key, value in arguments.items() if key not in by_position}
    return function(*[arguments[key] for key in by_position], **by_name)


logger = logging.getLogger(__name__)
OnCrash = Literal["tell", "raise"]
Function = TypeVar("Function", bound=Callable[..., Any])


class Tool:
    """A function that the policy may call.

    Args:
        function: a plain or async function with typed arguments.
        name: the name the policy sees; by default the function's.
        timeout_s: the time limit of a call, in seconds.
        max_chars: the most characters of a result; a longer result is cut in the middle.
        on_crash: `tell` the policy, or `raise`.
        own_thread: whether a plain function runs on a separate thread, where it can be given up.
            By default it does; the `@tool` methods of an environment run on the environment's
            thread, unless they ask for a timeout.
        concurrent: whether calls of the same turn may run beside each other. By default those of an
            async function do, and those of a plain function, which may not be thread-safe, do not.

    Raises:
        InvalidTool: the signature cannot be described to a policy.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_chars: int = MAX_RESULT_CHARS,
        on_crash: OnCrash = "tell",
        own_thread: bool = True,
        concurrent: bool | None = None,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTool(f"tool {name_of(function)!r} yields; a tool returns its result")
        summary, described = read_docstring(inspect.getdoc(function) or "")
        self.function = function
        self.timeout_s = timeout_s
        self.max_chars = max_chars
        self.on_crash: OnCrash = on_crash
        self.concurrent = _is_async(function) if concurrent is None else concurrent
        self._own_thread = own_thread or self.concurrent
        self._arguments: Arguments | None = arguments_of(function, described)
        self.spec = ToolSpec(
            name=name or name_of(function),
            description=summary,
            parameters=schema_of(self._arguments, function),
        )
        self._threads = Threads(self.spec.name)

    @classmethod
    def of_spec(
        cls,
        spec: ToolSpec,
        function: Callable[..., Awaitable[ToolResult]],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_chars: int = MAX_RESULT_CHARS,
    ) -> Tool:
        """Make a tool whose answering side, such as a server, has the schema and checks arguments.

        Args:
            spec: what the policy is shown.
            function: called with the arguments by name.
            timeout_s: the time limit of a call, in seconds.
            max_chars: the most characters of a result; a longer result is cut in the middle.
        """
        new_tool = cls.__new__(cls)
        new_tool.function, new_tool.spec, new_tool._arguments = function, spec, None
        new_tool.timeout_s, new_tool.max_chars, new_tool.on_crash = timeout_s, max_chars, "tell"
        new_tool._own_thread, new_tool._threads, new_tool.concurrent = (
            False,
            Threads(spec.name),
            True,
        )
        return new_tool

    @property
    def is_async(self) -> bool:
        """Whether a call needs an event loop."""
        return self.runs_on_thread or _is_async(self.function)

    @property
    def runs_on_thread(self) -> bool:
        """Whether each call runs on a separate thread."""
        return self._own_thread and not _is_async(self.function)

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Validate `arguments` and call the function; a fault comes back as the result.

        Raises:
            LudusError: ludus itself failed; a `ToolError` is a fault of the call instead.
        """
        try:
            checked = self._checked(arguments)
        except msgspec.ValidationError as error:
            # Where the argument at fault is one of a fixed choice, the policy is told the choice.
            name = str(error).partition("- at `$.")[2].rstrip("`")
            allowed = self.spec.parameters.get("properties", {}).get(name, {}).get("enum")
            choice = f"; it is one of {', '.join(map(repr, allowed))}" if allowed else ""
            problem = f"invalid arguments for {self.spec.name}: {error}{choice}"
            return bounded(ToolResult.failed(ToolFault.INVALID, problem), self.max_chars)
        return bounded(await self._answered(checked), self.max_chars)

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            size = len(msgspec.json.encode(arguments))
        except UnicodeEncodeError as error:  # JSON can hold half a surrogate pair
            raise msgspec.ValidationError(f"they hold what is not text: {error.reason}") from None
        except (ValueError, OverflowError, RecursionError) as error:
            # A number of thousands of digits, or lists within lists within lists.
            raise msgspec.ValidationError(f"they cannot be written as JSON: {error}") from None
        if size > MAX_ARGUMENT_BYTES:
            raise msgspec.ValidationError(
                f"they have {size:,} bytes; at most {MAX_ARGUMENT_BYTES:,} are taken"
            )
        if self._arguments is None:
            return arguments
        return msgspec.structs.asdict(msgspec.convert(arguments, self._arguments))

    async def _answered(self, arguments: dict[str, Any]) -> ToolResult:
        name = self.spec.name
        try:
            value: object
            work = partial(call_with, self.function, arguments)
            if self.runs_on_thread:
                value = await self._threads.run(work, self.timeout_s)
            else:
                outcome = work()
                value = (
                    await _within(outcome, self.timeout_s)
                    if inspect.isawaitable(outcome)
                    else outcome
                )
            if isinstance(value, ToolResult):
                return value
            if isinstance(value, str):
                return ToolResult(content=value)
            if isinstance(value, ImagePart):
                return ToolResult(content="", images=[value])
            try:
                return ToolResult(content=msgspec.json.encode(value).decode())
            except TypeError as error:
                raise TypeError(
                    f"tool {name!r} must return text, an image, what is JSON, or a ToolResult, "
                    f"got {type(value).__name__}: {value!r:.80}"
                ) from error
        except ToolError as error:
            return ToolResult.failed(ToolFault.REFUSED, f"{name}: {error}")
        except Late:
            problem = f"{name}: no answer within {self.timeout_s:g} s"
            return ToolResult.failed(ToolFault.TIMEOUT, problem)
        except LudusError:
            raise
        except Exception as error:
            if self.on_crash == "raise":
                raise
            logger.error("tool %s crashed: %s", name, error, exc_info=error)
            problem = f"{name} failed: {type(error).__name__}: {error}"
            return ToolResult.failed(ToolFault.CRASHED, problem)


async def _within(work: Awaitable[object], timeout_s: float) -> object:
    """Wait for `work` until the limit; a TimeoutError that `work` itself raises is not lateness."""
    clock = asyncio.timeout(timeout_s)
    try:
        async with clock:
            return await work
    except TimeoutError:
        if clock.expired():
            raise Late from None
        raise


def _is_async(function: Callable[..., Any]) -> bool:
    if isinstance(function, partial):
        return _is_async(function.func)
    call = getattr(function, "__call__", None)  # noqa: B004 (of an object, not whether there is one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


@overload
def tool(function: Function) -> Function: ...
@overload
def tool(
    *,
    timeout_s: float | None = None,
    max_chars: int = MAX_RESULT_CHARS,
    on_crash: OnCrash = "raise",
    concurrent: bool | None = None,
) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None,
    *,
    timeout_s: float | None = None,
    max_chars: int = MAX_RESULT_CHARS,
    on_crash: OnCrash = "raise",
    concurrent: bool | None = None,
) -> Function | Callable[[Function], Function]:
    """Mark a method as a tool of the environment: `@tool`, or `@tool(timeout_s=5)`.

    Args:
        function: the method.
        timeout_s: the time limit of a call, in seconds. If given, a plain method runs on a separate
            thread, where it can be given up; otherwise it runs on the environment's thread, and
            only async methods are timed.
        max_chars: the most characters of a result; a longer result is cut in the middle.
        on_crash: `raise` ends the episode as broken; `tell` is for tools whose failures belong to
            the task.
        concurrent: whether calls of the same turn may run beside each other, as those of an async
            method do by default. False keeps the order of the calls, for methods that change what
            others read. True lets a plain method run on threads of its own, if it is thread-safe.
    """

    def mark(marked: Function) -> Function:
        marked.__ludus_tool__ = {  # type: ignore[attr-defined]
            "timeout_s": DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s,
            "max_chars": max_chars,
            "on_crash": on_crash,
            "own_thread": timeout_s is not None,
            "concurrent": concurrent,
        }
        return marked

    return mark if function is None else mark(function)


def tools_of(owner: object) -> dict[str, Tool]:
    """Return the `@tool` methods of `owner` by name, in the order of definition.

    The tools are built once per object: schemas do not change during an episode.
    """
    cached: dict[str, Tool] | None = owner.__dict__.get("__ludus_tools__")
    if cached is None:
        marked: dict[str, dict[str, Any]] = {}
        for base in reversed(
            type(owner).__mro__
        ):  # a subclass's own tool replaces the inherited one
            for name, value in vars(base).items():
                if options := getattr(value, "__ludus_tool__", None):
                    marked[name] = options
        cached = {name: Tool(getattr(owner, name), **options) for name, options in marked.items()}
        owner.__dict__["__ludus_tools__"] = cached
    return cached
