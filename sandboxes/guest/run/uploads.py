"""Writes uploaded files into a slot's work directory."""

from __future__ import annotations

import os


def write_files(files: dict[str, bytes]) -> None:
    """Write files into the work directory, with the program's own rights."""
    for name, data in files.items():
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        # A link in the path's place could lead out of the work directory, so it is not followed.
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o755)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
