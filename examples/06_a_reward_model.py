"""A reward model of one's own: a verifier that scores many answers in one call.

    ludus --import examples/06_a_reward_model.py serve me/plain-words --port 8765

ludus gathers answers that arrive one by one into batches, as a model wants them. Put your model
where the weights are; a torch module is moved to its device in `start`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import ludus

WORDS = ("the", "it", "is", "utilise", "leverage", "synergy")


@ludus.verifier("me/plain-words")
class PlainWords:
    """A linear model over counts of a few words: plain ones are liked, office ones are not."""

    max_batch = 32
    max_wait_ms = 2.0

    def __init__(self) -> None:
        self.weights = np.array([0.1, 0.1, 0.1, -1.0, -1.0, -1.0])

    def prepare(self, sample: ludus.Sample) -> list[int]:
        """What the model reads of an answer; runs while another batch is computed."""
        words = sample.text.casefold().split()
        return [words.count(word) for word in WORDS]

    def score_batch(self, counts: Sequence[list[int]]) -> list[float]:
        """One reward in (0, 1) an answer."""
        return [1 / (1 + math.exp(-score)) for score in np.array(counts) @ self.weights]

    def card(self) -> dict[str, Any]:
        """Which weights."""
        return {"weights": "six numbers in this file", "device": "cpu"}


if __name__ == "__main__":
    for answer in ("It is the sum.", "We leverage synergy."):
        print(f"{ludus.score('me/plain-words', response=answer).reward:.2f}  {answer}")
