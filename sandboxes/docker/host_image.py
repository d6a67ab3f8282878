"""A container without an image to download: an empty root with this machine's system folders.

The folders are shown read-only, as in the slots tiers. The image itself holds a few empty folders
and links, so it is made in a moment and is the same for every driver; programs, libraries and
packages are mounts.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ..guest.jail import policy
from .config import Mount
from .engine import DockerEngine, EngineFault

REPOSITORY = "ludus-sandbox"

_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "usr", "ludus", "packages", "sandbox")
_LINKED = ("bin", "sbin", "lib", "lib32", "lib64")


def ensure_image(engine: DockerEngine) -> str:
    """Return the id of the empty image, which is made if missing.

    Raises:
        EngineFault: the image cannot be made.
    """
    # The tar of the root file system has the same bytes for the same layout of the host.
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in _FOLDERS:
            _add(archive, folder, tarfile.DIRTYPE)
        for link in _LINKED:
            if os.path.islink(f"/{link}"):
                _add(archive, link, tarfile.SYMTYPE, os.readlink(f"/{link}"))
    tar = buffer.getvalue()
    tag = hashlib.sha256(tar).hexdigest()[:12]
    name = f"{REPOSITORY}:{tag}"
    if engine.image(name) is None:
        engine.import_image(tar, REPOSITORY, tag)
    existing = engine.image(name)
    if existing is None:
        raise EngineFault(f"the image {name} was imported and is not there")
    return str(existing["Id"])


def mounts(readable: Sequence[str], packages: Sequence[str], etc: Path) -> list[Mount]:
    """Return what a container sees of the host.

    Args:
        readable: files and folders that are shown at the same path.
        packages: folders that are shown by their name below `/packages`.
        etc: the folder with the container's account files; see `write_etc`.
    """
    # A folder shows the places inside it as well.
    host_mounts = [
        Mount(place, place)
        for place in dict.fromkeys(readable)
        if not any(place.startswith(f"{parent}/") for parent in readable)
    ]
    top = [f"/{name}" for name in _LINKED]
    host_mounts += [
        Mount(place, place) for place in top if os.path.isdir(place) and not os.path.islink(place)
    ]
    host_mounts += [
        Mount(place, f"{policy.PACKAGES}/{os.path.basename(place)}") for place in packages
    ]
    host_mounts += [Mount(str(etc / name), f"/etc/{name}") for name in policy.ETC_FILES]
    borrowed = [f"/etc/{name}" for name in policy.ETC_FROM_HOST]
    return host_mounts + [Mount(place, place) for place in borrowed if os.path.exists(place)]


def write_etc(etc: Path, uid: int, gid: int) -> None:
    """Write the account files of a container, readable by everyone inside."""
    etc.mkdir(mode=0o755)
    for name, text in policy.ETC_FILES.items():
        file = etc / name
        file.write_text(text.format(uid=uid, gid=gid))
        file.chmod(0o644)


def _add(tar: tarfile.TarFile, name: str, kind: bytes, target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = kind, target, 0o755
    tar.addfile(entry)
