"""Runs the cases of Math-Verify's own test suite through ludus' verifier and reports every miss
with what we hold of it.

    pip download --no-deps --no-binary :all: math-verify==0.9.0 && tar xf math_verify-0.9.0.tar.gz
    python benchmarks/maths_peer_suite.py math_verify-0.9.0

The cases are read from the sources by `ast`: every `parametrize` whose names include `gold`,
`pred` and `expected` or `result`, but for the few rows that compute their texts. Nothing of them
is kept in this project. Where our verdict is another than the label, `maths_peer_suite.toml` says
whose fault that is (`label wrong`, `other convention` or `ludus wrong`) and why. Exits with 1 if a
miss has no entry there or is one of ours.

The suite sets options for some cases (`strict=False`, `allow_set_relation_comp`, a precision);
they are not passed on, since ours are named otherwise. All cases are asked with our defaults.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ludus.rewards.maths import MathsVerifier

VERDICTS = ("label wrong", "other convention", "ludus wrong")


@dataclass(frozen=True)
class Case:
    """One case of the suite: where it stands, what it holds, and what its authors expect."""

    test: str
    index: int
    gold: str
    answer: str
    expected: bool

    @property
    def digest(self) -> str:
        """A name that survives cases being added before this one."""
        text = f"{self.gold}\x00{self.answer}\x00{self.expected}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def main() -> int:
    arguments = parser().parse_args()
    suite = list(cases(arguments.checkout))
    if not suite:
        raise SystemExit(f"{arguments.checkout} has no parametrised tests below tests/")
    verdicts = adjudicated(arguments.verdicts)
    misses = [case for case, right in judged(suite) if not right]
    print(f"{len(suite) - len(misses)} of {len(suite)} cases agree with their label\n")
    for case in misses:
        verdict, reason = verdicts.get(case.digest, ("not adjudicated", ""))
        print(f"{case.test}[{case.index}] {case.digest} {verdict}: {reason}")
        if arguments.texts or verdict not in VERDICTS:
            print(f"    label {int(case.expected)}: {case.gold!r} <- {case.answer!r}")
    counts = Counter(verdicts.get(case.digest, ("not adjudicated", ""))[0] for case in misses)
    print("\n" + (", ".join(f"{count} {name}" for name, count in counts.items()) or "no misses"))
    stale = set(verdicts) - {case.digest for case in misses}
    print(f"{len(stale)} entries of {arguments.verdicts.name} are not misses: {sorted(stale)}")
    return 1 if counts["ludus wrong"] or counts["not adjudicated"] else 0


def parser() -> argparse.ArgumentParser:
    argument_parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument(
        "checkout", type=Path, help="the sources of huggingface/Math-Verify"
    )
    argument_parser.add_argument(
        "--verdicts", type=Path, default=Path(__file__).with_name("maths_peer_suite.toml")
    )
    argument_parser.add_argument(
        "--texts", action="store_true", help="print gold and answer of every miss"
    )
    return argument_parser


def cases(checkout: Path) -> Iterator[Case]:
    """The suite's cases in the order of its files."""
    for path in sorted((checkout / "tests").glob("test_*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                yield from _of_function(path.name, function)


def _of_function(file: str, function: ast.FunctionDef) -> Iterator[Case]:
    for mark in function.decorator_list:
        if not (isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize")):
            continue
        names = [name.strip() for name in str(ast.literal_eval(mark.args[0])).split(",")]
        label = next((name for name in ("expected", "result") if name in names), None)
        if label is None or not {"gold", "pred"} <= set(names):
            continue
        assert isinstance(mark.args[1], ast.List)
        for index, row in enumerate(mark.args[1].elts):
            assert isinstance(row, ast.Tuple)
            values = dict(zip(names, row.elts, strict=True))
            texts = [values["gold"], values["pred"], values[label]]
            if all(isinstance(text, ast.Constant) for text in texts):
                gold, answer, expected = (ast.literal_eval(text) for text in texts)
                yield Case(f"{file}::{function.name}", index, gold, answer, bool(expected))


def judged(suite: list[Case]) -> Iterator[tuple[Case, bool]]:
    """Each case with whether our verdict is its label."""
    verifier = MathsVerifier()
    try:
        for case in suite:
            verdict = verifier.verify(case.gold, case.answer)
            yield case, (verdict.status == "ok" and verdict.reward == 1.0) == case.expected
    finally:
        verifier.close()


def adjudicated(path: Path) -> dict[str, tuple[str, str]]:
    """What we hold of each miss, by the digest of its case: a verdict and the reason."""
    entries = tomllib.loads(path.read_text())["miss"] if path.exists() else []
    for entry in entries:
        if entry["verdict"] not in VERDICTS:
            raise SystemExit(f"{path}: the verdict {entry['verdict']!r} is none of {VERDICTS}")
    return {entry["case"]: (entry["verdict"], entry["reason"]) for entry in entries}


if __name__ == "__main__":
    raise SystemExit(main())
