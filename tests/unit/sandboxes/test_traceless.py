"""Only tests that cannot change the process they run in may share one."""

# ruff: noqa: E501 - tests, one to a line
from __future__ import annotations

import pytest

from ludus.sandboxes.guest.testing.grading_job import GradingJob
from ludus.sandboxes.guest.testing.interface import Interface


def leave_no_trace(sources: list[str]) -> bool:
    return Interface(GradingJob(tuple(sources))).leaves_no_trace


HARMLESS = [
    "assert f(1) == 2",
    "assert f([1, {'a': (2,)}]) == {1, 2}, 'message'",
    "METADATA = {'author': 'x'}\ndef check(candidate):\n    assert candidate(1) == 2\n    for i in range(10):\n        assert abs(candidate(i) - i) < 1e-6\ncheck(f)",
    "try:\n    f(0)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'x'",
    "x = [1]\nf(x)\nassert x[0] == 1 and sorted(x) == [1]",
    "p = P(3)\np.x = 5\nassert p.double() == 10 and isinstance(p, P)",
    "assert math.isclose(f(), 0.3)",
    "assert all(f(x) for x in (lambda n: [n])(3))",
    "print(f(1))\nassert f'{f(2)!r}' == '2'",
]

TRACES = [
    "import os",
    "from random import seed",
    "assert random.seed(1) is None",
    "assert np.allclose(f(), 1)",
    "__import__('sys').setrecursionlimit(9)",
    "open('x', 'w')",
    "exec('1')",
    "eval('1')",
    "globals()['x'] = 1",
    "setattr(f, 'x', 1)",
    "getattr(f, '__class__')",
    "f.__class__",
    "f.__init__.__globals__['x'] = 1",
    "global x\nx = 1",
    "class A: pass",
    "@f\ndef g(): pass",
    "def g():\n    yield 1",
    "async def g(): pass",
    "with f() as x: pass",
    "del x",
    "input()",
    "breakpoint()",
    "sys.setrecursionlimit(10)",
    "decimal.getcontext().prec = 3",
    "assert (lambda: compile('1', '', 'eval'))()",
    "memoryview(b'x')",
    "object.__subclasses__()",
    "vars()",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_plain_assertions_leave_no_trace(source: str) -> None:
    assert leave_no_trace([source])


@pytest.mark.parametrize("source", TRACES)
def test_whatever_may_change_the_process_is_refused(source: str) -> None:
    assert not leave_no_trace([source])
    assert not leave_no_trace(
        [
            "assert True",
            f"def check():\n    {source.splitlines()[0]}\n" if "\n" not in source else source,
        ]
    )


def test_every_module_name_is_refused_but_math() -> None:
    assert not leave_no_trace(["assert os.getcwd"])
    assert not leave_no_trace(["assert collections.Counter"])
    assert leave_no_trace(["assert math.pi > 3"])
