"""The coding verifier: which code it takes, and what it says about golds and answers."""

from __future__ import annotations

import os

import pytest

from ludus.rewards.coding import CodingVerifier, extract_code
from ludus.rewards.protocol import Sample
from ludus.verdict import Status

TESTS = ["assert f(1) == 2", "assert f(-1) == 0"]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ("x = 1", "x = 1"),
        ("a\n```python\nx = 1\n```\nb\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n```text\nnot code\n```", "x = 1\n"),
        ("```js\nlet x\n```", "let x\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("<think>```python\nx = 0\n```</think>\n```python\nx = 1\n```", "x = 1\n"),
        ("", ""),
    ],
)
def test_the_last_block_of_python_is_the_program(response: str, code: str) -> None:
    assert extract_code(response) == code


@pytest.mark.parametrize("gold", [None, 3, "no json", {"tests": "x"}, {}, '{"tests": 1}'])
async def test_a_gold_that_cannot_be_used_is_invalid(gold: object) -> None:
    verdict = await CodingVerifier().score(Sample(response="def f(n): return 1", gold=gold))
    assert verdict.status is Status.INVALID


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
