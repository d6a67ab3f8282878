"""What a server refuses, and that it says why: every status of docs/http.md over real HTTP."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.errors import ConfigError
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.verdict import Verdict
from ludus.wire.chaos import Chaos
from ludus.wire.server import HttpServer

ENV = "test/moody-v0"
RUN = "-".join(os.environ.get(f"PYTEST_XDIST_{name}", "0") for name in ("TESTRUNUID", "WORKER"))
"""The same in this process and in the workers that it starts."""
RELEASE = Path(tempfile.gettempdir()) / f"ludus-release-{RUN}"


def wait_for_release() -> None:
    """Hang until the test says so; in whichever process this runs."""
    deadline = time.monotonic() + 10
    while not RELEASE.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


class Moody(TextEnv):
    """Does what the action says."""

    reset_options = {"level": int}  # noqa: RUF012 (a class attribute of the contract)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return f"{threading.get_ident()}", {}

    def step(self, action: str) -> Any:
        match action:
            case "hang":
                wait_for_release()
            case "raise":
                raise ZeroDivisionError("1/0 in the environment")
            case "exit":
                raise SystemExit(3)
            case "unavailable":
                return "", Verdict.unavailable("the judge is down"), True, False, {}
            case "unsendable":
                return "", 1.0, False, False, {"thing": object()}
            case "nan":
                return "", float("nan"), True, False, {}
            case _:
                pass
        return f"{threading.get_ident()}", 1.0, False, False, {}


class Judge:
    """A verifier that does what the response says."""

    def score(self, sample: Sample) -> Verdict:
        match sample.text:
            case "hang":
                wait_for_release()
            case "raise":
                raise ValueError("cannot")
            case _:
                pass
        return Verdict.of(0.5, str(os.getpid()) if sample.text == "where?" else "")


@asynccontextmanager
async def serving(
    limits: SessionLimits | None = None, token: str = "", score_timeout_s: float = 20, **kwargs: Any
) -> AsyncGenerator[aiohttp.ClientSession]:
    RELEASE.unlink(missing_ok=True)
    envs = EnvService([ServedEnv(ENV, factory=Moody)], limits=limits, threads=2)
    judge = ScoreService(verifiers={"judge": Judge()}, timeout_s=score_timeout_s, max_queue=4)
    async with (
        HttpServer([envs, judge], token=token, **kwargs) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        try:
            yield http
        finally:
            RELEASE.touch()
    RELEASE.unlink()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(SessionLimits(step_timeout_s=20), max_body_bytes=10_000) as session:
        yield session


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **kwargs: Any
) -> tuple[int, Any]:
    async with http.request(method, path, json=body, **kwargs) as reply:
        return reply.status, await reply.json()


async def create(http: aiohttp.ClientSession, name: str) -> tuple[int, Any]:
    return await ask(http, "POST", f"/v1/envs/{ENV}/sessions", {"session": name, "reset": {}})


async def step(http: aiohttp.ClientSession, name: str, action: str, seq: int = 1) -> Any:
    body = {"seq": seq, "action": action}
    return await ask(http, "POST", f"/v1/sessions/{name}/step", body)


async def raw(
    http: aiohttp.ClientSession, data: bytes, content_type: str = "application/json"
) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": content_type} if content_type else {}
    async with http.post("/v1/sessions/a/step", data=data, headers=headers) as reply:
        return reply.status, (await reply.json())["error"]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b'{"seq": 1,}'])
async def test_malformed_json_is_400_with_the_reason(
    http: aiohttp.ClientSession, data: bytes
) -> None:
    status, error = await raw(http, data)
    assert (status, error["code"]) == (400, "malformed")
    assert "JSON" in error["message"]


async def test_a_client_that_leaves_within_its_body_is_no_failure_of_the_server(
    http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with http.get("/healthz") as reply:
        url = reply.url
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"POST /v1/sessions/a/step HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: 900\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + b'{"seq": 1')
    await writer.drain()
    await asyncio.sleep(0.1)  # the server waits for the rest
    writer.transport.abort()
    await asyncio.sleep(0.1)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    assert (await create(http, "after"))[0] == 200


async def test_json_nested_without_end_is_400(http: aiohttp.ClientSession) -> None:
    body = b'{"seq": 0, "options": {"a": ' + b"[" * 4000 + b"]" * 4000 + b"}}"
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/sessions/a/reset", data=body, headers=headers) as reply:
        error = (await reply.json())["error"]
        assert (reply.status, error["message"]) == (400, "the body is nested too deeply")


async def test_malformed_msgpack_is_400(http: aiohttp.ClientSession) -> None:
    async with http.post(
        "/v1/sessions/a/step", data=b"\xc1", headers={"Content-Type": "application/msgpack"}
    ) as reply:
        fault = msgspec.msgpack.decode(await reply.read())["error"]
        assert (reply.status, fault["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"seq": "1", "action": "x"}, "$.seq"),
        ({"seq": -1, "action": "x"}, "$.seq"),
        ({"seq": 1, "action": 3}, "$.action"),
        ({"seq": 1, "action": {"role": "wizard"}}, "$.action.role"),
        ({"seq": 1}, "action"),
        ({"seq": 1, "action": "x", "acton": "y"}, "acton"),
        ([1, 2], "array"),
    ],
)
async def test_a_wrong_type_is_422_and_names_the_field(
    http: aiohttp.ClientSession, body: Any, named: str
) -> None:
    status, reply = await ask(http, "POST", "/v1/sessions/a/step", body)
    assert (status, reply["error"]["code"]) == (422, "invalid")
    assert named in reply["error"]["message"]


@pytest.mark.parametrize("name", ["a b/../c", "a\nb", "a\n", "\r\nX-Evil: 1", ""])
async def test_a_session_name_that_is_no_name_is_422(
    http: aiohttp.ClientSession, name: str
) -> None:
    status, reply = await create(http, name)
    assert status == 422
    assert "$.session" in reply["error"]["message"]


async def test_a_query_of_a_wrong_type_is_422(http: aiohttp.ClientSession) -> None:
    status, reply = await ask(http, "GET", f"/v1/envs/{ENV}/tasks?limit=many")
    assert (status, "$.limit" in reply["error"]["message"]) == (422, True)


async def test_a_content_type_we_do_not_speak_is_415(http: aiohttp.ClientSession) -> None:
    status, error = await raw(http, b"seq=1", "application/x-www-form-urlencoded")
    assert (status, error["code"]) == (415, "unsupported_media")
    assert "application/json" in error["message"]


async def test_an_oversized_body_is_413_with_the_limit(http: aiohttp.ClientSession) -> None:
    status, error = await raw(http, b" " * 10_001)
    assert (status, error["code"]) == (413, "too_large")
    assert "10000 bytes" in error["message"]


async def test_an_oversized_body_of_unknown_length_is_413(http: aiohttp.ClientSession) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1000

    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/sessions/a/step", data=chunks(), headers=headers) as reply:
        assert reply.status == 413


async def test_unknown_paths_and_methods_are_answered_in_our_own_words(
    http: aiohttp.ClientSession,
) -> None:
    status, reply = await ask(http, "GET", "/v2/envs")
    assert (status, reply["error"]["code"]) == (404, "not_found")
    assert "served here: envs" in reply["error"]["message"]
    status, reply = await ask(http, "PUT", "/v1/envs")
    assert (status, reply["error"]["code"]) == (405, "method_not_allowed")


async def test_an_unknown_environment_is_404_and_names_the_near_miss(
    http: aiohttp.ClientSession,
) -> None:
    status, reply = await ask(http, "POST", "/v1/envs/test/mody-v0/sessions", {"session": "a"})
    assert (status, reply["error"]["code"]) == (404, "unknown_env")
    assert "did you mean 'test/moody-v0'" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        ({"levle": 1}, "invalid_option", 422),
        ({"level": "high"}, "invalid_option", 422),
        ({"task": "train/x"}, "unknown_task", 404),
    ],
)
async def test_a_wrong_reset_option_is_refused(
    http: aiohttp.ClientSession, options: dict[str, Any], code: str, status: int
) -> None:
    body = {"session": "a", "reset": {"options": options}}
    got, reply = await ask(http, "POST", f"/v1/envs/{ENV}/sessions", body)
    assert (got, reply["error"]["code"]) == (status, code)


async def test_a_reward_that_is_not_available_travels_with_its_verdict(
    http: aiohttp.ClientSession,
) -> None:
    await create(http, "a")
    status, reply = await step(http, "a", "unavailable")
    assert (status, reply["error"]["code"]) == (424, "reward_unavailable")
    assert reply["error"]["verdict"]["status"] == "unavailable"
    assert "reward" not in reply["error"]["verdict"]
    assert await step(http, "a", "unavailable") == (status, reply)  # kept like any reply


async def test_a_reward_that_is_no_number_is_never_sent(http: aiohttp.ClientSession) -> None:
    await create(http, "a")
    status, reply = await step(http, "a", "nan")
    assert (status, reply["error"]["verdict"]["status"]) == (424, "error")


@pytest.mark.parametrize("action", ["raise", "exit", "unsendable"])
async def test_an_environment_that_fails_is_500_and_ends_only_its_episode(
    http: aiohttp.ClientSession, action: str
) -> None:
    await create(http, "a")
    await create(http, "b")
    status, reply = await step(http, "a", action)
    assert (status, reply["error"]["code"], reply["error"]["seq"]) == (500, "env_failed", 1)
    assert (await step(http, "a", "x", 2))[1]["error"]["code"] == "episode_ended"
    assert (await step(http, "b", "x"))[0] == 200


async def test_one_bad_answer_does_not_spoil_its_batch(http: aiohttp.ClientSession) -> None:
    await create(http, "a")
    await create(http, "b")
    items = [
        {"op": "step", "session": "a", "seq": 1, "action": "unsendable"},
        {"op": "step", "session": "b", "seq": 1, "action": "x"},
    ]
    statuses = [202, 202]
    while 202 in statuses:  # what still runs is asked for again
        _, reply = await ask(http, "POST", "/v1/step_batch", {"items": items})
        statuses = [item["status"] for item in reply["items"]]
    assert statuses == [500, 200]


async def test_plain_methods_run_on_one_thread_of_a_session_and_never_on_the_loop(
    http: aiohttp.ClientSession,
) -> None:
    _, reply = await create(http, "a")
    threads = {reply["observation"]}
    for seq in range(1, 6):
        threads.add((await step(http, "a", "x", seq))[1]["observation"])
    assert len(threads) == 1
    assert threads != {str(threading.get_ident())}


async def test_a_step_that_takes_too_long_is_504_and_releases_the_session() -> None:
    async with serving(SessionLimits(step_timeout_s=0.3)) as http:
        await create(http, "a")
        status, reply = await step(http, "a", "hang")
        assert (status, reply["error"]["code"]) == (504, "step_timeout")
        assert "reward" not in reply
        assert (await step(http, "a", "x", 2))[0] == 410
        for name in "bcdefgh":  # other processes serve on
            await create(http, name)
            assert (await step(http, name, "x"))[0] == 200
        async with http.get("/metrics") as metrics:
            text = await metrics.text()
        assert f'ludus_worker_losses_total{{reason="late",served="{ENV}"}} 1.0' in text


async def test_too_many_sessions_are_429_with_when_to_come_back() -> None:
    async with serving(SessionLimits(max_sessions=2)) as http:
        await create(http, "a")
        await create(http, "b")
        body = {"session": "c", "reset": {}}
        async with http.post(f"/v1/envs/{ENV}/sessions", json=body) as reply:
            error = (await reply.json())["error"]
            assert reply.status == 429
            assert int(reply.headers["Retry-After"]) >= 1
        assert (error["queue_depth"], error["limit"], error["retryable"]) == (2, 2, True)
        status, ready = await ask(http, "GET", "/readyz")
        assert (status, ready["status"]) == (503, "all 2 sessions are open")
        await ask(http, "DELETE", "/v1/sessions/a")
        assert (await ask(http, "GET", "/readyz"))[0] == 200
        assert (await create(http, "c"))[0] == 200


async def test_a_full_queue_is_429_and_uses_up_no_seq() -> None:
    async with serving(SessionLimits(max_queue=1, step_timeout_s=20)) as http:
        await create(http, "a")
        await create(http, "b")
        hanging = asyncio.create_task(step(http, "a", "hang"))
        await asyncio.sleep(0.2)
        status, reply = await step(http, "b", "x")
        assert (status, reply["error"]["queue_depth"], reply["error"]["limit"]) == (429, 1, 1)
        RELEASE.touch()
        assert (await hanging)[0] == 200
        assert (await step(http, "b", "x"))[0] == 200


async def test_a_full_queue_of_a_verifier_is_429_for_the_items_beyond_it() -> None:
    async with serving() as http:
        items = [{"verifier": "judge", "sample": {"response": "hang"}} for _ in range(6)]
        batch = asyncio.create_task(ask(http, "POST", "/v1/score_batch", {"items": items}))
        await asyncio.sleep(0.2)
        RELEASE.touch()
        _, reply = await batch
        assert [item["status"] for item in reply["items"]] == [200] * 4 + [429] * 2


async def test_a_verifier_runs_in_a_process_of_its_own(http: aiohttp.ClientSession) -> None:
    body = {"verifier": "judge", "sample": {"response": "where?"}}
    status, verdict = await ask(http, "POST", "/v1/score", body)
    assert (status, verdict["reward"]) == (200, 0.5)
    assert int(verdict["detail"]) != os.getpid()


async def test_a_verifier_that_hangs_gives_unavailable_and_one_that_fails_error() -> None:
    async with serving(score_timeout_s=0.3) as http:
        items = [
            {"verifier": "judge", "sample": {"response": response}}
            for response in ("hang", "raise", "fine")
        ]
        items += [{"verifier": "jugde", "sample": {"response": ""}}, {"verifier": "judge"}]
        _, reply = await ask(http, "POST", "/v1/score_batch", {"items": items})
    assert [item["status"] for item in reply["items"]] == [200, 200, 200, 404, 422]
    verdicts = [item["verdict"] for item in reply["items"][:3]]
    assert [verdict.get("status", "ok") for verdict in verdicts] == ["unavailable", "error", "ok"]
    assert [verdict.get("reward") for verdict in verdicts] == [None, None, 0.5]


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic secret", "secret", "Bearer sécret"])
async def test_without_the_right_token_it_is_401(header: str) -> None:
    async with serving(token="secret") as http:
        headers = {"Authorization": header} if header else {}
        for path in ("/v1/envs", "/metrics", "/openapi.json"):
            status, reply = await ask(http, "GET", path, headers=headers)
            assert (status, reply["error"]["code"]) == (401, "unauthorized")
        assert (await ask(http, "GET", "/healthz"))[0] == 200
        right = {"Authorization": "Bearer secret"}
        assert (await ask(http, "GET", "/v1/envs", headers=right))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example:80", 421), ("localhost:1", 200), ("[::1]:1", 200), ("127.0.0.1", 200)],
)
async def test_without_a_token_only_names_of_this_machine_are_served(
    http: aiohttp.ClientSession, host: str, status: int
) -> None:
    assert (await ask(http, "GET", "/v1/envs", headers={"Host": host}))[0] == status


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_off_loopback_a_token_is_required(host: str) -> None:
    with pytest.raises(ConfigError, match="without a token"):
        HttpServer([], host=host)
    HttpServer([], host=host, token="secret")


async def test_two_servers_run_side_by_side_and_share_nothing() -> None:
    async with serving() as one, serving() as other:
        await create(one, "a")
        assert (await step(other, "a", "x"))[0] == 404
        assert (await create(other, "a"))[0] == 200


async def test_metrics_tell_sessions_steps_verdicts_and_loop_lag(
    http: aiohttp.ClientSession,
) -> None:
    await create(http, "a")
    await step(http, "a", "x")
    await step(http, "a", "x")
    await ask(http, "POST", "/v1/score", {"verifier": "judge", "sample": {"response": "x"}})
    await asyncio.sleep(0.3)
    async with http.get("/metrics") as reply:
        text = await reply.text()
    for line in (
        'ludus_sessions{env="test/moody-v0"} 1.0',
        'ludus_queue_depth{service="envs"} 0.0',
        'ludus_replays_total{env="test/moody-v0"} 1.0',
        'ludus_step_seconds_count{env="test/moody-v0"} 2.0',
        'ludus_verdicts_total{status="ok",verifier="judge"} 1.0',
        "ludus_event_loop_lag_seconds_count",
    ):
        assert line in text, line


async def test_chaos_strikes_only_where_asked() -> None:
    async with serving(chaos=Chaos.parse("error=1")) as http:
        status, reply = await ask(http, "GET", "/v1/envs")
        assert (status, reply["error"]["code"], reply["error"]["retryable"]) == (500, "chaos", True)
        assert (await ask(http, "GET", "/healthz"))[0] == 200
    async with serving(chaos=Chaos.parse("drop=1")) as http:
        with pytest.raises(aiohttp.ClientError):
            await ask(http, "GET", "/v1/envs")
