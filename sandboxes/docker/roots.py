"""What a container runs: a root with this machine's folders, or an image with an interpreter.

The folders are shown read-only, as in the slots tiers. The image itself holds a few empty folders
and links, so it is made in a moment and is the same for every driver; programs, libraries and
packages are mounts.

The interpreter is the image's own, or this machine's, which is brought along with its loader and
libraries and needs nothing of the image.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..guest.jail import policy
from ..local.supervisor import PYTHON
from .config import LUDUS, Container, Mount
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


_LIBRARIES = f"{LUDUS}/lib"
_HOME = f"{LUDUS}/python"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_TIMEOUT_S = 60.0

_TOO_OLD, _NOT_FOUND = 9, 127
_TRIAL = f"import sys, ctypes; sys.exit(0 if sys.version_info >= (3, 11) else {_TOO_OLD})"

_LIST_LIBRARIES = """
import array, binascii, ctypes, datetime, decimal, fcntl, json, math, pickle, random, resource
import select, socket, struct, termios, zlib, hashlib, heapq, bisect
class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_size_t), ("name", ctypes.c_char_p)]
def show(loaded, size, nothing):
    print(loaded.contents.name.decode())
    return 0
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
ctypes.CDLL(None).dl_iterate_phdr(kind(show), None)
"""
"""A program that prints what the loader has loaded, by the names that were asked for."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How an interpreter is started, and what must be visible of the host."""

    command: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    reason: str = ""
    """The reason why the image's interpreter is not used; empty if it is."""

    @property
    def is_brought(self) -> bool:
        """Whether the interpreter is this machine's."""
        return bool(self.mounts)


def of_image(engine: DockerEngine, trial: Container) -> Interpreter:
    """Choose the image's `python3` if a trial shows version 3.11 or newer; else ours.

    Raises:
        EngineFault: a container of this image cannot be run at all.
    """
    container = engine.create(trial.trial(_TRIAL))
    try:
        engine.start(container)
        code = engine.wait(container)
    except EngineFault as error:
        # The engine has no status code of its own for a program that the image lacks.
        message = str(error)
        if not ("python3" in message and ("not found" in message or "no such file" in message)):
            raise
        code = _NOT_FOUND
    finally:
        engine.remove(container)
    if code == 0:
        return Interpreter(trial.python)
    reasons = {_TOO_OLD: "its python3 is older than 3.11", _NOT_FOUND: "it has no python3"}
    return brought_along(reasons.get(code, f"its python3 ends with exit code {code}"))


def brought_along(reason: str) -> Interpreter:
    """Return this interpreter, with mounts for the standard library and every loaded library."""
    # The shared libraries are those that a running interpreter has mapped, since no fixed list is
    # right on every system. Extension modules are left out: they come with the standard library.
    listing = subprocess.run(
        [PYTHON, "-I", "-S", "-c", _LIST_LIBRARIES],
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    stdlib = sysconfig.get_path("stdlib") + "/"
    listed_paths = dict.fromkeys(listing.stdout.splitlines())
    libraries = [
        path for path in listed_paths if path.startswith("/") and not path.startswith(stdlib)
    ]
    loader = next(path for path in libraries if os.path.basename(path).startswith("ld-"))
    mounts = [
        Mount(PYTHON, f"{_HOME}/bin/{_VERSION}"),
        Mount(sysconfig.get_path("stdlib"), f"{_HOME}/lib/{_VERSION}"),
        *(Mount(path, f"{_LIBRARIES}/{os.path.basename(path)}") for path in libraries),
    ]
    command = (
        f"{_LIBRARIES}/{os.path.basename(loader)}",
        "--library-path",
        _LIBRARIES,
        f"{_HOME}/bin/{_VERSION}",
    )
    return Interpreter(command, tuple(mounts), reason)
