"""The files that `ludus new` writes, as templates in which `${package}` stands for a name."""

from __future__ import annotations

from string import Template
from typing import Protocol

from ludus import __version__


class Named(Protocol):
    """The names that a skeleton is filled with; see `PackageNames`."""

    @property
    def id(self) -> str: ...
    @property
    def distribution(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def classname(self) -> str: ...


def files(kind: str, names: Named, peer: str = "") -> dict[str, str]:
    """Write the files of a package.

    Args:
        kind: `env` or `verifier`.
        names: the names of the package and its parts.
        peer: `verifiers` for an environment that verifiers finds too; empty for none.

    Returns:
        path in the package -> text.
    """
    is_env = kind == "env"
    source, module = f"src/{names.package}", names.module
    words = {
        "id": names.id,
        "distribution": names.distribution,
        "package": names.package,
        "module": module,
        "classname": names.classname,
        "factory": names.classname if is_env else module,
        "group": "envs" if is_env else "verifiers",
        "kind": "An environment" if is_env else "A verifier",
        "ludus": f"ludus-rl[{peer}]" if peer else "ludus-rl",
        "version": __version__,
        "use": f"play {names.id}" if is_env else f"score {names.id} --gold 42 --answer 42",
    }
    init = INIT_FOR_VERIFIERS if is_env and peer else INIT
    templates = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        ".gitignore": "__pycache__/\n*.egg-info/\ndist/\n",
        f"{source}/py.typed": "",
        f"{source}/__init__.py": init,
        f"{source}/{module}.py": ENV if is_env else VERIFIER,
        f"tests/test_{module}.py": ENV_TEST if is_env else VERIFIER_TEST,
    }
    if is_env and peer:
        templates["tests/test_verifiers.py"] = TEST_FOR_VERIFIERS
    return {path: Template(text).substitute(words) for path, text in templates.items()}


PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "${distribution}"
version = "0.1.0"
description = "${kind} for ludus."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["${ludus}>=${version}"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[project.entry-points."ludus.${group}"]  # this is how ludus finds it once it is installed
"${id}" = "${package}.${module}:${factory}"

[tool.hatch.build.targets.wheel]
packages = ["src/${package}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

INIT = '''\
"""${id} for ludus."""

from .${module} import ${factory}

__all__ = ["${factory}"]
'''

INIT_FOR_VERIFIERS = '''\
"""${id} for ludus, and for verifiers: `vf-eval ${package} -n 8`."""

from typing import Any

from .${module} import ${classname}

__all__ = ["${classname}", "Env", "Taskset"]


def __getattr__(name: str) -> Any:
    """Make the two classes that verifiers asks for; nothing else of this package needs it."""
    if name not in ("Env", "Taskset"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ludus.integrations.verifiers import verifiers_plugin

    globals()["Taskset"], globals()["Env"] = verifiers_plugin("${id}")
    return globals()[name]
'''

TEST_FOR_VERIFIERS = """\
import pytest

import ${package}


def test_verifiers_finds_the_environment() -> None:
    loaders = pytest.importorskip("verifiers.v1.utils.loaders")
    assert loaders.taskset_class("${package}") is ${package}.Taskset
    assert loaders.environment_class("${package}") is ${package}.Env
"""

README = """\
# ${distribution}

`${id}`: say here what it is.

```
pip install -e .[dev]
pytest
ludus check ${id}
ludus ${use}
ludus serve ${id}
```

The code is `src/${package}/${module}.py`; the line in `pyproject.toml` under
`[project.entry-points]` is how ludus finds it.
"""

ENV = '''\
"""`${id}`: say a number in words."""

from __future__ import annotations

from typing import Any

import ludus

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class ${classname}(ludus.TextEnv):
    """Spell the digits of a number.

    Args:
        digits: how many.
    """

    system_prompt = "Spell the digits you are given."
    answer_format = "Words with one space between them, such as: four two"
    max_turns = 1

    def __init__(self, digits: int = 4) -> None:
        self.digits = digits
        self.number = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Show the digits. All chance comes from `self.rng`, so the task fixes the episode."""
        self.number = "".join(str(self.rng.randrange(10)) for _ in range(self.digits))
        return self.number, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Reward 1 for the right words; the episode is over."""
        right = action.split() == self.gold().split()
        return "", float(right), True, False, {}

    def gold(self) -> str:
        """The answer; `ludus check` sees to it that it is not shown."""
        return " ".join(WORDS[int(digit)] for digit in self.number)

    def demonstrate(self) -> str:
        """What an expert says now."""
        return self.gold()
'''

ENV_TEST = """\
import ludus

from ${package} import ${classname}


def test_it_keeps_the_contract() -> None:
    ludus.check_env(${classname}, max_return=1.0)


def test_the_right_words_earn_the_reward() -> None:
    env = ludus.make(${classname}(digits=2))
    digits, _ = env.reset(seed=0)
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert env.step(" ".join(words[int(digit)] for digit in digits))[1] == 1.0


def test_digits_are_not_words() -> None:
    env = ludus.make(${classname}())
    digits, _ = env.reset(seed=0)
    assert env.step(digits)[1] == 0.0
"""

VERIFIER = '''\
"""`${id}`: the answer is the gold number."""

from __future__ import annotations

import ludus


def ${module}(sample: ludus.Sample) -> ludus.Verdict:
    """1 if the last word of the response is the gold number.

    What the policy wrote is never our fault: a wrong or empty answer is an ok verdict with reward
    0. A gold that cannot be used is `invalid`, and carries no reward at all.
    """
    gold = number(str(sample.gold))
    if gold is None:
        return ludus.Verdict.invalid(f"the gold must be a number, got {sample.gold!r:.80}")
    words = sample.text.split()
    said = number(words[-1]) if words else None
    if said is None:
        return ludus.Verdict.of(0.0, "the last word is not a number")
    return ludus.Verdict.of(float(said == gold), f"read {said:g}")


def number(text: str) -> float | None:
    """A number, or None."""
    try:
        return float(text.rstrip("."))
    except ValueError:
        return None
'''

VERIFIER_TEST = """\
import ludus

from ${package} import ${module}


def verdict(response: str, gold: object) -> ludus.Verdict:
    return ${module}(ludus.Sample(response=response, gold=gold))


def test_it_keeps_the_contract() -> None:
    right = ludus.Sample(response="It is 42.", gold="42")
    ludus.check_verifier(${module}, cases=[right])


def test_a_right_answer_earns_the_reward() -> None:
    assert verdict("so it is 42.", 42).reward == 1.0


def test_a_wrong_answer_is_a_verdict_of_zero() -> None:
    assert verdict("41", 42).reward == 0.0


def test_a_gold_that_is_no_number_is_no_reward() -> None:
    assert verdict("42", "forty-two").status == "invalid"
"""
