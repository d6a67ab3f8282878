"""openenv/URL, against a server of the package itself, where openenv-core is installed."""

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


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of openenv-core, in an interpreter that has the package."""
    python = shutil.which(os.environ.get(PYTHON_VARIABLE, sys.executable)) or sys.executable
    there = subprocess.run([python, "-c", "import openenv.core"], capture_output=True, check=False)
    if there.returncode:
        pytest.skip(f"openenv-core is not installed in {python}; {PYTHON_VARIABLE} names another")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen([python, str(APP), str(port)])
    try:
        deadline = time.monotonic() + 60
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
def test_rewards_are_the_servers(server: str) -> None:
    env = ludus.make(f"openenv/{server}")
    for index in range(20):
        shown, _ = env.reset(options={"task": f"train/{index}"})
        word = str(shown).removeprefix("say ")
        said = word if index % 2 else "no"
        assert env.step(said)[1:3] == (float(index % 2), True)
    env.reset(seed=0)
    with pytest.raises(RewardUnavailable) as caught:
        env.step("boom")
    assert caught.value.verdict.status is Status.ERROR
    assert "the board fell down" in caught.value.verdict.detail
    env.close()
