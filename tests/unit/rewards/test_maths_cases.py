"""Pairs of a gold and an answer by class, in `maths_cases/*.jsonl`: what must be paid and what is
only near.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.rewards.maths import MathsVerifier

FILES = sorted((Path(__file__).parent / "maths_cases").glob("*.jsonl"))


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(workers=1)
    yield made
    made.close()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_pair_of_the_class_is_judged_as_labelled(file: Path, verifier: MathsVerifier) -> None:
    wrong: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        case = json.loads(line)
        verdict = verifier.verify(case["gold"], rf"So the answer is $\boxed{{{case['answer']}}}$.")
        if verdict.reward != float(case["label"]):
            wrong.append(f"{case['gold']} <- {case['answer']}: {verdict.status} {verdict.detail}")
    assert not wrong, "\n".join(wrong)


def test_every_class_has_answers_that_are_paid_and_near_misses() -> None:
    """A verifier that pays nothing, or everything, passes no class as a whole."""
    labels = [
        json.loads(line)["label"] for file in FILES for line in file.read_text("utf-8").splitlines()
    ]
    assert len(labels) > 400
    assert labels.count(True) > 120
    assert labels.count(False) > 250
