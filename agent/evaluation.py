"""Measurement of a policy on an environment: every task is sampled k times, and failures are
counted apart.

An episode that failed through no fault of the policy (a lost server, a reward that could not be
computed) is never counted as a zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from ludus.envs.gym import Playable
from ludus.envs.tasks import Task, distinct
from ludus.errors import ConfigError
from ludus.estimates import Estimate, mean_over_tasks, pass_at_k, wilson

from .loop import EpisodeLimits, EpisodeMaker, PolicyMaker
from .policy import Policy
from .trajectory import Episode, Stop, Trajectory

logger = logging.getLogger(__name__)
PAGE = 500
LOOKED = 16
"""How many tasks are examined per requested task, for sets that repeat problems."""
CLOSE_TIMEOUT_S = 60.0
"""The limit for closing a session, in seconds."""
GIVE_UP_S = 5.0
"""The same for a session with a call that may never come back, nor may its close."""
SEED_STRIDE = 1_000_003
"""A sampling seed is a multiple of this, drawn for a task, and the index of the sample."""
SEED_BITS = 22
"""Bits of that multiple."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of an evaluation."""

    episodes: int
    failed: int
    """How many episodes failed; these are in no number below."""
    failures: dict[str, int]
    """Stop and detail of failed episodes, with their counts."""
    tasks: int
    """How many tasks have at least one valid episode."""
    reward: Estimate | None = None
    """Mean return over tasks; None if every episode failed."""
    pass_at: dict[int, Estimate] = {}
    """k -> pass@k, over the tasks with at least k valid episodes."""
    passing: float = 1.0
    """The return from which an episode passes."""
    turns: float = 0.0
    """Mean number of turns of an episode."""
    stops: dict[str, int] = {}


async def first_tasks(session: Playable, split: str, count: int) -> list[Task]:
    """Return the first `count` tasks of a split that are different problems, or all.

    A warning reports if fewer than `count` were found. In an endless set, at most `LOOKED` times
    `count` tasks are examined.

    Raises:
        UnknownTask: no such split.
        ConfigError: the split has no tasks.
    """
    tasks: list[Task] = []
    seen: set[str] = set()
    tasks_seen = 0
    while len(tasks) < count and tasks_seen < LOOKED * count:
        limit = min(PAGE, count - len(tasks))
        page = await session.task_page(split, offset=tasks_seen, limit=limit)
        tasks += distinct(page.tasks, seen)
        tasks_seen += len(page.tasks)
        if len(page.tasks) < limit:
            break
    if not tasks:
        raise ConfigError(f"split {split!r} of {session.id} has no tasks")
    if len(tasks) < count:
        logger.warning(
            too_few(session.id, split, wanted=count, problems=len(tasks), looked=tasks_seen)
        )
    return tasks


def too_few(env_id: str, split: str, *, wanted: int, problems: int, looked: int) -> str:
    """Return the warning for a split with fewer tasks than requested.

    >>> too_few("a-v0", "test", wanted=8, problems=3, looked=3)
    "split 'test' of a-v0 has 3 tasks, and 8 were asked for: each is played once"
    """
    has = f"split {split!r} of {env_id} has {problems}"
    if looked > problems:
        has = f"{looked} tasks of split {split!r} of {env_id} are {problems} different problems"
    else:
        has += " tasks"
    return f"{has}, and {wanted} were asked for: each is played once"


async def evaluate(
    open_session: Callable[[], Playable],
    policy_for: Callable[[Playable], Policy],
    *,
    split: str = "test",
    tasks: int = 100,
    samples: int = 1,
    concurrency: int = 16,
    seed: int = 0,
    limits: EpisodeLimits | None = None,
    maker: EpisodeMaker | None = None,
    on_start: Callable[[int], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play each of the first `tasks` different problems `samples` times.

    Args:
        open_session: opens a new session; each of the `concurrency` players gets a session.
        policy_for: returns the policy that plays on a session.
        split: the split that the tasks are from.
        tasks: how many tasks, or all of a smaller split.
        samples: episodes per task. These share the environment's seed and differ in the policy's.
        concurrency: episodes at once.
        seed: the seed of the environment and of the policy.
        limits: the limits on one episode.
        maker: makes the episodes instead of the policies.
        on_start: called with the number of episodes to be played.
        on_episode: called with each episode when finished.

    Returns:
        The episodes by task, then sample.
    """
    scout = open_session()
    try:
        policy_for(scout)  # a policy that cannot play here raises before anything is played
        task_list = await first_tasks(scout, split, tasks)
    finally:
        await _close(scout, CLOSE_TIMEOUT_S)
    jobs = [(task.id, index) for task in task_list for index in range(samples)]
    if on_start:
        on_start(len(jobs))
    work_list = _WorkList(jobs, split, seed, on_episode or (lambda _: None))

    def maker_for(session: Playable) -> EpisodeMaker:
        return maker or PolicyMaker(policy_for(session), limits)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(jobs))):
            group.create_task(work_list.work(open_session, maker_for))
    return [work_list.played[job] for job in jobs]


async def _close(session: Playable, timeout_s: float) -> None:
    """Close a session, within a limit; what has been played is worth more than a clean end."""
    try:
        async with asyncio.timeout(timeout_s):
            await session.close()
    except Exception as error:
        reason = str(error) or type(error).__name__
        logger.warning("%s was not closed: %s", session.id, reason)


class _WorkList:
    """The shared work list: each player takes the next job until none is left."""

    def __init__(
        self,
        jobs: Sequence[tuple[str, int]],
        split: str,
        seed: int,
        on_episode: Callable[[Episode], None],
    ) -> None:
        self.played: dict[tuple[str, int], Episode] = {}
        self._waiting = iter(jobs)
        self._split, self._seed = split, seed
        self._on_episode = on_episode

    async def work(
        self, open_session: Callable[[], Playable], maker_for: Callable[[Playable], EpisodeMaker]
    ) -> None:
        """Play on a single session until no job is left."""
        session = open_session()
        try:
            maker = maker_for(session)
            for task, index in self._waiting:
                episode = await maker.make(
                    session,
                    task=task,
                    split=self._split,
                    seed=self._seed,
                    sampling_seed=self._sampling_seed(task, index),
                )
                episode.index, episode.group = index, f"{task}#{self._seed}"
                self.played[task, index] = episode
                self._on_episode(episode)
                if episode.trajectories[0].stop is Stop.TIMEOUT:
                    await _close(session, GIVE_UP_S)
                    session = open_session()
                    maker = maker_for(session)
                await asyncio.sleep(0)  # Ctrl-C gets its turn where no episode ever waits
        except BaseException:  # Ctrl-C, or another player's failure, in the middle of a call
            await _close(session, GIVE_UP_S)
            raise
        await _close(session, CLOSE_TIMEOUT_S)

    def _sampling_seed(self, task: str, index: int) -> int:
        # Samples that shared a seed would draw alike in every task, and right or wrong together:
        # the intervals take tasks as independent of each other.
        drawn = Task(id=task, split=self._split).rng(self._seed).getrandbits(SEED_BITS)
        return drawn * SEED_STRIDE + index


def valid(trajectory: Trajectory) -> bool:
    """Return whether the outcome is the policy's own doing, and so counts in figures."""
    return trajectory.verdict.ok and not trajectory.exclude_from_baseline


def summarise(episodes: Sequence[Episode], *, passing: float = 1.0) -> Evaluation:
    """Compute the figures of a set of episodes.

    Args:
        episodes: the result of `evaluate`.
        passing: the return from which an episode passes.
    """
    by_task: dict[str, list[float]] = {}
    trajectories: list[Trajectory] = []
    failures: Counter[str] = Counter()
    for episode in episodes:
        trajectory = episode.trajectories[0]
        if not valid(trajectory):
            stop = "" if trajectory.stop is Stop.TERMINATED else f"{trajectory.stop}: "
            failures[f"{stop}{trajectory.verdict.detail}"[:200]] += 1
            continue
        trajectories.append(trajectory)
        by_task.setdefault(episode.task, []).append(trajectory.verdict.unwrap())
    return Evaluation(
        episodes=len(episodes),
        failed=len(episodes) - len(trajectories),
        failures=dict(failures.most_common()),
        tasks=len(by_task),
        reward=mean_over_tasks([fmean(returns) for returns in by_task.values()])
        if trajectories
        else None,
        pass_at=pass_rates(list(by_task.values()), passing),
        passing=passing,
        turns=fmean(len(t.turns) for t in trajectories) if trajectories else 0.0,
        stops={str(stop): n for stop, n in Counter(t.stop for t in trajectories).most_common()},
    )


def pass_rates(returns: Sequence[Sequence[float]], passing: float) -> dict[int, Estimate]:
    """Return pass@k for k = 1, 2, 4 ... up to the largest number of episodes of a task.

    Args:
        returns: the returns of the episodes of each task.
        passing: the return from which an episode passes.
    """
    passed = [
        (len(task_returns), sum(value >= passing for value in task_returns))
        for task_returns in returns
    ]
    largest = max((n for n, _ in passed), default=0)
    estimates: dict[int, Estimate] = {}
    for k in sorted({*(1 << i for i in range(largest.bit_length())), largest} - {0}):
        rates = [pass_at_k(n, c, k) for n, c in passed if n >= k]
        if set(rates) <= {0.0, 1.0}:  # the tasks are trials of a binomial: Wilson's interval
            estimates[k] = wilson(round(sum(rates)), len(rates))
            continue
        mean = mean_over_tasks(rates)
        estimates[k] = Estimate(mean.value, max(mean.low, 0.0), min(mean.high, 1.0))
    return estimates
