"""Which answer of a response counts: labelled responses of many classes and languages.

A row of `maths_answers.jsonl` has a class, a gold, a response, whether it has to be paid,
`truncated` where the response was cut off, and `prompt` where the question matters. Right answers
and near misses stand side by side.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.rewards.maths import MathsVerifier

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "maths_answers.jsonl").read_text("utf-8").splitlines()
]
CLASSES = sorted({row["class"] for row in ROWS})


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(workers=1)
    yield made
    made.close()


def test_every_class_has_right_answers_and_near_misses() -> None:
    assert len(ROWS) >= 250
    counts = Counter((row["class"], row["paid"]) for row in ROWS)
    assert all(counts[name, paid] >= 2 for name in CLASSES for paid in (True, False))


@pytest.mark.parametrize("name", CLASSES)
def test_the_answer_that_counts_is_paid_and_no_other(name: str, verifier: MathsVerifier) -> None:
    wrong: list[tuple[str, str, str]] = []
    for row in ROWS:
        if row["class"] == name:
            verdict = verifier.verify(
                row["gold"],
                row["response"],
                prompt=row.get("prompt", ""),
                truncated=row.get("truncated", False),
            )
            if (verdict.reward == 1.0) != row["paid"]:
                wrong.append((row["gold"], row["response"], verdict.detail))
    assert not wrong
