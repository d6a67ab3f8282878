"""`nemo-gym/URL`: a resources server of NeMo Gym, played with rows of a data set.

    env = ludus.make("nemo-gym/http://127.0.0.1:8010", data="example.jsonl")

A row is a task: it is sent to `/seed_session`, the policy's calls go to the routes of the tools,
and a message without calls ends the episode, which `/verify` then scores. The cookie of the session
stays with its episode.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role, ToolCall, assistant, tool_result
from ludus.verdict import Verdict

from ...problem_files import ProblemSet
from ...protocol import Briefing, Info, TextEnv
from ...tasks import TaskSet
from ...tools import ToolSpec
from ..inside.contract import PeerBroken, as_reward
from .exchange import PeerServer

_RESERVED = ("verify", "seed_session", "close_session", "aggregate_metrics", "mcp")
_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.ASSISTANT}


@dataclass(frozen=True, slots=True)
class NemoRow:
    """A row of the data set, in the server's form."""

    id: str
    row: dict[str, Any]
    difficulty: float | None = None


class NemoGymClient(TextEnv):
    """An environment on a resources server of NeMo Gym.

    Args:
        url: the address of the resources server.
        data: the file of the data set, JSON lines with `responses_create_params`.
        seed: seeds the split of the rows.
        validation: the share of the rows for validation.
        test: the share of the rows for test.
        max_turns: the most turns of an episode; its last message is scored all the same.
        timeout_s: the limit of each answer, in seconds.

    Raises:
        ConfigError: the address is none, or the file cannot be read.
    """

    deterministic = False  # the server promises nothing about its session

    def __init__(
        self,
        url: str,
        *,
        data: str = "",
        seed: int = 0,
        validation: float = 0.1,
        test: float = 0.1,
        max_turns: int = 32,
        timeout_s: float = 60.0,
    ) -> None:
        self._server = PeerServer("nemo-gym", url, timeout_s)
        if max_turns < 1:
            raise ConfigError(f"nemo-gym: max_turns must be 1 or more, got {max_turns!r}")
        rows = _read_rows(data)
        self._rows = ProblemSet(rows, seed=seed, validation=validation, test=test)
        self._bound = max_turns
        self._row: dict[str, Any] = {}
        self._output: list[dict[str, Any]] = []
        self._turns = 0
        self._tools: set[str] = set()

    def tasks(self, split: str) -> TaskSet:
        """Return the rows of a split, by a digest of the content."""
        return self._rows.tasks(split)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], Info]:
        """Seed a session of the server with the row of the task."""
        await self.close()
        self._row, self._output, self._turns = self._rows.problem(self.task).row, [], 0
        status, reply = await self._server.ask("POST", "/seed_session", self._row)
        if status == 404:
            raise self._server.failed("it has no /seed_session; is it a resources server?")
        if status != 200 or not isinstance(reply, dict):
            raise self._refusal("/seed_session", status, reply)
        opening, tools = _opening(self._row["responses_create_params"])
        self._tools = {tool.name for tool in tools}
        prompts = [message.text for message in opening if message.role is Role.SYSTEM]
        briefing = Briefing(system_prompt="\n\n".join(prompts), tools=tools)
        shown = [message for message in opening if message.role is not Role.SYSTEM]
        return shown, {"briefing": briefing}

    async def step(
        self, action: str | Message
    ) -> tuple[list[Message] | str, float | Verdict, bool, bool, Info]:
        """Run the calls of an action, or have the server score the episode."""
        text = action if isinstance(action, str) else action.text
        calls = [] if isinstance(action, str) else action.tool_calls
        self._turns += 1
        if text or not calls:
            self._output.append(
                {
                    "type": "message", "id": f"msg_{len(self._output)}", "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                    "status": "completed",
                }
            )  # fmt: skip
        results = [await self._called(call) for call in calls]
        if calls and self._turns < self._bound:
            return results, 0.0, False, False, {}
        # The server scores the whole episode, told as one response of the Responses API.
        given = self._row["responses_create_params"]
        response = {
            "id": "resp_ludus", "object": "response", "created_at": int(time.time()),
            "model": "policy", "output": self._output, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": given.get("tools") or [], "status": "completed",
        }  # fmt: skip
        body = {**self._row, "response": response}
        status, answer = await self._server.ask("POST", "/verify", body)
        if status != 200 or not isinstance(answer, dict):
            raise self._refusal("/verify", status, answer)
        return results or "", self._verdict(answer), True, False, {}

    async def close(self) -> None:
        """Close the connections, and drop the session's cookie."""
        await self._server.close()

    async def _called(self, call: ToolCall) -> Message:
        number = call.id or f"call_{len(self._output)}"
        arguments = json.dumps(call.arguments)
        self._output.append(
            {
                "type": "function_call", "id": f"fc_{len(self._output)}", "call_id": number,
                "name": call.name, "arguments": arguments, "status": "completed",
            }
        )  # fmt: skip
        if call.error:
            answer = f"this call was not executed: {call.error}"
        elif call.name not in self._tools:
            answer = f"no tool named {call.name[:80]!r}; there is {', '.join(sorted(self._tools))}"
        else:
            status, reply = await self._server.ask("POST", f"/{call.name}", call.arguments)
            if status >= 500:
                raise self._refusal(f"/{call.name}", status, reply)
            answer = reply if isinstance(reply, str) else json.dumps(reply)
        output = {"type": "function_call_output", "call_id": number, "output": answer}
        self._output.append(output)
        return tool_result(answer, call)

    def _verdict(self, reply: dict[str, Any]) -> Verdict:
        excluded = _excluded(reply)
        if excluded:
            return Verdict.unavailable(f"{self._server.label}: {excluded}"[:600])
        if "reward" not in reply:
            return Verdict.error(f"{self._server.label}: /verify answers without a reward")
        try:
            reward = as_reward(reply["reward"])
            parts = {
                str(name): (as_reward(value), 1.0)
                for name, value in (reply.get("reward_components") or {}).items()
            }
        except (PeerBroken, AttributeError) as error:
            return Verdict.error(f"{self._server.label}: {error}")
        return Verdict.of(reward, parts=parts)

    def _refusal(self, path: str, status: int, reply: Any) -> Exception:
        said = f"{path} answers {status}: {json.dumps(reply)[:300]}"
        if status in (429, 502, 503, 504):
            return self._server.unavailable(said)
        return self._server.failed(said)


def _excluded(reply: dict[str, Any]) -> str:
    """Say why the server excludes a sample from the server's scores; empty where the reward counts.

    Since 0.7 `mask_sample` decides, and a sample that names a failure beside `mask_sample: false`
    was measured all the same. Servers before 0.7 name a failure, or mask in `instance_config`.
    """
    named = [reply.get("failure_kind"), reply.get("failure_reason"), reply.get("_ng_failure_class")]
    masked = reply.get("mask_sample")
    if masked is None:
        settings = reply.get("instance_config")
        older = isinstance(settings, dict) and settings.get("mask_sample")
        masked = older or any(named)
    if not masked and not reply.get("_ng_failure_class"):
        return ""
    said = [str(reason) for reason in (*named, reply.get("_ng_failure_judge_error")) if reason]
    return " ".join(dict.fromkeys(said)) or "the server masks this sample and does not say why"


def _read_rows(place: str) -> list[NemoRow]:
    if not place:
        raise ConfigError(
            "nemo-gym needs the rows of the server's data set: data=FILE, JSON lines with "
            "responses_create_params"
        )
    try:
        lines = Path(place).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"nemo-gym: data={place!r} cannot be read: {error.strerror}") from error
    rows: dict[str, NemoRow] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"nemo-gym: {place}:{number} is not a JSON object: {error}") from None
        if not isinstance(row.get("responses_create_params"), dict):
            raise ConfigError(f"nemo-gym: {place}:{number} has no responses_create_params")
        try:
            _opening(row["responses_create_params"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"nemo-gym: {place}:{number}: its input or a tool is none of the Responses API: "
                f"{type(error).__name__}: {error}"
            ) from None
        name = hashlib.blake2b(line, digest_size=8).hexdigest()
        rows[name] = NemoRow(name, row)
    if not rows:
        raise ConfigError(f"nemo-gym: {place} has no rows")
    return list(rows.values())


def _opening(given: dict[str, Any]) -> tuple[list[Message], list[ToolSpec]]:
    """Read the messages and the tools of a request."""
    tools = [
        ToolSpec(
            name=str(tool["name"]),
            description=str(tool.get("description") or tool["name"]),
            parameters=tool.get("parameters") or {"type": "object", "properties": {}},
        )
        for tool in given.get("tools") or []
        if tool.get("type") == "function" and tool.get("name") not in _RESERVED
    ]
    return _messages(given.get("input", "")), tools


def _messages(given: Any) -> list[Message]:
    """Read the input of a Responses request: a text, or messages whose parts are texts, and calls
    that were made before with their outputs; thoughts are left out.
    """
    if isinstance(given, str):
        return [Message(role=Role.USER, content=given)]
    messages: list[Message] = []
    calls: dict[str, ToolCall] = {}
    for item in given:
        match item.get("type", "message"):
            case "function_call":
                call = calls[item["call_id"]] = ToolCall(
                    name=item["name"], arguments=json.loads(item["arguments"]), id=item["call_id"]
                )
                messages.append(assistant("", [call]))
            case "function_call_output":
                messages.append(tool_result(_text(item["output"]), calls[item["call_id"]]))
            case "message":
                role = _ROLES.get(item.get("role"), Role.USER)
                messages.append(Message(role=role, content=_text(item.get("content", ""))))
            case _:
                pass
    return messages


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content)
