"""What a peer's reward function and interaction do where verifiers and environments fail."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError, RequestTimeout, RewardUnavailable, ServerUnreachable
from ludus.integrations.scoring import verdict_of, verdicts_of
from ludus.integrations.verl import LudusInteraction
from ludus.messages import ImagePart, Message, TextPart, user
from ludus.rewards import Sample
from ludus.verdict import Status, Verdict

SAMPLE = Sample(response="x")


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def score(self, sample: Sample) -> Verdict:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (RewardUnavailable(Verdict.unavailable("judge away")), Status.UNAVAILABLE, "judge away"),
        (RewardUnavailable(Verdict.invalid("no gold")), Status.INVALID, "no gold"),
        (ServerUnreachable("nothing at x"), Status.UNAVAILABLE, "nothing at x"),
        (RequestTimeout("x is late"), Status.UNAVAILABLE, "x is late"),
        (ZeroDivisionError("by zero"), Status.ERROR, "by zero"),
        (asyncio.CancelledError(), Status.ERROR, "waited for was cancelled"),
    ],
)
def test_a_verdict_says_whose_fault_an_exception_is(
    error: BaseException, status: Status, told: str
) -> None:
    (verdict,) = verdicts_of(Failing(error), [SAMPLE])
    assert verdict.status is status
    assert told in verdict.detail


def test_options_of_a_verifier_that_is_not_named_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"strict, case are of .* this Failing its own"):
        verdicts_of(Failing(KeyError()), [SAMPLE], strict=True, case=False)


def test_a_late_verdict_is_unavailable_and_a_number_is_a_verdict() -> None:
    class Sleeping:
        async def score(self, sample: Sample) -> Verdict:
            await asyncio.sleep(60)
            return Verdict.of(1.0)

    class Number:
        def score(self, sample: Sample) -> Any:
            return 0.5

    assert "within 0.05 s" in verdicts_of(Sleeping(), [SAMPLE], timeout_s=0.05)[0].detail
    assert verdicts_of(Number(), [SAMPLE])[0].reward == 0.5
    assert asyncio.run(verdict_of(Number(), SAMPLE)).reward == 0.5


def test_a_plain_verifiers_time_begins_when_a_thread_is_free_for_it() -> None:
    open_gate = threading.Event()

    class Plain:
        def score(self, sample: Sample) -> Verdict:
            if sample.response == "hang":
                open_gate.wait(60)
            time.sleep(0.1)
            return Verdict.of(1.0)

    # One after the other on each thread, far more work than fits into one verdict's time.
    scored = verdicts_of(Plain(), [SAMPLE] * 600, timeout_s=3.0)
    assert all(verdict.ok for verdict in scored)
    # Verdicts that hang leave their threads to others.
    hanging = [Sample(response="hang")] * 64
    late = verdicts_of(Plain(), [*hanging, SAMPLE], timeout_s=1.5)
    open_gate.set()
    assert [verdict.status for verdict in late] == [Status.UNAVAILABLE] * 64 + [Status.OK]


FORKED = """
import os
from ludus.integrations.scoring import verdicts_of
from ludus.rewards import Sample
from ludus.verdict import Verdict
class Plain:
    def score(self, sample):
        return Verdict.of(1.0)
def scored():
    return [verdict.reward for verdict in verdicts_of(Plain(), [Sample(response="x")] * 2)]
before = scored()
child = os.fork()
if not child:
    os._exit(scored() != before)
print(before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), scored() == before)
"""


def test_a_fork_scores_with_plain_verifiers_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == ("[1.0, 1.0] 0 True\n", "")


@ludus.register("test/picture-first-v0")
class PictureFirst(ludus.TextEnv):
    """Begins with an image, which no bridge carries, and notes that it was closed."""

    shows_images = True

    def __init__(self, closed: str = "") -> None:
        self.closed = closed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        return [user([TextPart(text="What is it?"), ImagePart(data=b"x")])], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}

    def close(self) -> None:
        with Path(self.closed).open("a") as notes:
            notes.write("closed\n")


async def test_an_interaction_that_cannot_begin_holds_no_session(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    one = LudusInteraction({"env": f"test/picture-first-v0?closed={closed}"})
    for _ in range(2):  # and its name is free again
        with pytest.raises(ConfigError, match="image"):
            await one.start_interaction("name")
    async with asyncio.timeout(60):  # an environment is closed behind the answer to its client
        while not closed.exists() or closed.read_text().count("closed\n") < 2:
            await asyncio.sleep(0.02)
