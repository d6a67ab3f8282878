"""The rows of `sandbox.py` that need a Docker engine: slots in containers, the same under gVisor,
and `docker exec` into a warm container with the same walls.

The engine is one of its own (scripts/with_dockerd.sh), inside a control group, so that the CPU of
daemon, shims and client is counted with the programs'.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ludus.sandboxes import DockerSandbox, Limits
from ludus.sandboxes.docker import roots
from ludus.sandboxes.docker.config import Container
from ludus.sandboxes.docker.engine import DockerEngine
from ludus.sandboxes.local.control_groups import BorrowedGroup, ControlGroup, group_of
from ludus.sandboxes.local.mounts import readable_places
from ludus.sandboxes.local.supervisor import PYTHON

WITH_DOCKERD = Path(__file__).resolve().parents[1] / "scripts" / "with_dockerd.sh"
SLEEP = "import time; time.sleep(3600)"
HELLO = "print('hi')"

Run = Callable[[], Awaitable[None]]
Clock = Callable[[], float]


@asynccontextmanager
async def engine(group: ControlGroup | None) -> AsyncIterator[str]:
    """The address of an engine in `group`; "" where none can be started."""
    if os.getuid() != 0 or not shutil.which("dockerd") or not group:
        yield ""
        return
    started = await asyncio.create_subprocess_exec(
        *(WITH_DOCKERD, "sh", "-c", "echo $DOCKER_HOST; exec cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: join(group),
    )
    assert started.stdin
    assert started.stdout
    try:
        yield (await started.stdout.readline()).decode().strip()
    finally:
        started.stdin.close()
        await started.wait()


def join(group: ControlGroup) -> None:
    """Make this process a member of `group`."""
    for procs in group.procs_files:
        with open(procs, "w") as stream:
            stream.write("0")


def clock(*groups: ControlGroup) -> Clock:
    """CPU seconds of this process and of all in `groups`."""

    def read() -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return own.ru_utime + own.ru_stime + sum(group.cpu_s() for group in groups)

    return read


@asynccontextmanager
async def in_containers(
    host: str, group: ControlGroup, runtime: str | None
) -> AsyncIterator[tuple[Run, Clock]]:
    """A run in a warm slot of the tier `docker`."""
    sandbox = await DockerSandbox.open(docker_host=host, size=2, runtime=runtime)
    limits = Limits(timeout_s=60)

    async def run() -> None:
        done = await sandbox.execute(HELLO, limits=limits)
        assert done.ok, done

    try:
        await sandbox.pool().warm()
        slots = sandbox.pool()._of  # pyright: ignore[reportPrivateUsage]
        yield run, clock(group, *(slot.group for slot in slots if slot.group))
    finally:
        await sandbox.close()


@asynccontextmanager
async def by_exec(host: str, group: ControlGroup) -> AsyncIterator[tuple[Run, Clock]]:
    """`docker exec` of a bare interpreter in one warm container."""
    engine = DockerEngine.connect(host)
    with tempfile.TemporaryDirectory() as folder:
        etc = Path(folder) / "etc"
        roots.write_etc(etc, 65534, 65534)
        described = Container(
            image=roots.ensure_image(engine),
            python=(PYTHON,),
            mounts=roots.mounts(readable_places(), [], etc),
            processes=256,
            disk_bytes=64 << 20,
        )
        container = engine.create(described.trial(SLEEP))
        engine.start(container)
        words = (
            "docker",
            "--host",
            host,
            "exec",
            "--user",
            "65534",
            container,
            PYTHON,
            "-I",
            "-c",
            HELLO,
        )

        async def run() -> None:
            process = await asyncio.create_subprocess_exec(
                *words, stdout=subprocess.DEVNULL, preexec_fn=lambda: join(group)
            )
            assert await process.wait() == 0

        try:
            yield run, clock(group, _group_of_container(host, container))
        finally:
            engine.remove(container)


def _group_of_container(host: str, container: str) -> BorrowedGroup:
    words = ["docker", "--host", host, "inspect", "--format", "{{.State.Pid}}", container]
    pid = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    group = group_of(pid)
    assert isinstance(group, BorrowedGroup), group
    return group
