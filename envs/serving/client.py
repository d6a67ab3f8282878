"""How operations of remote sessions travel over plain HTTP: singly, or many in a request."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from ludus.errors import (
    EpisodeEnded,
    InvalidAction,
    LudusError,
    Overloaded,
    RemoteError,
    SessionGone,
    UnknownEnv,
)
from ludus.messages import Message, Observation
from ludus.wire.client import Client, protocol_error, run_blocking
from ludus.wire.faults import error_of, used_seq

from ..protocol import Info
from ..session import Stepped
from ..tasks import Task, TaskPage, TaskSet
from .env_wire import (
    BatchItem,
    BatchReply,
    BatchRequest,
    Beginning,
    Create,
    Created,
    Delete,
    EnvCard,
    EnvList,
    Operation,
    Play,
    Released,
    Reply,
    Reset,
    ResetReply,
    Step,
    StepReply,
)

HOLD_S = 10.0
"""The most seconds for which the server may hold a batch before it answers."""
PENDING = 202
"""The status of an operation in a batch that still runs, and is to be sent again."""
_BEGUN: Any = Created | ResetReply


class Operator(Protocol):
    """Carries operations to the server that holds a session: a `Carrier`, or `OneByOne`."""

    client: Client

    async def perform(self, operation: Operation, *, timeout_s: float = ...) -> Reply:
        """Send an operation and return the reply.

        Args:
            operation: the operation to carry out.
            timeout_s: the limit in seconds for all attempts together, where that is less than the
                client's own limit.

        Raises:
            LudusError: the error that the server answered with, or that kept it from answering.
        """
        ...


class OneByOne:
    """Sends each operation in a separate request.

    Args:
        client: the connection to the server.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    async def perform(self, operation: Operation, *, timeout_s: float = float("inf")) -> Reply:
        """Send an operation to the route for operations of this type and return the reply."""
        client = self.client.within(timeout_s)
        client.traffic.operations += 1
        session = f"/v1/sessions/{quote(operation.session, safe='')}"
        match operation:
            case Create():
                path = f"/v1/envs/{quote(operation.env, safe='')}/sessions"
                body = _without(operation, "env")
                reply: Reply = await client.post(path, body, _BEGUN)
                return reply
            case Reset():
                return await client.post(
                    f"{session}/reset", _without(operation, "session"), ResetReply
                )
            case Step():
                body = _without(operation, "session")
                return await client.post(f"{session}/step", body, StepReply)
            case Delete():
                return await client.delete(session, Released)


async def send_batch(
    client: Client, operations: Sequence[Operation]
) -> Sequence[Reply | LudusError | None]:
    """Send operations in a single request.

    Returns:
        The reply or error of each operation, in order; None for an operation that still runs.
    """
    body = BatchRequest(items=list(operations), hold_s=HOLD_S)
    reply = await client.post("/v1/step_batch", body, BatchReply)
    if len(reply.items) != len(operations):
        raise protocol_error(
            f"{client.url} answered {len(reply.items)} of {len(operations)} operations"
        )
    return [_answer(item) for item in reply.items]


def _without(operation: msgspec.Struct, name: str) -> dict[str, Any]:
    """Build the body of a request: the fields of an operation except `name`, which the path
    holds.
    """
    fields = operation.__struct_fields__
    return {field: getattr(operation, field) for field in fields if field != name}


def _answer(item: BatchItem) -> Reply | LudusError | None:
    if item.status == PENDING:
        return None
    if item.error is not None:
        return error_of(item.error, item.status)
    return item.reply or protocol_error(
        f"an item of a batch has status {item.status}, and neither a reply nor an error"
    )


logger = logging.getLogger(__name__)
PAGE = 256
CLOSE_TIMEOUT_S = 3.0
"""The time, in seconds, for telling a server that a session is released. A server that cannot be
told releases the session when its lease ends.
"""


class RemoteSession:
    """Plays episodes on a server, with the methods of a local `EnvSession`.

    The first reset creates the session and begins the episode in one request. A reset after the
    session was lost (a restart, an expired lease) makes a new session without a word; a step then
    raises SessionGone.

    Args:
        env_id: the id of the environment.
        choose: returns, for the name of a session, the operator that reaches its server.
        card: the server's description of the environment, if the caller has it already.
    """

    def __init__(
        self, env_id: str, choose: Callable[[str], Operator], *, card: EnvCard | None = None
    ) -> None:
        self.id = env_id
        self.name = ""
        """The name of the session on the server; empty when no session is open."""
        self._choose = choose
        self._operator = choose(env_id)
        """Reaches the server that describes the environment, then the server with the session."""
        self._card = card
        self._instance = ""
        self._seq = 0
        self._unsure = False
        """Whether the last operation may have been carried out, or not. The next reset then makes a
        new session, since the next seq of the old session is unknown.
        """

    @property
    def deterministic(self) -> bool:
        """Whether task, seed and actions fix the episode; known after `describe()` or a reset."""
        if self._card is None:
            raise RuntimeError(f"{self.id}: not known yet; 'await session.describe()' first")
        return self._card.deterministic

    async def describe(self) -> EnvCard:
        """Ask the server for the card of the environment; the answer is kept.

        Raises:
            UnknownEnv: the server does not offer it; the message names the nearest id.
        """
        if self._card is None:
            env_list = await self._operator.client.get("/v1/envs", EnvList)
            self._card = card_of(self.id, env_list)
        return self._card

    async def task_page(
        self, split: str, *, offset: int = 0, limit: int = 100, task: str = ""
    ) -> TaskPage:
        """Return some tasks of a split, in order; with `task`, only the task of that id.

        Raises:
            UnknownTask: the split or task does not exist.
        """
        query = {"split": split, "offset": offset, "limit": limit, "task": task}
        path = f"/v1/envs/{quote(self.id, safe='')}/tasks?{urlencode(query)}"
        return await self._operator.client.get(path, TaskPage)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; see `EnvSession.reset`."""
        beginning = Beginning(seed=None if seed is None else int(seed), options=options or {})
        if self._unsure:
            await self.close()
        if self.name:
            reset = Reset(
                session=self.name,
                seq=self._seq,
                seed=beginning.seed,
                options=beginning.options,
                instance=self._instance,
            )
            with contextlib.suppress(SessionGone):  # then a new session plays the episode
                return _reset_result(await self._perform(reset))
        self.name, self._seq, self._instance = secrets.token_hex(12), 0, ""
        self._operator = self._choose(self.name)
        self._operator.client.traffic.sessions_opened += 1
        try:
            reply = await self._perform(Create(env=self.id, session=self.name, reset=beginning))
        except RemoteError:
            self._unsure = True
            raise
        if isinstance(reply, ResetReply):
            self._instance = reply.instance
        return _reset_result(reply)

    async def step(self, action: str | Message) -> Stepped:
        """Play an action; see `EnvSession.step`.

        Raises:
            InvalidAction: the action is neither a string nor a message.
            EpisodeEnded: no episode has begun.
            SessionGone: the session expired or its server was restarted; the episode is lost.
        """
        if not isinstance(action, (str, Message)):
            raise InvalidAction(
                f"an action is a str or a Message, got {type(action).__name__}: {action!r:.80}"
            )
        if not self.name:
            raise EpisodeEnded(f"{self.id}: no episode has begun; call reset() first")
        self._operator.client.traffic.steps += 1
        step = Step(session=self.name, seq=self._seq, action=action, instance=self._instance)
        reply = await self._perform(step)
        if not isinstance(reply, StepReply):
            raise protocol_error(f"expected the reply to a step, got {reply!r:.120}")
        info = reply.info
        if reply.verdict is not None:
            info["verdict"] = reply.verdict
        return reply.observation, reply.reward, reply.terminated, reply.truncated, info

    async def close(self) -> None:
        """Release the session; a second call does nothing. A server that cannot be reached releases
        the session when its lease ends.
        """
        name, self.name, self._unsure = self.name, "", False
        if not name:
            return
        try:
            await self._operator.perform(Delete(session=name), timeout_s=CLOSE_TIMEOUT_S)
        except RemoteError as error:
            logger.info("session %s is left to its lease: %s", name, error)

    async def _perform(self, play: Play) -> Reply:
        try:
            reply = await self._operator.perform(play)
        except LudusError as error:
            if isinstance(error, SessionGone):
                self.name = ""
            elif used_seq(error):
                self._seq += 1
            elif isinstance(error, RemoteError) and not isinstance(error, Overloaded):
                self._unsure = True
            raise
        except BaseException:  # the caller gives up while the operation may be carried out
            self._unsure = True
            raise
        seq = reply.seq if isinstance(reply, (ResetReply, StepReply)) else None
        if reply.session != self.name or seq != self._seq:  # a late reply is for nobody else
            self._unsure = True
            raise protocol_error(
                f"asked for session {self.name!r} seq {self._seq}, was answered for "
                f"{reply.session!r} seq {seq}"
            )
        self._seq += 1
        return reply


class BlockingSession(RemoteSession):
    """A remote session over a blocking transport, whose coroutines `run_blocking` runs to the
    end.
    """

    def tasks(self, split: str) -> TaskSet:
        """Return the tasks of a split, which are fetched page by page."""
        return RemoteTasks(self, split)


class RemoteTasks:
    """A `TaskSet` whose tasks a server lists; each page is fetched once and kept."""

    def __init__(self, session: RemoteSession, split: str) -> None:
        self.split = split
        self._session = session
        self._pages: dict[int, TaskPage] = {}
        self.size = self._page(0).size

    def at(self, index: int) -> Task:
        """Return the task at `index`, counted from 0."""
        number, place = divmod(index, PAGE)
        tasks = self._page(number).tasks if index >= 0 else []
        if place >= len(tasks):
            raise IndexError(f"task index {index} is outside split {self.split!r} of {self.size}")
        return tasks[place]

    def find(self, task_id: str) -> Task:
        """Return the task with this id."""
        page = run_blocking(self._session.task_page(self.split, task=task_id))
        return page.tasks[0]

    def _page(self, number: int) -> TaskPage:
        if number not in self._pages:
            self._pages[number] = run_blocking(
                self._session.task_page(self.split, offset=number * PAGE, limit=PAGE)
            )
        return self._pages[number]


def card_of(env_id: str, env_list: EnvList) -> EnvCard:
    """Pick the card of an environment from a server's list.

    Raises:
        UnknownEnv: the server does not offer it; the message names the nearest id.
    """
    cards = {card.id: card for card in env_list.envs}
    if env_id not in cards:
        raise UnknownEnv.near(env_id, cards, hint="served there")
    return cards[env_id]


def _reset_result(reply: Reply) -> tuple[Observation, Info]:
    if not isinstance(reply, ResetReply):
        raise protocol_error(f"expected the reply to a reset, got {reply!r:.120}")
    return reply.observation, {**reply.info, "briefing": reply.briefing, "task": reply.task}
