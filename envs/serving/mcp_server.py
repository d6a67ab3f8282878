"""Environments as MCP servers: any MCP client plays an episode by calling tools.

    begin_episode(task="test/3")            -> the task, and the name of the episode
    calculator(expression="12-7*3")         -> what the tool of the environment says
    say(text="-9")                          -> the end, with the reward

Several episodes may be open; a call names its own by `episode`, and may leave the name out while
one alone is open. Sessions, deadlines and leases are those of `ludus serve`.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ludus.errors import ConfigError, LudusError
from ludus.messages import Message, Observation, ToolCall, as_messages, assistant, refuse_images
from ludus.wire.faults import Fault, fault_of
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.routes import Context

from ..protocol import Briefing
from ..tools import ToolSpec
from ..tools.mcp_client import require_mcp
from .env_wire import (
    Beginning,
    Create,
    Delete,
    Operation,
    Reply,
    ResetReply,
    Step,
    StepReply,
    read_outcome,
)
from .server import EnvService
from .sessions import SessionLimits

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult

BEGIN, SAY, CALL, END = "begin_episode", "say", "call_tool", "end_episode"
EPISODE = "episode"
LIMITS = SessionLimits(max_sessions=256, max_queue=256, max_queue_per_env=256)
_ENDED_KEPT = 1000


@dataclass(slots=True)
class _Episode:
    """An open episode, as an MCP client plays."""

    name: str
    task: str = ""
    seq: int = 0
    """The sequence number of the next operation."""
    ret: float = 0.0
    """The sum of the rewards so far."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Answer(msgspec.Struct, frozen=True):
    """The result of a tool call: text for the model, and facts for the program around the model."""

    text: str
    facts: dict[str, Any] = {}
    is_error: bool = False


class McpEnv:
    """Plays episodes of an environment for MCP clients. Call `start` on the event loop of the
    server.

    Args:
        name: the environment, with constructor arguments as `ludus serve` reads them.
        limits: the bounds on episodes and on their time.

    Raises:
        MissingExtra: the MCP SDK is not installed.
    """

    def __init__(self, name: str, *, limits: SessionLimits = LIMITS) -> None:
        require_mcp("an MCP server")
        self._service = EnvService([name], limits=limits)
        self.id = self._service.served[0].id
        self._open: dict[str, _Episode] = {}
        self._ended: dict[str, str] = {}
        """The reason, by name, why each of the last `_ENDED_KEPT` episodes ended."""
        self._briefing = Briefing()

    async def start(self) -> None:
        """Load the environment.

        Raises:
            ConfigError: a tool of the environment has the name of one of this server's own tools.
        """
        await self._service.start(Context(secrets.token_hex(8), ServerMetrics()))
        card = self._service.served[0].card
        assert card is not None
        self._briefing = card.briefing
        name_clashes = {BEGIN, SAY, CALL, END} & {tool.name for tool in self._briefing.tools}
        if name_clashes:
            raise ConfigError(
                f"{self.id} has a tool {min(name_clashes)!r}, which this server needs"
            )

    async def stop(self) -> None:
        """Release every episode and stop the service."""
        await self._service.stop()

    # --- what clients see -----------------------------------------------------------------------

    def tools(self) -> list[ToolSpec]:
        """List the tools that begin and end episodes, and the environment's own tools.

        Where episodes bring tools that are unknown before they begin, `call_tool` calls these by
        name.
        """
        episode_tools = [_in_episode(tool) for tool in self._briefing.tools]
        return [
            _BEGIN,
            *(episode_tools or [_in_episode(_CALL)]),
            _in_episode(_SAY),
            _in_episode(_END),
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> _Answer:
        """Carry out a tool call; a refusal is returned as an answer with `is_error`, not raised."""
        call_arguments = dict(arguments)
        try:
            if name == BEGIN:
                return await self._begin(call_arguments)
            episode = self._open_episode(call_arguments.pop(EPISODE, None))
            if name == END:
                await self._close(episode, "this episode was ended; begin another")
                return _Answer(
                    f"ended {episode.name}", {EPISODE: episode.name, "return": episode.ret}
                )
            if name == SAY:
                return await self._step(episode, _text(call_arguments, "text"))
            if name == CALL:
                name, call_arguments = (
                    _text(call_arguments, "name"),
                    dict(call_arguments.get("arguments") or {}),
                )
            call = ToolCall(name=name, arguments=call_arguments, id="call_0")
            return await self._step(episode, assistant("", [call]))
        except (LudusError, _Refused) as error:
            return _Answer(str(error), is_error=True)

    async def _begin(self, call_arguments: dict[str, Any]) -> _Answer:
        unknown = call_arguments.keys() - _BEGIN.parameters["properties"].keys()
        seed = call_arguments.get("seed", 0)
        if unknown or isinstance(seed, bool) or not isinstance(seed, int):
            raise _Refused(f"{BEGIN} takes task, split (text) and seed (a number)")
        options = {
            key: str(call_arguments[key]) for key in ("task", "split") if call_arguments.get(key)
        }
        episode = _Episode(f"e-{secrets.token_hex(4)}", seq=1)
        beginning = Beginning(seed=seed, options=options)
        created = await self._run(Create(env=self.id, session=episode.name, reset=beginning))
        if isinstance(created, Fault):
            await self._run(Delete(session=episode.name))
            raise _Refused(created.message)
        assert isinstance(created, ResetReply)
        try:
            refuse_images(created.observation)
        except ConfigError:
            await self._run(Delete(session=episode.name))
            raise
        episode.task = created.task
        self._open[episode.name] = episode
        facts = {EPISODE: episode.name, "task": created.task}
        brief = created.briefing
        tool_names = {tool.name for tool in self._briefing.tools}
        new = [tool for tool in brief.tools if tool.name not in tool_names]
        parts = [brief.system_prompt, brief.answer_format, _text_of(created.observation)]
        if new:
            tool_list = "\n".join(msgspec.json.encode(tool).decode() for tool in new)
            parts.append(f"Tools of this episode, to be called by {CALL}:\n{tool_list}")
        limit = "" if brief.max_turns is None else f", at most {brief.max_turns} turns"
        parts.append(f"[{EPISODE} {episode.name}, task {episode.task}{limit}]")
        return _Answer("\n\n".join(part for part in parts if part), facts)

    async def _step(self, episode: _Episode, action: str | Message) -> _Answer:
        async with episode.turn:  # one at a time: a second call waits for the first
            if episode.name not in self._open:
                raise _Refused(self._ended.get(episode.name, "this episode is over"))
            step = Step(session=episode.name, seq=episode.seq, action=action)
            stepped = await self._run(step)
            if isinstance(stepped, Fault):
                if stepped.seq is None and stepped.retryable:
                    raise _Refused(f"{stepped.message}; call again")
                await self._close(episode, f"this episode has no result: {stepped.message}")
                raise _Refused(self._ended[episode.name])
            assert isinstance(stepped, StepReply)
            episode.seq += 1
            episode.ret += stepped.reward
            has_ended = stepped.terminated or stepped.truncated
            if not has_ended:  # nobody has to answer the last observation
                try:
                    refuse_images(stepped.observation)
                except ConfigError as error:
                    await self._close(episode, f"this episode has no result: {error}")
                    raise
            facts = {
                EPISODE: episode.name,
                "reward": stepped.reward,
                "return": episode.ret,
                "terminated": stepped.terminated,
                "truncated": stepped.truncated,
            }
            text = _text_of(stepped.observation)
            if has_ended:
                await self._close(episode, "this episode is over; begin another")
                ending = "" if stepped.terminated else " (out of turns)"
                text = f"{text}\n\n[the episode is over{ending}; reward {episode.ret:g}]".strip()
            return _Answer(text, facts, is_error=bool(stepped.info.get("tool_errors")))

    async def _close(self, episode: _Episode, reason: str) -> None:
        self._open.pop(episode.name, None)
        self._ended[episode.name] = reason
        while len(self._ended) > _ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        await self._run(Delete(session=episode.name))

    def _open_episode(self, name: object) -> _Episode:
        if name in (None, ""):
            if len(self._open) == 1:
                return next(iter(self._open.values()))
            problem = (
                f"{len(self._open)} episodes are open; name one" if self._open else "none is open"
            )
            raise _Refused(f"which {EPISODE}? {problem} ({BEGIN} begins one)")
        if isinstance(name, str) and name in self._open:
            return self._open[name]
        reason = self._ended.get(name) if isinstance(name, str) else None
        raise _Refused(reason or f"no {EPISODE} named {str(name)[:80]!r}; {BEGIN} begins one")

    async def _run(self, operation: Operation) -> Reply | Fault:
        """Carry out an operation, shielded: a client that disconnects does not cancel the work half
        way.
        """
        try:
            return read_outcome(await asyncio.shield(self._service.sessions.begin(operation)))
        except LudusError as error:
            return fault_of(error)

    # --- the SDK's server -----------------------------------------------------------------------

    def server(self) -> Server[Any]:
        """Return the SDK's server for this environment, to be run over stdio or HTTP."""
        from mcp.server import Server
        from mcp.types import (
            CallToolRequestParams,
            CallToolResult,
            ListToolsResult,
            TextContent,
            Tool,
        )

        async def list_tools(context: object, parameters: object) -> ListToolsResult:
            listed_tools = [
                Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
                for tool in self.tools()
            ]
            return ListToolsResult(tools=listed_tools)

        async def call_tool(context: object, parameters: CallToolRequestParams) -> CallToolResult:
            answer = await self.call(parameters.name, dict(parameters.arguments or {}))
            return CallToolResult(
                content=[TextContent(text=answer.text)],
                structured_content=answer.facts or None,
                is_error=answer.is_error,
            )

        return Server(
            f"ludus {self.id}",
            instructions=f"Call {BEGIN}, then play; the reward comes with the end.",
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )


class _Refused(Exception):
    """Raised for a request that cannot be carried out; the client reads the text."""


def _text(arguments: dict[str, Any], key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str):
        raise _Refused(f"the argument {key!r} must be text, got {type(value).__name__}")
    return value


def _text_of(observation: Observation) -> str:
    return "\n\n".join(message.text for message in as_messages(observation) if message.text)


def _spec(name: str, description: str, required: list[str], properties: dict[str, Any]) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name=name, description=description, parameters=parameters)


def _in_episode(tool: ToolSpec) -> ToolSpec:
    """Add to a tool the optional argument that names the episode."""
    episode_argument = {
        "type": "string",
        "description": f"from {BEGIN}; needed while several are open",
    }
    properties = {**tool.parameters.get("properties", {}), EPISODE: episode_argument}
    return msgspec.structs.replace(tool, parameters={**tool.parameters, "properties": properties})


_STRING = {"type": "string"}
_BEGIN = _spec(
    BEGIN,
    "Begin an episode and read its task.",
    [],
    {
        "task": {**_STRING, "description": "its id, such as test/3; by default the seed's"},
        "split": {"enum": ["train", "validation", "test"], "default": "train"},
        "seed": {"type": "integer", "default": 0, "description": "of the episode"},
    },
)
_SAY = _spec(
    SAY, "Say something to the environment: an answer, or a move.", ["text"], {"text": _STRING}
)
_CALL = _spec(
    CALL,
    "Call a tool of this episode.",
    ["name"],
    {"name": _STRING, "arguments": {"type": "object"}},
)
_END = _spec(END, "Give an episode up.", [], {})
