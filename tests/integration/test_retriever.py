"""`ludus retriever` as a process: the requests of Search-R1, and episodes when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

import ludus
from ludus.agent import ScriptedPolicy, play
from ludus.envs import make_async
from ludus.envs.serving.server import EnvService
from ludus.errors import RewardUnavailable
from ludus.messages import ToolCall, assistant
from ludus.verdict import Status
from ludus.wire.server import BackgroundServer, HttpServer

pytest.importorskip("bm25s", reason="the extra 'search' is not installed")
DATA = os.environ.get("LUDUS_DATA_DIR", "")
SEARCH = assistant("", [ToolCall(name="search", arguments={"query": "Vithford"})])


@contextmanager
def retriever(*arguments: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The address of a fresh one."""
    command = [sys.executable, "-m", "ludus", "retriever", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield line.split()[-1].removesuffix("/retrieve"), process
    finally:
        process.kill()
        process.communicate(timeout=30)


def post(url: str, body: object) -> Any:
    """As `requests.post(url, json=body).json()` sends it."""
    headers = {"Content-Type": "application/json", "Accept": "*/*"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def status_of(url: str, body: object) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, body)
    with caught.value as error:
        return error.code


def test_it_answers_the_requests_search_r1_sends() -> None:
    with retriever("--people", "60", "--topk", "2") as (url, _):
        full = {"queries": ["person mentor", "town mayor"], "topk": 5, "return_scores": True}
        answered = post(f"{url}/retrieve", full)["result"]
        assert [len(hits) for hits in answered] == [5, 5]
        for hit in (hit for hits in answered for hit in hits):
            assert set(hit) == {"document", "score"}
            assert set(hit["document"]) == {"id", "contents"}
            title, text = hit["document"]["contents"].split("\n")
            assert title.startswith('"')
            assert text.startswith(title.strip('"'))
            assert hit["score"] > 0
        for bare in ({}, {"topk": None}, {"topk": 0}, {"return_scores": False}):
            (documents,) = post(f"{url}/retrieve", {"queries": ["person"], **bare})["result"]
            assert [set(document) for document in documents] == [{"id", "contents"}] * 2
        assert post(f"{url}/retrieve", {"queries": []}) == {"result": []}
        for wrong in ({}, {"queries": "x"}, {"queries": [1]}, {"queries": ["x"], "topk": 1000}):
            assert status_of(f"{url}/retrieve", wrong) == 422
        assert status_of(f"{url}/search", {"queries": ["x"]}) == 404


@pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR names no folder with the data sets")
def test_it_serves_the_6119_passages_of_2wiki() -> None:
    process_line = f"{DATA}/search/2wiki_corpus.json"
    with retriever(process_line) as (url, _):
        body = {"queries": ["Teutberga queen of Lotharingia", "Bishop of Elmham Theodred II"]}
        found = post(f"{url}/retrieve", body)["result"]
        assert found[0][0]["contents"].startswith('"Teutberga"\n')
        assert found[1][0]["contents"].startswith('"Theodred II (Bishop of Elmham)"\n')
    from ludus.envs.families.search.retrievers import corpus_index

    assert len(corpus_index(process_line).documents) == 6119


@pytest.mark.skipif(not DATA, reason="LUDUS_DATA_DIR names no folder with the data sets")
@pytest.mark.parametrize(("name", "size"), [("hotpotqa_dev.json", 7403), ("bamboogle.csv", 125)])
async def test_real_question_files_are_played(name: str, size: int) -> None:
    """Of HotpotQA's 7405 questions two have no answer that SQuAD's rules leave anything of:
    `The The` and `!!!`.
    """
    made = make_async(
        "ludus/search-v0", corpus=f"{DATA}/search/2wiki_corpus.json",
        questions=f"{DATA}/search/{name}", validation=0.0, test=0.0,
    )  # fmt: skip
    assert made.tasks("train").size == size
    for seed in range(20):
        await made.reset(seed=seed)
        while True:
            action = made.env.demonstrate()
            assert action is not None
            _, reward, terminated, _, _ = await made.step(action)
            if terminated:
                break
        assert reward == 1.0


async def test_a_remote_retriever_finds_what_the_local_one_finds() -> None:
    with retriever() as (url, _):
        seen: list[Any] = []
        for arguments in ({}, {"retriever": url}):
            made = make_async("ludus/search-v0", **arguments)
            await made.reset(seed=5)
            action = made.env.demonstrate()
            assert action is not None
            seen.append((await made.step(action))[0])
            await made.close()
        assert seen[0] == seen[1]


@pytest.mark.slow
async def test_an_episode_whose_retriever_is_killed_is_excluded() -> None:
    with retriever() as (url, process):
        made = make_async("ludus/search-v0", retriever=url, timeout_s=1.0)
        await made.reset(seed=0)
        await made.step(SEARCH)
        process.kill()
        process.wait(timeout=60)
        with pytest.raises(RewardUnavailable) as caught:
            await made.step(SEARCH)
        assert caught.value.verdict.status is Status.UNAVAILABLE
        episode = await asyncio.wait_for(play(made, ScriptedPolicy(lambda _: SEARCH)), 60)
        (trajectory,) = episode.trajectories
        assert trajectory.verdict.status is Status.UNAVAILABLE
        assert trajectory.verdict.reward is None
        assert trajectory.exclude_from_loss
        assert trajectory.exclude_from_baseline
        await made.close()


@pytest.mark.slow
async def test_a_retriever_killed_while_an_episode_waits_is_no_reward_either() -> None:
    with retriever("--people", "60") as (url, process):
        made = make_async("ludus/search-v0", retriever=url, people=60, timeout_s=2.0)
        process.send_signal(signal.SIGSTOP)  # takes the request, and never answers
        asyncio.get_running_loop().call_later(0.5, process.kill)
        episode = await asyncio.wait_for(play(made, ScriptedPolicy(lambda _: SEARCH)), 60)
        assert process.wait(timeout=60) == -signal.SIGKILL
        (trajectory,) = episode.trajectories
        assert trajectory.verdict.status is Status.UNAVAILABLE
        assert trajectory.verdict.reward is None
        assert trajectory.exclude_from_loss
        assert trajectory.exclude_from_baseline
        await made.close()


@pytest.mark.slow
def test_a_token_in_the_path_serves_clients_and_episodes() -> None:
    with retriever("--people", "60", "--host", "0.0.0.0", "--token", "s3cret") as (url, _):
        address = f"{url}/s3cret/retrieve"
        assert post(address, {"query": "person"})["result"][0]
        assert status_of(f"{url}/retrieve", {"query": "person"}) == 401
        env = f"ludus/search-v0?retriever={address}&people=60"
        command = [sys.executable, "-m", "ludus", "eval", env, "--policy", "expert", "--tasks", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "mean reward  1.000" in done.stdout


def test_a_dead_retriever_is_no_reward_over_http_either() -> None:
    with retriever() as (url, process):
        process.kill()
        process.wait(timeout=60)
        service = EnvService([f"ludus/search-v0?retriever={url}&timeout_s=1"])
        with BackgroundServer(HttpServer([service])) as served:
            server = ludus.connect(served)
            env = server.make("ludus/search-v0")
            env.reset(seed=0)
            with pytest.raises(RewardUnavailable, match="retriever at"):
                env.step(SEARCH)
            env.close()
            server.close()


@pytest.mark.slow
def test_it_stops_on_sigterm_and_says_what_cannot_be() -> None:
    with retriever("--people", "60") as (_, process):
        process.terminate()
        assert process.wait(timeout=60) == 0
    for arguments, words in [
        (["none.json"], "cannot read 'none.json'"),
        (["--topk", "0"], "--topk must be from 1"),
        (["--port", "-1"], "--port must be from 0"),
        (["--host", "0.0.0.0"], "without a token"),
    ]:
        command = [sys.executable, "-m", "ludus", "retriever", *arguments]
        environment = {k: v for k, v in os.environ.items() if k != "LUDUS_TOKEN"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
