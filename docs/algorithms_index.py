"""Write docs/algorithms_index.md from what `ludus.trainer.algorithms` exports.

    python docs/algorithms_index.py

Every function by kind: its first sentence, the source its docstring names, and what runs it: the
recipes that name it, the trainer itself, or else the tests that call it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType

from ludus.trainer import algorithms
from ludus.trainer.recipes import load_recipe, recipe_names, resolve

PAGE = Path(__file__).with_name("algorithms_index.md")
KINDS = {
    "advantages": "Advantages",
    "surrogates": "Surrogate losses",
    "corrections": "Corrections and filters",
    "aggregation": "Aggregation",
    "kl": "KL divergence",
    "entropy": "Entropy",
    "value": "Value head",
    "sampling": "Sampling",
    "shaping": "Reward shaping",
    "groups": "Group statistics",
    "masked": "Masked statistics",
    "experimental": "Experimental: as read, in no recipe",
}
HEAD = """\
# Index of the algorithm library

Written by `python docs/algorithms_index.py` from the docstrings; the pictures are in
[algorithms.md](algorithms.md). "Run by" names the recipes, or else "trainer" (it is called whatever
the recipe, or when one of yours names it), or else the tests. A function that only others of the
library call says which. What a recipe can name is besides run option by option by
`tests/contract/test_recipe_options.py`.
"""
ROOT = PAGE.parents[1]


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind, title in KINDS.items():
        found = [name for name in sorted(algorithms.__all__) if _kind(name) == kind]
        if found:
            rows = "\n".join(_row(name) for name in found)
            head = "| function | what it is | source | run by |\n|---|---|---|---|"
            parts.append(f"## {title}\n\n{head}\n{rows}\n")
    return "\n".join(parts)


def _functions() -> dict[str, Callable[..., object]]:
    every = {name: getattr(algorithms, name) for name in algorithms.__all__}
    return {name: each for name, each in every.items() if isinstance(each, FunctionType)}


def _kind(name: str) -> str:
    function = _functions().get(name)
    if function is None:
        return ""
    return function.__module__.removeprefix(algorithms.__name__ + ".").partition(".")[0]


def _row(name: str) -> str:
    text = inspect.getdoc(_functions()[name]) or ""
    summary = " ".join(text.split("\n\n")[0].split())
    source = re.search(r"^Source: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    cited = " ".join(source[1].split()) if source else ""
    return f"| `{name}` | {_cell(summary)} | {_cell(cited)} | {', '.join(run_by(name))} |"


def run_by(name: str) -> list[str]:
    """What runs a function: recipes, the trainer, tests, or other functions of the library."""
    if recipes := [recipe for recipe, names in _of_recipes().items() if name in names]:
        return recipes
    if any(_names(name, text) for text in _texts("trainer", without="trainer/algorithms")):
        return ["trainer"]
    tests = ROOT / "tests"
    calls = re.compile(rf"\.{name}\b|\b{name}\(")
    # Other parts of ludus have modules and functions of the same names, such as `clip`.
    texts = {path: _text(path) for path in sorted(tests.rglob("test_*.py"))}
    own = {path: text for path, text in texts.items() if "algorithms" in text}
    found = [path.stem for path, text in own.items() if calls.search(text)]
    if found:
        return found
    callers = [other for other in sorted(_functions()) if other != name and _calls(other, name)]
    return [f"`{caller}`" for caller in callers] or ["nothing yet but its own example"]


@cache
def _of_recipes() -> dict[str, set[str]]:
    """The functions that each recipe names."""
    found: dict[str, set[str]] = {}
    for recipe in recipe_names():
        # any length will do to learn the names
        made = resolve(load_recipe(recipe), max_tokens=1)
        bound = [made.advantage_fn, made.loss_fn, made.agg, made.weights_fn, made.group_filter]
        bound += [*made.filters, *[function for _, function in made.shaping]]
        found[recipe] = {one.name for one in bound if one is not None}
    return found


@cache
def _texts(folder: str, *, without: str) -> tuple[str, ...]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return tuple(_text(path) for path in paths if not path.is_relative_to(ROOT / without))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _names(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\(|\balgorithms\.{name}\b", text) is not None


def _calls(caller: str, name: str) -> bool:
    return re.search(rf"\b{name}\(", inspect.getsource(_functions()[caller])) is not None


def _cell(text: str) -> str:
    # a bar would end the cell, and KL(pi || ref) has two
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
