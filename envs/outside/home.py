"""Makes, finds and removes the interpreters in which other projects' environments run."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from ludus.errors import ConfigError

from .kinds import EnvKind
from .pythons import find_python, python_program

HOME_VARIABLE = "LUDUS_HOME"
INSTALL_TIMEOUT_S = 3600.0
_RECORD = "ludus-env.json"
"""The file that is written last: an environment without it is unfinished."""


class Installed(msgspec.Struct, frozen=True):
    """What is written about an environment that was installed."""

    kind: str
    python: str
    """The version of the interpreter."""
    requirements: list[str]
    packages: dict[str, str]
    """The installed packages with their versions."""
    clashes: list[str] = []
    """What `pip check` complains of."""


def environments_folder() -> Path:
    """Return the folder of the virtual environments: `envs` in `LUDUS_HOME`, or else in `ludus` of
    the user's data folder (`XDG_DATA_HOME`, by default `~/.local/share`).
    """
    if chosen := os.environ.get(HOME_VARIABLE):
        return Path(chosen).expanduser() / "envs"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "ludus" / "envs"


def python_of(kind: EnvKind, python: str = "") -> str:
    """Return the interpreter for a kind: the one named, the one installed, or this process's own if
    the package is there.

    Raises:
        ConfigError: there is none; the message says how to install one.
    """
    if python:
        found = shutil.which(python)
        if found is None:
            raise ConfigError(f"{kind.name}: python={python!r} is not a program")
        return found
    if installed(kind.name) is not None:
        return str(_program(environments_folder() / kind.name))
    if importlib.util.find_spec(kind.package) is not None:
        return sys.executable
    unfinished = (environments_folder() / kind.name).exists()
    why = "was not installed to the end" if unfinished else "is not installed"
    raise ConfigError(f"{kind.name} {why}: run 'ludus env install {kind.name}'")


def installed(kind: str) -> Installed | None:
    """Return what is written about the environment of a kind; None if it is not there, or
    unfinished.
    """
    folder = environments_folder() / kind
    try:
        record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=Installed)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if _program(folder).exists() else None


def installed_kinds() -> list[str]:
    """Return the kinds that have a folder, finished or not."""
    folder = environments_folder()
    places = folder.iterdir() if folder.is_dir() else ()
    return sorted(place.name for place in places if place.is_dir())


def install(
    kind: EnvKind,
    *,
    python: str = "",
    packages: Sequence[str] = (),
    timeout_s: float = INSTALL_TIMEOUT_S,
) -> Installed:
    """Make the virtual environment of a kind, and install its packages by pip.

    Pip takes its settings, such as the index, from its own configuration.

    Args:
        kind: what to install.
        python: the interpreter that the environment is made with, a program or a version; empty
            takes the version that the kind prefers where it is found, else this process's.
        packages: what to install besides, or in other versions.
        timeout_s: the limit of each command, in seconds.

    Raises:
        ConfigError: pip cannot install the packages, such as for clashes among them, or another
            process installs or removes the kind.
    """
    base = _base(kind, python)
    with _alone(environments_folder() / kind.name):
        return _make(kind, base, packages, timeout_s)


def _make(kind: EnvKind, base: str, packages: Sequence[str], timeout_s: float) -> Installed:
    folder = environments_folder() / kind.name
    _remove(folder)
    _run([base, "-m", "venv", str(folder)], f"{base} makes no environment", timeout_s)
    program = str(_program(folder))
    requirements = [*kind.requires, *packages]
    for batch in filter(None, (list(kind.first), requirements)):
        pip = [program, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*pip, *batch], f"pip cannot install {' '.join(batch)}", timeout_s)
    told = _run([program, "-m", "pip", "list", "--format=json"], "pip cannot list", timeout_s)
    listed = msgspec.json.decode(told.partition("]")[0] + "]", type=list[dict[str, str]])
    check = subprocess.run(
        [program, "-m", "pip", "check"], capture_output=True, text=True, timeout=300, check=False
    )
    version = _run(
        [program, "-c", "import platform; print(platform.python_version())"], "", timeout_s
    )
    record = Installed(
        kind=kind.name,
        python=version.strip(),
        requirements=requirements,
        packages={one["name"]: one["version"] for one in listed},
        clashes=check.stdout.strip().splitlines() if check.returncode else [],
    )
    (folder / _RECORD).write_bytes(msgspec.json.encode(record))
    return record


def remove(kind: str) -> None:
    """Remove the virtual environment of a kind.

    Raises:
        ConfigError: there is none.
    """
    folder = environments_folder() / kind
    if kind not in installed_kinds():
        there = ", ".join(installed_kinds()) or "none"
        raise ConfigError(f"no environment of {kind!r} is installed in {folder.parent}: {there}")
    with _alone(folder):
        _remove(folder)


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keep other processes from changing an environment; the lock ends with its process.

    Two that installed one kind at once would leave a record of packages that the other removed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = folder.with_name(f".{folder.name}.lock")
    with held.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another process installs or removes {folder.name!r} in {folder.parent}: wait for "
                "its end"
            ) from None
        yield


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (folder / _RECORD).unlink()
        shutil.rmtree(folder)
    if folder.exists():
        shutil.rmtree(folder)


def _base(kind: EnvKind, python: str) -> str:
    """Return the interpreter to make the environment with."""
    if python:
        return python_program(python)
    found = next(filter(None, map(find_python, kind.prefers)), None)
    if found is None and kind.prefers:
        warnings.warn(
            f"{kind.name} works best with Python {' or '.join(kind.prefers)}, and none was found: "
            f"Python {sys.version.split()[0]} is taken",
            stacklevel=3,
        )
    return found or sys.executable


def _program(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(command: list[str], failed: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{failed}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "error" in line]
        said = " | ".join(lines[-4:] or done.stderr.strip().splitlines()[-3:])
        raise ConfigError(f"{failed}: {said[-900:]}")
    return done.stdout
