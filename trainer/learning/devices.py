"""The choice of a device for tensors."""

from __future__ import annotations

import torch

from ludus.errors import ConfigError


def pick_device(name: str) -> str:
    """Resolve `auto`, `cpu`, `cuda` or `cuda:1` to a device name.

    Raises:
        ConfigError: CUDA was asked for by name and is not available.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"model.device is {name!r}, but torch sees no CUDA device; use auto or cpu"
        )
    return name
