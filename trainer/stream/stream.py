"""The stream of rollouts: groups are issued, played and handed to the learner, a step at a time.

    stream = RolloutStream(play, tasks, plan, accounts)
    groups = await stream.batch()          # waits for the groups of a step
    ...                                    # learn
    numbers = stream.settle(fate_of)       # closes the accounts of the step
    ...                                    # publish the new weights
    stream.advance()                       # the next groups are sampled by these

With `max_staleness = 0` groups are played only while `batch` waits: the synchronous trainer. With
more, groups are played at any time, as far as `IssueRule` allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from ludus.agent import Episode
from ludus.envs import Task
from ludus.errors import RemoteError, TrainingFailed

from ..rollout.collect import Group, Ticket
from ..rollout.cut import Cut, cancelled
from ..rollout.stages import Stages
from ..rollout.tasks import Tasks
from .accounts import Accounts
from .deadlines import owed_groups
from .fates import LATE, SMALL_GROUP, records_of
from .issue_rule import IssueRule
from .length_bias import LengthBias
from .outage import Outage, refuse_without_engine, unreachable
from .plan import Play, StreamPlan
from .shelf import GroupInFlight, Shelf
from .staleness import staleness_numbers
from .state import FinishedGroup, StreamState

LOOK_S = 5.0
"""Seconds after which a waiting stream looks again, even if nobody has told it of a change."""


class RolloutStream:
    """Issues, plays and hands out groups of rollouts, and keeps account of each.

    Args:
        play: plays a group.
        tasks: the source of tasks, in the order of issue.
        plan: the numbers.
        accounts: the accounts of the run.
        version: the version of the weights, which is the number of steps done.
        passes: whether a finished group passes the recipe's filter, where dropped groups are
            replaced; None keeps every group.
        stages: is told where each rollout stands.
        done: called with each finished episode.
    """

    def __init__(
        self,
        play: Play,
        tasks: Tasks,
        plan: StreamPlan,
        accounts: Accounts,
        *,
        version: int = 0,
        passes: Callable[[Group], bool] | None = None,
        stages: Stages | None = None,
        done: Callable[[Episode], None] | None = None,
    ) -> None:
        self.plan = plan
        self.accounts = accounts
        self.version = version
        self.stages = stages or Stages()
        self.bias = LengthBias()
        self._play = play
        self._tasks = tasks
        self._passes = passes
        self._done = done
        self._rule = IssueRule(plan.max_staleness, plan.groups, plan.steps)
        self._outage = Outage(plan.outage_s)
        self._shelf = Shelf()
        self._again: list[Ticket] = []
        """Groups of a checkpoint that are to be played again."""
        self._frontier = 0
        self._asked = False
        """Whether `batch` is waiting."""
        self._step = version + 1
        """The step that is under way: the last that was settled, and one."""
        self._refilled = 0
        """Groups that the filter has dropped since the last step."""
        self._unpublished = 0
        """Groups of a step that was settled and whose weights are not published."""
        self._lost = 0
        """Groups in a row that were late."""
        self._failure: BaseException | None = None
        self._wanted, self._changed = asyncio.Event(), asyncio.Event()
        self._issuer: asyncio.Task[None] | None = None

    # --- what the main loop calls -----------------------------------------------------------------

    async def batch(self) -> list[Group]:
        """Wait for the groups of a step, and return them in the order of issue.

        The groups that the recipe's filter has dropped since the last step are among them.

        Raises:
            TrainingFailed: the environment cannot be reached, or no engine is left.
        """
        self._asked = True
        self._issuer = self._issuer or asyncio.create_task(self._issue())
        self._look()
        try:
            while not self._ready():
                self._changed.clear()
                await _told(self._changed)
                self._raise_failure()
        finally:
            self._asked = False
        shelf = self._shelf
        for ordinal in sorted(shelf.waiting)[: self.plan.groups]:
            shelf.training[ordinal] = shelf.waiting.pop(ordinal)
        shelf.reported, shelf.dropped = shelf.dropped, {}
        handed = shelf.training | shelf.reported
        return [handed[ordinal] for ordinal in sorted(handed)]

    def settle(self, fate_of: Callable[[Group, Episode], str]) -> dict[str, float]:
        """Close the accounts of the step that has been trained.

        Args:
            fate_of: the reason for which a rollout of the step was masked; empty if trained.

        Returns:
            `rollouts/*` (the terms of the accounting law), `staleness/*`, and `bias/length` (mean
            tokens of trained over issued rollouts, up to the oldest that is not final).

        Raises:
            AccountsBroken: a rollout was lost or counted twice.
        """
        shelf = self._shelf
        groups = [*shelf.training.values(), *shelf.reported.values()]
        numbers = staleness_numbers(groups, self.version)
        for group in groups:
            self._close(group, fate_of)
        self._step += 1
        self._unpublished = len(shelf.training)
        shelf.training, shelf.reported = {}, {}
        self._refilled = 0
        numbers |= self.accounts.check(
            waiting=[*shelf.waiting, *shelf.dropped], in_flight=self._in_flight()
        )
        if (ratio := self.bias.ratio) is not None:
            numbers["bias/length"] = ratio
        return numbers

    def advance(self) -> None:
        """Go on to the next version: the engine has the weights of the step that was settled."""
        self.version += 1
        self._unpublished = 0
        self._look()

    def state(self) -> StreamState:
        """Return the state for a checkpoint.

        Groups of a step that is being trained count as finished: a run that ends before the step is
        settled trains them again.
        """
        shelf = self._shelf
        tickets = [*self._again, *(one.ticket for one in shelf.playing.values())]
        finished = {
            **{n: FinishedGroup.of(group) for n, group in shelf.waiting.items()},
            **{n: FinishedGroup.of(group) for n, group in shelf.training.items()},
            **{n: FinishedGroup.of(group, dropped=True) for n, group in shelf.reported.items()},
            **{n: FinishedGroup.of(group, dropped=True) for n, group in shelf.dropped.items()},
        }
        return StreamState(
            frontier=self._frontier,
            tasks=self._tasks.state(),
            unfinished=sorted(tickets, key=lambda ticket: ticket.ordinal),
            finished=[finished[n] for n in sorted(finished)],
            trained=self.accounts.trained,
            masked=dict(self.accounts.masked),
        )

    def restore(self, state: StreamState) -> None:
        """Continue from the `state` that a checkpoint has kept; the task source is restored by the
        caller.

        Raises:
            AccountsBroken: an ordinal is missing in the state.
        """
        self._frontier = state.frontier
        self._again = list(state.unfinished)
        for one in state.finished:
            shelf = self._shelf.dropped if one.dropped else self._shelf.waiting
            shelf[one.ticket.ordinal] = one.group()
        self._refilled = len(self._shelf.dropped)
        open_groups = [one.ordinal for one in self._again]
        open_groups += [*self._shelf.waiting, *self._shelf.dropped]
        known = self.accounts.restore(
            issued=state.frontier,
            trained=state.trained,
            masked=state.masked,
            unfinished=open_groups,
        )
        self.bias.add(known)
        self.accounts.check(
            waiting=[*self._shelf.waiting, *self._shelf.dropped], in_flight=self._in_flight()
        )

    async def close(self) -> None:
        """End everything that is in flight."""
        playing = [one.task for one in self._shelf.playing.values() if one.task is not None]
        await cancelled([*playing, *([self._issuer] if self._issuer is not None else [])])

    # --- issue ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Let the issuer and `batch` look at what has changed."""
        self._wanted.set()
        self._changed.set()

    async def _issue(self) -> None:
        """Issue groups whenever there is room."""
        try:
            while True:
                self._wanted.clear()
                while self._again and self._may_issue():
                    self._start(self._again.pop(0))
                while count := self._room():
                    for task in await self._taken(count):
                        self.accounts.issue(self._frontier)
                        self._frontier += 1
                        self._start(Ticket(ordinal=self._frontier - 1, task=task))
                self._changed.set()
                await _told(self._wanted)
        except Exception as error:
            self._fail(error)

    async def _taken(self, count: int) -> Sequence[Task]:
        """Take tasks, also if their server is away for a while."""
        while True:
            try:
                with self.stages.during("tasks from the environment"):
                    return await self._tasks.take(count)
            except RemoteError as error:
                await self._outage.wait(f"{type(error).__name__}: {error}")

    def _may_issue(self) -> bool:
        """Whether groups may be played now, as far as the schedule and the places go."""
        if self.plan.max_staleness == 0:
            return self._asked
        return self._shelf.flying < self.plan.concurrency

    def _room(self) -> int:
        """Return how many new groups to issue now."""
        if self._again or not self._may_issue():
            return 0
        shelf, plan = self._shelf, self.plan
        outstanding = len(shelf.playing) + len(shelf.waiting) + len(shelf.training)
        outstanding += self._unpublished
        outstanding += max(0, self._refilled - plan.refills * plan.groups)
        room = self._rule.room(version=self.version, outstanding=outstanding)
        if plan.max_staleness == 0:
            return room
        return min(room, -(-(plan.concurrency - shelf.flying) // plan.group_size))

    def _start(self, ticket: Ticket) -> None:
        """Play a group; one that is played again has the tokens of today's weights."""
        ticket = Ticket(ordinal=ticket.ordinal, task=ticket.task, version=self.version)
        timed = self.plan.deadline_s and self.plan.late != "wait"
        one = GroupInFlight(
            ticket, Cut(self.plan.deadline_s if timed else None), self.plan.group_size
        )
        self._shelf.playing[ticket.ordinal] = one
        self._shelf.flying += one.left
        self._shelf.issued_at[ticket.version] += 1
        one.task = asyncio.create_task(self._run(one))

    # --- play -------------------------------------------------------------------------------------

    async def _run(self, one: GroupInFlight) -> None:
        shelf = self._shelf

        def done(episode: Episode) -> None:
            if one.left:  # a group that is played again counts once
                one.left, shelf.flying = one.left - 1, shelf.flying - 1
            self._wanted.set()
            if self._done is not None:
                self._done(episode)

        try:
            while True:
                group = await self._play(one.ticket, done=done, cut=one.cut, stages=self.stages)
                refuse_without_engine(group)
                if not (why := unreachable(group)):
                    break
                with self.stages.during("the environment's servers, none of which answers"):
                    await self._outage.wait(why)
            self._outage.over()
            del shelf.playing[one.ticket.ordinal]
            shelf.flying -= one.left
            shelf.issued_at[one.ticket.version] -= 1
            self._shelve(group)
        except Exception as error:
            self._fail(error)
        self._look()

    def _shelve(self, group: Group) -> None:
        """Put a finished group where it belongs."""
        short = len(group.episodes) < min(self.plan.min_group, self.plan.group_size)
        if group.late and (self.plan.late == "drop" or short):
            reason = LATE if self.plan.late == "drop" else SMALL_GROUP

            def fate_of(_group: Group, _episode: Episode) -> str:
                return reason

            self._close(group, fate_of)
            self._lost += 1
            if self._lost > (self.plan.refills + 1) * self.plan.groups:
                raise TrainingFailed(
                    f"the last {self._lost} groups were all late, and nothing is trained: raise "
                    "overlap.deadline or overlap.deadline_s, or play fewer rollouts at once "
                    "(rollout.concurrency)"
                )
            return
        self._lost = 0
        if self._passes is not None and not self._passes(group):
            self._shelf.dropped[group.ordinal] = group
            self._refilled += 1
        else:
            self._shelf.waiting[group.ordinal] = group

    def _close(self, group: Group, fate_of: Callable[[Group, Episode], str]) -> None:
        records = records_of(group, self.plan.group_size, self._step, fate_of)
        self.accounts.close(group.ordinal, records)
        self.bias.add(records)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            missing = sorted(self._in_flight())
            self._failure.add_note(f"{len(missing)} groups were in flight: {missing[:10]}")
            raise self._failure

    # --- the next step ----------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether the next step can begin; asks late groups to end, where the plan says so."""
        shelf, plan = self._shelf, self.plan
        enough = len(shelf.waiting) >= plan.groups
        if enough and (late := self._late()):
            for one in late if plan.late != "wait" else ():
                one.cut.ask()
            return False
        if enough:
            return True
        return not shelf.playing and not self._again and not self._room()

    def _late(self) -> list[GroupInFlight]:
        """Return the groups in flight that the next step has to contain."""
        if not self.plan.deadline:
            return []
        count, newest = owed_groups(
            self._shelf.issued_at,
            version=self.version,
            deadline=self.plan.deadline,
            groups=self.plan.groups,
        )
        playing = self._shelf.playing.values()
        return [one for one in playing if count and one.ticket.version <= newest][:count]

    def _in_flight(self) -> list[int]:
        return [*self._shelf.playing, *(ticket.ordinal for ticket in self._again)]


async def _told(event: asyncio.Event) -> None:
    """Wait for an event, and no longer than LOOK_S."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):  # wait_for of Python 3.11 can lose a cancellation
            await event.wait()
