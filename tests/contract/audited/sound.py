"""Ten environments without the flaws of `planted.py`, but near them: none should be flagged."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import Any

from planted import Quiz, Step

import ludus
from ludus.envs import tool
from ludus.messages import Message, ToolCall, assistant

SOUND: list[str] = []
"""The ids of the sound environments."""


def sound(cls: type[ludus.TextEnv]) -> type[ludus.TextEnv]:
    """Register the class under `sound/NAME-v0`."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
    SOUND.append(f"sound/{name}-v0")
    return ludus.register(SOUND[-1])(cls)


@sound
class Sum(Quiz):
    """A sum, compared exactly."""


@sound
class SecretHandle(Quiz):
    """The question has a handle in base64 that says nothing of the answer."""

    def ask(self) -> str:
        handle = base64.b64encode(self.draw.randbytes(9)).decode()
        return f"[item {handle}] {super().ask()}"


@sound
class Tolerant(Quiz):
    """A quotient to three digits, with a tolerance relative to the answer."""

    def ask(self) -> str:
        first, second = self.draw.randint(100, 999), self.draw.randint(11, 99)
        self.answer = f"{first / second:.4f}"
        return f"What is {first} / {second}, to three digits?"

    def grade(self, said: str) -> float:
        try:
            distance = abs(float(said) - float(self.answer))
        except ValueError:
            return 0.0
        return float(distance <= 1e-3 * float(self.answer))


@sound
class FairChoices(Quiz):
    """Eight choices of equal length in random order; guessing pays an eighth, as it should."""

    def ask(self) -> str:
        first, second = self.draw.randint(100, 400), self.draw.randint(100, 400)
        values = self.draw.sample([n for n in range(200, 801) if n != first + second], 8)
        right = self.draw.randrange(8)
        values[right] = first + second
        self.answer = "ABCDEFGH"[right]
        lines = "\n".join(f"{'ABCDEFGH'[n]}. {value}" for n, value in enumerate(values))
        return f"What is {first} + {second}?\n{lines}\nAnswer with a letter."


@sound
class PatientTeacher(Quiz):
    """Three tries, and a wrong one is told that it is wrong."""

    max_turns = 3

    def step(self, action: str) -> Step:
        self.turn += 1
        right = action.strip() == self.answer
        told = "" if right else "Wrong. Try again; the answer is a number of three or four digits."
        return told, float(right), right or self.turn >= 3, False, {}


@sound
class SortedOnce(Quiz):
    """Numbers to be sorted by their last digit, ties by size."""

    def ask(self) -> str:
        numbers = self.draw.sample(range(100, 1000), 5)
        self.answer = " ".join(map(str, sorted(numbers, key=lambda n: (n % 10, n))))
        return f"Sort by the last digit, then by size: {' '.join(map(str, numbers))}"


@sound
class StrictFields(Quiz):
    """The answer is an object of which one field is read."""

    system_prompt = 'Answer with JSON: {"answer": "..."}.'

    def grade(self, said: str) -> float:
        try:
            given = json.loads(said)
        except ValueError:
            return 0.0
        return float(isinstance(given, dict) and given.get("answer") == self.answer)

    def demonstrate(self) -> str | Message | None:
        return json.dumps({"answer": self.answer})


@sound
class CoinOnce(ludus.TextEnv):
    """The coin pays once, where it belongs."""

    system_prompt = "Commands: pick, drop, go NAME. Bring the coin to the right room."
    never_blocks = True
    max_turns = 12

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        draw = random.Random(f"once/{self.task.seed}")
        self.goal, self.held = "".join(draw.choice("bcdefgklmnoprst") for _ in range(7)), False
        clue = f"It belongs to the room whose letters, each one further on, are {self._shifted()}."
        return f"A coin lies here. {clue}", {}

    def _shifted(self) -> str:
        return "".join(chr(ord(letter) + 1) for letter in self.goal)

    def step(self, action: str) -> Step:
        verb, _, name = action.strip().partition(" ")
        if verb in ("pick", "drop"):
            self.held = verb == "pick"
            return "Done. Commands: pick, drop, go NAME.", 0.0, False, False, {}
        if verb == "go":
            return "", float(self.held and name == self.goal), True, False, {}
        return "Nothing happens. Commands: pick, drop, go NAME.", 0.0, False, False, {}

    def demonstrate(self) -> str | Message | None:
        return f"go {self.goal}" if self.held else "pick"


@sound
class PaidHints(ludus.TextEnv):
    """Each hint costs what a letter is worth."""

    system_prompt = "Say the word backwards. Hints cost."
    never_blocks = True
    max_turns = 12

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        draw = random.Random(f"paid/{self.task.seed}")
        self.word = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(6))
        self.shown = 0
        return f"The word is {self.word}.", {}

    @tool
    def hint(self) -> str:
        """Show one more letter of the answer, for a sixth of the reward."""
        self.shown = min(6, self.shown + 1)
        return f"The answer begins with {self.word[::-1][: self.shown]!r}"

    def step(self, action: str) -> Step:
        right = action.strip() == self.word[::-1]
        return "", right * (1 - self.shown / 6), True, False, {}

    def gold(self) -> object | None:
        return self.word[::-1]

    def demonstrate(self) -> str | Message | None:
        return self.word[::-1]


@sound
class GuardedFiles(ludus.TextEnv):
    """What is expected is in no file."""

    system_prompt = "Write the product of the numbers in input.txt to output.txt, then say done."
    never_blocks = True
    max_turns = 8

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        draw = random.Random(f"guarded/{self.task.seed}")
        first, second = draw.randint(100, 999), draw.randint(100, 999)
        self.product = str(first * second)
        self.files = {"input.txt": f"{first} {second}"}
        return "You have a folder.", {}

    @tool
    def list_files(self) -> str:
        """List the files of the folder."""
        return "\n".join(sorted(self.files))

    @tool
    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: its name
        """
        return self.files.get(path, "no such file")

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Write a file.

        Args:
            path: its name
            content: the text
        """
        self.files[path] = content
        return "written"

    def step(self, action: str) -> Step:
        return "", float(self.files.get("output.txt") == self.product), True, False, {}

    def demonstrate(self) -> str | Message | None:
        if "output.txt" in self.files:
            return "done"
        words = {"path": "output.txt", "content": self.product}
        return assistant("", [ToolCall(name="write_file", arguments=words)])
