"""Verifiers on a server, as a client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs.serving.connect import RemoteServer
from ludus.errors import ConfigError, RequestTimeout, RewardUnavailable, ServerUnreachable
from ludus.rewards import Sample, Status, Verdict
from ludus.rewards.serving.reward_wire import Score
from ludus.rewards.serving.server import ScoreService
from ludus.wire.faults import QueueFull
from ludus.wire.server import HttpServer


class Longest:
    """1 for the longest answer of the group, 0 for the others."""

    def __init__(self, closed: Path | None = None) -> None:
        self.closed = closed

    def score(self, sample: Sample) -> Verdict:
        return Verdict.invalid("only groups can be compared")

    def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        longest = max(len(sample.text) for sample in samples)
        return [Verdict.of(float(len(sample.text) == longest)) for sample in samples]

    async def close(self) -> None:
        if self.closed:
            self.closed.touch()


class Judge:
    """An async verifier that fails in the way the response says."""

    async def score(self, sample: Sample) -> Any:
        match sample.text:
            case "unreachable":
                raise ServerUnreachable("the judge's server does not answer")
            case "late":
                raise RequestTimeout("the judge took too long")
            case "unavailable":
                raise RewardUnavailable(Verdict.unavailable("no judge today"))
            case "bug":
                raise KeyError("score")
            case "nonsense":
                return {"score": 1.0}
            case "slow":
                await asyncio.sleep(10)
            case _:
                pass
        return Verdict.of(1.0)

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        return [Verdict.of(1.0)]


class Prompt:
    """Never blocks: fails or answers at once, or hands out what to await, as the response says."""

    never_blocks = True

    def score(self, sample: Sample) -> Verdict | Awaitable[Any]:
        if sample.text == "bug":
            raise KeyError("score")
        judge = Judge()
        return Verdict.of(1.0) if sample.text == "easy" else judge.score(sample)


@asynccontextmanager
async def serving(closed: Path | None = None) -> AsyncGenerator[RemoteServer]:
    service = ScoreService(
        ["exact"],
        verifiers={"longest": Longest(closed), "judge": Judge(), "prompt": Prompt()},
        timeout_s=0.3,
    )
    async with HttpServer([service]) as http, ludus.connect(http.url) as server:
        yield server


async def test_a_group_is_judged_together_and_the_verifier_closed_at_the_end(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "closed") as server:
        verifier = server.group_verifier("longest")
        samples = [Sample(response="x" * length) for length in (1, 3, 2, 3)]
        verdicts = await verifier.score_group(samples)
        assert [verdict.reward for verdict in verdicts] == [0.0, 1.0, 0.0, 1.0]
        assert (await verifier.score(samples[0])).status is Status.INVALID
    assert (tmp_path / "closed").exists()  # by another process


async def test_other_bounds_leave_that_of_each_verifier_as_it_was_given() -> None:
    service = ScoreService(verifiers={"judge": Judge()}, max_queue=8, max_queue_per_verifier=1)
    async with HttpServer([service]):
        service.limit(timeout_s=0.5, max_queue=9)
        assert service.load().limit == 9
        slow = service.begin(Score(verifier="judge", sample=Sample(response="slow")))
        assert isinstance(slow, asyncio.Future)
        with pytest.raises(QueueFull, match="the queue of judge is full: 1 of 1"):
            service.begin(Score(verifier="judge", sample=Sample(response="fine")))
        assert (await slow).status is Status.UNAVAILABLE


async def test_a_verifier_of_single_answers_refuses_a_group() -> None:
    async with serving() as server:
        with pytest.raises(ConfigError, match="score one by one"):
            await server.group_verifier("exact").score_group([Sample(response="a")])


async def test_a_group_verifier_that_gives_the_wrong_number_is_an_error_for_all() -> None:
    async with serving() as server:
        samples = [Sample(response="a"), Sample(response="b")]
        verdicts = await server.group_verifier("judge").score_group(samples)
        assert [verdict.status for verdict in verdicts] == [Status.ERROR] * 2
        assert "must give 2 verdicts" in verdicts[0].detail


@pytest.mark.parametrize(
    ("response", "status", "words"),
    [
        ("unreachable", Status.UNAVAILABLE, "does not answer"),
        ("late", Status.UNAVAILABLE, "took too long"),
        ("unavailable", Status.UNAVAILABLE, "no judge today"),
        ("slow", Status.UNAVAILABLE, "no verdict within 0.3 s"),
        ("bug", Status.ERROR, "KeyError"),
        ("nonsense", Status.ERROR, "no usable verdict"),
    ],
)
async def test_what_goes_wrong_in_a_verifier_is_never_a_reward(
    response: str, status: Status, words: str
) -> None:
    async with serving() as server:
        verifier = server.verifier("judge")
        verdict, fine = await asyncio.gather(
            verifier.score(Sample(response=response)), verifier.score(Sample(response="fine"))
        )
        assert (verdict.status, verdict.reward) == (status, None)
        assert words in verdict.detail
        assert fine.reward == 1.0


async def test_a_batch_holds_verdicts_given_at_once_awaited_late_and_failed() -> None:
    async with serving() as server:
        verifier = server.verifier("prompt")
        responses = ("easy", "hard", "bug", "slow", "late", "easy")
        verdicts = await asyncio.gather(*(verifier.score(Sample(response=r)) for r in responses))
        assert [verdict.status for verdict in verdicts] == [
            Status.OK, Status.OK, Status.ERROR, Status.UNAVAILABLE, Status.UNAVAILABLE, Status.OK,
        ]  # fmt: skip
        assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, None, None, None, 1.0]


async def test_whoever_goes_at_once_takes_no_place_of_the_queue_along() -> None:
    ended: list[str] = []

    class Light(Judge):
        never_blocks = True

        async def score(self, sample: Sample) -> Any:
            try:
                return await super().score(sample)
            finally:
                ended.append(sample.text)

    service = ScoreService(verifiers={"judge": Light()}, max_queue=1)
    async with HttpServer([service]):
        for wait_s in (0, 0, 0.05):  # at first in the turn in which it was asked
            begun = service.begin(Score(verifier="judge", sample=Sample(response="slow")))
            assert isinstance(begun, asyncio.Future)
            if wait_s:
                await asyncio.sleep(wait_s)
            begun.cancel()
            await asyncio.sleep(0.05)
        assert service.load().queue_depth == 0
        assert ended == ["slow"] * 3  # nobody waits for them, and they go on no more


async def test_a_group_that_never_fits_the_queue_is_no_overload() -> None:
    service = ScoreService(verifiers={"longest": Longest()}, max_queue=2)
    async with HttpServer([service]) as server, ludus.connect(server.url) as client:
        longest = client.group_verifier("longest")
        first, second, third = (Sample(response="a" * size) for size in (1, 2, 3))
        assert [one.reward for one in await longest.score_group([first, second])] == [0.0, 1.0]
        verdicts = await longest.score_group([first, second, third])
        assert {verdict.retryable for verdict in verdicts} == {False}
        assert "a group of 3 answers never fits 2 places" in verdicts[0].detail
