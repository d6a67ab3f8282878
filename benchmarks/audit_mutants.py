"""Graders of sound environments, each weakened in one place, and audited.

    python benchmarks/audit_mutants.py --count 40 --seed 1

Flaws that an author plants are the ones that the author thought of. A mutant drops a condition, a
guard or an update, or weakens a comparison, at a random place of a sound environment's code; the
expert still earns what it did. Of each it is said whether an audit finds it. What is not found is
printed, since many a mutant cannot be exploited: whether this one can is for a reader to say.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

AUDITED = Path(__file__).resolve().parents[1] / "tests" / "contract" / "audited"
SETS = ("sound", "puzzles", "services", "transcripts", "slips", "desks", "errands")
KEPT = {"demonstrate", "gold", "reset", "ask", "__init__"}
"""Methods that say what the task is and what the expert does."""
PER_ENVIRONMENT = 3
"""Most mutants of one environment, each of another kind."""
LIMIT_S = 600.0
UPDATES = {"add", "append", "clear", "discard", "extend", "pop", "remove", "update"}

Site = tuple[str, int, int, int, str, int]
"""What was done, and where: line, column, end, kind of node, and which of its ways."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--play", nargs=2, metavar=("MODULE", "ID"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(AUDITED))
    if arguments.play:
        play(*arguments.play)
        return
    rng, caught, played = random.Random(arguments.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for module, env, site, source in mutants(rng):
            if played == arguments.count:
                break
            path = Path(folder) / f"mutant_{played}.py"
            path.write_text(source)
            findings = heard(path, env)
            if findings is None:  # the expert fails, or the module breaks
                continue
            played += 1
            caught += bool(findings)
            print(
                f"{env} line {site[1]}: {site[0]}: {', '.join(findings) or 'not found'}", flush=True
            )
            if not findings:
                print(changes(AUDITED / f"{module}.py", source))
    print(f"{caught} of {played} mutants are found")


def heard(path: Path, env: str) -> list[str] | None:
    """Return the names of the attackers that win on a mutant; None if its expert does not."""
    command = [sys.executable, __file__, "--play", str(path), env]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith("[")]
    return list(json.loads(lines[-1])) if lines else None


def play(module: str, env: str) -> None:
    """Audit an environment of a module by its path, and print who wins."""
    from ludus.agent.audit import audit

    specification = importlib.util.spec_from_file_location("mutant", module)
    assert specification is not None
    assert specification.loader is not None
    loaded = importlib.util.module_from_spec(specification)
    sys.modules["mutant"] = loaded
    specification.loader.exec_module(loaded)
    report = audit(env, budget_s=LIMIT_S / 2)
    if not report.fault and report.expert and min(report.expert) >= 1:
        print(json.dumps([tally.attacker.name for tally in report.winners]))


def mutants(rng: random.Random) -> Iterator[tuple[str, str, Site, str]]:
    """Return mutants of random sound environments: module, id, what was done, source."""
    targets = [(module, env) for module in SETS for env in sound_ones(module)]
    rng.shuffle(targets)
    for module, env in targets:
        tree = ast.parse((AUDITED / f"{module}.py").read_text())
        sites = list(sites_of(tree, env))
        rng.shuffle(sites)
        kinds = {site[0].partition(":")[0]: site for site in sites}
        for site in list(kinds.values())[:PER_ENVIRONMENT]:
            yield module, env, site, weakened(tree, site)


def sound_ones(module: str) -> list[str]:
    name = "SOUND" if module == "sound" else f"SOUND_{module.upper()}"
    return list(getattr(importlib.import_module(module), name))


def sites_of(tree: ast.Module, env: str) -> Iterator[Site]:
    """Return where the code of an environment can be weakened: its class or script, and the
    functions that it calls.
    """
    plain = env.partition("/")[2].rsplit("-v", 1)[0].replace("-", "")
    bodies = [node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    own = [body for body in bodies if body.name.replace("_", "").lower() == plain]
    called = {node.id for body in own for node in ast.walk(body) if isinstance(node, ast.Name)}
    helpers = [b for b in bodies if isinstance(b, ast.FunctionDef) and b.name in called]
    functions = [
        function
        for body in [*own, *helpers]
        for function in (body.body if isinstance(body, ast.ClassDef) else [body])
        if isinstance(function, ast.FunctionDef) and function.name not in KEPT
    ]
    for node in (node for function in functions for node in ast.walk(function)):
        for nth, (what, _) in enumerate(ways(node)):
            at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
            yield (what, *at, getattr(node, "end_col_offset", 0), type(node).__name__, nth)


def ways(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Return what a node may become, each with a name."""
    if isinstance(node, ast.BoolOp):
        for nth, dropped in enumerate(node.values):
            left = [value for n, value in enumerate(node.values) if n != nth]
            smaller = left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
            yield f"dropped: {ast.unparse(dropped)}", smaller
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _comparisons(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from _calls(node, node.func.id)
    is_exit = isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Return, ast.Continue))
    if isinstance(node, ast.If) and is_exit and not node.orelse:
        yield f"guard: {ast.unparse(node.test)}", ast.Pass()
    if isinstance(node, ast.AugAssign) or _is_update(node):
        yield f"update: {ast.unparse(node)}", ast.Pass()


def _comparisons(node: ast.Compare) -> Iterator[tuple[str, ast.AST]]:
    left, right, sign = node.left, node.comparators[0], type(node.ops[0])

    def of(name: str, left: ast.expr, right: ast.expr) -> ast.Compare:
        return ast.Compare(left, [getattr(ast, name)()], [right])

    def as_set(value: ast.expr) -> ast.Call:
        return ast.Call(ast.Name("set"), [value], [])

    if sign is ast.Eq:
        yield from ((f"equal to {name}", of(name, left, right)) for name in ("GtE", "LtE", "In"))
        yield "equal to contains", of("In", right, left)
        for name in ("Eq", "LtE", "GtE"):
            yield f"equal to sets {name}", of(name, as_set(left), as_set(right))
    if sign is ast.NotEq:
        yield from ((f"unequal to {name}", of(name, left, right)) for name in ("Gt", "Lt", "NotIn"))


def _calls(node: ast.Call, name: str) -> Iterator[tuple[str, ast.AST]]:
    if name == "all":
        yield "all to any", ast.Call(ast.Name("any"), node.args, node.keywords)
    if name == "abs":
        yield "abs dropped", node.args[0]
    if name in {"sorted", "Counter"}:
        yield f"{name} to set", ast.Call(ast.Name("set"), node.args[:1], [])
    if name in {"min", "max"} and len(node.args) == 2:
        yield from ((f"{name} dropped", each) for each in node.args if not _is_constant(each))


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant)


def _is_update(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in UPDATES


def weakened(tree: ast.Module, site: Site) -> str:
    """Return the source with one place weakened."""
    _, line, column, end, kind, nth = site

    class Weakened(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
            ends = getattr(node, "end_col_offset", 0)
            if (*at, ends, type(node).__name__) == (line, column, end, kind):
                known = list(ways(node))
                if nth < len(known) and known[nth][0] == site[0]:
                    return known[nth][1]
            visit: Callable[[ast.AST], ast.AST] = self.generic_visit
            return visit(node)

    mutant = Weakened().visit(copy.deepcopy(tree))
    return ast.unparse(ast.fix_missing_locations(mutant))


def changes(path: Path, source: str) -> str:
    """Return the changed lines of a mutant."""
    before = ast.unparse(ast.parse(path.read_text())).splitlines()
    rows = list(difflib.unified_diff(before, source.splitlines(), n=1, lineterm=""))[2:]
    return "\n".join(f"    {row}" for row in rows if not row.startswith("@@"))


if __name__ == "__main__":
    main()
