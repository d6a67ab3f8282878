"""Weights on their way to a server: one safetensors file, whole or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from ludus.errors import ConfigError

SHARED_MEMORY = Path("/dev/shm")
ROOM = 1.1
"""A file is put where its size times this is free."""


class WeightFiles:
    """Writes weights where a server on this machine, or on a shared disk, reads them.

    Args:
        folder: seen by both under the same path; empty is memory (`/dev/shm`) where it is large
            enough, else the folder for temporary files.
    """

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        self._own: Path | None = None

    def write(self, weights: Mapping[str, object], version: int) -> Path:
        """Write a file under another name and rename it when it is whole.

        Raises:
            ConfigError: something in `weights` is no tensor, or there is no room.
        """
        tensors = {name: _on_cpu(name, tensor) for name, tensor in weights.items()}
        size = sum(tensor.nbytes for tensor in tensors.values())
        if self._own is None:
            self._own = _new_folder(self.folder, size)
        partial = self._own / f".partial-{version}"
        whole = self._own / f"weights-{version}.safetensors"
        try:
            save_file(tensors, partial, metadata={"format": "pt"})
        except OSError as error:
            raise ConfigError(
                f"cannot write {size / 1e6:.0f} MB of weights to {str(self._own)!r} ({error}); "
                "name a folder with more room with --vllm.weights_folder"
            ) from error
        partial.rename(whole)
        return whole

    def close(self) -> None:
        """Remove what is left."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None


def _on_cpu(name: str, tensor: object) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"weight {name!r} is a {type(tensor).__name__}, not a tensor")
    return tensor.detach().cpu().contiguous()


def _new_folder(folder: str, size: int) -> Path:
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="ludus-weights-", dir=folder))
        made.chmod(0o755)  # the server may run as somebody else
        return made
    in_memory = os.access(SHARED_MEMORY, os.W_OK) and _free(SHARED_MEMORY) > size * ROOM
    return Path(tempfile.mkdtemp(prefix="ludus-weights-", dir=SHARED_MEMORY if in_memory else None))


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
