# pyright: basic
"""The whole model of a checkpoint of ranks, put together from shards by a single process.

Nothing is collective here: the files say which part of which tensor they hold. Tensors pass one
piece at a time where files name each weight as the model does; of other models, such as those with
a vision tower, the whole is held on the CPU while it is written.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from pickle import PickleError

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from ludus.agent.engine import TensorMeta
from ludus.errors import ConfigError

from ..learning.copies import FOLDER as AVERAGE_FOLDER
from ..models.adapters import WEIGHTS_FILE as ADAPTER_FILE, name_in_file
from ..models.checkpoint import STATE_FILE, load_state
from ..models.layer_files import PLAIN
from ..models.loading import ADAPTER, CausalLM, load_model, load_shell
from ..models.model_paths import SHARDS_FOLDER
from ..models.weight_files import write_file
from ..models.weights import bytes_of, dtype_of
from .group import SHARDS
from .shards import AVERAGE, WEIGHT

WRITTEN_BYTES = 16_000_000
"""Bytes of a piece of weights that is written. Two pieces are held at a time, and larger pieces
are not written faster.
"""
WHOLE_FILE = "model.safetensors"
PARTIAL = ".partial-whole"
"""Folder inside the checkpoint in which the model is written before it has its name."""
DAMAGED = (OSError, EOFError, ValueError, AttributeError, ImportError, LookupError, PickleError)
"""What torch, which unpickles the shards, raises if they are missing, cut short or overwritten."""
_MODEL = "model."


class ShardFiles:
    """The tensors of a model in the shards of a checkpoint, as a `WeightSource`.

    Args:
        folder: the checkpoint.
        average: whether a weight with a moving average is replaced by that average.

    Raises:
        ConfigError: the shards are missing or damaged.
    """

    def __init__(self, folder: Path, *, average: bool = False) -> None:
        self.place = folder / SHARDS_FOLDER
        try:
            stored = FileSystemReader(self.place).read_metadata().state_dict_metadata
        except DAMAGED as error:
            raise ConfigError(
                f"{str(folder)!r} holds no readable shards of ranks: {error}"
            ) from error
        kinds = (WEIGHT, AVERAGE) if average else (WEIGHT,)
        self._keys: dict[str, str] = {}
        self._metadata: dict[str, TensorMeta] = {}
        for kind in kinds:  # an average takes the place of the weight
            for key, entry in stored.items():
                name, _, what = key.removeprefix(_MODEL).rpartition("/")
                if (
                    what == kind
                    and key.startswith(_MODEL)
                    and isinstance(entry, TensorStorageMetadata)
                ):
                    dtype = str(entry.properties.dtype).removeprefix("torch.")
                    self._keys[name] = key
                    self._metadata[name] = TensorMeta(name, dtype, tuple(entry.size))
        self.has_average = any(key.endswith(f"/{AVERAGE}") for key in stored)

    def metadata(self) -> list[TensorMeta]:
        """Return name, type and shape of each whole tensor; see `WeightSource.metadata`."""
        return list(self._metadata.values())

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return whole tensors in pieces; see `WeightSource.pieces`."""
        names: list[str] = []
        size = 0
        for name, meta in self._metadata.items():
            if names and size + bytes_of(meta) > WRITTEN_BYTES:
                yield self._read(names)
                names, size = [], 0
            names.append(name)
            size += bytes_of(meta)
        if names:
            yield self._read(names)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors at once."""
        return self._read(list(self._metadata))

    def _read(self, names: list[str]) -> dict[str, Tensor]:
        tensors = {
            name: torch.empty(self._metadata[name].shape, dtype=dtype_of(self._metadata[name]))
            for name in names
        }
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                state = {self._keys[name]: tensor for name, tensor in tensors.items()}
                load(state, checkpoint_id=self.place, no_dist=True)
        except CheckpointException as error:
            cause = next(iter(error.failures.values()))[0]
            raise ConfigError(
                f"the shards of ranks in {str(self.place)!r} cannot be read: {cause}"
            ) from error
        return tensors


def join(checkpoint: Path) -> list[Path]:
    """Write the whole model into a checkpoint of ranks; return the folders of models.

    Where the run keeps a moving average of the weights, that is written too, as a model in a folder
    inside the checkpoint.

    Raises:
        ConfigError: the folder is no checkpoint of ranks, or is damaged.
    """
    state = load_state(checkpoint).get("learner", {})
    if SHARDS not in state:
        raise ConfigError(
            f"{str(checkpoint)!r} was not written by ranks: one process writes the whole "
            "model into each of its checkpoints"
        )
    return write_whole(checkpoint, plain=bool(state.get(PLAIN)))


def write_whole(checkpoint: Path, *, plain: bool) -> list[Path]:
    """Write what `join` writes.

    Args:
        checkpoint: the folder, complete but for the weights.
        plain: whether files of this model name each weight as the model does.
    """
    folders = [checkpoint]
    if ShardFiles(checkpoint).has_average:
        # The model of the checkpoint itself comes last: with it the folder counts as whole.
        folders.insert(0, write_surroundings(checkpoint))
    for folder in folders:
        _write(folder, ShardFiles(checkpoint, average=folder != checkpoint), plain=plain)
    return folders[::-1]


def write_surroundings(checkpoint: Path) -> Path:
    """Write the folder of the moving average without its weights, but with the adapter of a model
    that has one; return the folder.
    """
    folder = checkpoint / AVERAGE_FOLDER
    folder.mkdir(exist_ok=True)
    for path in checkpoint.iterdir():
        if path.is_file() and path.name not in (STATE_FILE, WHOLE_FILE):
            shutil.copy(path, folder / path.name)
    if (checkpoint / ADAPTER).is_dir():
        shutil.copytree(checkpoint / ADAPTER, folder / ADAPTER, dirs_exist_ok=True)
        write_adapter(folder, ShardFiles(checkpoint, average=True))
    return folder


def write_adapter(folder: Path, source: ShardFiles) -> None:
    """Write the matrices of an adapter over the matrices in the folder."""
    path = folder / ADAPTER / ADAPTER_FILE
    in_file = {name_in_file(name): tensor for name, tensor in source.tensors().items()}
    save_file({name: in_file[name] for name in load_file(path)}, path)


def _write(folder: Path, source: ShardFiles, *, plain: bool) -> None:
    """Write the weights of a model whose other files are in the folder."""
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        if plain:
            write_file(partial / WHOLE_FILE, source)
        else:
            model = _loaded(folder, source)
            size = sum(tensor.nbytes for tensor in model.state_dict().values())
            model.save_pretrained(str(partial), max_shard_size=2 * size + 1)  # one file
        os.replace(partial / WHOLE_FILE, folder / WHOLE_FILE)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@torch.no_grad()
def _loaded(folder: Path, source: ShardFiles) -> CausalLM:
    """Return the model of a folder with the weights of the shards.

    Of a model with an adapter, the whole model that the folder may hold is removed, and the adapter
    is merged into the base model that it names.
    """
    if (folder / ADAPTER).is_dir():
        (folder / WHOLE_FILE).unlink(missing_ok=True)  # else that would be loaded
        return load_model(folder)
    model = load_shell(folder, dtype=torch.float32, device="cpu")
    targets = dict(model.named_parameters()) | dict(model.named_buffers())
    for piece in source.pieces():
        for name, tensor in piece.items():
            targets[name].copy_(tensor)
    return model
