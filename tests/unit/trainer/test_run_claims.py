"""Who may write into a run folder, where a run starts, and what it may be continued with."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludus.config import build, read_toml, to_toml
from ludus.errors import ConfigError
from ludus.trainer.config import (
    AsyncConfig,
    EvalConfig,
    LocalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
    VLLMConfig,
)
from ludus.trainer.models.checkpoint_folders import checkpoints, tidy
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.run.changes import keep_recipe, refuse_changes
from ludus.trainer.run.claim import FolderLock, RunClaim, refuse_held
from ludus.trainer.run.folder import RunFolder, referring

HOLDS = """
import sys
from pathlib import Path
from ludus.trainer.run.claim import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
{then}
"""
FORKS = "import os, time; child = os.fork(); child and print(child, flush=True); time.sleep(60)"
"""Makes a worker that outlives the run."""


def holding(folder: Path, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDS.format(then=then), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / "checkpoints" / f"step-{step:06d}"
    path.mkdir(parents=True)
    (path / "trainer.pt").write_bytes(b"state")
    return path


def test_a_second_run_is_refused_until_the_first_is_killed_though_its_worker_outlives_it(
    tmp_path: Path,
) -> None:
    process = holding(tmp_path, FORKS)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        for resume in (False, True):
            with pytest.raises(ConfigError, match=f"in use by the run of process {process.pid} on"):
                RunClaim(tmp_path, resume=resume)
        with pytest.raises(ConfigError, match="in use"):
            FolderLock(tmp_path)
        process.kill()
        process.wait(60)
        os.kill(worker, 0)  # it lives
        FolderLock(tmp_path).release()
        RunClaim(tmp_path, resume=False).release()
    finally:
        os.kill(worker, signal.SIGKILL)
        process.stdout.close()


def test_two_runs_of_one_process_are_refused_too(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run", TrainConfig(env="a-v0"))
    (tmp_path / "other name").symlink_to(tmp_path / "run")
    with pytest.raises(ConfigError, match="in use by another run of this process"):
        RunFolder(tmp_path / "other name", TrainConfig(env="a-v0"))
    first.close()
    first.close()
    RunFolder(tmp_path / "run", TrainConfig(env="a-v0")).close()


def test_of_threads_that_claim_a_folder_at_once_a_single_one_holds_it(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def claim(ready: threading.Barrier, folder: Path) -> FolderLock | None:
        ready.wait(60)
        try:
            return FolderLock(folder)
        except ConfigError:
            return None

    try:
        with ThreadPoolExecutor(4) as threads:
            for number in range(100):
                ready, folder = threading.Barrier(4), tmp_path / str(number)
                held = [lock for lock in threads.map(claim, [ready] * 4, [folder] * 4) if lock]
                assert len(held) == 1
                held[0].release()
    finally:
        sys.setswitchinterval(interval)


LOOKS = """
import fcntl, sys, time
with open(sys.argv[1]) as file:
    fcntl.lockf(file, fcntl.LOCK_SH)
    print("looks", flush=True)
    sys.stdin.readline()
    time.sleep(0.05)
"""


def test_a_run_begins_while_another_looks_whether_one_holds_the_folder(tmp_path: Path) -> None:
    FolderLock(tmp_path).release()
    command = [sys.executable, "-c", LOOKS, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as looking:
        assert looking.stdin is not None
        assert looking.stdout is not None
        assert looking.stdout.readline() == b"looks\n"
        refuse_held(tmp_path)
        looking.stdin.close()
        FolderLock(tmp_path).release()


def test_a_folder_whose_lock_could_not_be_written_is_not_held(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    opened = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with pytest.raises(ConfigError) as raised:
            RunClaim(tmp_path, resume=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in str(raised.value)
    assert len(os.listdir("/proc/self/fd")) == opened
    RunClaim(tmp_path, resume=False).release()


@pytest.mark.parametrize(
    "left",
    [
        {},
        {"metrics.jsonl": [{"step": 0, "eval/mean": 0.5}]},
        {"findings.jsonl": [{"step": 0, "name": "setup 0", "sentence": "..."}]},
        {"rollouts.jsonl": [{"step": 1, "ordinal": 0}]},
        {"episodes/eval-000000.jsonl": [{"task": "a"}]},
        {"checkpoints/step-000000/x": [{}]},
    ],
    ids=lambda left: next(iter(left), "settings only"),
)
def test_a_run_that_failed_before_its_first_step_leaves_a_folder_that_starts_over(
    tmp_path: Path, left: dict[str, Any]
) -> None:
    for name, rows in {**left, "config.toml": []}.items():
        lines(tmp_path / name, *rows)
    (tmp_path / "mine.txt").write_text("kept")
    run = RunFolder(tmp_path, TrainConfig(env="a-v0"))
    assert checkpoints(tmp_path / "checkpoints") == []
    assert not list(tmp_path.glob("episodes/*.jsonl"))
    for name in ("metrics.jsonl", "findings.jsonl", "rollouts.jsonl"):
        assert not (tmp_path / name).exists() or (tmp_path / name).read_bytes() == b""
    assert (tmp_path / "mine.txt").read_text() == "kept"
    run.close()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("metrics.jsonl", {"step": 1, "reward/mean": 0.5}),
        ("metrics.jsonl", {"step": 0, "survey/rollouts": 512.0}),  # it cost 512 rollouts
        ("metrics.jsonl", {}),
        ("checkpoints/step-000003/trainer.pt", {}),
    ],
)
def test_what_a_run_has_learned_is_never_overwritten(
    tmp_path: Path, name: str, row: dict[str, Any]
) -> None:
    lines(tmp_path / name, row)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"holds a run already; go on with it by --run\.resume"):
        RunClaim(tmp_path, resume=False)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_run_killed_before_its_first_checkpoint_is_resumed_from_the_beginning(
    tmp_path: Path,
) -> None:
    """It has steps, so it is not overwritten; it has no checkpoint, so it cannot go on."""
    lines(tmp_path / "config.toml")
    lines(tmp_path / "metrics.jsonl", {"step": 0}, {"step": 1}, {"step": 2})
    with pytest.raises(ConfigError, match="holds a run already"):
        RunClaim(tmp_path, resume=False)
    claim = RunClaim(tmp_path, resume=True)
    assert (claim.start, claim.first_step) == (None, 0)
    assert "stopped before its first checkpoint" in claim.note
    RunFolder(tmp_path, TrainConfig(env="a-v0"), claim=claim).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(ConfigError, match="nothing to resume"):
        RunClaim(tmp_path, resume=True)


def test_what_was_written_after_the_checkpoint_is_cut_back(tmp_path: Path) -> None:
    lines(tmp_path / "config.toml")
    start = checkpoint(tmp_path, 2)
    for name in ("metrics.jsonl", "findings.jsonl"):
        lines(tmp_path / name, *({"step": step} for step in (1, 2, 3, 2)))
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"step": 2, "cut sho')
    for step in (2, 3):
        lines(tmp_path / "episodes" / f"step-{step:06d}.jsonl")
        lines(tmp_path / "refused" / f"step-{step:06d}.pt")
    claim = RunClaim(tmp_path, resume=True)
    assert (claim.start, claim.first_step, claim.note) == (start, 2, "")
    RunFolder(tmp_path, TrainConfig(env="a-v0"), claim=claim).close()
    for name in ("metrics.jsonl", "findings.jsonl"):
        assert (tmp_path / name).read_text() == '{"step": 1}\n{"step": 2}\n{"step": 2}\n'
    assert [path.name for path in (tmp_path / "episodes").iterdir()] == ["step-000002.jsonl"]
    assert [path.name for path in (tmp_path / "refused").iterdir()] == ["step-000002.pt"]


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (["step-000001", ".partial-000002"], ["step-000001"]),
        (
            ["step-000001", ".replaced-step-000002", ".partial-000002"],
            ["step-000001", "step-000002"],
        ),
        (["step-000002", ".replaced-step-000002"], ["step-000002"]),
        (["step-000002", ".removed-step-000001"], ["step-000002"]),
    ],
)
def test_what_a_kill_in_the_middle_of_a_save_leaves_is_finished_or_undone(
    tmp_path: Path, left: list[str], found: list[str]
) -> None:
    for name in left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer.pt").write_bytes(b"state")
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == found


BASE = TrainConfig(
    env="ludus/arithmetic-v0",
    model=ModelConfig(path="model"),
    rollout=RolloutConfig(group_size=8, temperature=1.0),
)


def begun(folder: Path, config: TrainConfig = BASE, recipe: str = "grpo") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(to_toml(referring(config)))
    keep_recipe(folder, load_recipe(recipe))


@pytest.mark.parametrize(
    "changed",
    [
        replace(BASE, steps=999),
        replace(BASE, env_url="http://elsewhere:8000", engine="vllm"),
        replace(BASE, vllm=VLLMConfig(max_model_len=512)),
        replace(BASE, run=RunConfig(folder="moved", keep=9, save_every=1, resume=True)),
        replace(BASE, rollout=replace(BASE.rollout, concurrency=3)),
        replace(BASE, trainer=TrainerConfig(tokens_per_pass=512)),
        replace(BASE, eval=EvalConfig(every=5)),
        replace(BASE, overlap=AsyncConfig(stall_s=9, outage_s=9)),
    ],
)
def test_where_and_how_often_may_change(tmp_path: Path, changed: TrainConfig) -> None:
    begun(tmp_path)
    assert refuse_changes(tmp_path, changed, load_recipe("grpo")) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (replace(BASE, recipe="rloo"), "recipe was 'grpo' and is 'rloo'"),
        (replace(BASE, seed=1), "seed was 0 and is 1"),
        (
            replace(BASE, local=LocalConfig(keep_cache=True)),
            "local.keep_cache was False and is True",
        ),
        (
            replace(BASE, overlap=AsyncConfig(max_staleness=2)),
            "overlap.max_staleness was 0 and is 2",
        ),
        (replace(BASE, trainer=TrainerConfig(lr=1e-5)), "trainer.lr was 1e-06 and is 1e-05"),
        (
            replace(BASE, rollout=replace(BASE.rollout, max_tokens=9)),
            "rollout.max_tokens was 256 and is 9",
        ),
        (replace(BASE, eval=EvalConfig(tasks=9)), "eval.tasks was 128 and is 9"),
        (
            replace(BASE, reward=[RewardConfig("format", weight=0.5)]),
            "reward.0.name was None and is 'format'",
        ),
        (replace(BASE, model=ModelConfig(path="other")), "model.path was 'model' and is 'other'"),
    ],
)
def test_what_is_learned_may_change_only_where_that_is_asked_for(
    tmp_path: Path, changed: TrainConfig, told: str
) -> None:
    begun(tmp_path)
    with pytest.raises(ConfigError, match=r"made with other settings.*--run.resume-changed") as no:
        refuse_changes(tmp_path, changed, load_recipe("grpo"))
    assert told in str(no.value)
    allowed = replace(changed, run=RunConfig(resume=True, resume_changed=True))
    assert told in refuse_changes(tmp_path, allowed, load_recipe("grpo"))
    # and the other way round: a setting that is taken back
    begun(tmp_path, changed)
    with pytest.raises(ConfigError, match="made with other settings"):
        refuse_changes(tmp_path, BASE, load_recipe("grpo"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"min_reward": 0.5}, "min_reward was 0.5 and is None"),
        ({"fields": ("role=from",)}, "fields was ['role=from'] and is []"),
    ],
)
def test_a_setting_that_is_taken_back_to_nothing_is_a_difference(
    tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    plain = SFTConfig(data="rows.jsonl")
    (tmp_path / "config.toml").write_text(to_toml(referring(replace(plain, **given))))
    assert refuse_changes(tmp_path, replace(plain, **given)) == []
    with pytest.raises(ConfigError, match=re.escape(told)):
        refuse_changes(tmp_path, plain)
    (tmp_path / "config.toml").write_text(to_toml(referring(plain)))
    with pytest.raises(ConfigError, match="made with other settings"):
        refuse_changes(tmp_path, replace(plain, **given))


def test_more_steps_under_a_falling_learning_rate_are_another_course(tmp_path: Path) -> None:
    falling = replace(BASE, trainer=TrainerConfig(lr_decay="cosine"))
    begun(tmp_path, falling)
    with pytest.raises(ConfigError, match="steps was 100 and is 200"):
        refuse_changes(tmp_path, replace(falling, steps=200), load_recipe("grpo"))


def test_a_recipe_whose_file_was_edited_is_another_recipe(tmp_path: Path) -> None:
    begun(tmp_path)
    edited = load_recipe("grpo", {"algorithm": {"loss_options": {"eps_high": 0.3}}})
    with pytest.raises(ConfigError, match=r"recipe: algorithm.loss.eps_high was 0.2 and is 0.3"):
        refuse_changes(tmp_path, BASE, edited)


def test_settings_that_an_older_version_did_not_have_count_as_their_defaults(
    tmp_path: Path,
) -> None:
    begun(tmp_path)
    table = read_toml(tmp_path / "config.toml")
    del table["trainer"]["max_grad_norm"]
    table["gone"] = 1
    (tmp_path / "config.toml").write_text(to_toml(table))
    assert refuse_changes(tmp_path, BASE, load_recipe("grpo")) == []
    with pytest.raises(ConfigError, match=r"trainer.max_grad_norm was 1.0 and is 0.5"):
        refuse_changes(tmp_path, replace(BASE, trainer=TrainerConfig(max_grad_norm=0.5)))


def test_settings_are_written_whole_however_they_were_given(tmp_path: Path) -> None:
    """A default that is written down stays what it was when a later version changes it."""
    given = build(TrainConfig, {"env": "a-v0", "run": {"folder": str(tmp_path)}})
    RunFolder(tmp_path, given).close()
    table = read_toml(tmp_path / "config.toml")
    assert table["trainer"]["lr"] == 1e-6
    assert table["run"]["save_every"] == 50
    assert build(TrainConfig, table) == given


def test_a_warm_start_is_held_to_its_settings_too(tmp_path: Path) -> None:
    warm = SFTConfig(env="a-v0", model=ModelConfig(path="model"))
    (tmp_path / "config.toml").write_text(to_toml(referring(warm)))
    assert refuse_changes(tmp_path, warm) == []
    with pytest.raises(ConfigError, match="batch_size was 64 and is 8"):
        refuse_changes(tmp_path, replace(warm, batch_size=8))
