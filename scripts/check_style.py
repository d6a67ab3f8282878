"""Check how the source reads: `make check` runs this.

Fails on circles of module-level imports, on public class names that are used twice, and on
attribute docs or docstrings that begin with "Of". The other figures are printed and hold nothing:
a name pattern is easily dodged, and a reader is not.

    python scripts/check_style.py
"""

from __future__ import annotations

import ast
import importlib.util
import io
import itertools
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("agent", "envs", "rewards", "sandboxes", "trainer")
PRONOUN = re.compile(r"\b(it|its|they|them|their|one|ones|those|there)\b", re.IGNORECASE)
MAX_PARAMETERS = 5
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> int:
    """Print the figures and what is wrong; 1 if anything is."""
    files = list(sources())
    style = Style()
    for path in files:
        style.read(path)
    for line in style.figures():
        print(line)
    wrong = [
        *(f"import circle: {' -> '.join(circle)}" for circle in circles(imports("ludus"))),
        *(f"class {name} is defined twice: {', '.join(at)}" for name, at in style.twins()),
        *(f'begins with "Of", say what the thing is: {place}' for place in style.begin_with_of),
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


def imports(package: str) -> dict[str, set[str]]:
    """Which modules of `package` each module imports when it is itself imported: at module level,
    not for type checkers only. The packages around an imported module are imported with it.
    """
    graph = grimp.build_graph(package, exclude_type_checking_imports=True)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        lines = module_level_lines(module)
        found[module] = {
            each
            for target in graph.find_modules_directly_imported_by(module)
            if any(
                detail["line_number"] in lines
                for detail in graph.get_import_details(importer=module, imported=target)
            )
            for each in with_packages(target)
            if each in graph.modules and not f"{module}.".startswith(f"{each}.")
        }
    return found


def with_packages(module: str) -> Iterable[str]:
    """`a`, `a.b` and `a.b.c` for `a.b.c`."""
    return itertools.accumulate(module.split("."), lambda package, name: f"{package}.{name}")


def module_level_lines(module: str) -> set[int]:
    """The lines of a module that hold an import which runs when the module is imported."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return set()
    lines: set[int] = set()
    rest: list[ast.AST] = [ast.parse(Path(spec.origin).read_bytes())]
    while rest:
        node = rest.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            rest += ast.iter_child_nodes(node)
    return lines


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The sets of modules that import each other, each sorted.

    >>> circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["d", "a"]})
    [['b', 'c'], ['d']]
    """

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        rest = list(graph[start])
        while rest:
            name = rest.pop()
            if name not in seen:
                seen.add(name)
                rest += graph.get(name, ())
        return seen

    after = {name: reached(name) for name in graph}
    found = {
        tuple(sorted(other for other in after[name] if name in after.get(other, ())))
        for name in graph
        if name in after[name]
    }
    return sorted(map(list, found))


@dataclass
class Style:
    """What was counted in the files read so far."""

    counts: Counter[str] = field(default_factory=Counter[str])
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    begin_with_of: list[str] = field(default_factory=list[str])

    def read(self, path: Path) -> None:
        """Count a file."""
        text = path.read_text(encoding="utf-8")
        tree, where = ast.parse(text), path.relative_to(ROOT)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.counts["comments"] += sum(token.type == tokenize.COMMENT for token in tokens)
        self.counts["lines"] += sum(bool(line.strip()) for line in text.splitlines())
        names = Counter(
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(tree)
            if isinstance(node, (ast.Attribute, ast.Name))
        )
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                self._docs(node, str(where))
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.classes[node.name].append(f"{where}:{node.lineno}")
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._function(node, names)

    def _docs(self, node: ast.Module | ast.ClassDef | Function, where: str) -> None:
        documented = ast.get_docstring(node)
        if documented is not None:
            self.counts["docstrings"] += 1
            self.counts["pronoun"] += bool(PRONOUN.search(documented.split("\n")[0]))
            quoted = node.body[0]
            self.counts["lines"] -= (quoted.end_lineno or quoted.lineno) - quoted.lineno + 1
        told = [(getattr(node, "lineno", 1), documented or "")]
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for before, after in itertools.pairwise(node.body):
                match before, after:
                    case (
                        ast.AnnAssign() | ast.Assign(),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        told.append((after.lineno, text))
                    case _:
                        pass
        self.begin_with_of += [
            f"{where}:{line}: {text[:60]!r}" for line, text in told if text.startswith("Of ")
        ]

    def _function(self, node: Function, names: Mapping[str, int]) -> None:
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given = [one for one in given if one.arg not in ("self", "cls")]
        hints = [*(one.annotation for one in given), node.returns]
        private = node.name.startswith("_") and not node.name.startswith("__")
        self.counts["functions"] += 1
        self.counts["once"] += private and names.get(node.name, 0) == 1
        self.counts["parameters"] += len(given) > MAX_PARAMETERS
        self.counts["any"] += not private and any(
            isinstance(hint, ast.Name) and hint.id == "Any" for hint in hints
        )

    def twins(self) -> list[tuple[str, list[str]]]:
        """Public class names with more than one definition."""
        return [(name, at) for name, at in sorted(self.classes.items()) if len(at) > 1]

    def figures(self) -> Iterator[str]:
        """One line a figure."""
        count = self.counts

        def share(part: str, whole: str) -> str:
            return f"{count[part] / count[whole]:.1%} ({count[part]} of {count[whole]})"

        yield f"docstring first lines with it, one or those  {share('pronoun', 'docstrings')}"
        yield f"private helpers named once in their file     {share('once', 'functions')}"
        yield f"comments beside lines of code                {share('comments', 'lines')}"
        yield f"functions with more than {MAX_PARAMETERS} parameters         {count['parameters']}"
        yield f"public functions with a bare Any             {count['any']}"


if __name__ == "__main__":
    raise SystemExit(main())
