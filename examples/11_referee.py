"""A policy that learns to judge answers: the referee of URPO (arXiv 2507.17515).

    ludus --import examples/11_referee.py train examples/11_referee.toml

A task is a row of preferences: a question, and answers of which it is known which are better. The
policy scores every answer, and earns the agreement of its order with the known one, Kendall's tau
from [-1, 1] brought to [0, 1]. The order in which answers are shown is drawn, so that a liking for
a place earns nothing.

    referee    q17   A poor   B good   C fair   the question, and the answers
               {"scores":{"A":1,"B":9,"C":5}}   reward 1: all three pairs are in order

In URPO the same policy also answers: questions with a verifier are another `[[environment]]` of the
run, and questions without one take the scores that the policy gives to its own group (`[[reward]]`,
`self-grading`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ludus
from ludus.agent.data.preferences import PreferenceReader
from ludus.envs import Briefing
from ludus.envs.problem_files import rows_of
from ludus.errors import ConfigError
from ludus.rewards.judge.reading import UnreadableVerdict
from ludus.rewards.learned.text.self_grading import read_scores
from ludus.trainer.algorithms import urpo_referee_reward

ENV = "example/referee-v0"
SYSTEM = 'Score each answer from 1 to 10, higher is better: {"scores":{"A":7,...}}'
HELD_OUT = 5
"""One row in so many is of the test split."""


@ludus.register(ENV)
class Referee(ludus.TextEnv):
    """Score the answers of a preference row.

    Args:
        source: a file of rankings or pairs, as `ludus train dpo` reads them; empty makes rows whose
            answers say what they are worth, so that a tiny model can learn them.
        slips: how often the demonstrator scores in the wrong order.
    """

    max_turns = 1

    def __init__(self, source: str = "", slips: float = 0.0) -> None:
        self.slips = slips
        self.rows: list[tuple[str, list[str], list[float]]] = []
        if source:
            reader = PreferenceReader(Path(source).parent)
            rankings = [reader.ranking(row) for row in rows_of(source)]
            if not rankings:
                raise ConfigError(f"source {source!r} has no row; name a file of rankings or pairs")
            self.rows = [
                (
                    "\n".join(message.text for message in ranking.prompt),
                    ["\n".join(message.text for message in each) for each in ranking.answers],
                    [-rank for rank in ranking.ranks],
                )
                for ranking in rankings
            ]
        self.names: list[str] = []
        self.true: list[float] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Show the row of the task, with its answers in an order of this episode."""
        question, answers, scores = self._row()
        order = self.rng.sample(range(len(answers)), len(answers))
        self.names = [chr(ord("A") + place) for place in range(len(order))]
        self.true = [scores[number] for number in order]
        self.slip = self.rng.random() < self.slips
        shown = [
            f"{name} {answers[number]}" for name, number in zip(self.names, order, strict=True)
        ]
        briefing = Briefing(system_prompt=SYSTEM, max_turns=self.max_turns)
        return "\n".join([question, *shown]), {"briefing": briefing}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Compare the scores with the truth; what cannot be read earns nothing."""
        try:
            given = read_scores(action, self.names)
        except UnreadableVerdict:
            return "", 0.0, True, False, {}
        tau = urpo_referee_reward([given[name] for name in self.names], self.true)
        return "", (tau + 1) / 2, True, False, {}

    def demonstrate(self) -> str:
        """Score by the true order; a slip turns it around."""
        ranked = sorted({*self.true}, reverse=self.slip)
        apart = max(len(ranked) - 1, 1)
        scores = {
            name: 1 + 8 * ranked.index(true) // apart
            for name, true in zip(self.names, self.true, strict=True)
        }
        return json.dumps({"scores": scores}, separators=(",", ":"))

    def _row(self) -> tuple[str, list[str], list[float]]:
        number = self.task.seed
        if not self.rows:
            return f"q{number % 100}", ["good", "fair", "poor"], [3.0, 2.0, 1.0]
        held_out = self.rows[::HELD_OUT]
        trained = [row for place, row in enumerate(self.rows) if place % HELD_OUT] or held_out
        rows = held_out if self.task.split == "test" else trained
        return rows[number % len(rows)]
