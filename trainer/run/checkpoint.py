"""Checkpoints: a folder that `from_pretrained` loads, with the trainer's state beside the model.

    checkpoints/step-000050/    model.safetensors, config.json, tokenizer files, trainer.pt

A checkpoint is written under another name and renamed when complete, so that a crash never leaves
an incomplete checkpoint.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ludus.errors import ConfigError, UpdateRefused

from ..engines.models import CausalLM, save_model
from ..vision import ImageReader

_NAME = re.compile(r"step-(\d{6,})")
STATE_FILE = "trainer.pt"


def save_checkpoint(
    folder: Path,
    step: int,
    model: CausalLM,
    tokenizer: object,
    state: Mapping[str, Any],
    *,
    keep: int,
    images: ImageReader | None = None,
) -> Path:
    """Write the checkpoint of `step`, and remove all but the newest `keep` checkpoints; `images`
    brings the model's image processor.

    Raises:
        UpdateRefused: the weights are not finite; nothing is written, and nothing removed.
    """
    broken = [name for name, one in model.named_parameters() if not bool(one.isfinite().all())]
    if broken:
        raise UpdateRefused(
            f"the weights of step {step} are not finite ({', '.join(broken[:3])}"
            f"{', ...' if len(broken) > 3 else ''}): no checkpoint is written, the older ones stay"
        )
    target = folder / f"step-{step:06d}"
    partial = folder / f".partial-{step:06d}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_model(model, tokenizer, partial, images=images)
    torch.save(dict(state), partial / STATE_FILE)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=step_of)


def newest_checkpoint(folder: Path) -> Path:
    """Return the newest checkpoint, from which a run continues.

    Raises:
        ConfigError: the run has no checkpoint.
    """
    found = checkpoints(folder)
    if not found:
        raise ConfigError(
            f"nothing to resume: {str(folder)!r} holds no checkpoint; leave out --run.resume"
        )
    return found[-1]


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ConfigError(f"{str(checkpoint)!r} is not a checkpoint; those are named step-000050")
    return int(match[1])


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Load the state that `save_checkpoint` kept beside the model.

    Raises:
        ConfigError: the folder holds no trainer state.
    """
    path = checkpoint / STATE_FILE
    if not path.is_file():
        raise ConfigError(f"{str(checkpoint)!r} holds no {STATE_FILE}; it cannot be resumed")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
