"""The resolution of a model path, which is a folder, a GGUF file, a released model or a hub id."""

from __future__ import annotations

from pathlib import Path

import httpx
from huggingface_hub import hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from ludus.errors import ConfigError

from .gguf_files import folder_of_gguf
from .released import RELEASES, folder_of_release

HUB_TIMEOUT_S = 10.0


def locate_model(path: str | Path) -> str:
    """Return the transformers folder, or the hub id, that a model path stands for.

    A folder takes precedence over a released model of the same name. A GGUF file and a released
    model are written as a folder at the first use; see `models_folder`.

    Raises:
        ConfigError: the path is none of these; or the model is not in the hub's cache, and the
            hub cannot be reached.
        MissingExtra: a package that the file or the released model needs is missing.
    """
    text, place = str(path), Path(path)
    if place.is_dir():
        return text
    if text in RELEASES:
        return str(folder_of_release(text))
    if place.suffix == ".gguf" and place.is_file():
        return str(folder_of_gguf(place))
    _ask_hub(text)
    return text


def _ask_hub(path: str) -> None:
    """Check with a short timeout that the hub answers; the hub's own client retries for half a
    minute.
    """
    try:
        if isinstance(try_to_load_from_cache(path, "config.json"), str):
            return
        httpx.head(hf_hub_url(path, "config.json"), timeout=HUB_TIMEOUT_S)
    except HFValidationError as error:
        raise ConfigError(
            f"cannot load a model from {path!r}: there is no such folder{_nearest(Path(path))}; "
            "write one with `ludus sft` or save_pretrained, name a released model "
            f"({', '.join(RELEASES)}), a .gguf file, or a model of the hub as owner/name"
        ) from error
    except httpx.HTTPError as error:
        raise ConfigError(
            f"cannot load a model from {path!r}: there is no such folder, and the hub cannot be "
            f"asked for it ({str(error).strip() or type(error).__name__})"
        ) from error


def _nearest(path: Path) -> str:
    """Return how much of a path exists, and the names in the last folder, as a hint for a
    message.
    """
    existing = next(place for place in (*path.parents, Path()) if place.is_dir())
    names = sorted(entry.name for entry in existing.iterdir() if entry.is_dir())[-5:]
    if existing in (Path(), Path("/")) or not names:
        return ""
    return f" ({str(existing)!r} has {', '.join(names)})"
