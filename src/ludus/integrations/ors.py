"""The Open Reward Standard: unmodified ORS clients play what `ludus serve --ors` serves.

    ludus serve --ors ludus/arithmetic-v0 --port 8080
    ors.ORS(base_url="http://127.0.0.1:8080").environments.get("ludus-arithmetic-v0")

A task is named by its split and index, or by its spec `{"id", "split"}`. What a policy says without
a call goes through the tool `say`, which is added where an environment declares none of that name.
A turn without a reward of its own says `null`; a verdict that is not ok is an error of the stream,
never a number. Routes and shapes are those of ors-sdk 0.1 and openreward 0.1.167; ludus imports
neither.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from ludus.agent.loop import opening_of
from ludus.background import end_task
from ludus.envs.protocol import Briefing
from ludus.envs.serving.env_wire import EnvCard, TaskQuery
from ludus.envs.serving.server import EnvService
from ludus.envs.tasks import SPLITS, Task
from ludus.errors import ConfigError, LudusError
from ludus.messages import ImagePart, Message, Role, ToolCall, as_messages, assistant
from ludus.wire.codec import decode
from ludus.wire.faults import QueueFull, Refused, fault_of, status_of
from ludus.wire.principals import asked_by
from ludus.wire.routes import Context, Endpoint, Load, Route

from .hosted import HostedEpisode, Opening, PlayedTurn
from .openenv.protocol import SAY, SAY_TOOL

T = TypeVar("T")
VERSION = "0.1.167"
"""The version of openreward whose routes these are, as its clients ask for it."""
ENDLESS_TASKS = 10_000
"""How many tasks of a split without end are counted: the standard has no word for such a split."""
PAGE = 1000
CHUNK = 4096
"""The most characters of a piece of a result."""
PING_S = 10.0
"""Seconds between two signs of life on a stream; clients give up after 30."""
KEPT_S = 60.0
"""Seconds for which the result of a call can be asked for again."""
SWEEP_S = 5.0
ROOTS = frozenset(
    {
        "create",
        "create_session",
        "delete",
        "delete_session",
        "health",
        "healthz",
        "list_environments",
        "metrics",
        "openapi.json",
        "ping",
        "readyz",
        "v1",
        "version",
    }
)
"""Beginnings of paths that are never taken for a route of the first environment."""
_IMAGES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body of the standard, which takes no other field."""


class InSplit(Strict, frozen=True):
    """Names a split."""

    split: str


class AtIndex(Strict, frozen=True):
    """Names a task."""

    split: str
    index: int


class InRange(Strict, frozen=True):
    """Names tasks as a slice of a split."""

    split: str
    start: int | None = None
    stop: int | None = None


class OrsCreate(Strict, frozen=True):
    """Begins an episode: with `task_spec`, or `split` and `index`."""

    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    secrets: dict[str, str] | None = None
    toolset_name: str | None = None


class OrsCall(Strict, frozen=True):
    """Calls a tool; `task_id` asks for the result of a call that was made before."""

    name: str
    input: dict[str, Any]
    task_id: str | None = None


@dataclass(eq=False)
class OrsSession:
    """An episode of a client."""

    env: EnvCard
    owner: str
    episode: HostedEpisode
    touched: float
    setup: asyncio.Task[Opening]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class KeptCall:
    """A call and the result, kept for a repeated request."""

    session: str
    work: asyncio.Task[str]
    done: float = 0.0


class OrsService:
    """Lets clients of the standard play the environments of another service of the same server.

    Args:
        envs: the service of environments, which the server starts before this one.

    Raises:
        ConfigError: two ids have the same name in the standard, or one that its routes need.
    """

    name = "ors"

    def __init__(self, envs: EnvService) -> None:
        self._envs = envs
        self._ids = {ors_name(each.id): each.id for each in envs.served}
        if len(self._ids) < len(envs.served) or ROOTS & set(self._ids):
            raise ConfigError(
                "these environments have no names of their own in the standard: "
                f"{', '.join(each.id for each in envs.served)}"
            )
        self._sessions: dict[str, OrsSession] = {}
        self._named: dict[str, tuple[str, float]] = {}
        """Names that were given out, with whom they belong to and since when."""
        self._calls: dict[str, KeptCall] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """Return no route: calls are streams, and sessions are named in a header."""
        return []

    def endpoints(self) -> list[Endpoint]:
        """Return the routes of the standard."""
        plain: dict[tuple[str, str], Handler] = {
            ("GET", "/health"): _says({"status": "ok"}),
            ("GET", "/version"): _says({"version": VERSION, "build_sha": None}),
            ("GET", "/list_environments"): self._list,
            ("POST", "/ping"): self._ping,
            ("POST", "/create_session"): self._name_session,
            ("POST", "/create"): self._create,
            ("POST", "/delete"): self._delete,
            ("POST", "/delete_session"): self._delete,
            ("GET", "/{env}/splits"): self._splits,
            ("GET", "/{env}/tools"): self._tools,
            ("GET", "/{env}/task_tools"): self._task_tools,
            ("POST", "/{env}/tasks"): self._tasks,
            ("POST", "/{env}/num_tasks"): self._num_tasks,
            ("POST", "/{env}/task"): self._task,
            ("POST", "/{env}/task_range"): self._task_range,
            ("GET", "/{env}/prompt"): self._prompt,
            ("GET", "/{env}/messages"): self._messages,
            ("POST", "/{env}/call"): self._call,
            ("GET", "/{rest:.+}"): self._redirect,
            ("POST", "/{rest:.+}"): self._redirect,
        }
        return [
            Endpoint(method, path, partial(_standard_reply, handler))
            for (method, path), handler in plain.items()
        ]

    async def start(self, context: Context) -> None:
        """Begin to end the sessions that nobody uses."""
        self._sweeper = asyncio.create_task(self._sweep(), name="ludus-ors-sweep")

    async def stop(self) -> None:
        """Forget every session; the episodes belong to the service of environments."""
        await end_task(self._sweeper)
        for name in list(self._sessions):
            await self._end(name)
        for kept in self._calls.values():
            kept.work.cancel()

    def load(self) -> Load:
        """Report no load: every operation is counted by the service of environments."""
        return Load(queue_depth=0, limit=0)

    # --- what there is --------------------------------------------------------------------------

    async def _list(self, request: web.Request, body: bytes) -> web.StreamResponse:
        return _json(list(self._ids))

    async def _splits(self, request: web.Request, body: bytes) -> web.StreamResponse:
        names = self._card(request).splits
        return _json(
            [{"name": name, "type": name if name in SPLITS else "validation"} for name in names]
        )

    async def _tools(self, request: web.Request, body: bytes) -> web.StreamResponse:
        specs = self._card(request).briefing.tools
        tools = [
            {"name": each.name, "description": each.description, "input_schema": each.parameters}
            for each in specs
        ]
        return _json({"tools": with_say(tools)})

    async def _num_tasks(self, request: web.Request, body: bytes) -> web.StreamResponse:
        asked = decode(body, InSplit)
        return _json({"num_tasks": self._count(self._card(request), asked.split)})

    async def _tasks(self, request: web.Request, body: bytes) -> web.StreamResponse:
        card = self._card(request)
        count = self._count(card, split := decode(body, InSplit).split)
        return _json(
            {"tasks": await self._specs(card, split, 0, count), "env_name": ors_name(card.id)}
        )

    async def _task(self, request: web.Request, body: bytes) -> web.StreamResponse:
        card, asked = self._card(request), decode(body, AtIndex)
        spec = await self._spec_at(card, asked.split, asked.index)
        return _json({"task": spec, "env_name": ors_name(card.id)})

    async def _task_range(self, request: web.Request, body: bytes) -> web.StreamResponse:
        card, asked = self._card(request), decode(body, InRange)
        count = self._count(card, asked.split)
        start, stop, _ = slice(asked.start, asked.stop).indices(count)
        specs = await self._specs(card, asked.split, start, stop)
        return _json({"tasks": specs, "env_name": ors_name(card.id)})

    def _card(self, request: web.Request, name: str = "") -> EnvCard:
        return self._card_of(name or request.match_info["env"])

    def _card_of(self, name: str) -> EnvCard:
        env_id = self._ids.get(name.lower())
        if env_id is None:
            raise Refused(
                f"unknown environment {name!r}; served: {', '.join(self._ids)}", "not_found"
            )
        asked_by.get().require(f"env:{env_id}")
        card = next(each.card for each in self._envs.served if each.id == env_id)
        assert card is not None, "the server has started"
        return card

    def _count(self, card: EnvCard, split: str) -> int:
        if split not in card.splits:
            raise Refused(f"no split {split!r}; there are {', '.join(card.splits)}", "malformed")
        count = card.splits[split]
        return ENDLESS_TASKS if count is None else count

    async def _spec_at(self, card: EnvCard, split: str, index: int) -> dict[str, Any]:
        count = self._count(card, split)
        endless = card.splits[split] is None
        if index < 0 or (index >= count and not endless):
            raise Refused(f"no task {index} in {split!r}, which has {count}", "malformed")
        return (await self._specs(card, split, index, index + 1))[0]

    async def _specs(
        self, card: EnvCard, split: str, start: int, stop: int
    ) -> list[dict[str, Any]]:
        tasks = list[Task]()
        while start + len(tasks) < stop:
            size = min(PAGE, stop - start - len(tasks))
            query = TaskQuery(split=split, offset=start + len(tasks), limit=size)
            page = (await self._envs.tasks({"id": card.id}, query)).tasks
            tasks += page
            if len(page) < size:
                break
        return [{"id": task.id, "split": task.split} for task in tasks]

    # --- sessions -------------------------------------------------------------------------------

    async def _name_session(self, request: web.Request, body: bytes) -> web.StreamResponse:
        self._named = {n: each for n, each in self._named.items() if self._is_fresh(each[1])}
        if len(self._named) >= self._envs.limits.max_sessions:
            most = self._envs.limits.max_sessions
            raise QueueFull(f"{len(self._named)} of {most} sessions are named", limit=most)
        name = secrets.token_hex(16)
        self._named[name] = asked_by.get().name, time.monotonic()
        stream = await _begin_stream(request)
        await stream.write(f"event: task_id\ndata: {name}\n\nevent: end\ndata: \n\n".encode())
        return stream

    async def _create(self, request: web.Request, body: bytes) -> web.StreamResponse:
        name, asked = _session_name(request), decode(body, OrsCreate)
        if name in self._sessions:
            raise Refused(f"the session {name!r} was created before", "malformed")
        owner, _ = self._named.get(name, (asked_by.get().name, 0.0))
        if owner != asked_by.get().name:
            raise Refused(f"no session {name!r}", "not_found")
        by_index = asked.split is not None and asked.index is not None
        if (asked.task_spec is not None) == by_index or (asked.split is None) != (
            asked.index is None
        ):
            raise Refused("give either task_spec, or both split and index", "invalid")
        card = self._card_of(asked.env_name or next(iter(self._ids)))
        spec = asked.task_spec
        if asked.split is not None and asked.index is not None:
            spec = await self._spec_at(card, asked.split, asked.index)
        assert spec is not None
        self._named.pop(name, None)
        episode = HostedEpisode(self._envs, card.id)
        setup = asyncio.create_task(_set_up(episode, spec), name="ludus-ors-setup")
        self._sessions[name] = OrsSession(card, owner, episode, time.monotonic(), setup)
        return _json({"sid": name})

    async def _ping(self, request: web.Request, body: bytes) -> web.StreamResponse:
        session = self._session(request)
        session.episode.touch()
        return _json({"status": "ok"})

    async def _delete(self, request: web.Request, body: bytes) -> web.StreamResponse:
        name = _session_name(request)
        session = self._sessions.get(name)
        if session is not None and session.owner == asked_by.get().name:
            await self._end(name)
        self._named.pop(name, None)
        return _json({"sid": name})

    def _session(self, request: web.Request) -> OrsSession:
        name = _session_name(request)
        session = self._sessions.get(name)
        if session is None or session.owner != asked_by.get().name:
            raise Refused(f"no session {name!r}, or no longer", "not_found")
        session.touched = time.monotonic()
        return session

    async def _ready(self, request: web.Request) -> tuple[OrsSession, Opening]:
        """Return the session with its opening; an error of the setup is raised here, at first
        use.
        """
        session = self._session(request)
        return session, await asyncio.shield(session.setup)

    async def _end(self, name: str) -> None:
        session = self._sessions.pop(name)
        session.setup.cancel()
        await session.episode.close()

    def _is_fresh(self, since: float) -> bool:
        return time.monotonic() - since <= self._envs.limits.lease_s

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._envs.limits.lease_s / 4))
            silent = [n for n, each in self._sessions.items() if not self._is_fresh(each.touched)]
            for name in silent:
                await self._end(name)
            old = time.monotonic() - KEPT_S
            self._calls = {
                name: kept for name, kept in self._calls.items() if not kept.done or kept.done > old
            }

    # --- episodes -------------------------------------------------------------------------------

    async def _task_tools(self, request: web.Request, body: bytes) -> web.StreamResponse:
        _, opening = await self._ready(request)
        return _json({"tools": with_say(opening.tools)})

    async def _prompt(self, request: web.Request, body: bytes) -> web.StreamResponse:
        _, opening = await self._ready(request)
        return _json([block for message in opened(opening) for block in blocks(message.content)])

    async def _messages(self, request: web.Request, body: bytes) -> web.StreamResponse:
        _, opening = await self._ready(request)
        return _json(
            [
                {"role": _ROLES[message.role], "blocks": blocks(message.content)}
                for message in opened(opening)
            ]
        )

    async def _call(self, request: web.Request, body: bytes) -> web.StreamResponse:
        session, opening = await self._ready(request)
        call, name = decode(body, OrsCall), _session_name(request)
        task_id = call.task_id or secrets.token_hex(8)
        kept = self._calls.get(task_id)
        if call.task_id is None:
            work = asyncio.create_task(_called(session, opening, call), name="ludus-ors-call")
            kept = self._calls[task_id] = KeptCall(name, work)
            work.add_done_callback(lambda _: _note_end(kept))
        stream = await _begin_stream(request)
        if kept is None or kept.session != name:
            await stream.write(b"event: error\ndata: unknown task_id\n\n")
            return stream
        await stream.write(f"event: task_id\ndata: {task_id}\n\n".encode())
        async for piece in _result_of(kept.work):
            await stream.write(piece)
        return stream

    async def _redirect(self, request: web.Request, body: bytes) -> web.StreamResponse:
        first = request.path.strip("/").partition("/")[0].lower()
        if first in self._ids or first in ROOTS:
            raise Refused(f"no route {request.path!r}", "not_found")
        location = f"/{next(iter(self._ids))}{request.path_qs}"
        return web.Response(status=308, headers={"Location": location})


Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
_ROLES = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "user"}


def ors_name(env_id: str) -> str:
    """Return the name of an environment in the standard, whose paths have no place for a slash.

    >>> ors_name("ludus/arithmetic-v0")
    'ludus-arithmetic-v0'
    """
    return env_id.replace("/", "-").lower()


def with_say(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools, and `say` for what a policy says without a call."""
    return tools if any(tool["name"] == SAY for tool in tools) else [*tools, SAY_TOOL]


def opened(opening: Opening) -> list[Message]:
    """Return the messages that a policy sees before the first action."""
    briefing = Briefing(system_prompt=opening.system_prompt, answer_format=opening.answer_format)
    return opening_of(briefing, opening.observation)


def blocks(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of a message's content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content, "detail": None}]
    shown = list[dict[str, Any]]()
    for part in content:
        if not isinstance(part, ImagePart):
            shown.append({"type": "text", "text": part.text, "detail": None})
            continue
        data = part.data
        if part.url:
            data = base64.b64decode(part.url.partition("base64,")[2])
        kind = next((kind for mark, kind in _IMAGES.items() if data.startswith(mark)), "image/png")
        encoded = base64.b64encode(data).decode()
        shown.append({"type": "image", "data": encoded, "mimeType": kind, "detail": None})
    return shown


def pieces(text: str, size: int = CHUNK) -> list[str]:
    """Cut a result into pieces, none of which begins with a blank: clients strip these.

    >>> pieces("ab  cd", 2)
    ['ab  ', 'cd']
    """
    cut, start = list[str](), 0
    while start < len(text):
        end = start + size
        while end < len(text) and text[end].isspace():
            end += 1
        cut.append(text[start:end])
        start = end
    return cut


async def _set_up(episode: HostedEpisode, spec: dict[str, Any]) -> Opening:
    if not isinstance(spec.get("id"), str):
        raise Refused("a task_spec here is {'id', 'split'}, as /tasks tells it", "invalid")
    # A task is all that the standard names an episode by, so it fixes the episode.
    return await episode.reset(seed=0, options={"task": spec["id"]}, carries_images=True)


async def _called(session: OrsSession, opening: Opening, call: OrsCall) -> str:
    """Play a call, and return the JSON of the result."""
    async with session.turn:
        names = [tool["name"] for tool in with_say(opening.tools)]
        if session.episode.over:
            return _failed("the episode is over", "episode_finished")
        if call.name not in names:
            return _failed(f"no tool {call.name!r}; there are {', '.join(names)}", "not_found")
        declares_say = any(tool["name"] == SAY for tool in opening.tools)
        if call.name == SAY and not declares_say:
            text = call.input.get("text")
            if not isinstance(text, str) or len(call.input) > 1:
                return _failed(f"{SAY} takes 'text', a text", "input_validation")
            action: str | Message = text
        else:
            action = assistant("", [ToolCall(name=call.name, arguments=call.input, id="call_0")])
        return _succeeded(await session.episode.step(action, carries_images=True))


def _succeeded(turn: PlayedTurn) -> str:
    """Return the JSON of a turn; ASCII alone, so that a piece ends nowhere within a character."""
    # A turn that earns nothing and does not end the episode has no reward to tell, not one of 0.
    reward = turn.reward if turn.over or turn.reward else None
    output = {
        "blocks": [
            block for message in as_messages(turn.observation) for block in blocks(message.content)
        ],
        "metadata": {"turn": turn.turn, "truncated": turn.truncated},
        "reward": reward,
        "finished": turn.over,
    }
    return json.dumps({"ok": True, "output": output}, separators=(",", ":"))


def _failed(error: str, reason: str) -> str:
    return json.dumps({"ok": False, "error": error, "reason": reason})


def _note_end(kept: KeptCall) -> None:
    kept.done = time.monotonic()
    if not kept.work.cancelled():
        kept.work.exception()  # told on the stream, if anybody listens


async def _result_of(work: asyncio.Task[str]) -> AsyncIterator[bytes]:
    """Yield the events that end a call's stream, with signs of life before."""
    while not work.done():
        await asyncio.wait({work}, timeout=PING_S)
        if not work.done():
            yield b": ping\n\n"
    if work.cancelled():
        yield b"event: error\ndata: the server stopped\n\n"
    elif (error := work.exception()) is not None:
        message = (
            str(error) if isinstance(error, LudusError) else f"{type(error).__name__}: {error}"
        )
        yield f"event: error\ndata: {' '.join(message.split())}\n\n".encode()
    else:
        *first, last = pieces(work.result())
        for piece in first:
            yield f"event: chunk\ndata: {piece}\n\n".encode()
        yield f"event: end\ndata: {last}\n\n".encode()


async def _begin_stream(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    await stream.prepare(request)
    return stream


def _session_name(request: web.Request) -> str:
    name = request.headers.get("X-Session-ID", "").strip()
    if not name:
        raise Refused("the header X-Session-ID is required", "malformed")
    return name


async def _standard_reply(
    handler: Handler, request: web.Request, body: bytes
) -> web.StreamResponse:
    """Answer a request, with errors in the form of the standard."""
    try:
        return await handler(request, body)
    except LudusError as error:
        fault = fault_of(error)
        answer = _json({"detail": fault.message})
        answer.set_status(status_of(fault))
        if fault.retry_after_s is not None:
            answer.headers["Retry-After"] = str(int(fault.retry_after_s) + 1)
        return answer


def _says(value: Any) -> Handler:
    async def say(request: web.Request, body: bytes) -> web.StreamResponse:
        return _json(value)

    return say


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
