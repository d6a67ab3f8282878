"""The session protocol over real HTTP: seq, replays, conflicts, releases, leases."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from ludus.envs import TextEnv
from ludus.envs.serving.served import ServedEnv
from ludus.envs.serving.server import EnvService
from ludus.envs.serving.sessions import SessionLimits
from ludus.wire.server import HttpServer

ENV = "test/counter-v0"


RUN = "-".join(os.environ.get(f"PYTEST_XDIST_{name}", "0") for name in ("TESTRUNUID", "WORKER"))
"""The same in this process and in the workers that it starts."""


class Flag:
    """Something that tests and environments, in whichever process, tell each other by a file."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.gettempdir()) / f"ludus-{name}-{RUN}"

    def set(self) -> None:
        """Set it; it also counts how often."""
        with self.path.open("a") as file:
            file.write("x")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def times(self) -> int:
        """How often it was set."""
        return self.path.stat().st_size if self.path.exists() else 0

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; whether it was in time."""
        deadline = time.monotonic() + timeout_s
        while not self.times and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(self.times)


CLOSED, OPENED, STEPS = Flag("closed"), Flag("opened"), Flag("steps")


class Counter(TextEnv):
    """Says how many steps were played; the reward is the same number."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.count = 0
        return f"task {self.task.id}", {}

    def step(self, action: str) -> Any:
        self.count += 1
        return f"{action} {self.count}", float(self.count), self.count == 9, False, {}

    def close(self) -> None:
        CLOSED.set()


class Api:
    """Raw requests, so that nothing of our client helps."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.http.request(method, path, json=body) as reply:
            return reply.status, await reply.json()

    async def create(self, session: str, seed: int | None = 0) -> tuple[int, Any]:
        body = {"session": session, "reset": {"seed": seed}}
        return await self("POST", f"/v1/envs/{ENV}/sessions", body)

    async def step(self, session: str, seq: int, action: str = "go") -> tuple[int, Any]:
        return await self("POST", f"/v1/sessions/{session}/step", {"seq": seq, "action": action})


def service(**limits: Any) -> EnvService:
    return EnvService([ServedEnv(ENV, factory=Counter)], limits=SessionLimits(**limits))


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with HttpServer([service()]) as server, aiohttp.ClientSession(server.url) as http:
        yield Api(http)


async def test_one_request_creates_a_session_and_begins_an_episode(api: Api) -> None:
    status, reply = await api.create("a", seed=5)
    assert status == 200
    assert (reply["session"], reply["seq"], reply["task"]) == ("a", 0, "train/5")
    assert reply["observation"] == "task train/5"


async def test_create_alone_leaves_seq_0_to_the_first_reset(api: Api) -> None:
    status, reply = await api("POST", f"/v1/envs/{ENV}/sessions", {"session": "a"})
    assert (status, reply["kind"]) == (200, "created")
    status, reply = await api("POST", "/v1/sessions/a/reset", {"seq": 0, "seed": 3})
    assert (status, reply["seq"], reply["task"]) == (200, 0, "train/3")


async def test_every_reply_echoes_session_and_seq(api: Api) -> None:
    await api.create("a")
    for seq in (1, 2, 3):
        _, reply = await api.step("a", seq)
        assert (reply["session"], reply["seq"], reply["reward"]) == ("a", seq, float(seq))


async def test_a_repeated_seq_is_answered_from_the_kept_reply_and_not_played_again(
    api: Api,
) -> None:
    await api.create("a")
    first = await api.step("a", 1, "x")
    again = await api.step("a", 1, "x")
    assert first == again
    assert (await api.step("a", 2))[1]["reward"] == 2.0  # played once, so this is the second


async def test_a_repeated_seq_with_another_payload_is_409(api: Api) -> None:
    await api.create("a")
    await api.step("a", 1, "x")
    status, reply = await api.step("a", 1, "y")
    assert (status, reply["error"]["code"]) == (409, "sequence_conflict")
    assert "another payload" in reply["error"]["message"]


@pytest.mark.parametrize("seq", [2, 7])
async def test_a_skipped_seq_is_409_and_names_the_next(api: Api, seq: int) -> None:
    await api.create("a")
    status, reply = await api.step("a", seq)
    assert status == 409
    assert "the next is 1" in reply["error"]["message"]
    assert "seq" not in reply["error"]  # not used up
    assert (await api.step("a", 1))[0] == 200


async def test_a_seq_long_past_is_409(api: Api) -> None:
    await api.create("a")
    await api.step("a", 1)
    await api.step("a", 2)
    assert (await api.step("a", 1))[0] == 409


async def test_a_repeated_create_is_answered_from_the_kept_reply(api: Api) -> None:
    assert await api.create("a", 1) == await api.create("a", 1)


async def test_a_name_taken_by_another_request_is_409(api: Api) -> None:
    await api.create("a", 1)
    status, reply = await api.create("a", 2)
    assert (status, reply["error"]["code"]) == (409, "sequence_conflict")


async def test_delete_is_idempotent_and_releases_the_environment(api: Api) -> None:
    CLOSED.clear()
    await api.create("a")
    assert await api("DELETE", "/v1/sessions/a") == (
        200,
        {"kind": "released", "session": "a", "released": True},
    )
    assert await api("DELETE", "/v1/sessions/a") == (
        200,
        {"kind": "released", "session": "a", "released": False},
    )
    assert await asyncio.to_thread(CLOSED.wait, 60)


async def test_a_released_session_is_410_and_its_name_stays_taken(api: Api) -> None:
    await api.create("a")
    await api("DELETE", "/v1/sessions/a")
    assert (await api.step("a", 1))[0] == 410
    assert (await api.create("a"))[0] == 410


async def test_a_create_that_comes_after_its_delete_is_410(api: Api) -> None:
    await api("DELETE", "/v1/sessions/late")
    assert (await api.create("late"))[0] == 410


async def test_a_session_of_another_run_of_the_server_is_410_and_a_name_never_made_404(
    api: Api,
) -> None:
    body = {"seq": 1, "action": "x", "instance": "0123456789abcdef"}
    status, reply = await api("POST", "/v1/sessions/nobody/step", body)
    assert status == 410
    assert "restarted" in reply["error"]["message"]
    status, reply = await api.step("nobody", 1)
    assert (status, reply["error"]["code"]) == (404, "unknown_session")


async def test_a_step_after_the_end_is_409_and_uses_up_its_seq(api: Api) -> None:
    await api.create("a")
    for seq in range(1, 10):
        await api.step("a", seq)
    status, reply = await api.step("a", 10)
    assert (status, reply["error"]["code"], reply["error"]["seq"]) == (409, "episode_ended", 10)
    status, _ = await api("POST", "/v1/sessions/a/reset", {"seq": 11})
    assert status == 200


async def test_ids_may_come_with_plain_or_encoded_slashes(api: Api) -> None:
    plain = await api("GET", f"/v1/envs/{ENV}/tasks?limit=1")
    encoded = URL("/v1/envs/test%2Fcounter-v0/tasks?limit=1", encoded=True)
    async with api.http.get(encoded) as reply:
        assert (reply.status, await reply.json()) == plain


async def test_tasks_come_in_pages_and_by_id(api: Api) -> None:
    _, page = await api("GET", f"/v1/envs/{ENV}/tasks?split=test&offset=3&limit=2")
    assert [task["id"] for task in page["tasks"]] == ["test/3", "test/4"]
    assert page["size"] is None
    _, page = await api("GET", f"/v1/envs/{ENV}/tasks?split=test&task=test/17")
    assert [task["id"] for task in page["tasks"]] == ["test/17"]
    status, reply = await api("GET", f"/v1/envs/{ENV}/tasks?split=tset")
    assert (status, reply["error"]["code"]) == (404, "unknown_task")
    assert "did you mean 'test'" in reply["error"]["message"]


async def test_each_item_of_a_batch_has_its_own_status(api: Api) -> None:
    await api.create("a")
    items = [
        {"op": "step", "session": "a", "seq": 1, "action": "x"},
        {"op": "step", "session": "gone", "seq": 1, "action": "x", "instance": "other"},
        {"op": "create", "env": ENV, "session": "b", "reset": {"seed": 2}},
        {"op": "create", "env": "test/cuonter-v0", "session": "c"},
        {"op": "reset", "session": "a", "seq": "2"},
        {"op": "jump"},
        {"op": "delete", "session": "nobody"},
        "nonsense",
    ]
    status, reply = await api("POST", "/v1/step_batch", {"items": items})
    for _ in range(50):  # on a loaded machine some come back as 202: asked again, they are joined
        if 202 not in [item["status"] for item in reply["items"]]:
            break
        status, reply = await api("POST", "/v1/step_batch", {"items": items})
    assert status == 200
    assert [item["status"] for item in reply["items"]] == [200, 410, 200, 404, 422, 422, 200, 422]
    assert reply["items"][0]["reply"]["reward"] == 1.0
    assert "did you mean 'test/counter-v0'" in reply["items"][3]["error"]["message"]
    assert "$.seq" in reply["items"][4]["error"]["message"]


async def test_an_unused_session_is_reaped_and_a_used_one_is_not() -> None:
    async with (
        HttpServer([service(lease_s=1.0)]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        api = Api(http)
        await api.create("idle")
        await api.create("busy")
        for seq in range(1, 9):
            await asyncio.sleep(0.2)
            assert (await api.step("busy", seq))[0] == 200
        status, reply = await api.step("idle", 1)
        assert (status, reply["error"]["message"]) == (410, "session 'idle' is gone (expired)")


async def test_no_session_outlives_the_absolute_lifetime() -> None:
    async with (
        HttpServer([service(lifetime_s=0.4)]) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        api = Api(http)
        await api.create("a")
        statuses: list[int] = []
        for seq in range(1, 9):
            await asyncio.sleep(0.1)
            statuses.append((await api.step("a", seq))[0])
        assert statuses[0] == 200
        assert statuses[-1] == 410


class Gate(TextEnv):
    """A step waits until the test opens the gate."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "", {}

    def step(self, action: str) -> Any:
        STEPS.set()
        OPENED.wait(10)
        return "", 1.0, False, False, {}


@pytest.fixture
async def gated() -> AsyncIterator[Api]:
    OPENED.clear()
    STEPS.clear()
    served = EnvService([ServedEnv(ENV, factory=Gate)], limits=SessionLimits(step_timeout_s=20))
    async with HttpServer([served]) as server, aiohttp.ClientSession(server.url) as http:
        yield Api(http)
        OPENED.set()
    OPENED.clear()
    STEPS.clear()


async def test_an_operation_sent_again_while_it_runs_joins_it(gated: Api) -> None:
    await gated.create("a")
    first = asyncio.create_task(gated.step("a", 1, "x"))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(gated.step("a", 1, "x"))
    await asyncio.sleep(0.1)
    assert (await gated.step("a", 2, "x"))[0] == 409  # seq 1 is still running
    OPENED.set()
    assert await first == await second
    assert STEPS.times == 1


async def test_a_batch_does_not_wait_for_its_slowest_item(gated: Api) -> None:
    await gated.create("slow")
    step = {"op": "step", "session": "slow", "seq": 1, "action": "x"}
    quick = {"op": "create", "env": ENV, "session": "quick", "reset": {"seed": 0}}
    async with asyncio.timeout(60):
        _, reply = await gated("POST", "/v1/step_batch", {"items": [step, quick]})
    assert [item["status"] for item in reply["items"]] == [202, 200]
    OPENED.set()
    _, reply = await gated("POST", "/v1/step_batch", {"items": [step]})
    assert [item["status"] for item in reply["items"]] == [200]
    assert STEPS.times == 1


async def test_a_client_that_disconnects_leaves_the_step_to_be_joined(gated: Api) -> None:
    await gated.create("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await gated.step("a", 1, "x")
    OPENED.set()
    assert (await gated.step("a", 1, "x"))[1]["reward"] == 1.0
    assert STEPS.times == 1


async def test_a_release_while_a_step_runs_answers_its_waiters_and_closes_after_it(
    gated: Api,
) -> None:
    await gated.create("a")
    running = asyncio.create_task(gated.step("a", 1, "x"))
    await asyncio.sleep(0.1)
    assert (await gated("DELETE", "/v1/sessions/a"))[1]["released"] is True
    OPENED.set()
    assert (await running)[0] == 200
    assert (await gated.step("a", 2, "x"))[0] == 410


class Wordy(TextEnv):
    """Answers with as many letters as the action says."""

    never_blocks = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return "", {}

    def step(self, action: str) -> Any:
        return "x" * int(action), 0.0, False, False, {}


async def test_long_replies_of_many_sessions_share_one_budget() -> None:
    limits = SessionLimits(max_kept_bytes=1_000_000)
    served = EnvService([ServedEnv(ENV, factory=Wordy)], limits=limits)
    async with HttpServer([served]) as server, aiohttp.ClientSession(server.url) as http:
        api = Api(http)
        for name in "abcde":
            await api.create(name)
            assert (await api.step(name, 1, "400000"))[0] == 200
        kept = server.metrics.registry.get_sample_value("ludus_kept_bytes")
        assert 400_000 < (kept or 0) <= 1_000_000
        statuses = [(await api.step(name, 1, "400000"))[0] for name in "abcde"]
        assert statuses == [410, 410, 410, 200, 200]  # forgotten; the last two are kept
        assert (await api.step("a", 2, "3"))[1]["observation"] == "xxx"  # the session goes on
        for name in "abcde":
            await http.delete(f"/v1/sessions/{name}")
        assert server.metrics.registry.get_sample_value("ludus_kept_bytes") == 0
