"""`ludus new`: write a package with an environment or a verifier that works and has tests."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import tyro

from ludus import __version__
from ludus.errors import ConfigError

from .arguments import VerbHelp, parse

SKELETONS = Path(__file__).with_name("skeletons")
JUDGE = """ludus mock-judge --port 9000 &     # a judge to try with; a model of yours comes later
export JUDGE_URL=http://127.0.0.1:9000/v1
"""
_NAME = re.compile(
    r"(?:(?P<owner>[a-z][a-z0-9-]*)/)?(?P<word>[a-z][a-z0-9]*(?:-[a-z0-9]+)*?)(?P<version>-v\d+)?",
    re.ASCII,
)


@dataclass(frozen=True)
class NewOptions:
    """The options of `ludus new`."""

    kind: Annotated[
        Literal["env", "verifier"], tyro.conf.Positional, tyro.conf.arg(metavar="env|verifier")
    ]
    """What the package holds: an environment or a verifier."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The name to register: me/echo-v0 for an environment, me/exact for a verifier."""
    shape: Annotated[
        Literal["", "tools", "game", "judge", "rows", "code"],
        tyro.conf.arg(name="kind", metavar="KIND"),
    ] = ""
    """What an environment is like: one answer (the default), tools, a game of several turns, a text
    for a judge, rows of a file, or code for the sandbox.
    """
    into: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path()
    """The folder in which the package's own folder is made."""
    peer: Annotated[
        Literal["", "verifiers", "openenv"], tyro.conf.arg(name="for", metavar="PEER")
    ] = ""
    """Another project whose way of finding environments the package follows too: verifiers, which
    prime-rl trains with; openenv, with the manifest that its validator and its hub read.
    """


@dataclass(frozen=True, slots=True)
class PackageNames:
    """The names of a package and of the parts inside, all derived from an id."""

    id: str
    """The registered name, such as me/echo-v0."""
    distribution: str
    """The name of the distribution and of its folder, such as me-echo."""
    package: str
    """The import name of the package, such as me_echo."""
    module: str
    """The module inside the package, such as echo."""
    classname: str
    """The class of an environment, such as Echo."""


def main(arguments: Sequence[str]) -> int:
    """Write the package and say what to do next; returns 0."""
    options = parse(
        NewOptions,
        arguments,
        VerbHelp(
            verb="new",
            about="Write a package with an environment or a verifier that works and is tested.",
            example="ludus new env me/echo-v0",
        ),
    )
    names = names_of(options.name, options.kind)
    if options.peer and options.kind != "env":
        raise ConfigError(f"--for {options.peer} is for environments: ludus new env me/echo-v0")
    if options.shape and (options.kind != "env" or options.peer):
        raise ConfigError(f"--kind {options.shape} is for an environment without --for")
    folder = options.into / names.distribution
    write(folder, files(options.kind, names, options.peer, options.shape))
    print(
        f"wrote {folder}\n\nnext:\n"
        f"  pip install -e {folder}\n"
        f"  pytest {folder}\n"
        + ("  ludus mock-judge --port 9000 &\n" if options.shape == "judge" else "")
        + ("  export JUDGE_URL=http://127.0.0.1:9000/v1\n" if options.shape == "judge" else "")
        + f"  ludus check {names.id}\n"
        f"  ludus {use_of(options.kind, names)}"
        + {
            "verifiers": f"\n  vf-eval {names.package} -n 8",
            "openenv": f"\n  openenv validate {folder}",
        }.get(options.peer, "")
    )
    return 0


def names_of(name: str, kind: str) -> PackageNames:
    """Derive the names of a package from the `name` to register.

    Raises:
        ConfigError: the name does not have the form of its `kind`, or makes no Python module.
    """
    match = _NAME.fullmatch(name)
    example = "me/echo-v0" if kind == "env" else "me/exact"
    if match is None:
        raise ConfigError(
            f"name {name!r} must be 'owner/word' of lower-case letters, digits and -, such as "
            f"{example!r}"
        )
    if bool(match["version"]) != (kind == "env"):
        rule = "ends in -vN" if kind == "env" else "has no -vN, which names an environment"
        thing = "an environment" if kind == "env" else "a verifier"
        raise ConfigError(f"name {name!r}: the name of {thing} {rule}, such as {example!r}")
    module = match["word"].replace("-", "_")
    distribution = "-".join(part for part in (match["owner"], match["word"]) if part)
    package = distribution.replace("-", "_")
    classname = "".join(part.capitalize() for part in match["word"].split("-"))
    for kind_of_name, given in (("module", module), ("class", classname if kind == "env" else "")):
        if keyword.iskeyword(given):
            raise ConfigError(
                f"name {name!r} gives the Python {kind_of_name} {given!r}, a word of the language; "
                "choose another"
            )
    if package in sys.stdlib_module_names or package.partition("_")[0] == "ludus":
        raise ConfigError(
            f"name {name!r} gives the Python package {package!r}, which Python or ludus has "
            "already; choose another"
        )
    return PackageNames(name, distribution, package, module, classname)


def use_of(kind: str, names: PackageNames) -> str:
    """Return the command that first uses what the package holds."""
    return f"play {names.id}" if kind == "env" else f"score {names.id} --gold 42 --answer 42"


def files(kind: str, names: PackageNames, peer: str = "", shape: str = "") -> dict[str, str]:
    """Fill in the templates of `skeletons/`, in which `${package}` stands for a name.

    Args:
        kind: `env` or `verifier`.
        names: the names of the package and its parts.
        peer: the project that finds an environment too, as `NewOptions.peer`; empty for none.
        shape: what an environment is like; empty for a single answer.

    Returns:
        path in the package -> text.
    """
    is_env = kind == "env"
    source, module = f"src/{names.package}", names.module
    words = {
        **asdict(names),
        "factory": names.classname if is_env else module,
        "group": "envs" if is_env else "verifiers",
        "kind": "An environment" if is_env else "A verifier",
        "ludus": f"ludus-rl[{peer}]" if peer == "verifiers" else "ludus-rl",
        "version": __version__,
        "use": use_of(kind, names),
        "judge": JUDGE if shape == "judge" else "",
    }
    init = "init_for_verifiers.py" if is_env and peer == "verifiers" else "init.py"
    templates = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{source}/__init__.py": init,
        f"{source}/{module}.py": "env.py" if is_env else "verifier.py",
        f"tests/test_{module}.py": "env_test.py" if is_env else "verifier_test.py",
    }
    if shape:
        templates[f"{source}/{module}.py"] = f"env_{shape}.py"
        test = "env_judge_test.py" if shape == "judge" else "env_kind_test.py"
        templates[f"tests/test_{module}.py"] = test
    if shape == "rows":
        templates[f"{source}/rows.jsonl"] = "rows.jsonl"
    if is_env and peer == "verifiers":
        templates["tests/test_verifiers.py"] = "test_for_verifiers.py"
    if is_env and peer == "openenv":
        templates |= {name: name for name in ("openenv.yaml", "Dockerfile")}
        templates["validation/runtime.json"] = "runtime.json"
    written = {
        path: Template((SKELETONS / f"{name}.txt").read_text(encoding="utf-8")).substitute(words)
        for path, name in templates.items()
    }
    unnamed = {".gitignore": "__pycache__/\n*.egg-info/\ndist/\n", f"{source}/py.typed": ""}
    return written | unnamed


def write(folder: Path, texts: dict[str, str]) -> None:
    """Write `texts`, by path, into the new `folder`.

    Raises:
        ConfigError: the folder exists already, or cannot be written.
    """
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} exists and is left as it is; choose another --into")
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename!r}: {error.strerror}") from error
