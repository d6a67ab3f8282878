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

from msgspec.structs import replace

from ludus.agent import Episode
from ludus.background import failing_where_given_up
from ludus.envs import Task
from ludus.errors import RemoteError, TrainingFailed

from ..rollout.collect import Cut, Group, cancelled
from ..rollout.issues import Issue, Ticket
from ..rollout.stages import Stages
from ..rollout.tasks import Tasks
from .accounts import LATE, SMALL_GROUP, Accounts, LengthBias, records_of, staleness_numbers
from .plan import IssueRule, Play, StreamPlan, owed_groups
from .state import FinishedGroup, GroupInFlight, Shelf, StreamState
from .watchdog import Outage, met_no_server, refuse_without_engine, unreachable

LOOK_S = 5.0
"""Seconds after which a waiting stream looks for changes, even if no event was set."""


class RolloutStream:
    """Issues, plays and hands out groups of rollouts, and keeps account of each.

    Args:
        play: plays a group.
        tasks: the source of tasks, in the order of issue.
        plan: the numbers.
        accounts: the accounts of the run.
        version: the version of the weights, which is the number of steps done.
        passes: returns whether a finished group passes the recipe's filter; a group that does not
            is replaced by another. None keeps every group.
        stages: records what each rollout is waiting for.
        done: called with each finished episode.
        issue: what the sampling policy gives a task, by the ticket; None gives every group
            `plan.group_size` equal rollouts.

    Two events join the tasks of the stream: `_issue` waits until more groups may be issued, and
    `batch` waits until the groups of a step are there. Whatever changes either sets both.
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
        issue: Callable[[Ticket], Issue] | None = None,
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
        self._issue_of = issue
        self._rule = IssueRule(plan.max_staleness, plan.groups, plan.steps)
        self._outage = Outage(plan.outage_s)
        self._shelf = Shelf()
        self._unfinished: list[Ticket] = []
        """Groups of a checkpoint that are to be played again."""
        self._frontier = 0
        """The ordinal of the next new group."""
        self._batch_waits = False
        self._step = version + 1
        """The number of the step that will be settled next."""
        self._refilled = 0
        """Groups that the filter has dropped since the last step."""
        self._unpublished = 0
        """Groups of a settled step whose weights are not published yet."""
        self._late_count = 0
        """Groups in a row that were late and so left the loss."""
        self._failure: BaseException | None = None
        self._may_issue_more, self._may_be_ready = asyncio.Event(), asyncio.Event()
        self._issuer: asyncio.Task[None] | None = None

    # --- what the main loop calls -----------------------------------------------------------------

    async def batch(self) -> list[Group]:
        """Wait for the groups of a step, and return the groups in the order of issue.

        The groups that the recipe's filter has dropped since the last step are among them, so that
        the step reports their rewards as well.

        Raises:
            TrainingFailed: the environment cannot be reached, or no engine is left.
        """
        self._batch_waits = True
        self._issuer = self._issuer or asyncio.create_task(self._issue())
        self._wake()
        try:
            while not self._ready():
                self._may_be_ready.clear()
                await _wait_for(self._may_be_ready)
                if self._failure is not None:
                    missing = sorted(self._in_flight())
                    self._failure.add_note(f"{len(missing)} groups were in flight: {missing[:10]}")
                    raise self._failure
        finally:
            self._batch_waits = False
        shelf = self._shelf
        for ordinal in sorted(shelf.waiting)[: self.plan.groups]:
            shelf.training[ordinal] = shelf.waiting.pop(ordinal)
        shelf.reported, shelf.dropped = shelf.dropped, {}
        groups = shelf.training | shelf.reported
        return [groups[ordinal] for ordinal in sorted(groups)]

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
        self._wake()

    def state(self) -> StreamState:
        """Return the state for a checkpoint.

        Groups of a step that is being trained count as finished: a run that ends before the step is
        settled trains them again.
        """
        shelf = self._shelf
        tickets = [*self._unfinished, *(running.ticket for running in shelf.playing.values())]
        finished = {
            ordinal: FinishedGroup.of(group, dropped=dropped)
            for groups, dropped in (
                (shelf.waiting, False),
                (shelf.training, False),
                (shelf.reported, True),
                (shelf.dropped, True),
            )
            for ordinal, group in groups.items()
        }
        return StreamState(
            frontier=self._frontier,
            tasks=self._tasks.state(),
            unfinished=sorted(tickets, key=lambda ticket: ticket.ordinal),
            finished=[finished[ordinal] for ordinal in sorted(finished)],
            trained=self.accounts.trained,
            masked=dict(self.accounts.masked),
        )

    def restore(self, state: StreamState) -> None:
        """Continue from the state of a checkpoint. The caller restores the task source itself.

        Raises:
            AccountsBroken: an ordinal is missing in the state.
        """
        self._frontier = state.frontier
        self._unfinished = list(state.unfinished)
        for finished in state.finished:
            groups = self._shelf.dropped if finished.dropped else self._shelf.waiting
            groups[finished.ticket.ordinal] = finished.group()
        self._refilled = len(self._shelf.dropped)
        open_groups = {ticket.ordinal: self._rollouts(ticket) for ticket in self._unfinished}
        for group in [*self._shelf.waiting.values(), *self._shelf.dropped.values()]:
            open_groups[group.ordinal] = len(group.episodes) + len(group.late)
        closed_records = self.accounts.restore(
            issued=state.frontier,
            trained=state.trained,
            masked=state.masked,
            unfinished=open_groups,
        )
        self.bias.add(closed_records)
        self.accounts.check(
            waiting=[*self._shelf.waiting, *self._shelf.dropped], in_flight=self._in_flight()
        )

    async def close(self) -> None:
        """End everything that is in flight."""
        tasks = [running.task for running in self._shelf.playing.values()]
        await cancelled([task for task in [*tasks, self._issuer] if task is not None])

    # --- issue ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Wake `_issue` and `batch`, so that both look at what has changed."""
        self._may_issue_more.set()
        self._may_be_ready.set()

    async def _issue(self) -> None:
        """Issue groups whenever there is room: a checkpoint's groups first, then new groups."""
        try:
            while True:
                self._may_issue_more.clear()
                while self._unfinished and self._may_issue():
                    self._start(self._unfinished.pop(0))
                while count := self._room():
                    for task in await self._take_tasks(count):
                        ticket = Ticket(ordinal=self._frontier, task=task)
                        if self._issue_of is not None:
                            ticket = replace(ticket, issue=self._issue_of(ticket))
                        self.accounts.issue(ticket.ordinal, self._rollouts(ticket))
                        self._frontier += 1
                        self._start(ticket)
                self._may_be_ready.set()
                await _wait_for(self._may_issue_more)
        except Exception as error:
            self._fail(error)

    async def _take_tasks(self, count: int) -> Sequence[Task]:
        """Take tasks; ask again while their server cannot be reached, until `Outage` gives up."""
        outage = Outage(self.plan.outage_s)  # that of the groups lasts until a rollout has ended
        while True:
            try:
                with self.stages.during("tasks from the environment"), failing_where_given_up():
                    return await self._tasks.take(count)
            except RemoteError as error:
                await outage.wait(f"{type(error).__name__}: {error}")

    def _may_issue(self) -> bool:
        """Whether a group may be played now, unless staleness forbids it; that `_room` decides."""
        if self.plan.max_staleness == 0:  # groups are played only while the learner waits for them
            return self._batch_waits
        return self._shelf.flying < self.plan.concurrency

    def _room(self) -> int:
        """Return how many new groups to issue now."""
        if self._unfinished or not self._may_issue():
            return 0
        shelf, plan = self._shelf, self.plan
        outstanding = len(shelf.playing) + len(shelf.waiting) + len(shelf.training)
        # The rule takes the groups of a step as used once `version` counts the step, which is after
        # the step's weights were published.
        outstanding += self._unpublished
        # A dropped group is replaced, as long as fewer than `refills` times a step's groups were:
        # those beyond count as outstanding, so that a step ends though its filter drops everything.
        outstanding += max(0, self._refilled - plan.refills * plan.groups)
        room = self._rule.room(version=self.version, outstanding=outstanding)
        if plan.max_staleness == 0:
            return room
        # The groups that free places have room for, rounded up so that no place stays free.
        return min(room, -(-(plan.concurrency - shelf.flying) // plan.group_size))

    def _start(self, ticket: Ticket) -> None:
        """Begin to play a group."""
        # A group of a checkpoint has an older version; its tokens are sampled by today's weights.
        ticket = replace(ticket, version=self.version)
        has_deadline = self.plan.deadline_s and self.plan.late != "wait"
        cut = Cut(self.plan.deadline_s if has_deadline else None)
        running = GroupInFlight(ticket, cut, self._rollouts(ticket))
        self._shelf.playing[ticket.ordinal] = running
        self._shelf.flying += running.left
        self._shelf.issued_at[ticket.version] += 1
        running.task = asyncio.create_task(self._run(running))

    # --- play -------------------------------------------------------------------------------------

    async def _run(self, running: GroupInFlight) -> None:
        """Play a group, again after an outage of the environment's servers, and shelve it."""
        shelf = self._shelf

        def done(episode: Episode) -> None:
            # After an outage the rollouts finish a second time, and free no second place.
            if running.left:
                running.left, shelf.flying = running.left - 1, shelf.flying - 1
            if not met_no_server(episode):
                self._outage.over()
            self._may_issue_more.set()
            if self._done is not None:
                self._done(episode)

        try:
            while True:
                with failing_where_given_up():
                    group = await self._play(
                        running.ticket, done=done, cut=running.cut, stages=self.stages
                    )
                refuse_without_engine(group)
                if not (reason := unreachable(group)):
                    break
                with self.stages.during("the environment's servers, none of which answers"):
                    await self._outage.wait(reason)
            self.accounts.grow(group.ordinal, len(group.episodes) + len(group.late))
            del shelf.playing[running.ticket.ordinal]
            shelf.flying -= running.left
            shelf.issued_at[running.ticket.version] -= 1
            self._shelve(group)
        except Exception as error:
            self._fail(error)
        self._wake()

    def _shelve(self, group: Group) -> None:
        """Lay a finished group aside for the next step, or close the accounts of a late group."""
        is_too_small = len(group.episodes) < min(self.plan.min_group, self.plan.group_size)
        if group.late and (self.plan.late == "drop" or is_too_small):
            reason = LATE if self.plan.late == "drop" else SMALL_GROUP

            def fate_of(_group: Group, _episode: Episode) -> str:
                return reason

            self._close(group, fate_of)
            self._late_count += 1
            if self._late_count > (self.plan.refills + 1) * self.plan.groups:
                raise TrainingFailed(
                    f"the last {self._late_count} groups were all late, and nothing is trained: "
                    "raise overlap.deadline or overlap.deadline_s, or play fewer rollouts at once "
                    "(rollout.concurrency)"
                )
            return
        self._late_count = 0
        if self._passes is not None and not self._passes(group):
            self._shelf.dropped[group.ordinal] = group
            self._refilled += 1
        else:
            self._shelf.waiting[group.ordinal] = group

    def _close(self, group: Group, fate_of: Callable[[Group, Episode], str]) -> None:
        """Enter in the accounts what became of each rollout of a group."""
        records = records_of(group, self.plan.group_size, self._step, fate_of)
        self.accounts.close(group.ordinal, records)
        self.bias.add(records)

    def _rollouts(self, ticket: Ticket) -> int:
        """Return the rollouts of a ticket's first round."""
        return self.plan.group_size if ticket.issue is None else ticket.issue.rollouts

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._may_be_ready.set()

    # --- the next step ----------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether the next step can begin; asks late groups to end, where the plan says so."""
        shelf, plan = self._shelf, self.plan
        if len(shelf.waiting) >= plan.groups:
            late = self._late_groups()
            for running in late if plan.late != "wait" else ():
                running.cut.ask()
            return not late
        # If nothing is in flight and nothing can be issued, the step begins with fewer groups,
        # since waiting would bring no more.
        return not shelf.playing and not self._unfinished and not self._room()

    def _late_groups(self) -> list[GroupInFlight]:
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
        return [running for running in playing if running.ticket.version <= newest][:count]

    def _in_flight(self) -> list[int]:
        return [*self._shelf.playing, *(ticket.ordinal for ticket in self._unfinished)]


async def _wait_for(event: asyncio.Event) -> None:
    """Wait for an event, and no longer than LOOK_S."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):  # wait_for of Python 3.11 can lose a cancellation
            await event.wait()
