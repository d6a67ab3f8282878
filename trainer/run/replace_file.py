"""Files that a kill never leaves half written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it: readers see the old file or the new one.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    partial = path.with_name(f".partial-{path.name}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
