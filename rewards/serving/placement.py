"""Places a server's verifiers: in its own process or in worker processes, within its memory.

Nothing is evicted to make room: a model that has to be read again would cost its first callers
seconds, at a time nobody chose.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ludus.background import failing_where_given_up
from ludus.errors import ConfigError
from ludus.isolation.group import MAX_LOSSES, AnyWorker, NoFreeWorker, WorkerLimits
from ludus.isolation.process import CallFailed, CallLate, WorkerEnd, WorkerLost, WorkerProcess
from ludus.verdict import Verdict
from ludus.wire.codec import Format, Unkept, encode, trace_parent
from ludus.wire.principals import Principal, asked_by
from ludus.wire.prometheus import ServerMetrics

from ..protocol import GroupVerifier, Sample, Verifier, failed, is_bug, one_each, usable
from .worker import (
    AS_JSON,
    CLOSE,
    SCORE,
    SCORE_GROUP,
    TRACED,
    About,
    Judged,
    VerifierPart,
    about_verifier,
)

SHARE = 0.8
"""Share of the machine's memory that is used where no budget is given."""
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def default_budget() -> int:
    """Return the most bytes for the weights of all models together: 80 % of the memory of this
    machine, or of the container that this process is in.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Without a limit there is no such file, or it says "max".
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(GROUP_LIMIT.read_text("ascii")))
    return int(SHARE * total)


def refuse_beyond(budget: int, memory_of: Mapping[str, int]) -> None:
    """Refuse models whose weights need more than `budget` bytes together.

    Args:
        budget: the most bytes.
        memory_of: the bytes that each verifier keeps, by its name.

    Raises:
        ConfigError: the models need more; the message gives the size of each, the largest first.
    """
    total = sum(memory_of.values())
    if total <= budget:
        return
    sizes = sorted(((size, name) for name, size in memory_of.items() if size), reverse=True)
    sizes_text = ", ".join(f"{name} {_readable(size)}" for size, name in sizes)
    raise ConfigError(
        f"these models do not fit together: {sizes_text}; that is {_readable(total)} of "
        f"{_readable(budget)}. Serve them by servers on several machines, raise --model-memory-mb, "
        "or load them with dtype=bfloat16"
    )


def _readable(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"


logger = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 10.0
QUEUE_S = 120.0
"""A sample may wait so long for a free worker, or twice the time of a verdict if that is more."""
MAX_FRAME = 64
"""The most samples of a frame."""
FRAME_BYTES = 1 << 20
"""The bytes after which a frame takes no further sample."""
FRAME_S = 0.02
"""The seconds that the samples of a frame are expected to take at most."""
FRAME_TIMEOUT_S = 1.0
"""The seconds after which a frame of several samples is given up, and each of them tried alone."""
SMOOTHING = 0.2
"""The weight of the newest frame in the mean time of a sample."""
_Scoring = tuple[Principal, bytes, str, asyncio.Future[Verdict]]
"""Who asks, the encoded sample, its trace, and the verdict to come."""


class VerifierHost(Protocol):
    """A verifier in some process; every failure becomes a verdict without a reward."""

    about: About
    timeout_s: float
    """The time limit of a verdict."""

    async def start(self) -> None:
        """Build the verifier; a verifier that cannot work raises its error here."""
        ...

    async def stop(self) -> None:
        """Close the verifier and release its resources."""
        ...

    def score(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Score an answer, without waiting where the verdict is ready at once."""
        ...

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score the answers of a group against each other."""
        ...

    @property
    def problem(self) -> str:
        """Return why the verifier cannot score now; empty if it can."""
        ...


class OwnProcess:
    """A verifier that never blocks, called on the event loop.

    Args:
        name: the name under which the verifier is offered.
        build: makes the verifier.
        timeout_s: the time limit for a verdict that has to be awaited.
    """

    problem = ""

    def __init__(self, name: str, build: Callable[[], Verifier], *, timeout_s: float) -> None:
        self.name = name
        self.about = About("", False)
        self._build = build
        self.timeout_s = timeout_s
        self._verifier: Verifier | None = None

    async def start(self) -> None:
        """Build the verifier in this process."""
        self._verifier = verifier = self._build()
        self.about = about_verifier(verifier)

    async def stop(self) -> None:
        """Close the verifier and release its resources."""
        close = getattr(self._verifier, "close", None)
        if close is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                is_async = inspect.iscoroutinefunction(close)
                closed = close() if is_async else await asyncio.to_thread(close)
                if inspect.isawaitable(closed):
                    await closed
        except Exception:
            logger.exception("closing the verifier %s failed", self.name)

    def score(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Score an answer in this process."""
        assert self._verifier is not None
        try:
            scoring: object = self._verifier.score(sample.heard_by(self._verifier))
        except Exception as error:
            return self._failed(error)
        if isinstance(scoring, Verdict) or not inspect.isawaitable(scoring):
            return usable(self.name, scoring)
        # Tasks, so that a caller who goes before either has begun ends both.
        begun = asyncio.ensure_future(scoring)
        verdict = asyncio.ensure_future(self._late_one(begun))
        verdict.add_done_callback(lambda _: begun.cancel())
        return verdict

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score the answers of a group in this process."""
        assert isinstance(self._verifier, GroupVerifier)
        scoring: object
        try:
            heard = [sample.heard_by(self._verifier) for sample in samples]
            group_scoring = self._verifier.score_group(heard)
            with failing_where_given_up():
                scoring = (
                    await self._awaited(group_scoring)
                    if inspect.isawaitable(group_scoring)
                    else group_scoring
                )
        except Exception as error:
            scoring = self._failed(error)
        return [usable(self.name, verdict) for verdict in one_each(scoring, len(samples))]

    async def _late_one(self, scoring: Awaitable[object]) -> Verdict:
        try:
            with failing_where_given_up():
                return usable(self.name, await self._awaited(scoring))
        except Exception as error:
            return self._failed(error)

    async def _awaited(self, scoring: Awaitable[Any]) -> Any:
        waiting = asyncio.ensure_future(scoring)
        try:
            finished, _ = await asyncio.wait({waiting}, timeout=self.timeout_s)
            return waiting.result() if finished else late(self.name, self.timeout_s)
        finally:
            waiting.cancel()  # late, or nobody waits for it any more

    def _failed(self, error: Exception) -> Verdict:
        if is_bug(error):
            logger.error("verifier %s failed", self.name, exc_info=error)
        return failed(self.name, error)


class WorkerProcesses:
    """A verifier in worker processes.

    Args:
        name: the name under which the verifier is offered.
        build: makes the verifier, in each process.
        limits: the limits on the processes.
        metrics: the metrics of the server.
        timeout_s: the time limit of a verdict, from when a process begins on it; the process is
            then killed.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Verifier],
        *,
        limits: WorkerLimits,
        metrics: ServerMetrics,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.about = About("", False)
        self.timeout_s = timeout_s
        self._mean_s = FRAME_S
        """The exponential mean of the seconds that a sample takes."""
        self.frame_limit = 1
        """The most samples of a frame, by how quick the verifier has been."""
        self._waiting: list[_Scoring] = []
        self._frames: set[asyncio.Task[None]] = set()
        self._workers = AnyWorker(
            name, partial(VerifierPart, name, build), limits=limits, metrics=metrics
        )

    @property
    def problem(self) -> str:
        """Return why no process can be started; empty if one can."""
        return self._workers.group.problem

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        """The processes that are alive or starting."""
        return self._workers.group.workers

    async def start(self) -> None:
        """Load the verifier in a template."""
        self.about = msgspec.msgpack.decode(await self._workers.start(), type=About)
        group = self._workers.group
        if self.about.resident:  # a second process would hold a second model and split the batches
            group.limits = msgspec.structs.replace(group.limits, processes=1)

    async def stop(self) -> None:
        """Close the verifier in every process, then end the processes."""
        group = self._workers.group
        closing = [
            worker.call(CLOSE, 1, b"", timeout_s=CLOSE_TIMEOUT_S)
            for worker in group.workers
            if worker.end is None and not worker.open
        ]
        for closed in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(closed, Exception):
                logger.error("closing the verifier %s failed: %s", self.name, closed)
        await self._workers.stop()

    def score(self, sample: Sample) -> Awaitable[Verdict]:
        """Score an answer in any free process. Answers that come in one turn of the event loop
        share frames, if the verifier is quick; see `_send`.
        """
        data, format = encode(sample, Format.MSGPACK)
        if self._workers.group.is_async or format is Format.JSON:
            return self._alone(sample)
        loop = asyncio.get_running_loop()
        future = Unkept[Verdict](loop=loop)
        self._waiting.append((asked_by.get(), data, trace_parent.get(), future))
        if len(self._waiting) == 1:
            loop.call_soon(self._send)
        return future

    async def _alone(self, sample: Sample) -> Verdict:
        return (await self._call(SCORE, [sample], [trace_parent.get()]))[0]

    def _send(self) -> None:
        """Cut what waits into frames, each of one principal, and give each frame to a process.

        A frame has so many samples that they are expected to take `FRAME_S` together, and no more
        than each gets of the processes that can run at once. So the samples of a slow verifier
        travel alone, and none waits for another.
        """
        waiting, self._waiting = self._waiting, []
        at_once = min(self._workers.group.limits.processes, os.cpu_count() or 1)
        share = -(-len(waiting) // at_once)
        most = min(share, self.frame_limit)
        frames: list[tuple[Principal, list[_Scoring]]] = []
        room: dict[Principal, int] = {}
        filling: dict[Principal, list[_Scoring]] = {}
        for scoring in waiting:
            principal, data, _, future = scoring
            if future.done():  # whoever asked has gone
                continue
            room[principal] = room.get(principal, 0) - len(data)
            if room[principal] < 0 or len(filling[principal]) == most:
                room[principal], filling[principal] = FRAME_BYTES, []
                frames.append((principal, filling[principal]))
            filling[principal].append(scoring)
        for principal, frame in frames:
            asked_by.set(principal)  # whose turn it is, where processes are busy
            task = asyncio.create_task(self._score_frame(frame))
            self._frames.add(task)
            task.add_done_callback(self._frames.discard)

    async def _score_frame(self, frame: Sequence[_Scoring]) -> None:
        """Score the samples of a frame. If the frame as a whole fails, each is tried once more,
        alone, so that what one does to its process is its own verdict.
        """
        request = [msgspec.Raw(data) for _, data, _, _ in frame]
        traces = [trace for _, _, trace, _ in frame]
        try:
            verdicts = await self._call(SCORE, request, traces)
            if not verdicts:
                self._mean_s, self.frame_limit = FRAME_S, 1
                alone = [
                    self._call(SCORE, [sample], [trace], is_again=True)
                    for sample, trace in zip(request, traces, strict=True)
                ]
                verdicts = [verdict for (verdict,) in await asyncio.gather(*alone)]
        except BaseException as error:
            for _, _, _, future in frame:
                if not future.done():
                    future.set_exception(error)
            raise
        for (_, _, _, future), verdict in zip(frame, verdicts, strict=True):
            if not future.done():
                future.set_result(verdict)

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Judge a group on any free process."""
        traces = [trace_parent.get()] * len(samples)
        return await self._call(SCORE_GROUP, list(samples), traces)

    async def _call(
        self, tag: int, request: Sequence[object], traces: Sequence[str], *, is_again: bool = False
    ) -> list[Verdict]:
        """Return the verdicts of a call; none where a frame of several samples failed as a whole.

        Args:
            tag: what is asked.
            request: the samples.
            traces: the `traceparent` of each.
            is_again: whether they were in a frame that failed.
        """
        number, is_single = len(request), tag == SCORE
        is_frame = is_single and number > 1
        if any(traces):
            tag += TRACED
            body, format = encode((request, traces), Format.MSGPACK)
        else:
            body, format = encode(request, Format.MSGPACK)
        tag += AS_JSON if format is Format.JSON else 0
        try:
            answer = await self._workers.call(
                tag,
                body,
                timeout_s=min(self.timeout_s, FRAME_TIMEOUT_S) if is_frame else self.timeout_s,
                queue_s=max(QUEUE_S, 2 * self.timeout_s),
                tries=1 if is_frame or is_again else MAX_LOSSES,
                alone=is_again,
            )
        except NoFreeWorker as error:
            return [Verdict.unavailable(f"{self.name}: {error}")] * number
        except (CallLate, CallFailed, WorkerLost) as error:
            is_over = isinstance(error, WorkerLost) and error.end in (
                WorkerEnd.STOPPED,
                WorkerEnd.UNSTARTED,
            )
            return [] if is_frame and not is_over else [self._blame(error)] * number
        try:
            reply = msgspec.msgpack.decode(answer[1], type=Judged)
        except (msgspec.DecodeError, ValueError) as error:
            return [Verdict.error(f"{self.name} gave no usable verdict: {error}")] * number
        if reply.trace:
            logger.error("verifier %s failed\n%s", self.name, reply.trace)
        if len(reply.verdicts) != number:
            wrong = f"{self.name} gave {len(reply.verdicts)} verdicts for {number} samples"
            return [Verdict.error(wrong)] * number
        if is_single and format is Format.MSGPACK:
            # The time of an async verifier is not measured and is 0. Samples that are quicker than
            # the bound below fill the largest frame, and a mean without it would go to 0.
            mean_s = self._mean_s + SMOOTHING * (reply.took_s / number - self._mean_s)
            self._mean_s = max(mean_s, FRAME_S / MAX_FRAME)
            self.frame_limit = max(1, min(MAX_FRAME, int(FRAME_S / self._mean_s)))
        return reply.verdicts

    def _blame(self, error: CallLate | CallFailed | WorkerLost) -> Verdict:
        """Return the verdict of a call that failed."""
        if isinstance(error, CallLate):
            return late(self.name, self.timeout_s)
        if isinstance(error, CallFailed):
            logger.error("verifier %s failed: %s\n%s", self.name, error, error.failure.trace)
            return Verdict.error(f"{self.name}: {error}")
        if error.end is WorkerEnd.UNSTARTED:
            return Verdict.unavailable(f"{self.name}: {error}")
        # The same sample was given to two processes, and both ended. That is a bug of the verifier
        # if it ended them itself, and the machine's doing otherwise.
        reason = f"{self.name}: two worker processes were lost on it; the second: {error}"
        ended_itself = error.end in (WorkerEnd.EXITED, WorkerEnd.CRASHED, WorkerEnd.CORRUPT)
        return Verdict.error(reason) if ended_itself else Verdict.unavailable(reason)


def late(name: str, timeout_s: float) -> Verdict:
    """Return the verdict where a verifier has given none in time."""
    return Verdict.unavailable(f"{name} gave no verdict within {timeout_s:g} s")
