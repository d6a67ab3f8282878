"""Asynchronous rollouts under a virtual clock: the scheduling code of the trainer, with scripted
engines and lengths.

Issue, deadlines, accounts and streaming are those of `ludus train` (`ludus.trainer.stream`). What
takes time is scripted: a decode step of an engine with n of S slots taken takes `base_s + row_s n`
seconds, an update takes seconds in proportion to its tokens, and rollout k has the k-th length of a
lognormal distribution. The same numbers come out every time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.verdict import Verdict

from ..rollout.collect import Cut, Group
from ..rollout.issues import Ticket
from ..rollout.stages import Stages
from ..stream.accounts import Accounts, RolloutRecord
from ..stream.plan import Late, StreamPlan
from ..stream.stream import RolloutStream
from ..stream.virtual_time import VirtualTimeLoop


@dataclass(frozen=True)
class Schedule:
    """A simulated run."""

    sigma: float
    """Standard deviation of the logarithm of lengths."""
    engines: int = 1
    slots: int = 16
    group_size: int = 4
    batches: float = 2.0
    """Rollouts of a step over slots of all engines."""
    groups_of_step: int = 0
    """Groups of a step; 0 follows from `batches`."""
    max_staleness: int = 4
    deadline: int = 0
    late: Late = "wait"
    steps: int = 80
    skipped: int = 30
    """Steps before the clock is read: the longest rollouts take as long."""
    seed: int = 0
    mean: int = 200
    """Mean length of a rollout, in tokens."""
    longest: int = 4000
    """Length at which a rollout is cut."""
    base_s: float = 1.0
    """Seconds of a decode step without rows."""
    row_s: float = 1 / 16
    """Seconds that each row adds to a decode step."""
    publish_s: float = 1.0
    """Seconds in which new weights reach the engines, of some hundreds that a step takes."""
    training: float = 0.0
    """Tokens a second of the learner; 0 is as fast as all engines."""
    concurrency: int = 0
    """Most rollouts in flight; 0 is as many as there are slots."""

    @property
    def groups(self) -> int:
        """Groups of a step."""
        return self.groups_of_step or max(
            1, round(self.batches * self.engines * self.slots / self.group_size)
        )

    @property
    def generation(self) -> float:
        """Tokens a second of all engines with every slot taken."""
        return self.engines * self.slots / (self.base_s + self.row_s * self.slots)

    @property
    def bound(self) -> float:
        """Tokens a second of the slower stage."""
        return min(self.generation, self.training or self.generation)


@dataclass
class Measured:
    """The numbers of a simulated run."""

    trained: float
    """Tokens a second that were trained, over the bound min(generation, training)."""
    sampled: float
    """Tokens a second that were sampled, over the same bound."""
    oldest: int
    """The largest age of a trained token, in versions."""
    age: float
    """The mean age of a trained token."""
    lost: float
    """Share of the sampled tokens that was not trained."""
    bias: float
    """Mean length of trained over issued rollouts, up to the oldest that is open."""


def length_of(schedule: Schedule, ordinal: int) -> int:
    """Return the length of a rollout: lognormal with the schedule's mean."""
    return _length(schedule.sigma, schedule.mean, schedule.longest, schedule.seed, ordinal)


@cache
def _length(sigma: float, mean: int, longest: int, seed: int, ordinal: int) -> int:
    rng = random.Random(seed * 1_000_003 + ordinal)
    drawn = rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
    return max(1, min(longest, round(drawn)))


@dataclass(order=True)
class _Request:
    """A rollout in a slot, by the rollout's last decode step."""

    end: float
    number: int
    start: float = field(compare=False)
    answer: asyncio.Future[list[int]] = field(compare=False)


class ScriptedEngine:
    """An engine of S slots that takes the time of its decode steps, and samples nothing."""

    def __init__(self, schedule: Schedule) -> None:
        self.tokens = 0.0
        self._loop = asyncio.get_running_loop()
        self._slots = schedule.slots
        self._base_s, self._row_s = schedule.base_s, schedule.row_s
        self._steps, self._at = 0.0, self._loop.time()
        self._rows: list[_Request] = []
        self._line: deque[tuple[int, asyncio.Future[list[int]]]] = deque()
        self._versions: list[tuple[float, int]] = [(0.0, 0)]
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0

    @property
    def load(self) -> int:
        """Number of requests."""
        return len(self._rows) + len(self._line)

    def set_version(self, version: int) -> None:
        """Sample from newer weights from now on; running requests go on."""
        self._advance()
        self._versions.append((self._steps, version))

    async def generate(self, length: int) -> list[int]:
        """Wait until a request of `length` tokens is answered; returns the version of each."""
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._advance()
        self._line.append((length, answer))
        self._admit()
        return await answer

    def _advance(self) -> None:
        now = self._loop.time()
        steps = (now - self._at) / (self._base_s + self._row_s * len(self._rows))
        self._steps += steps
        self.tokens += steps * len(self._rows)
        self._at = now

    def _admit(self) -> None:
        while self._rows and (
            self._rows[0].end <= self._steps + 1e-6 or self._rows[0].answer.cancelled()
        ):
            row = heapq.heappop(self._rows)
            if not row.answer.cancelled():
                row.answer.set_result(self._spans(row))
        while self._line and len(self._rows) < self._slots:
            length, answer = self._line.popleft()
            if not answer.cancelled():
                self._number += 1
                row = _Request(self._steps + length, self._number, self._steps, answer)
                heapq.heappush(self._rows, row)
        if self._timer is not None:
            self._timer.cancel()
        if self._rows:
            left = self._rows[0].end - self._steps
            seconds = left * (self._base_s + self._row_s * len(self._rows))
            self._timer = self._loop.call_at(self._at + seconds, self._due)

    def _due(self) -> None:
        self._advance()
        self._admit()

    def drop_cancelled(self) -> None:
        """Free the slots of requests that nobody waits for."""
        self._advance()
        self._rows = [row for row in self._rows if not row.answer.cancelled()]
        heapq.heapify(self._rows)
        self._admit()

    def _spans(self, row: _Request) -> list[int]:
        """Return the version of each token of a finished request."""
        length, versions = round(row.end - row.start), list[int]()
        for (_, version), (until, _) in zip(
            self._versions, [*self._versions[1:], (math.inf, 0)], strict=True
        ):
            if until > row.start:
                count = round(min(until, row.end) - row.start) - len(versions)
                versions += [version] * max(0, count)
        return (versions + [self._versions[-1][1]] * length)[:length]


class EndlessTasks:
    """Tasks without end, of which nothing is known but their numbers."""

    used = 0

    async def take(self, count: int) -> list[Task]:
        """Return the next `count` tasks."""
        self.used += count
        return [Task(id=str(self.used - count + n), split="train") for n in range(count)]

    def retire(self, tasks: Any) -> None:
        """Keep every task."""

    def state(self) -> dict[str, Any]:
        """Return the position."""
        return {"used": self.used}

    def restore(self, state: Any) -> None:
        """Go on from a position."""
        self.used = state["used"]


class _Noted(Accounts):
    """Accounts that remember every record."""

    def __init__(self, group_size: int) -> None:
        super().__init__(None, group_size)
        self.records: list[RolloutRecord] = []

    def close(self, group: int, records: Any) -> None:
        """Note the records."""
        closed = list(records)
        self.records += closed
        super().close(group, closed)


def simulate(schedule: Schedule) -> Measured:
    """Run a schedule under the virtual clock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_simulate(schedule))


class _ScriptedPlayer:
    """Plays groups on scripted engines.

    Args:
        schedule: says how long each rollout is.
        engines: the least busy of which samples the next rollout.
    """

    def __init__(self, schedule: Schedule, engines: Sequence[ScriptedEngine]) -> None:
        self.schedule, self.engines = schedule, engines

    async def play(
        self, ticket: Ticket, *, done: Callable[[Episode], None], cut: Cut, stages: Stages
    ) -> Group:
        """Play a group for `RolloutStream`."""
        playing = [
            asyncio.create_task(self._rollout(ticket, number, done))
            for number in range(self.schedule.group_size)
        ]
        late = await cut.wait(playing)
        finished = [task.result() for number, task in enumerate(playing) if number not in late]
        return Group(ticket.task, finished, 0, ticket.ordinal, ticket.version, late)

    async def _rollout(
        self, ticket: Ticket, index: int, done: Callable[[Episode], None]
    ) -> Episode:
        ordinal = ticket.ordinal * self.schedule.group_size + index
        engine = min(self.engines, key=lambda candidate: candidate.load)
        try:
            versions = await engine.generate(length_of(self.schedule, ordinal))
        except asyncio.CancelledError:
            engine.drop_cancelled()
            raise
        turn = Turn(out_ids=versions, versions=versions)
        trajectory = Trajectory(verdict=Verdict.of(1.0), segments=[Segment(turns=[turn])])
        episode = Episode(task="", trajectories=[trajectory], index=index, ordinal=ordinal)
        done(episode)
        return episode


async def _simulate(schedule: Schedule) -> Measured:
    loop = asyncio.get_running_loop()
    engines = [ScriptedEngine(schedule) for _ in range(schedule.engines)]
    accounts = _Noted(schedule.group_size)

    stream = RolloutStream(
        _ScriptedPlayer(schedule, engines).play,
        EndlessTasks(),
        StreamPlan(
            groups=schedule.groups,
            group_size=schedule.group_size,
            steps=10**9,
            max_staleness=schedule.max_staleness,
            deadline=schedule.deadline,
            late=schedule.late,
            min_group=1,
            concurrency=schedule.concurrency or schedule.engines * schedule.slots,
        ),
        accounts,
        stages=Stages(loop.time),
    )
    started = sampled = trained = 0.0
    oldest, ages = 0.0, list[tuple[float, int]]()
    for step in range(schedule.steps):
        if step == schedule.skipped:
            started, sampled = loop.time(), sum(engine.tokens for engine in engines)
        groups = await stream.batch()
        tokens = sum(len(e.trajectories[0].turns[0].out_ids) for g in groups for e in g.episodes)
        await asyncio.sleep(tokens / (schedule.training or schedule.generation))
        numbers = stream.settle(lambda group, episode: "")
        await asyncio.sleep(schedule.publish_s)
        for engine in engines:
            engine.set_version(step + 1)
        stream.advance()
        if step >= schedule.skipped:
            trained += tokens
            oldest = max(oldest, numbers["staleness/max"])
            ages.append((numbers["staleness/mean"], tokens))
    seconds = loop.time() - started
    sampled = sum(engine.tokens for engine in engines) - sampled
    await stream.close()
    return Measured(
        trained=trained / seconds / schedule.bound,
        sampled=sampled / seconds / schedule.bound,
        oldest=int(oldest),
        age=sum(age * tokens for age, tokens in ages) / trained,
        **_lost_and_bias(schedule, accounts.records),
    )


def _lost_and_bias(schedule: Schedule, records: list[RolloutRecord]) -> dict[str, float]:
    """Compare the scripted lengths of trained and issued rollouts, up to the oldest open one."""
    fates = {record.ordinal: record.fate for record in records}
    drained = next(n for n in range(len(fates) + 1) if n not in fates)
    lengths = [length_of(schedule, n) for n in range(drained)]
    trained = [length for n, length in enumerate(lengths) if fates[n] == "trained"]
    return {
        "lost": 1 - sum(trained) / sum(lengths),
        "bias": (sum(trained) / len(trained)) / (sum(lengths) / len(lengths)),
    }
