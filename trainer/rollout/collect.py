"""Collects groups of rollouts: many episodes at the same time, and the early end of a group.

All rollouts of a group share task and environment seed and differ in sampling seed. Both seeds
follow from the group's ordinal, so that a group that is played again is the same group. An episode
that failed through no fault of the policy is played again; an episode that keeps failing stays in
its group, left out of loss and baseline.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ludus.agent import Episode, EpisodeLimits, Policy, Stop
from ludus.agent.loop import EpisodeMaker, PolicyMaker
from ludus.envs import Task
from ludus.errors import TrainingFailed

from ..algorithms import no_positive_resampling_mask
from ..config import TrainConfig
from .issues import Issue, RolloutTerms, Ticket
from .scoring import EpisodeScorer
from .source import EnvSource
from .stages import NOWHERE, StagedSession, Stages

if TYPE_CHECKING:
    from .hints import AskedMaker
    from .trees import TreeMaker


class Cut:
    """A signal that ends a group of rollouts early; also ends the group at a deadline.

    Args:
        deadline_s: seconds after which the group ends by itself; None for no deadline.
    """

    def __init__(self, deadline_s: float | None = None) -> None:
        self.deadline_s = deadline_s
        self._asked = asyncio.Event()

    @property
    def asked(self) -> bool:
        """Whether the group was asked to end."""
        return self._asked.is_set()

    def ask(self) -> None:
        """End the group with the rollouts that have finished."""
        self._asked.set()

    async def wait(self, rollouts: Sequence[asyncio.Task[Any]]) -> dict[int, float]:
        """Wait until all rollouts have finished, or for the cut.

        Returns:
            The unfinished rollouts by index, with the seconds that each was played; they are
            cancelled, and have ended.

        Raises:
            Exception: that of the first rollout that failed.
        """
        clock = asyncio.get_running_loop()
        started = clock.time()
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            unfinished: set[asyncio.Task[Any]] = set(rollouts)
            while unfinished and not self.asked:
                patience = (
                    None
                    if self.deadline_s is None
                    else max(0.0, started + self.deadline_s - clock.time())
                )
                done, _ = await asyncio.wait(
                    {*unfinished, asked}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done - {asked}:
                    task.result()  # raises the rollout's error at once
                unfinished -= done
                if not done and patience is not None:
                    self._asked.set()  # the deadline has passed
        finally:
            await cancelled([asked])
        late = {n: clock.time() - started for n, task in enumerate(rollouts) if not task.done()}
        await cancelled([rollouts[n] for n in late])
        return late


async def cancelled(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until each has ended; a finished task is left alone."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


RETRIED = frozenset({Stop.ENV_ERROR, Stop.TIMEOUT, Stop.REWARD_UNAVAILABLE, Stop.POLICY_ERROR})
"""The ends of an episode that are no fault of the policy, after which it is played again."""
BACKOFF_S = 0.25
"""Half of the wait before the second attempt; each further wait is twice as long."""


@dataclass(frozen=True, slots=True)
class Times:
    """When a rollout was played."""

    started: float
    """Seconds since 1970, when the rollout was issued."""
    spans: list[tuple[str, float]]
    """Its phases in order, with the seconds of each; see `stages.Spans`."""


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of a task, which are compared with each other."""

    task: Task
    episodes: list[Episode]
    retries: int
    ordinal: int = 0
    """The ordinal of the group; see `Ticket`."""
    version: int = 0
    """The version of the weights when the group was issued."""
    late: dict[int, float] = field(default_factory=dict[int, float])
    """The rollouts that were cut off at their deadline, by index, with the seconds that each had
    been played; `episodes` is without these.
    """
    times: dict[int, Times] = field(default_factory=dict[int, "Times"])
    """When each rollout was played, by index; empty for a group out of a checkpoint."""


DEFAULT_LIMITS = EpisodeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayBounds:
    """Bounds on how a collector plays episodes."""

    episode: EpisodeLimits = DEFAULT_LIMITS
    """Bounds on one episode."""
    concurrency: int = 256
    """How many episodes are played at the same time."""
    retries: int = 3
    """How many times a failed episode is played again."""


DEFAULT_BOUNDS = PlayBounds()


class Decides(Protocol):
    """Decides on the further rounds of a group; see `sampling.SamplingPolicy`."""

    def more(self, ticket: Ticket, rounds: Sequence[Sequence[Episode]]) -> Issue | None:
        """Return a further round of a group, or None."""
        ...

    def finish(self, ticket: Ticket, episodes: Sequence[Episode]) -> None:
        """Mark the rollouts of a group once all rewards are known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The number of rollouts of a group, and the seed that fixes the rollouts."""

    group_size: int
    """The most rollouts of a group."""
    seed: int
    """The seed of the run."""
    policy: Decides | None = None
    """Decides about groups whose ticket carries an issue."""


class Collector:
    """Plays episodes with bounded concurrency.

    Args:
        source: opens sessions of the environment.
        policy: the policy that plays.
        scorer: verifiers that score each episode besides the environment.
        bounds: how many episodes are played at a time, how often, and how long.
        maker: makes the episodes; by default the policy plays them in the loop of `agent.play`.
        asked: makes the episodes of a sampling policy.
    """

    def __init__(
        self,
        source: EnvSource,
        policy: Policy,
        *,
        scorer: EpisodeScorer | None = None,
        bounds: PlayBounds = DEFAULT_BOUNDS,
        maker: EpisodeMaker | None = None,
        asked: AskedMaker | None = None,
    ) -> None:
        self.source = source
        self.policy = policy
        self.scorer = scorer or EpisodeScorer([])
        self.limits = bounds.episode
        self.maker = maker or PolicyMaker(policy, bounds.episode)
        self.asked = asked
        self.trees: TreeMaker | None = None
        """Plays the trees of a sampling policy."""
        self.retries = bounds.retries
        self.places = asyncio.Semaphore(bounds.concurrency)

    async def collect(
        self,
        tasks: Sequence[Task],
        *,
        group_size: int,
        seed: int,
        first: int = 0,
        done: Callable[[Episode], None] | None = None,
    ) -> list[Group]:
        """Play `group_size` rollouts of each task, and return the groups in the order of `tasks`.

        Args:
            tasks: the tasks; each becomes one group.
            group_size: rollouts of each task.
            seed: the same seed, ordinals and weights give the same rollouts, as far as the
                environment is deterministic.
            first: the ordinal of the first group; the others follow.
            done: called with each finished episode.
        """
        tickets = [Ticket(ordinal=first + n, task=task) for n, task in enumerate(tasks)]
        async with aclosing(
            self.stream(tickets, group_size=group_size, seed=seed, done=done)
        ) as groups:
            played = [group async for group in groups]
        return sorted(played, key=lambda group: group.ordinal)

    async def stream(
        self,
        tickets: Iterable[Ticket],
        *,
        group_size: int,
        seed: int,
        done: Callable[[Episode], None] | None = None,
    ) -> AsyncGenerator[Group]:
        """Play all tickets at the same time, and yield each complete group.

        Whoever stops early closes the generator (`contextlib.aclosing`), which ends the rest.
        """
        drawing = Drawing(group_size=group_size, seed=seed)
        running = {asyncio.create_task(self.play(ticket, drawing, done=done)) for ticket in tickets}
        try:
            while running:
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    yield task.result()
        finally:
            await cancelled(running)

    async def play(
        self,
        ticket: Ticket,
        drawing: Drawing,
        *,
        done: Callable[[Episode], None] | None = None,
        cut: Cut | None = None,
        stages: Stages | None = None,
    ) -> Group:
        """Play the group of a ticket.

        Args:
            ticket: the ticket.
            drawing: the number of rollouts and the seed.
            done: called with each finished episode.
            cut: ends the group early, with the rollouts that have finished by then.
            stages: is told where each rollout stands.
        """
        stages = stages or NOWHERE
        rounds, late = await self._rounds(ticket, drawing, done, cut or Cut(), stages)
        rollouts = [rollout for row in rounds for rollout in row]
        episodes = [rollout.episode for rollout in rollouts]
        trees = any(episode.trajectories[0].node for episode in episodes)
        if trees:
            number_leaves(ticket.ordinal, episodes, drawing.group_size)
        await self._score_group(ticket, episodes, stages)
        if drawing.policy is not None and ticket.issue is not None:
            drawing.policy.finish(ticket, episodes)
        if trees:
            own_nodes(episodes)
        return Group(
            ticket.task,
            episodes,
            sum(rollout.retries for rollout in rollouts),
            ticket.ordinal,
            ticket.version,
            late,
            {rollout.episode.index: rollout.times for rollout in rollouts},
        )

    async def _rounds(
        self,
        ticket: Ticket,
        drawing: Drawing,
        done: Callable[[Episode], None] | None,
        cut: Cut,
        stages: Stages,
    ) -> tuple[list[list[_Played]], dict[int, float]]:
        """Play rounds of rollouts until the sampling policy asks for no more.

        Returns:
            The rollouts of each round, and the seconds of each rollout that was cut off, by its
            place in the group.
        """
        # The rollouts of a group are compared with each other, so all of them begin alike.
        env_seed = ticket.task.rng(0).randrange(1 << 31)
        policy = drawing.policy if ticket.issue is not None else None
        each = [None] * drawing.group_size if ticket.issue is None else ticket.issue.each
        rounds, late = list[list[_Played]](), dict[int, float]()
        first = 0
        while each:
            playing = [
                asyncio.create_task(
                    self._rollout(
                        ticket,
                        env_seed,
                        _Rollout(drawing.seed, first + n, drawing.group_size, asked),
                        done,
                        stages,
                    )
                )
                for n, asked in enumerate(each)
            ]
            try:
                cut_off = await cut.wait(playing)
            finally:
                await cancelled(playing)
                stages.leave(ticket.ordinal)
            late |= {first + n: seconds for n, seconds in cut_off.items()}
            done_now = [task.result() for n, task in enumerate(playing) if n not in cut_off]
            rounds.append([played for rollouts in done_now for played in rollouts])
            first, each = first + len(each), []
            if policy is not None and not cut.asked:
                further = policy.more(
                    ticket, [[played.episode for played in row] for row in rounds]
                )
                each = [] if further is None else further.each
        return rounds, late

    async def _score_group(
        self, ticket: Ticket, episodes: Sequence[Episode], stages: Stages
    ) -> None:
        """Score what compares the episodes of a group, in the time that the longest has left."""
        longest_s = max((episode.wall_s for episode in episodes), default=0.0)
        stages.enter(ticket.ordinal, -1, "group verifiers")  # -1 is the group as a whole
        try:
            left_s = self.limits.episode_timeout_s - longest_s
            await self.scorer.score_group(episodes, left_s=left_s)
        finally:
            stages.leave(ticket.ordinal)

    async def _rollout(
        self,
        ticket: Ticket,
        env_seed: int,
        rollout: _Rollout,
        done: Callable[[Episode], None] | None,
        stages: Stages,
    ) -> list[_Played]:
        """Play until the episode's end is of the policy's own making, or until the retries are used
        up.
        """
        if rollout.asked is not None and rollout.asked.tree is not None:
            return await self._tree(ticket, env_seed, rollout, done, stages)
        ordinal, index = ticket.ordinal, rollout.index
        attempt, started = 0, time.time()
        while True:
            stages.enter(ordinal, index, "a free place (rollout.concurrency)")
            # The place is given back before a wait for the next attempt, and before verifiers.
            async with self.places:
                episode = await self._play(ticket, env_seed, rollout, stages)
            failed = episode.trajectories[0].stop in RETRIED
            if not failed or attempt >= self.retries:
                break
            attempt += 1
            stages.enter(ordinal, index, "its next attempt")
            await asyncio.sleep(BACKOFF_S * 2**attempt)
        episode.group, episode.index = f"{ordinal}/{ticket.task.id}", index
        episode.ordinal, episode.split = rollout.number(ordinal), ticket.task.split
        # The verifiers of an episode have what the play has left of the episode's time.
        left_s = self.limits.episode_timeout_s - episode.wall_s
        stages.enter(ordinal, index, "verifiers")
        await self.scorer.score(episode, left_s=left_s)
        times = Times(round(started, 3), stages.spans(ordinal, index))
        stages.leave(ordinal, index)
        if done is not None:
            done(episode)
        return [_Played(episode, attempt, times)]

    async def _tree(
        self,
        ticket: Ticket,
        env_seed: int,
        rollout: _Rollout,
        done: Callable[[Episode], None] | None,
        stages: Stages,
    ) -> list[_Played]:
        """Play a root and its forks. A leaf that failed is missing, and is not played again: its
        siblings stand on the turns that it shares.
        """
        assert self.trees is not None, "made with the rule"
        assert rollout.asked is not None
        ordinal, index, started = ticket.ordinal, rollout.index, time.time()
        stages.enter(ordinal, index, "a tree")
        session = await self.source.open(ticket.task)
        try:
            seeds = env_seed, rollout.sampling_seed(ordinal)
            leaves = await self.trees.grow(
                session, ticket.task, rollout.asked, root=index, seeds=seeds
            )
        finally:
            await self.source.release(session)
        stages.enter(ordinal, index, "verifiers")
        for leaf in leaves:
            leaf.group = f"{ordinal}/{ticket.task.id}"
            left_s = self.limits.episode_timeout_s - leaf.wall_s
            await self.scorer.score(leaf, left_s=left_s)
            if done is not None:
                done(leaf)
        times = Times(round(started, 3), stages.spans(ordinal, index))
        stages.leave(ordinal, index)
        return [_Played(leaf, 0, times) for leaf in leaves]

    async def _play(
        self, ticket: Ticket, env_seed: int, rollout: _Rollout, stages: Stages
    ) -> Episode:
        stages.enter(ticket.ordinal, rollout.index, "a session")
        session = await self.source.open(ticket.task)
        staged = StagedSession(session, stages, ticket.ordinal, rollout.index)
        try:
            if rollout.asked is not None and self.asked is not None:
                return await self.asked.make(
                    staged,
                    ticket.task,
                    rollout.asked,
                    seed=env_seed,
                    sampling_seed=rollout.sampling_seed(ticket.ordinal),
                )
            return await self.maker.make(
                staged,
                task=ticket.task.id,
                split=ticket.task.split,
                seed=env_seed,
                sampling_seed=rollout.sampling_seed(ticket.ordinal),
            )
        finally:
            await self.source.release(session)


def compared(groups: Sequence[Group]) -> list[Group]:
    """Return the groups within which rollouts are compared: those of a task, parted by role and by
    `Trajectory.about`. No algorithm knows of roles; a group of one role stays as it is.
    """
    parted: list[Group] = []
    for group in groups:
        kinds: dict[tuple[str, str], list[Episode]] = {}
        for episode in group.episodes:
            (trajectory, *_) = episode.trajectories
            kinds.setdefault((trajectory.role, trajectory.about), []).append(episode)
        alone = len(kinds) < 2
        parted += [group] if alone else [replace(group, episodes=each) for each in kinds.values()]
    return parted


def own_nodes(episodes: Sequence[Episode]) -> None:
    """Let every node of a tree be trained in one leaf: the first with a reward that counts. In all
    others its tokens are context.
    """
    owners: dict[str, int] = {}
    for number, episode in enumerate(episodes):
        (trajectory, *_) = episode.trajectories
        if not trajectory.node or trajectory.exclude_from_baseline or not trajectory.verdict.ok:
            continue
        for turn in trajectory.turns:
            turn.trained = turn.trained and owners.setdefault(turn.node, number) == number


def number_leaves(ordinal: int, episodes: Sequence[Episode], most: int) -> None:
    """Give the leaves of a group their indices and ordinals, in the order of their nodes."""
    for index, episode in enumerate(episodes):
        episode.index, episode.ordinal = index, ordinal * most + index


@dataclass(frozen=True, slots=True)
class _Played:
    """A rollout that has ended."""

    episode: Episode
    retries: int
    times: Times


@dataclass(frozen=True, slots=True)
class _Rollout:
    """The place of a rollout in a run, apart from the group's ordinal."""

    run_seed: int
    index: int
    group_size: int
    asked: RolloutTerms | None = None

    def number(self, ordinal: int) -> int:
        """Return the ordinal of the rollout, for the ordinal of the group."""
        return ordinal * self.group_size + self.index

    def sampling_seed(self, ordinal: int) -> int:
        """Return the seed that the policy samples with."""
        name = f"{self.run_seed}/{self.number(ordinal)}"
        return Task(id=name, split="").rng().randrange(1 << 31)


def most_failed(config: TrainConfig) -> float:
    """Return the largest share of episodes without a reward that a step of a run may have."""
    return config.rollout.max_failed or (0.5 if config.agent else 1.0)


def refuse_failure(episodes: Sequence[Episode], *, most: float = 1.0) -> None:
    """Stop if no episode has a reward, rather than train on nothing, or if too few have one.

    Args:
        episodes: the episodes of a step.
        most: the largest share of episodes without a reward (rollout.max_failed).

    Raises:
        TrainingFailed: with the commonest reasons.
    """
    verdicts = [episode.trajectories[0].verdict for episode in episodes]
    failed = [verdict for verdict in verdicts if not verdict.ok]
    if len(failed) < len(verdicts) and len(failed) <= most * len(verdicts):
        return
    reasons = Counter(f"{verdict.status}: {verdict.detail}" for verdict in failed)
    if len(failed) == len(verdicts):
        why = reasons.most_common(1)[0][0] if reasons else "there were none"
        raise TrainingFailed(f"all {len(verdicts)} episodes failed; most often: {why}")
    why = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3))
    raise TrainingFailed(
        f"{len(failed)} of {len(verdicts)} episodes have no reward, more than rollout.max_failed "
        f"= {most:g} allows: {why}"
    )


def solved(groups: Sequence[Group], rate: float) -> list[str]:
    """Return the tasks whose share of rewarded rollouts reached `rate`; failed rollouts do not
    count.
    """
    tasks: list[str] = []
    rates: list[float] = []
    for group in groups:
        verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
        rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
        if rewards:
            tasks.append(group.task.id)
            rates.append(sum(reward > 0 for reward in rewards) / len(rewards))
    kept = no_positive_resampling_mask(torch.tensor(rates, dtype=torch.float64), threshold=rate)
    return [task for task, stays in zip(tasks, kept.tolist(), strict=True) if not stays]
