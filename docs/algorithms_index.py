"""Write docs/algorithms_index.md from what `ludus.trainer.algorithms` exports.

    python docs/algorithms_index.py

Every function by kind: its first sentence, the source its docstring names, and how far it has come:
a function only, a step of an optimizer in a test, a run, a learning curve. That is counted from the
code by `Reach`, and not said by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType

from ludus.trainer import algorithms
from ludus.trainer.recipes.recipe import load_recipe, policy_names, read_policy, recipe_names
from ludus.trainer.recipes.resolution import resolve

PAGE = Path(__file__).with_name("algorithms_index.md")
KINDS = {
    "advantages": "Advantages",
    "surrogates": "Surrogate losses",
    "preferences": "Preference losses",
    "corrections": "Corrections and filters",
    "aggregation": "Aggregation",
    "kl": "KL divergence",
    "entropy": "Entropy",
    "value": "Value head",
    "sampling": "Sampling",
    "shaping": "Reward shaping",
    "groups": "Group statistics",
    "masked": "Masked statistics",
}
HEAD = """\
# Index of the algorithm library

Written by `python docs/algorithms_index.py` from the docstrings; the pictures are in
[algorithms.md](algorithms.md). A source is a number at arXiv, where there is one; the docstring has
the equation and what differs. "Reached" is counted from the code, calls within the library
included, and says the furthest of:

- *learning curve*: by a recipe whose runs are in the table of [algorithms.md](algorithms.md), or by
  a claim whose runs are in [claims.md](claims.md);
- *run*: by another shipped recipe, the trainer, an example or a benchmark;
- *step test*: by a test that makes updates of a model with it;
- *function only*: by its own example, its function tests, or nothing.

{counts}
"""
ROOT = PAGE.parents[1]
LIBRARY = "trainer/algorithms"
LEVELS = ("learning curve", "run", "step test", "function only")
USERS = {"trainer": False, "rewards": False, "examples": True, "benchmarks": True}
"""Folders whose code runs functions of the library, and whether a quoted name counts: in the
trainer's checks names are quoted of functions that nothing calls.
"""
UPDATES = re.compile(
    r"learning\.update import .*Updater|ludus\.trainer import .*Trainer"
    r"|learning\.learner import .*Learner"
)
"""What a test imports that makes updates of a model."""
OPTIONS = "test_recipe_options"
"""The test that puts every function which a recipe can name into one; it lists the others."""
TABLE, TABLE_END = "<!-- learning table", "<!-- end of the learning table"
SHOWN = 2
"""How many are named that reach a function."""


def render() -> str:
    """The whole page."""
    reach = Reach()
    levels = Counter(reach.of(name)[0] for name in _functions())
    counts = "; ".join(f"{level} {levels[level]}" for level in LEVELS)
    parts = [HEAD.format(counts=f"Of {len(_functions())} functions: {counts}.")]
    for kind, title in KINDS.items():
        found = [name for name in sorted(algorithms.__all__) if _kind(name) == kind]
        if found:
            rows = "\n".join(_row(name, reach) for name in found)
            head = "| function | what it is | source | reached |\n|---|---|---|---|"
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


def _row(name: str, reach: Reach) -> str:
    text = inspect.getdoc(_functions()[name]) or ""
    summary = " ".join(text.split("\n\n")[0].split())
    source = re.search(r"^Source: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    cited = _papers(" ".join(source[1].split())) if source else ""
    level, by = reach.of(name)
    shown = f"{level}: {', '.join(by[:SHOWN])}" if by else level
    more = f" and {len(by) - SHOWN} more" if len(by) > SHOWN else ""
    return f"| `{name}` | {_cell(summary)} | {_cell(cited)} | {shown}{more} |"


def _papers(source: str) -> str:
    """Return the numbers that a source has at arXiv; without any, the source."""
    return ", ".join(dict.fromkeys(re.findall(r"\b\d{4}\.\d{5}\b", source))) or source


class Reach:
    """Who reaches the functions of the library, found in the code."""

    def __init__(self) -> None:
        self._calls = _calls_within()
        page = PAGE.with_name("algorithms.md").read_text(encoding="utf-8")
        table = page[page.index(TABLE) : page.index(TABLE_END)]
        recipes = {name: self._closure(names) for name, names in _of_recipes().items()}
        curved = {name for name in recipes if re.search(rf"^\\| {name} ", table, re.MULTILINE)}
        users = {
            folder: self._closure(_used_in(folder, strings=strings))
            for folder, strings in USERS.items()
        }
        tests = {path.stem: self._closure(_stepped_in(path)) for path in _tests_of_updates()}
        claimed = {"claims": self._closure(_of_claims())}
        self._by_level = {
            "learning curve": {name: recipes[name] for name in sorted(curved)} | claimed,
            "run": {name: recipes[name] for name in sorted(set(recipes) - curved)} | users,
            "step test": tests,
        }

    def of(self, name: str) -> tuple[str, list[str]]:
        """Return how far a function has come, and by whom."""
        for level, reached in self._by_level.items():
            if by := [who for who, names in reached.items() if name in names]:
                return level, by
        return LEVELS[-1], []

    def _closure(self, names: Iterable[str]) -> set[str]:
        """Return the names with everything of the library that they call."""
        reached, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._calls.get(name, ())
        return reached


def _of_recipes() -> dict[str, set[str]]:
    """Return the functions that each recipe names."""
    named: dict[str, set[str]] = {}
    for recipe in recipe_names():
        # any length will do to learn the names
        made = resolve(load_recipe(recipe), max_tokens=1)
        bound = [made.advantage_fn, made.loss_fn, made.agg, made.weights_fn, made.group_filter]
        bound += [*made.filters, *[function for _, function in made.shaping]]
        named[recipe] = {one.name for one in bound if one is not None}
    return named


def _of_claims() -> set[str]:
    """Return the functions that the published claims train with: those that they name, and those of
    the sampling policies that they name; nothing while a claim is open.
    """
    page = PAGE.with_name("claims.md")
    if not page.exists() or "| open:" in page.read_text(encoding="utf-8"):
        return set()
    quoted = set[str]()
    for path in (ROOT / "benchmarks").glob("claims_*.py"):
        quoted |= _names_in(path, strings=True)
    for name in quoted & set(policy_names()):
        quoted |= set(re.findall(r"\w+", str(read_policy(name))))
    return quoted


def _calls_within() -> dict[str, set[str]]:
    """Return what each function and constant of the library, private ones included, reads."""
    calls: dict[str, set[str]] = {}
    for path in sorted((ROOT / LIBRARY).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            read = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    calls.setdefault(name, set()).update(read)
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    calls.setdefault(name, set()).update(read - {name})
                case _:
                    pass
    return calls


def _used_in(folder: str, *, strings: bool) -> set[str]:
    """Return the functions of the library that the code of a folder uses."""
    used = set[str]()
    for path in sorted((ROOT / folder).rglob("*")):
        inside = path.is_relative_to(ROOT / LIBRARY)
        if path.suffix == ".py" and not inside:
            used |= _names_in(path, strings=strings)
        elif path.suffix == ".toml" and strings:
            used |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return used


def _tests_of_updates() -> list[Path]:
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in tests if UPDATES.search(path.read_text(encoding="utf-8"))]


def _stepped_in(path: Path) -> set[str]:
    """Return the functions that a test makes updates with: those it puts into recipes, by name."""
    if path.stem == OPTIONS:
        spec = spec_from_file_location(OPTIONS, path)
        assert spec is not None
        assert spec.loader is not None
        options = module_from_spec(spec)
        spec.loader.exec_module(options)
        return {name for name, _, _ in options.CASES} - set(options.REFUSED)
    quoted = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    constants = [node.value for node in quoted if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str)}


def _names_in(path: Path, *, strings: bool) -> set[str]:
    """Return the names that a module takes from the library, and with `strings` what it quotes."""
    names = set[str]()
    modules = {"algorithms"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=module) if module and "algorithms" in module.split("."):
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                modules |= {a.asname for a in node.names if a.name == "algorithms" and a.asname}
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in modules:
                names.add(name)
            case ast.Constant(value=str(text)) if strings:
                names.add(text)
            case _:
                pass
    return names


def _cell(text: str) -> str:
    # a bar would end the cell, and KL(pi || ref) has two
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
