"""OpenEnv's messages and JSON-RPC calls, and the environment that answers.

Nothing here has a place for `info`, where an environment may put its gold.
"""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from ludus.envs.serving.env_wire import EnvCard
from ludus.envs.serving.server import EnvService
from ludus.errors import (
    ConfigError,
    EpisodeEnded,
    InvalidAction,
    LudusError,
    Overloaded,
    RewardUnavailable,
    SequenceConflict,
    SessionGone,
    UnknownName,
)
from ludus.messages import Message, Observation, ToolCall, as_messages, assistant
from ludus.wire.faults import QueueFull, Refused
from ludus.wire.strict import read_item

from ..hosted import HostedEpisode, Opening, PlayedTurn

LIST_TOOLS, CALL_TOOL, SAY = "list_tools", "call_tool", "say"
SAY_TOOL: dict[str, Any] = {
    "name": SAY,
    "description": "Say something to the environment: an answer, or a move.",
    "input_schema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /reset`; further fields are options of the environment."""

    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    episode_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    """A label that the client chooses, repeated in the state. Two clients may use the same label.
    """


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that the first observation lists."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action of the policy: a message, calls of tools, or both; or a single call in the form of
    MCP clients (`type`, `tool_name`, `arguments`).
    """

    message: str = ""
    tool_calls: list[CalledTool] = []
    type: str = ""
    tool_name: str = ""
    arguments: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    """Ignored; every action of OpenEnv's own client library has this field."""


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /step`."""

    action: dict[str, Any]
    """The action; see `read_action`."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    request_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a reset or a step."""

    observation: dict[str, Any]
    reward: float | None
    """None after a reset, and after a step that only asks for the tools. An action without a reward
    is answered with an error, never with None, which clients read as 0 (decision 0215).
    """
    done: bool


class EpisodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the episode that is played, and the number of steps so far."""

    episode_id: str | None
    step_count: int
    task: str = ""
    done: bool = False


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of an observation."""

    text: str
    """The observation as one text, without its images."""
    messages: list[Message]
    """The whole observation as messages of a chat, with its images."""
    system_prompt: str = ""
    answer_format: str = ""
    tools: list[dict[str, Any]] = []
    task: str = ""
    max_turns: int | None = None
    turn: int = 0
    terminated: bool = False
    truncated: bool = False
    tool_name: str = ""
    """The tool that was called, where the action was a call in the form of MCP clients."""
    result: Any = None
    """The text again, where the action was a call in the form of MCP clients."""
    missed: list[dict[str, Any]] = []
    """The answers to earlier steps that the client had stopped waiting for."""


class Schemas(msgspec.Struct, frozen=True, kw_only=True):
    """JSON Schemas of what is exchanged."""

    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment is."""

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = None
    author: str | None = None
    documentation_url: str | None = None


class Healthy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /health`."""

    status: str = "healthy"


class ErrorCode(StrEnum):
    """The codes of errors on a WebSocket."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    SESSION_ERROR = "SESSION_ERROR"


def schemas() -> Schemas:
    """Return the JSON Schemas of actions, observations and states."""
    return Schemas(action=_flat(Action), observation=_flat(Shown), state=_flat(EpisodeState))


def _flat(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a struct with its own properties at the top, where msgspec writes a
    reference to a definition.
    """
    schema = msgspec.json.schema(kind)
    name = schema["$ref"].rpartition("/")[2]
    return {**schema["$defs"].pop(name), "$defs": schema["$defs"]}


def opening_result(opening: Opening) -> Result:
    """Return the answer to a reset."""
    shown = Shown(
        text=text_of(opening.observation),
        messages=as_messages(opening.observation),
        system_prompt=opening.system_prompt,
        answer_format=opening.answer_format,
        tools=opening.tools,
        task=opening.task,
        max_turns=opening.max_turns,
    )
    return Result(observation=msgspec.to_builtins(shown), reward=None, done=False)


def turn_result(turn: PlayedTurn, action: Action) -> Result:
    """Return the answer to a step."""
    text = text_of(turn.observation)
    is_call = action.type == CALL_TOOL
    shown = Shown(
        text=text,
        messages=as_messages(turn.observation),
        turn=turn.turn,
        terminated=turn.terminated,
        truncated=turn.truncated,
        tool_name=action.tool_name if is_call else "",
        result=text if is_call else None,
    )
    return Result(observation=msgspec.to_builtins(shown), reward=turn.reward, done=turn.over)


def tools_result(tools: list[dict[str, Any]]) -> Result:
    """Return the answer to a step that asks for the tools, which plays nothing."""
    return Result(observation={"tools": tools}, reward=None, done=False)


def text_of(observation: Observation) -> str:
    """Return the text of an observation, without images."""
    return "\n\n".join(message.text for message in as_messages(observation) if message.text)


def read_action(given: object) -> Action:
    """Read an action.

    Raises:
        Refused: the action has a wrong shape or an unknown field, is empty, or mixes the two forms.
    """
    action = read_item(given, Action)
    if action.type not in ("", LIST_TOOLS, CALL_TOOL):
        raise Refused(
            f"no action of type {action.type!r}; leave the type out, or say {LIST_TOOLS} or "
            f"{CALL_TOOL}",
            "invalid",
        )
    if action.type == CALL_TOOL and not action.tool_name:
        raise Refused(f"an action of type {CALL_TOOL!r} names its tool in 'tool_name'", "invalid")
    if action.type != CALL_TOOL and (action.tool_name or action.arguments):
        raise Refused(
            f"'tool_name' and 'arguments' belong to an action of type {CALL_TOOL!r}", "invalid"
        )
    if not action.type and isinstance(given, dict) and not given.keys() & {"message", "tool_calls"}:
        raise Refused("an action has a 'message', 'tool_calls', or both; see /schema", "invalid")
    return action


def as_message(action: Action) -> str | Message:
    """Return the action in the form that environments take."""
    if action.type == CALL_TOOL:
        return assistant(
            "", [ToolCall(name=action.tool_name, arguments=action.arguments, id="call_0")]
        )
    if not action.tool_calls:
        return action.message
    calls = [
        ToolCall(name=call.name, arguments=call.arguments, id=call.id or f"call_{index}")
        for index, call in enumerate(action.tool_calls)
    ]
    return assistant(action.message, calls)


def error_data(error: BaseException) -> dict[str, Any]:
    """Return the data of an error frame."""
    message = str(error) if isinstance(error, LudusError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RewardUnavailable):
        message = f"this episode has no reward and counts for nothing: {message}"
    data: dict[str, Any] = {"message": message, "code": _code_of(error)}
    if isinstance(error, QueueFull):
        data |= {"active_sessions": error.depth, "max_sessions": error.limit}
    return data


def _code_of(error: BaseException) -> ErrorCode:
    match error:
        case Overloaded():
            return ErrorCode.CAPACITY_REACHED
        case Refused(code="malformed"):
            return ErrorCode.INVALID_JSON
        case SessionGone() | EpisodeEnded() | SequenceConflict():
            return ErrorCode.SESSION_ERROR
        case Refused() | ConfigError() | InvalidAction() | UnknownName():
            return ErrorCode.VALIDATION_ERROR
        case _:
            return ErrorCode.EXECUTION_ERROR


class Game:
    """Plays episodes for a client, one operation at a time.

    Args:
        service: the started service of environments.
        card: what the service says of the environment.
    """

    def __init__(self, service: EnvService, card: EnvCard) -> None:
        self.card = card
        self.touched = time.monotonic()
        self.turn = asyncio.Lock()
        """Held by whoever plays, where requests of one client may come at the same time."""
        self._service = service
        self._episode = HostedEpisode(service, card.id)
        self._label: str | None = None
        self._tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in card.briefing.tools
        ]

    async def reset(self, parameters: dict[str, Any]) -> Result:
        """Begin an episode. What is neither `seed` nor `episode_id` is an option of the
        environment; options that are None count as not given.

        Raises:
            LudusError: the episode cannot begin; see `shapes.error_data`.
        """
        self.touched = time.monotonic()
        own = {
            name: parameters[name]
            for name in ("seed", "episode_id")
            if parameters.get(name) is not None
        }
        request = read_item(own, ResetRequest)
        options = {
            name: value
            for name, value in parameters.items()
            if name not in ("seed", "episode_id") and value is not None
        }
        opening = await self._episode.reset(seed=request.seed, options=options, carries_images=True)
        self.touched = time.monotonic()  # the lease of the session begins with the answer
        self._label, self._tools = request.episode_id, opening.tools
        return opening_result(opening)

    async def step(self, message: object, *, carries_images: bool = True) -> Result:
        """Play an action, or answer a request for the list of tools.

        Args:
            message: the action.
            carries_images: whether the client is told more of the observation than its text.

        Raises:
            RewardUnavailable: the verdict is not ok, or there is an image that is not carried.
            LudusError: the action cannot be played; see `shapes.error_data`.
        """
        self.touched = time.monotonic()
        action = read_action(message)
        if action.type == LIST_TOOLS:
            return tools_result(self.tools)
        if action.type == CALL_TOOL and action.tool_name == SAY and not self._declares_say:
            text = action.arguments.get("text")
            if not isinstance(text, str):
                raise Refused(f"{SAY} takes 'text', a text; got {text!r:.80}", "invalid")
            played: str | Message = text
        else:
            played = as_message(action)
        turn = await self._episode.step(played, carries_images=carries_images)
        self.touched = time.monotonic()
        return turn_result(turn, action)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools for a client that can call tools and nothing else: those of the episode (or
        of every episode, where none has begun), and `say` for what the policy says.
        """
        return self._tools if self._declares_say else [*self._tools, SAY_TOOL]

    @property
    def _declares_say(self) -> bool:
        return any(tool["name"] == SAY for tool in self._tools)

    def state(self) -> EpisodeState:
        """Return which episode is played, and how far it is."""
        self.touched = time.monotonic()
        episode = self._episode
        begun = bool(episode.task)
        return EpisodeState(
            episode_id=self._label,
            step_count=episode.turn,
            task=episode.task,
            done=begun and episode.over,
        )

    def another(self) -> Game:
        """Return a new game of the same environment, for a client that has given this game up."""
        return Game(self._service, self.card)

    async def close(self) -> None:
        """Release the session."""
        await self._episode.close()


def as_plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as plain values that JSON can hold."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


INVALID_REQUEST, NO_METHOD, BAD_PARAMETERS, FAILED = -32600, -32601, -32602, -32000


class RpcError(Exception):
    """A request that cannot be carried out, with the error code of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def answer_json_rpc(game: Game, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request on the client's game, and return the response; never raises for what
    the request asks.
    """
    try:
        result = await _result(game, *read_call(request))
    except (LudusError, RpcError) as error:
        return refusal(request, error)
    return response(request, result)


def read_call(request: object) -> tuple[str, dict[str, Any]]:
    """Return the method and the parameters of a request.

    Raises:
        RpcError: it is not a request of JSON-RPC 2.0.
    """
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "not a request of JSON-RPC 2.0")
    method, parameters = request.get("method"), request.get("params") or {}
    if not isinstance(method, str) or not isinstance(parameters, dict):
        raise RpcError(INVALID_REQUEST, "a request has a 'method' and an object 'params'")
    return method, parameters


def response(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request that was carried out."""
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def refusal(request: object, error: LudusError | RpcError) -> dict[str, Any]:
    """Return the response to a request that failed."""
    error_object: dict[str, Any] = (
        {"code": error.code, "message": str(error)}
        if isinstance(error, RpcError)
        else {"code": FAILED, "message": error_data(error)["message"], "data": error_data(error)}
    )
    request_id = request.get("id") if isinstance(request, dict) else None
    return {"jsonrpc": "2.0", "id": request_id, "error": error_object}


async def _result(game: Game, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "tools/list":
        return {"tools": [{**tool, "inputSchema": tool["input_schema"]} for tool in game.tools]}
    if method != "tools/call":
        raise RpcError(NO_METHOD, f"no method {method!r}; known: tools/list, tools/call")
    name, arguments = parameters.get("name"), parameters.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise RpcError(BAD_PARAMETERS, "tools/call takes 'name' and an object 'arguments'")
    if game.state().task == "":
        await game.reset({})
    call = {"type": CALL_TOOL, "tool_name": name, "arguments": arguments}
    result = await game.step(call, carries_images=False)
    text = result.observation["text"]
    return {
        "content": [{"type": "text", "text": text}],
        "data": text,
        "structured_content": {"reward": result.reward, "done": result.done},
    }
