"""Runs at the edges: one row of data, groups of one, a window beyond the model, a clock that jumps,
two runs in one folder, a full disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ludus
from ludus.agent.episodes import read_episodes
from ludus.errors import ConfigError, SaveFailed, TrainingFailed
from ludus.findings import read_findings
from ludus.llm.client import retry_after_s
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.checkpoint import load_state
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.setup import assemble
from ludus.trainer.train import run_training
from ludus.wire.client import HttpResponse

ROOT = Path(ludus.__file__).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "steps": 2,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=3, group_size=2, max_tokens=6, max_turns=1),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=2),
        "run": RunConfig(
            folder=str(folder / "run"), tensorboard=False, save_every=1, episodes_every=1, keep=9
        ),
    }
    return TrainConfig(**{**settings, **changes})


def sampled(path: Path) -> dict[tuple[str, int], list[int]]:
    return {
        (one.group, one.index): one.trajectories[0].segments[0].ids() for one in read_episodes(path)
    }


async def test_a_data_set_of_one_row_trains_and_says_that_tasks_repeat(
    model: Path, tmp_path: Path
) -> None:
    for name, row in {
        "train": {"question": "What is 2 + 3?", "answer": "5"},
        "test": {"question": "What is 4 times 5?", "answer": "20"},
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    env = (
        f"ludus/maths-v0?source={tmp_path}/train.jsonl&test_source={tmp_path}/test.jsonl"
        "&question=question&answer=answer&validation=0&test=0"
    )
    result = await run_training(config(model, tmp_path, env=env))
    assert result.step == 2
    told = {one.name: one.sentence for one in read_findings(result.folder)}
    assert "repeated_tasks" in told
    assert "1 tasks, and 2 were asked for" in told["evaluation"]
    # three groups of the one task are other rollouts each, in both steps
    found = [
        ids
        for step in (1, 2)
        for ids in sampled(result.folder / "episodes" / f"step-{step:06d}.jsonl").values()
    ]
    assert len(found) == 12
    assert len({tuple(ids) for ids in found}) == 12


async def test_a_recipe_that_compares_refuses_groups_of_one_and_another_trains(
    model: Path, tmp_path: Path
) -> None:
    rollout = RolloutConfig(tasks_per_step=4, group_size=1, max_tokens=6, max_turns=1)
    for recipe in ("grpo", "rloo", "dapo", "supo"):
        with pytest.raises(ConfigError, match="group_size = 1"):
            await assemble(config(model, tmp_path, recipe=recipe, rollout=rollout))
    assert not (tmp_path / "run").exists()
    result = await run_training(config(model, tmp_path, recipe="reinforce_pp", rollout=rollout))
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "episode/count" in row]
    assert [row["episode/count"] for row in rows] == [4.0, 4.0]
    assert all(row["update/tokens"] > 0 for row in rows)


async def test_a_window_beyond_the_model_is_refused_and_the_models_own_is_not(
    model: Path, tmp_path: Path
) -> None:
    rollout = RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=6, max_turns=1, window=1025)
    with pytest.raises(ConfigError, match=r"rollout.window is 1025, but the engine takes 1024"):
        await assemble(config(model, tmp_path, rollout=rollout))
    rollout = RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=6, max_turns=1, window=1024)
    parts = await assemble(config(model, tmp_path, rollout=rollout))
    await parts.closing.aclose()


async def test_a_clock_that_jumps_changes_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = await run_training(config(model, tmp_path / "plain"))
    real, jumps = time.time, iter(range(10**9))

    def jumping() -> float:
        """A year forward, a year back."""
        return real() + 31_536_000 * (next(jumps) % 3 - 1)

    monkeypatch.setattr(time, "time", jumping)
    jumped = await run_training(config(model, tmp_path / "jumped"))
    assert next(jumps) > 4  # it was asked
    on = RunConfig(folder=str(jumped.folder), tensorboard=False, resume=True, episodes_every=1)
    again = await run_training(config(model, tmp_path / "jumped", steps=3, run=on))
    assert again.step == 3
    for step in (1, 2):
        name = Path("episodes") / f"step-{step:06d}.jsonl"
        assert sampled(plain.folder / name) == sampled(jumped.folder / name)
    stamps = [row["time"] for row in read_metrics(jumped.folder / "metrics.jsonl")]
    assert stamps != sorted(stamps)  # the positive control: the log's stamps did jump


def test_nothing_waits_by_the_wall_clock() -> None:
    """`time.time()` and dates may be written down; what waits or gives up asks `monotonic`."""
    asks = re.compile(r"\btime\.time\(|\btime_ns\(|datetime\.(now|utcnow|today)\(")
    found = {
        (str(path.relative_to(ROOT)), line.strip())
        for path in ROOT.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    }
    assert {path for path, _ in found} <= {"metrics.py"}, found


def test_a_date_to_wait_for_is_read_by_the_servers_clock() -> None:
    sent = "Mon, 23 Nov 2026 00:00:00 GMT"
    until = "Mon, 23 Nov 2026 00:00:07 GMT"

    def reply(headers: dict[str, str]) -> HttpResponse:
        return HttpResponse(429, headers, b"")

    assert retry_after_s(reply({"Retry-After": until, "Date": sent})) == 7.0
    assert retry_after_s(reply({"Retry-After": sent, "Date": until})) == 0.0
    assert retry_after_s(reply({"Retry-After": until})) is None
    assert retry_after_s(reply({"Retry-After": "soon", "Date": sent})) is None
    assert retry_after_s(reply({"Retry-After": "2.5"})) == 2.5


async def test_two_runs_in_one_folder_are_refused_and_the_first_goes_on(
    model: Path, tmp_path: Path
) -> None:
    class Second:
        """Starts a second run while the first is at work."""

        refused: ClassVar[list[str]] = []

        def on_episode(self, episode: Any) -> None: ...

        def on_evaluation(self, step: int, evaluation: Any) -> None: ...

        def on_step(self, step: int, metrics: Any) -> None:
            from ludus.trainer.run.claim import RunClaim

            for resume in (False, True):
                with pytest.raises(ConfigError) as error:
                    RunClaim(tmp_path / "run", resume=resume)
                self.refused.append(str(error.value))

    result = await run_training(config(model, tmp_path), watcher=Second())
    assert result.step == 2
    assert len(Second.refused) == 4
    assert all("is in use by another run of this process" in text for text in Second.refused)
    on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
    assert (await run_training(config(model, tmp_path, steps=3, run=on))).step == 3


async def test_the_episodes_of_a_step_that_is_stopped_behind_its_update_are_kept(
    model: Path, tmp_path: Path
) -> None:
    class Stops:
        def on_episode(self, episode: Any) -> None: ...

        def on_evaluation(self, step: int, evaluation: Any) -> None: ...

        def on_step(self, step: int, metrics: Any) -> None:
            task.cancel()  # as Ctrl-C does

    task = asyncio.create_task(run_training(config(model, tmp_path), watcher=Stops()))
    result = await task
    assert (result.interrupted, result.step) == (True, 1)
    assert (result.folder / "episodes" / "step-000001.jsonl").exists()


async def test_what_a_run_waited_for_and_was_given_up_is_no_interruption(
    model: Path, tmp_path: Path
) -> None:
    class GivesUp:
        def on_episode(self, episode: Any) -> None: ...

        def on_evaluation(self, step: int, evaluation: Any) -> None: ...

        def on_step(self, step: int, metrics: Any) -> None:
            raise asyncio.CancelledError  # of a task that was waited for

    with pytest.raises(RuntimeError, match="waited for was cancelled"):
        await run_training(config(model, tmp_path), watcher=GivesUp())


async def test_a_run_whose_disk_is_full_at_a_checkpoint_goes_on_and_is_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system says so when files are flushed; test_full_disks.py has disks that are full."""
    flush, broken = os.fsync, {2, 3}

    def full(file: int) -> None:
        found = re.search(r"\.partial-(\d+)", os.readlink(f"/proc/self/fd/{file}"))
        if found and int(found[1]) in broken:
            raise OSError(28, "No space left on device")
        flush(file)

    monkeypatch.setattr(os, "fsync", full)
    result = await run_training(config(model, tmp_path, steps=5))
    assert result.step == 5
    names = [path.name for path in (result.folder / "checkpoints").iterdir()]
    assert sorted(names) == ["best", "step-000001", "step-000004", "step-000005"]
    (told, *_) = [one for one in read_findings(result.folder) if one.name == "save_failed"]
    assert told.step == 2
    assert "No space left on device" in told.sentence
    # where it never works again, the run ends, and the checkpoint before is what it resumes from
    broken |= {7, 8, 9, 10}
    on = RunConfig(folder=str(result.folder), tensorboard=False, resume=True, save_every=1, keep=9)
    with pytest.raises(SaveFailed, match=r"3 checkpoints in a row .*run.max_failed_saves"):
        await run_training(config(model, tmp_path, steps=20, run=on))
    last = checkpoints(result.folder / "checkpoints")[-1]
    assert (last.name, load_state(last)["step"]) == ("step-000006", 6)
    # and a last checkpoint that cannot be written is an error
    broken |= {*range(20)}
    with pytest.raises(SaveFailed, match="the checkpoint of step 7 could not be written"):
        await run_training(config(model, tmp_path, steps=7, run=on))


AGENT = """
import itertools
import httpx

TURN = itertools.count()


def run(task):
    if "train" in task.task and next(TURN) % 6 < {missing}:
        return "7"  # without a call to the policy
    body = {{"messages": [{{"role": "user", "content": task.prompt}}]}}
    headers = {{"Authorization": f"Bearer {{task.key}}"}}
    httpx.post(f"{{task.base_url}}/chat/completions", json=body, headers=headers, timeout=60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "most"), [(3, 0.0), (4, 0.0), (4, 0.7)])
async def test_the_share_of_an_agents_episodes_without_a_reward_is_bounded_and_told_by_cause(
    model: Path, tmp_path: Path, missing: int, most: float
) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT.format(missing=missing))
    rollout = RolloutConfig(
        tasks_per_step=3, group_size=2, max_tokens=6, max_turns=1, retries=0, max_failed=most
    )
    run = run_training(
        config(model, tmp_path, steps=1, agent=f"{agent}:run", rollout=rollout, recipe="grpo")
    )
    if missing / 6 > (most or 0.5):
        with pytest.raises(TrainingFailed, match=r"4 of 6 .*max_failed = 0.5 .*4 x .*never called"):
            await run
        return
    await run
    (row,) = [
        row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "episode/excluded" in row
    ]
    assert row["episode/excluded"] == missing / 6
