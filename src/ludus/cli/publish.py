"""`ludus env publish`: a package with environments, checked as others will install it, with a lock.

The lock is a file of pip constraints: the versions of everything that the environment was checked
with, and above them, as comments, the environments, the wheel and its digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import tyro

from ludus.errors import CheckFailed, ConfigError

from .arguments import Flag, VerbHelp, parse

ENTRY_POINTS = "ludus.envs"
STEP_TIMEOUT_S = 600.0
"""Seconds that pip, git and each check may take."""
LOCK_FILE = "ludus-env.lock"
"""The lock in a git remote; beside a wheel it has the wheel's name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFT_OUT = shutil.ignore_patterns(
    ".git", "__pycache__", "*.egg-info", "dist", "build", ".venv", "*.pyc", ".pytest_cache"
)


@dataclass(frozen=True)
class PublishOptions:
    """The options of `ludus env publish`."""

    package: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """The folder of the package, as `ludus new env` writes it."""
    to: Annotated[str, tyro.conf.arg(metavar="DESTINATION")]
    """A folder, which gets the wheel and its lock; or a git remote (ssh://..., git@..., https://...,
    PATH.git), which gets the sources, the lock and a tag of the version.
    """
    skip_check: Flag = False
    """Publish without `ludus check`."""


@dataclass(frozen=True)
class EnvPackage:
    """A package with environments."""

    folder: Path
    name: str
    version: str
    ids: tuple[str, ...]
    """The environments that its entry points name."""
    backend: str
    """The module that builds it."""


def main(arguments: Sequence[str]) -> int:
    """Build, check and publish; returns 0."""
    options = parse(
        PublishOptions,
        arguments,
        VerbHelp(
            verb="env publish",
            about="Build a package with environments, check it as others will install it, and put "
            "it with a lock into a folder or a git remote.",
            example="ludus env publish me-echo --to dist",
        ),
    )
    package = read_package(options.package)
    with tempfile.TemporaryDirectory(prefix="ludus-publish-") as place:
        wheel = build(package, Path(place))
        installed = Path(place) / "installed"
        pip("install", "--no-deps", "--target", str(installed), str(wheel))
        if not options.skip_check:
            for env_id in package.ids:
                check(env_id, installed)
        lock = lock_of(package, wheel, installed)
        if is_remote(options.to):
            lines = push(package, options.to, lock, Path(place) / "remote")
        else:
            lines = put(wheel, Path(options.to), lock)
    print("\n".join(lines))
    return 0


def read_package(folder: Path) -> EnvPackage:
    """Read what a package is.

    Raises:
        ConfigError: the folder has no pyproject.toml that names environments.
    """
    file = folder / "pyproject.toml"
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        project = table["project"]
        name, version = str(project["name"]), str(project["version"])
        ids = tuple(project["entry-points"][ENTRY_POINTS])
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{str(file)!r} names no environments: it needs project.name, project.version and "
            f'project.entry-points."{ENTRY_POINTS}", as ludus new env writes them ({error})'
        ) from None
    backend = str(table.get("build-system", {}).get("build-backend", "setuptools.build_meta"))
    return EnvPackage(folder, name, version, ids, backend.partition(":")[0].partition(".")[0])


def build(package: EnvPackage, place: Path) -> Path:
    """Build the wheel.

    Raises:
        ConfigError: pip cannot build it.
    """
    # A backend that is here needs no package index; pip fetches one into an isolated environment.
    here = ["--no-build-isolation"] if find_spec(package.backend) is not None else []
    pip("wheel", "--no-deps", *here, "--wheel-dir", str(place), str(package.folder.absolute()))
    (wheel,) = place.glob("*.whl")
    return wheel


def check(env_id: str, installed: Path) -> None:
    """Hold an environment of the built package to its contract.

    Raises:
        CheckFailed: with what `ludus check` says.
    """
    ran = run([sys.executable, "-m", "ludus", "check", env_id], python_path=installed)
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()
        raise CheckFailed(f"{env_id} is not published: {said}")


def lock_of(package: EnvPackage, wheel: Path, installed: Path) -> str:
    """Return the text of the lock."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (own,) = (Distribution.at(each) for each in installed.glob("*.dist-info"))
    pins = sorted({f"{each.name}=={each.version}" for each in required(own)}, key=str.lower)
    head = [
        "# lock of an environment, 1; pip install --constraint THIS_FILE WHEEL",
        f"# package: {package.name} {package.version}",
        *(f"# environment: {env_id}" for env_id in package.ids),
        f"# wheel: {wheel.name} sha256={digest}",
        f"# contents: {contents_of(wheel)}",
        f"# python: {sys.version_info.major}.{sys.version_info.minor}",
    ]
    return "\n".join([*head, *pins]) + "\n"


def contents_of(wheel: Path) -> str:
    """Return a digest of the files of a wheel, which two builds of the same sources share: the
    wheel itself may have other times.
    """
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as files:
        for name in sorted(files.namelist()):
            if not name.endswith((".dist-info/RECORD", ".dist-info/WHEEL")):
                data = files.read(name)
                digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()


def required(of: Distribution, known: set[str] | None = None) -> Iterator[Distribution]:
    """Yield the distributions of this interpreter that `of` requires, directly or indirectly."""
    seen = set[str]() if known is None else known
    for line in of.requires or ():
        match = _NAME.match(line)
        if match is None or "extra ==" in line or match[0].lower() in seen:
            continue
        seen.add(match[0].lower())
        try:
            requirement = distribution(match[0])
        except PackageNotFoundError:  # for another system or version of Python
            continue
        yield requirement
        yield from required(requirement, seen)


def is_remote(destination: str) -> bool:
    """Say whether a destination is a git remote.

    >>> is_remote("git@host:me/echo.git"), is_remote("https://host/me/echo"), is_remote("dist")
    (True, True, False)
    """
    named = destination.startswith(("ssh://", "git://", "http://", "https://", "git@"))
    return named or destination.rstrip("/").endswith(".git")


def put(wheel: Path, folder: Path, lock: str) -> list[str]:
    """Copy the wheel and the lock into a folder.

    Raises:
        ConfigError: the folder has another wheel of this version, or cannot be written.
    """
    target = folder / wheel.name
    beside = folder / f"{'-'.join(wheel.name.split('-')[:2])}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if beside.exists() and _content(beside.read_text()) != _content(lock):
            raise ConfigError(
                f"{str(beside)!r} locks something else under this version: raise project.version"
            )
        shutil.copy(wheel, target)
        beside.write_text(lock, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error.strerror}") from error
    return [f"wrote {target}", f"wrote {beside}", f"pip install --constraint {beside} {target}"]


def push(package: EnvPackage, remote: str, lock: str, place: Path) -> list[str]:
    """Commit the package with the lock to a git remote, and tag the commit with the version.

    Raises:
        ConfigError: the remote has the version already, or git fails.
    """
    tag = f"v{package.version}"
    git("clone", "--quiet", remote, str(place))
    if git("tag", "--list", tag, folder=place).strip():
        raise ConfigError(f"{remote} has {tag} already: raise project.version")
    for path in place.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(package.folder, place, ignore=_LEFT_OUT, dirs_exist_ok=True)
    (place / LOCK_FILE).write_text(lock, encoding="utf-8")
    git("add", "--all", folder=place)
    git("commit", "--quiet", "-m", f"{package.name} {package.version}", folder=place)
    git("tag", tag, folder=place)
    git("push", "--quiet", "origin", "HEAD", tag, folder=place)
    return [f"pushed {tag} to {remote}", f"pip install '{pip_address(remote)}@{tag}'"]


def pip_address(remote: str) -> str:
    """Return a git remote as an address for pip.

    >>> pip_address("git@host:me/echo.git"), pip_address("https://host/me/echo")
    ('git+ssh://git@host/me/echo.git', 'git+https://host/me/echo')
    """
    if "://" in remote:
        return f"git+{remote}"
    if remote.startswith("git@"):
        return f"git+ssh://{remote.replace(':', '/', 1)}"
    return f"git+file://{Path(remote).absolute()}"


def pip(*arguments: str) -> None:
    """Run pip of this interpreter.

    Raises:
        ConfigError: with its last line.
    """
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    _done(run(command), f"pip {arguments[0]}")


def git(*arguments: str, folder: Path | None = None) -> str:
    """Run git without password prompts; return the output.

    Raises:
        ConfigError: with its last line.
    """
    return _done(run(["git", *arguments], folder=folder), f"git {arguments[0]}")


def run(
    command: Sequence[str], *, folder: Path | None = None, python_path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command within `STEP_TIMEOUT_S`.

    Raises:
        ConfigError: the program is missing, or takes too long.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if python_path is not None:
        paths = [str(python_path), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise ConfigError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{command[0]} has taken more than {STEP_TIMEOUT_S:g} s") from None


def _done(ran: subprocess.CompletedProcess[str], what: str) -> str:
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines() or ["no reason given"]
        raise ConfigError(f"{what} failed: {lines[-1]}")
    return ran.stdout


def _content(lock: str) -> list[str]:
    """Return the lines of a lock without the wheel's digest, which differs between builds."""
    return [line for line in lock.splitlines() if not line.startswith("# wheel")]
