"""Finds interpreters of other versions, and makes a virtual environment for each kind of
environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from ludus.errors import ConfigError
from ludus.user_paths import user_folder, user_path

from .kinds import EnvKind

_VERSION = re.compile(r"(?:python)?(\d+\.\d+)(\.\d+)?")
# Not every Python can make a virtual environment: some distributions package `venv` and `ensurepip`
# apart from the interpreter. So the probe imports both before it prints the version.
_PROBE = "import venv, ensurepip, platform; print(platform.python_version())"
_PROBE_TIMEOUT_S = 20.0


def python_program(named: str) -> str:
    """Return the program of the interpreter that `named` asks for.

    Args:
        named: a program, by path or by name, or a version, such as `3.12` or `python3.12`. Empty
            takes the interpreter of this process.

    Raises:
        ConfigError: there is no such interpreter; the message names the places that were searched.
    """
    if not named:
        return sys.executable
    wanted = _VERSION.fullmatch(named)
    if wanted is None:
        program = shutil.which(named)
        if program is None:
            raise ConfigError(
                f"python={named!r} is not a program; give the path or the name of an interpreter, "
                "or a version such as 3.12"
            )
        return program
    interpreter = find_python(wanted[1] + (wanted[2] or ""))
    if interpreter is None:
        raise ConfigError(
            f"no Python {wanted[1]}{wanted[2] or ''} that makes virtual environments was found on "
            f"PATH, in {_pyenv()} or by 'uv python find': install one, or name a program"
        )
    return interpreter


def find_python(version: str) -> str | None:
    """Return a program of this version of Python that runs and makes virtual environments, or None.

    A name on PATH is not enough: pyenv puts a `python3.12` there that fails unless that version is
    chosen.

    Args:
        version: such as `3.12`, which the newest of its releases answers, or `3.12.1`.
    """
    return next((program for program in _candidates(version) if _runs(program, version)), None)


def _candidates(version: str) -> Iterator[str]:
    program_name = "python" + ".".join(version.split(".")[:2])
    if program := shutil.which(program_name):
        yield program
    places = list((_pyenv()).glob(f"{version}*/bin/python"))
    # The newest release comes first. Folders are compared as numbers, since 3.12.10 would come
    # before 3.12.9 as text.
    places.sort(key=lambda place: [int(n) for n in re.findall(r"\d+", place.parts[-3])])
    yield from map(str, reversed(places))
    if uv := shutil.which("uv"):
        command = [uv, "python", "find", "--no-project", "--offline", version]
        if program := _output(command):
            yield program


def _pyenv() -> Path:
    root = os.environ.get("PYENV_ROOT")
    return user_path(root or "~/.pyenv") / "versions"


def _runs(program: str, version: str) -> bool:
    """Return whether a program is an interpreter of this version; 3.12 does not count as `3.1`."""
    own_version = _output([program, "-I", "-c", _PROBE])
    return own_version == version or own_version.startswith(version + ".")


def _output(command: list[str]) -> str:
    """Return what a command prints; empty for a failed command."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


HOME_VARIABLE = "LUDUS_HOME"
"""The environment variable that names the folder of ludus."""
INSTALL_TIMEOUT_S = 3600.0
"""The default limit of each command of an installation, in seconds."""
_RECORD = "ludus-env.json"
"""The file that an installation writes last: an environment without this file is unfinished."""


class Installed(msgspec.Struct, frozen=True):
    """The record of an installed environment."""

    kind: str
    python: str
    """The version of the interpreter."""
    requirements: list[str]
    """What pip was asked to install, without the packages of `EnvKind.first`."""
    packages: dict[str, str]
    """The installed packages with their versions."""
    clashes: list[str] = []
    """What `pip check` complains of."""


def environments_folder() -> Path:
    """Return the folder of the virtual environments: `envs` in `LUDUS_HOME`, or else in `ludus` of
    the user's data folder (`XDG_DATA_HOME`, by default `~/.local/share`).

    Raises:
        ConfigError: it is in the home of nobody.
    """
    if chosen := os.environ.get(HOME_VARIABLE):
        return user_folder(chosen) / "envs"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return user_folder(data) / "ludus" / "envs"


def python_of(kind: EnvKind, python: str = "") -> str:
    """Return the interpreter for a kind: the named, else the installed, else this process's own if
    the package can be imported there.

    Raises:
        ConfigError: there is no such interpreter; the message says how to install one.
    """
    if python:
        program = shutil.which(python)
        if program is None:
            raise ConfigError(
                f"{kind.name}: python={python!r} is not a program; give the path or the name of an "
                "interpreter"
            )
        return program
    if installed(kind.name) is not None:
        return str(_program(environments_folder() / kind.name))
    if importlib.util.find_spec(kind.package) is not None:
        return sys.executable
    unfinished = (environments_folder() / kind.name).exists()
    why = "was not installed to the end" if unfinished else "is not installed"
    raise ConfigError(f"{kind.name} {why}: run 'ludus env install {kind.name}'")


def installed(kind: str) -> Installed | None:
    """Return the record of a kind's environment; None if that is missing or unfinished."""
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
    """Make the virtual environment of a kind, and install the packages by pip.

    Pip takes its settings, such as the index, from its own configuration.

    Args:
        kind: what to install.
        python: the interpreter that the environment is made with, a program or a version; empty
            takes the version that the kind prefers where it is found, else this process's.
        packages: what to install besides, or in other versions.
        timeout_s: the limit of each command, in seconds.

    Raises:
        ConfigError: pip cannot install the packages, such as for clashes among them, or another
            process installs or removes the kind, or the limit is none.
    """
    if not 0 < timeout_s < math.inf:
        raise ConfigError(f"timeout_s must be seconds above 0, got {timeout_s}")
    base = _base(kind, python)
    with _alone(environments_folder() / kind.name):
        return _make(kind, base, packages, timeout_s)


def _make(kind: EnvKind, base: str, packages: Sequence[str], timeout_s: float) -> Installed:
    folder = environments_folder() / kind.name
    _remove(folder)
    failure = f"{base} cannot make a virtual environment in {folder}"
    _run([base, "-m", "venv", str(folder)], failure, timeout_s)
    program = str(_program(folder))
    requirements = [*kind.requires, *packages]
    # `pip` without any package is an error, so an empty batch is left out.
    for batch in filter(None, (list(kind.first), requirements)):
        pip = [program, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        _run([*pip, *batch], f"pip cannot install {' '.join(batch)}", timeout_s)
    failure = f"pip of {folder} cannot list the installed packages"
    pip_list = _run([program, "-m", "pip", "list", "--format=json"], failure, timeout_s)
    # Only the JSON array is read, whatever follows it.
    packages_json = pip_list.partition("]")[0] + "]"
    installed_packages = msgspec.json.decode(packages_json, type=list[dict[str, str]])
    # Clashes among packages are recorded for the user to see, and are no error.
    failure = f"pip of {folder} cannot check the installed packages"
    check = _finished([program, "-m", "pip", "check"], failure, timeout_s)
    version = _run(
        [program, "-c", "import platform; print(platform.python_version())"],
        f"{program} does not tell its version",
        timeout_s,
    )
    record = Installed(
        kind=kind.name,
        python=version.strip(),
        requirements=requirements,
        packages={package["name"]: package["version"] for package in installed_packages},
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
        others = ", ".join(installed_kinds()) or "nothing"
        raise ConfigError(
            f"no environment of {kind!r} is installed in {folder.parent}, where there is {others}"
        )
    with _alone(folder):
        _remove(folder)


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keep other processes from changing an environment; the lock ends with this process.

    Two processes that installed one kind at once could leave a record of packages that the other
    process has removed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The lock is a file beside the folder, because installing and removing delete the folder.
    lock_path = folder.with_name(f".{folder.name}.lock")
    with lock_path.open("a") as file:
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
        # The record goes first: a removal that breaks off then leaves an unfinished environment,
        # and not a broken one that counts as installed.
        (folder / _RECORD).unlink()
        shutil.rmtree(folder)
    if folder.exists():  # there was no record
        shutil.rmtree(folder)


def _base(kind: EnvKind, python: str) -> str:
    """Return the interpreter to make the environment with."""
    if python:
        return python_program(python)
    preferred = next(filter(None, map(find_python, kind.prefers)), None)
    if preferred is None and kind.prefers:
        warnings.warn(
            f"{kind.name} works best with Python {' or '.join(kind.prefers)}, and none was found: "
            f"Python {sys.version.split()[0]} is taken",
            stacklevel=3,
        )
    return preferred or sys.executable


def _program(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(command: list[str], failure: str, timeout_s: float) -> str:
    """Return what a command prints; an error's message begins with `failure`."""
    result = _finished(command, failure, timeout_s)
    if result.returncode:
        # The error becomes one line (decision 0105), so only the last lines are quoted.
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line or "error" in line]
        reason = " | ".join(lines[-4:] or result.stderr.strip().splitlines()[-3:])
        raise ConfigError(f"{failure}: {reason[-900:]}")
    return result.stdout


def _finished(
    command: list[str], failure: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to the end, whatever the exit status.

    Raises:
        ConfigError: it cannot be run, or is late; the message begins with `failure`.
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # compilers of pip's write in any encoding
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{failure}: {error}") from error
