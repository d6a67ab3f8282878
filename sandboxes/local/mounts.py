"""The paths of this machine that a program in a sandbox may read: system, interpreter, packages."""

from __future__ import annotations

import importlib.util
import os
import ssl
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ludus.errors import ConfigError

_SYSTEM_FOLDERS = ("bin", "lib", "lib32", "lib64", "libexec", "include", "share")


def readable_places() -> list[str]:
    """Return the paths every program may read: system programs and libraries, and this
    interpreter's. What `installed_places` names is hidden from them.
    """
    system = [f"/usr/{name}" for name in _SYSTEM_FOLDERS]
    if sys.base_prefix == "/usr":
        return [place for place in system if os.path.isdir(place)]
    library = sysconfig.get_config_var("LDLIBRARY") or ""
    places = [os.path.realpath(sys.executable), sysconfig.get_path("stdlib")]
    places += [str(path) for path in Path(sys.base_prefix, "lib").glob(f"{library}*") if library]
    return [place for place in [*system, *places] if os.path.exists(place)]


def installed_places(shown: Sequence[str] = ()) -> list[str]:
    """Return the folders of installed packages that lie within the standard library's folder.

    No program may read these: ludus may be among the packages, with the answers of its
    environments. A folder in which something is `shown` is left out.
    """
    library = Path(sysconfig.get_path("stdlib"))
    places = [str(library / name) for name in ("site-packages", "dist-packages")]
    return [
        place
        for place in places
        if os.path.isdir(place) and not any(path.startswith(place) for path in shown)
    ]


OWN_FOLDERS = ("/tmp", "/proc", "/dev", "/sandbox")
"""Folders that each program has of its own."""


def shown_place(place: str) -> str:
    """Return the absolute path of a file or folder that programs shall read.

    Raises:
        ConfigError: it does not exist, or would lie where each program has a folder of its own.
    """
    path = os.path.abspath(place)
    if not os.path.exists(path):
        raise ConfigError(f"programs in the sandbox shall read {place!r}, which does not exist")
    if any(path == own or path.startswith(f"{own}/") for own in OWN_FOLDERS) or path == "/":
        raise ConfigError(
            f"programs in the sandbox shall read {path!r}, but each has its own "
            f"{', '.join(OWN_FOLDERS)}; put it into another folder"
        )
    return path


def package_folders(name: str) -> list[str]:
    """Return the paths of an installed package: the folder and bundled libraries, or the single
    file.

    The list is empty for a package that is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [spec.origin] if spec.origin and os.path.isfile(spec.origin) else []
    folder = next(iter(spec.submodule_search_locations))
    return [place for place in (folder, folder + ".libs") if os.path.isdir(place)]


def certificate_places() -> list[str]:
    """Return the paths of the public certificates by which a program checks the servers of a
    network.

    Paths below /usr are left out, because every program may read these anyway.
    """
    default_paths = ssl.get_default_verify_paths()
    places = [
        place for place in (default_paths.openssl_capath, default_paths.openssl_cafile) if place
    ]
    existing = [os.path.realpath(place) for place in places if os.path.exists(place)]
    return [place for place in dict.fromkeys(existing) if not place.startswith("/usr/")]
