r"""Letters that a question makes positive quantities, such as a mass or a radius.

Over these, `\sqrt{R^2}` is R. Over the real numbers it is |R|, and so it stays for every other
letter.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..reading.nodes import Node, has, num, power, replaced, sym, symbols, walk

PROMPTS = 256
"""How many prompts keep their letters in a cache."""
MAX_PROMPT = 4000
_GREEK_NAMES = "rho|lambda|mu|epsilon|omega|sigma"
_LETTER = (
    rf"\$?\s?(?P<letter>\\?(?<![A-Za-z])(?:[A-Za-z]|{_GREEK_NAMES})(?:_\{{?\w+\}}?)?(?![A-Za-z]))"
)
_NOUNS = (
    r"(?:radius|radii|mass(?:es)?|length|width|height|thickness|diameter|depth|side(?:s)?|density"
    r"|area|volume|distance|resistance|resistor|capacitance|capacitor|inductance|inductor|coil"
    r"|spring constant|stiffness|frequency|wavelength|period|pressure|temperature|amplitude|tension"
    r"|speed|half-life|lifetime|concentration|modulus|edge(?:s)?|semi-?axis|constant of gravity"
    r"|gravitational acceleration|acceleration due to gravity|gravity|field|amount)"
)
_NAMED = re.compile(rf"(?i)\b{_NOUNS}(?: of)?\s+{_LETTER}")
_STATED = re.compile(rf"{_LETTER}\s?(?:>|\\gt)\s*0(?![\d.])")
# In `2x > 0`, `y - x > 0` and `\sin x > 0` the letter is a part of what is positive.
_PART = re.compile(r"(?:[-+*/^=\d)}|]|\\[A-Za-z]+|(?<![A-Za-z\\])[B-HJ-Zb-z])[\s$]*$")
# `x > 0` may be one case of several.
_CASES = re.compile(r"(?i)\botherwise\b|\\begin\{cases\}|\bpiecewise\b")
_OTHERWISE = re.compile(rf"{_LETTER}\s?(?:<|≤|\\(?:l[et]q?|leqslant)(?![a-z]))\s*0(?![\d.])")
_JOINED = r"(?:\s*,\s*|\s+and\s+|,\s+and\s+)?"
_POSITIVE = re.compile(
    r"(?<!non)(?<!non-)(?<!ot )\bpositive (?:real )?"
    r"(?:numbers?|constants?|reals?|quantities|parameters?|integers?)?\s*"
    rf"(?P<letters>(?:\$?[a-zA-Z](?![A-Za-z])\$?{_JOINED})++)"
    r"(?![- ]?(?:ax[ie]s|direction|half|semi|side|end))"
    rf"|(?P<before>(?:\$[a-z]\${_JOINED})+)\s+(?:be|are|is)(?: an?)? positive"
)
_GREEK = {"ρ": "rho", "λ": "lambda", "μ": "mu", "ε": "epsilon", "ω": "omega", "σ": "sigma"}
_CONSTANTS = frozenset({"G", "hbar", "k_B", "epsilon_0", "mu_0"})
"""Constants of nature, which are positive beside any such quantity."""


@lru_cache(maxsize=PROMPTS)
def positive_letters(prompt: str) -> frozenset[str]:
    """Return the names that a question gives to positive quantities.

    >>> sorted(positive_letters("A planet has the radius $R$ and the mass m.") - {"G", "hbar"})
    ['R', 'epsilon_0', 'k_B', 'm', 'mu_0']
    """
    said = prompt[:MAX_PROMPT]
    for letter, name in _GREEK.items():
        said = said.replace(letter, rf" \{name} ")
    said = re.sub(r" +", " ", said)
    letters = {match["letter"] for match in _NAMED.finditer(said)}
    if not _CASES.search(said):
        letters |= {
            match["letter"]
            for match in _STATED.finditer(said)
            if not _PART.search(said, max(0, match.start("letter") - 20), match.start("letter"))
        }
    for match in _POSITIVE.finditer(said):
        listed = match["letters"] or match["before"]
        letters |= set(re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", listed))
    letters -= {match["letter"] for match in _OTHERWISE.finditer(said)}
    # `a` may be the article.
    letters -= {name for name in letters & {"a", "A"} if f"${name}$" not in said}
    names = {re.sub(r"[\\{}]", "", name) for name in letters}
    return frozenset(names) | _CONSTANTS if names else frozenset()


def over_positive(gold: Node, answer: Node, letters: frozenset[str]) -> tuple[Node, Node] | None:
    """Return two formulas with the square of each positive letter in its place, which is not
    negative; None where no root or logarithm has such a letter.
    """
    # A gold with |x| has to tell the signs of x apart.
    signed = [symbols(part) for part in walk(gold) if part.note == "abs"]
    names = ((symbols(gold) | symbols(answer)) & letters).difference(*signed)
    if not names or has(gold, "text") or not (_is_rooted(gold) or _is_rooted(answer)):
        return None
    for name in names:
        square = power(sym(name), num(2))
        gold, answer = replaced(gold, sym(name), square), replaced(answer, sym(name), square)
    return gold, answer


def _is_rooted(node: Node) -> bool:
    """Return whether a formula has a root or a logarithm of letters."""
    return any(
        (part.op == "pow" and part.args[1].op == "num" and part.args[1].value.denominator > 1)
        or (part.op == "func" and part.note in {"ln", "log"})
        for part in walk(node)
        if symbols(part)
    )
