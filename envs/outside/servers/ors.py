"""`ors/URL`: an environment on a server of the Open Reward Standard.

    env = ludus.make("ors/http://127.0.0.1:8080", environment="maze")

A task is a split and an index. The policy's calls go to the server one after another; a call's
result comes as a stream of pieces, and is asked for again under its name where the stream breaks,
so that no call is made twice. Rewards of calls add up; `null` is none. An episode that ends without
any has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import msgspec

from ludus.background import end_task
from ludus.errors import ConfigError, UnknownTask
from ludus.messages import ImagePart, Message, Part, TextPart, ToolCall, tool_result, user
from ludus.secret import NO_SECRET, Secret
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...tasks import SPLITS, GeneratedTasks, TaskSet
from ...tools import ToolSpec
from ..inside.contract import PeerBroken, as_reward
from .exchange import CONNECT_TIMEOUT_S, MAX_BYTES, PeerServer

PING_S = 10.0
TRIES = 5
"""How often a broken stream is asked for again."""
WAIT_S = 0.25
NEEDS_A_CALL = "This environment takes calls of its tools alone; the text was not passed on."
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
Played = tuple[list[Message] | str, float | Verdict, bool, bool, Info]


class OrsClient(TextEnv):
    """An environment on a server of the Open Reward Standard.

    What the policy says without a call goes to the server's terminal tool or to its tool `say`,
    where it has one.

    Args:
        url: the server's address.
        environment: the name of the environment; by default the server's first.
        api_key: the server's key, best given as env:NAME.
        deterministic: whether the environment obeys its task; the standard does not promise that.
        max_turns: the most turns of an episode; 0 leaves the end to the server.
        timeout_s: the limit of each answer, in seconds.

    Raises:
        ConfigError: the address is none.
    """

    def __init__(
        self,
        url: str,
        *,
        environment: str = "",
        api_key: Secret = NO_SECRET,
        deterministic: bool = False,
        max_turns: int = 0,
        timeout_s: float = 60.0,
    ) -> None:
        self._server = PeerServer("ors", url, timeout_s)
        self.deterministic = deterministic
        self._env, self._key, self._bound = environment, Secret.of(api_key), max_turns or None
        self._splits: dict[str, tuple[str, int]] = {}
        """Our split -> the server's, with the number of its tasks."""
        self._sid = ""
        self._terminal: dict[str, Any] | None = None
        self._names: set[str] = set()
        self._rewarded = False
        self._beat: asyncio.Task[None] | None = None

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of the server's split of this name, or else of this type.

        Raises:
            UnknownTask: the server has no such split.
            RewardUnavailable: it does not answer.
        """
        if not self._splits:
            self._read_splits()
        if split not in self._splits:
            there = ", ".join(self._splits) or "none"
            raise UnknownTask(f"{self._server.label} has no split {split!r}; there are {there}")
        return GeneratedTasks(split, self._splits[split][1])

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], Info]:
        """Open a session with the task."""
        await self.close()
        if not self._splits:
            await asyncio.to_thread(self._read_splits)
        split, _ = self._splits[self.task.split]
        index = int(self.task.id.rpartition("/")[2])
        self._rewarded = False
        events = [event async for event in self._events("/create_session", {})]
        self._sid = next((data.strip() for kind, data in events if kind == "task_id"), "")
        if not self._sid:
            raise self._server.failed("/create_session names no session")
        await self._answer(
            "POST", "/create", {"split": split, "index": index, "env_name": self._env}
        )
        self._beat = asyncio.create_task(self._keep_alive(), name="ludus-ors-beat")
        prompt = await self._answer("GET", f"/{self._env}/prompt")
        try:
            briefing = Briefing(tools=await self._tools(), max_turns=self._bound)
            return [user(self._parts(prompt))], {"briefing": briefing}
        except (KeyError, TypeError, AttributeError) as error:
            said = f"its tools or its prompt cannot be read: {error!r}"
            raise self._server.failed(said) from error

    async def step(self, action: str | Message) -> Played:
        """Make the calls of an action; what is said without a call goes where text goes."""
        calls = [] if isinstance(action, str) else action.tool_calls
        text = action if isinstance(action, str) else action.text
        if not calls:
            if self._terminal is not None:
                argument = self._terminal.get("arg")
                name, given = str(self._terminal["name"]), {argument: text} if argument else {}
            elif "say" in self._names:
                name, given = "say", {"text": text}
            else:
                return NEEDS_A_CALL, 0.0, False, False, {}
            shown, reward, over = await self._call(ToolCall(name=name, arguments=given, id="said"))
            return [user(shown)], self._final(reward, over), over, False, {}
        results, total, over = list[Message](), 0.0, False
        for call in calls:
            if call.error or over:
                results.append(tool_result(call.error or "the episode is over", call))
                continue
            shown, reward, over = await self._call(call)
            results.append(tool_result(shown, call))
            total += reward
        return results, self._final(total, over), over, False, {}

    async def close(self) -> None:
        """Release the session."""
        beat, self._beat = self._beat, None
        await end_task(beat)
        if self._sid:
            for path in ("/delete", "/delete_session"):
                with suppress(Exception):  # it ends by itself too
                    await self._answer("POST", path, {})
        self._sid = ""
        await self._server.close()

    # --- the server -----------------------------------------------------------------------------

    def _read_splits(self) -> None:
        """Ask the server for the environment, the splits and the tasks."""
        key = self._key.reveal()
        clock = httpx.Timeout(self._server.timeout_s, connect=CONNECT_TIMEOUT_S)
        headers = {"X-API-Key": key} if key else {}
        # Kept once all is read: where a request fails, the next call asks for everything again.
        splits: dict[str, tuple[str, int]] = {}
        try:
            with httpx.Client(timeout=clock, headers=headers) as http:
                names = self._read(http.get(f"{self._server.url}/list_environments"))
                env = self._env or str(names[0])
                if env.lower() not in [str(name).lower() for name in names]:
                    raise ConfigError(
                        f"{self._server.label} has no environment {env!r}, but "
                        f"{', '.join(map(str, names))}"
                    )
                root = f"{self._server.url}/{env}"
                for split in self._read(http.get(f"{root}/splits")):
                    name, kind = str(split["name"]), str(split["type"])
                    asked = http.post(f"{root}/num_tasks", json={"split": name})
                    ours = name if name in SPLITS else kind
                    if name in SPLITS or ours not in splits:
                        splits[ours] = name, int(self._read(asked)["num_tasks"])
        except httpx.HTTPError as error:
            raise self._server.unavailable(str(error) or type(error).__name__) from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, ConfigError):
                raise
            raise self._server.failed(f"what it lists cannot be read: {error!r}") from error
        self._env, self._splits = env, splits

    def _read(self, reply: httpx.Response) -> Any:
        if reply.status_code != 200:
            said = f"{reply.request.url.path} is answered {reply.status_code}: {reply.text[:200]}"
            raise self._server.failed(said)
        return reply.json()

    async def _tools(self) -> list[ToolSpec]:
        status, listed = await self._ask("GET", f"/{self._env}/task_tools")
        if status == 404:  # a server without tools of tasks
            listed = await self._answer("GET", f"/{self._env}/tools")
        elif status != 200:
            raise self._server.failed(f"/task_tools is answered {status}")
        self._terminal = listed.get("terminal_tool")
        specs = [
            ToolSpec(
                name=str(tool["name"]),
                description=str(tool.get("description") or tool["name"]),
                parameters=tool.get("input_schema") or _NO_PARAMETERS,
            )
            for tool in listed.get("tools", [])
        ]
        self._names = {spec.name for spec in specs}
        return specs

    async def _call(self, call: ToolCall) -> tuple[str | list[Part], float, bool]:
        """Make a call; return the result to show, the reward, and whether the episode ends."""
        body = {"name": call.name, "input": call.arguments}
        data = ""
        async for kind, piece in self._events(f"/{self._env}/call", body):
            if kind in ("chunk", "end"):
                data += piece
            elif kind == "error":
                raise self._server.failed(f"{call.name} failed: {piece[:500]}")
        try:
            result = msgspec.json.decode(data)
            if not result["ok"]:  # the policy's own mistake
                return f"The call was refused: {result['error']}"[:2000], 0.0, False
            output = result["output"]
            reward = output.get("reward")
            self._rewarded = self._rewarded or reward is not None
            earned = 0.0 if reward is None else as_reward(reward)
            return self._parts(output["blocks"]), earned, output.get("finished") is True
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, PeerBroken) as error:
            raise self._server.failed(
                f"the result of {call.name} cannot be read: {error}"
            ) from error

    def _final(self, reward: float, over: bool) -> float:
        if over and not self._rewarded:
            raise self._server.failed("the episode ended and no call of it had a reward")
        return reward

    def _parts(self, blocks: Any) -> str | list[Part]:
        """Return blocks as the content of a message: a single text if no block is an image."""
        parts = list[Part]()
        for block in blocks:
            if block.get("type") == "image":
                kind = block.get("mimeType", "image/png")
                parts.append(ImagePart(url=f"data:{kind};base64,{block['data']}"))
            else:
                parts.append(TextPart(text=str(block.get("text", ""))))
        if any(isinstance(part, ImagePart) for part in parts):
            return parts
        return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))

    def _headers(self) -> dict[str, str]:
        key = self._key.reveal()
        named = {"X-API-Key": key} if key else {}
        return {**named, **({"X-Session-ID": self._sid} if self._sid else {})}

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request of the session; return the status and the answer."""
        return await self._server.ask(method, path, body, headers=self._headers())

    async def _answer(self, method: str, path: str, body: object = None) -> Any:
        """Send a request of the session; return the answer, which has to be a success."""
        status, reply = await self._ask(method, path, body)
        if status != 200:
            detail = reply.get("detail", reply) if isinstance(reply, dict) else reply
            raise self._server.failed(f"{path} is answered {status}: {str(detail)[:300]}")
        return reply

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            with suppress(Exception):  # the next call tells what is wrong
                await self._ask("POST", "/ping", {})

    async def _events(self, path: str, body: dict[str, Any]) -> AsyncIterator[tuple[str, str]]:
        """Yield the events of a stream; a broken stream is asked for again by the name of the call,
        and then repeats the earlier events.
        """
        task_id, kept = "", list[tuple[str, str]]()
        for attempt in range(TRIES):
            kept = []
            try:
                sent = {**body, "task_id": task_id} if task_id else body
                async for kind, data in self._stream(path, sent):
                    kept.append((kind, data))
                    task_id = data.strip() if kind == "task_id" else task_id
                    if kind in ("end", "error"):
                        break
                else:
                    raise aiohttp.ClientPayloadError("the stream ended before the result")
                break
            except (aiohttp.ClientError, OSError) as error:
                # Without the name of the call it may have been made: it is not made again.
                if attempt + 1 == TRIES or not task_id:
                    raise self._server.unavailable(f"{path}: {error}") from error
                await asyncio.sleep(WAIT_S * 2**attempt)
        for event in kept:
            yield event

    async def _stream(self, path: str, body: dict[str, Any]) -> AsyncIterator[tuple[str, str]]:
        url, headers = self._server.url + path, self._headers()
        clock = aiohttp.ClientTimeout(total=None, sock_read=self._server.timeout_s)
        try:
            async with self._server.session().post(
                url, json=body, headers=headers, timeout=clock
            ) as reply:
                if reply.status != 200:
                    said = (await reply.content.read(500)).decode(errors="replace")
                    raise self._server.failed(f"{path} is answered {reply.status}: {said}")
                async for event in events_of(reply.content):
                    yield event
        except TimeoutError:
            late = f"no sign of life on {path} within {self._server.timeout_s:g} s"
            raise self._server.unavailable(late) from None


async def events_of(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, str]]:
    """Yield the events of a stream, wherever the bytes were cut on the way.

    Of the blanks after a colon one belongs to the format; those behind it are the result's.

    Raises:
        ClientPayloadError: an event is too long.
    """
    buffer, kind, lines, size = b"", "", list[str](), 0
    async for data in content.iter_any():
        buffer += data
        *whole, buffer = buffer.split(b"\n")
        size += len(data)
        if size > MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"an answer is longer than {MAX_BYTES} bytes")
        for raw in whole:  # a line is decoded whole: no cut within a character is left in it
            line = raw.decode("utf-8", "replace").rstrip("\r")
            if not line:
                if kind:
                    yield kind, "\n".join(lines)
                kind, lines = "", []
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                lines.append(value)
