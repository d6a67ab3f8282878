"""Who may do what on a server, and how much; what one principal has does not exist for another."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import ludus
from ludus.envs.serving.connect import RemoteServer
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, SessionGone, Unauthorized
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.wire.admission import Admission, FairQueue
from ludus.wire.faults import QueueFull, Refused
from ludus.wire.principals import ANYONE, Grant, Principal, Principals, asked_by
from ludus.wire.routes import Service
from ludus.wire.server import HttpServer

ENV = "ludus/arithmetic-v0"
TOKENS = """
[alice]
token = "alice's"
scopes = ["env:ludus/*", "score:exact"]
sessions = 2

[bob]
sha256 = "{digest}"
scopes = ["env:ludus/arithmetic-v0"]
rate = 0.2

[carol]
token = "carol's"
scopes = ["score:*"]
bytes_in_flight = 1000
""".replace("{digest}", hashlib.sha256(b"bob's").hexdigest())


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[HttpServer]:
    (folder / "tokens.toml").write_text(TOKENS)
    principals = Principals("operator's", folder / "tokens.toml")
    services: list[Service] = [EnvService([ENV]), ScoreService(["exact"])]
    async with HttpServer(services, principals=principals) as server:
        yield server


def client(server: HttpServer, name: str, **kwargs: Any) -> RemoteServer:
    return ludus.connect(server.url, token=f"{name}'s", **kwargs)


@pytest.mark.parametrize("stream", [True, False])
async def test_scopes_bound_what_each_may_do(tmp_path: Path, stream: bool) -> None:
    sample = Sample(response="a", gold="a")
    async with serving(tmp_path) as server:
        async with client(server, "alice", stream=stream) as alice:
            await alice.make_async(ENV).reset(seed=1)
            assert (await alice.verifier("exact").score(sample)).ok
        async with client(server, "bob", stream=stream) as bob:
            await bob.make_async(ENV).reset(seed=1)
            with pytest.raises(Unauthorized, match="no scope for score:exact"):
                await bob.verifier("exact").score(sample)
            assert await asyncio.to_thread(bob.verifiers) == []
        async with client(server, "carol", stream=stream) as carol:
            with pytest.raises(Unauthorized, match="no scope for env:ludus/arithmetic-v0"):
                await carol.make_async(ENV).reset(seed=1)
            assert await asyncio.to_thread(carol.envs) == []
        async with client(server, "mallory", stream=stream) as stranger:
            with pytest.raises(Unauthorized, match="missing or wrong"):
                await stranger.make_async(ENV).reset(seed=1)
        async with aiohttp.ClientSession(server.url) as http:
            for name, status in (("alice", 403), ("operator", 200)):
                headers = {"Authorization": f"Bearer {name}'s"}
                async with http.get("/metrics", headers=headers) as reply:
                    assert reply.status == status
            async with http.get("/readyz") as reply:
                assert (await reply.json())["services"] == {}


async def test_who_may_not_ask_for_a_name_is_told_of_none(tmp_path: Path) -> None:
    bearer = {"Authorization": "Bearer bob's"}
    async with (
        serving(tmp_path) as server,
        aiohttp.ClientSession(server.url, headers=bearer) as bob,
    ):
        score = {"verifier": "exac", "sample": {"response": "a", "gold": "a"}}
        async with bob.post("/v1/score", json=score) as reply:
            assert reply.status == 403
            assert "'exact'" not in await reply.text()
    carols = {"Authorization": "Bearer carol's"}
    async with (
        serving(tmp_path) as server,
        aiohttp.ClientSession(server.url, headers=carols) as carol,
    ):
        async with carol.post("/v1/score", json=score) as reply:
            assert "did you mean 'exact'" in await reply.text()
        async with carol.get("/v1/envs/ludus%2Farithmetik-v0/tasks?split=test") as reply:
            assert reply.status == 403
            assert ENV not in await reply.text()


async def test_a_session_does_not_exist_for_others(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        client(server, "alice") as alice,
        aiohttp.ClientSession(server.url, headers={"Authorization": "Bearer bob's"}) as bob,
    ):
        session = alice.make_async(ENV)
        await session.reset(seed=1)
        step = {"seq": 1, "action": "1"}
        async with bob.post(f"/v1/sessions/{session.name}/step", json=step) as reply:
            assert reply.status == 404
        async with bob.delete(f"/v1/sessions/{session.name}") as reply:
            assert await reply.json() | {"released": False} == await reply.json()
        create = {"session": session.name, "reset": {}}
        async with bob.post(f"/v1/envs/{ENV}/sessions", json=create) as reply:
            assert reply.status == 409
        async with bob.post(f"/v1/envs/{ENV}/sessions", json={"session": "a\nb"}) as reply:
            assert reply.status == 422
        assert len(await session.step("no number")) == 5  # untouched


async def test_sessions_rate_and_bytes_are_bounded_for_each_by_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with client(server, "alice", timeout_s=0.3) as alice:
            sessions = [alice.make_async(ENV) for _ in range(3)]
            results = await asyncio.gather(
                *(session.reset(seed=1) for session in sessions), return_exceptions=True
            )
            assert [isinstance(one, Exception) for one in results] == [False, False, True]
            assert "'alice' has 2 of 2 sessions open" in str(results[2])
        async with aiohttp.ClientSession(server.url) as http:
            statuses: list[int] = []
            for number in range(4):
                async with http.post(
                    f"/v1/envs/{ENV}/sessions",
                    json={"session": f"bob-{number}", "reset": {}},
                    headers={"Authorization": "Bearer bob's"},
                ) as reply:
                    statuses.append(reply.status)
            assert statuses[0] == 200
            assert 429 in statuses
            long = {"verifier": "exact", "sample": {"response": "x" * 2000, "gold": "a"}}
            async with http.post(
                "/v1/score", json=long, headers={"Authorization": "Bearer carol's"}
            ) as reply:
                assert (reply.status, "bodies of 'carol'" in await reply.text()) == (429, True)


@pytest.mark.parametrize(
    "mistake",
    [
        "[alice",
        "[alice]\nscopes = ['*']",
        "[alice]\ntoken = 'a'\nsha256 = 'b'\nscopes = ['*']",
        "[alice]\nsha256 = 'short'\nscopes = ['*']",
        "[alice]\ntoken = 'a'\nscopes = []",
        "[alice]\ntoken = 'a'",
        "[alice]\ntoken = 'a'\nscopes = ['fly']",
        "[alice]\ntoken = 'a'\nscopes = ['env']",  # of no environment
        "[alice]\ntoken = 'a'\nscopes = ['admin:x']",
        f"[alice]\nsha256 = '{hashlib.sha256(b'').hexdigest()}'\nscopes = ['*']",
        "",  # a server without principals would be open to everybody
        "[alice]\ntoken = 'a'\nscopes = ['*']\nrates = 3",
        "[alice]\ntoken = 'a'\nscopes = ['*']\n[bob]\ntoken = 'a'\nscopes = ['*']",
        "[operator]\ntoken = 'a'\nscopes = ['*']",
    ],
)
def test_a_file_of_tokens_with_a_mistake_is_refused_and_the_old_one_stays(
    tmp_path: Path, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    principals = Principals(file=file)
    file.write_text(mistake)
    with pytest.raises(ConfigError, match=str(file)):
        Principals(file=file)
    principals.read_again()
    assert "the tokens stay as they are" in caplog.text
    alice = principals.of("alice's")
    assert alice is not None
    assert alice.name == "alice"
    with pytest.raises(Refused, match="no scope"):
        alice.require("admin")


def test_a_token_that_was_right_is_refused_once_the_file_has_another(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text("[alice]\ntoken = 'old'\nscopes = ['score:*']")
    principals = Principals("own", file)
    before = principals.of("old")
    assert before is not None
    assert principals.of("old") is before
    assert principals.of("new") is None
    file.write_text("[alice]\ntoken = 'new'\nscopes = ['*']")
    principals.read_again()
    assert principals.of("old") is None
    after = principals.of("new")
    assert after is not None
    assert after.may_all
    file.write_text("[alice]\ntoken = 'new'\nscopes = ['env:*']")
    principals.read_again()
    narrower = principals.of("new")
    assert narrower is not None
    assert not narrower.may("score:exact")
    own = principals.of("own")
    assert own is not None
    assert own.name == "operator"


def test_nobody_who_waits_keeps_others_out() -> None:
    admission = Admission(100)
    many, few = (Principal(name, Grant(scopes=["*"])) for name in ("many", "few"))
    asked_by.set(many)
    for _ in range(100):
        admission.enter("slow")
    with pytest.raises(QueueFull):
        admission.enter("slow")
    admission.enter("quick")  # another verifier, of the same principal
    asked_by.set(few)
    for _ in range(30):
        admission.enter("slow")
    asked_by.set(ANYONE)


def test_what_a_full_queue_refuses_uses_up_no_rate() -> None:
    admission = Admission(1)
    asked_by.set(Principal("quick", Grant(scopes=["*"], rate=2.0)))
    principal = admission.enter("slow")
    for _ in range(9):
        with pytest.raises(QueueFull, match="the server's queue is full"):
            admission.enter("slow")
    admission.leave("slow", 0.1, principal)
    admission.enter("slow")
    asked_by.set(ANYONE)


def test_principals_take_turns_by_weight() -> None:
    line: FairQueue[str] = FairQueue()
    for name, weight, number in (("a", 1.0, 90), ("b", 2.0, 90), ("c", 1.0, 3)):
        asked_by.set(Principal(name, Grant(scopes=["*"], weight=weight)))
        for _ in range(number):
            line.append(name)
    asked_by.set(ANYONE)
    left: list[str] = []
    while line.size:
        left.append(line.head())
        line.remove(left[-1])
    assert sorted(left[:40]) == ["a"] * 12 + ["b"] * 25 + ["c"] * 3
    assert len(left) == 183


SPY = """
import os
import ludus

@ludus.register("me/spy-v0")
class Spy(ludus.TextEnv):
    "Tells what it inherits."

    def reset(self, *, seed=None, options=None):
        return " ".join(f"{name}={value}" for name, value in os.environ.items()), {}

    def step(self, action):
        return "", 0.0, True, False, {}
"""


async def test_user_code_inherits_no_token(tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text(SPY)
    command = [sys.executable, "-m", "ludus", "--import", "spy.py", "serve", "me/spy-v0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--port", "0", "--token", "env:OTHER"),
        cwd=tmp_path,
        env={**os.environ, "LUDUS_TOKEN": "swordfish", "OTHER": "swordfish"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[-1]
        async with ludus.connect(url, token="swordfish") as server:
            observation, _ = await server.make_async("me/spy-v0").reset(seed=0)
        assert "PATH=" in str(observation)
        assert "swordfish" not in str(observation)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("name", "status"), [("operator", 413), ("stranger", 401)])
async def test_a_body_of_100_mb_gets_its_refusal(tmp_path: Path, name: str, status: int) -> None:
    async with serving(tmp_path) as server, aiohttp.ClientSession(server.url) as http:
        headers = {"Authorization": f"Bearer {name}'s", "Content-Type": "application/json"}
        body = io.BytesIO(bytes(100 << 20))
        try:
            async with http.post("/v1/score", data=body, headers=headers) as reply:
                assert reply.status == status
        except aiohttp.ClientError:
            assert name == "stranger"  # whose body is not read


async def test_a_stale_name_stays_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client(server, "alice") as alice:
        session = alice.make_async(ENV)
        await session.reset(seed=1)
        name = session.name
        await session.close()
        session.name = name
        with pytest.raises(SessionGone):
            await session.step("1")
