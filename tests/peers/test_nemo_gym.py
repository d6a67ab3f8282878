"""NeMo Gym's wire protocol against `ludus serve`; see `test_nemo_gym_live.py` for its package."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from ludus.integrations.nemo_gym import rows

from . import games
from .conftest import Serving

ENV = "peers/sums-v0"
WIRE = json.loads(Path(__file__).with_name("nemo_gym_wire.json").read_text())


@pytest.fixture(scope="module")
def url(serving: Serving) -> Iterator[str]:
    with serving(ENV, "ludus/arithmetic-v0") as address:
        yield address


def says(text: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(WIRE["final"]).replace("ANSWER", text))
    return made


def question_of(row: dict[str, Any]) -> str:
    return str(row["responses_create_params"]["input"][-1]["content"])


def test_a_rollout_has_the_reward_of_the_environment(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        for row, script in zip(rows(ENV, games.EPISODES), games.scripts(), strict=True):
            assert (row["ludus"]["task"], question_of(row)) == (script.task, script.question)
            said = says(script.said)
            client.cookies.clear()  # as another client
            assert client.post("/seed_session", json=row).json() == {}
            if script.calls:
                assert client.post("/add", json={"first": 1, "second": 2}).text == "3"
            told = client.post("/verify", json={**row, "response": said})
            assert told.status_code == 200
            assert told.json() == {**row, "response": said, "reward": script.reward}
            assert client.post("/verify", json={**row, "response": said}).status_code == 404


def test_a_verdict_that_is_not_ok_is_a_500_and_never_a_number(url: str) -> None:
    (row,) = rows(ENV, 1)
    for broken in ("break", "crash"):
        with httpx.Client(base_url=url) as client:
            client.post("/seed_session", json=row)
            told = client.post("/verify", json={**row, "response": says(broken)})
            assert told.status_code == 500
            assert isinstance(told.json(), str)
    with httpx.Client(base_url=url) as client:  # positive control: a wrong answer is a zero
        client.post("/seed_session", json=row)
        assert client.post("/verify", json={**row, "response": says("1")}).json()["reward"] == 0.0


def test_clients_have_sessions_of_their_own_and_mistakes_are_told(url: str) -> None:
    first, second = rows(ENV, 2)
    with httpx.Client(base_url=url) as one, httpx.Client(base_url=url) as two:
        one.post("/seed_session", json=first)
        two.post("/seed_session", json=second)
        for client, row in ((two, second), (one, first)):
            said = says(games.answer_to(question_of(row)))
            assert client.post("/verify", json={**row, "response": said}).json()["reward"] == 1.0
        assert "seed_session" in two.post("/add", json={}).text
        assert two.post("/seed_session", json={"ludus": {"task": "train/x"}}).status_code == 404
        assert two.post("/gold", json={}).status_code == 404
        two.post("/seed_session", json=first)
        assert two.post("/nemo-gym/ludus/arithmetic-v0/verify", json={"response": {}}).is_error
        assert "response" in two.post("/verify", json={}).text


def test_nothing_that_is_sent_holds_the_gold(url: str) -> None:
    (row,) = rows(ENV, 1)
    with httpx.Client(base_url=url) as client:
        answers = [
            client.post("/seed_session", json=row),
            client.post(f"/nemo-gym/{ENV}/submit", json={"total": 1}),
        ]
        answers += [client.post("/add", json={"first": 1, "second": 2})]
        answers += [client.post("/verify", json={**row, "response": says("1")})]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert answers[1].text == "taken"
    seen = json.dumps(row) + "".join(answer.text + str(answer.headers) for answer in answers)
    assert games.SECRET not in seen
    assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["add", "submit"]


def test_a_session_with_an_id_begins_once_and_not_after_its_close(url: str) -> None:
    (row,) = rows(ENV, 1)
    named = {"episode_id": {"rollout_id": "r1", "attempt": 0}, "resources_session_id": "s1"}
    task = {"task_id": {"taskset": "sums", "task_id": "1"}, "task_data": {"ludus": row["ludus"]}}
    seed = {**named, **task}
    with httpx.Client(base_url=url) as client, httpx.Client(base_url=url) as again:
        for one in (client, again):  # its answer was lost, so it is sent again
            assert one.post("/seed_session", json=seed).json() == {"resources_session_id": "s1"}
        assert dict(client.cookies) == dict(again.cookies)
        others = {**seed, "episode_id": {"rollout_id": "r2"}}
        told = again.post("/seed_session", json=others)
        assert (told.status_code, "another episode" in told.text) == (409, True)
        for _ in range(2):
            closed = client.post("/close_session", json=named)
            assert (closed.status_code, closed.json()) == (200, {"resources_session_id": "s1"})
        assert "no session" in client.post("/add", json={"first": 1, "second": 2}).text
        assert client.post(
            "/close_session", json={**named, "resources_session_id": "s2"}
        ).is_success
        for late in ("s1", "s2"):
            told = client.post("/seed_session", json={**seed, "resources_session_id": late})
            assert (told.status_code, "was closed" in told.text) == (409, True)
        for wrong in ({"resources_session_id": 3}, {**named, "task_data": None}, {"ludus": 3}):
            assert client.post("/seed_session", json=wrong).status_code == 422
    with httpx.Client(base_url=url) as client:  # without an id, the cookie names the session
        client.post("/seed_session", json=row)
        assert client.post("/close_session", json={}).json() == {}
        assert client.post("/verify", json={**row, "response": says("1")}).status_code == 404


def test_what_the_collection_of_rollouts_asks_is_answered(url: str) -> None:
    assert httpx.get(f"{url}/reverify_mode").json() == "unsupported"
    samples = [{"_ng_task_index": 0, "reward": 1.0}, {"_ng_task_index": 1, "reward": 0.0}]
    for root in (url, f"{url}/nemo-gym/{ENV}"):
        told = httpx.post(f"{root}/aggregate_metrics", json={"verify_responses": samples}).json()
        assert told["key_metrics"] == {"mean/reward": 0.5}
    for wrong in ({}, {"verify_responses": 3}, {"verify_responses": [3]}):
        assert httpx.post(f"{url}/aggregate_metrics", json=wrong).status_code == 422


def test_a_response_that_is_none_is_refused_and_no_empty_answer(url: str) -> None:
    (row,) = rows(ENV, 1)
    with httpx.Client(base_url=url) as client:
        client.post("/seed_session", json=row)
        odd = {"output": [{"type": "message", "content": ["4"]}]}
        for wrong in ({}, [], {"output": None}, {"output": "4"}, {"output": ["4"]}, odd):
            told = client.post("/verify", json={**row, "response": wrong})
            assert (told.status_code, "'output' is a list" in told.text) == (422, True)
        silent = client.post("/verify", json={**row, "response": {"output": []}})
        assert silent.json()["reward"] == 0.0  # the policy said nothing


def test_an_action_that_a_busy_server_refuses_may_be_sent_again(serving: Serving) -> None:
    (row,) = rows(ENV, 1)
    with (
        serving(ENV, "--max-queue", "1") as url,
        httpx.Client(base_url=url) as slow,
        httpx.Client(base_url=url) as client,
        ThreadPoolExecutor() as threads,
    ):
        for each in (slow, client):
            assert each.post("/seed_session", json=row).status_code == 200
        late = threads.submit(slow.post, "/verify", json={**row, "response": says("sleep 3")})
        time.sleep(1)
        assert client.post("/add", json={"first": 1, "second": 2}).status_code == 429
        assert late.result().status_code == 200
        assert client.post("/add", json={"first": 1, "second": 2}).text == "3"
        said = says(games.answer_to(question_of(row)))
        assert client.post("/verify", json={**row, "response": said}).json()["reward"] == 1.0


def test_failed_episodes_keep_nobody_out(serving: Serving) -> None:
    (row,) = rows(ENV, 1)
    with serving(ENV, "--max-sessions", "1") as url:
        for _ in range(3):
            with httpx.Client(base_url=url) as client:
                assert client.post("/seed_session", json=row).status_code == 200
                told = client.post("/verify", json={**row, "response": says("crash")})
                assert told.status_code == 500


def test_a_client_that_never_closes_holds_its_session_for_the_lease(serving: Serving) -> None:
    (row,) = rows(ENV, 1)
    with serving(ENV, "--lease-s", "1", "--max-sessions", "1") as url, httpx.Client() as client:
        client.base_url = url
        assert client.post("/seed_session", json=row).status_code == 200
        full = httpx.post(f"{url}/seed_session", json=row)
        assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
        deadline = time.monotonic() + 60
        while httpx.post(f"{url}/seed_session", json=row).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert not client.post("/verify", json={**row, "response": says("1")}).is_success


@pytest.mark.slow
async def test_run_plays_a_whole_episode_with_the_model_server(serving: Serving) -> None:
    (row,) = rows(ENV, 1)
    said = [WIRE["call"], says("sleep 0"), says(games.answer_to(question_of(row))), says("break")]
    plain = {**row, "responses_create_params": {"input": question_of(row)}}  # a text is an input
    nonsense: list[Any] = [{}, [], {"output": "4"}, {"output": [], "error": {"code": "overloaded"}}]
    said += nonsense
    asked: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return (
            web.json_response(said[len(asked) - 1])
            if len(asked) <= len(said)
            else web.Response(status=503)
        )

    app = web.Application()
    app.router.add_post("/v1/responses", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model = f"http://127.0.0.1:{runner.addresses[0][1]}"

    def rollouts() -> list[httpx.Response]:
        with serving(ENV, "--nemo-gym-model", model) as url:
            return [
                httpx.post(f"{url}/run", json=plain, timeout=60) for _ in range(3 + len(nonsense))
            ]

    good, *bad = await asyncio.to_thread(rollouts)
    await runner.cleanup()
    assert good.json()["reward"] == 1.25
    kinds = [item["type"] for item in good.json()["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message", "message", "message"]
    assert asked[2]["input"][-1] == {"type": "message", "role": "user", "content": "slept 0"}
    assert asked[1]["input"][-1] == {
        "type": "function_call_output",
        "call_id": "call_7",
        "output": "3",
    }
    assert [one.status_code for one in bad] == [500] * (2 + len(nonsense))
    assert all("model server" in one.text for one in bad[1:])
    assert asked[0]["input"] == [{"role": "user", "content": question_of(row)}]
    assert len(asked) == len(said) + 1
