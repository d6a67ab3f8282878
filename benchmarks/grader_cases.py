"""The grader on the solutions that the tests hold it to: what becomes of tampering and of idioms.

    python benchmarks/grader_cases.py
    python benchmarks/grader_cases.py --all

The cases are in `tests/contract/grader_cases`; most were written before the grader
was read. Every case of `tampering.toml` must stay without a reward, on each of its tests for
itself; every right solution of `idioms.toml` and `derived.toml` has to be paid, or its verdict is
`invalid` and says why. They are graded without and with the solution itself as `reference`: some
can only be settled with one.
"""

from __future__ import annotations

import argparse
import asyncio
import tomllib
from pathlib import Path
from typing import Any

from ludus.sandboxes import GradeOptions, grade_async
from ludus.verdict import Verdict

FOLDER = Path(__file__).parents[1] / "tests" / "contract" / "grader_cases"
Asked = tuple[dict[str, Any], str, list[Any], bool]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="print the verdict of every case")
    asyncio.run(show(everything=parser.parse_args().all))


async def show(*, everything: bool) -> None:
    file = tomllib.loads((FOLDER / "tampering.toml").read_text())
    tasks = {task["name"]: task for task in file["task"]}
    honest = await graded([(task, task["honest"], task["tests"], False) for task in tasks.values()])
    print(
        f"honest controls: {sum(verdict.reward == 1 for verdict in honest)} of {len(honest)} paid"
    )
    asked: list[Asked] = []
    for case in file["case"]:
        task = tasks[case["task"]]
        tests = [task["tests"][number] for number in case.get("tests", [])]
        asked.append((task, case["solution"], tests or task["tests"], bool(tests)))
    verdicts = await graded(asked)
    names = [f"{case['task']}: {case['name']}" for case in file["case"]]
    rewarded = [name for name, verdict in zip(names, verdicts, strict=True) if verdict.reward]
    excused = [n for n, verdict in zip(names, verdicts, strict=True) if str(verdict.status) != "ok"]
    print(f"tampering: {len(rewarded)} of {len(verdicts)} rewarded {rewarded or ''}")
    print(f"           {len(excused)} excused (not ok, so without a number) {excused or ''}")
    listed(names, verdicts, everything)

    files = [tomllib.loads((FOLDER / name).read_text()) for name in ("idioms.toml", "derived.toml")]
    idioms = [case for file in files for case in file["case"]]
    names = [case["name"] for case in idioms]
    for reference in (False, True):
        cases = [
            {**case, "options": {**case["options"], "reference": case["solution"] * reference}}
            for case in idioms
        ]
        verdicts = await graded([(case, case["solution"], case["tests"], False) for case in cases])
        print_counts("with a reference" if reference else "without a reference", verdicts)
        listed(names, verdicts, everything)
    controls = [case for case in idioms if "wrong" in case]
    verdicts = await graded([(case, case["wrong"], case["tests"], False) for case in controls])
    paid = sum(bool(verdict.reward) for verdict in verdicts)
    print(f"wrong controls: {paid} of {len(verdicts)} paid")


def print_counts(title: str, verdicts: list[Verdict]) -> None:
    """Print how many right solutions are paid, refused or lost."""
    paid = sum(verdict.reward == 1 for verdict in verdicts)
    refused = sum(str(verdict.status) == "invalid" for verdict in verdicts)
    lost = len(verdicts) - paid - refused
    print(f"idioms {title}: {paid} of {len(verdicts)} paid, {refused} refused, {lost} silent zeros")


async def graded(asked: list[Asked]) -> list[Verdict]:
    """The verdict on each (task, solution, tests, whether every test counts for itself)."""
    busy = asyncio.Semaphore(2)

    async def one(task: dict[str, Any], solution: str, tests: list[Any], partial: bool) -> Verdict:
        options = GradeOptions(**task["options"], partial=partial)
        async with busy:
            return await grade_async(solution, tests, kind=task["kind"], options=options)

    return list(await asyncio.gather(*(one(*each) for each in asked)))


def listed(names: list[str], verdicts: list[Verdict], everything: bool) -> None:
    if everything:
        for name, verdict in zip(names, verdicts, strict=True):
            print(f"    {name}: {verdict.status}, {verdict.reward}, {verdict.detail[:150]!r}")


if __name__ == "__main__":
    main()
