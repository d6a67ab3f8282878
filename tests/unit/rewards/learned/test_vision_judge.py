"""A vision model judges images over the OpenAI chat format."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from ludus.messages import ImagePart
from ludus.rewards import Sample, Status
from ludus.rewards.learned.images.vision_judge import VisionJudge

RUBRIC: dict[str, Any] = {
    "items": [
        {"id": "red", "text": "The image is mostly red.", "weight": 3.0},
        {"id": "wide", "text": "The image is wider than high.", "weight": 1.0},
    ]
}


@asynccontextmanager
async def vision_model(
    seen: list[dict[str, Any]], answer: str = ""
) -> AsyncGenerator[tuple[str, list[dict[str, Any]]]]:
    """A server that looks at the image it is sent: red or not, wide or not."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body)
        contents = [message["content"] for message in body["messages"]]
        image_part, text_part = next(parts for parts in contents if isinstance(parts, list))
        encoded = image_part["image_url"]["url"].partition("base64,")[2]
        image = Image.open(io.BytesIO(base64.b64decode(encoded)))
        red, green, _ = image.resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
        is_red = '"red"' in text_part["text"]
        met = red > green if is_red else image.width > image.height
        said = answer or json.dumps({"reason": "seen", "met": bool(met)})
        message = {"role": "assistant", "content": said}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/v1", seen
    finally:
        await runner.cleanup()


def sample(size: tuple[int, int], colour: str) -> Sample:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    images = [ImagePart(data=buffer.getvalue())]
    return Sample(response="", prompt="a red wall", info={"rubric": RUBRIC}, images=images)


@pytest.mark.parametrize(
    ("size", "colour", "reward"),
    [((40, 20), "red", 1.0), ((20, 40), "red", 0.75), ((40, 20), "green", 0.25)],
)
async def test_the_model_sees_the_image_and_the_rubric_decides(
    size: tuple[int, int], colour: str, reward: float
) -> None:
    async with vision_model([]) as (url, seen):
        judge = VisionJudge(base_url=url, model="sees")
        verdict = await judge.score(sample(size, colour))
        await judge.close()
    assert verdict.reward == pytest.approx(reward)
    assert len(seen) == 2
    assert "a red wall" in seen[0]["messages"][-1]["content"][1]["text"]


async def test_a_large_image_is_made_smaller_before_it_is_sent() -> None:
    async with vision_model([]) as (url, seen):
        judge = VisionJudge(base_url=url, model="sees", max_side=100)
        assert (await judge.score(sample((3000, 1500), "red"))).reward == 1.0
        await judge.close()
    sent = seen[0]["messages"][-1]["content"][0]["image_url"]["url"].partition("base64,")[2]
    assert Image.open(io.BytesIO(base64.b64decode(sent))).size == (100, 50)


async def test_what_is_no_image_is_invalid_and_asks_nobody() -> None:
    async with vision_model([]) as (url, seen):
        judge = VisionJudge(base_url=url, model="sees")
        broken = Sample(response="", info={"rubric": RUBRIC}, images=[ImagePart(data=b"no")])
        verdict = await judge.score(broken)
        await judge.close()
    assert verdict.status is Status.INVALID
    assert "not an image" in verdict.detail
    assert not seen


async def test_an_answer_that_cannot_be_read_gives_no_reward() -> None:
    async with vision_model([], answer="10 out of 10") as (url, _):
        judge = VisionJudge(base_url=url, model="sees")
        verdict = await judge.score(sample((40, 20), "red"))
        await judge.close()
    assert verdict.status is Status.UNAVAILABLE
    assert verdict.reward is None
