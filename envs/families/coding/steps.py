"""The building blocks of generated problems: steps that change a list, and the final result.

Each is a sentence and the Python line that does the same to `items`, with a number or two to be
filled in. An empty list is never a special case of a sentence: the lines are written so that they
work on it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NUMBERS, WORDS = "numbers", "words"


@dataclass(frozen=True, slots=True)
class Edit:
    """A sentence, and the line of Python that does what the sentence says.

    `{k}` and `{m}` are drawn from the given ranges; `{nth}` is k as an ordinal, `{below}` is k - 1.
    """

    says: str
    does: str
    k: tuple[int, int] = (2, 9)
    m: tuple[int, int] = (2, 9)

    def filled(self, rng: random.Random) -> Edit:
        """Return the step with the numbers drawn."""
        k, m = rng.randint(*self.k), rng.randint(*self.m)
        values = {"k": k, "m": m, "nth": _ORDINALS.get(k, ""), "below": k - 1}
        return Edit(self.says.format(**values), self.does.format(**values))


_ORDINALS = {2: "second", 3: "third", 4: "fourth"}


STEPS: dict[str, tuple[Edit, ...]] = {
    NUMBERS: (
        Edit("keep only the numbers that are divisible by {k}",
             "items = [x for x in items if x % {k} == 0]", k=(2, 4)),
        Edit("remove the numbers that are divisible by {k}",
             "items = [x for x in items if x % {k} != 0]", k=(2, 5)),
        Edit("keep only the numbers greater than {k}",
             "items = [x for x in items if x > {k}]", k=(-10, 10)),
        Edit("keep only the numbers from -{k} to {m}, both included",
             "items = [x for x in items if -{k} <= x <= {m}]", k=(3, 20), m=(3, 20)),
        Edit("multiply each number by {k} and add {m}",
             "items = [{k} * x + {m} for x in items]"),
        Edit("subtract each number from {k}",
             "items = [{k} - x for x in items]", k=(1, 30)),
        Edit("replace each number by its square",
             "items = [x * x for x in items]"),
        Edit("replace each number by its absolute value",
             "items = [abs(x) for x in items]"),
        Edit("replace each number by the sum of the decimal digits of its absolute value",
             "items = [sum(int(d) for d in str(abs(x))) for x in items]"),
        Edit("replace each number x by the remainder of x divided by {k}, from 0 to {below}",
             "items = [x % {k} for x in items]", k=(3, 12)),
        Edit("replace each number below -{k} by -{k}, and each above {m} by {m}",
             "items = [min(max(x, -{k}), {m}) for x in items]", k=(2, 12), m=(2, 12)),
        Edit("reverse the list",
             "items = items[::-1]"),
        Edit("move the first {k} numbers to the end, in their order; leave a shorter list as it is",
             "items = items[{k}:] + items[:{k}]", k=(2, 4)),
        Edit("remove repeated numbers, keeping the first of each",
             "items = list(dict.fromkeys(items))"),
        Edit("sort the numbers in ascending order",
             "items = sorted(items)"),
        Edit("sort the numbers by their absolute value, the negative one first among equals",
             "items = sorted(items, key=lambda x: (abs(x), x))"),
        Edit("replace the list by the differences of neighbours, the later minus the earlier",
             "items = [b - a for a, b in zip(items, items[1:])]"),
        Edit("replace each number by the sum of all numbers up to it, itself included",
             "items = [sum(items[: i + 1]) for i in range(len(items))]"),
        Edit("keep only every {nth} number, beginning with the first",
             "items = items[::{k}]", k=(2, 3)),
        Edit("remove each number that is smaller than the one before it, both as the list is now",
             "items = [x for i, x in enumerate(items) if i == 0 or x >= items[i - 1]]"),
        Edit("add {k} to each number at an odd position, positions counted from 0",
             "items = [x + {k} * (i % 2) for i, x in enumerate(items)]"),
        Edit("remove the smallest number, the first of them if there are several",
             "items = [x for i, x in enumerate(items) if i != items.index(min(items))]"),
    ),
    WORDS: (
        Edit("keep only the words of at least {k} letters",
             "items = [w for w in items if len(w) >= {k}]", k=(3, 5)),
        Edit("remove the words that begin and end with the same letter",
             "items = [w for w in items if w[:1] != w[-1:]]"),
        Edit("write each word backwards",
             "items = [w[::-1] for w in items]"),
        Edit("cut each word after its first {k} letters",
             "items = [w[:{k}] for w in items]", k=(2, 4)),
        Edit("remove the vowels a, e, i, o, u from each word; words may become empty",
             "items = [''.join(c for c in w if c not in 'aeiou') for w in items]"),
        Edit("move the first letter of each word to its end",
             "items = [w[1:] + w[:1] for w in items]"),
        Edit("replace each letter by the one {k} places later in the alphabet, a following z",
             "items = [''.join(chr((ord(c) - 97 + {k}) % 26 + 97) for c in w) for w in items]",
             k=(1, 25)),
        Edit("write each letter that stands at an even position of its word twice, positions "
             "counted from 0",
             "items = [''.join(c * (2 - i % 2) for i, c in enumerate(w)) for w in items]"),
        Edit("sort the letters within each word",
             "items = [''.join(sorted(w)) for w in items]"),
        Edit("in each word keep only the first of each letter",
             "items = [''.join(dict.fromkeys(w)) for w in items]"),
        Edit("remove repeated words, keeping the first of each",
             "items = list(dict.fromkeys(items))"),
        Edit("sort the words by length, those of equal length alphabetically",
             "items = sorted(items, key=lambda w: (len(w), w))"),
        Edit("sort the words alphabetically",
             "items = sorted(items)"),
        Edit("reverse the order of the words",
             "items = items[::-1]"),
        Edit("remove the first {k} words, or all if there are fewer",
             "items = items[{k}:]", k=(2, 3)),
        Edit("put the {nth} letter of each word, if it has so many, at its front as well",
             "items = [w[{below}:{k}] + w for w in items]", k=(2, 4)),
    ),
}  # fmt: skip
"""The steps that can be applied to each kind of list."""

NUMBER, TEXT, LIST = "int", "str", "list"

RESULTS: dict[str, tuple[tuple[str, Edit], ...]] = {
    NUMBERS: (
        (NUMBER, Edit("the sum of the numbers", "return sum(items)")),
        (NUMBER, Edit("the largest number, or 0 if there is none", "return max(items, default=0)")),
        (NUMBER, Edit("how many different numbers there are", "return len(set(items))")),
        (NUMBER, Edit("the numbers added and subtracted in turn, the first one added",
                      "return sum(items[::2]) - sum(items[1::2])")),
        (NUMBER, Edit("the sum of each number times its position, positions counted from 1",
                      "return sum(i * x for i, x in enumerate(items, 1))")),
        (NUMBER, Edit("how many neighbouring pairs have an even sum",
                      "return sum((a + b) % 2 == 0 for a, b in zip(items, items[1:]))")),
        (NUMBER, Edit("the number that occurs most often, the smallest of them if several do, "
                      "or 0 if there is none",
                      "return min(items, key=lambda x: (-items.count(x), x), default=0)")),
        (LIST, Edit("the list", "return items")),
        (LIST, Edit("the list of the smallest and the largest number, or an empty list",
                    "return [min(items), max(items)] if items else []")),
    ),
    WORDS: (
        (NUMBER, Edit("the number of letters in all words together", "return len(''.join(items))")),
        (NUMBER, Edit("how many words read the same backwards",
                      "return sum(w == w[::-1] for w in items)")),
        (TEXT, Edit("the words joined by hyphens", "return '-'.join(items)")),
        (TEXT, Edit("the longest word, the first of them if there are several, or an empty text",
                    "return max(items, key=len, default='')")),
        (TEXT, Edit("the first letters of all words that are not empty, joined",
                    "return ''.join(w[:1] for w in items)")),
        (LIST, Edit("the list of words", "return items")),
        (LIST, Edit("the list of the lengths of the words", "return [len(w) for w in items]")),
    ),
}  # fmt: skip
"""The possible results for each kind of list, each with a type."""
