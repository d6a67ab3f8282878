"""Environments that peers play in these tests; `ludus --import` registers them in a server."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import ludus
from ludus.messages import Message, ToolCall, assistant

SECRET = "the-gold-is"
"""Begins every gold; no policy of these tests writes it, so whoever shows it has leaked."""


@ludus.register("peers/sums-v0")
class Sums(ludus.TextEnv):
    """Add two numbers, by a tool or by head, and say the sum.

    `about N` earns the less the further N is from the sum. `break` is an action that this
    environment cannot score, `crash` one in which it fails, and `sleep S` takes S seconds and no
    turn's worth.
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
        if word == "about":
            return "done", 1 / (1 + abs(int(rest) - self.a - self.b)), True, False, {}
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
"""How many episodes each bridge plays whose rewards are held against direct play."""
CALL = '<tool_call>\n{"name": "add", "arguments": {"first": 1, "second": 2}}\n</tool_call>'
"""A call of `add`, as a policy with the format `hermes` writes it; its result is 3."""


class Script(NamedTuple):
    """An episode whose every action is fixed."""

    task: str
    question: str
    calls: bool
    """Whether `add` is called with 1 and 2 before the answer."""
    said: str
    reward: float
    """The sum of the rewards by direct play."""

    @property
    def lines(self) -> list[str]:
        """What a policy says, action by action."""
        return [CALL, self.said] if self.calls else [self.said]


def scripts(split: str = "train") -> list[Script]:
    """Return the first tasks of a split of `Sums`, each with the actions of an episode and its
    reward by direct play: every second one calls a tool, and answers are right, near or of no use.
    """
    local = ludus.make(Sums)
    episodes = list[Script]()
    for index in range(EPISODES):
        task, calls = f"{split}/{index}", index % 2 == 1
        question = str(local.reset(seed=0, options={"task": task})[0])
        right = answer_to(question)
        said = (right, f"about {int(right) + index}", "no idea")[index % 3]
        call = ToolCall(name="add", arguments={"first": 1, "second": 2}, id="call_0")
        earned = float(local.step(assistant("", [call]))[1]) if calls else 0.0
        reward = earned + float(local.step(said)[1])
        episodes.append(Script(task, question, calls, said, reward))
    return episodes


@ludus.register("peers/digits-v0")
class Digits(ludus.TextEnv):
    """Submit the digit that is shown, by a tool; a policy of 0.9 million weights learns it."""

    system_prompt = "Submit the digit."

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.digit = self.rng.randrange(10)
        return f"digit {self.digit}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "that was no call", 0.0, True, False, {}

    @ludus.tool
    def submit(self, digit: int) -> ludus.ToolResult:
        """Submit the digit, which ends the episode.

        Args:
            digit: what is shown.
        """
        reward = float(digit == self.digit)
        return ludus.ToolResult(content="taken", reward=reward, terminated=True)

    def demonstrate(self) -> Message:
        call = ToolCall(name="submit", arguments={"digit": self.digit})
        return assistant("", tool_calls=[call])
