"""The page at `/`: what stands on it, who may see it, and that nothing on it can act."""

from __future__ import annotations

import re
from base64 import b64encode
from html.parser import HTMLParser
from typing import Any

import aiohttp
import pytest

import ludus
from ludus.envs.serving.server import EnvService
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire.server import HttpServer

ENV = "ludus/arithmetic-v0"
HOSTILE = "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>\"'&"


class Quoting:
    """Quotes the answer in its verdict."""

    never_blocks = True

    def score(self, sample: Sample) -> Verdict:
        return Verdict.of(0.5, sample.text)


class Elements(HTMLParser):
    """The elements of a page, and the text in its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags = set[str]()
        self.names = set[str]()
        self.cells = list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def services() -> list[Any]:
    return [EnvService([ENV]), ScoreService(verifiers={"me/quoting": Quoting()})]


async def test_the_page_shows_what_is_served_and_nothing_on_it_can_act() -> None:
    async with HttpServer(services()) as server, ludus.connect(server.url) as client:
        session = client.make_async(ENV)
        await session.reset(seed=1)
        await client.verifier("me/quoting").score(Sample(response=HOSTILE))
        async with aiohttp.ClientSession(server.url) as http, http.get("/") as reply:
            page, headers = await reply.text(), reply.headers
    shown = Elements(page)
    cells = {cell.strip() for cell in shown.cells}
    assert {ENV, session.name, "me/quoting", HOSTILE, "0.5", "envs", "verifiers"} <= cells
    outer = {"html", "head", "meta", "title", "style", "body"}
    assert shown.tags <= outer | {"h1", "h2", "p", "table", "tr", "th", "td"}
    assert shown.names <= {"lang", "charset", "name", "content", "http-equiv", "class", "scope"}
    assert "://" not in re.sub(r"<td>.*?</td>", "", page, flags=re.DOTALL)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("", 401),
        ("Basic " + b64encode(b"anybody:secret").decode(), 200),
        ("Basic " + b64encode(b"secret:wrong").decode(), 401),
        ("Basic not-base64!", 401),
        ("Bearer secret", 200),
    ],
)
async def test_a_browser_gives_the_token_as_its_password(sent: str, status: int) -> None:
    headers = {"Authorization": sent} if sent else {}
    async with (
        HttpServer(services(), token="secret") as server,
        aiohttp.ClientSession(server.url, headers=headers) as http,
    ):
        async with http.get("/") as reply:
            assert reply.status == status
            assert (ENV in await reply.text()) == (status == 200)
            asked = reply.headers.get("WWW-Authenticate", "")
            assert asked.startswith("Basic") == (status == 401)
        async with http.get("/v1/envs") as reply:  # no password anywhere else
            assert reply.status == (200 if sent == "Bearer secret" else 401)


async def test_a_server_without_a_token_shows_the_page_on_this_machine_alone() -> None:
    async with (
        HttpServer(services()) as server,
        aiohttp.ClientSession(server.url) as http,
        http.get("/", headers={"Host": "evil.example"}) as reply,
    ):
        assert reply.status == 421
        assert ENV not in await reply.text()
