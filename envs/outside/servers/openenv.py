"""`openenv/URL`: an environment on an OpenEnv server, played over a WebSocket.

    env = ludus.make("openenv/http://127.0.0.1:8000")

An episode is a socket. A reply has no number, so a socket whose reply was late is never used again:
the late reply would be taken for the answer to the next step.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, ToolCall, tool_result
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...tasks import SPLITS, GeneratedTasks, TaskSet
from ...tools import ToolSpec
from ..inside.contract import PeerBroken, as_reward, as_text
from ..peer_env import SEEDS_PER_SPLIT
from .exchange import MAX_BYTES, PeerServer

_NOT_SHOWN = ("done", "reward", "metadata")
_POLICY = ("VALIDATION_ERROR", "INVALID_JSON")
"""The errors that an action of the policy may cause."""


class OpenEnvReply(msgspec.Struct):
    """A message of the server."""

    type: str
    data: dict[str, Any] = {}


class OpenEnvClient(TextEnv):
    """An environment on an OpenEnv server.

    A text becomes the field of the action that holds text; an action of several fields is JSON of
    an object. A server whose tools are listed by MCP gets calls. An observation of one text is
    shown as it is, any other as JSON.

    Args:
        url: the server's address.
        text_field: the field of the action that takes the policy's text; by default the only
            one that is a string.
        deterministic: whether the environment obeys its seed. OpenEnv does not promise that.
        max_turns: the most steps of an episode; 0 leaves the end to the server.
        timeout_s: the limit of each answer, in seconds.

    Raises:
        ConfigError: the address is none.
    """

    def __init__(
        self,
        url: str,
        *,
        text_field: str = "",
        deterministic: bool = False,
        max_turns: int = 0,
        timeout_s: float = 60.0,
    ) -> None:
        self._server = PeerServer("openenv", url, timeout_s)
        self.deterministic = deterministic
        self._text_field, self._bound = text_field, max_turns or None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._rewarded = False
        self._by_tools = False

    def tasks(self, split: str) -> TaskSet:
        """Return a task for each seed of the split's range."""
        return GeneratedTasks(split, SEEDS_PER_SPLIT)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Open a socket, and begin an episode with the task's seed."""
        await self.close()
        await self._learn_the_action()
        await self._connect()
        index = int(self.task.id.rpartition("/")[2])
        number = SPLITS.index(self.task.split) * SEEDS_PER_SPLIT + index
        self._rewarded = False
        answer = await self._asked("reset", {"seed": number})
        if answer.get("done"):
            raise self._server.failed("the episode was over at reset")
        tools = await self._tools() if self._by_tools else []
        briefing = Briefing(tools=tools, max_turns=self._bound)
        return self._shown(answer), {"briefing": briefing}

    async def step(
        self, action: str | Message
    ) -> tuple[str | list[Message], float | Verdict, bool, bool, Info]:
        """Send an action."""
        if isinstance(action, Message) and action.tool_calls:
            return await self._calls(action.tool_calls)
        text = action if isinstance(action, str) else action.text
        try:
            sent = self._action(text)
        except ValueError as error:
            return f"The action cannot be read: {error}", 0.0, False, False, {"invalid": 1}
        return await self._sent(sent)

    async def close(self) -> None:
        """Close the socket, which ends the episode on the server."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
        await self._server.close()

    async def _learn_the_action(self) -> None:
        status, reply = await self._server.ask("GET", "/schema")
        schema = reply.get("action") if isinstance(reply, dict) else None
        if status != 200 or not isinstance(schema, dict):
            raise self._server.failed(
                f"GET /schema answers {status} without a schema of actions; is it a server of "
                "OpenEnv 0.2 or newer?"
            )
        fields: dict[str, Any] = schema.get("properties") or {}
        own = {name: field for name, field in fields.items() if name != "metadata"}
        texts = [name for name, field in own.items() if _is_text(field)]
        needed = [name for name in schema.get("required") or [] if name != "metadata"]
        if self._text_field and self._text_field not in own:
            names = ", ".join(own) or "none"
            raise ConfigError(f"{self._server.label}: no field {self._text_field!r} of {names}")
        self._by_tools = not own or ("tool_name" in own and not self._text_field)
        fits = len(texts) == 1 and set(needed) <= set(texts)
        self._field = self._text_field or (texts[0] if fits else "")

    def _action(self, text: str) -> dict[str, Any]:
        if self._field:
            return {self._field: text}
        try:
            value = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(value, dict):
            raise ValueError("it has to be a JSON object with the fields of an action")
        return value

    async def _sent(self, action: dict[str, Any]) -> tuple[str, float | Verdict, bool, bool, Info]:
        try:
            answer = await self._asked("step", action)
        except _RefusedAction as refusal:
            return f"The action was refused: {refusal}", 0.0, False, False, {"invalid": 1}
        done = answer.get("done") is True
        try:
            reward = self._reward(answer.get("reward"), done)
            shown = self._shown(answer)
        except PeerBroken as error:
            raise self._server.failed(str(error)) from error
        return shown, reward, done, False, {}

    def _reward(self, reward: Any, done: bool) -> float:
        if reward is not None:
            self._rewarded = True
            return as_reward(reward)
        if done and not self._rewarded:
            raise PeerBroken("the episode ended and no step of it had a reward")
        return 0.0

    def _shown(self, answer: dict[str, Any]) -> str:
        seen = answer.get("observation")
        if not isinstance(seen, dict):
            return as_text(seen if seen is not None else "")
        kept = {name: value for name, value in seen.items() if name not in _NOT_SHOWN}
        texts = [value for value in kept.values() if isinstance(value, str)]
        return texts[0] if len(kept) == len(texts) == 1 else as_text(kept)

    async def _tools(self) -> list[ToolSpec]:
        answer = await self._asked("step", {"type": "list_tools"})
        seen = answer.get("observation")
        listed = seen.get("tools") if isinstance(seen, dict) else None
        if not isinstance(listed, list):
            raise self._server.failed("it lists no tools, and its actions have no fields")
        return [
            ToolSpec(
                name=str(tool["name"]),
                description=str(tool.get("description") or tool["name"]),
                parameters=_parameters(tool),
            )
            for tool in listed
            if isinstance(tool, dict) and "name" in tool
        ]

    async def _calls(
        self, calls: list[ToolCall]
    ) -> tuple[list[Message], float | Verdict, bool, bool, Info]:
        results, total, done = list[Message](), 0.0, False
        for call in calls:
            if call.error or done:
                results.append(tool_result(call.error or "the episode is over", call))
                continue
            sent = {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
            shown, reward, done, _, _ = await self._sent(sent)
            assert not isinstance(reward, Verdict)
            results.append(tool_result(shown, call))
            total += reward
        return results, total, done, False, {}

    async def _connect(self) -> None:
        address = "ws" + self._server.url.removeprefix("http") + "/ws"
        try:
            self._socket = await self._server.session().ws_connect(
                address, max_msg_size=MAX_BYTES, autoping=True, heartbeat=None
            )
        except TimeoutError:
            raise self._server.unavailable(
                f"no connection within {self._server.timeout_s:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._server.unavailable(f"/ws: {error}") from error

    async def _asked(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Send a message, and return the data of the answering observation."""
        if self._socket is None:
            raise self._server.unavailable("the connection of the episode is gone")
        try:
            async with asyncio.timeout(self._server.timeout_s):
                await self._socket.send_str(json.dumps({"type": kind, "data": data}))
                came = await self._socket.receive()
        except TimeoutError:
            await self.close()
            late = f"no answer to {kind} within {self._server.timeout_s:g} s"
            raise self._server.unavailable(late) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._server.unavailable(f"{kind}: {error}") from error
        if came.type is not aiohttp.WSMsgType.TEXT:
            raise self._server.unavailable(f"the connection was closed at {kind}")
        try:
            reply = msgspec.json.decode(came.data, type=OpenEnvReply)
        except msgspec.MsgspecError as error:
            raise self._server.failed(f"the answer to {kind} cannot be read: {error}") from error
        if reply.type == "error":
            raise self._error(kind, reply.data)
        if reply.type != "observation":
            raise self._server.failed(f"{kind} is answered by {reply.type!r}")
        return reply.data

    def _error(self, kind: str, reply: dict[str, Any]) -> Exception:
        code, said = str(reply.get("code", "")), str(reply.get("message", ""))
        if kind == "step" and code in _POLICY:
            return _RefusedAction(said[:500])
        if code in ("CAPACITY_REACHED", "SESSION_ERROR"):
            return self._server.unavailable(f"{code}: {said}")
        return self._server.failed(f"{kind} failed: {code}: {said}"[:600])


class _RefusedAction(Exception):
    """The server refuses the form of an action."""


def _parameters(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema") or tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {"type": "object", "properties": {}}


def _is_text(schema: Any) -> bool:
    options = [schema, *(schema.get("anyOf") or [])] if isinstance(schema, dict) else []
    return any(isinstance(option, dict) and option.get("type") == "string" for option in options)
