"""Settings for every test, and the Docker engine some of them need."""

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example may take long, and so may drawing one; no test is at fault then.
settings.register_profile("ludus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ludus")

# Tiny models are faster on one thread, and tests share the machine with the servers they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs, and all they start, ignore Ctrl-C, which tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WITH_DOCKERD = Path(__file__).resolve().parents[1] / "scripts" / "with_dockerd.sh"


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests against a Docker engine are slow ones: starting it, and each container, takes long.
    Where tests run side by side, those share one engine. Tests of large models run only when they
    are asked for.
    """
    if "large" not in str(config.getoption("-m")):
        items[:] = [item for item in items if not item.get_closest_marker("large")]
    for item in items:
        asked = "docker_host" in getattr(item, "fixturenames", ())
        case = getattr(item, "callspec", None)
        if asked or (case is not None and "docker" in case.params.values()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("docker"))


@pytest.fixture(autouse=True)
def what_is_left_open_is_found_by_its_own_test() -> Iterator[None]:
    """A socket or file that a test leaves open warns when it is collected, which is an error here.
    Collected now, the error is this test's and not that of whichever runs then.
    """
    yield
    gc.collect(1)  # what is young enough to be of this test


@pytest.fixture
def costs_at_most() -> Callable[[int], AbstractContextManager[None]]:
    """Holds the CPU time of a `with` block against that of a fixed piece of work, about 10 ms, done
    right before and after it: where the machine is slow or busy, it is so for both.
    """

    @contextmanager
    def bounded(units: int) -> Generator[None]:
        before_s = _unit_s()
        started = time.process_time()
        yield
        took_s = time.process_time() - started
        unit_s = max(before_s, _unit_s())
        assert took_s < units * unit_s, f"{took_s / unit_s:.0f} units of {unit_s:.3f} s"

    return bounded


def _unit_s() -> float:
    started = time.process_time()
    total = 0
    for number in range(200_000):
        total += number
    return time.process_time() - started


@pytest.fixture(scope="session")
def run_example() -> Callable[[str], ModuleType]:
    """Reads a file of `examples/` as a module, as if its reader had written it."""

    def run(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look for it there
        spec.loader.exec_module(module)
        return module

    return run


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
