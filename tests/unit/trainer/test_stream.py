"""The stream of rollouts under a virtual clock: admission, deadlines, accounts, resume, faults.

The rollouts are scripted: a rollout of ordinal n takes `seconds(n)` virtual seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ServerUnreachable, TrainingFailed
from ludus.metrics import LineFile
from ludus.trainer.rollout.collect import Cut, Group
from ludus.trainer.rollout.issues import Ticket
from ludus.trainer.rollout.stages import Stages
from ludus.trainer.stream.accounts import (
    FILE,
    Accounts,
    AccountsBroken,
    LengthBias,
    RolloutRecord,
    count_rollouts,
    read_rollouts,
)
from ludus.trainer.stream.plan import IssueRule, StreamPlan, owed_groups
from ludus.trainer.stream.state import StreamState
from ludus.trainer.stream.stream import RolloutStream
from ludus.trainer.stream.virtual_time import NothingLeft, VirtualTimeLoop
from ludus.verdict import Verdict

Seconds = Callable[[int], float]


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


class Numbers:
    """Tasks 0, 1, 2 ..., one number for each."""

    def __init__(self) -> None:
        self.used, self.retired = 0, list[str]()

    async def take(self, count: int) -> list[Task]:
        await asyncio.sleep(0)
        self.used += count
        return [Task(id=f"t{self.used - count + n}", split="train") for n in range(count)]

    def retire(self, tasks: Any) -> None:
        self.retired += tasks

    def state(self) -> dict[str, Any]:
        return {"used": self.used}

    def restore(self, state: Any) -> None:
        self.used = state["used"]


def episode(index: int, ordinal: int, *, version: int = 0, tokens: int = 10) -> Episode:
    turn = Turn(out_ids=[1] * tokens, logprobs=[-1.0] * tokens, versions=[version] * tokens)
    own = Trajectory(verdict=Verdict.of(1.0), segments=[Segment(prompt_ids=[1], turns=[turn])])
    return Episode(task="t", trajectories=[own], index=index, ordinal=ordinal, wall_s=1.0)


class Script:
    """Plays groups in virtual time."""

    def __init__(self, seconds: Seconds, group_size: int = 1) -> None:
        self.seconds, self.size = seconds, group_size
        self.played: list[int] = []
        self.version = 0

    async def __call__(
        self, ticket: Ticket, *, done: Callable[[Episode], None], cut: Cut, stages: Stages
    ) -> Group:
        self.played.append(ticket.ordinal)

        async def rollout(index: int) -> Episode:
            ordinal, version = ticket.ordinal * self.size + index, self.version
            seconds = self.seconds(ordinal)
            await asyncio.sleep(seconds)
            made = episode(index, ordinal, version=version, tokens=max(1, int(seconds)))
            self.end(made)
            done(made)
            return made

        playing = [asyncio.create_task(rollout(index)) for index in range(self.size)]
        late = await cut.wait(playing)
        finished = [one.result() for n, one in enumerate(playing) if n not in late]
        return Group(ticket.task, finished, 0, ticket.ordinal, ticket.version, late)

    def end(self, one: Episode) -> None:
        """Change an episode that has just ended."""


def stream_of(
    script: Any, *, tasks: Any = None, folder: Path | None = None, **plan: Any
) -> RolloutStream:
    settings: dict[str, Any] = {
        "groups": 2,
        "group_size": getattr(script, "size", 1),
        "steps": 8,
        **plan,
    }
    passes = settings.pop("passes", None)
    version = settings.pop("version", 0)
    lines = LineFile(folder / FILE) if folder else None
    return RolloutStream(
        script,
        tasks or Numbers(),
        StreamPlan(**settings),
        Accounts(lines, settings["group_size"]),
        version=version,
        passes=passes,
        stages=Stages(asyncio.get_running_loop().time),
    )


def flat(batches: list[list[int]]) -> list[int]:
    return [ordinal for batch in batches for ordinal in batch]


def all_trained(group: Group, one: Episode) -> str:
    return ""


async def learn(
    stream: RolloutStream, script: Any, steps: int, *, seconds: float = 1.0
) -> list[list[int]]:
    """Make steps that take `seconds` each; returns the ordinals of each batch."""
    batches: list[list[int]] = []
    for _ in range(steps):
        groups = await stream.batch()
        batches.append([group.ordinal for group in groups])
        await asyncio.sleep(seconds)
        numbers = stream.settle(all_trained)
        terms = [numbers[f"rollouts/{name}"] for name in ("trained", "masked", "waiting")]
        assert numbers["rollouts/issued"] == sum(terms) + numbers["rollouts/in_flight"]
        await asyncio.sleep(seconds / 10)  # the weights are published
        script.version += 1
        stream.advance()
    return batches


# --- the rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eta", "version", "issued", "masked", "room"),
    [(0, 0, 0, 0, 4), (0, 0, 4, 0, 0), (0, 1, 4, 0, 4), (2, 3, 20, 0, 4), (2, 3, 20, 3, 7)],
)
def test_the_rule_is_areals(eta: int, version: int, issued: int, masked: int, room: int) -> None:
    """Capacity (eta + version + 1) B - issued and not masked, by hand, with B = 4; each of
    the steps done has taken B."""
    outstanding = issued - masked - version * 4
    assert (eta + version + 1) * 4 - (issued - masked) == room
    rule = IssueRule(max_staleness=eta, groups=4, steps=100)
    assert rule.room(version=version, outstanding=outstanding) == room


def test_nothing_is_issued_that_no_step_would_train() -> None:
    rule = IssueRule(max_staleness=3, groups=2, steps=10)
    assert rule.room(version=9, outstanding=0) == 2
    assert rule.room(version=10, outstanding=0) == 0


@pytest.mark.parametrize(
    ("running", "version", "expected"),
    [
        ({0: 3}, 0, (1, 0)),  # two more steps of one group each until version 2
        ({0: 2}, 0, (0, -1)),
        ({0: 2}, 2, (2, 0)),
        ({0: 1, 1: 2}, 1, (1, 1)),  # three groups for the steps from 1, 2 and 3: one is due now
        ({5: 9}, 2, (4, 5)),
    ],
)
def test_the_groups_that_a_step_cannot_do_without(
    running: dict[int, int], version: int, expected: tuple[int, int]
) -> None:
    assert owed_groups(running, version=version, deadline=2, groups=1) == expected


# --- the accounting law ---------------------------------------------------------------------------


def record(ordinal: int, size: int = 1, **changes: Any) -> RolloutRecord:
    given: dict[str, Any] = {"fate": "trained", "step": 1, "task": "t", "tokens": 5, **changes}
    return RolloutRecord(ordinal=ordinal, group=ordinal // size, **given)


def test_a_lost_ordinal_breaks_the_law() -> None:
    books = Accounts(None, 2)
    books.issue(0)
    books.issue(1)
    books.close(0, [record(0, 2), record(1, 2, fate="masked", reason="late")])
    found = books.check(waiting=[1], in_flight=[])  # the control
    assert found["rollouts/issued"] == 4
    assert found["rollouts/masked/late"] == 1
    with pytest.raises(AccountsBroken, match="groups 1 are lost"):
        books.check(waiting=[], in_flight=[])
    with pytest.raises(AccountsBroken, match="groups 1 are in two places"):
        books.check(waiting=[1], in_flight=[1])
    with pytest.raises(AccountsBroken, match="groups 0 are waiting or in flight after their end"):
        books.check(waiting=[0, 1], in_flight=[])


def test_a_rollout_that_is_closed_twice_or_not_at_all_is_refused() -> None:
    books = Accounts(None, 2)
    books.issue(0)
    with pytest.raises(AccountsBroken, match=r"its rollouts are \[0, 1\]"):
        books.close(0, [record(0, 2)])
    books.close(0, [record(0, 2), record(1, 2)])
    with pytest.raises(AccountsBroken, match="final already"):
        books.close(0, [record(0, 2), record(1, 2)])
    with pytest.raises(AccountsBroken, match="the next ordinal is 1"):
        books.issue(5)


def test_a_stream_that_loses_a_group_stops_the_run() -> None:
    async def main() -> None:
        script = Script(lambda n: 1.0)
        stream = stream_of(script, max_staleness=1)
        await stream.batch()
        shelf = stream._shelf  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(5)
        lost = next(iter(shelf.waiting))
        del shelf.waiting[lost]  # the planted loss
        with pytest.raises(AccountsBroken, match=f"groups {lost} are lost"):
            stream.settle(all_trained)
        await stream.close()

    virtually(main())


def test_the_law_is_recomputed_from_the_files(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / FILE)
    for one in (record(0), record(2), record(2), record(3, fate="masked", reason="filter")):
        lines.append(msgspec.json.encode(one))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"ordinal": 4, "grou')  # a crash
    found = count_rollouts(tmp_path)
    assert (found.issued, found.trained, found.masked) == (4, 3, {"filter": 1})
    assert (found.missing, found.doubled, found.holds) == ((1,), (2,), False)


# --- synchronous and ahead ------------------------------------------------------------------------


def test_without_staleness_nothing_is_played_while_the_learner_works(tmp_path: Path) -> None:
    async def main() -> tuple[list[list[int]], float]:
        script = Script(lambda n: 10.0)
        stream = stream_of(script, folder=tmp_path, steps=3)
        batches = await learn(stream, script, 3, seconds=4.0)
        await stream.close()
        return batches, asyncio.get_running_loop().time()

    batches, seconds = virtually(main())
    assert batches == [[0, 1], [2, 3], [4, 5]]
    assert seconds == pytest.approx(3 * (10 + 4 + 0.4))
    records = read_rollouts(tmp_path / FILE)
    assert [one.step for one in records] == [1, 1, 2, 2, 3, 3]
    assert all(one.oldest == one.newest == one.step - 1 for one in records)
    assert count_rollouts(tmp_path).holds


def test_ahead_of_the_learner_both_work_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> tuple[list[list[int]], float]:
        script = Script(lambda n: 10.0)
        stream = stream_of(script, folder=tmp_path, steps=10, max_staleness=1)
        batches = await learn(stream, script, 10, seconds=10.0)
        await stream.close()
        return batches, asyncio.get_running_loop().time()

    batches, seconds = virtually(main())
    assert sorted(flat(batches)) == list(range(20))
    # four groups at once, two batches in ten seconds: the learner never waits after the first
    assert seconds == pytest.approx(10 + 10 * (10 + 1))
    ages = [one.step - 1 - (one.oldest or 0) for one in read_rollouts(tmp_path / FILE)]
    assert max(ages) == 1


def test_no_more_is_outstanding_than_the_rule_allows() -> None:
    async def main() -> None:
        script = Script(lambda n: 3.0 + n % 5)
        stream = stream_of(script, steps=20, max_staleness=3)
        for step in range(20):
            await stream.batch()
            state = stream.state()
            assert len(state.unfinished) + len(state.finished) <= 4 * 2
            assert state.frontier <= (3 + step + 1) * 2
            await asyncio.sleep(1.0)
            stream.settle(all_trained)
            stream.advance()
        assert script.played == list(range(40))
        await stream.close()

    virtually(main())


def test_no_more_rollouts_are_played_at_once_than_places() -> None:
    async def main() -> list[int]:
        clock, starts = asyncio.get_running_loop().time, list[float]()

        def seconds(ordinal: int) -> float:
            starts.append(clock())
            return 5.0

        script = Script(seconds, group_size=4)
        stream = stream_of(script, groups=4, steps=5, max_staleness=4, concurrency=10)
        await learn(stream, script, 5)
        await stream.close()
        return [sum(one - 5.0 < at <= one for at in starts) for one in starts]

    assert max(virtually(main())) == 12  # the group that fills the last two places brings two more


def straggler(n: int) -> float:
    return 100.0 if n == 1 else 2.0


def test_a_straggler_is_trained_when_it_comes() -> None:
    """Without a deadline the bound is on the average: one rollout may be as old as it likes."""

    async def main() -> tuple[list[list[int]], list[int]]:
        script = Script(straggler)
        stream = stream_of(script, steps=30, max_staleness=2)
        batches = await learn(stream, script, 30, seconds=2.0)
        await stream.close()
        return batches, script.played

    batches, played = virtually(main())
    assert sorted(flat(batches)) == sorted(played) == list(range(60))
    assert next(step for step, batch in enumerate(batches) if 1 in batch) > 20


@pytest.mark.parametrize("late", ["wait", "mask", "drop"])
def test_no_rollout_is_trained_after_its_deadline(tmp_path: Path, late: str) -> None:
    async def main() -> float:
        script = Script(lambda n: 100.0 if n in (1, 7) else 2.0 + n % 3, group_size=2)
        stream = stream_of(
            script, folder=tmp_path, steps=20, max_staleness=2, deadline=2, late=late
        )
        await learn(stream, script, 20, seconds=2.0)
        await stream.close()
        return asyncio.get_running_loop().time()

    seconds = virtually(main())
    records = read_rollouts(tmp_path / FILE)
    trained = [one for one in records if one.fate == "trained"]
    assert max(one.step - 1 - one.issued for one in trained) == 2
    masked = {one.ordinal: one.reason for one in records if one.fate == "masked"}
    if late == "wait":
        assert masked == {}
        assert seconds > 100
    elif late == "mask":
        assert masked == {1: "late", 7: "late"}  # 0 and 6 go on alone
        assert seconds < 100
    else:
        assert masked == {0: "late", 1: "late", 6: "late", 7: "late"}
        assert seconds < 100
    assert count_rollouts(tmp_path).holds
    assert len(trained) == 20 * 2 * 2 - (2 if late == "mask" else 0)


def test_a_group_that_is_cut_below_its_smallest_size_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        script = Script(lambda n: 100.0 if n in (0, 1) else 1.0, group_size=3)
        stream = stream_of(
            script, folder=tmp_path, steps=2, deadline_s=10.0, late="mask", min_group=2
        )
        await learn(stream, script, 2)
        await stream.close()

    virtually(main())
    records = {one.ordinal: one for one in read_rollouts(tmp_path / FILE)}
    assert [records[n].reason for n in range(3)] == ["late", "late", "small_group"]
    assert {records[n].step for n in range(3)} == {1}  # the row of this step counts them
    assert records[0].tokens is None
    assert records[0].seconds == pytest.approx(10)
    assert sum(one.fate == "trained" for one in records.values()) == 2 * 2 * 3


def test_without_a_straggler_nothing_is_cut(tmp_path: Path) -> None:
    """The control: groups that the next steps can take in time are left alone."""

    async def main() -> None:
        script = Script(lambda n: 2.0 + n % 3, group_size=2)
        stream = stream_of(
            script, folder=tmp_path, steps=10, max_staleness=2, deadline=2, late="drop"
        )
        await learn(stream, script, 10, seconds=2.0)
        await stream.close()

    virtually(main())
    assert count_rollouts(tmp_path).trained == 40
    assert count_rollouts(tmp_path).masked == {}


def test_a_deadline_that_nobody_can_keep_ends_the_run() -> None:
    async def main() -> None:
        script = Script(lambda n: 100.0, group_size=2)
        stream = stream_of(script, deadline_s=1.0, late="drop")
        with pytest.raises(TrainingFailed, match="all late"):
            await stream.batch()
        await stream.close()

    virtually(main())


# --- filters --------------------------------------------------------------------------------------


def odd_fails(group: Group) -> bool:
    return group.ordinal % 2 == 0


def third_fails(group: Group) -> bool:
    return group.ordinal % 3 > 0


def never_passes(group: Group) -> bool:
    return False


def test_dropped_groups_are_replaced_and_reported_once(tmp_path: Path) -> None:
    async def main() -> tuple[list[list[int]], list[int]]:
        script = Script(lambda n: 1.0 + n % 3)
        stream = stream_of(script, folder=tmp_path, steps=3, passes=odd_fails)
        batches: list[list[int]] = []
        for _ in range(3):
            groups = await stream.batch()
            batches.append([group.ordinal for group in groups])
            stream.settle(lambda group, one: "" if odd_fails(group) else "filter")
            stream.advance()
        await stream.close()
        return batches, script.played

    batches, played = virtually(main())
    # the fewest groups in the order of issue of which two pass: 0 and 2 of the first three
    assert batches == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]
    assert played == list(range(11))
    found = count_rollouts(tmp_path)
    assert (found.trained, found.masked, found.holds) == (6, {"filter": 5}, True)


def test_a_filter_that_drops_everything_stops_asking() -> None:
    async def main() -> tuple[int, int]:
        script = Script(lambda n: 1.0)
        stream = stream_of(script, steps=3, passes=never_passes, refills=4)
        groups = await stream.batch()
        await stream.close()
        return len(groups), len(script.played)

    assert virtually(main()) == (10, 10)  # two, and four times two more


def test_groups_left_over_from_refills_are_used_in_the_next_step(tmp_path: Path) -> None:
    async def main() -> list[list[int]]:
        script = Script(lambda n: 1.0)
        stream = stream_of(script, folder=tmp_path, steps=6, max_staleness=1, passes=third_fails)
        batches: list[list[int]] = []
        for _ in range(6):
            groups = await stream.batch()
            batches.append([group.ordinal for group in groups if group.ordinal % 3])
            await asyncio.sleep(1)
            stream.settle(lambda group, one: "" if group.ordinal % 3 else "filter")
            stream.advance()
        await stream.close()
        return batches

    batches = virtually(main())
    assert flat(batches) == [n for n in range(18) if n % 3]
    assert all(len(batch) == 2 for batch in batches)
    assert count_rollouts(tmp_path).masked == {"filter": 6}


# --- resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut_s", [0.5, 7.0, 23.5, 31.0, 48.0])
@pytest.mark.parametrize("eta", [0, 3])
def test_a_run_that_ends_anywhere_and_goes_on_trains_every_ordinal_once(
    tmp_path: Path, eta: int, cut_s: float
) -> None:
    """The state is kept after every step, as by a checkpoint; then all is lost but the state."""

    def seconds(n: int) -> float:
        return 3.0 + 7 * n % 11

    kept: list[tuple[int, dict[str, Any]]] = []

    async def first() -> None:
        script = Script(seconds, group_size=2)
        stream = stream_of(script, folder=tmp_path, steps=12, max_staleness=eta)
        kept.append((0, stream.state().to_plain()))
        for step in range(12):
            await stream.batch()
            await asyncio.sleep(2.0)
            stream.settle(all_trained)
            stream.advance()
            kept.append((step + 1, stream.state().to_plain()))

    async def cut_off() -> None:
        running = asyncio.create_task(first())
        await asyncio.sleep(cut_s)
        running.cancel()

    virtually(cut_off())
    step, plain = kept[-1]

    async def second() -> list[int]:
        state = StreamState.of_plain(plain)
        tasks = Numbers()
        tasks.restore(state.tasks)
        script = Script(seconds, group_size=2)
        stream = stream_of(
            script, tasks=tasks, folder=tmp_path, steps=12, max_staleness=eta, version=step
        )
        stream.restore(state)
        await learn(stream, script, 12 - step)
        await stream.close()
        return script.played

    played = virtually(second())
    records = read_rollouts(tmp_path / FILE)
    assert sorted(one.ordinal for one in records if one.fate == "trained") == list(range(48))
    assert count_rollouts(tmp_path).holds
    assert {one.group: one.task for one in records} == {n: f"t{n}" for n in range(24)}
    # what had finished is not played again
    finished = {one["ticket"]["ordinal"] for one in plain["finished"]}
    assert not finished & set(played)


def test_a_state_that_lacks_an_ordinal_is_refused() -> None:
    async def main() -> None:
        script = Script(lambda n: 5.0)
        stream = stream_of(script, max_staleness=1)
        await stream.batch()
        state = stream.state()
        await stream.close()
        stream_of(script, max_staleness=1).restore(state)  # the control
        lacking = msgspec.structs.replace(state, finished=state.finished[1:])
        with pytest.raises(AccountsBroken, match="do not add up"):
            stream_of(script, max_staleness=1).restore(lacking)

    virtually(main())


# --- faults ---------------------------------------------------------------------------------------


class Down(Script):
    """Servers that are away between two times."""

    def __init__(self, *away: tuple[float, float], seconds: Seconds = lambda n: 1.0) -> None:
        super().__init__(seconds)
        self.away = away

    def end(self, one: Episode) -> None:
        now = asyncio.get_running_loop().time()
        if any(start <= now < end for start, end in self.away):
            own = one.trajectories[0]
            own.stop = Stop.ENV_ERROR
            own.verdict = Verdict.unavailable(f"{ServerUnreachable.__name__}: refused")
            own.exclude_from_loss = own.exclude_from_baseline = True


class Blinking(Numbers):
    """Tasks from a server that is away for a moment each time before it answers."""

    away = False

    async def take(self, count: int) -> list[Task]:
        self.away = not self.away
        if self.away:
            raise ServerUnreachable("refused")
        return await super().take(count)


def test_the_outage_of_rollouts_does_not_begin_where_tasks_were_waited_for() -> None:
    async def main() -> list[list[int]]:
        script = Down((100.0, 101.0), seconds=lambda n: 100.0)
        stream = stream_of(script, tasks=Blinking(), outage_s=60.0)
        batches = await learn(stream, script, 2)
        await stream.close()
        return batches

    assert virtually(main()) == [[0, 1], [2, 3]]


def test_a_rollout_that_met_a_server_ends_an_outage_while_its_group_plays_on() -> None:
    async def main() -> list[list[int]]:
        # The group of rollouts 2 and 3 meets no server at 10.5 s, that of 4 and 5 none at 90.5 s.
        # In between rollout 0 ends, and rollout 1 goes on.
        first = {0: 50.0, 1: 300.0, 2: 10.5, 3: 10.5, 4: 90.5, 5: 90.5}
        script = Down((10.0, 11.0), (90.0, 91.0), seconds=lambda n: first.pop(n, 200.0))
        script.size = 2
        stream = stream_of(script, groups=3, outage_s=60.0)
        batches = await learn(stream, script, 1)
        await stream.close()
        return batches

    assert virtually(main()) == [[0, 1, 2]]


def test_servers_that_come_back_cost_time_and_no_rollout(tmp_path: Path) -> None:
    async def main() -> tuple[list[list[int]], float]:
        script = Down((3.0, 40.0))
        stream = stream_of(script, folder=tmp_path, steps=5, outage_s=60.0)
        batches = await learn(stream, script, 5)
        await stream.close()
        return batches, asyncio.get_running_loop().time()

    batches, seconds = virtually(main())
    assert flat(batches) == list(range(10))
    assert 40 < seconds < 60
    assert count_rollouts(tmp_path).trained == 10


def test_rollouts_and_tasks_that_are_given_up_end_the_run_and_are_no_silent_hang() -> None:
    async def given_up(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError  # of a task that was waited for

    class NoTasks(Numbers):
        take = given_up

    async def main() -> None:
        for stream in (stream_of(given_up), stream_of(Script(lambda n: 1.0), tasks=NoTasks())):
            async with asyncio.timeout(60):
                with pytest.raises(RuntimeError, match="waited for was cancelled"):
                    await stream.batch()
            await stream.close()

    virtually(main())


def test_when_all_servers_stay_away_the_run_ends_and_says_what_is_missing() -> None:
    async def main() -> float:
        stream = stream_of(Down((0.0, 1e9)), outage_s=60.0, groups=3)
        with pytest.raises(TrainingFailed, match=r"could be reached for 60 s .*refused") as raised:
            await stream.batch()
        assert raised.value.__notes__ == ["3 groups were in flight: [0, 1, 2]"]
        assert len(stream.state().unfinished) == 3
        await stream.close()
        return asyncio.get_running_loop().time()

    assert 60 <= virtually(main()) < 75


def test_a_stream_that_waits_for_nothing_is_no_silent_hang() -> None:
    with pytest.raises(NothingLeft):
        virtually(asyncio.Event().wait())


# --- bias -----------------------------------------------------------------------------------------


def test_the_bias_of_lengths_by_hand() -> None:
    bias = LengthBias()
    assert bias.ratio is None
    bias.add([record(0, tokens=10, seconds=1.0), record(1, tokens=30, seconds=3.0)])
    assert bias.ratio == 1.0
    bias.add([record(3, tokens=1000, seconds=100.0)])  # 2 is not final: 3 does not count yet
    assert bias.ratio == 1.0
    # cut off after 8 s, in which the others sampled 10 tokens a second: at least 80 tokens
    bias.add([record(2, fate="masked", reason="late", tokens=None, seconds=8.0)])
    trained, issued = (10 + 30 + 1000) / 3, (10 + 30 + 1000 + 80) / 4
    assert bias.ratio == pytest.approx(trained / issued)
