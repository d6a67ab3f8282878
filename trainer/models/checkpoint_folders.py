"""The folders of checkpoints: names, which checkpoints stay, and how each comes and goes whole.

Nothing here loads a model or torch, so that a run's folder can be looked at for nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import ConfigError

_NAME = re.compile(r"step-(\d{6,})")
PARTIAL, REPLACED, REMOVED = ".partial-", ".replaced-", ".removed-"
"""Prefixes of folders that are being written, replaced and removed."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay when a newer checkpoint is written."""

    keep: int
    """The number of newest checkpoints that stay."""
    pinned: Collection[int] = ()
    """Steps whose checkpoints always stay."""


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    folders = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(folders, key=step_of)


def newest_checkpoint(folder: Path) -> Path:
    """Return the newest checkpoint, from which a run continues.

    Raises:
        ConfigError: the run has no checkpoint.
    """
    folders = checkpoints(folder)
    if not folders:
        raise ConfigError(f"{str(folder)!r} holds no checkpoint")
    return folders[-1]


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ConfigError(f"{str(checkpoint)!r} is not a checkpoint; those are named step-000050")
    return int(match[1])


def prune(folder: Path, retention: Retention) -> None:
    """Remove the checkpoints that are not to stay."""
    for old in checkpoints(folder)[: -retention.keep]:
        if step_of(old) not in retention.pinned:
            remove(old)


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint so that a partly removed folder is never taken for a checkpoint."""
    going = checkpoint.with_name(f"{REMOVED}{checkpoint.name}")
    shutil.rmtree(going, ignore_errors=True)
    checkpoint.rename(going)
    shutil.rmtree(going, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Finish or undo what a killed process was doing to the checkpoints of a run."""
    for replaced in folder.glob(f"{REPLACED}*"):
        target = folder / replaced.name.removeprefix(REPLACED)
        if not target.exists():  # killed between the two renames: the old one is the whole one
            replaced.rename(target)
    for prefix in (PARTIAL, REPLACED, REMOVED):
        for path in folder.glob(f"{prefix}*"):
            shutil.rmtree(path, ignore_errors=True)


def flush(folder: Path) -> None:
    """Wait until every file below `folder`, and the names of the files, are on the disk."""
    for place, _, names in os.walk(folder):
        for path in [*(Path(place) / name for name in names), Path(place)]:
            _sync(path)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def put_in_place(partial: Path, target: Path) -> None:
    """Put `partial` in the place of `target`; `tidy` finishes what a crash interrupts here."""
    replaced = target.with_name(f"{REPLACED}{target.name}")
    shutil.rmtree(replaced, ignore_errors=True)
    if target.exists():
        target.rename(replaced)
    partial.rename(target)
    _sync(target.parent)  # the new name is on the disk before the old checkpoint is removed
    shutil.rmtree(replaced, ignore_errors=True)
