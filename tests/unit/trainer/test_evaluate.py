"""Held-out tasks: different problems, and intervals that are known or said not to be."""

from __future__ import annotations

import asyncio
import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from ludus.agent import Episode, Trajectory
from ludus.agent.evaluation import first_tasks
from ludus.envs import Task, make_async
from ludus.errors import ConfigError
from ludus.estimates import mean_over_tasks
from ludus.trainer.demos.calculator import ENV, TASKS, served
from ludus.trainer.rollout.evaluate import HeldOutScores, held_out
from ludus.trainer.rollout.source import EnvSource, open_source
from ludus.trainer.run.journal import ProgressWatcher, numbers_line, sft_progress
from ludus.verdict import Verdict
from ludus.wire.address import parse_served


async def opening(env: Any, task: Any) -> str:
    observation, _ = await env.reset(seed=0, options={"task": task.id})
    return str(observation)


@pytest.mark.parametrize(
    "env",
    [
        *[f"{ENV}?{TASKS}", "ludus/tally-v0", "ludus/calls-v0"],
        *(pytest.param(f"ludus/{name}-v0", marks=pytest.mark.slow) for name in ("maths", "sql")),
    ],
)
async def test_held_out_tasks_are_different_problems(env: str) -> None:
    source = open_source(env)
    tasks, note = await held_out(source, "test", 256)
    assert (len(tasks), note) == (256, "")
    assert len({task.id for task in tasks}) == 256
    session = await source.open()
    shown = {await opening(session, task) for task in tasks}
    await source.close()
    # calls: the same words with other functions on offer are another problem
    assert len(shown) >= (256 if "calls" not in env else 250)


async def test_the_first_tasks_as_they_come_repeat_problems() -> None:
    """The positive control: why they are looked through."""
    source = open_source(f"{ENV}?{TASKS}")
    tasks = await source.tasks("test", range(256))
    session = await source.open()
    shown = {await opening(session, task) for task in tasks}
    await source.close()
    assert len(shown) < 150


class Listed:
    """A finite split whose tasks are different problems, but for those of `same`."""

    id = "listed-v0"

    def __init__(self, size: int, same: frozenset[int] = frozenset()) -> None:
        self.length, self.same = size, same

    async def size(self, split: str) -> int:
        return self.length

    async def tasks(self, split: str, indices: list[int]) -> list[Task]:
        return [
            Task(id=str(index), split=split, problem="same" if index in self.same else str(index))
            for index in indices
        ]


@given(st.integers(1, 200), st.integers(1, 200), st.sets(st.integers(0, 199)))
@settings(max_examples=60, deadline=None)
def test_held_out_tasks_are_spread_over_the_whole_split(
    size: int, count: int, same: set[int]
) -> None:
    def found(source: Listed) -> list[int]:
        tasks, _ = asyncio.run(held_out(cast(EnvSource, source), "test", count))
        return [int(task.id) for task in tasks]

    spread = found(Listed(size))
    assert len(spread) == min(size, count)
    steps = {after - before for before, after in itertools.pairwise([*spread, size])}
    assert spread[0] == 0
    assert max(steps) - min(steps) <= 1
    problems = size - max(0, len({index for index in same if index < size}) - 1)
    replaced = found(Listed(size, frozenset(same)))
    assert len(set(replaced)) == len(replaced) == min(count, problems)


async def test_a_set_without_enough_problems_gives_what_it_has_and_says_so() -> None:
    few = "ludus/arithmetic-v0?max_operations=1&max_number=5&operators=%2B"
    source = open_source(few)
    tasks, note = await held_out(source, "test", 40)
    await source.close()
    assert 0 < len(tasks) < 25
    assert note == (
        f"held-out tasks: 640 tasks of split 'test' of ludus/arithmetic-v0 are {len(tasks)} "
        "different problems, and 40 were asked for: each is played once"
    )
    session = make_async("ludus/arithmetic-v0", max_operations=1, max_number=5, operators="+")
    assert len(await first_tasks(session, "test", 40)) == len(tasks)
    await session.close()


def evaluation(*rewards: float | None) -> HeldOutScores:
    verdicts = [Verdict.unavailable("lost") if r is None else Verdict.of(r) for r in rewards]
    return HeldOutScores(
        [Episode(task="a", trajectories=[Trajectory(verdict=v)]) for v in verdicts]
    )


@pytest.mark.parametrize(
    ("found", "told", "numbers"),
    [
        (
            evaluation(1.0),
            "1.000 error unknown from one episode (1 episode)",
            {"eval/mean": 1.0, "eval/episodes": 1.0, "eval/failed": 0.0},
        ),
        (
            evaluation(1.0, None),
            "1.000 error unknown from one episode (1 episode, 1 failed)",
            {"eval/mean": 1.0, "eval/episodes": 1.0, "eval/failed": 1.0},
        ),
        (
            evaluation(None),
            "unknown (0 episodes, 1 failed)",
            {"eval/episodes": 0.0, "eval/failed": 1.0},
        ),
        # the sample variance of 0 and 1 is 1/2; of a mean of two, 1/4
        (
            evaluation(0.0, 1.0),
            "0.500 ± 0.500 (2 episodes)",
            {
                "eval/mean": 0.5,
                "eval/standard_error": 0.5,
                "eval/episodes": 2.0,
                "eval/failed": 0.0,
            },
        ),
    ],
)
def test_what_is_not_known_is_said_so(
    found: HeldOutScores, told: str, numbers: dict[str, float]
) -> None:
    assert found.told == told
    assert found.numbers == numbers
    console = Console(file=io.StringIO(), width=200)
    ProgressWatcher(1, console).on_evaluation(0, found)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert told in shown
    assert "nan" not in shown


def test_the_error_of_one_task_is_unknown_however_often_it_was_played() -> None:
    told = replace(evaluation(1.0, 0.0), samples=2).told
    assert told.startswith("0.500 error unknown from one task (2 episodes)")


def test_a_step_without_a_reward_shows_none() -> None:
    assert numbers_line({"tokens_per_s": 10.0}) == "no reward  10 tok/s"


def test_the_interval_of_one_task_is_unknown_in_a_table() -> None:
    assert mean_over_tasks([0.5]).cells() == ("0.500", "unknown from one task")


async def test_a_run_is_known_by_what_is_really_served(tmp_path: Path) -> None:
    async with served(f"{ENV}?{TASKS}", tmp_path / "server.log") as url:
        plain = open_source(ENV, url=url)
        named = await plain.named()
        assert parse_served(named) == parse_served(f"{ENV}?{TASKS}")
        again = open_source(named, url=url)  # as a run that goes on by its config.toml does
        assert await again.named() == named
        other = open_source(f"{ENV}?max_operations=3", url=url)
        with pytest.raises(ConfigError, match=r"is served as '.*max_operations=2.*give the arg"):
            await other.named()
        for source in (plain, again, other):
            await source.close()


def test_a_short_supervised_run_shows_its_steps_where_no_terminal_is() -> None:
    for steps, shown in ((1, [1]), (3, [1, 2, 3]), (20, [4, 8, 12, 16, 20]), (7, [*range(1, 8)])):
        said = io.StringIO()
        with sft_progress(Console(file=said, force_terminal=False)) as progress:
            for step in range(1, steps + 1):
                progress(step, steps, {"loss": 0.5, "tokens": 10, "time/step_s": 1.0})
        lines = [line for line in said.getvalue().splitlines() if "loss" in line]
        assert [int(line.split()[1].partition("/")[0]) for line in lines] == shown
