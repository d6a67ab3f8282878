"""Groups: who wins, who is left without a reward, and that places do not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from ludus.rewards.judge.mock import MockJudge
from ludus.rewards.judge.preference import PreferenceJudge, bradley_terry, win_rates
from ludus.rewards.protocol import Sample
from ludus.verdict import Status

JSON = {"Content-Type": "application/json"}
CRITERION = 'Mentions "red", "green", "blue" and "black".'
ANSWERS = ["red green blue black", "red green blue", "red", "red too", ""]


def samples(texts: Sequence[str]) -> list[Sample]:
    return [Sample(prompt="Colours?", response=t, info={"criterion": CRITERION}) for t in texts]


@pytest.mark.parametrize("rating", ["win_rate", "bradley_terry"])
@pytest.mark.parametrize("scheme", ["all_pairs", "circular", "listwise"])
async def test_better_answers_earn_more(scheme: str, rating: str) -> None:
    async with MockJudge() as mock:
        judge = PreferenceJudge(base_url=mock.url, model="mock", scheme=scheme, rating=rating)  # pyright: ignore[reportArgumentType]
        verdicts = await judge.score_group(samples(ANSWERS))
        await judge.close()
    rewards = [verdict.unwrap() for verdict in verdicts]
    if scheme != "circular" or rating == "bradley_terry":
        assert rewards[0] > rewards[1] > max(rewards[2:4])
    assert rewards[4] == min(rewards)


async def test_win_rates_by_hand() -> None:
    async with MockJudge() as mock:
        judge = PreferenceJudge(base_url=mock.url, model="mock")
        verdicts = await judge.score_group(samples(ANSWERS))
        await judge.close()
    # the two of one colour tie; the empty one loses to all without a question
    assert [v.reward for v in verdicts] == [1.0, 0.75, 0.375, 0.375, 0.0]
    assert mock.requests == 12
    assert verdicts[0].metrics["judge/position_flips"] == 0.0


async def test_a_judge_that_always_likes_the_first_place_gives_everyone_half() -> None:
    async def first(request: web.Request) -> web.Response:
        message = {"role": "assistant", "content": '{"reason": "", "better": "A"}'}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", first)
    async with TestServer(application) as server:
        judge = PreferenceJudge(base_url=str(server.make_url("/v1")), model="biased")
        verdicts = await judge.score_group(samples(["red", "blue", "red green"]))
        await judge.close()
    assert [v.reward for v in verdicts] == [0.5, 0.5, 0.5]
    assert verdicts[0].metrics["judge/position_flips"] == 1.0


async def test_an_answer_without_its_comparison_has_no_reward_and_the_others_do() -> None:
    async def picky(request: web.Request) -> web.Response:
        body = await request.json()
        text = body["messages"][1]["content"]
        bad = '"bad"' in text and '"worse"' in text
        content = "no idea" if bad else '{"reason": "", "better": "tie"}'
        message = {"role": "assistant", "content": content}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", picky)
    async with TestServer(application) as server:
        judge = PreferenceJudge(base_url=str(server.make_url("/v1")), model="picky")
        verdicts = await judge.score_group(samples(["bad", "good", "worse"]))
        await judge.close()
    assert [v.status for v in verdicts] == [Status.UNAVAILABLE, Status.OK, Status.UNAVAILABLE]
    assert verdicts[1].reward == 0.5


@pytest.mark.parametrize(
    ("status", "rating"), [(500, "win_rate"), (500, "bradley_terry"), (400, "win_rate")]
)
async def test_a_comparison_that_is_lost_takes_none_from_the_third_answer(
    status: int, rating: str
) -> None:
    async def losing(request: web.Request) -> web.Response:
        text = (await request.json())["messages"][1]["content"]
        if '"bad"' in text and '"worse"' in text:
            return web.json_response({"error": {"message": "not now"}}, status=status)
        better = "A" if text.index('"good"') < text.index("response_B") else "B"
        message = {"role": "assistant", "content": f'{{"reason": "", "better": "{better}"}}'}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", losing)
    async with TestServer(application) as server:
        url = str(server.make_url("/v1"))
        judge = PreferenceJudge(base_url=url, model="m", rating=rating, deadline_s=2.0)  # pyright: ignore[reportArgumentType]
        verdicts = await judge.score_group(samples(["bad", "good", "worse"]))
        await judge.close()
    assert [verdict.ok for verdict in verdicts] == [False, True, False]
    # It won both of its comparisons. Strengths p and q solve 2.5 = 2 p / (p + q) + p / (p + 1) and
    # 0.5 = q / (p + q) + q / (q + 1): p = 3.51, q = 0.566.
    expected = 1.0 if rating == "win_rate" else 3.51 / (3.51 + 0.566)
    assert verdicts[1].reward == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("scheme", ["all_pairs", "listwise"])
async def test_no_question_goes_on_when_the_verdicts_are_there(scheme: str) -> None:
    going_on = 0

    async def refusing_one_order(request: web.Request) -> web.Response:
        nonlocal going_on
        text = (await request.json())["messages"][1]["content"]
        if text.index('"red"') < text.index('"blue"'):
            return web.json_response({"error": {"message": "content policy"}}, status=400)
        going_on += 1
        await asyncio.sleep(0.5)
        going_on -= 1
        message = {"role": "assistant", "content": '{"reason": "", "better": "A"}'}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", refusing_one_order)
    async with TestServer(application) as server:
        url = str(server.make_url("/v1"))
        judge = PreferenceJudge(base_url=url, model="m", scheme=scheme)  # pyright: ignore[reportArgumentType]
        verdicts = await judge.score_group(samples(["red", "blue"]))
        assert going_on == 0
        await judge.close()
    assert not any(verdict.ok for verdict in verdicts)


def test_answers_that_nobody_compared_draw_no_reward_to_the_middle() -> None:
    points = {(0, 1): 1.0, (1, 0): 0.0}
    assert bradley_terry(8, points)[:2] == bradley_terry(2, points)
    assert bradley_terry(3, points)[2] == pytest.approx(0.5)
    assert bradley_terry(1, {}) == [0.5]


async def test_a_group_that_cannot_be_compared_is_invalid() -> None:
    judge = PreferenceJudge(base_url="http://127.0.0.1:9/v1", model="m", scheme="listwise")
    assert (await judge.score_group(samples(["one"])))[0].status is Status.INVALID
    assert (await judge.score_group(samples(["x y"] * 13)))[0].status is Status.INVALID
    assert judge.score(samples(["one"])[0]).status is Status.INVALID
    await judge.close()


def test_bradley_terry_orders_a_chain_that_win_rates_cannot() -> None:
    chain = {(0, 1): 1.0, (1, 0): 0.0, (1, 2): 1.0, (2, 1): 0.0}
    assert win_rates(3, chain) == [1.0, 0.5, 0.0]
    fitted = bradley_terry(3, chain)
    assert fitted[0] > fitted[1] > fitted[2]
    assert sum(fitted) == pytest.approx(1.5)


@pytest.mark.parametrize("scheme", ["all_pairs", "circular", "listwise"])
async def test_an_answer_that_the_judge_refuses_costs_no_other_answer_its_reward(
    scheme: str,
) -> None:
    async with MockJudge() as mock:
        texts = [f"{'red ' * n}green" for n in range(1, 8)]
        refused = 3

        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            if b"forbidden" in body:
                return web.json_response({"error": {"message": "content policy"}}, status=400)
            async with (
                ClientSession() as session,
                session.post(f"{mock.url}/chat/completions", data=body, headers=JSON) as reply,
            ):
                return web.json_response(await reply.json(), status=reply.status)

        application = web.Application()
        application.router.add_post("/v1/chat/completions", answer)
        async with TestServer(application) as server:
            url = str(server.make_url("/v1"))
            judge = PreferenceJudge(base_url=url, model="mock", scheme=scheme)  # pyright: ignore[reportArgumentType]
            texts[refused] = "forbidden"
            verdicts = await judge.score_group(samples(texts))
            await judge.close()
    rewarded = [verdict.reward is not None for verdict in verdicts]
    assert rewarded == [number != refused for number in range(7)]
    assert "content policy" in verdicts[refused].detail


async def test_a_judge_that_nobody_has_reached_is_told_as_such_and_soon() -> None:
    judge = PreferenceJudge(base_url="http://127.0.0.1:9/v1", model="m", deadline_s=600.0)
    async with asyncio.timeout(120):
        verdicts = await judge.score_group(samples(["red", "blue"]))
    await judge.close()
    assert [verdict.status for verdict in verdicts] == [Status.UNAVAILABLE] * 2
    assert "no answer from http://127.0.0.1:9" in verdicts[0].detail
