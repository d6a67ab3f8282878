"""Checkpoints: a folder that `from_pretrained` loads, with the trainer's state beside the model.

    checkpoints/step-000050/    model.safetensors, config.json, tokenizer files, trainer.pt

A checkpoint is written under another name, flushed to the disk, and renamed when complete. A crash,
a loss of power or a full disk never leaves an incomplete checkpoint, and never costs an older one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError

from ludus.errors import ConfigError, RankLost, SaveFailed, UpdateRefused

from .checkpoint_folders import PARTIAL, Retention, flush, prune, put_in_place
from .images import ImageReader
from .loading import CausalLM, save_model

STATE_FILE = "trainer.pt"


class WeightsWriter(Protocol):
    """Writes a model whose weights are not all in this process."""

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite."""
        ...

    def write(self, folder: Path) -> None:
        """Write the files of the model, with their companions, into an existing folder."""
        ...


@dataclass(frozen=True)
class SavedModel:
    """The model of a run, and what is saved in the same folder."""

    model: CausalLM
    tokenizer: object
    _: KW_ONLY
    images: ImageReader | None = None
    """The model's image processor."""
    writer: WeightsWriter | None = None
    """Writes the model where ranks share its weights; None writes `model`."""
    beside: Mapping[str, SavedModel] = field(default_factory=dict[str, "SavedModel"])
    """Further models, each by its folder below that of this one."""

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite."""
        others = [f"{at}: {name}" for at, model in self.beside.items() for name in model.broken()]
        if self.writer is not None:
            return [*self.writer.broken(), *others]
        named = self.model.named_parameters()
        own = [name for name, weight in named if not bool(weight.isfinite().all())]
        return [*own, *others]

    def write(self, folder: Path) -> None:
        """Write the files of the model into an existing folder."""
        if self.writer is not None:
            self.writer.write(folder)
        else:
            save_model(self.model, self.tokenizer, folder, images=self.images)
        for at, model in self.beside.items():
            (folder / at).mkdir(parents=True)
            model.write(folder / at)


def save_checkpoint(
    folder: Path, step: int, saved: SavedModel, state: Mapping[str, Any], retention: Retention
) -> Path:
    """Write the checkpoint of `step`, and remove older checkpoints that are not to stay.

    Args:
        folder: the folder of all checkpoints.
        step: the number of finished steps.
        saved: the model that is saved, with its tokenizer.
        state: what the trainer needs besides the model to continue; plain values and tensors.
        retention: which older checkpoints stay.

    Raises:
        RankLost: a rank that holds a part of the weights is gone.
        UpdateRefused: the weights are not finite; nothing is written, and nothing removed.
        SaveFailed: the disk is full or failing; what was written is removed, and the older
            checkpoints stay.
    """
    if broken := saved.broken():
        raise UpdateRefused(
            f"the weights of step {step} are not finite ({', '.join(broken[:3])}"
            f"{', ...' if len(broken) > 3 else ''}): no checkpoint is written, the older ones stay"
        )
    target, partial = folder / f"step-{step:06d}", folder / f"{PARTIAL}{step:06d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        saved.write(partial)
        torch.save(dict(state), partial / STATE_FILE)
        # On the disk before the renaming: a power cut could otherwise leave the final name with
        # empty files behind it.
        flush(partial)
        put_in_place(partial, target)
    except RankLost:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have own ones
        shutil.rmtree(partial, ignore_errors=True)
        raise SaveFailed(_failure_message(folder, step, error)) from error
    prune(folder, retention)
    return target


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Load the state that `save_checkpoint` kept beside the model.

    Raises:
        ConfigError: the folder holds no trainer state.
    """
    path = checkpoint / STATE_FILE
    if not path.is_file():
        raise ConfigError(f"{str(checkpoint)!r} holds no {STATE_FILE}; it cannot be resumed")
    # A checkpoint may come from somebody else: `weights_only` never runs pickled code.
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _failure_message(folder: Path, step: int, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error).strip().partition("\n")[0]
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    return (
        f"the checkpoint of step {step} could not be written: {reason or type(error).__name__} "
        f"({free / 2**20:,.0f} MB are free at {str(folder)!r}); older checkpoints stay. Make room, "
        "or lower run.keep"
    )
