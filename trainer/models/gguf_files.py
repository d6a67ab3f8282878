"""Models in GGUF files, which are first converted to transformers folders."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import struct
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from ludus.errors import ConfigError, MissingExtra
from ludus.user_paths import user_folder

MODELS_VARIABLE = "LUDUS_MODELS_DIR"
"""Name of the environment variable with the folder that models are kept in."""

NEEDED = ("gguf", "accelerate")
"""Packages with which transformers reads GGUF files."""

BEGINNING_S = 60.0
"""Seconds for which an unlocked folder may still be that of a conversion that begins."""

UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    ArithmeticError,
    struct.error,
)
"""What transformers raises for files that are cut off, damaged, or of an unknown architecture."""

BYTES_OF_TOKENIZER = 32 << 20
"""Space that is set aside for the tokenizer and the small files of a folder."""


def models_folder() -> Path:
    """Return the folder that models are kept in: `LUDUS_MODELS_DIR`, or else `ludus/models` in the
    user's data folder (`XDG_DATA_HOME`, by default `~/.local/share`).

    Raises:
        ConfigError: it is in the home of nobody.
    """
    if chosen := os.environ.get(MODELS_VARIABLE):
        return user_folder(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return user_folder(data) / "ludus" / "models"


def folder_of_gguf(file: Path) -> Path:
    """Return the transformers folder of a GGUF file, which is written at the first use.

    A file that has changed since (by size or modification time) has another folder.

    Raises:
        ConfigError: the file cannot be read, holds no known causal LM, or the folder cannot be
            written.
        MissingExtra: the packages that read GGUF files are missing.
    """
    status = file.stat()
    facts = f"{file.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    digest = hashlib.blake2b(facts.encode(), digest_size=6).hexdigest()
    folder = models_folder() / f"{file.stem}-{digest}"
    return kept_or_written(folder, lambda: write_folder(file, folder))


def kept_or_written(folder: Path, write: Callable[[], object]) -> Path:
    """Return `folder`, after calling `write` if the folder is missing.

    Where another process writes the same folder at the same time, the first one wins.
    """
    if not folder.is_dir():
        try:
            write()
        except FolderInUse:
            if not (folder / "config.json").is_file():
                raise
    return folder


class FolderInUse(ConfigError):
    """The folder that a model should be written to is not empty."""


def refuse_used(folder: Path) -> None:
    """Refuse a folder that is not empty.

    Raises:
        FolderInUse: the path is a file, or a folder with something inside.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise FolderInUse(
            f"{str(folder)!r} is in use already; remove it, or name an empty or missing folder"
        )


def write_folder(file: Path, folder: Path, *, note: str = "") -> int:
    """Write the model of a GGUF file as a plain transformers folder, in float32.

    The folder appears as a whole or not at all.

    Args:
        file: the GGUF file.
        folder: must be missing or empty.
        note: a sentence or two about the weights, written into the folder's README.md.

    Returns:
        the number of parameters.

    Raises:
        FolderInUse: the folder holds something.
        ConfigError: the file cannot be read, or the folder cannot be written; nothing of the folder
            is left.
        MissingExtra: the packages that read GGUF files are missing.
    """
    refuse_used(folder)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra.of("gguf", needed_for=f"reading {file.name} ({', '.join(missing)})")
    model, tokenizer = _read(file)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    remove_abandoned(folder)
    partial, held = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}", -1
    try:
        partial.mkdir(parents=True)
        held = os.open(partial, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks, where nothing is removed either
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        needed, free = 4 * parameters + BYTES_OF_TOKENIZER, shutil.disk_usage(partial).free
        if free < needed:
            raise OSError(
                errno.ENOSPC, f"{needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB free"
            )
        model.save_pretrained(str(partial))
        tokenizer.save_pretrained(str(partial))
        text = note or f"Written from {file.name}; the weights were dequantised to float32."
        (partial / "README.md").write_text(text + "\n", encoding="utf-8")
        partial.rename(folder)
    except (OSError, SafetensorError) as error:
        raise _cannot_write(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # after the renaming there is none
        if held >= 0:
            os.close(held)
    return parameters


def remove_abandoned(folder: Path) -> None:
    """Remove what conversions to `folder` that were killed have left beside it: their lock went
    with them. A conversion that has just begun may not have locked its own yet.
    """
    for partial in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}"):
        with suppress(OSError):  # it is locked, or gone
            if time.time() - partial.stat().st_mtime < BEGINNING_S:
                continue
            held = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(partial)
            finally:
                os.close(held)


def _read(file: Path) -> tuple[Any, Any]:
    """Read model and tokenizer, and bring the model into a form that transformers can save."""
    logging.disable_progress_bar()
    place, name = str(file.parent), file.name
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(place, gguf_file=name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            place, gguf_file=name, dtype=torch.float32
        )
    except UNREADABLE as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            f"cannot read a model from the GGUF file {str(file)!r}: {reason}"
        ) from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.is_quantized = False
    model.hf_quantizer = None
    return model, tokenizer


def _cannot_write(folder: Path, error: OSError | SafetensorError) -> ConfigError:
    if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        return FolderInUse(f"{str(folder)!r} was filled by somebody else meanwhile")
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ConfigError(
        f"cannot write the model to {str(folder)!r}: {'the disk is full: ' if full else ''}"
        f"{reason}; choose another folder (--out, or {MODELS_VARIABLE})"
    )
