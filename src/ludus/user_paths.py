"""Paths as a person writes them, with `~` for a home."""

from __future__ import annotations

import os
from pathlib import Path

from ludus.errors import ConfigError


def user_path(text: str | Path) -> Path:
    """Return a path with the home in the place of `~` or `~name`.

    A `~name` of nobody stays as it is written, as in a shell, so that whoever looks for the path
    says that nothing is there. `Path.expanduser` raises RuntimeError instead.

    >>> user_path("~nobody-of-this-name/model")
    PosixPath('~nobody-of-this-name/model')
    """
    return Path(os.path.expanduser(text))


def user_folder(text: str | Path) -> Path:
    """Return the path of what is going to be written, with the home in the place of `~`.

    Raises:
        ConfigError: there is no such home; a folder with the name `~` would be made instead.
    """
    expanded = os.path.expanduser(text)
    if str(expanded).startswith("~"):
        raise ConfigError(
            f"{str(text)!r} is in no home that this machine knows; give a whole path, or set HOME"
        )
    return Path(expanded)
