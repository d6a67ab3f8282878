"""Environments that peers play in these tests; `ludus --import` registers them in a server."""

from __future__ import annotations

import time
from typing import Any

import ludus

SECRET = "the-gold-is"
"""Begins every gold; no policy of these tests writes it, so whoever shows it has leaked."""


@ludus.register("peers/sums-v0")
class Sums(ludus.TextEnv):
    """Add two numbers, by a tool or by head, and say the sum.

    `break` is an action that this environment cannot score, `crash` one in which it fails, and
    `sleep S` takes S seconds and no turn's worth.
    """

    system_prompt = "Add the numbers."
    answer_format = "the sum, as digits"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.a, self.b = self.rng.randrange(100, 1000), self.rng.randrange(100, 1000)
        return f"{self.a} + {self.b}", {"gold": self.gold()}

    def step(self, action: str) -> tuple[str, float | ludus.Verdict, bool, bool, dict[str, Any]]:
        word, _, rest = action.partition(" ")
        if word == "break":
            return "", ludus.Verdict.unavailable("the judge is away"), True, False, {}
        if word == "crash":
            raise ZeroDivisionError("a bug of the environment")
        if word == "sleep":
            time.sleep(float(rest))
            return f"slept {rest}", 0.25, False, False, {}
        right = action.strip() == str(self.a + self.b)
        return "done", float(right), True, False, {"gold": self.gold()}

    @ludus.tool
    def add(self, first: int, second: int) -> int:
        """Add two numbers.

        Args:
            first: a number.
            second: another number.
        """
        return first + second

    @ludus.tool
    def submit(self, total: int) -> ludus.ToolResult:
        """Say the sum, which ends the episode.

        Args:
            total: the sum.
        """
        right = total == self.a + self.b
        return ludus.ToolResult(content="taken", reward=float(right), terminated=True)

    def gold(self) -> str:
        return f"{SECRET}-{self.a + self.b}"

    def demonstrate(self) -> str:
        return str(self.a + self.b)


def answer_to(question: str) -> str:
    """The right answer to what `Sums` asks."""
    first, _, second = question.partition(" + ")
    return str(int(first) + int(second))


EPISODES = 100
"""How many episodes a bridge plays whose rewards are held against direct play."""


def scripted(index: int) -> tuple[str, str, float]:
    """The question of `train/INDEX`, what is said to it (one in three says nothing of use), and the
    reward of that by direct play.
    """
    local = ludus.make(Sums)
    question = str(local.reset(seed=0, options={"task": f"train/{index}"})[0])
    said = answer_to(question) if index % 3 else "no idea"
    return question, said, float(local.step(said)[1])
