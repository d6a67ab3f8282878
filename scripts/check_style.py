"""Check what no linter sees: `make check` runs this.

Fails on circles of imports (inside functions and for type checkers too), on public class names that
are used twice, on attribute docs or docstrings that begin with "Of", and on stray files without a
suffix.

    python scripts/check_style.py
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("agent", "envs", "rewards", "sandboxes", "trainer")
ALLOWED_CIRCLES = {
    ("ludus.errors", "ludus.verdict"): (
        "the error of a reward that is not to be had carries its verdict, and a verdict raises it"
    )
}
"""Circles of imports that stay, each with the reason."""
NO_SUFFIX = {"run", "Dockerfile", "LICENSE", "Makefile"}
"""Names that files have without a suffix."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    style = Style()
    for path in sources():
        style.read(path)
    wrong = [
        *(
            f"import circle: {' -> '.join(circle)}"
            for circle in circles(imports("ludus"))
            if tuple(circle) not in ALLOWED_CIRCLES
        ),
        *(f"class {name} is defined twice: {', '.join(at)}" for name, at in style.twins()),
        *(f'begins with "Of", say what the thing is: {place}' for place in style.begin_with_of),
        *(f"a stray file, remove it: {path}" for path in strays()),
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def sources() -> Iterator[Path]:
    """Every module of the package, each once, although `src/ludus` links to the folders."""
    for folder in (*(ROOT / name for name in FOLDERS), ROOT / "src" / "ludus"):
        for path in sorted(folder.rglob("*.py")):
            if folder.name != "ludus" or path.relative_to(folder).parts[0] not in FOLDERS:
                yield path


def strays() -> Iterator[Path]:
    """Files of the repository without a suffix, such as `python x > big` leaves."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for path in map(Path, filter(None, listed.split("\0"))):
        is_plain = not path.suffix and not path.name.startswith(".")
        if is_plain and path.name not in NO_SUFFIX and not (ROOT / path).is_symlink():
            yield path


def imports(package: str) -> dict[str, set[str]]:
    """Which modules of `package` each module imports, anywhere in it: inside functions and for type
    checkers too, since a circle that hides there still has to be read as one.

    What runs when a module is imported brings the packages around the imported module along. What a
    package imports for type checkers only are the names that it exports lazily: no dependency.
    """
    everywhere = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    running = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    graph: dict[str, set[str]] = {}
    for module in running.modules:
        lines = module_level_lines(module)
        source = running if running.find_children(module) else everywhere
        named = source.find_modules_directly_imported_by(module)
        at_once = {
            target
            for target in running.find_modules_directly_imported_by(module)
            if any(
                detail["line_number"] in lines
                for detail in running.get_import_details(importer=module, imported=target)
            )
        }
        brought = {each for target in at_once for each in with_packages(target)}
        graph[module] = {
            target
            for target in named | brought
            if target in running.modules and not f"{module}.".startswith(f"{target}.")
        }
    return graph


def with_packages(module: str) -> Iterable[str]:
    """`a`, `a.b` and `a.b.c` for `a.b.c`."""
    return itertools.accumulate(module.split("."), lambda package, name: f"{package}.{name}")


def module_level_lines(module: str) -> set[int]:
    """The lines of a module that hold an import which runs when the module is imported."""
    package, *inner = module.split(".")
    spec = importlib.util.find_spec(package)  # of a module inside, this would import its parents
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.joinpath(*inner)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    lines: set[int] = set()
    pending: list[ast.AST] = [ast.parse(path.read_bytes())]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            pending += ast.iter_child_nodes(node)
    return lines


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The sets of modules that import each other, each sorted.

    >>> circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["d", "a"]})
    [['b', 'c'], ['d']]
    """

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        pending = list(graph[start])
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += graph.get(name, ())
        return seen

    after = {name: reached(name) for name in graph}
    groups = {
        tuple(sorted(other for other in after[name] if name in after.get(other, ())))
        for name in graph
        if name in after[name]
    }
    return sorted(map(list, groups))


@dataclass
class Style:
    """What was found in the files read so far."""

    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    begin_with_of: list[str] = field(default_factory=list[str])

    def read(self, path: Path) -> None:
        """Look through a file."""
        where = path.relative_to(ROOT)
        pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while pending:
            node = pending.pop()
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self._docs(node, str(where))
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.classes[node.name].append(f"{where}:{node.lineno}")
            if not isinstance(node, ast.expr):
                pending += ast.iter_child_nodes(node)

    def _docs(self, node: ast.Module | ast.ClassDef | Function, where: str) -> None:
        docs = [(getattr(node, "lineno", 1), ast.get_docstring(node) or "")]
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for before, after in itertools.pairwise(node.body):
                match before, after:
                    case (
                        ast.AnnAssign() | ast.Assign(),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        docs.append((after.lineno, text))
                    case _:
                        pass
        self.begin_with_of += [
            f"{where}:{line}: {text[:60]!r}" for line, text in docs if text.startswith("Of ")
        ]

    def twins(self) -> list[tuple[str, list[str]]]:
        """Public class names with more than one definition."""
        return [(name, sorted(at)) for name, at in sorted(self.classes.items()) if len(at) > 1]


if __name__ == "__main__":
    raise SystemExit(main())
