"""Weight files for a server: a safetensors file that is complete as soon as visible."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from ludus.errors import ConfigError

SHARED_MEMORY = Path("/dev/shm")
ROOM = 1.1
"""A folder is used if the free space is this many times the file's size."""


def write_weights(weights: Mapping[str, object], *, folder: str = "") -> Path:
    """Write a file under a temporary name and rename the complete file; the caller removes the
    file.

    Args:
        weights: tensors by name.
        folder: visible to ludus and the server under the same path; empty means memory (`/dev/shm`)
            if large enough, else the folder for temporary files, readable by this user alone.

    Raises:
        ConfigError: something in `weights` is not a tensor, or the space does not suffice.
    """
    tensors = {name: _on_cpu(name, tensor) for name, tensor in weights.items()}
    size = sum(tensor.nbytes for tensor in tensors.values())
    whole = _folder(folder, size) / f"ludus-weights-{uuid.uuid4().hex}.safetensors"
    partial = whole.with_suffix(".partial")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.touch(mode=0o644 if folder else 0o600, exist_ok=False)
        save_file(tensors, partial, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ConfigError(
            f"cannot write {size / 1e6:.0f} MB of weights to {str(whole.parent)!r} ({error}); "
            "name a folder with more room with --vllm.weights-folder"
        ) from error
    return partial.rename(whole)


def _on_cpu(name: str, tensor: object) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"weight {name!r} is a {type(tensor).__name__}, not a tensor")
    return tensor.detach().cpu().contiguous()


def _folder(named: str, size: int) -> Path:
    if named:
        return Path(named)
    fits = os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > size * ROOM
    return SHARED_MEMORY if fits else Path(tempfile.gettempdir())
