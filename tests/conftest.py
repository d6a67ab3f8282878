"""Settings for every test, and the Docker engine some of them need."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tiny models are faster on one thread, and tests share the machine with the servers they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

WITH_DOCKERD = Path(__file__).resolve().parents[1] / "scripts" / "with_dockerd.sh"


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests against a Docker engine are slow ones: starting it, and each container, takes long.
    Where tests run side by side, those share one engine.
    """
    for item in items:
        asked = "docker_host" in getattr(item, "fixturenames", ())
        case = getattr(item, "callspec", None)
        if asked or (case is not None and "docker" in case.params.values()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("docker"))


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """The address of a Docker engine: the one `DOCKER_HOST` names, or one of our own."""
    if host := os.environ.get("DOCKER_HOST"):
        yield host
        return
    if os.getuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("needs DOCKER_HOST, or root and dockerd (apt-get install docker.io)")
    # the engine lives as long as `cat`, and `cat` as long as this process
    shows_and_waits = ["sh", "-c", "echo $DOCKER_HOST; exec cat"]
    engine = subprocess.Popen(
        [WITH_DOCKERD, *shows_and_waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert engine.stdin
    assert engine.stdout
    host = engine.stdout.readline().strip()
    if not host:
        engine.wait(timeout=60)
        pytest.skip("dockerd does not start here (its own words are above)")
    os.environ["DOCKER_HOST"] = host
    yield host
    del os.environ["DOCKER_HOST"]
    engine.stdin.close()
    engine.stdout.close()
    engine.wait(timeout=60)
