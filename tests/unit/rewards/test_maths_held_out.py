"""Labelled answers of every kind, in the proportions of real ones, and wrong answers that look
nearly right. `benchmarks/maths_held_out.py` prints the figures by set and, with `--misses`, the
cases that are judged wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.rewards.maths import MathsVerifier

FOLDER = Path(__file__).parent / "maths_held_out"


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(timeout_s=5)
    yield made
    made.close()


def judged(verifier: MathsVerifier, name: str) -> list[tuple[bool, bool]]:
    """Label and verdict (paid or not) of each case."""
    found: list[tuple[bool, bool]] = []
    for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        truncated = bool(row.get("truncated"))
        verdict = verifier.verify(
            row["gold"], row["response"], prompt=row.get("prompt", ""), truncated=truncated
        )
        found.append((row["label"], verdict.reward == 1.0))
    return found


@pytest.mark.slow
def test_answers_of_every_kind(verifier: MathsVerifier) -> None:
    verdicts = judged(verifier, "core")
    assert len(verdicts) > 1_700
    assert sum(label == paid for label, paid in verdicts) >= 0.97 * len(verdicts)
    labels_of_paid = [label for label, paid in verdicts if paid]
    assert sum(labels_of_paid) >= 0.99 * len(labels_of_paid)


def test_near_misses(verifier: MathsVerifier) -> None:
    verdicts = judged(verifier, "near_misses")
    assert len(verdicts) > 600
    assert not any(label for label, _ in verdicts)
    assert sum(paid for _, paid in verdicts) <= 3 / 172 * len(verdicts)


def test_hard_answers_half_of_which_are_wrong(verifier: MathsVerifier) -> None:
    verdicts = judged(verifier, "hard")
    assert len(verdicts) > 1_300
    assert sum(label == paid for label, paid in verdicts) >= 0.93 * len(verdicts)
    labels_of_paid = [label for label, paid in verdicts if paid]
    assert sum(labels_of_paid) >= 0.95 * len(labels_of_paid)
