"""Finds interpreters of other versions: on PATH, among pyenv's, and those that uv has installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ludus.errors import ConfigError

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
    return (Path(root).expanduser() if root else Path.home() / ".pyenv") / "versions"


def _runs(program: str, version: str) -> bool:
    """Return whether a program is an interpreter of this version; 3.12 does not count as `3.1`."""
    own_version = _output([program, "-I", "-c", _PROBE])
    return own_version == version or own_version.startswith(version + ".")


def _output(command: list[str]) -> str:
    """Return what a command prints; empty where it fails."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
