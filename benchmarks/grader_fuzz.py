"""The grader against plain CPython, and against random liars.

    python benchmarks/grader_fuzz.py --count 2000 --seed 1
    python benchmarks/grader_fuzz.py --count 300 --seed 1 --plant names

A *program* is a random right solution with random tests of it. The oracle is plain CPython: one
sandboxed process that runs the solution and then the tests. Laws:

1. *Agreement.* The grader pays what plain CPython passes, or refuses the task (`invalid`) without
   having seen the solution.
2. *No liar is paid.* A liar is a wrong solution of the same task that returns random objects,
   defines random names, changes its answers or ends in a random way. It never computes anything, so
   it may only guess: what it says is right by chance where plain CPython passes it too, and where it
   is not paid by most of the *sisters* of the task, which ask the same with other numbers.
3. *No liar is excused.* Whether a verdict is `ok` depends on the task, never on the solution.

Each finding names its class, so that a table of classes shows what a change repairs. `--plant` runs a
grader into which one fault of `PLANTS` is put back, which the laws have to find.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from grader_shared import NAMES, shared_program

from ludus.sandboxes import GradeOptions, execute_async, grade_async
from ludus.sandboxes.local import supervisor
from ludus.verdict import Verdict

CONCURRENCY = 3
LIARS = 6
"""Liars for each program."""
NEAR = 4
"""Wrong solutions of a program with shared containers, which has more."""
SISTERS = 24
"""Tasks of the same shape for a liar that was paid; those that ask the same count once."""
LUCKY = 0.75
"""A liar that is paid by this share of the sisters was not lucky. Every second one asks a question
of yes or no that has the same answer.
"""


@dataclass
class Program:
    """A task with a right solution."""

    kind: str
    """The idiom of the solution and of the tests."""
    solution: str
    tests: list[str]
    entry_point: str = ""
    wanted: list[str] = field(default_factory=list)
    """The names that a solution has to define."""
    interface: dict[str, list[str]] = field(default_factory=dict)
    near: list[str] = field(default_factory=list)
    """Wrong solutions that are right but for what a single one of the tests asks."""
    reference: str = ""
    """The reference solution of the task."""


# --- right programs ---------------------------------------------------------------

Draw = random.Random


def arithmetic(draw: Draw) -> tuple[str, list[tuple[str, object]]]:
    """Return the body of a function of one integer, and calls with what they return."""
    a, b, c = (draw.randint(2, 9) for _ in range(3))
    forms: list[tuple[str, Callable[[int], object]]] = [
        (f"return {a} * n + {b}", lambda n: a * n + b),
        (f"return [k * {a} for k in range(n)]", lambda n: [k * a for k in range(n)]),
        (f"return str(n) * {c}", lambda n: str(n) * c),
        (f"return n / {a} + {b}", lambda n: n / a + b),
        (f"return {{k: k % {a} for k in range(n)}}", lambda n: {k: k % a for k in range(n)}),
        (f"return (n, n + {a}, 'x' * (n % {c}))", lambda n: (n, n + a, "x" * (n % c))),
        (f"return {{k % {a} for k in range(n)}}", lambda n: {k % a for k in range(n)}),
        (f"return None if n % {a} else -n - 1", lambda n: None if n % a else -n - 1),
    ]
    body, compute = draw.choice(forms)
    numbers = draw.sample(range(3, 40), 4)
    return body, [(str(n), compute(n)) for n in numbers]


def solution_of(draw: Draw, name: str, body: str) -> str:
    """Return a solution that defines `name` in one of many styles."""
    styles = [
        f"def {name}(n):\n    {body}\n",
        f"def _inner(n):\n    {body}\n\n{name} = _inner\n",
        f"{name} = (lambda work: lambda n: work(n))(lambda n: {body.removeprefix('return ')})\n",
        f"import functools\n\n@functools.lru_cache(None)\ndef {name}(n):\n    {body}\n",
        f"class _Callable:\n    def __call__(self, n):\n        {body}\n\n{name} = _Callable()\n",
        f"class Solution:\n    def {name}(self, n):\n        {body}\n",
        f"from functools import partial\n\ndef _two(_, n):\n    {body}\n\n{name} = partial(_two, 0)\n",
        f"import sys\nsys.setrecursionlimit(20_000)\n\ndef {name}(n):\n    {body}\n",
        # helpers of the solution's own that have names of built-in functions
        f"def max(*a):\n    return 3\n\ndef all(i):\n    return False\n\ndef {name}(n):\n    {body}\n",
        f"passed = False\nEPS = 0\nok = None\nexpected = 7\n\ndef {name}(n):\n    {body}\n",
    ]
    return draw.choice(styles)


def tests_of(draw: Draw, name: str, pairs: list[tuple[str, object]]) -> tuple[str, list[str]]:
    """Return the kind and the sources of tests of a function."""
    table = "[" + ", ".join(f"({argument}, {value!r})" for argument, value in pairs) + "]"
    argument, value = pairs[0]
    forms: dict[str, list[str]] = {
        "plain": [f"assert {name}({a}) == {v!r}" for a, v in pairs],
        "all": [f"assert all({name}(a) == v for a, v in {table})"],
        "any": [f"assert not any({name}(a) != v for a, v in {table})"],
        "flag": [
            f"passed = True\nfor a, v in {table}:\n    if {name}(a) != v:\n        passed = False\n"
            "assert passed"
        ],
        "remembered": [f"ok = {name}({argument}) == {value!r}\n{name}({argument})\nassert ok"],
        "count": [f"good = sum({name}(a) == v for a, v in {table})\nassert good == {len(pairs)}"],
        "helper": [
            f"def same(a, v):\n    return {name}(a) == v\n\nfor a, v in {table}:\n    assert same(a, v)"
        ],
        "check": [
            f"def check(candidate):\n    for a, v in {table}:\n        assert candidate(a) == v\n\n"
            f"check({name})"
        ],
        "sorted": [f"assert sorted(map(repr, map({name}, [{argument}]))) == [{repr(value)!r}]"],
        "type": [
            f"assert type({name}({argument})) is {type(value).__name__}"
            if value is not None
            else f"assert {name}({argument}) is None",
            f"assert isinstance({name}({argument}), {type(value).__name__}) and {name}({argument}) "
            f"== {value!r}"
            if value is not None
            else f"assert {name}({argument}) is None",
        ],
        "in": [
            f"assert {name}({argument}) in [{value!r}]",
            f"assert [{name}({argument})] == [{value!r}]",
        ],
        "raises": [
            f"try:\n    {name}(None, None, None)\nexcept TypeError:\n    ok = True\nelse:\n    ok = False\n"
            f"assert ok and {name}({argument}) == {value!r}"
        ],
        "text": [f"assert f'{{{name}({argument})}}' == {str(value)!r}"],
        "unittest": [
            "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n"
            f"        self.assertEqual({name}({argument}), {value!r})\n"
        ],
    }
    general = sorted(forms)
    if isinstance(value, (int, float)):
        forms["tolerance"] = [
            f"EPS = {draw.choice([0, 1])}\nassert abs({name}({argument}) - {value!r}) <= EPS"
        ]
    if isinstance(value, float):
        forms["close"] = [
            f"EPS = 1e-9\nassert all(abs({name}(a) - v) < EPS for a, v in {table})",
            f"assert {value - 0.01} < {name}({argument}) < {value + 0.01}",
        ]
        forms["between"] = [f"assert {value - 0.01} < {name}({argument}) < {value + 0.01}"]
        forms["isclose"] = [f"import math\nassert math.isclose({name}({argument}), {value!r})"]
        forms["round"] = [f"assert round({name}({argument}), 6) == {round(value, 6)!r}"]
    if isinstance(value, str):
        forms["startswith"] = [
            f"assert {name}({argument}).startswith({value[:1]!r}) and {name}({argument}) == {value!r}",
            f"assert {name}({argument}).startswith({value[:1]!r})",
        ]
        forms["method"] = [f"assert {name}({argument}).startswith({value!r})"]
        starts = f"startswith({value!r})"
        forms["lambda"] = [f"assert all(map(lambda r: r.{starts}, [{name}({argument})]))"]
        forms["match"] = [f"match {name}({argument}):\n    case r:\n        assert r.{starts}"]
        forms["look"] = [
            f"def look(r):\n    assert r.{starts}\n\nout = {name}({argument})\nlook(out)"
        ]
        forms["upper"] = [f"assert {name}({argument}).upper() == {value.upper()!r}"]
    if isinstance(value, (list, dict, set, tuple)):
        forms["len"] = [
            f"assert len({name}({argument})) == {len(value)} and {name}({argument}) == {value!r}"
        ]
        if last := next((item for item in value if item not in (0, 1, "")), None):
            # 0 and 1 are in what a liar returns, by chance and without a lie
            forms["holds"] = [f"assert {last!r} in {name}({argument})"]
        forms["iterate"] = [f"assert [x for x in {name}({argument})] == {list(value)!r}"]
    kind = draw.choice(draw.choice([general, sorted(forms.keys() - general) or general]))
    return kind, forms[kind]


def function_program(draw: Draw) -> Program:
    """A function of plain data."""
    name = draw.choice(
        [
            "f",
            "solve",
            "run_it",
            "compute",
            "sum",
            "filter",
            "next_value",
            "Grow",
            "deepcopy",
            "isclose",
        ]
    )
    body, pairs = arithmetic(draw)
    kind, tests = tests_of(draw, name, pairs)
    named = name in ("sum", "filter") or draw.random() < 0.5
    if draw.random() < 0.3:
        form = draw.choice(
            [f"from solution import {name}", "from solution import *", f"import solution\n{name} = solution.{name}"]
        )  # fmt: skip
        # A name that the tests assign is not an entry point of theirs.
        named = named and "=" not in form
        tests = [f"{form}\n{test}" for test in tests]
    if name == "sum" and kind == "count":
        named = True
        name, kind, tests = "f", "plain", [f"assert f({a}) == {v!r}" for a, v in pairs]
    return Program(kind, solution_of(draw, name, body), tests, name if named else "", [name])


def special_program(draw: Draw) -> Program:
    """An idiom of Python that touches the state of the interpreter or gives more than plain data."""
    n, k = draw.randint(1200, 4000), draw.randint(2, 9)
    deep = draw.choice([1500, 3000, 20_000, 50_000])
    forms = [
        Program(
            "recursion",
            f"import sys\nsys.setrecursionlimit({10 * deep})\n\ndef f(n):\n    return 0 if n == 0 else {k} + f(n - 1)\n",
            [f"assert f({deep}) == {k * deep}"],
        ),
        Program(
            "recursion in the call",
            f"import sys\n\ndef f(n):\n    sys.setrecursionlimit(10 * n)\n    def g(m):\n        return 0 if m == 0 else {k} + g(m - 1)\n    return g(n)\n",
            [f"assert f({n}) == {k * n}", f"assert f({n + 1}) == {k * (n + 1)}"],
        ),
        Program(
            "recursion is limited",
            "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n",
            [
                "try:\n    f(100_000)\nexcept RecursionError:\n    deep = True\nelse:\n    deep = False\nassert deep and f(10) == 10"
            ],
        ),
        Program(
            "generator",
            f"def f(n):\n    for i in range(n):\n        yield i * {k}\n",
            [
                f"assert list(f(3)) == [0, {k}, {2 * k}]",
                f"assert next(f(2)) == 0 and sum(f(4)) == {6 * k}",
            ],
        ),
        Program(
            "async",
            f"import asyncio\n\nasync def f(n):\n    await asyncio.sleep(0)\n    return n * {k}\n",
            [f"import asyncio\nassert asyncio.run(f(4)) == {4 * k}"],
        ),
        Program(
            "closure",
            "def f(start):\n    def add(n):\n        nonlocal start\n        start += n\n        return start\n    return add\n",
            [f"add = f({k})\nassert add(2) == {k + 2} and add(3) == {k + 5}"],
        ),
        Program(
            "mutates its argument",
            f"def f(items):\n    items.append({k})\n    items.sort()\n",
            [f"items = [100, -1]\nf(items)\nassert items == [-1, {k}, 100]"],
        ),
        Program(
            "callback",
            "def f(function, items):\n    return [function(item) for item in items]\n",
            [
                f"assert f(lambda x: x + {k}, [1, 2]) == [{k + 1}, {k + 2}]",
                "assert f(str, [1]) == ['1']",
            ],
        ),
        Program(
            "type as value",
            "def f(item):\n    return type(item)\n",
            ["assert f(3) is int and f('x') == str", "assert f([]) is list and f(3) != str"],
        ),
        Program(
            "types in data",
            "def f(items):\n    return {str(i): type(i) for i in items}\n",
            ["assert f([1, 'a']) == {'1': int, 'a': str}"],
        ),
        Program(
            "exception",
            f"class Bad(ValueError):\n    def __init__(self, code):\n        super().__init__(f'bad {{code}}')\n        self.code = code\n\ndef f(n):\n    if n > {k}:\n        raise Bad(n)\n    return n\n",
            [
                f"try:\n    f({k + 1})\nexcept ValueError as error:\n    assert error.code == {k + 1} and str(error) == 'bad {k + 1}'\nelse:\n    assert False\nassert f({k}) == {k}"
            ],
        ),
        Program(
            "named tuple",
            "from collections import namedtuple\nP = namedtuple('P', 'x y')\n\ndef f(n):\n    return P(n, n + 1)\n",
            [
                f"assert f({k}) == ({k}, {k + 1}) and f({k}).x == {k} and f({k})._asdict() == {{'x': {k}, 'y': {k + 1}}}"
            ],
        ),
        Program(
            "namespace",
            "from types import SimpleNamespace\n\ndef f(n):\n    return SimpleNamespace(a=n, b=[n])\n",
            [f"assert f({k}).a == {k} and f({k}).b == [{k}]"],
        ),
        Program(
            "class",
            "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, item):\n        self.items.append(item)\n        return self\n    def pop(self):\n        return self.items.pop()\n    @property\n    def size(self):\n        return len(self.items)\n    def __len__(self):\n        return len(self.items)\n",
            [
                f"s = Stack()\ns.push({k})\ns.push(2)\nassert s.size == 2 and len(s) == 2 and s.pop() == 2 and s.size == 1 and s.pop() == {k}"
            ],
            wanted=["Stack"],
        ),
        Program(
            "numbers of an object",
            f"class Circle:\n    def __init__(self, r):\n        self.r = r * 1.0\n    def area(self):\n        return {k} * self.r ** 2\n",
            draw.choice(
                [
                    [f"c = Circle(3)\nassert {9 * k - 0.1} < c.area() < {9 * k + 0.1}"],
                    [f"c = Circle({k})\nassert {k - 0.1} < c.r < {k + 0.1}"],
                    [f"c = Circle({k})\nr = c.r\nassert r > {k - 0.1}\nassert r < {k + 0.1}"],
                    [
                        f"c = Circle({k})\nassert abs(c.area() - {k**3}) < 1e-6 and c.r >= {k} and c.r <= {k}"
                    ],
                ]
            ),
            wanted=["Circle"],
        ),
        Program(
            "constants of mathematics",
            "from math import *\n\ndef f(n):\n    return n * pi + sqrt(n)\n",
            [f"assert abs(f({k}) - {k} * pi - sqrt({k})) < 1e-9 and f(1) != inf"],
            entry_point="f",
        ),
        Program(
            "helper by a star",
            f"from math import isclose\n\ndef f(n):\n    return n * {k} / 3\n",
            [
                f"from solution import *\nassert isclose(f(4), {4 * k / 3})",
                f"assert isclose(f(5), {5 * k / 3})",
            ],
            entry_point=draw.choice(["", "f"]),
            wanted=["f"],
        ),
        Program(
            "long expression",
            f"def f(n):\n    return n + {k}\n",
            [f"assert f(1) == {k}" + " + 1 - 1" * n + " + 1"],
        ),
        Program(
            "flags",
            "from enum import IntFlag\n\nclass Mode(IntFlag):\n    R = 4\n    W = 2\n    X = 1\n\ndef f(n):\n    return Mode(n)\n",
            [
                "assert Mode.R in f(6) and Mode.X not in f(6) and f(6) == 6",
                "both = Mode.R | Mode.W\nassert both == 6 and Mode.R in both and both & ~Mode.R == Mode.W",
            ],
            wanted=["f", "Mode"],
        ),
        Program(
            "returned by a generator",
            f"def f(n):\n    yield n\n    return n + {k}\n",
            [
                f"g = f(1)\nassert next(g) == 1\ntry:\n    next(g)\nexcept StopIteration as stop:\n    assert stop.value == {k + 1}\nelse:\n    assert False",
                f"def outer():\n    yield (yield from f(1))\nassert list(outer()) == [1, {k + 1}]",
            ],
        ),
        Program(
            "generic class",
            "from typing import Generic, TypeVar\nT = TypeVar('T')\n\nclass Box(Generic[T]):\n    def __init__(self):\n        self.items: list[T] = []\n    def push(self, item: T) -> None:\n        self.items.append(item)\n    def pop(self) -> T:\n        return self.items.pop()\n",
            [f"b = Box[int]()\nb.push({k})\nassert b.pop() == {k}"],
            wanted=["Box"],
        ),
        Program(
            "linked list",
            "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n        self.next = next\n\ndef f(items):\n    head = None\n    for item in reversed(items):\n        head = Node(item, head)\n    return head\n",
            [
                f"head = f([{k}, 2, 3])\nvalues = []\nwhile head is not None:\n    values.append(head.value)\n    head = head.next\nassert values == [{k}, 2, 3]"
            ],
        ),
        Program(
            "global that changes",
            f"calls = 0\n\ndef f(n):\n    global calls\n    calls += 1\n    return n + {k}\n",
            [f"assert f(1) == {k + 1} and f(2) == {k + 2}\nassert calls == 2"],
            wanted=["f", "calls"],
        ),
        Program(
            "constant",
            f"LIMIT = {k}\nNAMES = ['a', 'b']\n\ndef f(n):\n    return n * LIMIT\n",
            [f"assert LIMIT == {k} and NAMES == ['a', 'b'] and f(3) == 3 * LIMIT"],
            wanted=["LIMIT", "NAMES", "f"],
        ),
        Program(
            "enumeration",
            "from enum import Enum, IntEnum\n\nclass Level(IntEnum):\n    LOW = 1\n    HIGH = 2\n\ndef f(n):\n    return Level.HIGH if n > 5 else Level.LOW\n",
            ["assert f(9) == 2 and f(1) == 1 and f(9).name == 'HIGH' and f(9) > f(1)"],
        ),
        Program(
            "derived number",
            "class Metres(float):\n    def __str__(self):\n        return f'{float(self)} m'\n\ndef f(n):\n    return Metres(n)\n",
            [f"assert f({k}) == {k} and str(f({k})) == '{float(k)} m' and f({k}) + 1 == {k + 1}"],
        ),
        Program(
            "default dictionary",
            "from collections import defaultdict, Counter, deque\n\ndef f(items):\n    groups = defaultdict(list)\n    for item in items:\n        groups[item % 2].append(item)\n    return groups, Counter(items), deque(items)\n",
            [
                "groups, counts, queue = f([1, 2, 2])\nassert groups == {1: [1], 0: [2, 2]} and counts[2] == 2 and list(queue) == [1, 2, 2]"
            ],
        ),
        Program(
            "thread with a large stack",
            "import sys, threading\n\ndef f(n):\n    out = []\n    def work():\n        sys.setrecursionlimit(10**6)\n        def g(m):\n            return 0 if m == 0 else 1 + g(m - 1)\n        out.append(g(n))\n    threading.stack_size(64 << 20)\n    t = threading.Thread(target=work)\n    t.start()\n    t.join()\n    return out[0]\n",
            [f"assert f({deep}) == {deep}"],
        ),
        Program(
            "random state",
            "import random\n\ndef f(n):\n    random.seed(n)\n    return [random.randint(0, 9) for _ in range(n)]\n",
            [
                "assert f(4) == f(4) and [len(f(4)), len(f(6))] == [4, 6] and all(0 <= x <= 9 for x in f(6))"
            ],
        ),
        Program(
            "decimal and dates",
            "from decimal import Decimal\nfrom fractions import Fraction\nimport datetime\n\ndef f(n):\n    return Decimal(n) / 4, Fraction(n, 3), datetime.date(2020, 1, 1) + datetime.timedelta(days=n)\n",
            [
                "from decimal import Decimal\nfrom fractions import Fraction\nimport datetime\nd, q, t = f(2)\nassert d == Decimal('0.5') and q == Fraction(2, 3) and t == datetime.date(2020, 1, 3)"
            ],
        ),
        Program(
            "context manager",
            "from contextlib import contextmanager\n\nlog = []\n\n@contextmanager\ndef f(n):\n    log.append(n)\n    yield n + 1\n    log.append(-n)\n",
            [f"with f({k}) as value:\n    assert value == {k + 1}\n"],
        ),
        Program(
            "printing",
            "def f(n):\n    print('n is', n)\n",
            [
                "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\nwith redirect_stdout(out):\n    f(3)\nassert out.getvalue() == 'n is 3\\n'"
            ],
        ),
        Program(
            "tests read on after a failure of the solution",
            f"def f(n):\n    if n < 0:\n        raise KeyError('n')\n    return n + {k}\n",
            [
                f"try:\n    f(-1)\n    assert False\nexcept KeyError as error:\n    assert error.args == ('n',)\nassert f(2) == {k + 2}"
            ],
        ),
    ]
    program = draw.choice(forms)
    if not program.wanted:
        program.wanted = ["f"]
    if len(program.wanted) == 1 and draw.random() < 0.5:
        program.entry_point = program.wanted[0]
    return program


def styled_program(draw: Draw) -> Program:
    """A program in another style: classes, operators, iterators, async, generators, deep recursion."""
    a, b, k = draw.randint(2, 9), draw.randint(10, 40), draw.randint(3, 7)
    deep = draw.choice([900, 5000, 50_000])
    forms = {
        "data class": (
            "P",
            "from dataclasses import dataclass, field\n\n@dataclass\nclass P:\n    x: int\n    y: int = 0\n    tags: list = field(default_factory=list)\n    def scaled(self, n):\n        return P(self.x * n, self.y * n, self.tags)\n    @property\n    def total(self):\n        return self.x + self.y\n",
            f"p = P({a}, {b})\nassert p.x == {a} and p.total == {a + b} and p.tags == []\nq = p.scaled({k})\nassert (q.x, q.y) == ({a * k}, {b * k})",
        ),
        "inheritance": (
            "Square Shape",
            "from abc import ABC, abstractmethod\n\nclass Shape(ABC):\n    @abstractmethod\n    def area(self): ...\n    def describe(self):\n        return f'{type(self).__name__} of {self.area()}'\n\nclass Square(Shape):\n    def __init__(self, side):\n        super().__init__()\n        self.side = side\n    def area(self):\n        return self.side ** 2\n",
            f"s = Square({a})\nassert s.area() == {a * a} and s.describe() == 'Square of {a * a}' and isinstance(s, Shape) and issubclass(Square, Shape)\ntry:\n    Shape()\nexcept TypeError:\n    pass\nelse:\n    assert False",
        ),
        "constructors": (
            "Money",
            "class Money:\n    rate = 2\n    def __init__(self, cents):\n        self._cents = cents\n    @classmethod\n    def parse(cls, text):\n        return cls(int(text) * 100)\n    @staticmethod\n    def unit():\n        return 'EUR'\n    @property\n    def cents(self):\n        return self._cents\n    @cents.setter\n    def cents(self, value):\n        if value < 0:\n            raise ValueError('negative')\n        self._cents = value\n",
            f"m = Money.parse('{a}')\nassert m.cents == {a * 100} and Money.unit() == 'EUR' and Money.rate == 2\nm.cents = {b}\nassert m.cents == {b}\ntry:\n    m.cents = -1\nexcept ValueError as error:\n    assert str(error) == 'negative'\nelse:\n    assert False",
        ),
        "container class": (
            "Grid",
            "class Grid:\n    def __init__(self, width, height):\n        self._cells = {}\n        self.width, self.height = width, height\n    def __setitem__(self, place, value):\n        self._cells[place] = value\n    def __getitem__(self, place):\n        return self._cells.get(place, 0)\n    def __len__(self):\n        return self.width * self.height\n    def __iter__(self):\n        return iter(sorted(self._cells))\n    def neighbours(self, x, y):\n        return [(x + i, y) for i in (-1, 1) if 0 <= x + i < self.width]\n",
            f"g = Grid({a}, {k})\ng[1, 2] = {b}\nassert g[1, 2] == {b} and g[0, 0] == 0 and len(g) == {a * k} and list(g) == [(1, 2)]\nassert g.neighbours(0, 1) == [(1, 1)]",
        ),
        "operators": (
            "Vec",
            "class Vec:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n    def __add__(self, other):\n        return Vec(self.x + other.x, self.y + other.y)\n    def __mul__(self, n):\n        return Vec(self.x * n, self.y * n)\n    def __neg__(self):\n        return Vec(-self.x, -self.y)\n    def __repr__(self):\n        return f'Vec({self.x}, {self.y})'\n    def dot(self, other):\n        return self.x * other.x + self.y * other.y\n",
            f"v = Vec({a}, {b}) + Vec(1, 1)\nassert (v.x, v.y) == ({a + 1}, {b + 1})\nw = Vec({a}, 2) * {k}\nassert w.x == {a * k} and w.dot(Vec(1, 0)) == {a * k} and repr(-w) == 'Vec({-a * k}, {-2 * k})' and f'{{v}}' == 'Vec({a + 1}, {b + 1})'",
        ),
        "iterator class": (
            "Count",
            "class Count:\n    def __init__(self, stop):\n        self.now, self.stop = 0, stop\n    def __iter__(self):\n        return self\n    def __next__(self):\n        if self.now >= self.stop:\n            raise StopIteration\n        self.now += 1\n        return self.now\n",
            f"assert list(Count({k})) == {list(range(1, k + 1))} and sum(Count({a})) == {a * (a + 1) // 2}\nc = Count(2)\nassert next(c) == 1 and next(c) == 2 and next(c, None) is None",
        ),
        "context manager class": (
            "Log",
            "class Log:\n    def __init__(self):\n        self.lines = []\n    def __enter__(self):\n        self.lines.append('in')\n        return self\n    def __exit__(self, *a):\n        self.lines.append('out')\n        return False\n    def write(self, text):\n        self.lines.append(text)\n        return len(text)\n",
            "log = Log()\nwith log as inner:\n    assert inner.write('abc') == 3\nassert log.lines == ['in', 'abc', 'out']",
        ),
        "gather": (
            "f",
            f"import asyncio\n\nasync def f(n):\n    for _ in range(n % 3):\n        await asyncio.sleep(0)\n    if n < 0:\n        raise ValueError(n)\n    return n * {k}\n",
            f"import asyncio\n\nasync def main():\n    return await asyncio.gather(f(1), f(2), f({a}))\n\nassert asyncio.run(main()) == [{k}, {2 * k}, {a * k}]\ntry:\n    asyncio.run(f(-1))\nexcept ValueError as error:\n    assert error.args == (-1,)\nelse:\n    assert False",
        ),
        "async generator": (
            "f",
            f"async def f(n):\n    for i in range(n):\n        yield i * {k}\n",
            f"import asyncio\n\nasync def collect():\n    return [item async for item in f({a})]\n\nassert asyncio.run(collect()) == {[i * k for i in range(a)]}",
        ),
        "async class": (
            "Store",
            "import asyncio\n\nclass Store:\n    def __init__(self):\n        self._data = {}\n    async def put(self, key, value):\n        await asyncio.sleep(0)\n        self._data[key] = value\n    async def get(self, key):\n        return self._data[key]\n    async def __aenter__(self):\n        return self\n    async def __aexit__(self, *a):\n        self._data.clear()\n    @property\n    def size(self):\n        return len(self._data)\n",
            f"import asyncio\n\nasync def main():\n    async with Store() as store:\n        await store.put('k', {b})\n        assert store.size == 1\n        return await store.get('k')\n\nassert asyncio.run(main()) == {b}",
        ),
        "generator that is sent to": (
            "f",
            "def f():\n    total = 0\n    while True:\n        item = yield total\n        if item is None:\n            return total\n        total += item\n",
            f"g = f()\nnext(g)\nassert g.send({a}) == {a} and g.send({b}) == {a + b}\ntry:\n    g.send(None)\nexcept StopIteration as stop:\n    assert stop.value == {a + b}\nelse:\n    assert False",
        ),
        "pipeline of generators": (
            "f",
            f"def evens(items):\n    for item in items:\n        if item % 2 == 0:\n            yield item\n\ndef f(items):\n    yield from (item * {k} for item in evens(items))\n",
            f"assert list(f(range(6))) == [0, {2 * k}, {4 * k}]\nassert max(f(iter([2, 3, 8]))) == {8 * k}\nfor i, item in enumerate(f([2, 4])):\n    assert item == (i + 1) * {2 * k}",
        ),
        "mutual recursion": (
            "even odd",
            f"import sys\nsys.setrecursionlimit({3 * deep + 1000})\n\ndef even(n):\n    return True if n == 0 else odd(n - 1)\n\ndef odd(n):\n    return False if n == 0 else even(n - 1)\n",
            f"assert even({deep}) is True and odd({deep}) is False",
        ),
        "recursive method": (
            "Tree",
            f"import sys\nsys.setrecursionlimit({4 * deep + 1000})\n\nclass Tree:\n    def __init__(self, value, left=None):\n        self.value, self.left = value, left\n    def depth(self):\n        return 1 + (self.left.depth() if self.left else 0)\n    @classmethod\n    def chain(cls, n):\n        tree = None\n        for i in range(n):\n            tree = cls(i, tree)\n        return tree\n",
            f"t = Tree.chain({deep // 2})\nassert t.depth() == {deep // 2} and t.value == {deep // 2 - 1} and t.left.value == {deep // 2 - 2}",
        ),
        "memoised recursion": (
            "f",
            f"import sys\nfrom functools import cache\nsys.setrecursionlimit(10**6)\n\n@cache\ndef f(n):\n    return n if n < 2 else (f(n - 1) + f(n - 2)) % {10**9 + 7}\n",
            f"a, b = 0, 1\nfor _ in range({deep // 10}):\n    a, b = b, (a + b) % {10**9 + 7}\nassert f({deep // 10}) == a",
        ),
        "own exceptions": (
            "withdraw Broke",
            "class BankError(Exception):\n    pass\n\nclass Broke(BankError):\n    def __init__(self, missing):\n        super().__init__(f'{missing} missing')\n        self.missing = missing\n\ndef withdraw(balance, amount):\n    try:\n        if amount > balance:\n            raise Broke(amount - balance)\n        return balance - amount\n    finally:\n        pass\n",
            f"assert withdraw({b}, {a}) == {b - a}\ntry:\n    withdraw({a}, {b})\nexcept Broke as error:\n    assert error.missing == {b - a} and str(error) == '{b - a} missing'\nelse:\n    assert False",
        ),
        "decorators": (
            "f calls",
            f"import functools\n\ndef times(n):\n    def wrap(function):\n        @functools.wraps(function)\n        def inner(*a, **k):\n            inner.calls += 1\n            return [function(*a, **k) for _ in range(n)]\n        inner.calls = 0\n        return inner\n    return wrap\n\n@times({k})\ndef f(x, *, y=1):\n    return x + y\n\ndef calls():\n    return f.calls\n",
            f"assert f({a}) == [{a + 1}] * {k} and f({a}, y=2) == [{a + 2}] * {k} and calls() == 2",
        ),
        "mapping of its own": (
            "Headers",
            "from collections.abc import MutableMapping\n\nclass Headers(MutableMapping):\n    def __init__(self):\n        self._d = {}\n    def __getitem__(self, key):\n        return self._d[key.lower()]\n    def __setitem__(self, key, value):\n        self._d[key.lower()] = value\n    def __delitem__(self, key):\n        del self._d[key.lower()]\n    def __iter__(self):\n        return iter(self._d)\n    def __len__(self):\n        return len(self._d)\n    def all_told(self):\n        return sum(self._d.values())\n",
            f"h = Headers()\nh['Key'] = {a}\nassert h['KEY'] == {a} and h.get('kEy') == {a} and h.get('no', 0) == 0 and len(h) == 1 and h.all_told() == {a}\nassert list(h) == ['key'] and sorted(h.items()) == [('key', {a})]\ndel h['KEY']\nassert not h",
        ),
        "events": (
            "Bus",
            "class Bus:\n    def __init__(self):\n        self._handlers = {}\n    def on(self, name, handler):\n        self._handlers.setdefault(name, []).append(handler)\n    def emit(self, name, *a):\n        return [handler(*a) for handler in self._handlers.get(name, [])]\n",
            f"seen = []\nbus = Bus()\nbus.on('x', seen.append)\nbus.on('x', lambda n: n + {k})\nassert bus.emit('x', {a}) == [None, {a + k}] and seen == [{a}] and bus.emit('y') == []",
        ),
        "arguments": (
            "f",
            "def f(a, /, b=2, *rest, c, d=4, **others):\n    return (a, b, rest, c, d, sorted(others.items()))\n",
            f"assert f(1, c={k}) == (1, 2, (), {k}, 4, []) and f(1, {a}, 7, 8, c=3, d=9, z={b}) == (1, {a}, (7, 8), 3, 9, [('z', {b})])\ntry:\n    f(a=1, c=2)\nexcept TypeError:\n    pass\nelse:\n    assert False",
        ),
        "match": (
            "f",
            f"def f(shape):\n    match shape:\n        case ('circle', r):\n            return r * {k}\n        case {{'side': side, **rest}}:\n            return side * side + len(rest)\n        case [first, *others] if others:\n            return f(others) + first\n        case int() | float() as n:\n            return n\n        case _:\n            return None\n",
            f"assert f(('circle', {a})) == {a * k} and f({{'side': {a}, 'x': 1}}) == {a * a + 1}\nassert f({b}) == {b} and f('text') is None",
        ),
        "odd data": (
            "f",
            "def f(n):\n    return {(n, 'k'): [frozenset([n]), b'x' * n, n ** 200, complex(n, 1), None, ...], 'nested': [[[n]] * 2, {1: {2: (n,)}}]}\n",
            f"r = f({a})\nassert r[({a}, 'k')][:3] == [frozenset([{a}]), b'x' * {a}, {a} ** 200] and r[({a}, 'k')][3].imag == 1.0 and r['nested'] == [[[{a}], [{a}]], {{1: {{2: ({a},)}}}}]",
        ),
        "state machine": (
            "Machine State",
            "from enum import Enum, auto\n\nclass State(Enum):\n    IDLE = auto()\n    RUNNING = auto()\n\nclass Machine:\n    def __init__(self):\n        self.state = State.IDLE\n        self.history = []\n    def start(self):\n        self.history.append(self.state.name)\n        self.state = State.RUNNING\n        return self\n",
            "m = Machine()\nassert m.state is State.IDLE\nm.start()\nassert m.state is State.RUNNING and m.history == ['IDLE'] and m.state.name == 'RUNNING' and m.state.value == 2",
        ),
        "objects of objects": (
            "Bank",
            "class Account:\n    def __init__(self, owner):\n        self.owner, self.balance = owner, 0\n    def deposit(self, amount):\n        if amount <= 0:\n            raise ValueError('amount')\n        self.balance += amount\n        return self.balance\n\nclass Bank:\n    def __init__(self):\n        self.accounts = {}\n    def open(self, owner):\n        return self.accounts.setdefault(owner, Account(owner))\n    def total(self):\n        return sum(account.balance for account in self.accounts.values())\n",
            f"bank = Bank()\nann, bob = bank.open('ann'), bank.open('bob')\nassert ann.deposit({a}) == {a} and bob.deposit({b}) == {b} and bank.total() == {a + b}\nassert bank.open('ann') is ann and ann.owner == 'ann' and sorted(bank.accounts) == ['ann', 'bob']",
        ),
    }  # fmt: skip
    kind = draw.choice(sorted(forms))
    names, solution, test = forms[kind]
    return Program(
        kind,
        solution,
        [test],
        wanted=names.split(" "),
        entry_point=names if " " not in names and draw.random() < 0.5 else "",
    )


_PREDICATES = {
    "call": "callable({x})",
    "len": "isinstance({x}, Sized)",
    "iter": "isinstance({x}, Iterable)",
    "next": "hasattr({x}, '__next__')",
    "contains": "isinstance({x}, Container)",
    "getitem": "hasattr({x}, '__getitem__')",
    "enter": "hasattr({x}, '__enter__')",
    "aenter": "hasattr({x}, '__aenter__')",
    "aiter": "isinstance({x}, AsyncIterable)",
    "await": "isinstance({x}, Awaitable)",
    "float": "isinstance({x}, SupportsFloat)",
    "add": "hasattr(type({x}), '__add__') or hasattr({x}, '__add__')",
    "reversed": "isinstance({x}, Reversible)",
}
"""Special method without underscores -> a test of an object that is true where its class has it."""
_SKIPS = """class SkipTest({base}):
    pass

SkipTest.__module__ = {module!r}

def f(n):
    return n * {k}

def g(n):
    raise SkipTest('x')
"""


def near_program(draw: Draw) -> Program:
    """A program whose tests ask what kind of thing an object is, or catch errors by name."""
    k, n = draw.randint(3, 9), draw.randint(10, 40)
    form = draw.choice(
        [
            "kind of object",
            "kind of object",
            "kind of result",
            "error by name",
            "skipped tests",
            "plain by birth",
        ]
    )
    modules = "from collections.abc import *\nfrom typing import SupportsFloat\n"
    if form.startswith("kind"):
        # A result that can be iterated and has `__next__` is an iterator, and nothing else.
        apart = {"next"} if form == "kind of result" else set()
        names = draw.sample(sorted(_PREDICATES.keys() - apart), draw.randint(1, 3))
        bare = f"class Bag:\n    def __init__(self, n):\n        self.amount = n * {k}\n"
        special = [f"    def __{name}__(self, *a):\n        return None\n" for name in names]
        iterable = "    def __iter__(self):\n        return iter(())\n" * (
            "reversed" in names and "iter" not in names
        )
        solutions = [bare + "".join(special) + iterable, bare + "".join(special[1:]), bare]
        unhashable = draw.random() < 0.3
        if unhashable:
            solutions = [bare, bare + "    def __eq__(self, other):\n        return True\n"]
        x = "b" if form == "kind of object" else "b[0]"
        tests = [_PREDICATES[name].format(x=x) for name in names]
        asked = (
            f"isinstance({x}, Hashable)" if unhashable else " and ".join(f"({t})" for t in tests)
        )
        if form == "kind of object":
            test = f"b = Bag({n})\nassert b.amount == {n * k} and {asked}"
        else:
            solutions = [s + "\ndef f(n):\n    return [Bag(n), n + 1]\n" for s in solutions]
            test = f"b = f({n})\nassert b[1] == {n + 1} and {asked}"
        right, *near = solutions
        wanted = ["Bag"] if form == "kind of object" else ["f"]
        return Program(form, right, [modules + test], wanted=wanted, near=near)
    if form == "plain by birth":
        base, method, call = draw.choice(
            [
                ("str", "count", "count('a')"),
                ("str", "find", "find('x')"),
                ("list", "index", "index('x')"),
            ]
        )
        value = {"count": "'a' * N + 'b'", "find": "'-' * N + 'x'", "index": "['y'] * N + ['x']"}[
            method
        ]
        made = f"Name({value.replace('N', str(n))})"
        right = f"class Name({base}):\n    def twice(self):\n        return len(self) * 2\n"
        bare = f"class Name({base}):\n    def twice(self):\n        return len(self) * 2\n"
        own = f"    def {method}(self, *a):\n        return super().{method}(*a) + {k}\n"
        test = f"x = {made}\nassert x.twice() == {2 * n + 2} and x.{call} == {n + k}"
        return Program(form, bare + own, [test], wanted=["Name"], near=[bare])
    if form == "error by name":
        work = f"\ndef f(n):\n    if n < 0:\n        raise Bad(n)\n    return n * {k}\n"
        easy = f"\ndef f(n):\n    return n * {k}\n"
        said = draw.choice(
            ["assert False", "raise RuntimeError('no error')", "raise AssertionError"]
        )
        caught = "RuntimeError" if "Runtime" in said else "AssertionError"
        lie = f"class Bad({caught}):\n    pass\nBad.__module__, Bad.__name__ = 'builtins', {caught!r}\n"
        near = [f"Bad = {name}\n" for name in (caught, "Exception", "BaseException")]
        test = f"try:\n    f(-1)\n    {said}\nexcept Bad:\n    pass\nassert f({n}) == {n * k}"
        right = f"class Bad(ValueError):\n    pass\n{work}"
        return Program(
            form, right, [test], wanted=["f", "Bad"], near=[each + easy for each in [*near, lie]]
        )
    right = f"def f(n):\n    return n * {k}\n\ndef g(n):\n    return n - {k}\n"
    test = (
        "import unittest\nfrom unittest import SkipTest\n\nclass T(unittest.TestCase):\n"
        f"    def test_f(self):\n        self.assertEqual(f({n}), {n * k})\n"
        f"    def test_g(self):\n        self.assertEqual(g({n}), {n - k})\n"
    )
    bases = ["Exception", "ValueError"]
    places = [
        "tests",
        "unittest",
        "unittest.case",
        "unittest.mock",
        "doctest",
        "solution",
        "builtins",
    ]
    near = [_SKIPS.format(base=draw.choice(bases), module=place, k=k) for place in places]
    return Program(form, right, [test], wanted=["f", "g"], near=near)


_BAG = "class Bag:\n    def __init__(self, *a):\n        self.a = list(a)\n"
_OF_BAGS = {
    "in": (
        "    def __contains__(self, x):\n        return {}\n",
        "x % K == 0",
        "assert 2 * K in b\nassert 2 * K + 1 not in b",
        ["True", "False", "x in self.a", "x % K == 1"],
    ),
    "in nothing": (
        "    __contains__ = {}\n    def __iter__(self):\n        return iter(self.a)\n",
        "None",
        "assert list(b) == [1, K]\ntry:\n    K in b\nexcept TypeError:\n    ok = True\nelse:\n    ok = False\nassert ok",
        ["lambda self, x: True", "lambda self, x: x in self.a"],
    ),
    "in place": (
        "    def __iadd__(self, x):\n        {}\n        return self\n    def __len__(self):\n        return len(self.a)\n",
        "self.a += [x, x]",
        "b += K\nassert len(b) == 4",
        ["pass", "self.a += [x]"],
    ),
    "by percent": (
        "    def __str__(self):\n        return {}\n",
        "str(sum(self.a))",
        "assert 'is %s' % b == f'is {1 + K}'",
        ["str(len(self.a))", "''"],
    ),
    "as a mapping": (
        "    def keys(self):\n        return {}\n    def __getitem__(self, k):\n        return ord(k) + self.a[0]\n",
        "['p', 'q']",
        "assert dict(b) == {'p': 113, 'q': 114}\nassert dict(**b, r=1) == {'p': 113, 'q': 114, 'r': 1}",
        ["['p']", "'qr'", "[]"],
    ),
    "from the right": (
        "    def __rmul__(self, n):\n        return {}\n    def __rshift__(self, n):\n        return n - self.a[0]\n",
        "[n] * self.a[1]",
        "assert 3 * b == [3] * K\nassert b >> 9 == 8",
        ["[n]", "n", "self"],
    ),
    "as a key": (
        "    def __hash__(self):\n        return hash(self.a[1])\n    def __eq__(self, other):\n        return {}\n",
        "self.a == other.a",
        "assert len({Bag(1, K), Bag(1, K), Bag(2, K)}) == 2\nd = {b: 5}\nassert d[Bag(1, K)] == 5",
        ["True", "self is other"],
    ),
}
"""What tests do with an object without any attribute -> special methods, with the right answer, the
test, and wrong answers.
"""


_STYLES = {
    "body of a class": (
        "def f(n):\n    return {}\n",
        ["n + K", "(lambda n: n + K)(n)", "sum([n, K])"],
        "{}",
        [
            "class P:\n    x = f(2)\n    def m(self, y=f(3)):\n        return y\nassert P.x == 2 + K and P().m() == 3 + K",
            "import unittest\nclass T(unittest.TestCase):\n    got, call = f(4), staticmethod(f)\n    def test_it(self):\n        self.assertEqual((self.got, self.call(5)), (4 + K, 5 + K))",
        ],
        ["n", "None", "K"],
    ),
    "text of an error": (
        "class Bad({}):\n    pass\n\ndef f(n):\n    if n < 0:\n        raise Bad(f'{{n}} is bad')\n    return n\n",
        ["OSError", "TimeoutError", "FileNotFoundError", "SyntaxError", "ImportError", "UnicodeError", "KeyError", "LookupError"],
        "{}",
        ["try:\n    f(-K)\nexcept Bad as error:\n    text = str(error).strip('\\'\"')\nelse:\n    text = ''\nassert text == '-K is bad' and f(K) == K"],
        ["ValueError):\n    def __str__(self):\n        return 'bad'\nclass _(OSError", "ValueError):\n    def __init__(self, text):\n        super().__init__()\nclass _(OSError"],
    ),
    "cause of an error": (
        "class Bad(Exception):\n    pass\n\ndef f(text):\n    try:\n        return int(text)\n    except ValueError as error:\n        raise Bad(text) {}\n",
        ["from error"],
        "{}",
        ["try:\n    f('x')\nexcept Bad as error:\n    ok = isinstance(error.__cause__, ValueError) and 'invalid' in str(error.__cause__)\nelse:\n    ok = False\nassert ok and f('K') == K"],
        ["", "from None", "from KeyError(text)"],
    ),
    "class for a function that is called": (
        "class f:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, n):\n        return {}\n",
        ["n * self.k", "sum([n] * self.k)"],
        "def f(k):\n    return lambda n: {}\n",
        ["assert f(K)(2) == 2 * K and list(map(f(2), [1, K])) == [2, 2 * K]", "twice = f(2)\nassert twice(K) == 2 * K"],
        ["n", "self.k", "self"],
    ),
    "class for a function that is iterated": (
        "class f:\n    def __init__(self, k):\n        self.k = k\n    def __iter__(self):\n        {}\n",
        ["return iter(range(self.k))", "yield from range(self.k)"],
        "def f(k):\n    return list(range(k))\n",
        ["r = f(K)\nassert list(r) == list(range(K)) and sum(r) == sum(range(K))\nassert [x for x in f(2)] == [0, 1]"],
        ["return iter([])", "self.k -= 1\n        return iter(range(self.k + 1))" , "return iter([self] * self.k)"],
    ),
    "class for a function that is awaited": (
        "class f:\n    def __init__(self, k):\n        self.k = k\n    def __await__(self):\n        yield from ()\n        return {}\n",
        ["self.k * 2"],
        "import types\n@types.coroutine\ndef f(k):\n    yield from ()\n    return {}\n",
        ["import asyncio\nasync def main():\n    return await f(K)\nassert asyncio.run(main()) == 2 * K"],
        ["self.k", "None", "self"],
    ),
    "class for a function that is entered": (
        "class f:\n    def __init__(self, k):\n        self.k = k\n    def __enter__(self):\n        return {}\n    def __exit__(self, *a):\n        return False\n",
        ["self.k + 1"],
        "from contextlib import contextmanager\n@contextmanager\ndef f(k):\n    yield k + 1\n",
        ["with f(K) as value:\n    assert value == K + 1\n"],
        ["self.k", "None", "self"],
    ),
    "coroutine of types": (
        "import types\n@types.coroutine\ndef f(k):\n    yield\n    return {}\n",
        ["k + 1"],
        "async def f(k):\n    return {}\n",
        ["import asyncio\nasync def main():\n    return await asyncio.gather(f(K), f(1))\nassert asyncio.run(main()) == [K + 1, 2]"],
        ["k", "None"],
    ),
}  # fmt: skip
"""Style -> a solution with a hole, right answers, another style (a reference), tests, wrong answers."""


def style_program(draw: Draw, k: int) -> Program:
    """A right program in a style that the tests do not ask for."""
    kind = draw.choice(sorted(_STYLES))
    solution, rights, other, tests, wrong = _STYLES[kind]
    right = draw.choice(rights)
    by_other = other.format(solution.format(right) if other == "{}" else right.replace("self.", ""))

    def filled(text: str) -> str:
        return re.sub(r"\bK\b", str(k), text)

    return Program(
        kind,
        filled(solution.format(right)),
        [filled(draw.choice(tests))],
        wanted=["f"],
        near=[filled(solution.format(answer)) for answer in wrong],
        reference=filled(by_other) if draw.random() < 0.3 else "",
        entry_point="f" if draw.random() < 0.5 else "",
    )


def judged_program(draw: Draw) -> Program:
    """A program in a style that its tests do not show, or that they use by syntax alone."""
    k = draw.randint(3, 9)
    if draw.random() < 0.5:
        return style_program(draw, k)
    kind = draw.choice(sorted(_OF_BAGS))
    methods, right, test, wrong = _OF_BAGS[kind]
    extra = draw.choice(
        [
            "",
            "    def __iter__(self):\n        return iter(self.a)\n",
            "    def __iter__(self):\n        return iter(int, 1)\n",
        ]
    )
    extra *= kind == "in"

    def solution(answer: str) -> str:
        return (_BAG + extra + methods.format(answer)).replace("K", str(k))

    reference = solution(right) if draw.random() < 0.5 else ""
    questions = test.replace("K", str(k)).split("\n")
    if kind == "in" and k % 2:
        questions.reverse()  # Sisters differ in which answer is yes.
    return Program(
        f"an object {kind}",
        solution(right),
        ["\n".join([f"b = Bag(1, {k})", *questions])],
        wanted=["Bag"],
        near=list(map(solution, wrong)),
        reference=reference,
    )


def sharing_program(draw: Draw) -> Program:
    """A program whose tests and solution change the same containers."""
    solution, tests, wrong = shared_program(draw)
    wanted = ["Shelf", *NAMES]
    return Program("shared containers", solution, tests, wanted=wanted, near=wrong[:NEAR])


# --- liars ------------------------------------------------------------------------

_LIAR = """
import itertools
_turn = itertools.count()
_answers = {answers}
class _Liar{bases}:
    def __new__(cls, *a, **k):
        return {base}.__new__(cls{value})
    def __init__(self, *a, **k):
        pass
{methods}
"""
_OPERATORS = [
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__abs__",
    "__mul__",
    "__contains__",
    "__bool__",
    "__hash__",
    "__len__",
    "__iter__",
    "__next__",
    "__getitem__",
    "__str__",
    "__repr__",
    "__format__",
    "__round__",
    "__float__",
    "__int__",
    "__index__",
    "__getattr__",
    "__enter__",
    "__exit__",
    "__instancecheck__",
    "__class__",
]
_WRONG = ["-987654321", "'a lie'", "[-987654321]", "(0.123456789,)", "{'lie': -1}", "0.123456789", "None.__class__",
          "object()", "float('nan')", "float('inf')", "b'lie'", "1e308", "-1e308", "{-987654321}", "range(-99, -98)"]  # fmt: skip


def liar_class(draw: Draw) -> str:
    """Return a class whose special methods answer as they like, and differently each time."""
    base, value = draw.choice(
        [("object", ""), ("object", ""), ("int", ", -987654321"), ("str", ", 'a lie'"), ("float", ", 0.123456789"),
         ("list", ""), ("tuple", ", (-987654321,)"), ("dict", ""), ("set", ""), ("bytes", ", b'lie'")]
    )  # fmt: skip
    answers = draw.choice(
        ["[True]", "[1e9, -1e9]", "[-1e9, 1e9]", "[0]", "[True, False]", "[float('inf'), float('-inf')]", "['', 'a lie']",
         "[3, 1, 2]", "[lambda *a, **k: True]"]
    )  # fmt: skip
    defined = draw.sample(_OPERATORS, draw.randint(3, len(_OPERATORS)))
    methods = "".join(
        "    __class__ = property(lambda self: type(_answers[0]))\n"
        if name == "__class__"
        else "    def __hash__(self):\n        return 7\n"
        if name == "__hash__"
        else f"    def {name}(self, *a, **k):\n        {draw.choice(['return _answers[next(_turn) % len(_answers)]', 'return True', 'return self', 'return a[0] if a else -1'])}\n"
        for name in defined
    )
    bases = "" if base == "object" else f"({base})"
    return _LIAR.format(answers=answers, bases=bases, base=base, value=value if base in ("int", "str", "float", "tuple", "bytes") else "", methods=methods)  # fmt: skip


_CLAIMS = """
import sys
class _All:
    def add(self, kind): pass
    def isdisjoint(self, kinds): return False
    def __contains__(self, kind): return True
_server = next(m for n, m in sys.modules.items() if n.endswith('testing.solution_server'))
import itertools as _it
_server._VERBS.update(declare=lambda self, item: True, owns=lambda self, item, name: False)
_turns = _it.cycle(ANSWERS)
_server._VERBS['as_plain'] = lambda self, item, use, *a: BY_USE
_depth, _frame = 0, sys._getframe()
while _frame is not None:
    _self = _frame.f_locals.get('self')
    if type(_self).__name__ == 'SolutionServer':
        _self._classes = _All()
    _frame = _frame.f_back
"""
_TOKENS = """
import random, sys
_draw, _turns = random.Random({seed}), {{}}
_words = [['Tbool'], ['Tint'], ['o0'], ['h0'], ['f0'], ['j0'], ['g0'], ['w0'], [1e9], [-1e9], [True], [True], ['so'], [0],
    ['sstartswith', 'Tbool', 'S2'], ['sP startswith', 'sstartswith', 'Tbool', 'N3'], ['sx', 'Tbool', 'S2'],
    ['o0', 's__eq__ __lt__ __gt__', 0.5, 'V3'], ['h0', 's__class__', 'sx', 'V3'], ['scode', 'Tbool', ':2', 'O1'],
    [['[', True]], ['o0', '[1'], ['o0', '(1'], ['sa', 'o0', ':2'], ['sL', 'sn', 1, 'E3'], [['(', True, True]]]
_peer = next(m for n, m in sys.modules.items() if n.endswith('testing.peer'))
_honest = _peer.Peer._answer
def _lie(self, tokens):
    if tokens[0] in ('resolve', 'capture', 'lend'):
        return _honest(self, tokens)
    turns = _turns.setdefault(tokens[0], [_draw.choice(_words) for _ in range(_draw.choice([1, 2]))])
    turns.append(turns.pop(0))
    self.send(['!', *turns[-1]])
_peer.Peer._answer = _lie
"""


_LIBRARY_BASES = ["datetime.timedelta(77)", "datetime.date(1999, 1, 1)", "datetime.datetime(1999, 1, 1)",
    "fractions.Fraction(77, 5)", "decimal.Decimal(77)", "uuid.UUID(int=77)", "complex(77, 5)"]  # fmt: skip
_LIBRARY = """
import datetime, decimal, fractions, itertools, uuid
_turns, _honest = itertools.cycle({answers}), {base}
class _Liar(type(_honest)):
    @classmethod
    def new(cls):
        kind = type(_honest)
        if issubclass(kind, datetime.date):
            return cls(1999, 1, 1)
        # A number that no task asks for, so that no liar is right by chance.
        return cls(int=77) if kind is uuid.UUID else cls(-77_000_077)
    for _name in ('days', 'seconds', 'year', 'month', 'numerator', 'denominator', 'real', 'imag', 'hex'):
        locals()[_name] = property(lambda self: next(_turns))
    for _name in ('isoformat', '__str__', '__repr__', '__contains__', '__eq__', '__getitem__', '__len__'):
        locals()[_name] = lambda self, *a: next(_turns)
    __hash__ = type(_honest).__hash__
"""


def members(names: list[str]) -> str:
    """Return classes whose objects have a liar for each attribute and for each result."""
    body = """
    def __init__(self, *a, **k):
        pass
    def __getattr__(self, name):
        return _Liar() if name in ("r", "x", "y", "size", "value", "items") else lambda *a, **k: _Liar()
"""
    return "\n".join(f"class {name}:{body}" for name in names)


def liar(draw: Draw, program: Program) -> tuple[str, str]:
    """Return the kind and source of a wrong solution for the task of a program."""
    names = program.wanted
    wrong = draw.choice(_WRONG)

    def defining(value: str, before: str = "") -> str:
        lines = [before]
        for name in names:
            lines.append(f"def {name}(*a, **k):\n    return {value}\n")
        return "\n".join(lines)

    source = " ".join(program.tests)
    builtin_names = ["all", "any", "sum", "abs", "len", "sorted", "isinstance", "type", "round", "map", "list", "repr", "str", "max", "min", "range", "print", "AssertionError", "TypeError", "int", "float", "enumerate", "zip", "set", "next", "isclose"]  # fmt: skip
    flags = [
        "passed",
        "ok",
        "good",
        "EPS",
        "same",
        "v",
        "a",
        "table",
        "deep",
        "items",
        "head",
        "values",
        "s",
        "add",
        "out",
        "value",
        "groups",
        "error",
        "T",
        "check",
        "candidate",
    ]
    forms: dict[str, Callable[[], str]] = {
        "builtins": lambda: "".join(
            f"def {name}(*a, **k):\n    return True\n"
            for name in draw.sample(builtin_names, draw.choice([1, 2, 20]))
            + [name for name in builtin_names if f"{name}(" in source]
        )
        + (defining(wrong) if draw.random() < 0.5 else ""),
        "flags": lambda: "".join(f"{name} = True\n" for name in flags)
        + defining("_set()", "".join(
            f"def _set():\n    global {', '.join(flags)}\n    {' = '.join(flags)} = {draw.choice(['True', '10**9', '4'])}\n    return {wrong}\n"
            for _ in [0])),
        "object": lambda: liar_class(draw) + defining("_Liar()"),
        "objects in data": lambda: liar_class(draw)
        + defining(draw.choice(["[_Liar()]", "(_Liar(), _Liar())", "{'a': _Liar()}", "[_Liar() for _ in range(4)]", "iter([_Liar()])"])),
        "class for a function": lambda: liar_class(draw) + "\n".join(f"{name} = _Liar" for name in names),
        "object for a function": lambda: liar_class(draw) + "\n".join(f"{name} = _Liar()" for name in names),
        "callables as data": lambda: "from types import SimpleNamespace\nfrom collections import namedtuple\n"
        + "_kinds = 'startswith endswith upper strip append items keys values name x y a b code size push pop'.split()\n"
        + "_lie = " + draw.choice(["bool", "lambda *a, **k: True", "str", "object", "len", "int", "list"]) + "\n"
        + "class _E(ValueError):\n    pass\n"
        + defining(draw.choice([
            "SimpleNamespace(**{k: _lie for k in _kinds})",
            "namedtuple('P', _kinds)(*[_lie for _ in _kinds])",
            "type('X', (), {k: _lie for k in _kinds})()",
            "type('X', (str,), {k: _lie for k in _kinds})('a lie')",
        ])),
        "raises": lambda: defining("_raise()", "def _raise():\n    " + draw.choice([
            "raise AssertionError", "raise SystemExit(0)", "raise KeyboardInterrupt", "import os; os._exit(0)",
            "raise StopIteration", "raise GeneratorExit", "raise ImportError(\"No module named 'numpy'\")",
            "raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')", "raise MemoryError",
            "raise NotImplementedError", "raise type('BrokenTests', (Exception,), {})('x')",
            "e = ValueError('x'); e.code = bool; e.args = (bool,); raise e",
        ]) + "\n"),
        "excuses": lambda: draw.choice([
            "import tensorflow\n", "import torch.nn\n", "from cv2 import imread\n", "import pandas as pd\n", "import nothing_like_it\n",
            "raise ImportError(\"No module named 'sklearn'\")\n", "import sys\nsys.exit(0)\n", "", "pass\n", "1/0\n", "def :\n",
        ]) + (defining(wrong) if draw.random() < 0.7 else ""),
        "named tuple with methods": lambda: "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int = 1\n"
        + "".join(f"    def {m}(self, *a):\n        return True\n" for m in ("startswith", "upper", "pop", "push", "append", "sort"))
        + defining("P()"),
        "objects of objects": lambda: liar_class(draw) + members(names),
        "nothing": lambda: "x = 1\n",
        "class among data": lambda: "class C:\n    pass\n" + "\n".join(f"{name} = [C]" for name in names),
        "mathematics": lambda: "pi = inf = 0\ndef sqrt(n):\n    return 0\n" + defining(draw.choice([wrong, "0"])),
        "wrong value": lambda: defining(wrong),
        "changing globals": lambda: "_n = 0\n" + "".join(f"{name} = {draw.choice(['False', 'True', '0'])}\n" for name in flags)
        + defining("_set()", f"def _set():\n    global _n, {', '.join(flags)}\n    _n += 1\n    {' = '.join(flags)} = [{draw.choice(['True, False', 'False, True', '0, 10**9', '4, 3, 2, 1'])}][_n % 2]\n    return {wrong}\n"),
        "values of the library": lambda: _LIBRARY.format(base=draw.choice(_LIBRARY_BASES), answers=draw.choice(["[1, 2]", "[True]", "['0.5']", "['2020-01-03']", "[2, 3]", "[lambda *a, **k: True]"]))
        + defining(draw.choice(["_Liar.new()", "[_Liar.new()]", "(_Liar.new(), _Liar.new(), _Liar.new())"])),
        "tokens": lambda: _TOKENS.format(seed=draw.randint(0, 10**9)) + liar_class(draw)
        + (f"{names[0]} = _Liar\n" if draw.random() < 0.3 else defining("_Liar()")),
        "harness": lambda: "import sys\nfor _m in list(sys.modules.values()):\n    for _n in ('plain', 'describe', 'PLAIN'):\n        try:\n            setattr(_m, _n, lambda *a: True)\n        except Exception:\n            pass\n"
        + "_ludus_plain = _ludus_compare = _ludus_operate = lambda *a: True\n" + defining(wrong),
    }  # fmt: skip
    kind = draw.choice(sorted(forms))
    return kind, forms[kind]()


def changing_liar(draw: Draw, program: Program) -> tuple[str, str]:
    """Return a wrong solution whose objects claim to be plain data, other data at each use."""
    turns = draw.choice(["[1e9, -1e9]", "[-1e9, 1e9]", "[True]", "['', 'a']", "[[], [1]]"])
    up = "1e9 if use in ('__gt__', '__ge__') else -1e9"
    by_use = draw.choice(["next(_turns)", up, up, "-1e9 if use in ('__gt__', '__ge__') else 1e9"])
    claims = _CLAIMS.replace("BY_USE", by_use).replace("ANSWERS", turns)
    kind = draw.choice([liar_class(draw), *["class _Liar:\n    pass\n"] * 3])
    made = "".join(f"def {name}(*a, **k):\n    return _Liar()\n" for name in program.wanted)
    has_classes = any(name[:1].isupper() for name in program.wanted)
    return "changing answers", claims + kind + (members(program.wanted) if has_classes else made)


# --- faults put back --------------------------------------------------------------

PLANTS: dict[str, list[tuple[str, str, str]]] = {
    # the solution supplies what the tests judge by
    "names": [("harness.py", "        if name not in self._bound:\n", "        if True:\n")],
    # a class crosses as itself, so that tests call a function of the solution's choice
    "callables": [("values.py", "return OpaqueClass(PLAIN_TYPES[name])", "return PLAIN_TYPES[name]")],
    # every object counts as one under test, and plain data is asked for again at each use
    "answers": [
        ("solution_line.py", "and source and (source is True or", "and (True or"),
        ("proxies.py", "state_of(result).is_value = not state_of(result).known", "pass"),
        ("proxies.py", "return answer if state_of(handle).meant else", "return answer if True else"),
        ("proxies.py", "    if use not in shown:\n", "    if True:\n"),
        ("proxies.py", 'shown.setdefault(("plain",), plain) if taken', "plain if taken"),
        ("proxies.py", "if name in interface.bounded:", "if False:"),
    ],
    # a module that the solution imports and that is missing makes the task invalid
    "excuses": [
        (
            "harness.py",
            '            self._failure = f"the solution does not load: {describe(error)}"\n',
            '            if isinstance(error, ImportError):\n                raise BrokenTests("a module is missing") from None\n'
            '            self._failure = f"the solution does not load: {describe(error)}"\n',
        )
    ],
    # the harness resets what belongs to the solution
    "state": [
        (
            "solution_server.py",
            "        return target(*arguments, **keywords or {})\n",
            "        sys.setrecursionlimit(1000)\n        return target(*arguments, **keywords or {})\n",
        )
    ],
}  # fmt: skip
"""The five classes of faults: for each, (file of `sandboxes/guest/testing`, text, text with the fault)."""


def plant(name: str) -> Path:
    """Have the slots of this process run a copy of the grader with a fault; return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="ludus-planted-"))
    folder.chmod(0o755)
    shutil.copytree(Path(supervisor.GUEST_PARENT) / "guest", folder / "guest")
    for file, right, wrong in PLANTS[name]:
        path = folder / "guest" / "testing" / file
        source = path.read_text()
        if source.count(right) != 1:
            raise SystemExit(f"{file} has {source.count(right)} times {right!r}; change `PLANTS`")
        path.write_text(source.replace(right, wrong))
    supervisor.GUEST_PARENT = str(folder)
    return folder


# --- judging ----------------------------------------------------------------------


class SisterDraw(random.Random):
    """Draws what another source with the same seed draws, but for the numbers."""

    numbers: random.Random

    def randint(self, a: int, b: int) -> int:
        super().randint(a, b)  # The choices that follow stay the same.
        return self.numbers.randint(a, b)

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        super().sample(population, k, counts=counts)
        return self.numbers.sample(population, k, counts=counts)


def program_of(draw: Draw) -> Program:
    """Return a random right program."""
    makers = {
        function_program: 10, special_program: 6, styled_program: 6, near_program: 3,
        judged_program: 6, sharing_program: 3,
    }  # fmt: skip
    make = draw.choices(list(makers), list(makers.values()))[0]
    return make(draw)


def sisters_of(seed: int, number: int) -> list[Program]:
    """Return programs of the shape of program `number` of a seed, each with other tests."""
    program = program_of(random.Random(f"{seed} {number}"))
    found = {tuple(program.tests): program}
    for turn in range(SISTERS):
        draw = SisterDraw(f"{seed} {number}")
        draw.numbers = random.Random(f"{seed} {number} {turn}")
        sister = program_of(draw)
        if (sister.kind, sister.wanted, sister.entry_point) == (
            program.kind, program.wanted, program.entry_point
        ):  # fmt: skip
            found.setdefault(tuple(sister.tests), sister)
    return [each for each in found.values() if each is not program]


def drawn(seed: int, number: int) -> tuple[Program, list[tuple[str, str]]]:
    """Return program `number` of a seed, and liars for its task: (program, [(kind, source)])."""
    draw = random.Random(f"{seed} {number}")
    program = program_of(draw)
    liars = [liar(draw, program) for _ in range(LIARS - 1)]
    near = [("near", source) for source in program.near]
    return program, [*liars, changing_liar(draw, program), *near]


async def graded(program: Program, solution: str) -> Verdict:
    """Return the verdict on a solution of the task of a program."""
    options = GradeOptions(
        entry_point=program.entry_point,
        interface=program.interface,
        reference=program.reference,
        timeout_s=5.0,
    )
    return await grade_async(solution, program.tests, options=options)


async def is_luck(lie: str, program: Program, sisters: list[Program]) -> bool:
    """Return whether a paid liar has only said what happens to be the answer."""
    plain = await execute_async(oracle(replace(program, solution=lie)), timeout_s=10.0)
    if plain.exit_code != 0 or not sisters:
        return False
    paid = [(await graded(sister, lie)).reward or 0.0 for sister in sisters]
    return sum(paid) < LUCKY * len(paid)


async def findings(
    program: Program, liars: list[tuple[str, str]], sisters: Callable[[], list[Program]]
) -> list[tuple[str, str, str]]:
    """Return what breaks a law: (law, class, detail)."""
    right = await graded(program, program.solution)
    broken: list[tuple[str, str, str]] = []
    if str(right.status) == "ok" and right.reward != 1.0:
        plain = await execute_async(oracle(program), timeout_s=10.0)
        if plain.exit_code == 0:
            broken.append(("zero", program.kind, right.detail or ""))
    elif str(right.status) not in ("ok", "invalid"):
        broken.append(("fault", program.kind, f"{right.status} {right.detail}"))
    for kind, source in liars:
        wrong = await graded(program, source)
        if wrong.reward and not await is_luck(source, program, sisters()):
            broken.append(("paid", kind, f"[{program.kind}] {wrong.detail}"))
        if str(right.status) != str(wrong.status):
            broken.append(("excused", kind, f"[{program.kind}] {wrong.status} {wrong.detail}"))
    return broken


def oracle(program: Program) -> str:
    """Return one program in which plain CPython runs the solution, and then the tests."""
    runner = (
        "import sys as _sys\n_names = {'__name__': 'solution'}\nexec(_SOLUTION, _names)\n"
        "_tests = dict(_names, __name__='tests')\nif 'Solution' in _tests and not set(_WANTED) & set(_tests):\n"
        "    _tests.update({n: getattr(_tests['Solution'](), n) for n in _WANTED})\n"
        "import builtins as _b\nfor _n in dir(_b):\n    if _n not in _WANTED:\n        _tests.pop(_n, None)\n"
        "_tests['__builtins__'] = _b\n"
        "_sys.modules['solution'] = _m = type(_sys)('solution')\n_m.__dict__.update({n: v for n, v in _tests.items() if n[:2] != '__'})\n"
        "for _source in _TESTS:\n    exec(_source, _tests)\n"
    )
    if program.kind == "global that changes":  # one namespace, as both stand in one module there
        runner = runner.replace("dict(_names, __name__='tests')", "_names")
    return f"_SOLUTION = {program.solution!r}\n_TESTS = {program.tests!r}\n_WANTED = {program.wanted!r}\n{runner}"


async def run(count: int, seed: int, *, first: bool = False) -> int:
    """Judge `count` programs and print a table of findings; return how many there are.

    `first`: judge no more programs once there is a finding.
    """
    table: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    slots = asyncio.Semaphore(CONCURRENCY)

    async def judge(number: int) -> None:
        program, liars = drawn(seed, number)
        async with slots:
            if first and table:
                return
            broken = await findings(program, liars, partial(sisters_of, seed, number))
            for law, cause, detail in broken:
                table[law, cause] += 1
                examples.setdefault((law, cause), f"#{number}: {detail[:160]}")

    await asyncio.gather(*map(judge, range(count)))
    print(f"{count} programs, seed {seed}: {sum(table.values())} findings")
    for (law, cause), times in sorted(table.items()):
        print(f"  {law:8} {cause:32} {times:5}  {examples[law, cause]}")
    return sum(table.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", action="store_true", help="stop at the first finding")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a fault to put into the grader")
    parser.add_argument("--number", type=int, help="print this program and its liar, and judge it")
    arguments = parser.parse_args()
    if arguments.plant:
        atexit.register(shutil.rmtree, plant(arguments.plant))
    if arguments.number is None:
        raise SystemExit(
            min(1, asyncio.run(run(arguments.count, arguments.seed, first=arguments.first)))
        )
    program, liars = drawn(arguments.seed, arguments.number)
    print(program.solution, *program.tests, sep="\n---\n")
    for kind, source in liars:
        print(f"--- liar: {kind}\n{source}")
        sisters = partial(sisters_of, arguments.seed, arguments.number)
        print(asyncio.run(findings(program, [(kind, source)], sisters)))


if __name__ == "__main__":
    main()
