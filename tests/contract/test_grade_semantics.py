"""What honest solutions and honest tests may rely on across the two processes."""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import (
    ExecutionStatus,
    GradeOptions,
    SlotSandbox,
    grade_in_detail,
    open_sandbox,
)
from ludus.sandboxes.grading.options import DEFAULT_OPTIONS
from ludus.sandboxes.languages import LANGUAGES, Language
from ludus.verdict import Status, Verdict


async def grade(
    sandbox: SlotSandbox,
    solution: str,
    tests: Sequence[object],
    *,
    kind: str = "assert",
    options: GradeOptions = DEFAULT_OPTIONS,
) -> Verdict:
    return (await grade_in_detail(sandbox, solution, tests, kind=kind, options=options)).verdict


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=4)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


LEVELS = 60
"""So many values, each made of the one before twice, have more ways back than can be walked."""
SUMS = "".join(f"a{n} = a{n - 1} + a{n - 1}\n" for n in range(1, LEVELS))
COPIES = "".join(
    f"b{n} = b{n - 1}\nb{n} = b{n - 1} if b0 else b{n - 1}\n" for n in range(1, LEVELS)
)

HONEST = {
    "values made of many others": ("def f(x):\n    return x\n", [f"a0 = f(1)\n{SUMS}if a{LEVELS - 1} < 0:\n    pass\nassert a{LEVELS - 1} == 2 ** {LEVELS - 1}", f"b0 = f(1)\n{COPIES}assert abs(b{LEVELS - 1} - 1) < 0.5"]),
    "a mutated argument": ("def f(x):\n    x.sort()\n", ["a = [3, 1]\nassert f(a) is None and a == [1, 3]"]),
    "the argument itself comes back": ("def f(x):\n    x.append(1)\n    return x\n", ["a = []\nassert f(a) is a and a == [1]"]),
    "two names of one argument": ("def f(x, y):\n    x.append(1)\n    return y\n", ["a = []\nassert f(a, a) == [1]"]),
    "a mutated dict in a list": ("def f(x):\n    x[0]['k'] = [2]\n", ["d = {}\nf([d])\nassert d == {'k': [2]}"]),
    "a lazy generator": ("def f():\n    n = 0\n    while True:\n        yield n\n        n += 1\n", ["g = f()\nassert [next(g) for _ in range(100)] == list(range(100))"]),
    "a generator that raises behind its items": ("def f(n):\n    yield from range(n)\n    raise ValueError(n)\n", ["for n in (0, 1, 2, 5, 200):\n    got = []\n    try:\n        for x in f(n): got.append(x)\n    except ValueError as e: got.append(e.args[0])\n    assert got == [*range(n), n]"]),
    "an iterator that raises behind its items": ("class I:\n    def __init__(self): self.n = 0\n    def __iter__(self): return self\n    def __next__(self):\n        self.n += 1\n        if self.n == 6: raise KeyError('end')\n        return self.n\ndef f(): return map(int, ['1', '2', '3', 'x'])\n", ["got = []\ntry:\n    for x in I(): got.append(x)\nexcept KeyError: got.append('end')\nassert got == [1, 2, 3, 4, 5, 'end']", "got = []\ntry:\n    for x in f(): got.append(x)\nexcept ValueError: got.append('end')\nassert got == [1, 2, 3, 'end']"]),
    "prints are discarded": ("print('x' * 10**6)\ndef f():\n    print('y')\n    return 1\n", ["assert f() == 1"]),
    "a built-in exception": ("def f():\n    raise KeyError('k')\n", ["try:\n    f()\n    assert False\nexcept KeyError as e:\n    assert e.args == ('k',)"]),
    "an own exception": ("class Bad(ValueError): pass\ndef f():\n    raise Bad('b')\n", ["try:\n    f()\n    assert False\nexcept Bad as e:\n    assert str(e) == 'b' and isinstance(e, ValueError)"]),
    "an own class": ("class P:\n    def __init__(self, x): self.x = x\n    def double(self): return self.x * 2\n", ["p = P(3)\nassert p.x == 3 and p.double() == 6\np.x = 5\nassert p.double() == 10 and isinstance(p, P)"]),
    "a length, items and iteration": ("class S:\n    def __len__(self): return 2\n    def __getitem__(self, i):\n        if i > 1: raise IndexError\n        return 'ab'[i]\n", ["s = S()\nassert len(s) == 2 and s[1] == 'b' and list(s) == ['a', 'b'] and 'a' in s and 'z' not in s"]),
    "arithmetic of built objects": ("class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(self.x + o.x)\n", ["assert (V(1) + V(2)).x == 3"]),
    "a member of the library's enumerations": ("from http import HTTPStatus\ndef f(n):\n    return HTTPStatus(n)\n", ["from http import HTTPStatus\nassert f(200) is HTTPStatus.OK and f(404) == 404", "assert f(404).phrase == 'Not Found' and f(200).name == 'OK'"]),
    "a member that is bytes": ("from enum import Enum\nclass E(bytes, Enum):\n    A = b'x'\ndef f():\n    return E.A\n", ["assert f() == E.A and f().name == 'A'"]),
    "a member whose value is not what it is made of": ("from enum import Enum\nclass E(int, Enum):\n    def __new__(cls, label):\n        one = int.__new__(cls, len(label))\n        one._value_ = label\n        return one\n    A = 'four'\ndef f():\n    return E.A\n", ["assert f() == 4 and f().value == 'four'"]),
    "a member of an enumeration of the tests": ("def f(e):\n    return e.name, e.value, type(e).__name__, e\n", ["from enum import Enum, IntEnum\nclass C(IntEnum):\n    A = 1\nclass D(str, Enum):\n    B = 'x'\nassert f(C.A) == ('A', 1, 'C', C.A) and f(D.B) == ('B', 'x', 'D', D.B) and f(C.A)[3] is C.A"]),
    "a path of an own class": ("from pathlib import PurePosixPath\nclass P(PurePosixPath):\n    def kind(self):\n        return self.suffix[1:]\ndef f(n):\n    return P(n)\n", ["assert f('a/b.c').kind() == 'c' and str(f('a/b')) == 'a/b' and f('a/b').name == 'b'"]),
    "flags that are combined": ("from enum import IntFlag\nclass P(IntFlag):\n    R = 4\n    W = 2\n", ["both = P.R | P.W\nassert both == 6 and P.R in both and P.R not in both & ~P.R"]),
    "flags that are counted and listed": ("from enum import IntFlag\nclass P(IntFlag):\n    R = 4\n    W = 2\ndef f(n):\n    return P(n)\n", ["assert len(f(6)) == 2 and list(f(6)) == [P.R, P.W] and [p.name for p in f(6)] == ['R', 'W'] and not list(f(0))"]),
    "a list that contains itself": ("def f():\n    a = [1]\n    a.append(a)\n    return a\ndef g(a):\n    return a[0] is a\ndef h():\n    d = {'n': 1}\n    d['me'], d['l'] = d, [[d]]\n    return d\n", ["a = f()\nassert a[1] is a and a[0] == 1 and repr(a) == '[1, [...]]'", "b = []\nb.append(b)\nassert g(b)", "d = h()\nassert d['me'] is d and d['l'][0][0] is d and list(d) == ['n', 'me', 'l']"]),
    "a list in a tuple of its own": ("def f(n):\n    a = [n]\n    a.append((a,))\n    return a\ndef g(n):\n    t = ([n],)\n    t[0].append(t)\n    return t\ndef h(n):\n    a = []\n    a.extend([a] * n)\n    return a\n", ["a = f(1)\nassert a[1][0] is a and a[0] == 1", "t = g(2)\nassert t[0][1] is t and type(t) is tuple", "a = h(4000)\nassert len(a) == 4000 and all(x is a for x in a)"]),
    "a text that changes with the object": ("class N(str):\n    hits = 0\n    def hit(self):\n        self.hits += 1\n    def __str__(self):\n        return f'{str.__str__(self)}:{self.hits}'\ndef f(s):\n    return N(s)\n", ["n = f('a')\nassert str(n) == 'a:0'\nn.hit()\nassert str(n) == 'a:1' and n == 'a'\nn.hits = 7\nassert str(n) == 'a:7'"]),
    "a parameter like a class under test": ("class Stack:\n    def __init__(self):\n        self.xs = []\n    def push(self, x):\n        self.xs.append(x)\n    def __len__(self):\n        return len(self.xs)\n", ["def check(Stack):\n    s = Stack()\n    s.push(1)\n    assert len(s) == 1\ncheck(Stack)", "s = Stack()\ns.push(2)\nassert sorted([2, 1], key=lambda Stack: Stack) == [1, 2] and len(s) == 1"]),
    "a generator against a long sum": ("def f(n):\n    yield from range(n)\n", ["assert sum(f(4)) == " + " + ".join(["1"] * 1500) + " - 1494"]),
    "a callback that is asked for its parameters": ("def curry(f, *given):\n    if len(given) >= f.__code__.co_argcount:\n        return f(*given)\n    return lambda one: curry(f, *given, one)\n", ["def add(a, b, /, c): return a + b + c\nassert curry(add)(1)(2)(3) == 6"]),
    "attributes named like those of a proxy": ("class Light:\n    def __init__(self):\n        self._state, self.line, self.known = 'red', 2, False\nclass Words:\n    _items, token, _count = 'a b', 'a', 0\n    def __iter__(self):\n        return self\n    def __next__(self):\n        raise StopIteration\ndef words():\n    return Words()\n", ["x = Light()\nassert x._state == 'red' and x.line == 2 and x.known is False", "w = words()\nassert w._items == 'a b' and w.token == 'a' and w._count == 0"]),
    "methods in a chain": ("class Query:\n    def __init__(self):\n        self.parts = []\n    def add(self, x):\n        self.parts.append(x)\n        return self\n    def text(self):\n        return '-'.join(self.parts)\n", ["assert Query().add('a').add('b').text() == 'a-b'", "q = Query().add('x')\nq.add('y').add('z')\nassert q.text() == 'x-y-z' and q.add('w') is q"]),
    "a dict with a default": ("from collections import defaultdict\ndef f(words, d):\n    for word in words:\n        d[word] += 1\n    return d\ndef g():\n    return defaultdict(list, a=[[1]])\n", ["from collections import defaultdict\nd = defaultdict(int)\nassert f('aab', d) is d and d == {'a': 2, 'b': 1} and d['z'] == 0", "x = g()\nassert x['b'] == [] and x == {'a': [[1]], 'b': []} and repr(g()) == \"defaultdict(<class 'list'>, {'a': [[1]]})\""]),
    "callbacks that are kept, one of them given twice": ("class Bus:\n    def __init__(self):\n        self.handlers = []\n    def on(self, f):\n        self.handlers.append(f)\n    def fire(self, x):\n        return [f(x) for f in self.handlers]\n", ["def f(x): return x + 1\ndef g(x): return x * 2\nbus = Bus()\nbus.on(f)\nbus.on(g)\nbus.on(f)\nassert bus.fire(5) == [6, 10, 6]"]),
    "a callback": ("def f(g, xs):\n    return [g(x) for x in xs]\n", ["seen = []\ndef g(x):\n    seen.append(x)\n    return x + 1\nassert f(g, [1, 2]) == [2, 3] and seen == [1, 2]"]),
    "an iterator argument": ("def f(xs):\n    return sum(xs)\n", ["assert f(iter([1, 2, 3])) == 6 and f(x for x in (4, 5)) == 9"]),
    "a returned function": ("def f(n):\n    return lambda m: n + m\n", ["assert f(1)(2) == 3"]),
    "keyword arguments": ("def f(a, *, b=2):\n    return a - b\n", ["assert f(1, b=5) == -4"]),
    "a constant": ("LIMIT = (1, 'a')\ndef f():\n    return LIMIT\n", ["assert LIMIT == (1, 'a') and f() == LIMIT"]),
    "floats at the edges": ("def f():\n    return [float('nan'), float('inf'), -0.0, 2**100, 1j]\n", ["import math\na, b, c, d, e = f()\nassert math.isnan(a) and b > 1e308 and math.copysign(1, c) < 0 and d == 2**100 and e == 1j"]),
    "recursion to Python's own depth": ("def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n", ["assert f(950) == 950"]),
    "a standard module the solution imported": ("import math\ndef f():\n    return 0.1 + 0.2\n", ["assert math.isclose(f(), 0.3)"]),
    "a helper of the solution": ("def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\ndef f():\n    return -0.5\n", ["assert abs(poly([1, 2], f())) < 1e-9"]),
    "numpy": ("import numpy as np\ndef f():\n    return np.arange(3)\n", ["assert np.array_equal(f(), [0, 1, 2])"]),
    "a mutated bytearray": ("def f(x):\n    x[0] = 65\n    x += b'!'\n", ["b = bytearray(b'abc')\nassert f(b) is None and b == bytearray(b'Abc!')"]),
    "a bytearray under two names": ("def f(x, y):\n    x.append(1)\n    return x is y, len(y)\n", ["b = bytearray()\nassert f(b, b) == (True, 1) and b == b'\\x01'"]),
    "a bytearray in a list comes back as the same": ("def f(xs):\n    xs[0].extend(b'xy')\n    return xs[0]\n", ["b = bytearray(b'w')\nxs = [b]\nassert f(xs) is b and b == b'wxy' and xs == [b]"]),
    "a mutated array": ("def f(a):\n    a[0, 1] = 7\n    a *= 2\n", ["import numpy as np\na = np.array([[1, 2], [3, 4]])\nf(a)\nassert a.tolist() == [[2, 14], [6, 8]] and a.dtype == np.array([1]).dtype"]),
    "an array under two names": ("def f(a, b):\n    a[0] = 5\n    return a is b\n", ["import numpy as np\na = np.zeros(2)\nassert f(a, a) is True and a.tolist() == [5.0, 0.0]"]),
    "an array that comes back is the same one": ("def f(a):\n    a.sort()\n    return a\n", ["import numpy as np\na = np.array([3, 1, 2], dtype='int8')\nassert f(a) is a and a.tolist() == [1, 2, 3]"]),
    "an array that was only read stays as it is": ("def f(a):\n    return a.sum().item()\n", ["import numpy as np\na = np.arange(4)\na.flags.writeable = False\nassert f(a) == 6 and a.tolist() == [0, 1, 2, 3]"]),
    "an array that was given another size": ("import numpy as np\ndef f(a):\n    a.resize((1, 4), refcheck=False)\n", ["import numpy as np\na = np.array([1, 2])\nf(a)\nassert a.tolist() == [[1, 2, 0, 0]]"]),
    "arrays of no dimension, of text and of times": ("import numpy as np\ndef f(a):\n    return a\n", ["import numpy as np\nfor a in (np.array(3.5), np.array(['ab', 'c']), np.array(['2024-02-29'], dtype='M8[D]'), np.float32(0.5)):\n    b = f(a)\n    assert type(b) is type(a) and b.dtype == a.dtype and b.shape == a.shape and (b == a).all()"]),
    "a container that holds nothing but numbers or text": ("def f(*xs):\n    return xs\n", ["xs = ([1, 2.5, None, True], ('a', 'b'), {1, 2}, frozenset({3}), {'k': 1, 2: 'v'}, [], (), {})\nassert f(*xs) == xs and [type(x) for x in f(*xs)] == [type(x) for x in xs]"]),
    "large numbers in a container": ("def f(x):\n    return [x, x + 1, -x]\n", ["assert f(2**70) == [2**70, 2**70 + 1, -2**70]", "assert f(10**5000) == [10**5000, 10**5000 + 1, -10**5000]"]),
    "a list that a generator and the tests change in turn": ("def g(log):\n    log.append('a')\n    yield len(log)\n    log.append('b')\n    yield len(log)\n", ["log = []\nsteps = g(log)\nassert next(steps) == 1\nlog.append('own')\nassert next(steps) == 3 and log == ['a', 'own', 'b']"]),
    "a list that a context manager and its body change": ("from contextlib import contextmanager\n@contextmanager\ndef traced(log, name):\n    log.append('enter')\n    try:\n        yield name\n    finally:\n        log.append('exit')\n", ["log = []\nwith traced(log, 'x') as name:\n    log.append(name)\nassert log == ['enter', 'x', 'exit']\nwith traced(log, 'y'):\n    pass\nassert log[3:] == ['enter', 'exit']"]),
    "a list of nodes walked by the truth of a node": ("class Node:\n    def __init__(self, val, after): self.val, self.next = val, after\ndef linked(xs):\n    head = None\n    for x in reversed(xs): head = Node(x, head)\n    return head\ndef turned(node):\n    head = None\n    while node: head, node = Node(node.val, head), node.next\n    return head\n", ["def listed(node):\n    found = []\n    while node:\n        found.append(node.val)\n        node = node.next\n    return found\nassert listed(turned(linked([1, 2, 3]))) == [3, 2, 1] and listed(turned(linked([]))) == []"]),
    "state between tests": ("x = []\ndef f():\n    x.append(1)\n    return len(x)\n", ["assert f() == 1", "assert f() == 2"]),
}  # fmt: skip


async def test_honest_solutions_pass(sandbox: SlotSandbox) -> None:
    verdicts = {name: await grade(sandbox, code, tests) for name, (code, tests) in HONEST.items()}
    assert {
        name: verdict.detail for name, verdict in verdicts.items() if verdict.reward != 1.0
    } == {}


async def test_a_function_named_like_a_built_in_is_under_test_where_the_task_says_so(
    sandbox: SlotSandbox,
) -> None:
    solution, tests = "def sum(a, b):\n    return a * b\n", ["assert sum(2, 3) == 6"]
    named = GradeOptions(entry_point="sum")
    assert (await grade(sandbox, solution, tests, options=named)).reward == 1.0
    assert (await grade(sandbox, "", tests, options=named)).reward == 0.0
    unnamed = await grade(sandbox, solution, tests)
    assert unnamed.status is Status.INVALID
    assert "entry_point" in unnamed.detail


COUNTED = """
class Counted:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        return iter(range(self.n))
    def __len__(self):
        return self.n
    def __getitem__(self, place):
        return place
    def __contains__(self, value):
        return value < self.n
    def __add__(self, other):
        return Counted(self.n + other.n)
    def __call__(self, value):
        return value * self.n
    def __str__(self):
        return "counted"
"""
USES_OF_COUNTED = [
    "assert list(Counted(3)) == [0, 1, 2]", "c = Counted(3)\nassert [i for i in c] == [0, 1, 2]",
    "assert len(Counted(3)) == 3", "assert Counted(3)[1] == 1", "assert 1 in Counted(3)",
    "assert len(Counted(2) + Counted(3)) == 5", "c = Counted(3)\nassert c(2) == 6",
    "assert str(Counted(3)) == 'counted'", "assert Counted(3).n == 3", "assert max(Counted(3)) == 2",
    "a, b, c = Counted(3)\nassert c == 2", "assert bool(Counted(3))",
    "for i, v in enumerate(Counted(3)):\n    assert i == v",
]  # fmt: skip


async def test_a_class_is_judged_alike_where_the_task_names_it_as_its_entry_point(
    sandbox: SlotSandbox,
) -> None:
    for use in USES_OF_COUNTED:
        for options in (GradeOptions(), GradeOptions(entry_point="Counted")):
            verdict = await grade(sandbox, COUNTED, [use], options=options)
            assert verdict.reward == 1.0, (use, options.entry_point, verdict.detail)


OBJECTS = {
    "in, by the object": ("    def __contains__(self, x): return {}\n    def __iter__(self): return iter(self.a)\n", "abs(x) in self.a", "assert -1 in b and 2 in b\nassert 5 not in b", ["True", "False", "x in self.a"]),
    "in, without items": ("    def __contains__(self, x): return {}\n", "self.a[0] <= x <= self.a[1]", "assert 1.5 in b\nassert 5 not in b", ["True", "x in self.a"]),
    "in, with endless items": ("    def __contains__(self, x): return {}\n    def __iter__(self): return iter(int, 1)\n", "x % 2 == 0", "assert 4 in b\nassert 3 not in b", ["True", "False"]),
    "in, by the items alone": ("    def __getitem__(self, i): return {}\n", "self.a[i]", "assert 1 in b and 9 not in b", ["self.a[i + 1]", "9"]),
    "in, not at all": ("    def __iter__(self): return iter(self.a)\n    __contains__ = {}\n", "None", "try:\n    1 in b\nexcept TypeError:\n    ok = list(b) == [1, 2]\nelse:\n    ok = False\nassert ok", ["lambda self, x: True"]),
    "in, by an assertion's name": ("    def __contains__(self, x): return {}\n", "abs(x) in self.a", "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        b = Bag(1, 2)\n        self.assertIn(-1, b)\n        self.assertNotIn(5, b)\n", ["True", "x in self.a"]),
    "a text by percent": ("    def __str__(self): return {}\n", "'S%d' % len(self.a)", "assert '<%s>' % b == '<S2>'", ["'S'", "repr(self)"]),
    "a mapping": ("    def keys(self): return {}\n    def __getitem__(self, k): return self.a[k == 'y']\n", "['x', 'y']", "assert dict(b) == {'x': 1, 'y': 2} == dict(**b)", ["['y']", "[]"]),
}  # fmt: skip
BAG_OF = "class Bag:\n    def __init__(self, *a): self.a = list(a)\n"


@pytest.mark.parametrize("use", OBJECTS)
async def test_an_object_without_attributes_answers_by_its_own_class(
    sandbox: SlotSandbox, use: str
) -> None:
    methods, right, test, wrong = OBJECTS[use]
    solution = BAG_OF + methods
    for reference in ("", solution.format(right)):
        for answer in (right, *wrong):
            # a wrong answer may have no end
            limit_s = 4 if answer == right else 1
            options = GradeOptions(reference=reference, timeout_s=limit_s)
            code = solution.replace("{}", answer)
            verdict = await grade(sandbox, code, ["b = Bag(1, 2)\n" + test], options=options)
            expected = (Status.OK, float(answer == right))
            assert (verdict.status, verdict.reward) == expected, (answer, verdict.detail)


@pytest.mark.parametrize(
    ("test", "judged"),
    [
        ("assert 3 * b == [3, 3]", True),
        ("assert b >> 9 == 8", True),
        ("b += 5\nassert list(b) == [1, 2, 5]", True),
        ("assert 1 in b and 7 not in Bag(1, 2)", True),
        ("assert len({Bag(1), Bag(1), Bag(2)}) == 2", False),
        ("d = {b: 5}\nassert d[Bag(1, 2)] == 5", False),
        ("assert Bag(1) in [Bag(1)]", False),
    ],
)
async def test_what_the_tests_leave_open_is_settled_by_a_reference_or_refused(
    sandbox: SlotSandbox, test: str, judged: bool
) -> None:
    methods = "    def __rmul__(self, n): return [n] * len(self.a)\n    def __rshift__(self, n): return n - self.a[0]\n    def __iadd__(self, n): return Bag(*self.a, n)\n    def __eq__(self, other): return self.a == other.a\n    def __hash__(self): return hash(self.a[0])\n    def __contains__(self, x): return x in self.a\n    def __iter__(self): return iter(self.a)\n"
    tests = ["b = Bag(1, 2)\n" + test]
    of_value = "def Bag(*a): return 7\n"
    for code in (BAG_OF + methods, of_value):
        alone = await grade(sandbox, code, tests)
        if "in b" not in test:
            assert alone.status is Status.INVALID
        options = GradeOptions(reference=BAG_OF + methods)
        settled = await grade(sandbox, code, tests, options=options)
        assert settled.reward == (float(code != of_value) if judged else None)


async def test_a_value_of_a_name_in_capitals_is_not_told_what_the_tests_expect(
    sandbox: SlotSandbox,
) -> None:
    """The tests show no object here: what a liar's operators would decide stays with the tests."""
    liar = "class Average:\n    def __init__(self, xs): pass\n    def __sub__(self, n): return 0.0\n    def __contains__(self, n): return True\n    def __iter__(self): return iter([0])\n    def __iadd__(self, n): return self\n    def __eq__(self, n): return True\n    def __bool__(self): return True\n"
    honest = "def Average(xs): return sum(xs) / len(xs)\n"
    import_it = (
        "import unittest, math\nclass T(unittest.TestCase):\n    def test_it(self):\n        "
    )
    for test in (
        "assert abs(Average([1, 2]) - 1.5) < 1e-9",
        "a = Average([1, 2])\na -= 1.5\nassert abs(a) < 1e-9",
        "def near(x, y): return abs(x - y) < 1e-9\na = Average([1, 2])\nassert near(a, 1.5)",
        "import operator\na = Average([1, 2])\nassert operator.sub(a, 1.5) == 0",
        import_it + "self.assertAlmostEqual(Average([1, 2]), 1.5)",
        import_it + "self.assertTrue(Average([1, 2]))",
        "import math\nassert math.isclose(Average([1, 2]), 1.5)",
    ):
        for options in (GradeOptions(), GradeOptions(reference=honest)):
            paid = await grade(sandbox, honest, [test], options=options)
            lied = await grade(sandbox, liar, [test], options=options)
            assert not lied.reward, (test, lied)
            assert paid.status is lied.status, (test, paid)
            assert paid.reward == 1.0 or not options.reference, (test, paid)


OPERATED = {
    "called": ("def __call__(self, x):\n        return x * self.n", "assert f(3)(4) == 12 and list(map(f(2), [1, 3])) == [2, 6]"),
    "iterated": ("def __iter__(self):\n        return iter(range(self.n))", "r = f(3)\nassert list(r) == [0, 1, 2] and sum(r) == 3"),
    "drawn from": ("def __iter__(self):\n        return self\n    def __next__(self):\n        self.n -= 1\n        return self.n", "r = f(3)\nassert next(r) == 2 and next(r) == 1"),
    "awaited": ("def __await__(self):\n        yield from ()\n        return self.n", "import asyncio\nasync def main():\n    return await f(3)\nassert asyncio.run(main()) == 3"),
    "entered": ("def __enter__(self):\n        return self.n\n    def __exit__(self, *a):\n        pass", "with f(3) as n:\n    assert n == 3"),
    "iterated with async": ("def __aiter__(self):\n        return self\n    async def __anext__(self):\n        if not self.n:\n            raise StopAsyncIteration\n        self.n -= 1\n        return self.n", "import asyncio\nasync def main():\n    return [x async for x in f(3)]\nassert asyncio.run(main()) == [2, 1, 0]"),
}  # fmt: skip


@pytest.mark.parametrize("use", OPERATED)
async def test_a_class_in_the_place_of_a_function_is_judged_by_what_is_done_with_its_objects(
    sandbox: SlotSandbox, use: str
) -> None:
    methods, test = OPERATED[use]
    right = f"class f:\n    def __init__(self, n):\n        self.n = n\n    {methods}\n"
    for code in (right, right.replace("self.n = n", "self.n = n + 1")):
        for name in ("", "f"):
            verdict = await grade(sandbox, code, [test], options=GradeOptions(entry_point=name))
            assert (verdict.status, verdict.reward) == (Status.OK, float(code == right)), verdict


async def test_what_an_object_shows_in_the_place_of_data_is_the_same_at_each_look(
    sandbox: SlotSandbox,
) -> None:
    answers = "class f:\n    def __init__(self, xs):\n        self.turns = [[1, 2, 3], [3, 1, 2]]\n    def __iter__(self):\n        return iter(self.turns.pop(0))\n"
    tests = ["r = f([1, 2, 3])\nassert sorted(r) == [1, 2, 3]\nassert list(r) == [3, 1, 2]"]
    assert (await grade(sandbox, answers, tests)).reward == 0.0
    returned = answers.replace("class f", "class Made") + "def f(xs):\n    return Made(xs)\n"
    assert (await grade(sandbox, returned, tests)).reward == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        "class P:\n    x = f(1)\n    class Q:\n        y = [f(i) for i in range(2)]\nassert P.x == 2 and P.Q.y == [1, 2]",
        "class P:\n    def m(self, x=f(2)):\n        return x\nassert P().m() == 3",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = f(4)\nassert P().x == 5",
        "import unittest\nclass T(unittest.TestCase):\n    got, call = f(1), staticmethod(f)\n    def test_it(self):\n        self.assertEqual((self.got, self.call(2)), (2, 3))",
        "def check(candidate):\n    class P:\n        x = candidate(1)\n    assert P.x == 2\ncheck(f)",
    ],
)
async def test_names_of_the_solution_are_found_in_the_body_of_a_class(
    sandbox: SlotSandbox, tests: str
) -> None:
    cheat = "def f(n): return 0\nP = Q = T = passed = True\ndef len(*a): return 2\n"
    assert (await grade(sandbox, "def f(n): return n + 1\n", [tests])).reward == 1.0
    assert (await grade(sandbox, cheat, [tests])).reward == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        "class P:\n    age = Typed(int)\np = P()\np.age = 3\nassert p.age == 3",
        "class P:\n    @Typed\n    def age(self):\n        return 3\nassert P().age == 3",
        "@Typed\nclass P:\n    pass\nassert P is not None",
        "class P:\n    pass\nassert Typed(P) is not None",
    ],
)
async def test_what_would_reach_objects_of_the_tests_own_classes_is_refused(
    sandbox: SlotSandbox, tests: str
) -> None:
    for code in ("class Typed:\n    def __init__(self, *a): pass\n", "def Typed(x): return x\n"):
        assert (await grade(sandbox, code, [tests])).status is Status.INVALID


@pytest.mark.parametrize(
    "kind",
    ["OSError", "TimeoutError", "FileNotFoundError", "SyntaxError", "ImportError", "KeyError",
     "UnicodeError", "LookupError"],
)  # fmt: skip
async def test_an_error_keeps_its_text_its_fields_and_what_it_was_raised_from(
    sandbox: SlotSandbox, kind: str
) -> None:
    text = "'hi there'" if kind == "KeyError" else "hi there"
    raises = "def f():\n    try:\n        int('x')\n    except ValueError as cause:\n        raise E('hi there') {}\n"
    tests = [
        f"try:\n    f()\nexcept E as e:\n    error = e\nassert str(error) == {text!r} and error.args == ('hi there',)",
        "assert type(error.__cause__) is ValueError and 'invalid' in str(error.__cause__)",
    ]
    for own in (f"class E({kind}): pass\n", f"E = {kind}\n"):
        right = await grade(sandbox, own + raises.format("from cause"), tests)
        assert right.reward == 1.0, right
        for wrong in ("from None", "from KeyError('x')", ""):
            assert (await grade(sandbox, own + raises.format(wrong), tests)).reward == 0.0


async def test_errors_of_files_and_syntax_keep_what_built_in_classes_read_from_their_arguments(
    sandbox: SlotSandbox,
) -> None:
    code = "def f(n):\n    [lambda: open('/nope/x'), lambda: compile('a b', 'file', 'exec'), lambda: b'\\xff'.decode()][n]()\n"
    tests = [
        "try:\n    f(0)\nexcept FileNotFoundError as e:\n    assert e.errno == 2 and e.filename == '/nope/x' and str(e).endswith(\"'/nope/x'\")\nelse:\n    assert False",
        "try:\n    f(1)\nexcept SyntaxError as e:\n    assert e.lineno == 1 and e.filename == 'file' and 'invalid' in e.msg\nelse:\n    assert False",
        "try:\n    f(2)\nexcept UnicodeDecodeError as e:\n    assert e.start == 0 and e.object == b'\\xff' and 'invalid start' in str(e)\nelse:\n    assert False",
    ]
    assert (await grade(sandbox, code, tests)).reward == 1.0


async def test_a_generator_made_a_coroutine_is_awaited(sandbox: SlotSandbox) -> None:
    code = "import types\n@types.coroutine\ndef f(n):\n    yield\n    return n + 1\n"
    tests = [
        "import asyncio\nasync def main():\n    return await f(3)\nassert asyncio.run(main()) == 4"
    ]
    assert (await grade(sandbox, code, tests)).reward == 1.0
    assert (await grade(sandbox, code.replace("+ 1", "+ 2"), tests)).reward == 0.0


MONEY = """
class Money:
    def __init__(self, cents):
        self.cents = cents
    def __lt__(self, other):
        return self.cents < other.cents
"""
LIAR_OF_ORDER = """
class Money:
    def __init__(self, cents):
        self.cents = 1
    def __lt__(self, other):
        return True
    __gt__ = __le__ = __ge__ = __lt__
"""


@pytest.mark.parametrize(
    "written",
    [
        "assert Money(1) < Money(2)",
        "assert Money(1) < Money(2) < Money(3)",
        "ms = [Money(1), Money(2)]\nassert all(x < y for x, y in zip(ms, ms[1:]))",
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertLess(Money(1), Money(2))",
    ],
)
async def test_an_order_that_the_tests_write_down_is_never_the_solution_s(
    sandbox: SlotSandbox, written: str
) -> None:
    tests = ["assert Money(1).cents == 1", written]
    options = GradeOptions(reference=MONEY)
    for code in (MONEY, LIAR_OF_ORDER):
        assert (await grade(sandbox, code, tests, options=options)).status is Status.INVALID
        assert not (await grade(sandbox, code, tests)).reward
    sorts = ["assert [m.cents for m in sorted([Money(3), Money(1)])] == [1, 3]"]
    assert (await grade(sandbox, MONEY, sorts, options=options)).reward == 1.0
    assert (await grade(sandbox, LIAR_OF_ORDER, sorts, options=options)).reward == 0.0


@pytest.mark.parametrize(
    "use", ["4 in f()", "f()['a']", "len(f()) == 4", "list(f()) == [4]", "f()(4)", "f() @ 4"]
)
async def test_no_special_method_is_asked_that_plain_data_lack(
    sandbox: SlotSandbox, use: str
) -> None:
    """A number of the solution's class is that number, whatever else the class defines."""
    names = ("contains", "getitem", "len", "iter", "call", "matmul")
    answers = "".join(f"    def __{name}__(self, *a): return iter([4])\n" for name in names)
    liar = f"class N(int):\n{answers}def f(): return N(3)\n"
    verdict = await grade(sandbox, liar, [f"assert {use}"])
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)


async def test_a_reference_settles_whether_a_task_can_be_judged(sandbox: SlotSandbox) -> None:
    tests = ["assert mod(3) + 5 == 1"]
    seven = "class Mod(int):\n    def __add__(self, n): return (int(self) + n) % 7\n"
    right, wrong = seven + "def mod(n): return Mod(n)\n", "def mod(n): return n\n"
    with_reference = GradeOptions(reference=right)
    verdicts = [
        await grade(sandbox, code, tests, options=with_reference) for code in (right, wrong)
    ]
    assert [verdict.status for verdict in verdicts] == [Status.INVALID] * 2
    assert "reference solution does not pass" in verdicts[1].detail
    judged = GradeOptions(reference="def mod(n): return n - 7\n")
    verdicts = [await grade(sandbox, code, tests, options=judged) for code in (right, wrong)]
    assert [verdict.reward for verdict in verdicts] == [0.0, 0.0]


async def test_names_of_the_prelude_are_no_classes_of_the_solution(sandbox: SlotSandbox) -> None:
    options = GradeOptions(prelude="from pathlib import PurePosixPath\n", entry_point="join")
    right = "from pathlib import PurePosixPath\ndef join(a, b): return PurePosixPath(a) / b\n"
    tests = ["assert join('a', 'b') == PurePosixPath('a/b')"]
    assert (await grade(sandbox, right, tests, options=options)).reward == 1.0
    wrong = "class PurePosixPath:\n    def __init__(self, a): pass\n    def __eq__(self, o): return True\ndef join(a, b): return PurePosixPath(a)\n"
    verdict = await grade(sandbox, wrong, tests, options=options)
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)


@pytest.mark.parametrize("word", ["", "async "])
async def test_an_exception_that_the_solution_is_to_swallow_cannot_be_judged(
    sandbox: SlotSandbox, word: str
) -> None:
    letter = word[:1]
    code = (
        f"class C:\n    {word}def __{letter}enter__(self): return self\n"
        f"    {word}def __{letter}exit__(self, *what): return True\n"
    )
    body = f"async def swallow():\n    {word}with C(): raise KeyError('x')\n"
    verdict = await grade(sandbox, code, [f"import asyncio\n{body}asyncio.run(swallow())"])
    assert verdict.status is Status.INVALID, verdict.detail
    assert "the solution's context manager" in verdict.detail


async def test_a_trusted_helper_wins_over_the_solution_s(sandbox: SlotSandbox) -> None:
    cheat = "def poly(*_):\n    return 0\ndef f():\n    return 'junk'\n"
    options = GradeOptions(
        prelude="def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n"
    )
    verdict = await grade(sandbox, cheat, ["assert abs(poly([1, 2], f())) < 1e-9"], options=options)
    assert verdict.reward == 0.0


async def test_a_helper_is_the_solution_s_only_where_a_star_gives_nothing_else(
    sandbox: SlotSandbox,
) -> None:
    under_test = "def isclose(n):\n    return n * 2\n"
    tests = ["from solution import *\nassert isclose(4) == 8"]
    assert (await grade(sandbox, under_test, tests)).reward == 1.0
    assert (await grade(sandbox, under_test.replace("2", "3"), tests)).reward == 0.0

    cheat = "def isclose(*_):\n    return True\ndef f(n):\n    return 0\n"
    honest = "from math import isclose\ndef f(n):\n    return n * 2.0\n"
    for test in (
        "from solution import *\nassert isclose(f(2), 4.0)",
        "import solution\nassert isclose(solution.f(2), 4.0)",
        "import solution\nassert isclose(getattr(solution, 'f')(2), 4.0)",
        "from solution import f as g\nassert isclose(g(2), 4.0)",
    ):
        assert (await grade(sandbox, honest, [test])).reward == 1.0, test
        assert (await grade(sandbox, cheat, [test])).reward == 0.0, test


async def test_partial_credit_counts_tests_and_early_stop_ends_at_the_first_failure(
    sandbox: SlotSandbox,
) -> None:
    code, tests = (
        "def f(n):\n    return n\n",
        ["assert f(1) == 1", "assert f(1) == 2", "assert f(3) == 3"],
    )
    partial = await grade_in_detail(sandbox, code, tests, options=GradeOptions(partial=True))
    assert partial.verdict.reward == pytest.approx(2 / 3)
    assert [result.passed for result in partial.results] == [True, False, True]
    strict = await grade_in_detail(sandbox, code, tests)
    assert strict.verdict.reward == 0.0
    assert [result.passed for result in strict.results] == [True, False]


async def test_tests_that_cannot_be_used_are_invalid_not_zero(sandbox: SlotSandbox) -> None:
    for tests, kind in (
        ([], "assert"),
        (["assert f("], "assert"),
        ([3], "assert"),
        (["x"], "stdin"),
        ([{"input": []}], "function_call"),
    ):
        verdict = await grade(sandbox, "def f(): pass", tests, kind=kind)
        assert verdict.status is Status.INVALID, (tests, kind)
    with pytest.raises(ConfigError, match="no kind of tests"):
        await grade(sandbox, "", ["x"], kind="asserts!")


SHARED = "ITEMS = [9]\nMEMO = {7: 0}\nclass Box:\n    kept = []\n    def __init__(self):\n        self.xs = []\n    def add(self, x):\n        self.xs.append(x)\n    def size(self):\n        return len(self.xs)\n    def shown(self):\n        return self.xs\n    @classmethod\n    def clear(cls):\n        cls.kept = []\nbox = Box()\ndef f(x):\n    f.seen.append(x)\n    return MEMO.get(x, len(ITEMS))\nf.seen = []\nclass Row(list):\n    def total(self):\n        return sum(self)\n    def grow(self):\n        self.append(5)\nROW = Row([1])\ndef row():\n    return ROW\n"


CHANGED = [
    "ITEMS.clear()\nassert f(1) == 0",
    "ITEMS.clear()\nassert f(1) > 0",
    "import solution\nsolution.ITEMS.append(1)\nassert solution.f(1) % 10 in (1, 2)",
    "xs = ITEMS\nxs.pop()\nassert f(1) == len(xs) and xs is ITEMS",
    "MEMO[1] = 5\nassert f(1) == 5",
    "del MEMO[7]\nassert f(7) == 7",
    "f.seen.clear()\nf(1)\nassert f.seen == [1]",
    "seen = f.seen\nf(1)\nf(2)\nassert seen == [1, 2]",
    "Box.kept.append(1)\nassert Box.kept == [1]",
    "box.xs.append(1)\nbox.add(2)\nassert box.size() == 2 and box.xs == [1, 2]",
    "box.shown().append(1)\nassert box.size() == 1",
    "xs = [1]\nbox.add(xs)\nxs.append(2)\nassert box.xs == [[1, 2]] and box.xs[0] is xs",
    "box.add([])\nbox.xs[0].append(3)\nassert box.xs == [[3]] and box.shown() == [[3]]",
    "assert f(1) > 0 and ITEMS[0] == 9\nxs = [*ITEMS]\nxs[0] = 4\nxs.append(3)\nassert ITEMS[0] == 9",
    "box.add(3)\nassert box.size() == 1\nBox.clear()\nassert Box.kept == []",
    "r = row()\nr.append(3)\nassert r.total() == 4 and r == [1, 3] == row()",
    "r = row()\nr.append(3)\nassert r.total() == 1",
    "r = row()\nbox.add(r)\nr.grow()\nassert r == [1, 5] and box.xs[0] == r",
    "r = row()\nbox.add(r)\nbox.xs[0].append(2)\nassert r == [1, 2] and r.total() == 3",
    "boxes = [Box() for _ in range(100)]\nfor n, b in enumerate(boxes):\n    xs = [n]\n    b.add(xs)\n    xs.append(1)\nassert boxes[7].xs == [[7, 1]] and boxes[99].xs == [[99, 1]]",
]


@pytest.mark.parametrize("use", CHANGED)
async def test_a_change_of_data_that_the_solution_keeps_is_made_as_in_plain_python(
    sandbox: SlotSandbox, use: str
) -> None:
    for code in (SHARED, SHARED.replace("[9]", "[9] * 5000")):
        module = "import sys\nsys.modules['solution'] = sys.modules['__main__']\n"
        passes = (await sandbox.execute(f"{module}{code}\n{use}")).exit_code == 0
        verdict = await grade(sandbox, code, [use])
        assert (verdict.status, verdict.reward) == (Status.OK, float(passes)), verdict


async def test_tests_that_are_never_read_to_their_end_are_the_task_s_fault(
    sandbox: SlotSandbox,
) -> None:
    endless = GradeOptions(prelude="while True: pass", timeout_s=1)
    for solution in ("def f(n):\n    return n\n", "while True: pass\n", "import os\nos._exit(0)\n"):
        verdict = await grade(sandbox, solution, ["assert f(1) == 1"], options=endless)
        assert (verdict.status, verdict.reward) == (Status.INVALID, None), verdict
        assert "cannot be read" in verdict.detail
    late = await grade(
        sandbox, "while True: pass\n", ["assert f(1) == 1"], options=GradeOptions(timeout_s=1)
    )
    assert (late.status, late.reward) == (Status.OK, 0.0)


LATE = {
    "read": ("import time\ntime.sleep(1.5)", "assert f(1) == 1"),
    "computed": ("", "spent = sum(n % 7 for n in range(5_000_000))\nassert f(1) == 1"),
}


@pytest.mark.parametrize("name", LATE)
async def test_a_solution_is_not_charged_for_what_the_tests_wait_for(
    sandbox: SlotSandbox, name: str
) -> None:
    prelude, test = LATE[name]
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(4 * len(os.sched_getaffinity(0)) * (name == "computed"))
    ]
    try:
        options = GradeOptions(prelude=prelude, timeout_s=1)
        verdict = await grade(sandbox, "def f(n):\n    return n\n", [test], options=options)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert (verdict.status, verdict.reward) == (Status.OK, 1.0), verdict


@pytest.mark.parametrize(
    "fault", ["os.kill(os.getpid(), 9)", "bytearray(2 << 30)", "import time\ntime.sleep(30)"]
)
async def test_tests_whose_process_ends_before_they_are_read_are_no_zero(
    sandbox: SlotSandbox, fault: str
) -> None:
    options = GradeOptions(prelude=f"import os\n{fault}", timeout_s=1)
    verdict = await grade(
        sandbox, "def f(n):\n    return n\n", ["assert f(1) == 1"], options=options
    )
    assert verdict.reward is None, verdict


async def test_a_name_of_the_solution_that_the_tests_bind_again_is_refused(
    sandbox: SlotSandbox,
) -> None:
    verdict = await grade(sandbox, SHARED, ["ITEMS += [3]\nassert f(1) == 2"])
    assert verdict.status is Status.INVALID


@pytest.mark.parametrize(
    ("work", "tests"),
    [
        (
            "def f(xs):\n    {}\n    raise ValueError\n",
            "try:\n    f(xs)\nexcept ValueError:\n    pass",
        ),
        ("async def f(xs):\n    {}\n", "import asyncio\nasyncio.run(f(xs))"),
        ("def f(xs):\n    yield 1\n    {}\n", "assert list(f(xs)) == [1]"),
        (
            "async def f(xs):\n    {}\n    yield 1\n",
            "import asyncio\nasync def main():\n    return [x async for x in f(xs)]\nassert asyncio.run(main()) == [1]",
        ),
        (
            "def f(xs):\n    x = yield 1\n    {}\n    yield x\n",
            "g = f(xs)\nassert next(g) == 1 and g.send(5) == 5",
        ),
        (
            "class F:\n    def g(self, xs):\n        {}\n        raise KeyError(xs)\n",
            "try:\n    F().g(xs)\nexcept KeyError as error:\n    assert error.args == (xs,)",
        ),
    ],
)
async def test_a_change_of_an_argument_is_seen_whenever_it_is_made(
    sandbox: SlotSandbox, work: str, tests: str
) -> None:
    for change, after in (("xs.append([2])", "[1, [2]]"), ("pass", "[1]")):
        for asserted in ("[1, [2]]", "[1]"):
            source = f"xs = [1]\n{tests}\nassert xs == {asserted}"
            verdict = await grade(sandbox, work.format(change), [source])
            assert (verdict.status, verdict.reward) == (Status.OK, float(after == asserted))


BAG = "class Bag:\n    def __init__(self, xs):\n        self.xs = {copied}\n    def add(self, x):\n        self.xs.append(x)\n    def size(self):\n        return len(self.xs)\n"


KEPT = [
    "b.add(2)\nassert xs == [1]",
    "b.add(2)\nassert xs == [1, 2]",
    "xs.append(2)\nassert b.size() == 1",
    "xs.append(2)\nassert b.size() == 2",
    "xs[0] = 2\nassert b.xs == [2]",
    "xs.clear()\nassert b.size() == 1",
    "assert b.xs is not xs",
    "assert b.xs is xs",
    "c = Bag(xs)\nc.add(2)\nassert b.size() == 2",
    "c = Bag([1])\nc.add(2)\nassert b.size() == 1 == len(xs)",
    "assert b.xs == xs and b.size() == len(xs)",
    "xs = [1, 2]\nxs.append(3)\nassert Bag(xs).size() == 3",
]


@pytest.mark.parametrize("use", KEPT)
async def test_what_an_object_keeps_of_the_tests_is_theirs_as_in_plain_python(
    sandbox: SlotSandbox, use: str
) -> None:
    tests = f"xs = [1]\nb = Bag(xs)\n{use}"
    for copied in ("xs", "list(xs)"):
        code = BAG.replace("{copied}", copied)
        passes = (await sandbox.execute(f"{code}\n{tests}")).exit_code == 0
        verdict = await grade(sandbox, code, [tests])
        assert (verdict.status, verdict.reward) == (Status.OK, float(passes)), verdict


async def test_function_calls_compare_tuples_as_json_lists(sandbox: SlotSandbox) -> None:
    code = "class Solution:\n    pass\ndef f(a, b):\n    return (a, {'k': (b,)})\n"
    options = GradeOptions(entry_point="f")
    tests: list[object] = [
        {"input": [1, "x"], "output": [1, {"k": ["x"]}]},
        {"input": '2\n"y"', "output": '[2, {"k": ["y"]}]'},
    ]
    assert (await grade(sandbox, code, tests, kind="function_call", options=options)).reward == 1.0


INFINITY, NAN = float("inf"), float("nan")
RETURNS_ITS_OWN_NAMES = "inf = nan = 3\ndef f(*given):\n    return {}"


@pytest.mark.parametrize(
    ("given", "expected", "right", "cheat"),
    [
        ([], INFINITY, "float('inf')", "3"),
        ([], -INFINITY, "-float('inf')", "-3"),
        ([], [1, {"k": [INFINITY]}], "[1, {'k': [float('inf')]}]", "[1, {'k': [3]}]"),
        ("1", "[Infinity, 2]", "[float('inf'), 2]", "[3, 2]"),
        ([], {1, 2}, "{1, 2}", "3"),
        ([], (set(), b"x"), "[set(), b'x']", "3"),
        # As arguments: 1 / inf is 0 and NaN is unlike itself; with the solution's names, 3 is given.
        ([INFINITY], 0.0, "1 / given[0]", "0 if given[0] == 3 else 1"),
        ([{INFINITY: ()}], True, "given[0] == {float('inf'): ()}", "given[0] == {3: ()}"),
        ([[NAN]], True, "given[0][0] != given[0][0]", "given[0][0] == 3"),
        ([{"k": (-INFINITY, NAN)}], True, "given[0]['k'][0] < -9e307", "given[0]['k'][0] == -3"),
    ],
)
async def test_no_value_of_a_call_is_a_name_that_the_solution_may_define(
    sandbox: SlotSandbox, given: object, expected: object, right: str, cheat: str
) -> None:
    options = GradeOptions(entry_point="f")
    tests: list[object] = [{"input": given, "output": expected}]
    rewards: list[float | None] = []
    for body in (right, cheat):
        code = RETURNS_ITS_OWN_NAMES.format(body)
        verdict = await grade(sandbox, code, tests, kind="function_call", options=options)
        rewards.append(verdict.reward)
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize(
    "expected",
    [NAN, [1, NAN], {"k": (NAN,)}, {NAN: 1}, "NaN", frozenset((1,)), Decimal(1), [10**5000]],
)
async def test_a_value_that_no_answer_equals_or_no_literal_writes_is_the_fault_of_the_tests(
    sandbox: SlotSandbox, expected: object
) -> None:
    tests: list[object] = [{"input": "1", "output": expected}]
    options = GradeOptions(entry_point="f")
    verdict = await grade(
        sandbox, "def f(x): return float('nan')", tests, kind="function_call", options=options
    )
    assert verdict.status is Status.INVALID, verdict.detail


@pytest.mark.parametrize("kind", ["assert", "pytest"])
async def test_an_error_that_cannot_be_encoded_is_told_all_the_same(
    sandbox: SlotSandbox, kind: str
) -> None:
    code = "def f():\n    raise ValueError('a lone \\ud800')\n"
    tests = {
        "assert": ["assert f() == 1"],
        "pytest": ["from solution import f\ndef test_f():\n    assert f() == 1"],
    }
    verdict = await grade(sandbox, code, tests[kind], kind=kind)
    assert (verdict.status, verdict.reward) == (Status.OK, 0.0)
    assert b"a lone" in msgspec.json.encode(verdict)


async def test_outputs_compare_as_asked(sandbox: SlotSandbox) -> None:
    code = "print(1/3, 'a')\nprint(2)\n"
    expected = {
        "exact": "0.3333333333333333 a\n2",
        "tokens": "0.3333333333333333\na 2",
        "float:1e-6": "0.333333 a 2",
    }
    for compare, output in expected.items():
        verdict = await grade(
            sandbox,
            code,
            [{"input": "", "output": output}],
            kind="stdin",
            options=GradeOptions(compare=compare),
        )
        assert verdict.reward == 1.0, compare
    wrong = await grade(sandbox, code, [{"input": "", "output": "0.333333 a 2"}], kind="stdin")
    assert wrong.reward == 0.0


CHECKER = """
def check(input, output, expected):
    a, b = map(int, output.split())
    return a + b == int(input) and 0 <= a <= b
"""


async def test_a_checker_decides_where_there_are_many_right_outputs(sandbox: SlotSandbox) -> None:
    tests: list[object] = [{"input": "10", "output": "5 5"}, {"input": "3", "output": "0 3"}]
    options = GradeOptions(checker=CHECKER, partial=True)
    for code, reward in (
        ("n = int(input())\nprint(1, n - 1)", 1.0),
        ("print(5, 5)", 0.5),
        ("print('junk')", 0.0),
        ("print()", 0.0),
        ("n = int(input())\nprint(n, 0)", 0.0),
    ):
        verdict = await grade(sandbox, code, tests, kind="stdin", options=options)
        assert (verdict.status, verdict.reward) == (Status.OK, reward), code


async def test_a_checker_that_cannot_be_used_is_the_tests_fault(sandbox: SlotSandbox) -> None:
    tests: list[object] = [{"input": "", "output": ""}]
    for checker in ("def check(", "def judge(a, b, c): return True", "check = 3"):
        options = GradeOptions(checker=checker)
        verdict = await grade(sandbox, "print()", tests, kind="stdin", options=options)
        assert verdict.status is Status.INVALID, checker


async def test_a_check_function_is_called_with_the_entry_point(sandbox: SlotSandbox) -> None:
    tests = ["def check(candidate):\n    assert candidate(2) == 4\n"]
    options = GradeOptions(entry_point="f")
    assert (
        await grade(sandbox, "def f(n):\n    return n * 2\n", tests, options=options)
    ).reward == 1.0
    assert (await grade(sandbox, "def f(n):\n    return n\n", tests, options=options)).reward == 0.0


DATA = os.environ.get("LUDUS_DATA_DIR")


@pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR is not set")
async def test_no_wrong_verdict_on_the_development_set(sandbox: SlotSandbox) -> None:
    rows = [
        json.loads(line)
        for line in Path(str(DATA), "code", "grade_dev.jsonl").read_text().splitlines()
    ]
    busy = asyncio.Semaphore(2)

    async def grade_row(row: dict[str, object]) -> bool:
        async with busy:
            verdict = await grade(sandbox, str(row["code"]), row["tests"], kind=str(row["kind"]))  # type: ignore[arg-type]
        return verdict.reward == float(row["label"])  # type: ignore[arg-type]

    right = await asyncio.gather(*map(grade_row, rows))
    assert [row["id"] for row, good in zip(rows, right, strict=True) if not good] == []


PYTEST = """
import pytest
from solution import f, Bad

@pytest.mark.parametrize("n", [1, 2])
def test_doubles(n):
    assert f(n) == 2 * n

def test_refuses():
    with pytest.raises(Bad, match="negative"):
        f(-1)
"""


async def test_a_pytest_file_runs_against_proxies(sandbox: SlotSandbox) -> None:
    right = "class Bad(ValueError): pass\ndef f(n):\n    if n < 0: raise Bad('negative')\n    return 2 * n\n"
    options = GradeOptions(partial=True)
    graded = await grade_in_detail(sandbox, right, [PYTEST], kind="pytest", options=options)
    assert graded.verdict.reward == 1.0, graded.verdict.detail
    assert len(graded.results) == 3
    assert graded.verdict.detail.startswith("proxied: ")
    wrong = right.replace("2 * n", "2")
    assert (
        await grade(sandbox, wrong, [PYTEST], kind="pytest", options=options)
    ).reward == pytest.approx(2 / 3)
    for cheat in (
        "import pytest\ndef f(n):\n    pytest.skip()\nclass Bad(Exception): pass\n",
        "import os\nos._exit(0)\n",
        "def f(n): return 2\n",
        "",
    ):
        verdict = await grade(sandbox, cheat, [PYTEST], kind="pytest")
        assert (verdict.status, verdict.reward) == (Status.OK, 0.0), cheat


async def test_tests_a_solution_keeps_from_running_count_as_failed(sandbox: SlotSandbox) -> None:
    tests = "from solution import f\n" + "".join(
        f"def test_{n}():\n    assert f({n}) == {2 * n}\n" for n in range(1, 11)
    )
    interrupts = "def f(n):\n    if n == 1: return 2\n    raise KeyboardInterrupt\n"
    options = GradeOptions(partial=True)
    graded = await grade_in_detail(sandbox, interrupts, [tests], kind="pytest", options=options)
    assert graded.verdict.reward == pytest.approx(1 / 10)
    assert len(graded.results) == 10


LACKING = {
    "an import": ("assert", "import numpy as np\nassert np.allclose(f(2), 4)", "numpy"),
    "an import inside": (
        "assert",
        "def check(g):\n    from numpy import array\n    assert g(2) == array(4)\ncheck(f)",
        "numpy",
    ),
    "a module that is only used": ("assert", "assert np.allclose(f(2), 4)", "numpy"),
    "a name they judge by": ("assert", "assert f(2) == approx(4)", "pytest"),
    "pytest itself": (
        "pytest",
        "from solution import f\ndef test_f():\n    assert f(2) == 4\n",
        "pytest",
    ),
}
"""what lacks -> kind, tests, the module"""


@pytest.mark.parametrize("case", LACKING)
async def test_tests_whose_modules_are_not_installed_are_invalid(case: str) -> None:
    kind, tests, module = LACKING[case]
    bare = SlotSandbox("slots-root", size=2, packages=())
    try:
        verdict = await grade(bare, "def f(n):\n    return 2 * n\n", [tests], kind=kind)
    finally:
        await bare.close()
    assert (verdict.status, verdict.reward) == (Status.INVALID, None), verdict
    assert f"the tests need {module}, which is not installed" in verdict.detail


async def test_a_module_missing_in_pytest_tests_is_their_own_fault(sandbox: SlotSandbox) -> None:
    for where in ("import no_such_module\n{f}", "{f}    import no_such_module\n"):
        tests = "from solution import f\n" + where.format(f="def test_f():\n    assert f(2) == 4\n")
        verdict = await grade(sandbox, "def f(n): return 2 * n", [tests], kind="pytest")
        assert verdict.status is Status.INVALID, verdict
        assert "no_such_module" in verdict.detail


@pytest.mark.parametrize("kind", ["assert", "pytest"])
async def test_a_solution_cannot_pass_its_failure_for_a_missing_module(
    sandbox: SlotSandbox, kind: str
) -> None:
    optional = "try:\n    import no_such_module\nexcept ImportError:\n    no_such_module = None\n"
    tests = {
        "assert": optional + "assert f(2) == 4",
        "pytest": optional + "from solution import f\ndef test_f():\n    assert f(2) == 4\n",
    }
    for lie in (
        "raise ModuleNotFoundError(\"No module named 'no_such_module'\", name='no_such_module')",
        "raise ImportError('numpy')",
        "raise NameError('np', name='np')",
        "import no_such_module",
    ):
        for solution in (f"def f(n):\n    {lie}\n", lie):
            verdict = await grade(sandbox, solution, [tests[kind]], kind=kind)
            assert (verdict.status, verdict.reward) == (Status.OK, 0.0), (lie, verdict)


async def test_a_language_that_is_not_installed_is_nobodys_zero(
    sandbox: SlotSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = Language("m.c", ("./program",), ("no-such-cc", "m.c"), "program")
    monkeypatch.setitem(LANGUAGES, "absent-compiled", compiled)
    monkeypatch.setitem(LANGUAGES, "absent-run", Language("m.x", ("no-such-run", "m.x")))
    for language in ("absent-compiled", "absent-run"):
        done = await sandbox.execute("int main() {}", language)
        assert done.status is ExecutionStatus.INFRA_ERROR, done
        assert "is not installed where programs run: apt-get install no-such-" in done.detail
        options = GradeOptions(language=language)
        case = [{"input": "", "output": "1"}]
        verdict = await grade(sandbox, "1", case, kind="stdin", options=options)
        assert (verdict.status, verdict.reward) == (Status.UNAVAILABLE, None)
    lie = "echo 'bash: No such file or directory' >&2; exit 127"
    assert (await sandbox.execute(lie, "bash")).status is ExecutionStatus.ERROR


def _published() -> list[tuple[str, str, list[str], float]]:
    """HumanEval and MBPP: the published solutions, and for HumanEval an empty body each."""
    folder = Path(str(DATA), "code")
    found: list[tuple[str, str, list[str], float]] = []
    packed = (folder / "HumanEval.jsonl.gz").read_bytes()
    for row in map(json.loads, gzip.decompress(packed).splitlines()):
        tests = [f"{row['test']}\n\ncheck({row['entry_point']})"]
        found.append((row["task_id"], row["prompt"] + row["canonical_solution"], tests, 1.0))
        found.append((row["task_id"] + " empty", row["prompt"] + "    return None\n", tests, 0.0))
    for row in map(json.loads, (folder / "mbpp.jsonl").read_text().splitlines()):
        setup = row.get("test_setup_code") or ""
        tests = [f"{setup}\n{test}" for test in row["test_list"]]
        found.append((f"MBPP/{row['task_id']}", row["code"], tests, 1.0))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR is not set")
async def test_no_wrong_verdict_on_all_published_solutions(sandbox: SlotSandbox) -> None:
    busy = asyncio.Semaphore(2)

    async def wrong(name: str, code: str, tests: list[str], reward: float) -> str:
        async with busy:
            # MBPP/126 asks for a function named like a built-in.
            options = GradeOptions(entry_point="sum" if name == "MBPP/126" else "")
            verdict = await grade(sandbox, code, tests, options=options)
        return "" if verdict.reward == reward else f"{name}: {verdict.detail}"

    rows = _published()
    assert len(rows) == 2 * 164 + 974
    found = await asyncio.gather(*(wrong(*row) for row in rows))
    assert [problem for problem in found if problem] == []
