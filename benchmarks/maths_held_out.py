"""The maths verifier on the labelled cases that the tests hold it to: figures by set and by class.

    python benchmarks/maths_held_out.py
    python benchmarks/maths_held_out.py --classes --misses

The cases are in `tests/unit/rewards/maths_held_out`: `core.jsonl` (a mixture of what models write,
six in ten of them right), `near_misses.jsonl` (wrong answers that look nearly right) and
`hard.jsonl` (half of them wrong; of `first sight 4` half B was never looked at). They were
written before the verifier was read. Those of the set `development` were then used to repair it;
`held out` has other answers, many to the same golds; `held out, own golds` was written afterwards,
with golds of its own and more of the hard classes; `held out, real proportions` after that, in the
proportions of what models really write.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ludus.rewards.maths import MathsVerifier

FOLDER = Path(__file__).parents[1] / "tests" / "unit" / "rewards" / "maths_held_out"


@dataclass(frozen=True)
class Outcome:
    """A case, and what the verifier made of it."""

    group: str
    kind: str
    gold: str
    response: str
    label: bool
    paid: bool
    detail: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", action="store_true", help="also a line for each class")
    parser.add_argument(
        "--misses", action="store_true", help="also every case that is judged wrong"
    )
    arguments = parser.parse_args()
    print("| cases | set | n | accuracy | precision | recall | wrong paid | right unpaid |")
    print("|---|---|---|---|---|---|---|---|")
    started = time.process_time()
    outcomes = {name: judged(FOLDER / f"{name}.jsonl") for name in ("core", "near_misses", "hard")}
    spent = time.process_time() - started
    for name, judgements in outcomes.items():
        for group, part in grouped(judgements, "group"):
            report(name, group, part)
        if arguments.classes:
            for kind, part in grouped(judgements, "kind"):
                report(name, f"all, {kind}", part)
    if arguments.misses:
        for outcome in chain.from_iterable(outcomes.values()):
            if outcome.paid != outcome.label:
                verdict = "paid" if outcome.paid else "not paid"
                print(
                    f"{verdict} ({outcome.kind}): {outcome.gold!r} <- {outcome.response!r}: "
                    f"{outcome.detail}"
                )
    print(f"\n{sum(map(len, outcomes.values()))} cases, {spent:.2f} s of CPU time in the caller")


def judged(path: Path) -> list[Outcome]:
    """Every case of a file with its verdict."""
    verifier = MathsVerifier()
    try:
        return [_judge(verifier, json.loads(line)) for line in path.read_text().splitlines()]
    finally:
        verifier.close()


def _judge(verifier: MathsVerifier, case: dict[str, str]) -> Outcome:
    truncated = bool(case.get("truncated"))
    verdict = verifier.verify(
        case["gold"], case["response"], prompt=case.get("prompt", ""), truncated=truncated
    )
    return Outcome(
        group=case["set"],
        kind=case["class"],
        gold=case["gold"],
        response=case["response"],
        label=bool(case["label"]),
        paid=verdict.reward == 1.0,
        detail=f"{verdict.status}, {verdict.detail}",
    )


def grouped(outcomes: Iterable[Outcome], by: str) -> Iterable[tuple[str, list[Outcome]]]:
    """Outcomes by one of their fields, in the order in which it is first seen."""
    groups: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[getattr(outcome, by)].append(outcome)
    return groups.items()


def report(name: str, group: str, part: list[Outcome]) -> None:
    wrong_paid = sum(outcome.paid and not outcome.label for outcome in part)
    unpaid = sum(outcome.label and not outcome.paid for outcome in part)
    paid, right = sum(outcome.paid for outcome in part), sum(outcome.label for outcome in part)
    precision = f"{1 - wrong_paid / paid:.3f}" if right and paid else "-"
    recall = f"{1 - unpaid / right:.3f}" if right else "-"
    accuracy = 1 - (wrong_paid + unpaid) / len(part)
    print(
        f"| {name} | {group} | {len(part)} | {accuracy:.3f} | {precision} | {recall} "
        f"| {wrong_paid} | {unpaid} |"
    )


if __name__ == "__main__":
    main()
