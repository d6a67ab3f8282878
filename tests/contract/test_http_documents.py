"""The protocol as others see it: golden requests and replies, and /openapi.json."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import aiohttp

from ludus.envs import TextEnv, tool
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire.server import HttpServer

GOLDEN = Path(__file__).parent / "golden" / "http.json"
"""Exchanges as [method, path, body, status, reply]. A change here is a change of the protocol: it
breaks clients in other languages, so it needs a new version of the path.
"""
OLD = Path(__file__).parent / "golden" / "0.1.0"
"""What release 0.1.0 recorded; it does not change any more."""
ENV = "test/golden-v0"


class Golden(TextEnv):
    """One of everything."""

    system_prompt = "Say it."
    answer_format = "One word."
    max_turns = 4
    never_blocks = True
    reset_options = {"level": int}  # noqa: RUF012 (a class attribute of the contract)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "salve", {"level": (options or {}).get("level", 0)}

    def step(self, action: str) -> Any:
        if action == "unavailable":
            return "", Verdict.unavailable("the judge is down"), True, False, {}
        parts = {"right": (1.0, 0.5), "short": (0.0, 0.5)}
        return "vale", Verdict.of(0.5, "half", parts=parts), True, False, {"said": action}

    @tool
    def look(self, where: str) -> str:
        """Look.

        Args:
            where: a place
        """
        return f"nothing {where}"


def service() -> list[Any]:
    return [EnvService([ServedEnv(ENV, factory=Golden)]), ScoreService(["exact"])]


async def exchange(http: aiohttp.ClientSession, method: str, path: str, body: Any) -> list[Any]:
    async with http.request(method, path, json=body, headers={"X-Request-Id": "golden"}) as reply:
        assert reply.headers["X-Request-Id"] == "golden"
        return [method, path, body, reply.status, await reply.json()]


async def test_the_protocol_is_what_it_was() -> None:
    recorded = json.loads(GOLDEN.read_text("utf-8"))
    server = HttpServer(service())
    server.instance = "instance"
    async with server, aiohttp.ClientSession(server.url) as http:
        for method, path, body, status, reply in recorded:
            expected = [method, path, body, status, reply]
            assert await exchange(http, method, path, body) == expected


def lacks(new: Any, old: Any, path: str = "$") -> list[str]:
    """What an old client finds changed: fields may be added, and nothing else."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{path}.{name} is missing" for name in old.keys() - new.keys()]
        both = sorted(old.keys() & new.keys())
        return missing + [one for n in both for one in lacks(new[n], old[n], f"{path}.{n}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(new, old, strict=True))
        return [one for n, (a, b) in pairs for one in lacks(a, b, f"{path}[{n}]")]
    return [] if new == old else [f"{path} was {old!r}, is {new!r}"]


async def test_the_requests_of_an_old_client_get_the_replies_that_it_reads() -> None:
    server = HttpServer(service())
    server.instance = "instance"
    async with server, aiohttp.ClientSession(server.url) as http:
        for method, path, body, status, reply in json.loads((OLD / "http.json").read_text()):
            async with http.request(method, path, json=body) as answer:
                assert (answer.status, lacks(await answer.json(), reply)) == (status, []), path
        exchanges = json.loads((OLD / "stream.json").read_text())
        async with http.ws_connect("/v1/stream") as stream:
            hello = await stream.receive_json()
            assert hello["protocol"] == 1
            for operation, status, reply in exchanges:
                await stream.send_json([operation])
                ((number, given, body),) = await stream.receive_json()
                assert (number, given, lacks(body, reply)) == (operation[0], status, [])


async def test_the_three_requests_of_the_reference_do_what_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    requests = re.findall(
        r"curl (?:-X (\w+) )?localhost:8765(\S+)(?:.*?-d '(.*?)')?\n", page, re.DOTALL
    )
    replies = re.findall(r'^    \{"kind":"(\w+)"', page, re.MULTILINE)
    service = EnvService(["ludus/arithmetic-v0"])
    async with HttpServer([service]) as server, aiohttp.ClientSession(server.url) as http:
        answers = [
            await exchange(http, method or "POST", path, json.loads(body) if body else None)
            for method, path, body in requests[:3]
        ]
    assert [answer[4]["kind"] for answer in answers] == replies == ["reset", "step", "released"]
    assert answers[0][4]["observation"] == "83*23"
    assert answers[1][4]["reward"] == 1.0


async def test_openapi_names_every_route_and_every_reference_resolves() -> None:
    server = HttpServer(service(), token="secret")
    headers = {"Authorization": "Bearer secret"}
    async with (
        server,
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.get("/openapi.json") as reply,
    ):
        document = await reply.json()
    assert document["openapi"] == "3.1.0"
    assert isinstance(document["info"]["version"], str)
    assert {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    } == {
        "GET /v1/envs",
        "GET /v1/envs/{id}/tasks",
        "POST /v1/envs/{id}/sessions",
        "POST /v1/sessions/{sid}/reset",
        "POST /v1/sessions/{sid}/step",
        "POST /v1/sessions/{sid}/fork",
        "DELETE /v1/sessions/{sid}",
        "POST /v1/step_batch",
        "GET /v1/verifiers",
        "POST /v1/score",
        "POST /v1/score_batch",
        "POST /v1/score_group",
    }
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    step = schemas["StepBody"]
    assert set(step["required"]) == {"seq", "action"}
    assert document["security"] == [{"bearer": []}]


def references(value: Any) -> list[str]:
    """Every `$ref` inside."""
    if isinstance(value, dict):
        found = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return found + [ref for child in value.values() for ref in references(child)]
    if isinstance(value, list):
        return [ref for child in value for ref in references(child)]
    return []


async def test_the_clients_of_ten_lines_in_the_page_work() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    stream, batch = (
        textwrap.dedent(block.strip("\n"))
        for block in blocks
        if "ws_connect" in block or "/v1/step_batch" in block
    )
    printed: list[tuple[object, ...]] = []
    async with HttpServer([EnvService(["ludus/arithmetic-v0"])]) as server:
        body = f"{stream}\n{textwrap.indent(batch, '    ')}"
        body = body.replace("http://localhost:8765", server.url)
        names: dict[str, Any] = {"aiohttp": aiohttp, "print": lambda *words: printed.append(words)}
        exec(f"async def use():\n{textwrap.indent(body, '    ')}", names)
        await names["use"]()
    assert [words[1] for words in printed[:64]] == [200] * 64
    assert {words[0] for words in printed[64:]} == {f"s-{n}" for n in range(64)}
