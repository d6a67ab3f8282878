"""How many weights training has changed, from the files of two models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from torch import Tensor

from ludus.errors import ConfigError

TOLERANCE = 1e-5
"""Distance from which a weight counts as changed, as in "Reinforcement Learning Finetunes Small
Subnetworks in Large Language Models" (arXiv 2505.11711, section 3).
"""


class ChangedWeights(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of two models, compared one by one."""

    weights: int
    share: float
    """Share of weights that differ by more than `TOLERANCE`."""
    share_bfloat16: float
    """Share whose bfloat16 values differ, which is what an engine in bfloat16 would see."""
    norm: float
    """Norm of the change over the norm of the first model's weights."""
    tensors: int
    untouched: int
    """Tensors of which no weight has changed."""


def changed_weights(first: Path, last: Path) -> ChangedWeights:
    """Compare two model folders tensor by tensor.

    Raises:
        ConfigError: a folder has no safetensors, or the two models have other tensors.
    """
    files = _tensors_of(first), _tensors_of(last)
    if files[0].keys() != files[1].keys():
        odd = sorted(files[0].keys() ^ files[1].keys())[0]
        raise ConfigError(
            f"{str(first)!r} and {str(last)!r} are no two states of one model: only one has "
            f"{odd!r}; of LoRA runs, name the merged models"
        )
    weights = changed = rounded = untouched = 0
    moved = size = 0.0
    for name, old, new in _pairs(*files):
        if old.shape != new.shape:
            raise ConfigError(
                f"{name!r} has shape {list(old.shape)} in {str(first)!r} and {list(new.shape)} in "
                f"{str(last)!r}: they are no two states of one model"
            )
        distance = (new.double() - old.double()).abs()
        here = int((distance > TOLERANCE).sum())
        weights, changed, untouched = weights + old.numel(), changed + here, untouched + (not here)
        rounded += int((new.bfloat16() != old.bfloat16()).sum())
        moved, size = moved + float((distance**2).sum()), size + float((old.double() ** 2).sum())
    return ChangedWeights(
        weights=weights,
        share=changed / max(1, weights),
        share_bfloat16=rounded / max(1, weights),
        norm=(moved / size) ** 0.5 if size else 0.0,
        tensors=len(files[0]),
        untouched=untouched,
    )


def _tensors_of(folder: Path) -> dict[str, Path]:
    from safetensors import safe_open

    names: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names |= dict.fromkeys(file.keys(), path)
    if not names:
        raise ConfigError(f"no .safetensors in {str(folder)!r}; name a model folder or checkpoint")
    return names


def _pairs(first: dict[str, Path], last: dict[str, Path]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each tensor of both models, one in memory at a time."""
    from safetensors import safe_open

    for name in first:
        with safe_open(first[name], "pt") as old, safe_open(last[name], "pt") as new:
            yield name, old.get_tensor(name), new.get_tensor(name)
