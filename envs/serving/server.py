"""Environments over HTTP: the routes, and batches that do not wait for the slowest operation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ludus.errors import LudusError, UnknownEnv
from ludus.isolation.group import WorkerLimits
from ludus.wire.address import refuse_repeated
from ludus.wire.codec import trace_parent
from ludus.wire.faults import Fault, Refused, fault_of, status_of
from ludus.wire.page import PageTable, age
from ludus.wire.principals import asked_by
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.routes import Begin, Context, Load, Nothing, Path, Route, delete, get, post
from ludus.wire.strict import read_item

from ..tasks import TaskPage
from .env_wire import (
    BatchBody,
    BatchReply,
    BatchRequest,
    Create,
    Created,
    Delete,
    EnvList,
    Fork,
    Forked,
    Operation,
    Outcome,
    Released,
    Reset,
    ResetReply,
    SentItem,
    SentReply,
    Step,
    StepReply,
    TaskQuery,
)
from .placement import Home, OnLoop
from .served import ServedEnv
from .sessions import SessionLimits, Sessions
from .worker_placement import THREADS, InWorkers

LOAD_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 10.0
PENDING = 202
LINGER_S = 0.005
"""A batch with a finished operation is answered once no other operation ends within this time, in
seconds.
"""
MAX_LINGER_S = 0.05
_OPERATION: Any = Operation


class EnvService:
    """Serves environments over HTTP.

    Args:
        envs: ids (`ludus/arithmetic-v0`, or with arguments `ludus/arithmetic-v0?max_operations=2`),
            or `ServedEnv`s.
        limits: the bounds on sessions and their time.
        workers: the bounds on the worker processes of each environment that does not declare
            `never_blocks`.
        threads: the number of threads of each worker process, for plain-`def` environments.
    """

    name = "envs"

    def __init__(
        self,
        envs: Iterable[str | ServedEnv],
        *,
        limits: SessionLimits | None = None,
        workers: WorkerLimits | None = None,
        threads: int = THREADS,
    ) -> None:
        self.served = [env if isinstance(env, ServedEnv) else ServedEnv.parse(env) for env in envs]
        refuse_repeated(env.id for env in self.served)
        self.limits = limits or SessionLimits()
        self._workers = workers or WorkerLimits()
        self._threads = threads
        self._homes: list[Home] = []
        self._instance = ""
        self._sessions: Sessions | None = None

    @property
    def sessions(self) -> Sessions:
        """The table of sessions, which exists once the server was started."""
        assert self._sessions is not None, "start the server first"
        return self._sessions

    def routes(self) -> list[Route]:
        """Return the routes that `docs/http.md` lists."""
        env, session = "/v1/envs/{id:.+}", "/v1/sessions/{sid}"
        of_env, of_session = {"id": "env"}, {"sid": "session"}
        reply_types, act = Created | ResetReply, self.perform
        return [
            get("/v1/envs", self.envs, Nothing, EnvList, "What is served"),
            get(f"{env}/tasks", self.tasks, TaskQuery, TaskPage, "Tasks of a split"),
            post(f"{env}/sessions", act, Create, reply_types, "Make a session", in_path=of_env),
            post(
                f"{session}/reset", act, Reset, ResetReply, "Begin an episode", in_path=of_session
            ),
            post(f"{session}/step", act, Step, StepReply, "Play one action", in_path=of_session),
            post(f"{session}/fork", act, Fork, Forked, "Fork an episode", in_path=of_session),
            delete(session, act, Delete, Released, "Release a session", in_path=of_session),
            post(
                "/v1/step_batch",
                self.batch,
                BatchBody,
                BatchReply,
                "Many operations at once",
                documented=BatchRequest,
            ),
        ]

    def operations(self) -> Mapping[type[msgspec.Struct], Begin]:
        """Return what begins each type of operation that `/v1/stream` carries for this service."""
        return dict.fromkeys((Create, Reset, Step, Delete, Fork), self.sessions.begin)

    async def start(self, context: Context) -> None:
        """Build an environment of each id and load the tasks, so that a broken environment fails
        here.
        """
        self._instance = context.instance
        self._refused = context.metrics.refuse
        self._homes = [await self._home(env, context.metrics) for env in self.served]
        self._sessions = Sessions(self._homes, self.limits, context)
        for env in self.served:
            count = partial(self._count, env.id)
            context.metrics.watch("sessions", "Open sessions", count, env=env.id)
        await self._sessions.start()

    async def _home(self, served: ServedEnv, metrics: ServerMetrics) -> Home:
        """Load an environment on the event loop or in worker processes, as `never_blocks` tells."""
        timeout_s = self.limits.step_timeout_s
        if served.declares_never_blocks:
            max_bytes = self._workers.max_reply_bytes
            home: Home = OnLoop(served, timeout_s=timeout_s, max_bytes=max_bytes)
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                await home.start()
            if served.never_blocks:
                return home
        home = InWorkers(
            served,
            limits=self._workers,
            threads=self._threads,
            timeout_s=timeout_s,
            metrics=metrics,
        )
        await home.start()
        return home

    async def stop(self) -> None:
        """Release every session and end the worker processes."""
        if self._sessions is not None:
            await self._sessions.stop(STOP_TIMEOUT_S)
        await asyncio.gather(*(home.stop() for home in self._homes))

    def limit(self, limits: SessionLimits) -> None:
        """Replace the bounds given at the start, also for open sessions, except for the lease."""
        self.limits = limits
        self.sessions.limit(limits)

    def drain(self) -> None:
        """Begin no episode from now on; episodes that have begun go on."""
        if self._sessions is not None:  # the start may have failed
            self._sessions.draining = True

    def held(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions) if self._sessions is not None else 0

    def load(self) -> Load:
        """Report the load. The service is not ready for more sessions once every session or place
        of the queue is taken, or while an environment has no worker process.
        """
        sessions, admission = self.sessions, self.sessions.admission
        problems = [home.problem for home in self._homes if home.problem]
        if len(sessions) >= self.limits.max_sessions:
            problems.append(f"all {self.limits.max_sessions} sessions are open")
        elif admission.depth >= admission.limit:
            problems.append(f"all {admission.limit} places of the queue are taken")
        problem = "; ".join(problems)
        return Load(queue_depth=admission.depth, limit=admission.limit, problem=problem)

    def tables(self) -> list[PageTable]:
        """Return what stands on the operator's page: environments, and the oldest sessions."""
        sessions = self.sessions
        envs = [
            (env.id, sessions.counts[env.id], sessions.admission.depths[env.id], home.problem)
            for env, home in zip(self.served, self._homes, strict=True)
        ]
        rows = [
            (
                session.name,
                session.served.id,
                session.owner,
                age(session.born),
                age(session.touched),
                session.busy,
            )
            for session in sessions.all()
        ]
        return [
            PageTable("Environments", ("environment", "sessions", "in flight", "problem"), envs),
            PageTable(
                "Sessions", ("session", "environment", "principal", "age", "idle", "busy"), rows
            ),
        ]

    # --- handlers -------------------------------------------------------------------------------

    async def envs(self, path: Path, query: Nothing) -> EnvList:
        """Answer `GET /v1/envs` with the cards of all environments."""
        may = asked_by.get().may
        cards = [env.card for env in self.served if env.card and may(f"env:{env.id}")]
        return EnvList(instance=self._instance, envs=cards)

    async def tasks(self, path: Path, query: TaskQuery) -> TaskPage:
        """Answer `GET /v1/envs/{id}/tasks`.

        Raises:
            UnknownEnv: the server does not offer it; the message names the nearest id.
        """
        principal = asked_by.get()
        principal.require(f"env:{path['id']}")
        home = self.sessions.homes.get(path["id"])
        if home is None:
            known = [name for name in self.sessions.homes if principal.may(f"env:{name}")]
            raise UnknownEnv.near(path["id"], known, hint="served here")
        return await home.page(query)

    async def perform(self, path: Path, operation: Operation) -> Outcome:
        """Carry out an operation that came on a route rather than in a batch."""
        begun = self.sessions.begin(operation)
        if not begun.done():
            # Shielded: the work goes on if the connection is cut, and the client joins it again.
            await asyncio.shield(begun)
        return self._outcome(begun.result())

    async def batch(self, path: Path, body: BatchBody) -> SentReply:
        """Answer `POST /v1/step_batch`: begin all operations and wait for some."""
        started_items: list[asyncio.Future[Outcome] | Fault] = []
        trace = trace_parent.get()
        for item in body.items:
            trace_parent.set(trace)  # the span of an item is not the parent of the next
            try:
                started_items.append(self.sessions.begin(read_item(item, _OPERATION)))
            except LudusError as error:  # the other items of the batch are played all the same
                started_items.append(fault_of(error))
        running = [
            item for item in started_items if isinstance(item, asyncio.Future) and not item.done()
        ]
        if running:
            await wait_for_some(running, body.hold_s)
        return SentReply(items=[self._item(started_item) for started_item in started_items])

    def _outcome(self, outcome: Outcome) -> Outcome:
        """Return what a client is told: a session that ends with the server is not gone for a
        reason of its own, and may be played again elsewhere.
        """
        if self.sessions.stopped and isinstance(outcome, Fault) and outcome.code == "session_gone":
            return fault_of(Refused("the server stopped while it ran", "stopping"))
        return outcome

    def _item(self, started_item: asyncio.Future[Outcome] | Fault) -> SentItem:
        if isinstance(started_item, Fault):
            self._refused(started_item)
            return SentItem(status=status_of(started_item), error=started_item)
        if not started_item.done():
            return SentItem(status=PENDING)
        outcome = self._outcome(started_item.result())
        if isinstance(outcome, Fault):
            return SentItem(status=status_of(outcome), error=outcome)
        return SentItem(status=200, reply=outcome)

    def _count(self, env_id: str) -> float:
        return float(self.sessions.counts[env_id])


async def wait_for_some(running: Sequence[asyncio.Future[Any]], hold_s: float) -> None:
    """Wait until a future is done, and on while others keep getting done; at most `hold_s`
    seconds.
    """
    started = time.monotonic()
    finished, pending = await asyncio.wait(
        running, timeout=hold_s, return_when=asyncio.FIRST_COMPLETED
    )
    deadline = min(started + hold_s, time.monotonic() + MAX_LINGER_S)
    while finished and pending and time.monotonic() < deadline:
        finished, pending = await asyncio.wait(pending, timeout=LINGER_S)
