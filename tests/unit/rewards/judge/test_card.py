"""The measured error of judges whose error is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ludus.errors import ConfigError, ServerUnreachable
from ludus.rewards.judge.caller import JudgeCaller, JudgeServer
from ludus.rewards.judge.card import JudgeCard
from ludus.rewards.judge.examine import LABELLED, Examiner, load_labelled
from ludus.rewards.judge.mock import MockJudge


async def card_of(url: str, **options: Any) -> JudgeCard:
    caller = JudgeCaller(JudgeServer(base_url=url, model="mock", **options))
    try:
        return await Examiner(caller).examine()
    finally:
        await caller.close()


async def test_an_honest_judge_agrees_and_is_not_taken_in() -> None:
    async with MockJudge() as mock:
        card = await card_of(mock.url)
    assert card.measure("agreement").events == len(LABELLED)
    assert card.measure("injection").events == 0
    assert card.measure("noise").events == 0
    rate = card.measure("agreement").rate
    assert rate is not None
    assert rate.low > 0.95


async def test_a_judge_that_nobody_can_read_is_measured_as_that() -> None:
    async with MockJudge("garbage") as mock:
        card = await card_of(mock.url)
    unreadable = card.measure("unreadable")
    assert unreadable.events > 0.9 * unreadable.trials
    assert card.measure("self-preference").rate is None


async def test_a_judge_that_always_says_yes_and_likes_the_first_is_found_out() -> None:
    async def yes(request: web.Request) -> web.Response:
        text = (await request.json())["messages"][-1]["content"]
        pair = "Which response" in text
        said = '{"reason": "", "better": "A"}' if pair else '{"reason": "", "met": true}'
        message = {"role": "assistant", "content": said}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", yes)
    async with TestServer(application) as server:
        card = await card_of(str(server.make_url("/v1")))
    rates = {m.name: m.rate.value for m in card.measures if m.rate is not None}
    assert rates["agreement"] == 0.5
    assert rates["false praise"] == rates["injection"] == rates["position"] == 1.0
    assert rates["length"] == 0.5


async def test_a_judge_that_changes_its_mind_is_noisy() -> None:
    async def fickle(request: web.Request) -> web.Response:
        body = await request.json()
        said = f'{{"reason": "", "met": {"true" if body["seed"] % 2 else "false"}}}'
        if "Which response" in body["messages"][-1]["content"]:
            said = '{"reason": "", "better": "tie"}'
        message = {"role": "assistant", "content": said}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", fickle)
    async with TestServer(application) as server:
        card = await card_of(str(server.make_url("/v1")))
    assert card.measure("noise").events == len(LABELLED)


async def test_a_server_that_is_not_there_is_an_error_and_no_card() -> None:
    with pytest.raises(ServerUnreachable):
        await card_of("http://127.0.0.1:9/v1", deadline_s=1.0)


def test_labels_of_ones_own_are_read_by_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = {"question": "q", "response": "r", "criterion": "c", "met": True}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"met": False}) + "\n")
    assert [case.met for case in load_labelled(path)] == [True, False]
    path.write_text(json.dumps(row) + "\n{}\n")
    with pytest.raises(ConfigError, match=r"labels\.jsonl:2"):
        load_labelled(path)
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="not"):
        load_labelled(path)
