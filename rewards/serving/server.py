"""The HTTP service of verifiers: routes, cards and batches; verdicts admitted, timed and counted.

Whatever goes wrong becomes a verdict without a reward, never a zero.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial

import msgspec

from ludus.errors import ConfigError, LudusError, UnknownVerifier
from ludus.isolation.group import WorkerLimits
from ludus.thoughts import AUTO, marks_of
from ludus.verdict import Verdict
from ludus.wire.address import parse_served, refuse_repeated
from ludus.wire.admission import Admission
from ludus.wire.codec import trace_parent
from ludus.wire.faults import QueueFull, Refused, fault_of, status_of
from ludus.wire.page import MAX_CELL, PageTable
from ludus.wire.principals import asked_by
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.routes import Begin, Context, Load, Nothing, Path, Route, get, post
from ludus.wire.strict import read_item
from ludus.wire.tracing import Tracer, TraceSpan

from ..pool import fates_of
from ..protocol import BatchVerifier, Sample, Verifier, never_blocks
from ..registry import as_verifier, build_verifier, find_verifier
from .placement import OwnProcess, VerifierHost, WorkerProcesses, default_budget, refuse_beyond
from .reward_wire import (
    Score,
    ScoreBatchBody,
    ScoreBatchReply,
    ScoreBatchRequest,
    ScoreGroupBody,
    ScoreGroupReply,
    ScoreItem,
    VerifierCard,
    VerifierList,
)

LATEST = 20
"""How many verdicts the operator's page shows."""


class ServedVerifier:
    """A verifier on a server, with its queue and metrics.

    Args:
        name: the verifier's name on the server.
        host: scores the samples, in this process or in a worker process.
        admission: limits the number of samples in flight.
        metrics: the metrics of the server.
        tracer: is given a span for each verdict; None makes none.
    """

    def __init__(
        self,
        name: str,
        host: VerifierHost,
        admission: Admission,
        metrics: ServerMetrics,
        tracer: Tracer | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self._tracer = tracer
        self._admission = admission
        self._seconds = metrics.score_seconds.labels(name)
        # Looking a counter up by its labels costs more than counting.
        self._verdicts = cache(partial(metrics.verdicts.labels, name))
        self._fates = metrics.fates
        self.latest: deque[tuple[float, str, float | None, str]] = deque(maxlen=LATEST)
        """When, status, reward and detail of the last verdicts."""

    def begin(self, sample: Sample) -> Verdict | asyncio.Future[Verdict]:
        """Score an answer, without a task where the verdict is ready at once, which halves the cost
        of easy answers.

        Raises:
            Overloaded: the queue is full.
        """
        self._admission.enter(self.name)
        started = time.perf_counter()
        span = self._tracer.begin("score", self.name, {}) if self._tracer is not None else None
        scoring = self.host.score(sample)
        if isinstance(scoring, Verdict):
            self._leave([scoring], 1, started, span)
            return scoring
        # By a callback: a coroutine that is cancelled before it begins runs no `finally`, and its
        # place in the queue would be taken for good.
        future = asyncio.ensure_future(scoring)
        future.add_done_callback(partial(self._ended, started, span))
        return future

    async def score(self, sample: Sample) -> Verdict:
        """Score an answer and wait for the verdict.

        Raises:
            Overloaded: the queue is full.
        """
        verdict = self.begin(sample)
        return verdict if isinstance(verdict, Verdict) else await verdict

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score the answers of a group against each other.

        Raises:
            ConfigError: this verifier does not compare answers.
            Refused: the queue has fewer places than the group has answers.
            Overloaded: the queue is full.
        """
        if not self.host.about.group:
            raise ConfigError(f"verifier {self.name!r} has no score_group; score one by one")
        places = min(self._admission.limit, self._admission.per_key)
        if len(samples) > places:  # to try again would never help
            raise Refused(
                f"a group of {len(samples)} answers never fits {places} places of the queue of "
                f"{self.name}; send fewer, or serve it with a longer queue",
                "too_large",
            )
        for entered in range(len(samples)):
            try:
                self._admission.enter(self.name)
            except QueueFull:
                self._leave([], entered, time.perf_counter())
                raise
        started = time.perf_counter()
        span = self._tracer.begin("score", self.name, {}) if self._tracer is not None else None
        verdicts: list[Verdict] = []
        try:
            verdicts = await self.host.score_group(samples)
        finally:
            self._leave(verdicts, len(samples), started, span)
        return verdicts

    def _ended(
        self, started: float, span: TraceSpan | None, scoring: asyncio.Future[Verdict]
    ) -> None:
        has_verdict = not scoring.cancelled() and scoring.exception() is None
        self._leave([scoring.result()] if has_verdict else [], 1, started, span)

    def _leave(
        self,
        verdicts: Sequence[Verdict],
        number: int,
        started: float,
        span: TraceSpan | None = None,
    ) -> None:
        took_s = time.perf_counter() - started
        for _ in range(number):
            self._admission.leave(self.name, took_s, asked_by.get())
        if verdicts:
            self._seconds.observe(took_s)
        for verdict in verdicts:
            detail = verdict.detail[:MAX_CELL]
            self.latest.append((time.time(), verdict.status.value, verdict.reward, detail))
            self._verdicts(verdict.status.value).inc()
            for fate in fates_of(verdict) if verdict.metrics else ():
                self._fates.labels(self.name, fate).inc()
        if span is not None:
            for verdict in verdicts:
                span.judge(verdict)
            span.end("" if verdicts else "cancelled")


MAX_QUEUE = 8192
TIMEOUT_S = 60.0


class ScoreService:
    """Serves verifiers.

    Args:
        names: names in the registry (`maths`, or with options `maths?timeout_s=2`).
        verifiers: objects of your own, by the name to offer them under.
        timeout_s: the time limit of one verdict; past it the verdict is `unavailable`.
        max_queue: samples in flight; past it 429.
        max_queue_per_verifier: samples in flight of one verifier; `max_queue` if None.
        thoughts: the marks around thoughts, for samples that name none; see `ludus.thoughts`.
        workers: the limits on the processes of each verifier that does not declare `never_blocks`.
        model_memory_bytes: the most bytes of the weights that stay in memory, together; 0 takes
            80 % of the machine's memory.
    """

    name = "verifiers"

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        verifiers: Mapping[str, Verifier | BatchVerifier] | None = None,
        timeout_s: float = TIMEOUT_S,
        max_queue: int = MAX_QUEUE,
        max_queue_per_verifier: int | None = None,
        thoughts: str = AUTO,
        workers: WorkerLimits | None = None,
        model_memory_bytes: int = 0,
    ) -> None:
        self._model_memory_bytes = model_memory_bytes or default_budget()
        self._asked = [parse_served(name) for name in names]
        self._given = dict(verifiers or {})
        refuse_repeated([*(name for name, _ in self._asked), *self._given])
        self._timeout_s = timeout_s
        marks_of(thoughts)
        self._thoughts = thoughts
        self._max_queue_per_verifier = max_queue_per_verifier
        self._admission = Admission(max_queue, per_key=max_queue_per_verifier)
        self._workers = workers or WorkerLimits()
        self._scorers: dict[str, ServedVerifier] = {}
        self._instance = ""
        self._draining = False

    def routes(self) -> list[Route]:
        """Return the routes, which `docs/http.md` documents."""
        return [
            get("/v1/verifiers", self.verifiers, Nothing, VerifierList, "What is served"),
            post("/v1/score", self.score, Score, Verdict, "Score one answer"),
            post(
                "/v1/score_batch",
                self.batch,
                ScoreBatchBody,
                ScoreBatchReply,
                "Score many answers",
                documented=ScoreBatchRequest,
            ),
            post(
                "/v1/score_group",
                self.score_group,
                ScoreGroupBody,
                ScoreGroupReply,
                "Score the answers of one group against each other",
            ),
        ]

    def operations(self) -> Mapping[type[msgspec.Struct], Begin]:
        """Return the operations that `/v1/stream` carries for this service."""
        return {Score: self.begin}

    async def start(self, context: Context) -> None:
        """Build the verifiers; a verifier that cannot work raises its error here.

        Raises:
            ConfigError: the models do not fit into memory together.
        """
        self._instance = context.instance
        self._refused = context.metrics.refuse
        models: list[ServedVerifier] = []
        for name, options in self._asked:
            target = find_verifier(name)
            build = partial(build_verifier, name, target, options)
            self._add(name, build, is_trusted=never_blocks(target), context=context)
            if hasattr(target, "score_batch"):
                models.append(self._scorers[name])
        for name, verifier in self._given.items():
            build = partial(as_verifier, name, verifier)
            self._add(name, build, is_trusted=never_blocks(verifier), context=context)
        other_scorers = [scorer for scorer in self._scorers.values() if scorer not in models]
        await asyncio.gather(*(scorer.host.start() for scorer in other_scorers))
        self._refuse_what_does_not_fit()
        # One by one, so that a model that no longer fits is not read into memory that is taken.
        for model in models:
            await model.host.start()
            self._refuse_what_does_not_fit()

    def _refuse_what_does_not_fit(self) -> None:
        memory_of = {name: scorer.host.about.memory_bytes for name, scorer in self._scorers.items()}
        refuse_beyond(self._model_memory_bytes, memory_of)

    def _add(
        self, name: str, build: Callable[[], Verifier], *, is_trusted: bool, context: Context
    ) -> None:
        host: VerifierHost
        if is_trusted:
            host = OwnProcess(name, build, timeout_s=self._timeout_s)
        else:
            host = WorkerProcesses(
                name,
                build,
                limits=self._workers,
                metrics=context.metrics,
                timeout_s=self._timeout_s,
            )
        self._scorers[name] = ServedVerifier(
            name, host, self._admission, context.metrics, context.tracer
        )

    async def stop(self) -> None:
        """Close the verifiers, and end their processes."""
        await asyncio.gather(*(scorer.host.stop() for scorer in self._scorers.values()))

    def limit(self, *, timeout_s: float, max_queue: int) -> None:
        """Take other bounds than those of the start; `max_queue_per_verifier` stays as given."""
        self._admission.limit, given = max_queue, self._max_queue_per_verifier
        self._admission.per_key = max_queue if given is None else given
        for scorer in self._scorers.values():
            scorer.host.timeout_s = timeout_s

    def drain(self) -> None:
        """Score nothing new from now on."""
        self._draining = True

    def held(self) -> int:
        """Return 0: what is being scored is an operation in flight."""
        return 0

    def load(self) -> Load:
        """Return the load; a full queue or a verifier without a process is a problem."""
        admission = self._admission
        problems = [scorer.host.problem for scorer in self._scorers.values()]
        if admission.depth >= admission.limit:
            problems.append(f"all {admission.limit} places of the queue are taken")
        problem = "; ".join(filter(None, problems))
        return Load(queue_depth=admission.depth, limit=admission.limit, problem=problem)

    def tables(self) -> list[PageTable]:
        """Return what stands on the operator's page: verifiers, and their last verdicts."""
        scorers = self._scorers.values()
        rows = [
            (scorer.name, self._admission.depths[scorer.name], scorer.host.problem)
            for scorer in scorers
        ]
        latest = [
            (when, scorer.name, status, reward, detail)
            for scorer in scorers
            for when, status, reward, detail in scorer.latest
        ]
        latest.sort(key=lambda verdict: -verdict[0])
        verdicts = [
            (time.strftime("%H:%M:%S", time.gmtime(when)), *columns)
            for when, *columns in latest[:LATEST]
        ]
        columns = ("time (UTC)", "verifier", "status", "reward", "detail")
        return [
            PageTable("Verifiers", ("verifier", "in flight", "problem"), rows),
            PageTable("Last verdicts", columns, verdicts),
        ]

    # --- handlers -------------------------------------------------------------------------------

    async def verifiers(self, path: Path, query: Nothing) -> VerifierList:
        """Answer `GET /v1/verifiers` with the cards of all verifiers."""
        cards: list[VerifierCard] = []
        may = asked_by.get().may
        for scorer in [scorer for scorer in self._scorers.values() if may(f"score:{scorer.name}")]:
            about = scorer.host.about
            cards.append(
                VerifierCard(
                    name=scorer.name,
                    description=about.description,
                    group=about.group,
                    card=about.card,
                    judges=about.judges,
                    cheap_to_repeat=about.cheap_to_repeat,
                )
            )
        return VerifierList(instance=self._instance, verifiers=cards)

    async def score(self, path: Path, body: Score) -> Verdict:
        """Answer `POST /v1/score` with a verdict."""
        return await self._scorer(body.verifier).score(self._heard(body.sample))

    async def batch(self, path: Path, body: ScoreBatchBody) -> ScoreBatchReply:
        """Answer `POST /v1/score_batch`, with an answer for each item."""
        started_items: list[ScoreItem | Awaitable[ScoreItem]] = []
        trace = trace_parent.get()
        for item in body.items:
            trace_parent.set(trace)  # the span of an item is not the parent of the next
            answer = self._item(item)
            # A task takes the trace along.
            started_items.append(
                answer if isinstance(answer, ScoreItem) else asyncio.ensure_future(answer)
            )
        slow = {n: item for n, item in enumerate(started_items) if not isinstance(item, ScoreItem)}
        late = dict(zip(slow, await asyncio.gather(*slow.values()), strict=True))
        items = [
            item if isinstance(item, ScoreItem) else late[n] for n, item in enumerate(started_items)
        ]
        return ScoreBatchReply(items=items)

    def begin(self, body: Score) -> Verdict | asyncio.Future[Verdict]:
        """Score an answer; return the verdict if it is ready at once."""
        sample = body.sample if self._thoughts == AUTO else self._heard(body.sample)
        return self._scorer(body.verifier).begin(sample)

    async def score_group(self, path: Path, body: ScoreGroupBody) -> ScoreGroupReply:
        """Answer `POST /v1/score_group` with a verdict for each answer."""
        scorer = self._scorer(body.verifier)
        samples = [self._heard(sample) for sample in body.samples]
        return ScoreGroupReply(verdicts=await scorer.score_group(samples))

    def _heard(self, sample: Sample) -> Sample:
        own = sample.thoughts != AUTO or self._thoughts == AUTO
        return sample if own else sample.marked(self._thoughts)

    def _item(self, item: object) -> ScoreItem | Awaitable[ScoreItem]:
        """Return the answer to an item if it is ready at once, otherwise an awaitable."""
        try:
            body = read_item(item, Score)
            verdict = self._scorer(body.verifier).begin(self._heard(body.sample))
        except LudusError as error:
            return self._refusal(error)
        if isinstance(verdict, Verdict):
            return ScoreItem(status=200, verdict=verdict)
        return self._waited(verdict)

    async def _waited(self, verdict: Awaitable[Verdict]) -> ScoreItem:
        try:
            return ScoreItem(status=200, verdict=await verdict)
        except LudusError as error:
            return self._refusal(error)

    def _refusal(self, error: LudusError) -> ScoreItem:
        fault = fault_of(error)
        self._refused(fault)
        return ScoreItem(status=status_of(fault), error=fault)

    def _scorer(self, name: str) -> ServedVerifier:
        if self._draining:
            raise Refused("the server is draining: it scores nothing new", "stopping")
        principal = asked_by.get()
        if not principal.may_all:
            principal.require(f"score:{name}")  # first: who may not ask learns no name
        if name not in self._scorers:
            hint = "served here"
            if "?" in name:
                hint += "; options are set where it is served"
            elif "/" in name:  # perhaps an environment's
                hint += "; an environment scores what is played in it, by sessions"
            known = [
                candidate for candidate in self._scorers if principal.may(f"score:{candidate}")
            ]
            raise UnknownVerifier.near(name, known, hint=hint)
        return self._scorers[name]
