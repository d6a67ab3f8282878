"""openenv/URL, against a server and a client of the package, in an interpreter that has it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus.envs.checks import check_env
from ludus.errors import RewardUnavailable
from ludus.verdict import Status

pytestmark = pytest.mark.peers
APP = Path(__file__).with_name("in_openenv_app.py")
PYTHON_VARIABLE = "LUDUS_OPENENV_PYTHON"
EPISODES = 100
THEIRS = """
import asyncio, json, sys
from openenv import GenericEnvClient

async def main():
    episodes = []
    async with GenericEnvClient(base_url=sys.argv[1]) as env:
        for seed in range(int(sys.argv[2])):
            shown = (await env.reset(seed=seed)).observation["shown"]
            word = shown.removeprefix("say ")
            said = (word, "no", word[0])[seed % 3]
            ended = await env.step({"text": said})
            episodes.append([shown, said, ended.reward, ended.done])
    print(json.dumps(episodes))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has the package."""
    path = shutil.which(os.environ.get(PYTHON_VARIABLE, sys.executable)) or sys.executable
    there = subprocess.run([path, "-c", "import openenv.core"], capture_output=True, check=False)
    if there.returncode:
        pytest.skip(f"openenv is not installed in {path}; {PYTHON_VARIABLE} names another")
    return path


@pytest.fixture(scope="module")
def server(python: str) -> Iterator[str]:
    """The address of a server of the package."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([python, str(APP), str(port)])
    try:
        deadline = time.monotonic() + 180  # its imports alone take half a minute
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.filterwarnings("default")
def test_an_environment_of_a_real_server_passes_the_check(server: str) -> None:
    assert not check_env(f"openenv/{server}?deterministic=true").failures


@pytest.mark.filterwarnings("default")
def test_a_hundred_episodes_have_the_rewards_of_the_packages_client(
    server: str, python: str
) -> None:
    played = subprocess.run(
        [python, "-c", THEIRS, server, str(EPISODES)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    episodes = json.loads(played.stdout)
    assert {reward for _, _, reward, _ in episodes} == {0.0, 0.5, 1.0}
    env = ludus.make(f"openenv/{server}")
    for index, (question, said, reward, over) in enumerate(episodes):
        shown, _ = env.reset(options={"task": f"train/{index}"})
        assert shown == question
        assert env.step(said)[1:3] == (reward, over)
    assert len(episodes) == EPISODES
    env.close()


@pytest.mark.filterwarnings("default")
def test_a_failure_of_the_server_is_no_reward(server: str) -> None:
    env = ludus.make(f"openenv/{server}")
    env.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        env.step("boom")
    assert caught.value.verdict.status is Status.ERROR
    assert "the board fell down" in caught.value.verdict.detail
    env.close()
