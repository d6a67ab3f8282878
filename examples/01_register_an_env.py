"""Register an environment with several turns, a tool, tasks of known difficulty and an expert.

python examples/01_register_an_env.py                            plays one episode
ludus --import examples/01_register_an_env.py check example/safe-v0 --max-return 1
ludus --import examples/01_register_an_env.py play example/safe-v0
ludus --import examples/01_register_an_env.py eval example/safe-v0 --policy expert --tasks 20
ludus --import examples/01_register_an_env.py serve example/safe-v0
"""

from __future__ import annotations

from typing import Any

import ludus


@ludus.register("example/safe-v0")
class Safe(ludus.TextEnv):
    """Open a safe: a tool tells whether the secret number is higher or lower.

    Args:
        largest: the secret lies between 1 and this.
    """

    system_prompt = "A safe opens on a secret number. Find it with the tool, then say it."
    answer_format = "Say the number alone, such as 17."
    max_turns = 10

    def __init__(self, largest: int = 100) -> None:
        self.largest = largest
        self.secret = 0
        self.low, self.high = 1, largest

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Draw the secret from `self.rng`, which the task and the seed fix."""
        self.secret = self.rng.randint(1, self.largest)
        self.low, self.high = 1, self.largest
        return f"The secret lies between 1 and {self.largest}.", {}

    @ludus.tool
    def compare(self, number: int) -> str:
        """Hold a number against the secret.

        Args:
            number: what to try
        """
        if number == self.secret:
            self.low = self.high = number
            return "equal"
        if number < self.secret:
            self.low = max(self.low, number + 1)
            return "the secret is higher"
        self.high = min(self.high, number - 1)
        return "the secret is lower"

    def step(self, action: str) -> tuple[str, ludus.Verdict, bool, bool, dict[str, Any]]:
        """The answer ends the episode; the verdict says why it earned what it did."""
        right = action.strip() == str(self.secret)
        detail = "open" if right else f"the secret was {self.secret}"
        return "", ludus.Verdict.of(float(right), detail), True, False, {}

    def gold(self) -> str:
        """The answer, so that `ludus check` can see that nothing shows it."""
        return str(self.secret)

    def demonstrate(self) -> str | ludus.Message:
        """Halve what is left until one number is."""
        if self.low == self.high:
            return str(self.low)
        middle = (self.low + self.high) // 2
        return ludus.Message(
            role=ludus.Role.ASSISTANT,
            tool_calls=[ludus.ToolCall(name="compare", arguments={"number": middle}, id="call_0")],
        )


def main() -> None:
    """Play one episode with the expert, through gymnasium's own API."""
    safe = Safe()
    env = ludus.make(safe)
    observation, _ = env.reset(seed=7)
    print(observation)
    over, total = False, 0.0
    while not over:
        action = safe.demonstrate()
        observation, reward, terminated, truncated, _ = env.step(action)
        print(action if isinstance(action, str) else action.tool_calls[0].arguments, env.render())
        total += reward
        over = terminated or truncated
    print(f"reward {total:g}")


if __name__ == "__main__":
    main()
