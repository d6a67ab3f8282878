"""The coding verifier: which code it takes, and what it says about golds and answers."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from ludus.errors import ConfigError
from ludus.rewards.checks import check_verifier
from ludus.rewards.coding import CodingVerifier, completed, extract_code
from ludus.rewards.protocol import Sample
from ludus.verdict import Status

TESTS = ["assert f(1) == 2", "assert f(-1) == 0"]
NESTED: dict[str, list[Any]] = {"tests": []}
for _ in range(100_000):
    NESTED = {"tests": [NESTED["tests"]]}


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("x = 1", "x = 1"),
        ("a\n```python\nx = 1\n```\nb\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n```text\nnot code\n```", "x = 1\n"),
        ("```js\nlet x\n```", "let x\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("", ""),
        ("```cpp\nint x;\n```", "int x;\n"),
        ("~~~\nx = '```'\n~~~", "x = '```'\n"),
        ("````python\n'''\n```\n'''\n````", "'''\n```\n'''\n"),
    ],
)
def test_the_last_block_of_python_is_the_program(response: str, code: str) -> None:
    assert extract_code(response) == code


@pytest.mark.parametrize("text", ["```a\n" * 40_000, "~~~\n```\n" * 20_000, "`" * 400_000])
def test_fences_that_never_close_cost_linear_time(
    text: str, costs_at_most: Callable[[int], AbstractContextManager[None]]
) -> None:
    with costs_at_most(200):
        extract_code(text)


def test_a_response_that_does_not_define_the_function_completes_the_stub() -> None:
    gold = {"entry_point": "f", "stub": "def f(n):\n", "context": "import math"}
    assert completed("    return n\n", gold) == "def f(n):\n    return n\n"
    assert completed("def f(n): return n", gold) == "import math\ndef f(n): return n"
    assert completed("f = abs", gold) == "import math\nf = abs"


def test_future_imports_stay_at_the_top() -> None:
    gold = {"entry_point": "f", "context": "import math"}
    code = completed("from __future__ import annotations\ndef f(): ...\n", gold)
    compile(code, "answer", "exec")
    assert code.startswith("from __future__ import annotations\nimport math\n")


@pytest.mark.parametrize(
    "gold",
    [
        None,
        3,
        "no json",
        {"tests": "x"},
        {},
        '{"tests": 1}',
        {"tests": TESTS, "kind": "riddle"},
        {"tests": TESTS, "compare": "softly"},
        {"tests": TESTS, "timeout_s": "long"},
        {"tests": TESTS, "language": "latin"},
        {"tests": [{"input": "\ud800", "output": ""}], "kind": "stdin"},
        {"tests": TESTS, "timeout_s": math.inf},
        NESTED,
        "[" * 100_000,
    ],
    ids=lambda gold: f"{type(gold).__name__}",
)
async def test_a_gold_that_cannot_be_used_is_invalid(gold: object) -> None:
    verdict = await CodingVerifier().score(Sample(response="def f(n): return 1", gold=gold))
    assert verdict.status is Status.INVALID


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.nan, math.inf])
def test_a_time_limit_of_the_verifier_is_not_blamed_on_golds(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s must be seconds above 0"):
        CodingVerifier(timeout_s=timeout_s)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root")
async def test_right_wrong_and_empty_answers_are_told_apart() -> None:
    verifier, half = CodingVerifier(), CodingVerifier(partial=True)
    right = "```python\ndef f(n):\n    return n + 1\n```"
    wrong = "```python\ndef f(n):\n    return 2\n```"
    gold = {"tests": TESTS}
    assert (await verifier.score(Sample(response=right, gold=TESTS))).reward == 1.0
    assert (await verifier.score(Sample(response=wrong, gold=gold))).reward == 0.0
    assert (await half.score(Sample(response=wrong, gold=gold))).reward == 0.5
    assert (await verifier.score(Sample(response="", gold=gold))).reward == 0.0
    strange = Sample(response=right, gold={"tests": TESTS, "timeout_s": -1})
    assert (await verifier.score(strange)).status is Status.INVALID


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root")
def test_it_keeps_the_contract_of_verifiers() -> None:
    double = [{"input": "2\n", "output": "4\n"}, {"input": "-1\n", "output": "-2\n"}]
    cases = [
        Sample(response="def f(n):\n    return n + 1", gold=TESTS),
        Sample(response="    return n + 1", gold=completing("def f(n):\n")),
        Sample(response="print(2 * int(input()))", gold={"tests": double, "kind": "stdin"}),
    ]
    check_verifier("coding", cases=cases)


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
async def test_blocks_of_the_language_asked_for_come_first() -> None:
    program = (
        '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); }'
    )
    said = f"```c\n{program}\n```\nIn Python:\n```python\nprint(2)\n```"
    gold = {"tests": [{"input": "4", "output": "8"}], "kind": "stdin", "language": "c"}
    verdict = await CodingVerifier().score(Sample(response=said, gold=gold))
    assert verdict.reward == 1.0, verdict


def completing(stub: str) -> dict[str, object]:
    return {"tests": TESTS, "entry_point": "f", "stub": stub}


def test_without_a_sandbox_there_is_no_reward() -> None:
    program = (
        "import ludus\n"
        "v = ludus.score('coding', response='def f(n): return n', gold=['assert f(1) == 1'])\n"
        "print(v.status.value, v.reward, v.detail)\n"
    )
    environment = {**os.environ, "LUDUS_SANDBOX": "slots-nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("unavailable None nothing can be graded here"), done
