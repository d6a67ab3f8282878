"""Interpreters of other versions are found where people keep them."""

import dataclasses
import platform
import sys
import warnings
from pathlib import Path

import pytest

from ludus.envs.outside import home
from ludus.envs.outside.home import find_python, python_program
from ludus.errors import ConfigError

from .conftest import PEER  # pyright: ignore

OURS = platform.python_version()
MINOR = ".".join(OURS.split(".")[:2])


def program(place: Path, text: str) -> None:
    """Write a program."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing but what a test puts there."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))


def test_a_shim_that_fails_is_passed_over_for_pyenvs_own(tmp_path: Path) -> None:
    program(tmp_path / "bin" / f"python{MINOR}", "echo 'command not found' >&2; exit 127")
    kept = tmp_path / "pyenv" / "versions" / OURS / "bin" / "python"
    program(kept, f'exec {sys.executable} "$@"')
    assert find_python(MINOR) == str(kept)
    assert python_program(f"python{MINOR}") == str(kept)


def test_the_interpreters_of_uv_are_found(tmp_path: Path) -> None:
    kept = tmp_path / "of uv" / "python"
    program(kept, f'exec {sys.executable} "$@"')
    program(
        tmp_path / "bin" / "uv",
        f'[ "$*" = "python find --no-project --offline {OURS}" ] && echo "{kept}"',
    )
    assert find_python(OURS) == str(kept)


def test_another_version_in_a_folder_of_this_name_is_no_answer(tmp_path: Path) -> None:
    program(
        tmp_path / "pyenv" / "versions" / "3.99.1" / "bin" / "python", f'exec {sys.executable} "$@"'
    )
    assert find_python("3.99") is None
    assert find_python("3.9") is None or find_python("3.9") != find_python("3.99")


def test_a_program_that_writes_no_text_is_no_interpreter(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.99", r"printf '\377'")
    assert find_python("3.99") is None


def test_a_version_that_is_nowhere_is_told_with_the_places() -> None:
    with pytest.raises(ConfigError, match=r"no Python 3\.99 .* PATH, in .*pyenv.*uv python find"):
        python_program("3.99")


def test_a_kind_that_prefers_what_is_not_here_says_so() -> None:
    kind = dataclasses.replace(PEER, prefers=("3.99", "3.98"))
    with pytest.warns(UserWarning, match=r"peer works best with Python 3\.99 or 3\.98, and none"):
        assert home._base(kind, "") == sys.executable  # pyright: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert home._base(PEER, "") == sys.executable  # pyright: ignore
