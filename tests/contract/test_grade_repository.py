"""Hidden pytest files over a whole repository: what is graded right, and what fools nobody."""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import os
from collections.abc import AsyncIterator
from math import isfinite

import msgspec
import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import GradeOptions, SlotSandbox, grade_repository, open_sandbox
from ludus.verdict import Status

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

TESTS = {
    "tests/test_area.py": """
import pytest
from shapes import area, Square

@pytest.mark.parametrize("side", [1, 2])
def test_area(side):
    assert area(Square(side)) == side * side

def test_refuses():
    with pytest.raises(ValueError):
        Square(-1)
""",
    "tests/test_state.py": """
from pathlib import Path
from shapes import save, Square

def test_is_saved(tmp_path):
    save(Square(3), tmp_path / "square")
    assert (tmp_path / "square").read_text() == "3"
""",
}
EXPECTED = [
    "tests/test_area.py::test_area[1]",
    "tests/test_area.py::test_area[2]",
    "tests/test_area.py::test_refuses",
    "tests/test_state.py::test_is_saved",
]
RIGHT = {
    "src/shapes/__init__.py": """
from .square import Square
def area(shape): return shape.side ** 2
def save(shape, path): path.write_text(str(shape.side))
""",
    "src/shapes/square.py": """
class Square:
    def __init__(self, side):
        if side < 0: raise ValueError(side)
        self.side = side
""",
    "README.md": "Shapes.",
}
WRONG = {
    **RIGHT,
    "src/shapes/square.py": "class Square:\n    def __init__(self, side):\n        self.side = 0\n",
}
OPTIONS = GradeOptions(timeout_s=8)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def test_a_right_repository_passes_and_its_verdict_names_the_mode(
    sandbox: SlotSandbox,
) -> None:
    graded = await grade_repository(sandbox, RIGHT, TESTS, EXPECTED, options=OPTIONS)
    assert graded.verdict.reward == 1.0, graded.verdict.detail
    assert graded.verdict.detail.startswith("in_process: 4 of 4")
    assert [result.passed for result in graded.results] == [True] * 4


async def test_partial_credit_counts_the_expected_tests(sandbox: SlotSandbox) -> None:
    options = GradeOptions(timeout_s=8, partial=True)
    half = {
        **RIGHT,
        "src/shapes/square.py": "class Square:\n    def __init__(self, side):\n        self.side = side\n",
    }
    graded = await grade_repository(sandbox, half, TESTS, EXPECTED, options=options)
    assert graded.verdict.reward == pytest.approx(3 / 4)
    assert [result.passed for result in graded.results] == [True, True, False, True]
    wrong = await grade_repository(sandbox, half, TESTS, EXPECTED, options=OPTIONS)
    assert wrong.verdict.reward == 0.0


async def test_hidden_tests_may_bring_their_own_helpers_and_conftest(sandbox: SlotSandbox) -> None:
    tests = {
        "tests/conftest.py": "import pytest\n@pytest.fixture\ndef two(): return 2",
        "tests/test_two.py": "from shapes import area, Square\ndef test_two(two):\n    assert area(Square(two)) == 4",
    }
    graded = await grade_repository(
        sandbox, RIGHT, tests, ["tests/test_two.py::test_two"], options=OPTIONS
    )
    assert graded.verdict.reward == 1.0, graded.verdict.detail


async def test_tests_that_cannot_be_used_are_invalid(sandbox: SlotSandbox) -> None:
    for tests, expected in ((TESTS, []), (TESTS, [EXPECTED[0]] * 2), ({"helper.py": ""}, EXPECTED)):
        graded = await grade_repository(sandbox, RIGHT, tests, expected)
        assert graded.verdict.status is Status.INVALID
    with pytest.raises(ConfigError, match="file path"):
        await grade_repository(sandbox, {"../x": ""}, TESTS, EXPECTED)


def added(path: str, source: str) -> dict[str, str]:
    return {**WRONG, path: source}


ATTACKS = {
    "nothing at all": {},
    "the wrong answer": WRONG,
    "its own tests in place of the hidden ones": added("tests/test_area.py", "def test_area(): pass\n"),
    "a folder in place of a hidden test": added("tests/test_area.py/x.py", "pass"),
    "a file in place of the folder of tests": added("tests", "x"),
    "a conftest that passes everything": added("conftest.py", "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    out = yield\n    out.get_result().outcome = 'passed'\n"),
    "a conftest beside the tests": added("tests/conftest.py", "def pytest_collection_modifyitems(items): items.clear()\n"),
    "settings that deselect": added("pytest.ini", "[pytest]\naddopts = --collect-only -k nothing\n"),
    "settings in another file": added("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '--co'\n"),
    "settings in a third file": added("setup.cfg", "[tool:pytest]\naddopts = --co\n"),
    "a plugin by its name": added("pytest_cov.py", "raise SystemExit(0)\n"),
    "a pytest of its own": added("pytest.py", "def main(*a, **k): return 0\n"),
    "a package of pytest's": added("_pytest/__init__.py", "raise SystemExit(0)\n"),
    "a module of the standard library": added("json.py", "def dumps(*a, **k): raise SystemExit(0)\nloads = dumps\n"),
    "a start-up module": added("sitecustomize.py", "raise SystemExit(0)\n"),
    "a path file": added("x.pth", "import os; os._exit(0)\n"),
    "a compiled test": added("tests/__pycache__/test_area.cpython-311.pyc", "x"),
    "an early end when it is imported": added("src/shapes/__init__.py", "import os\nos._exit(0)\n"),
    "an exit when it is imported": added("src/shapes/__init__.py", "import sys\nsys.exit(0)\n"),
    "an early end in a test": added("src/shapes/square.py", "import os\nclass Square:\n    def __init__(self, side): os._exit(0)\n"),
    "a skip": added("src/shapes/square.py", "import pytest\nclass Square:\n    def __init__(self, side): pytest.skip('no')\n"),
    "an expected failure": added("src/shapes/square.py", "import pytest\nclass Square:\n    def __init__(self, side): pytest.xfail('no')\n"),
    "pytest's own exit": added("src/shapes/square.py", "import pytest\nclass Square:\n    def __init__(self, side): pytest.exit('no', 0)\n"),
    "forged lines of output": added("src/shapes/__init__.py", "print('4 passed in 0.01s')\nimport os\nos.write(1, b'....\\n4 passed')\nos._exit(0)\n"),
    "forged results on every descriptor": added("src/shapes/__init__.py", f"import os, json\nfor n in {EXPECTED!r}:\n    for d in range(3, 64):\n        try: os.write(d, json.dumps([n, True, '', 0.1]).encode() + b'\\n')\n        except OSError: pass\nos._exit(0)\n"),
    "a forged report": added("src/shapes/__init__.py", f"import os, json\nfor d in range(3, 64):\n    try:\n        for n in {EXPECTED!r}: os.write(d, json.dumps(dict(id=n, passed=True, detail='', seconds=0)).encode() + b'\\n')\n        os.write(d, b'{{\"ended\": 0}}\\n')\n    except OSError: pass\nos._exit(0)\n"),
    "tests nobody expects": added("src/shapes/__init__.py", "import os\nopen('tests/test_more.py', 'w').write('def test_x(): pass')\n"),
    "new tests while it runs": added("src/shapes/__init__.py", "import os\nfor d, _, fs in os.walk('tests'):\n    for f in fs: open(os.path.join(d, f), 'w').write('def test_x(): pass')\n"),
    "the supervisor's end": added("src/shapes/__init__.py", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"),
    "the supervisor's stop": added("src/shapes/__init__.py", "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n"),
    "the supervisor's memory": added("src/shapes/__init__.py", "import os\nf = open(f'/proc/{os.getppid()}/mem', 'r+b')\nos._exit(0)\n"),
    "the supervisor's descriptors": added("src/shapes/__init__.py", "import os\nfor d in os.listdir(f'/proc/{os.getppid()}/fd'):\n    open(f'/proc/{os.getppid()}/fd/{d}', 'w').write('{\"ended\": 0}')\nos._exit(0)\n"),
    "an endless loop": added("src/shapes/__init__.py", "while True: pass\n"),
    "a memory bomb": added("src/shapes/__init__.py", "x = []\nwhile True: x.append(bytearray(1 << 20))\n"),
    "a fork bomb": added("src/shapes/__init__.py", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"),
    "a flood of results": added("src/shapes/__init__.py", "import os\nwhile True:\n    for d in range(3, 1000):\n        try: os.write(d, b'[]\\n' * 9999)\n        except OSError: pass\n"),
    "more short results than the report has room for": added("src/shapes/__init__.py", "import os\nfor d in range(100, 900):\n    try:\n        for _ in range(100): os.write(d, b'[\"a\",true,\"\",0]\\n' * 3000)\n    except OSError: pass\nos._exit(0)\n"),
    "a result that no answer can carry": added("src/shapes/__init__.py", "import os\nfor d in range(100, 900):\n    try: os.write(d, b'[\"\\\\ud800\", false, \"\\\\ud800\", 0]\\n')\n    except OSError: pass\nos._exit(0)\n"),
    "times that are no numbers": added("src/shapes/__init__.py", f"import os, json\nfor d in range(100, 900):\n    try:\n        for n in {EXPECTED!r}: os.write(d, json.dumps([n, False, '', float('nan')]).encode() + b'\\n')\n    except OSError: pass\nos._exit(0)\n"),
    "the same test twice": added("src/shapes/__init__.py", f"import os, json\nfor d in range(100, 900):\n    try:\n        for n in {EXPECTED!r}: os.write(d, json.dumps([n, True, '', 0]).encode() + b'\\n')\n    except OSError: pass\nfrom .square import Square\ndef area(s): return 0\ndef save(s, p): pass\n"),
}  # fmt: skip


QUICK = (
    "the wrong answer",
    "a conftest that passes everything",
    "an early end in a test",
    "a skip",
    "a forged report",
    "more short results than the report has room for",
    "a result that no answer can carry",
    "times that are no numbers",
)
SLOW = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ATTACKS]


@pytest.mark.parametrize("name", SLOW)
async def test_no_repository_is_rewarded_or_excused_that_is_not_right(
    sandbox: SlotSandbox, name: str
) -> None:
    options = GradeOptions(timeout_s=4, cpu_s=4)
    graded = await grade_repository(sandbox, ATTACKS[name], TESTS, EXPECTED, options=options)
    assert (str(graded.verdict.status), graded.verdict.reward) == ("ok", 0.0), graded.verdict.detail
    assert graded.verdict.detail.startswith("in_process: ")
    assert msgspec.json.encode(graded.verdict), "it cannot be sent"
    assert all(isfinite(result.seconds) for result in graded.results)


async def test_settings_of_a_right_repository_do_not_matter(sandbox: SlotSandbox) -> None:
    for path, source in (
        ("conftest.py", "raise SystemExit(1)"), ("pytest.ini", "junk"), ("pytest.py", "x = 1"),
        ("json.py", "raise SystemExit"), ("tests/conftest.py", "raise SystemExit(1)"),
    ):  # fmt: skip
        graded = await grade_repository(
            sandbox, {**RIGHT, path: source}, TESTS, EXPECTED, options=OPTIONS
        )
        assert graded.verdict.reward == 1.0, (path, graded.verdict.detail)
