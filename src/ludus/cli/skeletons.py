"""The files that `ludus new` writes, with a function for each, so that the text reads as
written.
"""

from __future__ import annotations

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
    source = f"src/{names.package}"
    common = {
        "pyproject.toml": _pyproject(kind, names, peer),
        "README.md": _readme(kind, names),
        ".gitignore": "__pycache__/\n*.egg-info/\ndist/\n",
        f"{source}/py.typed": "",
    }
    if kind == "env":
        return common | {
            f"{source}/__init__.py": (
                _verifiers_init(names) if peer else _init(names, names.classname)
            ),
            f"{source}/{names.module}.py": _env(names),
            f"tests/test_{names.module}.py": _env_test(names),
            **({"tests/test_verifiers.py": _verifiers_test(names)} if peer else {}),
        }
    return common | {
        f"{source}/__init__.py": _init(names, names.module),
        f"{source}/{names.module}.py": _verifier(names),
        f"tests/test_{names.module}.py": _verifier_test(names),
    }


def _pyproject(kind: str, names: Named, peer: str) -> str:
    ludus = f"ludus-rl[{peer}]" if peer else "ludus-rl"
    group, factory = ("envs", names.classname) if kind == "env" else ("verifiers", names.module)
    kind_text = "An environment" if kind == "env" else "A verifier"
    return f'''\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{names.distribution}"
version = "0.1.0"
description = "{kind_text} for ludus."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["{ludus}>={__version__}"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[project.entry-points."ludus.{group}"]  # this is how ludus finds it once it is installed
"{names.id}" = "{names.package}.{names.module}:{factory}"

[tool.hatch.build.targets.wheel]
packages = ["src/{names.package}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
'''


def _init(names: Named, factory: str) -> str:
    return f'''\
"""{names.id} for ludus."""

from .{names.module} import {factory}

__all__ = ["{factory}"]
'''


def _verifiers_init(names: Named) -> str:
    return f'''\
"""{names.id} for ludus, and for verifiers: `vf-eval {names.package}`."""

from typing import Any

from .{names.module} import {names.classname}

__all__ = ["{names.classname}", "Env", "Taskset"]


def __getattr__(name: str) -> Any:
    """Make the two classes that verifiers asks for; nothing else of this package needs it."""
    if name not in ("Env", "Taskset"):
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    from ludus.integrations.verifiers import verifiers_plugin

    globals()["Taskset"], globals()["Env"] = verifiers_plugin("{names.id}")
    return globals()[name]
'''


def _verifiers_test(names: Named) -> str:
    return f"""\
import pytest

import {names.package}


def test_verifiers_finds_the_environment() -> None:
    loaders = pytest.importorskip("verifiers.v1.utils.loaders")
    assert loaders.taskset_class("{names.package}") is {names.package}.Taskset
    assert loaders.environment_class("{names.package}") is {names.package}.Env
"""


def _readme(kind: str, names: Named) -> str:
    use = (
        f"ludus play {names.id}\nludus serve {names.id}"
        if kind == "env"
        else f"ludus score {names.id} --gold 42 --answer 42\nludus serve {names.id}"
    )
    return f"""\
# {names.distribution}

`{names.id}`: say here what it is.

```
pip install -e .[dev]
pytest
ludus check {names.id}
{use}
```

The code is `src/{names.package}/{names.module}.py`; the line in `pyproject.toml` under
`[project.entry-points]` is how ludus finds it.
"""


def _env(names: Named) -> str:
    return f'''\
"""`{names.id}`: say a number in words."""

from __future__ import annotations

from typing import Any

import ludus

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class {names.classname}(ludus.TextEnv):
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
        return self.number, {{}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Reward 1 for the right words; the episode is over."""
        right = action.split() == self.gold().split()
        return "", float(right), True, False, {{}}

    def gold(self) -> str:
        """The answer; `ludus check` sees to it that it is not shown."""
        return " ".join(WORDS[int(digit)] for digit in self.number)

    def demonstrate(self) -> str:
        """What an expert says now."""
        return self.gold()
'''


def _env_test(names: Named) -> str:
    return f"""\
import ludus

from {names.package} import {names.classname}


def test_it_keeps_the_contract() -> None:
    ludus.check_env({names.classname}, max_return=1.0)


def test_the_right_words_earn_the_reward() -> None:
    env = ludus.make({names.classname}(digits=2))
    digits, _ = env.reset(seed=0)
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert env.step(" ".join(words[int(digit)] for digit in digits))[1] == 1.0


def test_digits_are_not_words() -> None:
    env = ludus.make({names.classname}())
    digits, _ = env.reset(seed=0)
    assert env.step(digits)[1] == 0.0
"""


def _verifier(names: Named) -> str:
    return f'''\
"""`{names.id}`: the answer is the gold number."""

from __future__ import annotations

import ludus


def {names.module}(sample: ludus.Sample) -> ludus.Verdict:
    """1 if the last word of the response is the gold number.

    What the policy wrote is never our fault: a wrong or empty answer is an ok verdict with reward
    0. A gold that cannot be used is `invalid`, and carries no reward at all.
    """
    gold = number(str(sample.gold))
    if gold is None:
        return ludus.Verdict.invalid(f"the gold must be a number, got {{sample.gold!r:.80}}")
    words = sample.text.split()
    said = number(words[-1]) if words else None
    if said is None:
        return ludus.Verdict.of(0.0, "the last word is not a number")
    return ludus.Verdict.of(float(said == gold), f"read {{said:g}}")


def number(text: str) -> float | None:
    """A number, or None."""
    try:
        return float(text.rstrip("."))
    except ValueError:
        return None
'''


def _verifier_test(names: Named) -> str:
    return f"""\
import ludus

from {names.package} import {names.module}


def verdict(response: str, gold: object) -> ludus.Verdict:
    return {names.module}(ludus.Sample(response=response, gold=gold))


def test_it_keeps_the_contract() -> None:
    right = ludus.Sample(response="It is 42.", gold="42")
    ludus.check_verifier({names.module}, cases=[right])


def test_a_right_answer_earns_the_reward() -> None:
    assert verdict("so it is 42.", 42).reward == 1.0


def test_a_wrong_answer_is_a_verdict_of_zero() -> None:
    assert verdict("41", 42).reward == 0.0


def test_a_gold_that_is_no_number_is_no_reward() -> None:
    assert verdict("42", "forty-two").status == "invalid"
"""
