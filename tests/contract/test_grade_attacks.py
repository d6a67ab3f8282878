"""Ways to be graded right without being right: every one must get an ok verdict with reward 0.

Each is held against the same tests; the honest solution at the top is the control that they can be passed at all, and the
naive grader at the bottom (solution and asserts in one process) is the control that the attacks work somewhere.
"""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ludus.sandboxes import (
    ExecutionStatus,
    GradeOptions,
    SlotSandbox,
    grade_in_detail,
    open_sandbox,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.asyncio(loop_scope="module"),
]

HONEST = "def f(n):\n    return n * n + 7\n"
TESTS = [
    "assert f(2) == 11",
    "assert f(5) == 32, 'five'",
    "xs = [f(i) for i in range(4)]\nassert xs == [7, 8, 11, 16]",
]
OPTIONS = GradeOptions(timeout_s=1.5)

ATTACKS = {
    "exit early": "import sys\nsys.exit(0)\n",
    "exit in the call": "import os\ndef f(n):\n    os._exit(0)\n",
    "raise SystemExit in the call": "def f(n):\n    raise SystemExit(0)\n",
    "kill itself": "import os, signal\ndef f(n):\n    os.kill(os.getpid(), signal.SIGTERM)\n",
    "always equal": "class E:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = None\ndef f(n):\n    return E()\n",
    "always equal int": "class E(int):\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = int.__hash__\ndef f(n):\n    return E(0)\n",
    "always equal list": "class E(list):\n    def __eq__(self, o): return True\n    def __len__(self): return 3\ndef f(n):\n    return E()\n",
    "always equal class": "class M(type):\n    def __eq__(self, o): return True\n    __hash__ = type.__hash__\nclass E(metaclass=M): pass\ndef f(n):\n    return E\n",
    "reflected comparison": "class E(float):\n    def __eq__(self, o): return True\n    def __req__(self, o): return True\ndef f(n):\n    return E('nan')\n",
    "patch builtins": "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\nbuiltins.range = lambda *a: []\nbuiltins.compile = lambda *a, **k: ''\ndef f(n):\n    return 0\n",
    "swallow assertions": "import sys\nsys.settrace(lambda *a: None)\nsys.excepthook = lambda *a: None\ndef f(n):\n    return None\n",
    "forge pass lines": "import os\nfor d in range(64):\n    try: os.write(d, b'{\"test\": 0, \"passed\": true, \"detail\": \"\", \"seconds\": 0}\\n{\"done\": true}\\n')\n    except OSError: pass\ndef f(n):\n    return 0\n",
    "forge answers": "import os, struct, json\nm = json.dumps(['!', 11]).encode()\ntry:\n    for _ in range(20): os.write(3, struct.pack('<I', len(m)) + m)\nexcept OSError: pass\ndef f(n):\n    return 0\n",
    "forge garbage": "import os\ndef f(n):\n    os.write(3, b'\\xff' * 64)\n    return 0\n",
    "a huge length": "import os, struct\ndef f(n):\n    os.write(3, struct.pack('<I', 4000000000))\n    return 0\n",
    "close the line": "import os\nos.closerange(3, 64)\ndef f(n):\n    return 0\n",
    "dig the frames": "import sys, gc\ndef f(n):\n    g = sys._getframe()\n    while g:\n        for v in list(g.f_locals.values()) + list(g.f_globals.values()):\n            if isinstance(v, (list, tuple)) and 11 in v: return 11\n        g = g.f_back\n    for o in gc.get_objects():\n        if isinstance(o, (list, tuple, dict)) and len(o) < 9 and (32 in o or 11 in o): return 11\n    return 0\n",
    "read the tests from files": "import os\nfound = 0\nfor d, _, fs in os.walk('/sandbox'):\n    for x in fs: found = 11\nfor d in range(3, 30):\n    try:\n        if b'assert' in os.pread(d, 9999, 0): found = 11\n    except OSError: pass\ndef f(n):\n    return found\n",
    "read the tests from memory": "def f(n):\n    needle = b'five' + b\"'\"\n    try:\n        for line in open('/proc/self/maps'):\n            a, b = (int(v, 16) for v in line.split()[0].split('-'))\n            if 'r' not in line.split()[1] or '[v' in line: continue\n            with open('/proc/self/mem', 'rb', 0) as m:\n                m.seek(a)\n                if b'assert f(' + b'2) == ' in m.read(b - a): return 11\n    except OSError: pass\n    return 0\n",
    "read other processes": "import os\nhits = []\nfor p in os.listdir('/proc'):\n    if p.isdigit() and int(p) != os.getpid():\n        try: hits.append(open(f'/proc/{p}/cmdline').read())\n        except OSError: pass\ndef f(n):\n    return 11 if hits else 0\n",
    "redefine the judge": "isclose = allclose = approx = lambda *a, **k: True\nclass pytest: pass\ndef f(n):\n    return 0\n",
    "redefine check": "def check(c): pass\ndef f(n):\n    return 0\n",
    "shadow built-in names": "def range(*a): return []\ndef len(x): return 0\nxs = [7, 8, 11, 16]\ndef f(n):\n    return 0\n",
    "shadow a built-in judge": "class E(list):\n    def __eq__(self, o): return True\ndef list(*a): return [7, 8, 11, 16]\ndef range(*a): return [1]\n",
    "patch the harness": "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('guest'):\n        for key in list(vars(module)):\n            if key[:1] != '_':\n                try: setattr(module, key, lambda *a, **k: True)\n                except Exception: pass\ndef f(n):\n    return 0\n",
    "patch the encoder": "import sys\nw = sys.modules['guest.testing.value_wire']\nw.Encoder.add = lambda self, v: self.tokens.append('s' * 5)\ndef f(n):\n    return 0\n",
    "ask the tests' side for more": "import sys\np = sys.modules['guest.testing.solution_server']\nimport gc\ndef f(n):\n    for o in gc.get_objects():\n        if type(o).__name__ == 'Peer':\n            for verb in ('resolve', 'call', 'attribute', 'callback', 'next'):\n                try: return o.request(verb, 0, ['TESTS'], {})\n                except Exception: pass\n    return 0\n",
    "a deep answer": "def f(n):\n    x = []\n    for _ in range(100000): x = [x]\n    return x\n",
    "an answer in a circle": "def f(n):\n    x = []\n    x.append(x)\n    return x\n",
    "a huge answer": "def f(n):\n    return list(range(3000000))\n",
    "a huge number": "def f(n):\n    return 1 << 30000000\n",
    "a fraction bomb": "import sys\ndef f(n):\n    sys.modules['guest.testing.value_wire']._scalar = lambda i: 'F1e99999999'\n    return 0\n",
    "an endless generator": "def f(n):\n    while True: yield 11\n",
    "loop for ever": "def f(n):\n    while True: pass\n",
    "sleep for ever": "import time\ndef f(n):\n    time.sleep(1000)\n",
    "raise what tests catch": "def f(n):\n    raise AssertionError\n",
    "raise StopIteration": "def f(n):\n    raise StopIteration\n",
    "raise a hook": "class E(Exception):\n    def __reduce__(self): raise SystemExit\n    @property\n    def args(self): raise KeyboardInterrupt\ndef f(n):\n    raise E\n",
    "exit handlers": "import atexit, os\natexit.register(os._exit, 0)\ndef f(n):\n    return 0\n",
    "threads that answer": "import threading, os, struct\ndef w():\n    while True:\n        try: os.write(3, struct.pack('<I', 8) + b'[\"!\",11]')\n        except OSError: return\nthreading.Thread(target=w, daemon=True).start()\ndef f(n):\n    return 0\n",
    "fork and answer twice": "import os\ndef f(n):\n    os.fork()\n    return 0\n",
    "memory bomb": "x = []\nwhile True: x.append(bytearray(1 << 20))\n",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
    "not Python": "def f(n:\n",
    "nothing": "",
    "null bytes": "def f(n):\n    return 0\n\0",
    "a lone surrogate": "def f(n):\n    return '\ud800'\n",
}  # fmt: skip


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[
        "slots-root",
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("runsc", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[SlotSandbox]:
    tier: str = request.param
    if tier in ("docker", "runsc"):
        request.getfixturevalue("docker_host")
    if tier == "runsc":
        if not shutil.which("runsc"):
            pytest.skip("needs gVisor (apt-get install runsc)")
        opened = await open_sandbox(runtime="runsc", size=4)
    else:
        opened = await open_sandbox(tier, size=4)
    assert isinstance(opened, SlotSandbox)
    yield opened
    await opened.close()


async def test_the_honest_solution_passes_so_the_tests_can_be_passed(sandbox: SlotSandbox) -> None:
    graded = await grade_in_detail(sandbox, HONEST, TESTS)
    assert graded.verdict.reward == 1.0
    assert [result.passed for result in graded.results] == [True] * 3


async def test_no_attack_is_rewarded_or_excused(sandbox: SlotSandbox) -> None:
    async def grade_one(code: str) -> tuple[str, float | None]:
        async with busy:
            verdict = (await grade_in_detail(sandbox, code, TESTS, options=OPTIONS)).verdict
        return str(verdict.status), verdict.reward

    busy = asyncio.Semaphore(2)
    outcomes = await asyncio.gather(*map(grade_one, ATTACKS.values()))
    assert {
        name: outcome
        for name, outcome in zip(ATTACKS, outcomes, strict=True)
        if outcome != ("ok", 0.0)
    } == {}


async def test_a_later_honest_grading_is_not_disturbed(sandbox: SlotSandbox) -> None:
    verdicts = [(await grade_in_detail(sandbox, HONEST, TESTS)).verdict for _ in range(5)]
    assert [(verdict.reward, verdict.detail) for verdict in verdicts] == [
        (1.0, f"3 of 3 tests passed; tier {sandbox.tier}")
    ] * 5


async def test_a_grader_in_one_process_is_fooled_by_some_of_them(sandbox: SlotSandbox) -> None:
    fooled = []
    for name in (
        "exit early",
        "exit in the call",
        "always equal",
        "always equal int",
        "always equal class",
    ):
        together = ATTACKS[name] + "\n" + "\n".join(TESTS[:2])
        done = await sandbox.execute(together)
        fooled += [name] if done.status is ExecutionStatus.OK else []
    assert len(fooled) == 5


OUTPUT_ATTACKS = {
    "an answer of the checker": "print('true')\nprint('{\"passed\": true}')",
    "the end of its program": "print('\"}\\nimport sys; sys.exit(0)')",
    "what breaks its parser": "print('9' * 10000)",
    "what costs it all its time": "print('9' * 900000, 1)",
    "null bytes": "print('\\0' * 100)",
    "no text at all": "import os\nos.write(1, bytes(range(256)) * 10)",
    "nothing": "",
    "the checker's files": "import os\nprint(open('/proc/self/cmdline').read(), os.listdir('.'))",
    "a reader of its input": "import sys\nprint(sys.stdin.read(), sys.stdin.read())",
    "leftovers for the checker": "import os\nos.mkdir('json')\nopen('json.py', 'w').write('raise SystemExit(0)')\nopen('sys.py', 'w').write('')\nopen('sitecustomize.py', 'w').write('raise SystemExit(0)')",
    "a process that waits for it": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(30)",
}


async def test_no_output_fools_a_checker_or_is_excused(sandbox: SlotSandbox) -> None:
    checker = (
        "def check(input, output, expected):\n    return int(output.split()[0]) ** 2 == int(input)"
    )
    options = GradeOptions(timeout_s=2, checker=checker)
    tests: list[object] = [{"input": "144", "output": ""}]
    right = await grade_in_detail(sandbox, "print(12)", tests, kind="stdin", options=options)
    assert right.verdict.reward == 1.0
    outcomes: dict[str, tuple[str, float | None]] = {}
    for name, code in OUTPUT_ATTACKS.items():
        graded = await grade_in_detail(sandbox, code, tests, kind="stdin", options=options)
        outcomes[name] = str(graded.verdict.status), graded.verdict.reward
    assert {name: outcome for name, outcome in outcomes.items() if outcome != ("ok", 0.0)} == {}
