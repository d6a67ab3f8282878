"""How operations of remote sessions travel over plain HTTP: singly, or many in a request."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ludus.errors import (
    CheckFailed,
    EpisodeEnded,
    InvalidAction,
    LudusError,
    Overloaded,
    RemoteError,
    SessionGone,
    UnknownEnv,
)
from ludus.messages import Message, Observation
from ludus.wire.carrier import OperationKind
from ludus.wire.client import Client, Traffic, protocol_error, run_blocking
from ludus.wire.faults import code_of, error_of, status_of, used_seq
from ludus.wire.replicas import ServerLost, SessionSeat, SessionSeats

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
    Fork,
    Forked,
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


async def send_one(client: Client, operation: Operation, timeout_s: float) -> Reply:
    """Send an operation once, to the route for operations of its type, and return the reply."""
    session = f"/v1/sessions/{quote(operation.session, safe='')}"
    match operation:
        case Create():
            path = f"/v1/envs/{quote(operation.env, safe='')}/sessions"
            request = client.build("POST", path, _without(operation, "env"))
            as_type: Any = Created | ResetReply
        case Reset():
            request = client.build("POST", f"{session}/reset", _without(operation, "session"))
            as_type = ResetReply
        case Step():
            request = client.build("POST", f"{session}/step", _without(operation, "session"))
            as_type = StepReply
        case Fork():
            request = client.build("POST", f"{session}/fork", _without(operation, "session"))
            as_type = Forked
        case Delete():
            request, as_type = client.build("DELETE", session, None), Released
    reply: Reply = await client.attempt(request, as_type, timeout_s)
    return reply


async def send_batch(
    client: Client, operations: Sequence[Operation]
) -> Sequence[Reply | LudusError | None]:
    """Send operations in a single request, once.

    Returns:
        The reply or error of each operation, in order; None for an operation that still runs.
    """
    body = BatchRequest(items=list(operations), hold_s=HOLD_S)
    reply = await client.once("POST", "/v1/step_batch", body, BatchReply)
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


EPISODES: OperationKind[Operation, Reply] = OperationKind(Reply, send_batch, send_one)
"""The operations of sessions, as they travel."""

logger = logging.getLogger(__name__)
PAGE = 256
PATIENCE_S = 10.0
"""Seconds for which a session that cannot be played again waits for its server to come back."""
MAX_MOVES = 8
"""How many servers in a row may be lost under a session before it is given up."""
CLOSE_TIMEOUT_S = 3.0
"""The time, in seconds, for telling a server that a session is released. A server that cannot be
told releases the session when its lease ends.
"""


@dataclass(frozen=True, slots=True)
class _Played:
    """An action and the reply, kept to be played again after the loss of the server."""

    action: str | Message
    answer: object
    """Observation, reward and end; or the code of a failure."""


class RemoteSession:
    """Plays episodes on a server, with the methods of a local `EnvSession`.

    The first reset creates the session and begins the episode in one request. A reset after the
    session was lost (a restart, an expired lease) makes a new session without a word. An episode
    whose server is lost is played again on another from its seed and actions, if the environment is
    deterministic and answers what it answered before; otherwise the step raises SessionGone.

    Args:
        env_id: the id of the environment.
        seats: finds the servers.
        card: the server's description of the environment, if the caller has it already.
    """

    def __init__(
        self, env_id: str, seats: SessionSeats[Operation, Reply], *, card: EnvCard | None = None
    ) -> None:
        self.id = env_id
        self.name = ""
        """The name of the session on the server; empty when no session is open."""
        self._seats = seats
        self._seat: SessionSeat[Operation, Reply] | None = None
        """Reaches the server with the session."""
        self._card = card
        self._instance = ""
        self._seq = 0
        self._unsure = False
        """Whether the last operation may have been carried out, or not. The next reset then makes a
        new session, since the next seq of the old session is unknown.
        """
        self._beginning = Beginning()
        self._begun: object = None
        """What the episode's reset answered."""
        self._played: list[_Played] = []
        self._replayable = True
        """Whether the episode would be the same from its seed and actions: not for a fork with
        randomness of its own.
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
            env_list = await self._seats.call("GET", "/v1/envs", None, EnvList)
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
        return await self._seats.call("GET", path, None, TaskPage)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode; see `EnvSession.reset`."""
        self._beginning = Beginning(seed=None if seed is None else int(seed), options=options or {})
        self._played, self._replayable = [], True
        if self._unsure:
            await self.close()
        reply: Reply | None = None
        if self.name and self._seat is not None:
            again = Reset(
                session=self.name,
                seq=self._seq,
                seed=self._beginning.seed,
                options=self._beginning.options,
                instance=self._instance,
            )
            with contextlib.suppress(SessionGone, ServerLost):  # a new session plays the episode
                reply = await self._perform(again)
        if reply is None:
            reply = await self._create()
        self._begun = _essence(reply)
        if not isinstance(reply, ResetReply):
            raise protocol_error(f"expected the reply to a reset, got {reply!r:.120}")
        return reply.observation, {**reply.info, "briefing": reply.briefing, "task": reply.task}

    async def _create(self) -> Reply:
        """Make a session that begins the episode, on a server that accepts new sessions."""
        for moves in range(MAX_MOVES):
            if self._seat is not None:
                self._seat.leave(self)
            self._seat = await self._seats.seat(self)
            self.name, self._seq, self._instance = secrets.token_hex(12), 0, ""
            self._traffic.sessions_opened += 1
            create = Create(env=self.id, session=self.name, reset=self._beginning)
            try:
                reply = await self._perform(create)
            except ServerLost:
                if moves == MAX_MOVES - 1:
                    raise
            except RemoteError:
                self._unsure = True
                raise
            else:
                if isinstance(reply, ResetReply):
                    self._instance = reply.instance
                return reply
        raise AssertionError("unreachable")

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
        self._traffic.steps += 1
        try:
            reply = await self._step(action)
        except LudusError as error:
            if used_seq(error):
                self._played.append(_Played(action, code_of(error)))
            raise
        self._played.append(_Played(action, _essence(reply)))
        info = reply.info
        if reply.verdict is not None:
            info["verdict"] = reply.verdict
        return reply.observation, reply.reward, reply.terminated, reply.truncated, info

    async def fork(
        self, count: int = 1, *, seeds: Sequence[int] | None = None
    ) -> list[RemoteSession | LudusError]:
        """Return sessions in the state of this session, on the same server; an error for each
        session that could not be made.

        Args:
            count: how many, where no seeds say so.
            seeds: a seed for each child, which draws anew from here on; None lets every child draw
                what this session will draw.

        Raises:
            EpisodeEnded: no episode goes on.
            NotForkable: the environment cannot be forked.
            ServerLost: the server is gone; forks are not played again elsewhere.
        """
        if not self.name or self._seat is None:
            raise EpisodeEnded(f"{self.id}: no episode has begun; call reset() first")
        names = [secrets.token_hex(12) for _ in range(count if seeds is None else len(seeds))]
        fork = Fork(
            session=self.name,
            seq=self._seq,
            children=names,
            seeds=None if seeds is None else list(seeds),
            instance=self._instance,
        )
        reply = await self._seat.perform(fork)
        if not isinstance(reply, Forked) or [child.session for child in reply.children] != names:
            raise protocol_error(f"expected the reply to a fork, got {reply!r:.120}")
        return [
            self._child(child.session, anew=seeds is not None)
            if child.error is None
            else error_of(child.error, status_of(child.error))
            for child in reply.children
        ]

    def _child(self, name: str, *, anew: bool) -> RemoteSession:
        """Return the session of a fork; `anew` tells that the child draws new numbers."""
        child = RemoteSession(self.id, self._seats, card=self._card)
        assert self._seat is not None
        child.name, child._seat, child._instance = name, self._seat.beside(child), self._instance
        child._beginning, child._begun = self._beginning, self._begun
        child._played = list(self._played)
        child._replayable = self._replayable and not anew
        return child

    async def close(self) -> None:
        """Release the session; a second call does nothing. A server that cannot be reached releases
        the session when its lease ends.
        """
        name, self.name, self._unsure = self.name, "", False
        if not name or self._seat is None:
            return
        self._seat.leave(self)
        try:
            await self._seat.perform(Delete(session=name), timeout_s=CLOSE_TIMEOUT_S)
        except RemoteError as error:
            logger.info("session %s is left to its lease: %s", name, error)

    @property
    def _traffic(self) -> Traffic:
        assert self._seat is not None
        return self._seat.client.traffic

    async def _step(self, action: str | Message) -> StepReply:
        """Play an action, on another server where that of the session is lost."""
        for _ in range(MAX_MOVES):
            step = Step(session=self.name, seq=self._seq, action=action, instance=self._instance)
            assert self._seat is not None
            try:
                reply = await self._perform(step)
            except ServerLost as error:
                await self._recover(error)
            except SessionGone as error:
                # Gone for a reason of its own, unless it is another run of the server that says so.
                if self._seat.instance == self._instance:
                    raise
                await self._recover(error)
            else:
                if not isinstance(reply, StepReply):
                    raise protocol_error(f"expected the reply to a step, got {reply!r:.120}")
                return reply
        self.name = ""
        raise SessionGone(f"{self.id}: {MAX_MOVES} servers were lost under this session")

    async def _recover(self, cause: RemoteError) -> None:
        """Restore the session after the loss of the server.

        Raises:
            SessionGone: the episode cannot be played again, or was answered otherwise.
        """
        gone = SessionGone(f"{self.id}: {cause}; the episode is lost")
        card = await self.describe()
        if not card.deterministic or not self._replayable:
            assert self._seat is not None
            if isinstance(cause, ServerLost) and await self._seat.returns(PATIENCE_S):
                return
            self.name = ""
            raise gone from cause
        for _ in range(MAX_MOVES):
            try:
                await self._replay()
            except ServerLost:
                continue
            except LudusError as error:
                await self.close()
                raise SessionGone(f"{gone}: {error}") from cause
            self._traffic.replays += 1
            return
        self.name = ""
        raise gone from cause

    async def _replay(self) -> None:
        """Play the episode so far again, in a new session.

        Raises:
            CheckFailed: an answer differs from that of before.
        """
        self._check(_essence(await self._create()), self._begun, "reset")
        for number, played in enumerate(self._played, 1):
            step = Step(
                session=self.name, seq=self._seq, action=played.action, instance=self._instance
            )
            try:
                answer = _essence(await self._perform(step))
            except LudusError as error:
                if not used_seq(error):
                    raise
                answer = code_of(error)
            self._check(answer, played.answer, f"step {number}")

    def _check(self, answer: object, before: object, what: str) -> None:
        if answer != before:
            raise CheckFailed(
                f"{what}, played again, was answered otherwise, though the environment says that "
                "it is deterministic"
            )

    async def _perform(self, play: Play) -> Reply:
        assert self._seat is not None
        try:
            reply = await self._seat.perform(play)
        except ServerLost:  # nothing of the session is left to be unsure about
            raise
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


def _essence(reply: Reply) -> object:
    """Return what of a reply is the same each time, in an environment that is deterministic."""
    if isinstance(reply, ResetReply):
        return reply.observation, reply.briefing, reply.task
    if isinstance(reply, StepReply):
        observation = reply.observation
        kept = observation if isinstance(observation, str) else tuple(observation)
        return kept, reply.reward, reply.terminated, reply.truncated
    return None
