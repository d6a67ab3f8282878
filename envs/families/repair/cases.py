"""Test cases of the library's functions: the arguments, and the result of each call.

Some arguments are chosen by hand. The others are drawn with a fixed seed, so that `kills.py` can
record in advance which mutations each case detects.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from .library import grids, integers, records, sequences, text
from .mutations import normal

CASES = 16
"""The number of test cases for each function."""

MODULES = (sequences, text, integers, grids, records)
"""The modules of the library, in the order in which `library` returns their functions."""

Arguments = tuple[Any, ...]
Draw = Callable[[random.Random], Arguments]


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function of the library, with test cases."""

    name: str
    file: str
    source: str
    calls: tuple[str, ...]
    """The calls, as a user would write them: `place_of([1, 3], 3)`."""
    results: tuple[str, ...]
    """The result of each call: a value as Python writes it, or the name of the raised exception."""

    @property
    def tests(self) -> list[str]:
        """The test cases as assertions, an assertion per call."""
        return [
            f"try:\n    {call}\nexcept ValueError:\n    pass\nelse:\n    assert False, 'no error'"
            if result == ValueError.__name__
            else f"assert {call} == {result}"
            for call, result in zip(self.calls, self.results, strict=True)
        ]


@cache
def library() -> dict[str, LibraryFunction]:
    """Return all functions by name, in the order of the files."""
    functions: dict[str, LibraryFunction] = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
                continue  # a constant, or imported from elsewhere
            # A generator for each function: a new function does not change the cases of the others.
            rng = random.Random(f"cases/{name}")
            by_hand, draw = INPUTS[name]
            arguments = [*by_hand, *(draw(rng) for _ in range(CASES - len(by_hand)))]
            functions[name] = LibraryFunction(
                name=name,
                file=f"{module.__name__.rpartition('.')[2]}.py",
                source=normal(inspect.getsource(function)),
                calls=tuple(f"{name}({', '.join(map(repr, values))})" for values in arguments),
                results=tuple(_result(function, values) for values in arguments),
            )
    return functions


def _result(function: FunctionType, arguments: Arguments) -> str:
    # A copy, since a function may change what it is given, and arguments are shared by cases.
    try:
        return repr(function(*deepcopy(arguments)))
    except ValueError:
        return ValueError.__name__


# --- how arguments are drawn ----------------------------------------------------------------------


def _numbers(low: int, high: int, *, most: int = 8, fewest: int = 1) -> Draw:
    return lambda rng: ([rng.randint(low, high) for _ in range(rng.randint(fewest, most))],)


def _with(draw: Draw, low: int, high: int) -> Draw:
    """Return `draw` with a further argument: a number from `low` to `high`."""
    return lambda rng: (*draw(rng), rng.randint(low, high))


def _intervals(last_start: int, counts: tuple[int, int], lengths: tuple[int, int]) -> Draw:
    def draw(rng: random.Random) -> Arguments:
        starts = [rng.randint(0, last_start) for _ in range(rng.randint(*counts))]
        return ([[start, start + rng.randint(*lengths)] for start in starts],)

    return draw


def _letters(rng: random.Random, alphabet: str, fewest: int, most: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(fewest, most)))


def _text(alphabet: str, *, fewest: int = 1, most: int = 10) -> Draw:
    return lambda rng: (_letters(rng, alphabet, fewest, most),)


def _words(rng: random.Random, count: int) -> list[str]:
    pool = ("to", "be", "or", "not", "that", "is", "the", "question", "a", "sea", "of", "troubles")
    return rng.choices(pool, k=count)


def _sentence(rng: random.Random) -> Arguments:
    marks = ("", "", "", ",", ".", "!", "...")
    words = [word + rng.choice(marks) for word in _words(rng, rng.randint(3, 9))]
    return (" ".join(word.title() if rng.random() < 0.3 else word for word in words),)


def _starting_alike(rng: random.Random) -> Arguments:
    start = _letters(rng, "ab", 0, 4)
    return ([start + _letters(rng, "abc", 0, 3) for _ in range(rng.randint(1, 4))],)


def _camel(rng: random.Random) -> Arguments:
    words = _words(rng, rng.randint(1, 4))
    title_words = "".join(word.title() for word in words)
    return (title_words if rng.random() < 0.3 else title_words[0].lower() + title_words[1:],)


def _subsequence(rng: random.Random) -> Arguments:
    long = _letters(rng, "abcd", 4, 9)
    kept_letters = "".join(letter for letter in long if rng.random() < 0.5)
    return (kept_letters if rng.random() < 0.6 else _letters(rng, "abcd", 2, 4), long)


def _grid(low: int, high: int, *, square: bool = False, size: int = 4) -> Draw:
    def draw(rng: random.Random) -> Arguments:
        rows, columns = rng.randint(1, size), rng.randint(1, size)
        columns = rows if square else columns
        return ([[rng.randint(low, high) for _ in range(columns)] for _ in range(rows)],)

    return draw


def _cell(rng: random.Random) -> Arguments:
    (grid,) = _grid(0, 1, size=5)(rng)
    return (grid, rng.randrange(len(grid)), rng.randrange(len(grid[0])))


def _matrices(rng: random.Random) -> Arguments:
    rows, shared, columns = (rng.randint(1, 3) for _ in range(3))
    fits = shared if rng.random() < 0.8 else shared + 1
    return tuple(
        [[rng.randint(-4, 5) for _ in range(c)] for _ in range(r)]
        for r, c in ((rows, shared), (fits, columns))
    )


def _scores(rng: random.Random) -> Arguments:
    names = rng.sample(("ann", "bob", "cy", "dot", "eve", "flo"), rng.randint(2, 6))
    return ({name: rng.randint(1, 4) for name in names},)


def _stock(rng: random.Random) -> Arguments:
    names = ("nut", "bolt", "gear", "cog", "rod")
    stock = {name: rng.randint(1, 5) for name in rng.sample(names, 3)}
    return (stock, {name: rng.randint(-5, 4) for name in rng.sample(names, 3)})


def _needs(rng: random.Random) -> Arguments:
    tasks = rng.sample("abcdef", rng.randint(2, 6))
    needs = {
        task: [n for n in tasks[:place] if rng.random() < 0.4] for place, task in enumerate(tasks)
    }
    if rng.random() < 0.2:
        needs[tasks[0]] = [tasks[-1]]
        needs[tasks[-1]] = [tasks[0]]
    return ({task: needs[task] for task in rng.sample(tasks, len(tasks))},)


def _links(rng: random.Random) -> Arguments:
    places = "abcdef"
    links = {place: rng.sample(places, rng.randint(0, 2)) for place in places}
    return (links, rng.choice(places), rng.choice(places))


def _postfix(rng: random.Random) -> Arguments:
    tokens, depth = [str(rng.randint(0, 9))], 1
    for _ in range(rng.randint(1, 6)):
        if depth > 1 and rng.random() < 0.5:
            tokens.append(rng.choice("+-*"))
            depth -= 1
        else:
            tokens.append(str(rng.randint(0, 9)))
            depth += 1
    return ([*tokens, *(rng.choice("+-*") for _ in range(depth - 1))],)


_RING = [[1, 1, 1], [1, 0, 1], [1, 1, 1]]
_MAGIC = [[2, 7, 6], [9, 5, 1], [4, 3, 8]]

INPUTS: dict[str, tuple[list[Arguments], Draw]] = {
    "running_totals": ([([],), ([5],)], _numbers(-9, 9)),
    "longest_rise": ([([],), ([4],), ([1, 2, 3, 4],), ([2, 2, 2],)], _numbers(0, 9)),
    "merge_spans": ([([],), ([[1, 3], [3, 5]],), ([[1, 9], [2, 3]],), ([[1, 2], [3, 4]],)],
                    _intervals(15, (2, 5), (0, 4))),
    "place_of": ([([], 3), ([2, 2, 2], 2), ([1, 2, 3], 9)],
                 lambda rng: (sorted(rng.randint(0, 9) for _ in range(rng.randint(1, 8))),
                              rng.randint(-1, 10))),
    "rotated": ([([], 3), ([1, 2, 3], 3)], _with(_numbers(0, 9), 0, 9)),
    "pair_with_sum": ([([5], 10), ([5, 5], 10)], _with(_numbers(0, 9), 4, 14)),
    "best_stretch": ([([],), ([-2, -1],), ([3],)], _numbers(-6, 6)),
    "without_repeats": ([([],)], _numbers(0, 4)),
    "chunks": ([([], 2), ([1, 2], 0), ([1, 2], -1), ([1, 2, 3], 1)], _with(_numbers(0, 9), 1, 5)),
    "second_largest": ([([],), ([3],), ([3, 3],), ([-1, -5],)], _numbers(0, 9)),
    "majority": ([([],), ([1, 2],), ([7],)], _numbers(0, 2)),
    "water_held": ([([],), ([3, 0, 3],), ([1, 2, 3],)], _numbers(0, 5, fewest=3)),
    "run_lengths": ([("",), ("a",)], _text("ab")),
    "is_balanced": ([("",), ("(",), (")",), ("([)]",), ("{[()]}",), ("f(x[1], {2})",), ("(a))",)],
                    _text("()[]", most=6)),
    "shifted": ([("xyz, A", 2), ("abc", -1), ("`a{z", 1)],
                lambda rng: (_letters(rng, "abmyz AZ", 3, 8), rng.randint(-30, 30))),
    "is_palindrome": ([("",), ("No lemon, no melon!",), ("ab",), ("abca",), ("aBcbA",), ("1a1",)],
                      _text("aA-b", most=5)),
    "wrapped": ([("", 5), ("question", 3)],
                lambda rng: (" ".join(_words(rng, rng.randint(2, 9))), rng.randint(3, 12))),
    "common_start": ([([],), (["abc"],), (["ab", "abc"],)], _starting_alike),
    "initials": ([("",), ("ada  king lovelace",)],
                 lambda rng: ("  ".join(_words(rng, rng.randint(1, 5))),)),
    "edit_distance": ([("", ""), ("", "ab"), ("ab", ""), ("kitten", "sitting")],
                      lambda rng: (_letters(rng, "abc", 1, 7), _letters(rng, "abc", 1, 7))),
    "word_counts": ([("",), ("... !",), ("No, no: yes!",)], _sentence),
    "is_subsequence": ([("", ""), ("", "a"), ("a", ""), ("aa", "a")], _subsequence),
    "snake_case": ([("",), ("A",), ("a_B",), ("maxLineWidth",)], _camel),
    "longest_word": ([("",), ("an old red house and a large mouse",)],
                     lambda rng: (" ".join(_words(rng, rng.randint(1, 7))),)),
    "digit_sum": ([(0,), (-305,), (9,), (10,)], lambda rng: (rng.randint(-9999, 9999),)),
    "greatest_divisor": ([(0, 0), (0, 7), (7, 0), (12, -18), (-4, 6)],
                         lambda rng: (6 * rng.randint(1, 12), 2 * rng.randint(1, 30))),
    "prime_factors": ([(0,), (1,), (2,), (4,), (60,), (49,), (-3,)],
                      lambda rng: (rng.randint(2, 200),)),
    "to_base": ([(0, 2), (1, 2), (8, 2), (9, 10)],
                lambda rng: (rng.randint(0, 500), rng.randint(2, 10))),
    "to_roman": ([(1,), (4,), (1994,), (3999,), (40,), (90,), (400,)],
                 lambda rng: (rng.randint(1, 3999),)),
    "is_leap_year": ([(1900,), (2000,), (2024,), (2023,), (2100,), (1600,), (4,), (1,)],
                     lambda rng: (100 * rng.randint(16, 24) + 4 * rng.randint(0, 3),)),
    "fewest_coins": ([(0, [2]), (3, [2]), (6, [1, 3, 4]), (7, [7])],
                     lambda rng: (rng.randint(0, 30),
                                  sorted(rng.sample(range(1, 12), rng.randint(1, 3))))),
    "clock_time": ([(0,), (59,), (60,), (1440,), (1500,)], lambda rng: (rng.randint(0, 3000),)),
    "is_prime": ([(n,) for n in (-3, 0, 1, 2, 3, 4, 9, 25, 15)],
                 lambda rng: (rng.randint(2, 130),)),
    "binomial": ([(0, 0), (5, -1), (3, 4), (4, 4), (5, 2)],
                 lambda rng: (rng.randint(1, 9), rng.randint(0, 9))),
    "collatz_steps": ([(1,), (2,), (6,), (7,)], lambda rng: (rng.randint(1, 60),)),
    "rounded_to": ([(0, 5), (12, 5), (13, 5), (5, 10), (7, 1), (3, 3)],
                   lambda rng: (rng.randint(0, 60), rng.randint(1, 9))),
    "turned": ([([],), ([[1]],)], _grid(0, 9)),
    "spiral": ([([],), ([[1, 2, 3]],), ([[1], [2]],), ([[1, 2, 3], [4, 5, 6], [7, 8, 9]],)],
               _grid(0, 9)),
    "living_neighbours": ([([[1]], 0, 0), ([[1, 1, 1]] * 3, 1, 1)], _cell),
    "islands": ([([],), ([[0]],), ([[1]],), ([[1, 0], [0, 1]],), (_RING,)], _grid(0, 1, size=5)),
    "cheapest_path": ([([[3]],), ([[1, 9, 1], [1, 1, 1]],)], _grid(0, 9)),
    "is_magic": ([(_MAGIC,), ([[5]],), ([[1, 2], [3, 4]],), ([[1, 1], [1, 1]],),
                  ([[2, 7, 6], [9, 5, 1], [4, 8, 3]],), ([[1, 2, 3], [2, 3, 1], [3, 1, 2]],),
                  ([[1, 2, 3], [3, 1, 2], [2, 3, 1]],), ([[2, 1, 3], [3, 2, 1], [1, 3, 2]],)],
                 _grid(1, 2, square=True, size=3)),
    "saddle_points": ([([[1]],), ([[2, 2], [2, 2]],), ([[9, 8, 7], [5, 3, 2], [6, 6, 7]],)],
                      _grid(0, 3)),
    "product": ([([[2]], [[3]]), ([[1, 2]], [[3, 4]])], _matrices),
    "inverted": ([({},), ({"b": 1, "a": 1},)], _scores),
    "ranked": ([({},), ({"b": 1, "a": 1},)], _scores),
    "added": ([({}, {}), ({"a": 1}, {"a": -1}), ({}, {"a": 1}), ({"a": 1}, {"b": -1})], _stock),
    "in_order": ([({},), ({"a": ["a"]},), ({"b": ["a"], "a": ["b"]},)], _needs),
    "steps_apart": ([({}, "a", "a"), ({}, "a", "b")], _links),
    "most_at_once": ([([],), ([[1, 2], [2, 3]],), ([[1, 3], [2, 4]],)],
                     _intervals(9, (1, 6), (1, 4))),
    "kept_pages": ([([], 2), ([1], 1), ([1, 2], 1)], _with(_numbers(1, 5, most=9, fewest=4), 1, 4)),
    "evaluated": ([(["7"],), (["5", "2", "-"],), (["-3", "2", "*"],)], _postfix),
    "balance_after": ([([],), ([["in", "5"], ["out", "5"]],), ([["out", "1"]],)],
                      lambda rng: ([[kind, str(rng.randint(0, 9))] for kind in
                                    rng.choices(("in", "out"), k=rng.randint(2, 7))],)),
    "grouped": ([([],), (["ab", "ba", "b"],)],
                lambda rng: ([_letters(rng, "abc", 2, 2) for _ in range(rng.randint(2, 6))],)),
}  # fmt: skip
"""For each function, arguments chosen by hand and how further arguments are drawn."""
