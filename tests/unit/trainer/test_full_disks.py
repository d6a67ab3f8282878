"""Disks that are full at a checkpoint, or at a line: a run goes on, and nothing older is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.errors import SaveFailed
from ludus.metrics import LineFile, read_metrics
from ludus.trainer.config import RunConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.checkpoint import SavedModel, load_state, save_checkpoint
from ludus.trainer.models.checkpoint_folders import Retention, checkpoints
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.run.folder import RunFolder
from ludus.trainer.run.saver import LearnedPolicy, Saver


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    if os.geteuid() or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    path = tmp_path / "small"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)], capture_output=True
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small disk: {made.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path, left: int) -> Path:
    """Leave `left` bytes of a disk."""
    ballast = path / "ballast"
    free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    ballast.write_bytes(b"0" * max(0, free - left))
    return ballast


class Kept:
    """A run's folder with a tiny model, whose checkpoints take about half a megabyte."""

    def __init__(self, path: Path, most: int = 3) -> None:
        tokenizer = build_tokenizer()
        model = build_model(len(tokenizer), hidden=64, layers=1, heads=2)
        self.folder = RunFolder(path / "run", TrainConfig(env="a-v0"))
        self.told: list[tuple[int, str, str]] = []
        self.saver = Saver(
            RunConfig(max_failed_saves=most),
            self.folder,
            LearnedPolicy(Learner(model, TrainerConfig()), tokenizer),
            lambda: {"frontier": 7},
            lambda *event: self.told.append(event),
        )

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.checkpoints.iterdir())


async def test_a_full_disk_at_a_checkpoint_costs_that_checkpoint_alone(small: Path) -> None:
    kept = Kept(small)
    assert await kept.saver.try_save(1)
    ballast = fill(small, 100_000)
    assert not await kept.saver.try_save(2)
    assert kept.names == ["step-000001"]  # the older is there, and no partial one
    assert load_state(checkpoints(kept.folder.checkpoints)[0])["frontier"] == 7
    ((_, name, text),) = kept.told
    assert name == "save_failed"
    assert "the checkpoint of step 2 could not be written" in text
    assert "MB are free" in text
    assert "after 3 in a row it stops" in text
    ballast.unlink()
    assert await kept.saver.try_save(3)
    assert kept.names == ["step-000001", "step-000003"]


async def test_too_many_failed_saves_in_a_row_end_the_run_and_one_that_works_starts_the_count_anew(
    small: Path,
) -> None:
    kept = Kept(small, most=2)
    ballast = fill(small, 100_000)
    assert not await kept.saver.try_save(1)
    ballast.unlink()
    assert await kept.saver.try_save(2)
    fill(small, 50_000)
    assert not await kept.saver.try_save(3)
    with pytest.raises(SaveFailed, match="2 checkpoints in a row could not be written"):
        await kept.saver.try_save(4)
    with pytest.raises(SaveFailed, match=r"the checkpoint of step 4 .* No space left"):
        await kept.saver.save(4)  # the last one of a run
    assert kept.names == ["step-000002"]


def test_lines_that_a_full_disk_refuses_wait_whole_and_in_order(small: Path) -> None:
    lines = LineFile(small / "metrics.jsonl")
    lines.append(b'{"step":1}')
    ballast = fill(small, 0)
    row = b'{"step":%d,"x":"' + b"x" * 3000 + b'"}'  # a page of the first is left
    for step in (2, 3, 4):
        lines.append(row % step)
    assert lines.fault is not None
    assert "No space" in str(lines.fault)
    assert lines.path.read_bytes().endswith(b"}\n")
    ballast.unlink()
    lines.append(row % 5)
    assert lines.fault is None
    assert [one["step"] for one in read_metrics(lines.path)] == [1, 2, 3, 4, 5]


def test_a_run_folder_says_what_it_could_not_write_and_refuses_to_end_on_it(small: Path) -> None:
    kept = Kept(small)
    ballast = fill(small, 0)
    for step in range(200):
        kept.folder.log(step, {"reward/mean": 0.5, "a long name of a metric": 1.0})
    found = kept.folder.faults()
    assert "lines of metrics.jsonl cannot be written (No space left on device)" in str(found)
    with pytest.raises(SaveFailed, match=r"lines of metrics.jsonl cannot be written"):
        kept.folder.sync()
    ballast.unlink()
    kept.folder.sync()
    assert kept.folder.faults() == {}
    assert [row["step"] for row in read_metrics(kept.folder.path / "metrics.jsonl")] == [
        *range(200)
    ]


LIMITED = """
import resource, sys, torch
from pathlib import Path
from ludus.errors import SaveFailed
from ludus.trainer.models.checkpoint import SavedModel, save_checkpoint
from ludus.trainer.models.checkpoint_folders import Retention
from ludus.trainer.models.tiny import build_model, build_tokenizer
tokenizer = build_tokenizer()
model = build_model(len(tokenizer), hidden=64, layers=1, heads=2)
folder, state = Path(sys.argv[1]), {"a": torch.zeros(200_000)}
save_checkpoint(folder, 1, SavedModel(model, tokenizer), state, Retention(2))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for most in (1000, 400_000):  # too small for the model, and for the trainer's state
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        save_checkpoint(folder, 2, SavedModel(model, tokenizer), state, Retention(2))
    except SaveFailed as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print([path.name for path in folder.iterdir()], error)
"""


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_a_failed_save_whoever_writes_it(tmp_path: Path) -> None:
    """safetensors and torch have errors of their own, which are no OSError."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    for told in (first, second):
        assert told.startswith("['step-000001'] the checkpoint of step 2 could not be written:")
    assert "File too large" in first


def test_a_folder_that_vanished_is_a_failed_save(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), hidden=16, layers=1, heads=2)
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(SaveFailed, match=r"Not a directory|File exists"):
        save_checkpoint(tmp_path / "checkpoints", 1, SavedModel(model, tokenizer), {}, Retention(1))
