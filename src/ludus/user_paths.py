"""Paths as a person writes them, with `~` for a home."""

from __future__ import annotations

import os
from pathlib import Path


def user_path(text: str | Path) -> Path:
    """Return a path with the home in the place of `~` or `~name`.

    A `~name` of nobody stays as it is written, as in a shell, so that whoever looks for the path
    says that nothing is there. `Path.expanduser` raises RuntimeError instead.

    >>> user_path("~nobody-of-this-name/model")
    PosixPath('~nobody-of-this-name/model')
    """
    return Path(os.path.expanduser(text))
