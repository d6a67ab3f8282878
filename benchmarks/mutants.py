"""One-line mutations of shipped code, and whether the tests that reach each one notice.

    python benchmarks/mutants.py choose --count 100 --seed 0 --list mutants.json
    python benchmarks/mutants.py record --list mutants.json -- -q -m "not slow" -n 2
    python benchmarks/mutants.py kill --list mutants.json

Run it in a work tree of its own: it changes the sources. A mutation is kept as (file, qualified
name of the function, statement before, statement after), so that it is found again where the
function has moved. `record` puts a recorder at each statement and runs the suite once: which tests
reach which mutation, from processes they start too, and what each test costs. `kill` applies one
mutation at a time and runs the tests that reach it, the cheapest first, until one fails.
"""

import argparse
import ast
import copy
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOTS = ("src/ludus", "envs", "rewards", "agent", "trainer", "sandboxes")
RECORDER = "ludus_mutant_recorder"  # a module in site-packages, and a plugin of pytest
TESTS_A_MUTANT = 30
SECONDS_A_MUTANT = 30.0  # of CPU that the selected tests took when they were recorded
HANGS_AFTER_S = 400.0
MEMORY_BYTES = 4 << 30
PRELOADED = "torch transformers sympy aiohttp msgspec rich gymnasium tyro httpx jinja2"

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    before: str
    after: str


@dataclass(frozen=True)
class Statement:
    """A statement in a function, and the node that stands for it: of `if` and `while`, the test."""

    function: str
    node: ast.stmt

    @property
    def part(self) -> ast.stmt | ast.expr:
        return self.node.test if isinstance(self.node, (ast.If, ast.While)) else self.node

    @property
    def text(self) -> str:
        return ast.unparse(self.part)


def shipped(root: Path) -> list[Path]:
    files = (path for folder in ROOTS for path in (root / folder).rglob("*.py"))
    return sorted(path for path in files if not path.is_symlink())


def statements(tree: ast.AST, function: str = "", inside: bool = False) -> Iterator[Statement]:
    """Those of function bodies: what runs at import is reached by every test."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{function}.{child.name}".lstrip(".")
            yield from statements(child, name, not isinstance(child, ast.ClassDef))
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            if inside and isinstance(child, ast.stmt):
                yield Statement(function, child)
            yield from statements(child, function, inside)


# --- choosing -------------------------------------------------------------------


def mutations(statement: Statement) -> list[str]:
    """Every text that one small change makes of a statement."""
    node, part = statement.node, statement.part
    if not isinstance(
        node,
        (ast.If, ast.While, ast.Return, ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Break,
         ast.Continue),
    ):  # fmt: skip
        return []
    whole: list[str] = []
    match node:
        case ast.Break():
            return ["continue"]
        case ast.Continue():
            return ["break"]
        case ast.Raise():
            return ["pass"]  # its message is not a behaviour
        case ast.Expr(value=ast.Constant()):
            return []
        case ast.Expr():
            if any(word in statement.text.split("(")[0] for word in ("log", "print")):
                return []
            whole = ["pass"]
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                whole = ["return None"]
        case ast.If() | ast.While():
            if "TYPE_CHECKING" in statement.text:
                return []
            whole = [f"not ({statement.text})"]
        case _:
            pass
    return whole + list(_changed_within(part))


def _changed_within(part: ast.AST) -> Iterator[str]:
    for place, node in enumerate(ast.walk(part)):
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue, ast.Lambda)):
            continue
        changed = copy.deepcopy(part)
        twin = next(n for i, n in enumerate(ast.walk(changed)) if i == place)
        if _change(twin):
            yield ast.unparse(ast.fix_missing_locations(changed))


def _change(node: ast.AST) -> bool:
    match node:
        case ast.Compare():
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            operands = [*ast.walk(node)]
            if any(
                isinstance(n, ast.JoinedStr)
                or (isinstance(n, ast.Constant) and isinstance(n.value, (str, bytes)))
                for n in operands
            ):
                return False
            node.op = ARITHMETIC[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value = node.value + 1
        case ast.UnaryOp(op=ast.Not()):
            node.op = ast.UAdd()
            return False
        case _:
            return False
    return True


def choose(root: Path, count: int, seed: int) -> list[Mutant]:
    """One of the changes of each of `count` statements; a text twice in a function is passed by."""
    sites: list[tuple[str, Statement]] = []
    for path in shipped(root):
        inside = [s for s in statements(ast.parse(path.read_text())) if mutations(s)]
        keys = [(s.function, s.text) for s in inside]
        name = str(path.relative_to(root))
        sites += [(name, s) for s in inside if keys.count((s.function, s.text)) == 1]
    rng = random.Random(seed)
    chosen = rng.sample(sites, count)
    return [Mutant(f, s.function, s.text, rng.choice(mutations(s))) for f, s in chosen]


# --- finding and changing ---------------------------------------------------------


def find(root: Path, mutants: list[Mutant]) -> dict[int, tuple[Path, Statement]]:
    """Where each mutant's statement stands now: in its file, in a function of its qualified name,
    or of its last name; those that are nowhere, or in two places, are left out.
    """
    places: dict[str, list[tuple[Path, Statement]]] = defaultdict(list)
    for path in shipped(root):
        for statement in statements(ast.parse(path.read_text())):
            places[statement.text].append((path, statement))
    located: dict[int, tuple[Path, Statement]] = {}
    for index, mutant in enumerate(mutants):
        last = mutant.function.rpartition(".")[2]
        same_text = places[mutant.before]
        same_name = [p for p in same_text if p[1].function == mutant.function]
        same_file = [p for p in same_name if p[0] == root / mutant.file]
        same_last = [p for p in same_text if p[1].function.rpartition(".")[2] == last]
        for candidates in (same_file, same_name, same_last, same_text):
            if len(candidates) == 1:
                located[index] = candidates[0]
                break
    return located


def _replaced(source: bytes, part: ast.stmt | ast.expr, new: str) -> bytes:
    lines = source.splitlines(keepends=True)
    assert part.end_lineno is not None
    assert part.end_col_offset is not None
    start = sum(map(len, lines[: part.lineno - 1])) + part.col_offset
    end = sum(map(len, lines[: part.end_lineno - 1])) + part.end_col_offset
    if isinstance(part, ast.expr):
        new = f"({new})"
    return source[:start] + new.encode() + source[end:]


# --- recording --------------------------------------------------------------------

RECORDER_SOURCE = '''
"""Which test reaches which mutant, and what each test costs. Written by benchmarks/mutants.py."""
import os, time
HITS, COSTS = {hits!r}, {costs!r}
seen = set()

def append(path, line):
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, line.encode())
        os.close(file)
    except OSError:
        pass

def hit(k):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (k, test) not in seen:
        seen.add((k, test))
        append(HITS, f"{{k}}\\t{{time.time()}}\\t{{test}}\\n")
    return False

try:
    import pytest
except ImportError:
    pass
else:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item, nextitem):
        cpu, started = sum(os.times()[:4]), time.time()
        result = yield
        cost = sum(os.times()[:4]) - cpu
        append(COSTS, f"{{started}}\\t{{time.time()}}\\t{{cost:.3f}}\\t{{item.nodeid}}\\n")
        return result
'''


def instrument(root: Path, mutants: list[Mutant]) -> dict[Path, bytes]:
    """Puts a recorder at each mutant's statement; the sources as they were."""
    by_file: dict[Path, list[tuple[int, Statement]]] = defaultdict(list)
    for index, (path, statement) in find(root, mutants).items():
        by_file[path].append((index, statement))
    kept = {path: path.read_bytes() for path in by_file}
    for path, sites in by_file.items():
        source = kept[path]
        for index, statement in sorted(
            sites, key=lambda s: (-s[1].part.lineno, -s[1].part.col_offset)
        ):
            call = f"__import__({RECORDER!r}).hit({index})"
            if "guest" in path.parts:  # where the recorder may be out of reach
                attempt = f"try:\n {call}\nexcept BaseException:\n pass"
                call = f"exec({attempt!r})"
            text = _text(source, statement.part)
            is_test = isinstance(statement.part, ast.expr)
            new = f"{call} or ({text})" if is_test else f"{call}; {text}"
            source = _replaced(source, statement.part, new)
        ast.parse(source)
        path.write_bytes(source)
    return kept


def _text(source: bytes, part: ast.AST) -> str:
    text = ast.get_source_segment(source.decode(), part)
    assert text is not None
    return text


def record(root: Path, list_path: Path, mutants: list[Mutant], pytest_arguments: list[str]) -> None:
    hits, costs = (list_path.with_suffix(s).resolve() for s in (".hits", ".costs"))
    for path in (hits, costs):
        path.write_text("")
        path.chmod(0o666)
    site_packages = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    recorder = site_packages / f"{RECORDER}.py"
    recorder.write_text(RECORDER_SOURCE.format(hits=str(hits), costs=str(costs)))
    kept = instrument(root, mutants)
    try:
        command = [sys.executable, "-m", "pytest", "-p", RECORDER, *pytest_arguments]
        subprocess.run(command, cwd=root, check=False)
    finally:
        for path, source in kept.items():
            path.write_bytes(source)


def selected(list_path: Path, count: int) -> list[list[str]]:
    """The tests that reach each mutant, the cheapest first, one case of each test function before
    a second one. A hit in a process that does not know its test belongs to those that ran then.
    """
    spans: list[tuple[float, float, float, str]] = []
    for line in list_path.with_suffix(".costs").read_text().splitlines():
        started, ended, cost, test = line.split("\t", 3)
        spans.append((float(started), float(ended), float(cost), test))
    costs = {test: cost for _, _, cost, test in spans}
    reach: list[set[str]] = [set() for _ in range(count)]
    for line in list_path.with_suffix(".hits").read_text().splitlines():
        index, at, test = line.split("\t", 2)
        running = [t for start, end, _, t in spans if start <= float(at) <= end]
        reach[int(index)] |= {test} & costs.keys() or set(running)
    return [_ordered(tests, costs) for tests in reach]


def _ordered(tests: set[str], costs: dict[str, float]) -> list[str]:
    cases: dict[str, int] = defaultdict(int)
    ranked: list[tuple[int, float, str]] = []
    for test in sorted(tests, key=lambda t: costs[t]):
        function = test.partition("[")[0]
        ranked.append((cases[function], costs[test], test))
        cases[function] += 1
    taken: list[str] = []
    spent_s = 0.0
    for _, cost, test in sorted(ranked):
        if len(taken) < TESTS_A_MUTANT and (spent_s + cost <= SECONDS_A_MUTANT or not taken):
            taken.append(test)
            spent_s += cost
    return taken


# --- killing ----------------------------------------------------------------------


def kill(root: Path, list_path: Path, mutants: list[Mutant], only: list[int]) -> None:
    """Writes one line a mutant: killed (and by which test), survived, unreached (by any test), gone
    (no such text) or unclear.
    """
    for name in PRELOADED.split():
        __import__(name)
    located, tests = find(root, mutants), selected(list_path, len(mutants))
    results = list_path.with_suffix(".results")
    for index in only or range(len(mutants)):
        started = time.time()
        outcome = "gone" if index not in located else "unreached"
        if index in located and tests[index]:
            outcome = _outcome(root, *located[index], mutants[index], tests[index])
        line = f"{index}\t{len(tests[index])} tests\t{time.time() - started:.0f} s\t{outcome}"
        print(line, flush=True)
        with results.open("a") as file:
            file.write(line + "\n")


def _outcome(root: Path, path: Path, statement: Statement, mutant: Mutant, tests: list[str]) -> str:
    """A test that fails without the mutation too tells nothing: the others run without it."""
    source = path.read_bytes()
    left = list(tests)
    while left:
        path.write_bytes(_replaced(source, statement.part, mutant.after))
        try:
            failed = _first_failure(root, left)
        finally:
            path.write_bytes(source)
        if failed is None:
            return "survived"
        if failed not in left:  # the mutation hangs, or the file of a test cannot be imported
            return "killed" if _first_failure(root, left) is None else "unclear"
        if _first_failure(root, [failed]) is None:
            return f"killed\t{failed}"
        left.remove(failed)
    return "unclear"


class FirstFailure:
    """A plugin of pytest that writes down which test failed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            os.write(self.descriptor, f"{report.nodeid}\n".encode())


def _first_failure(root: Path, tests: list[str]) -> str | None:
    """The test that fails first, or "" if there was no telling. It runs in a fork of this process,
    which has what takes long to import.
    """
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        os.chdir(root)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, hard))  # a mutation may never end
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=90"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        os._exit(int(pytest.main([*options, *tests], plugins=[FirstFailure(writes)])))
    os.close(writes)
    status = _wait_for(child)
    os.set_blocking(reads, False)
    with os.fdopen(reads, "rb") as pipe:
        names = (pipe.read() or b"").decode().splitlines()
    return None if status == 0 else names[0] if names else ""


def _wait_for(child: int) -> int:
    ends = time.monotonic() + HANGS_AFTER_S
    while time.monotonic() < ends:
        if (status := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(status[1])
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["choose", "find", "record", "tests", "kill"])
    parser.add_argument("--list", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", default=[])
    parser.add_argument("--root", type=Path, default=Path.cwd())
    arguments, pytest_arguments = parser.parse_known_args()
    root = arguments.root.resolve()
    if arguments.verb == "choose":
        mutants = choose(root, arguments.count, arguments.seed)
        arguments.list.write_text(json.dumps([asdict(m) for m in mutants], indent=1))
        return
    mutants = [Mutant(**fields) for fields in json.loads(arguments.list.read_text())]
    match arguments.verb:
        case "find":
            located = find(root, mutants)
            for index, mutant in enumerate(mutants):
                place = located[index][0].relative_to(root) if index in located else "gone"
                print(index, place, mutant.function, "|", mutant.before, "->", mutant.after)
        case "tests":
            for index, tests in enumerate(selected(arguments.list, len(mutants))):
                print(index, mutants[index].file, len(tests), *tests[:3])
        case "record":
            record(root, arguments.list, mutants, [a for a in pytest_arguments if a != "--"])
        case _:
            kill(root, arguments.list, mutants, arguments.only)


if __name__ == "__main__":
    main()
