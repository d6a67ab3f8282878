"""Finds an installed distribution of another project whose package has our name.

Our distribution is `ludus-rl`. A distribution named `ludus` on PyPI belongs to others and has a
package `ludus` too: if both are installed, the files of one overwrite those of the other.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

_INFO = re.compile(r"(?i)ludus-[^-]+(-py[\d.]+)?\.(dist|egg)-info")
_OURS = "Text environments, reward verifiers and a multi-turn RL trainer"
"""Beginning of our distribution's summary, which no other distribution named `ludus` has."""


def foreign_distribution(folders: Iterable[str]) -> str:
    """Return the folder that holds another project's `ludus`; empty if no folder does.

    Args:
        folders: the folders of `sys.path`.
    """
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # a zip file, or a folder that is not there
            continue
        for name in filter(_INFO.fullmatch, names):
            if not _is_ours(Path(folder, name)):
                return str(Path(folder, name))
    return ""


def warn_of_a_foreign_one(folders: Iterable[str]) -> None:
    """Warn if another project's `ludus` is installed in one of the folders of `sys.path`."""
    distribution = foreign_distribution(folders)
    if distribution:
        warnings.warn(
            f"the distribution 'ludus' ({distribution}) is another project's and shares the "
            "package name with this one, which is 'ludus-rl'; their files may be mixed: run 'pip "
            "uninstall ludus' and then 'pip install --force-reinstall --no-deps ludus-rl'",
            RuntimeWarning,
            stacklevel=3,
        )


def _is_ours(info: Path) -> bool:
    for file in (info / "METADATA", info / "PKG-INFO", info):  # old tools write a file
        try:
            return f"Summary: {_OURS}" in file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return True  # unreadable: no reason to warn
