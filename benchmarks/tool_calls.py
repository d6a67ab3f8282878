"""Which calls of labelled turns would be run, by tool format.

    python benchmarks/tool_calls.py
    python benchmarks/tool_calls.py --misses

The turns, and the rules by which they are labelled, are in `tool_call_cases.py`. No repair has
looked at half of them, chosen by digest, which stand in a column of their own. A call that may not
be run and would be is forbidden.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tool_call_cases import FORMATS, TOOLS, Case, cases

from ludus.agent.parsing import tool_format
from ludus.envs import ToolSpec

SPECS = [
    ToolSpec(
        name=name,
        description="",
        parameters={"properties": {key: {"type": kind} for key, kind in given.items()}},
    )
    for name, given in TOOLS.items()
]


def main() -> None:
    """Print the table, and the misses where they are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--misses", action="store_true", help="show what was read otherwise")
    asked = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases():
        run = runnable(case)
        half = "held out" if case.held_out else "seen"
        counts += Counter({(case.format, half): 1, (case.format, f"{half}, right"): 0})
        counts[case.format, f"{half}, right"] += run == case.wanted
        counts[case.format, "forbidden"] += any(call not in case.wanted for call in run)
        if asked.misses and run != case.wanted:
            print(f"{case.format}, {case.situation}: {case.text!r}\n    {run} for {case.wanted}")
    print(f"{'format':16} {'seen':>11} {'held out':>11} {'forbidden':>10}")
    for name in [*FORMATS, "all"]:
        print(_row(name, counts))


def runnable(case: Case) -> list[tuple[str, dict[str, object]]]:
    """The calls of a turn that would be run."""
    read = tool_format(case.format).parse(case.text, complete=case.complete, tools=SPECS)
    return [(call.name, call.arguments) for call in read.tool_calls if not call.error]


def _row(name: str, counts: Counter[tuple[str, str]]) -> str:
    def of(column: str) -> int:
        return sum(n for (format_, what), n in counts.items()
                   if what == column and name in (format_, "all"))  # fmt: skip

    halves = [f"{of(f'{half}, right')} of {of(half)}" for half in ("seen", "held out")]
    return f"{name:16} {halves[0]:>11} {halves[1]:>11} {of('forbidden'):>10}"


if __name__ == "__main__":
    main()
