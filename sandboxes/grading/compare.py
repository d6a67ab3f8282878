"""Compares outputs as texts: exactly, by tokens or by numbers. Nothing in an output is
evaluated.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ludus.errors import ConfigError

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?|[+-]?(inf|nan)", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A way to compare an output with the expected output."""

    kind: str
    """How to compare: `exact`, `tokens` or `float`."""
    tolerance: float = 0.0
    """How far a float may be off: absolutely, or relative to the larger of the two numbers,
    whichever allows more.
    """

    @classmethod
    def parse(cls, text: str) -> Comparison:
        """Read a comparison, written `exact`, `tokens` or `float:TOLERANCE`.

        `exact` compares lines, without spaces at the ends of lines and empty lines at the end.
        `tokens` compares the words between spaces. `float` does too, but words that are numbers
        need only be close.

        Raises:
            ConfigError: the text is none of these, or the tolerance is not in [0, 1).
        """
        if text in ("exact", "tokens"):
            return cls(text)
        kind, _, tolerance = text.partition(":")
        if kind == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < 1:
            return cls("float", float(tolerance))
        raise ConfigError(
            f"compare {text!r} is not 'exact', 'tokens' or 'float:TOLERANCE', 0 <= TOLERANCE < 1"
        )

    def same(self, output: str, expected: str) -> bool:
        r"""Return whether `output` is as good as `expected`.

        >>> Comparison.parse("exact").same("1 2 \n3\n\n", "1 2\n3")
        True
        >>> Comparison.parse("float:1e-6").same("0.3333333", "0.33333333")
        True
        """
        if self.kind == "exact":
            return _lines(output) == _lines(expected)
        words, expected_words = output.split(), expected.split()
        if self.kind == "tokens":
            return words == expected_words
        return len(words) == len(expected_words) and all(map(self._close, words, expected_words))

    def _close(self, word: str, expected_word: str) -> bool:
        if word == expected_word:
            return True
        if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected_word)):
            return False
        return math.isclose(
            float(word), float(expected_word), rel_tol=self.tolerance, abs_tol=self.tolerance
        )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
