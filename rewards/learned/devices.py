"""The device on which a model computes, by the name that a setting gives."""

from __future__ import annotations

import torch

from ludus.errors import ConfigError


def chosen_device(name: str, *, option: str) -> str:
    """Return the device to compute on: "cpu", "cuda" or "cuda:N".

    Args:
        name: "auto", "cpu", "cuda" or "cuda:N"; "auto" takes a GPU where torch can use one.
        option: what the setting is called, for messages.

    Raises:
        ConfigError: `name` is another word, or torch sees no such device.
    """
    kind, _, number = name.partition(":")
    is_numbered = kind == "cuda" and number.isascii() and number.isdecimal()
    if name not in ("auto", "cpu", "cuda") and not is_numbered:
        raise ConfigError(f"{option} must be auto, cpu, cuda or cuda:N, got {name!r}")
    if name == "cpu":
        return name
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if count else "cpu"
    if int(number or 0) >= count:
        seen = f"{count or 'no'} CUDA device{'s' if count > 1 else ''}"
        raise ConfigError(f"{option} is {name!r}, but torch sees {seen}; use auto or cpu")
    return name
