"""OpenEnv's own clients and its validator, unmodified, against `ludus serve`."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.cli.main import main

from . import games
from .conftest import Serving

WHY = "make test-peers installs openenv"
openenv: Any = pytest.importorskip("openenv", reason=WHY)
requests: Any = pytest.importorskip("requests", reason=WHY)
mcp_client: Any = pytest.importorskip("openenv.core.mcp_client", reason=WHY)

ENV = "peers/sums-v0"
try:  # the old distribution, openenv-core, has the same modules
    RELEASE = tuple(map(int, version("openenv").split(".")[:2]))
except PackageNotFoundError:
    RELEASE = (0, 3)
DROPS = RELEASE >= (0, 10)
"""Whether a client drops its connection, and the episode with it, when an answer is late."""


@pytest.fixture(scope="module")
def url(serving: Serving) -> Iterator[str]:
    with serving(ENV, "ludus/arithmetic-v0") as address:
        yield address


def client(url: str, **settings: Any) -> Any:
    return openenv.GenericEnvClient(base_url=url, **settings)


def test_the_validator_passes_every_criterion(url: str) -> None:
    program = str(Path(sys.executable).with_name("openenv"))
    command = [program, "validate", "--url", url, *(["--json"] if DROPS else [])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert report["summary"]["passed_count"] == report["summary"]["total_count"] >= 6
    assert report["standard_profile"] == "openenv-http/1.x"


async def test_a_thousand_episodes_are_right_also_after_timeouts(url: str) -> None:
    """Some episodes have a step that takes longer than the client waits. Whatever the client does
    then, each answer is the one to its own question, with the reward that the environment gives in
    this process.
    """
    local = ludus.make(games.Sums)
    late = {7: "reset", 170: "wait", 330: "step", 500: "reset", 670: "wait", 830: "step"}
    finished = 0
    async with client(url, message_timeout_s=1.0) as env:
        for seed in range(1000):
            begun = await env.reset(seed=seed)
            question = begun.observation["text"]
            assert question == local.reset(seed=seed)[0]
            assert (begun.reward, begun.done) == (None, False)
            if seed in late:
                with pytest.raises(TimeoutError):
                    await env.step({"message": "sleep 1.3"})
                if late[seed] == "reset":
                    continue
                if DROPS:  # connected anew, to an environment in which nothing has begun
                    with pytest.raises(RuntimeError, match="reset first"):
                        await env.step({"message": "no idea"})
                    continue
                await asyncio.sleep(0.8 if late[seed] == "wait" else 0)
            said = games.answer_to(question) if seed % 3 else "no idea"
            ended = await env.step({"message": said})
            assert (ended.reward, ended.done) == (local.step(said)[1], True)
            assert ended.reward == float(seed % 3 > 0)
            finished += 1
    assert finished == (994 if DROPS else 998)


@pytest.mark.skipif(DROPS, reason="this client connects anew")
async def test_an_answer_that_comes_late_is_told_with_the_next_one(url: str) -> None:
    async with client(url, message_timeout_s=0.3) as env:
        await env.reset(seed=3)
        with pytest.raises(TimeoutError):
            await env.step({"message": "sleep 0.6"})
        await asyncio.sleep(0.6)
        after = await env.step({"message": "sleep 0"})
    assert after.observation["text"] == "slept 0"
    assert [missed["observation"]["text"] for missed in after.observation["missed"]] == [
        "slept 0.6"
    ]
    assert after.observation["missed"][0]["reward"] == 0.25


async def test_a_slow_answer_reaches_a_client_that_waits(url: str) -> None:
    async with client(url) as env:
        await env.reset(seed=1)
        slow = [await env.step({"message": f"sleep {wait}"}) for wait in (0.1, 0.3, 0.02)]
    assert [answer.observation["text"] for answer in slow] == [
        "slept 0.1",
        "slept 0.3",
        "slept 0.02",
    ]
    assert not any("missed" in answer.observation for answer in slow)


async def test_two_clients_of_one_name_play_their_own_episodes(url: str) -> None:
    async with client(url) as one, client(url) as two:
        first = await one.reset(seed=1, episode_id="mine")
        second = await two.reset(seed=2, episode_id="mine")
        assert first.observation["text"] != second.observation["text"]
        ends = await asyncio.gather(
            one.step({"message": games.answer_to(first.observation["text"])}),
            two.step({"message": games.answer_to(first.observation["text"])}),
        )
        assert [end.reward for end in ends] == [1.0, 0.0]
        assert (await one.state())["episode_id"] == (await two.state())["episode_id"] == "mine"


async def test_a_client_that_never_closes_holds_its_session_for_the_lease(serving: Serving) -> None:
    with serving(ENV, "--lease-s", "1") as url:
        env = client(url)
        await env.connect()
        begun = await env.reset(seed=5)
        assert sessions_at(url) == 1
        deadline = time.monotonic() + 60
        while sessions_at(url) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        assert sessions_at(url) == 0
        with pytest.raises(RuntimeError, match="SESSION_ERROR"):
            await env.step({"message": "1"})
        again = await env.reset(seed=5)  # the connection goes on
        assert again.observation["text"] == begun.observation["text"]
        await env.close()


def sessions_at(url: str) -> int:
    text = requests.get(f"{url}/metrics", timeout=60).text
    found = re.search(r'ludus_sessions\{env="peers/sums-v0"\} (\S+)', text)
    assert found
    return int(float(found[1]))


async def test_an_episode_without_a_reward_is_an_error_and_never_a_number(url: str) -> None:
    async with client(url) as env:
        for broken in ("break", "crash"):
            await env.reset(seed=1)
            with pytest.raises(RuntimeError, match="EXECUTION_ERROR") as raised:
                await env.step({"message": broken})
            assert ("no reward" in str(raised.value)) == (broken == "break")
            with pytest.raises(RuntimeError, match="SESSION_ERROR"):
                await env.step({"message": "1"})
        await env.reset(seed=1)  # positive control: a wrong answer is a zero
        assert (await env.step({"message": "1"})).reward == 0.0


async def test_neither_frames_nor_pages_hold_the_gold(url: str) -> None:
    heard: list[str] = []

    class Listening(openenv.GenericEnvClient):  # type: ignore[misc, name-defined]
        async def _receive(self) -> dict[str, Any]:
            message: dict[str, Any] = await super()._receive()
            heard.append(json.dumps(message))
            return message

    async with Listening(base_url=url) as env:
        begun = await env.reset(seed=1)
        await env.step({"type": "list_tools"})
        await env.step({"tool_calls": [{"name": "add", "arguments": {"first": 1, "second": 2}}]})
        for hidden in ("gold", "demonstrate"):
            refused = await env.step({"tool_calls": [{"name": hidden}]})
            assert "no tool" in refused.observation["text"]
        await env.state()
        await env.step({"message": games.answer_to(begun.observation["text"])})
    paths = ["/schema", "/metadata", "/web", "/state", "/health", "/openapi.json"]
    heard += [requests.get(url + path, timeout=60).text for path in paths]
    assert len(heard) == 13
    assert not [text for text in heard if games.SECRET in text]
    tools = json.loads(heard[1])["data"]["observation"]["tools"]
    assert [tool["name"] for tool in tools] == ["add", "submit", "say"]
    # positive control: the gold is there to be leaked
    local = ludus.make(games.Sums)
    local.reset(seed=1)
    assert local.step("1")[4]["gold"].startswith(games.SECRET)


@pytest.mark.parametrize("production", [False, True])
async def test_mcp_clients_list_and_call_the_declared_tools(url: str, production: bool) -> None:
    env = mcp_client.MCPToolClient(base_url=url)
    env.use_production_mode = production
    async with env:
        assert [tool.name for tool in await env.list_tools()] == ["add", "submit", "say"]
        if not production:
            await env.reset(seed=1)
        assert await env.call_tool("add", first=2, second=3) == "5"
        assert await env.call_tool("submit", total=1) == "taken"


def test_plain_http_keeps_the_episode_between_requests(url: str) -> None:
    with requests.Session() as one, requests.Session() as two:
        begun = one.post(f"{url}/reset", json={"seed": 1}, timeout=60).json()
        other = two.post(f"{url}/reset", json={"seed": 2}, timeout=60).json()
        slept = one.post(f"{url}/step", json={"action": {"message": "sleep 0"}}, timeout=60).json()
        assert slept["reward"] == 0.25
        assert one.get(f"{url}/state", timeout=60).json()["step_count"] == 1
        for session, question in ((one, begun), (two, other)):
            said = games.answer_to(question["observation"]["text"])
            end = session.post(f"{url}/step", json={"action": {"message": said}}, timeout=60).json()
            assert (end["reward"], end["done"]) == (1.0, True)
        one.post(f"{url}/reset", json={}, timeout=60)
        broken = one.post(f"{url}/step", json={"action": {"message": "break"}}, timeout=60)
        assert broken.status_code == 424
        assert "reward" not in broken.json()
    stranger = requests.post(f"{url}/step", json={"action": {"message": "1"}}, timeout=60)
    assert stranger.status_code == 404
    assert "X-Session-Id" in stranger.text


@pytest.mark.parametrize(
    ("sent", "code", "named"),
    [
        ("{", "INVALID_JSON", "not JSON"),
        ('{"type": "subscribe"}', "UNKNOWN_TYPE", "subscribe"),
        ('["reset"]', "UNKNOWN_TYPE", "None"),
        ('{"type": "reset", "data": {}, "request_id": "7"}', "VALIDATION_ERROR", "'data'"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR", "seed"),
        ('{"type": "reset", "data": {"sead": 1}}', "VALIDATION_ERROR", "sead"),
        ('{"type": "reset", "data": {"task": "train/x"}}', "VALIDATION_ERROR", "train/x"),
        ('{"type": "step", "data": {"messag": "1"}}', "VALIDATION_ERROR", "message"),
        ('{"type": "step", "data": {}}', "VALIDATION_ERROR", "message"),
        ('{"type": "step", "data": {"type": "fly"}}', "VALIDATION_ERROR", "fly"),
        ('{"type": "step", "data": {"message": "1"}}', "SESSION_ERROR", "reset"),
    ],
)
async def test_a_client_of_another_version_is_told_what_is_wrong(
    url: str, sent: str, code: str, named: str
) -> None:
    async with client(url) as env:
        await env._ws.send(sent)
        refused = await env._receive()
        assert refused["type"] == "error"
        assert refused["data"]["code"] == code
        assert named in refused["data"]["message"]
        assert (await env.reset(seed=1)).done is False  # the connection goes on


async def test_each_environment_has_an_address_of_its_own(url: str) -> None:
    async with client(f"{url}/openenv/ludus/arithmetic-v0") as env:
        begun = await env.reset(seed=7)
        assert begun.observation["text"] == ludus.make("ludus/arithmetic-v0").reset(seed=7)[0]
    with pytest.raises(ConnectionError):
        await client(f"{url}/openenv/ludus/nothing-v0").connect()


async def test_the_token_stands_in_the_path(serving: Serving) -> None:
    with serving(ENV, "--token", "open-sesame") as url:
        async with client(f"{url}/open-sesame") as env:
            assert (await env.reset(seed=1)).observation["task"] == "train/1"
        for wrong in ("", "/close-sesame"):
            with pytest.raises(ConnectionError):
                await client(url + wrong).connect()


async def test_pages_of_other_sites_may_not_connect(url: str) -> None:
    connect = import_module("websockets.asyncio.client").connect
    refused = import_module("websockets.exceptions").InvalidStatus
    address = url.replace("http", "ws") + "/ws"
    with pytest.raises(refused):
        await connect(address, origin="https://elsewhere.example")
    own = await connect(address, origin=url)
    await own.close()


@pytest.mark.skipif(not DROPS, reason="openenv-core has no validation reports")
def test_their_reader_takes_the_report_of_an_audit_and_comes_to_its_verdict(tmp_path: Path) -> None:
    reports: Any = import_module("openenv.validation.report")
    policies: Any = import_module("openenv.validation.policy")
    sums = str(Path(games.__file__))
    command = [sys.executable, "-m", "ludus", "--import", sums, "audit", ENV, "--json"]
    ran = subprocess.run(
        [*command, "--tasks", "4", "--budget-s", "30"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    report = reports.ValidationReportV2.model_validate_json(ran.stdout)
    policy = policies.load_policy(report.policy_version)
    verdict = policies.apply_policy(report.results, policy, report.lane)
    assert report.verdict is verdict
    assert len(report.results) == len(policy.entries_for_lane(report.lane))
    assert ran.returncode == (verdict.value == "fail")


@pytest.mark.skipif(not DROPS, reason="openenv-core has no training traces")
def test_their_reader_takes_the_training_trace_of_an_export(tmp_path: Path) -> None:
    traces: Any = import_module("openenv.core.harness.training")
    first = Turn(out_ids=[4, 5], logprobs=[-0.5, -0.25], versions=[1, 1])
    last = Turn(obs_ids=[6], out_ids=[7], logprobs=[-1.0], versions=[1])
    segment = Segment(prompt_ids=[1, 2, 3], turns=[first, last])
    trajectory = Trajectory(verdict=ludus.Verdict.of(1.0), segments=[segment])
    file = tmp_path / "episodes.jsonl"
    write_episodes(file, [Episode(task="train/3", ordinal=0, trajectories=[trajectory])])
    assert main(["export", str(file), "--to", "training-trace", "--out", str(tmp_path)]) == 0
    (line,) = (tmp_path / "traces.jsonl").read_text().splitlines()
    trace = traces.TrainingTrace.model_validate_json(line)
    assert [turn.completion_token_ids for turn in trace.turns] == [[4, 5], [7]]
    assert trace.turns[1].loss_mask == [0] * 6 + [1]


@pytest.mark.skipif(not DROPS, reason="openenv-core has no manifests")
async def test_a_package_of_ludus_new_has_a_manifest_of_version_2(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validator's parsers read manifest and plan, and the plan's episode is played as it
    would play it.
    """
    assert main(["new", "env", "peers/spell-v0", "--for", "openenv", "--into", str(tmp_path)]) == 0
    folder = tmp_path / "peers-spell"
    parser = import_module("openenv.validation.parsers.openenv_yaml").OpenEnvYamlParser()
    manifest = parser.parse(folder)
    assert (manifest.manifest_schema_version, manifest.name) == ("2", "peers_spell")
    assert (folder / manifest.execution.dockerfile).is_file()
    contracts = import_module("openenv.validation.runtime.contracts")
    plan = contracts.load_runtime_plan(folder, manifest.execution)
    monkeypatch.setenv("PYTHONPATH", str(folder / "src"))
    registered = tmp_path / "registered.py"
    registered.write_text(
        "import ludus\nfrom peers_spell.spell import Spell\n"
        "ludus.register('peers/spell-v0')(Spell)\n"
    )
    with serving("peers/spell-v0", also=registered) as url:
        async with client(url) as env:
            given = {"episode_id": plan.reset.episode_id, "seed": plan.reset.seed}
            begun = await env.reset(**given, **plan.reset.options)
            assert (begun.reward, begun.done) == (None, False)
            for action in plan.actions:
                ended = await env.step(action)
    low, high = manifest.reward.range
    assert ended.done
    assert low <= ended.reward <= high
