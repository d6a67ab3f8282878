"""Finds the weights of models, reads checkpoints strictly, and computes digests."""

from __future__ import annotations

import hashlib
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ludus.errors import ConfigError
from ludus.user_paths import user_path

from ..missing import MissingWeights

MODELS_VARIABLE = "LUDUS_MODELS"
"""Names the folder that has one folder of weights for each model."""
SHOWN_KEYS = 6


class WrongCheckpoint(ConfigError):
    """A file holds the weights of another model, or is not a checkpoint."""


@dataclass(frozen=True)
class Wanted:
    """A file or folder that a model needs."""

    option: str
    """The verifier's option that names the file or folder."""
    usual: tuple[str, ...]
    """The usual names of the file or folder, in the order in which they are tried."""
    source: str
    """The place from which the file or folder can be downloaded, for the message."""


def models_folder() -> Path:
    """Return the folder with the weights of all models: $LUDUS_MODELS, or ~/.cache/ludus/models."""
    variable = os.environ.get(MODELS_VARIABLE, "")
    return user_path(variable or "~/.cache/ludus/models")


def find_weights(model: str, path_given: str, wanted_file: Wanted) -> Path:
    """Return the path of a file or folder that a model needs: `path_given`, or else the first
    usual name that exists in the model's folder below `models_folder()`.

    Raises:
        MissingWeights: there is nothing at that path.
    """
    folder = models_folder() / model
    candidates = (
        [user_path(path_given)] if path_given else [folder / name for name in wanted_file.usual]
    )
    for candidate in candidates:
        if candidate.exists():
            return candidate
    place = f"at {path_given!r}" if path_given else f"in {str(folder)!r}"
    raise MissingWeights(
        f"{model} has no {wanted_file.option} {place}; ludus ships and downloads no weights: get "
        f"{wanted_file.source}, and put {wanted_file.usual[0]!r} into {str(folder)!r} "
        f"(or ${MODELS_VARIABLE}/{model}), or give {wanted_file.option}=PATH"
    )


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and digests of a folder's files, as
    "sha256:...".

    >>> digest(Path(os.devnull))[:14]
    'sha256:e3b0c44'
    """
    if not path.is_dir():
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    hasher = hashlib.sha256()
    for part in sorted(path.rglob("*")):
        if part.is_file():
            hasher.update(f"{part.relative_to(path).as_posix()}\0{digest(part)}\n".encode())
    return f"sha256:{hasher.hexdigest()}"


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint: safetensors, a PyTorch file, or a TorchScript archive.

    A PyTorch file is read without running anything that the file pickles.

    Raises:
        WrongCheckpoint: the file cannot be read, or holds something else than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if _is_torchscript(path):
            # TorchScript is deprecated, but OpenAI's archives have no other form.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                archive: nn.Module = torch.jit.load(path, map_location="cpu")
            content: object = archive.state_dict()
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch raise many kinds of errors for a bad file
        raise WrongCheckpoint(
            f"{str(path)!r} cannot be read as a checkpoint ({type(error).__name__}: {error!s:.200})"
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise WrongCheckpoint(f"{str(path)!r} holds no state dict of tensors")
    return {str(name): tensor for name, tensor in content.items()}


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Load exactly `tensors`, as float32, into `module`, which was built on the meta device.

    Raises:
        WrongCheckpoint: tensors are missing, left over or of another shape; their names are told.
    """
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    missing = [name for name in expected if name not in tensors]
    unexpected = [name for name in tensors if name not in expected]
    shapes = [
        f"{name} is {list(tensors[name].shape)} and should be {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    problems = [
        f"{len(names)} {kind}: {', '.join(names[:SHOWN_KEYS])}"
        + (" ..." if len(names) > SHOWN_KEYS else "")
        for kind, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", shapes),
        )
        if names
    ]
    if problems:
        raise WrongCheckpoint(
            f"{source} is not a checkpoint of {type(module).__name__}; {'; '.join(problems)}"
        )
    module.load_state_dict({name: tensors[name].float() for name in expected}, assign=True)
    # No checkpoint holds these buffers, and on the meta device they have no values yet.
    for part in module.modules():
        positions = getattr(part, "position_ids", None)
        if isinstance(positions, Tensor) and positions.is_meta:
            part.position_ids = torch.arange(positions.shape[-1])[None]
    unset = [
        name
        for name, tensor in {
            **dict(module.named_parameters()),
            **dict(module.named_buffers()),
        }.items()
        if tensor.is_meta
    ]
    if unset:
        raise WrongCheckpoint(
            f"{type(module).__name__} has tensors that neither the checkpoint nor ludus sets: "
            f"{', '.join(unset[:SHOWN_KEYS])}"
        )
