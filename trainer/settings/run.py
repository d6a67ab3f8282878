"""Checks that the sections of the settings share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError
from ludus.secret import Secret


def positive(name: str, value: float) -> None:
    if not value > 0:  # NaN too
        raise ConfigError(f"{name} must be positive, got {value}")
    if math.isinf(value):
        raise ConfigError(f"{name} must be finite, got {value}")


def not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ConfigError(f"{name} must not be negative, got {value}")
    if math.isinf(value):
        raise ConfigError(f"{name} must be finite, got {value}")


def keep_secret(config: object, name: str) -> None:
    """Replace a secret that was given as text by a `Secret`, which is never printed."""
    object.__setattr__(config, name, Secret.of(getattr(config, name)))


def refuse_unproven(name: str, given: object, instead: str) -> None:
    """Refuse what has been left out until a machine with GPUs has run `benchmarks/gpu.sh`.

    Raises:
        ConfigError: the setting asks for it.
    """
    if given:
        raise ConfigError(
            f"{name} is {given!r}, which is refused until it has been run on GPUs "
            f"(benchmarks/gpu.sh, docs/ranks.md#what-was-never-run): {instead}"
        )


TRACKERS = ("wandb", "trackio")


@dataclass(frozen=True)
class RunConfig:
    """Settings of the run folder."""

    folder: str = ""
    """Path of the run folder; empty is runs/<environment>-<recipe>, or runs/sft for ludus sft."""
    resume: bool | Literal["auto"] = False
    """Continue from the newest checkpoint of the folder; auto continues a run that is there and
    begins one where none is, so that the same command line serves a job that is started again.
    """
    resume_changed: bool = False
    """Continue also where settings that change what is learned differ from those of the run."""
    save_every: int = 50
    """Steps between checkpoints; the last step is always saved."""
    keep: int = 2
    """Number of newest checkpoints that are kept."""
    whole: Literal["end", "always"] = "end"
    """Which checkpoints of ranks hold the whole model beside the shards: the last and the best of a
    run, or all. ludus model join writes it later. One process always writes it.
    """
    max_failed_saves: int = 3
    """Number of checkpoints in a row that cannot be written, by a full disk for instance, which
    ends the run.
    """
    episodes_every: int = 10
    """Steps between files of all episodes; the last step's are always kept, unless this is 0."""
    episodes_kept: int = 5
    """Most episodes that every other step keeps: the best, the worst, one that failed, the longest,
    and random ones.
    """
    tensorboard: bool = True
    """Whether the metrics are also written as TensorBoard files, if tensorboard is installed."""
    trackers: tuple[str, ...] = ()
    """Further programs that are told the metrics: wandb (offline files in the folder) and trackio
    (its local database).
    """

    def __post_init__(self) -> None:
        positive("run.keep", self.keep)
        positive("run.max_failed_saves", self.max_failed_saves)
        not_negative("run.save_every", self.save_every)
        not_negative("run.episodes_every", self.episodes_every)
        not_negative("run.episodes_kept", self.episodes_kept)
        for name in self.trackers:
            if name not in TRACKERS:
                raise ConfigError(f"run.trackers has {name!r}; trackers: {', '.join(TRACKERS)}")
