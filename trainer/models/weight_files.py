"""Weights in a safetensors file: written piece by piece, complete as soon as visible."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ludus.agent.engine import TensorMeta, WeightSource
from ludus.errors import ConfigError

from .weights import WeightsRefused, bytes_of, checked, dtype_of, in_pieces

SHARED_MEMORY = Path("/dev/shm")
ROOM = 1.1
"""A folder is used if the free space is this many times the file's size."""
CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""The names that safetensors gives to the types of torch."""


class FileWeights:
    """The tensors of a safetensors file, as a source that maps the file into memory.

    Args:
        path: the file; it must stay until the weights are installed.

    Raises:
        ConfigError: the file is missing, or is no safetensors file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._metadata = _read_header(self.path)

    def metadata(self) -> Sequence[TensorMeta]:
        """Return name, type and shape of each tensor; see `WeightSource.metadata`."""
        return self._metadata

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return the tensors in pieces; see `WeightSource.pieces`."""
        with safe_open(str(self.path), framework="pt") as file:
            yield from in_pieces((meta.name, file.get_tensor(meta.name)) for meta in self._metadata)

    def remove(self) -> None:
        """Delete the file; readers that have opened the file read on."""
        self.path.unlink(missing_ok=True)


def write_weights(source: WeightSource, *, folder: str = "") -> FileWeights:
    """Write a file under a temporary name and rename the complete file; the caller removes the
    file.

    Args:
        source: the weights; one piece at a time is held besides the file.
        folder: visible to ludus and to the reader under the same path; empty means memory
            (`/dev/shm`) if large enough, else the folder for temporary files, readable by this user
            alone.

    Raises:
        ConfigError: the space does not suffice, or (`WeightsRefused`) the source contradicts
            itself.
    """
    metadata = source.metadata()
    size = sum(map(bytes_of, metadata))
    whole = _folder(folder, size) / f"ludus-weights-{uuid.uuid4().hex}.safetensors"
    partial = whole.with_suffix(".partial")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.touch(mode=0o644 if folder else 0o600, exist_ok=False)
        _write(partial, source, metadata)
        partial.rename(whole)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if not isinstance(error, OSError):
            raise
        raise ConfigError(
            f"cannot write {size / 1e6:.0f} MB of weights to {str(whole.parent)!r} ({error}); "
            "name a folder with more room with --vllm.weights-folder"
        ) from error
    return FileWeights(whole)


def write_file(path: Path, source: WeightSource) -> None:
    """Write a safetensors file, one piece of the weights at a time; see `write_weights`."""
    path.touch()
    _write(path, source, source.metadata())


@contextlib.asynccontextmanager
async def as_file(source: WeightSource, *, folder: str = "") -> AsyncGenerator[FileWeights]:
    """Give a source as a file that other processes can read; see `write_weights`.

    A file that is written for the purpose is removed at the end.
    """
    if isinstance(source, FileWeights):
        yield source
        return
    file = await written(source, folder=folder)
    try:
        yield file
    finally:
        file.remove()


async def written(source: WeightSource, *, folder: str = "") -> FileWeights:
    """Write a file in a thread; see `write_weights`. If the caller is cancelled, no file stays."""
    writing = asyncio.ensure_future(asyncio.to_thread(write_weights, source, folder=folder))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(_discard)
        raise


def _discard(writing: asyncio.Future[FileWeights]) -> None:
    if not writing.cancelled() and writing.exception() is None:
        writing.result().remove()


def _write(path: Path, source: WeightSource, metadata: Sequence[TensorMeta]) -> None:
    offsets, end = {}, 0
    # Wide types first: each tensor then begins at a multiple of its type's size.
    for meta in sorted(metadata, key=lambda described: -dtype_of(described).itemsize):
        offsets[meta.name] = end
        end += bytes_of(meta)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for meta in metadata:
        if meta.dtype not in CODES:
            raise WeightsRefused(
                f"weight {meta.name!r} is of type {meta.dtype}, which no file holds"
            )
        begin = offsets[meta.name]
        header[meta.name] = {
            "dtype": CODES[meta.dtype],
            "shape": list(meta.shape),
            "data_offsets": [begin, begin + bytes_of(meta)],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors behind the header begin at a multiple of 8
    with path.open("r+b") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in checked(source):
            file.seek(8 + len(text) + offsets[name])
            file.write(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        file.truncate(8 + len(text) + end)


def header_of(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the entry of each tensor of a safetensors file, in the order of writing, and where
    the data begin.

    Raises:
        ConfigError: the file cannot be read, is cut off, or is no safetensors file.
    """
    try:
        with safe_open(str(path), framework="pt"):  # checks the whole header
            pass
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header: dict[str, dict[str, Any]] = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot read weights from {str(path)!r} ({error})") from error
    header.pop("__metadata__", None)
    return header, 8 + size


def _read_header(path: Path) -> list[TensorMeta]:
    types = {code: name for name, code in CODES.items()}
    header, _ = header_of(path)
    try:
        return [
            TensorMeta(name, types[entry["dtype"]], tuple(entry["shape"]))
            for name, entry in header.items()
        ]
    except KeyError as error:
        raise WeightsRefused(f"{str(path)!r} holds weights of type {error}") from error


def _folder(named: str, size: int) -> Path:
    if named:
        return Path(named)
    fits = os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > size * ROOM
    return SHARED_MEMORY if fits else Path(tempfile.gettempdir())
