"""Random programs whose tests and solution hand the same containers to each other and change them.

A program is written while plain CPython runs it, so that each assertion states what is true there.
What either side changes the other side has to see, whichever way the container has gone: as an
argument, an answer, an attribute, an item of another container, or by a callback.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from typing import Any

SOLUTION = """
from collections import Counter, OrderedDict, defaultdict, deque

def change(x, n):
    if isinstance(x, OrderedDict) and x:
        x.move_to_end(next(iter(x)))
    if isinstance(x, Counter):
        x.update([n, n])
    elif isinstance(x, dict):
        x[n] = n * 2
    elif isinstance(x, set):
        x ^= {n}
    elif isinstance(x, bytearray):
        x[:1] = bytes([n, n])
    elif isinstance(x, deque):
        x.rotate(1)
        x.append(n)
    elif n % 3 or not x:
        x.append(n)
    else:
        x.reverse()

class Shelf:
    def __init__(self):
        self.rows = []
    def put(self, x):
        self.rows.append(x)
        return len(self.rows)
    def take(self, i):
        return self.rows[i]
    def pair(self, i, j):
        return {'a': [self.rows[i]], 'b': (self.rows[j], i)}
    def turn(self, i, n):
        change(self.rows[i], n)
    def fail(self, i, n):
        change(self.rows[i], n)
        raise KeyError(n)
    def walk(self):
        for row in self.rows:
            yield row
    def join(self, i, j):
        self.rows.append([self.rows[i], self.rows[j]])
    def each(self, function):
        return [function(row) for row in self.rows]
    def size(self):
        return sum(map(len, self.rows))

shelf = Shelf()
put, take, pair, turn, fail = shelf.put, shelf.take, shelf.pair, shelf.turn, shelf.fail
walk, join, each, size = shelf.walk, shelf.join, shelf.each, shelf.size

class Row(list):
    def total(self):
        return len(self) * 2

def made(n):
    return Row([n, 1])

def touch(x, n):
    change(x, n)
    return x
"""
NAMES = "put take pair turn fail walk join each size made touch".split()  # noqa: SIM905
WRONG = [
    ("self.rows.append(x)", "self.rows.append(x.copy())"),
    ("return self.rows[i]\n", "return self.rows[i].copy()\n"),
    ("[self.rows[i]], 'b'", "[self.rows[i].copy()], 'b'"),
    ("[self.rows[i], self.rows[j]]", "[self.rows[i], self.rows[j].copy()]"),
    ("    change(x, n)\n    return x", "    x = x.copy()\n    change(x, n)\n    return x"),
    ("        change(self.rows[i], n)\n        raise", "        raise"),
    ("            yield row\n", "            yield row.copy()\n"),
    ("def turn(self, i, n):", "def turn(self, i, n):\n        change(self.rows[0], n)"),
    ("return len(self.rows)", "[change(row, 1) for row in self.rows[:-1]]\n        return len(self.rows)"),
    ("return sum(map", "[row.clear() for row in self.rows]\n        return sum(map"),
    ("move_to_end(next(iter(x)))", "popitem()"),
    ("x ^= {n}", "x |= {n}"),
]  # fmt: skip
"""What is replaced in the solution, and by what, to make a wrong one."""
_IMPORTS = "from collections import Counter, OrderedDict, defaultdict, deque"
_MADE = [
    "[{0}, {1}]", "{{{0}: {1}}}", "{{{0}, {1}}}", "deque([{0}, {1}])", "bytearray([{0}, {1}])",
    "Counter([{0}, {1}])", "OrderedDict([({0}, 1), ({1}, 2)])", "defaultdict(int, {{{0}: {1}}})",
    "[[{0}], [{1}]]", "{{'k': [{0}]}}",
]  # fmt: skip
_CHANGES: dict[type, list[str]] = {
    list: ["{v}.append({n})", "{v}.insert(0, {n})", "{v}[:] = [{n}]", "{v} += [{n}, 1]"],
    Counter: ["{v}.update([{n}])"],
    OrderedDict: ["{v}[{n}] = 5", "{v}.popitem() if {v} else 0", "{v}.update(a={n})"],
    dict: ["{v}[{n}] = 5", "{v}.update(a={n})", "{v}.clear()"],
    set: ["{v}.add({n})", "{v}.clear()"],
    bytearray: ["{v}.append({n})", "{v} += b'x'"],
    deque: ["{v}.appendleft({n})", "{v}.clear()"],
}
_GOES = [
    "{w} = {s}take({i})", "{w} = {s}pair({i}, {j})['a'][0]", "{w} = {s}pair({i}, {j})['b'][0]",
    "{w} = made({n})\n{s}put({w})", "{w} = touch({v}, {n})", "touch({v}, {n})", "{s}turn({i}, {n})", "{s}put({v})",
    "try:\n    {s}fail({i}, {n})\nexcept KeyError:\n    pass", "{s}join({i}, {j})",
    "for {w} in {s}walk():\n    touch({w}, {n})", "{w} = list({s}walk())[{i}]",
    "{s}each(lambda row: touch(row, {n}))", "{w} = next({s}walk())",
    "for n in range({many}):\n    touch([n], n)", "touch([0] * {most}, {n})",
]  # fmt: skip


def _literal(value: object) -> str:
    return repr(value).replace("<class 'int'>", "int")


def shared_program(draw: random.Random) -> tuple[str, list[str], list[str]]:
    """Return a right solution, tests of it, and wrong solutions that the tests tell apart."""
    s = draw.choice(["", "shelf.", "s."])
    lines = [_IMPORTS, *["s = Shelf()"] * (s == "s.")]
    names: dict[str, Any] = {}
    exec("\n".join([SOLUTION, *lines]), names)

    def add(line: str) -> None:
        """Append a line that plain CPython runs."""
        exec(line, names)
        lines.append(line)

    for number in range(3):
        expression = draw.choice(_MADE).format(draw.randint(2, 9), draw.randint(10, 99))
        add(f"v{number} = {expression}")
        add(f"{s}put(v{number})")
    for _ in range(draw.randint(4, 14)):
        rows = names["s" if s == "s." else "shelf"].rows
        v, w = draw.choice(["v0", "v1", "v2"]), draw.choice(["v0", "v1", "v2"])
        n, i, j = draw.randint(2, 99), draw.randrange(len(rows)), draw.randrange(len(rows))
        kind = next(kind for kind in _CHANGES if isinstance(names[v], kind))
        change = draw.choice(_CHANGES[kind]).format(v=v, n=n)
        form = draw.choice([change] * 3 + _GOES)
        add(
            form.format(v=v, w=w, n=n, i=i, j=j, s=s, many=70, most=5000) if form in _GOES else form
        )
        if "range(" in form or "most" in form:  # what both sides kept before is taken again
            for number in range(3):
                add(f"v{number} = {s}take({number})")
        if draw.random() < 0.5:
            look = draw.choice(
                ["v0", "v1", "v2", f"{s}take({i})", f"{s}size()", f"len({s}take({j}))"]
            )
            add(f"assert {look} == {_literal(eval(look, names))}")
        if draw.random() < 0.3:
            same = f"{v} is {s}take({i})"
            add(f"assert {'' if eval(same, names) else 'not '}({same})")
    for look in ("v0", "v1", "v2", *(f"{s}take({i})" for i in range(3))):
        add(f"assert {look} == {_literal(eval(look, names))}")
    tests = ["\n".join(lines)]
    wrong = [SOLUTION.replace(*pair) for pair in WRONG]
    draw.shuffle(wrong)
    return SOLUTION, tests, [source for source in wrong if not passes(source, tests)]


def passes(solution: str, tests: list[str]) -> bool:
    """Return whether plain CPython, in this process, passes the tests of a program of this file."""
    names: dict[str, Any] = {}
    try:
        for source in (solution, *tests):
            exec(source, names)
    except Exception:
        return False
    return True
