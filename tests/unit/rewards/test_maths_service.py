"""The verifier as a service: verdicts, the pool, threads, explanations."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from rich.console import Console

from ludus.rewards import Sample, make_verifier
from ludus.rewards.maths import MathsVerifier, check_golds, equivalent, explain, render, verify
from ludus.verdict import Status, Verdict

HARD = (r"\cos\frac{\pi}{5}", r"\boxed{\frac{1+\sqrt5}{4}}")
"""A true pair that neither the normal form nor doubles can settle."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathsVerifier]:
    made = MathsVerifier(workers=1, timeout_s=1.0)
    yield made
    made.close()


def test_a_verdict_names_its_rule() -> None:
    verdict = verify("1/2", r"\boxed{\frac{2}{4}}")
    assert verdict.reward == 1.0
    assert any(name.startswith("rule/") for name in verdict.metrics)
    assert "its value is 3" in verify(r"\sqrt{2}", r"\boxed{3}").detail


def test_importing_the_verifier_does_not_import_sympy() -> None:
    code = "import sys, ludus.rewards.maths; print({'sympy', 'mpmath'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_a_hard_pair_goes_to_the_pool_and_an_easy_one_does_not(verifier: MathsVerifier) -> None:
    easy = verifier.score(Sample(gold="4", response=r"\boxed{4}"))
    assert isinstance(easy, Verdict)
    hard = verifier.score(Sample(gold=HARD[0], response=HARD[1]))
    assert not isinstance(hard, Verdict)

    async def wait() -> Verdict:
        return await hard

    verdict = asyncio.run(wait())
    assert verdict.reward == 1.0
    assert verdict.metrics["pooled"] == 1.0


def test_many_threads_agree(verifier: MathsVerifier) -> None:
    rewards: list[float | None] = []

    def work() -> None:
        rewards.extend(verifier.verify(*HARD).reward for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert rewards == [1.0] * 18


def test_it_works_inside_a_running_loop(verifier: MathsVerifier) -> None:
    async def score() -> Verdict:
        return await cast(
            "asyncio.Future[Verdict]", verifier.score(Sample(gold=HARD[0], response=HARD[1]))
        )

    assert asyncio.run(score()).reward == 1.0


@pytest.mark.parametrize("gold", ["", "   ", "$$", "...", r"\frac{1}{"])
def test_an_unreadable_gold_is_invalid_and_never_a_reward(
    gold: str, verifier: MathsVerifier
) -> None:
    for response in (r"\boxed{3}", "no idea", r"\boxed{\cos 1}"):
        verdict = verifier.verify(gold, response)
        assert verdict.status is Status.INVALID, (response, verdict)
    assert verifier.verify(cast("str", None), "3").status is Status.INVALID


def test_a_tower_as_an_answer_is_a_zero_with_the_limit_named(verifier: MathsVerifier) -> None:
    verdict = verifier.verify("x^2+1", r"\boxed{9^{9^{9^9}}}")
    assert verdict.status is Status.OK
    assert verdict.reward == 0.0
    assert "a power beyond 10^1000000 is not computed" in verdict.detail


def test_a_tower_as_a_gold_is_compared_as_text(verifier: MathsVerifier) -> None:
    assert verifier.verify("9^{9^{9^9}}", r"\boxed{9^{9^{9^{9}}}}").reward == 1.0
    assert verifier.verify("9^{9^{9^9}}", r"\boxed{9^{9^{9^8}}}").reward == 0.0


def test_tiny_differences_are_differences(verifier: MathsVerifier) -> None:
    assert verifier.verify("1", r"\boxed{1+e^{-1000}}").reward == 0.0
    assert verifier.verify(r"\sqrt{2}", r"\boxed{\sqrt{2+10^{-200}}}").reward == 0.0
    assert verifier.verify(r"\frac{1}{2004!}", r"\boxed{0}").reward == 0.0


def test_any_of_several_golds_counts(verifier: MathsVerifier) -> None:
    assert verifier.verify(["3", "4"], r"\boxed{4}").reward == 1.0
    assert verifier.verify(["3", "4"], r"\boxed{5}").reward == 0.0


def test_equivalence_knows_no_gold() -> None:
    assert equivalent("12.55", r"\frac{640}{51}") is equivalent(r"\frac{640}{51}", "12.55") is False
    assert equivalent(r"\sec^2 x", r"1+\tan^2 x")


def test_an_explanation_reads_the_question() -> None:
    said = "n - 2 = 6, so this is no polygon of seven sides, and it has nine sides."
    steps = explain("9", said, prompt="How many sides does it have?")
    verdict = MathsVerifier().verify("9", said, prompt="How many sides does it have?")
    assert steps[-1].text == f"reward {verdict.reward:g}: {verdict.detail}"
    restated = explain("10", r"\boxed{17-7}", prompt="Work out $17-7$.")
    assert restated[-1].text.startswith("reward 0")


def test_an_explanation_cannot_steer_the_terminal() -> None:
    steps = explain("1", "\x1b[31mred \u202e \\boxed{\x1b]0;title\x07 2}")
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(render(steps))
    shown = console.export_text()
    assert "\\x1b[31m" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "reward 0" in shown


def test_golds_are_checked() -> None:
    problems = list(check_golds(["1/2", "", "9^{9^{9^9}}", r"\frac{1}{0}", "x+1", "Monday"]))
    assert [(problem.line, problem.kind) for problem in problems] == [
        (2, "invalid"),
        (3, "costly"),
        (4, "costly"),
    ]


def test_the_registry_builds_it_with_options() -> None:
    made = make_verifier("maths", preset="strict", timeout_s=0.5)
    verdict = made.score(Sample(gold="3", response=r"\boxed{x=3}"))
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 0.0


@pytest.mark.parametrize(
    ("gold", "response", "reward"),
    [
        (
            r"\sin(2y)",
            r"The answer is $2\sin y\cos y$. The answer is $\frac{2\tan y}{1+\tan^2 y}$.",
            1.0,
        ),
        (r"\sin(2y)", r"The answer is $3\sin y\cos y$. The answer is $2\sin y\cos y$.", 0.0),
        (r"\sin(2y)", r"The answer is $y$. The answer is $2\sin y\cos y$.", 0.0),
        ("1", r"The answer is $2\sin y\cos y-\sin(2y)+1$. The answer is 1.", 1.0),
    ],
)
async def test_a_rival_that_only_the_pool_can_compare_is_compared_there(
    gold: str, response: str, reward: float
) -> None:
    verifier = MathsVerifier(workers=1)
    made = verifier.score(Sample(gold=gold, response=response))
    verdict = made if isinstance(made, Verdict) else await made
    assert verdict.reward == reward == verifier.verify(gold, response).reward
    assert verifier._pool._quick._template is not None, "a worker was asked"
    verifier.close()
