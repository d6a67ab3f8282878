"""Containers as sandboxes: any image, what a killed driver leaves, and what the engine is told."""

# ruff: noqa: E501 - programs, one to a line
from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ludus.errors import ConfigError
from ludus.sandboxes import (
    DockerSandbox,
    ExecutionStatus,
    Limits,
    Session,
    examine,
    execute,
    open_sandbox,
)
from ludus.sandboxes.docker.config import CAPABILITIES
from ludus.sandboxes.docker.engine import OWNER, DockerEngine
from ludus.sandboxes.owners import owner

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
SHELL_IMAGE = "ludus-test-shell:1"
PYTHON_IMAGE = "ludus-test-python:1"


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[Any]:
    import docker

    with docker.APIClient(base_url=docker_host, version="auto", timeout=60) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox(docker_host: str) -> AsyncIterator[DockerSandbox]:
    opened = await DockerSandbox.open(size=2)
    yield opened
    await opened.close()


def root_file_system(programs: list[str], folders: list[str]) -> bytes:
    """A tar of these programs with every library they load, and of these folders."""
    files = {os.path.realpath(path): path for path in programs}
    modules = [str(path) for folder in folders for path in Path(folder).rglob("lib-dynload/*.so")]
    for path in [*files, *modules]:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        libraries = [word for word in listed.split() if word.startswith("/")]
        files.update({library: library for library in libraries})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        parents = {
            str(parent) for path in [*files.values(), *folders] for parent in Path(path).parents
        }
        for name in sorted({*parents, "/tmp", "/etc", "/data", "/usr/local"}):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o777 if name == "/data" else 0o755
            tar.addfile(folder)
        for source, target in files.items():
            tar.add(os.path.realpath(source), target)
        for folder_name in folders:
            tar.add(folder_name, folder_name, filter=_without_tests)
    return buffer.getvalue()


def _without_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = ("__pycache__", "/test", "idlelib", "lib2to3", "ensurepip", "config-3")
    return None if any(part in entry.name for part in left_out) else entry


@pytest.fixture(scope="module")
def shell_image(client: Any) -> Iterator[str]:
    """A shell and cat; no Python. Declares all that an image can declare to get in our way."""
    changes = [
        "ENV PATH=/bin MARK=of-the-image",
        "VOLUME /data",
        'ENTRYPOINT ["/bin/cat"]',
        "USER 65534",
        'HEALTHCHECK --interval=1s CMD ["/bin/sh", "-c", "echo x > /tmp/health; exit 0"]',
    ]
    programs = ["/bin/sh", "/bin/cat", "/bin/ls"]
    client.import_image_from_data(
        root_file_system(programs, []), repository="ludus-test-shell", tag="1", changes=changes
    )
    yield SHELL_IMAGE
    client.remove_image(SHELL_IMAGE, force=True)


@pytest.fixture(scope="module")
def python_image(client: Any) -> Iterator[str]:
    """An image with a Python, and a package only it has."""
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    library = f"/usr/lib/python3.{sys.version_info.minor}"
    if not os.path.exists(system) or not os.path.exists(library):
        pytest.skip(f"no {system} to make an image of")
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "only_here.py"
        package.write_text("ANSWER = 42\n")
        tar = io.BytesIO(root_file_system([system, "/bin/sh"], [library]))
        with tarfile.open(fileobj=tar, mode="a") as whole:
            packages = tarfile.TarInfo(f"{library}/dist-packages")
            packages.type, packages.mode = tarfile.DIRTYPE, 0o755
            whole.addfile(packages)
            whole.add(package, f"{library}/dist-packages/only_here.py")
            link = tarfile.TarInfo("usr/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, os.path.basename(system)
            whole.addfile(link)
        client.import_image_from_data(
            tar.getvalue(),
            repository="ludus-test-python",
            tag="1",
            changes=["ENV PATH=/usr/bin:/bin"],
        )
    yield PYTHON_IMAGE
    client.remove_image(PYTHON_IMAGE, force=True)


async def test_doctor_says_that_it_holds_and_what_containers_show(docker_host: str) -> None:
    finding = await examine("docker")
    assert finding.problems == []
    assert "this machine's programs" in finding.notes[0]


async def test_what_the_engine_was_told(sandbox: DockerSandbox, client: Any) -> None:
    await sandbox.execute("")
    (made, *_) = client.containers(filters={"label": f"{OWNER}={owner()}"})
    about = client.inspect_container(made["Id"])
    host = about["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert sorted(each.removeprefix("CAP_") for each in host["CapAdd"]) == sorted(CAPABILITIES)
    assert (host["NetworkMode"], host["IpcMode"]) == ("none", "none")
    assert (host["ReadonlyRootfs"], host["Privileged"]) == (True, False)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert 0 < host["Memory"] == host["MemorySwap"] < 1024 * MIB
    assert host["PidsLimit"] == 65
    assert all("size=" in options for options in host["Tmpfs"].values())
    assert all(not mount["RW"] for mount in about["Mounts"] if mount["Type"] == "bind")
    sources = [mount["Source"] for mount in about["Mounts"] if mount["Type"] == "bind"]
    assert not any("docker.sock" in source or source in ("/", "/run", "/var") for source in sources)


async def test_the_memory_bound_follows_each_run(sandbox: DockerSandbox) -> None:
    takes = "x = bytearray(200 << 20); print('had it')"
    for _ in range(2):
        tight = await sandbox.execute(takes, limits=Limits(memory_bytes=64 * MIB))
        wide = await sandbox.execute(takes, limits=Limits(memory_bytes=400 * MIB))
        assert (tight.status, wide.stdout) == (ExecutionStatus.OOM, "had it\n")


async def test_files_on_the_scratch_folders_count_as_memory_and_end(sandbox: DockerSandbox) -> None:
    code = "for folder in ('/sandbox', '/tmp'):\n    with open(folder + '/f', 'wb') as f:\n        for _ in range(60): f.write(bytes(1 << 20))\nprint('kept')"
    done = await sandbox.execute(code, limits=Limits(memory_bytes=64 * MIB))
    assert done.status in (ExecutionStatus.OOM, ExecutionStatus.ERROR)
    look = "import os; print(os.listdir('/sandbox'), os.listdir('/tmp'), os.listdir('/dev/shm'))"
    assert (await sandbox.execute(look)).stdout == "[] [] []\n"


LEFT_IN_TMP = """
import os
os.chdir('/tmp')
for _ in range(300):
    os.mkdir('d' * 20); os.chdir('d' * 20)
os.mkfifo('fifo')
for number in range(2000):
    open(f'/tmp/{number}', 'w').close()
os.makedirs('/sandbox/0/1/2'); os.mkdir('/sandbox/1'); open('/sandbox/2', 'w').close()
os.chmod('/sandbox/0/1', 0); os.chmod('/sandbox/0', 0)
open(b'/tmp/\\xff\\n', 'w').close(); os.symlink('/etc', '/tmp/etc')
"""


async def test_nothing_a_run_leaves_in_either_folder_is_there_for_the_next(
    sandbox: DockerSandbox,
) -> None:
    for _ in range(2):
        done = await sandbox.execute(LEFT_IN_TMP)
        assert done.ok, done.stderr
        look = "import os; print(os.listdir('/sandbox'), os.listdir('/tmp'))"
        assert (await sandbox.execute(look)).stdout == "[] []\n"


async def test_sessions_keep_their_state_in_a_container(sandbox: DockerSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("x = 6")
        assert (await session.run("x * 7")).stdout == "42\n"
        await session.write({"data.txt": "hello"})
        assert (await session.run("open('data.txt').read()")).stdout == "'hello'\n"


async def test_any_command_of_an_image_without_python_runs(
    docker_host: str, shell_image: str
) -> None:
    sandbox = await DockerSandbox.open(image=shell_image, size=1)
    try:
        command = ["sh", "-c", "echo $MARK; cat in.txt; echo made > out.txt; exit 3"]
        done = await sandbox.run_command(
            command, files={"in.txt": "given\n"}, fetch_files=["out.txt"]
        )
        assert (done.stdout, done.exit_code) == ("of-the-image\ngiven\n", 3)
        assert done.files == {"out.txt": b"made\n"}
        assert (await sandbox.run_command(["gcc"])).exit_code == 127
        assert "with this interpreter (it has no python3)" in sandbox.notes[0]
        python = await sandbox.execute("import json, os; print(json.dumps(os.listdir('/')))")
        assert "ludus" in python.stdout
    finally:
        await sandbox.close()


@pytest.mark.slow
async def test_what_an_image_declares_opens_nothing(docker_host: str, shell_image: str) -> None:
    sandbox = await open_sandbox(size=1, image=shell_image)
    try:
        writes = (
            "import os\ntry: open('/data/x', 'w')\nexcept OSError as error: print(error.strerror)"
        )
        assert (await sandbox.execute(writes)).stdout == "Read-only file system\n"
        await sandbox.execute("")
        await asyncio.sleep(2.5)  # two intervals of the image's health check
        look = "import os; print(os.listdir('/tmp'))"
        assert (await sandbox.execute(look)).stdout == "[]\n"
    finally:
        await sandbox.close()


@pytest.mark.slow
async def test_programs_run_in_the_image_s_python_with_its_packages(
    docker_host: str, python_image: str
) -> None:
    sandbox = await open_sandbox("docker", size=1, image=python_image)
    assert isinstance(sandbox, DockerSandbox)
    try:
        done = await sandbox.execute(
            "import only_here, sys; print(only_here.ANSWER, sys.executable)"
        )
        assert done.stdout.startswith("42 /usr/bin/python3"), done.stderr
        assert sandbox.notes[0].endswith(f"the image {python_image}")
    finally:
        await sandbox.close()


async def test_an_image_the_engine_lacks_is_not_pulled_but_named(docker_host: str) -> None:
    with pytest.raises(ConfigError, match="docker pull ludus/nothing"):
        await open_sandbox("docker", image="ludus/nothing:9")


async def test_an_engine_elsewhere_or_a_runtime_it_lacks_is_refused(docker_host: str) -> None:
    with pytest.raises(ConfigError, match="remote tier"):
        await DockerSandbox.open(docker_host="tcp://192.0.2.1:2375")
    with pytest.raises(ConfigError, match="no Docker engine answers"):
        await DockerSandbox.open(docker_host="unix:///nowhere/docker.sock")
    with pytest.raises(ConfigError, match=r"no runtime 'runsx'; it has: .*runc"):
        await DockerSandbox.open(runtime="runsx")


async def test_an_image_is_only_for_the_docker_tier(docker_host: str) -> None:
    with pytest.raises(ConfigError, match="for the tier 'docker'"):
        await open_sandbox("slots-root", image="x")


DRIVER = """
import asyncio, os, signal
from ludus.sandboxes import DockerSandbox
from ludus.sandboxes.owners import owner
async def main():
    sandbox = await DockerSandbox.open(size=2)
    await sandbox.execute('')
    asyncio.ensure_future(sandbox.execute('import os, time; os.fork(); time.sleep(100)'))
    await asyncio.sleep(0.3)
    print(owner(), sandbox._folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def driver_killed() -> tuple[str, Path]:
    """The owner name and folder of a driver that was killed while a program ran."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    said = (driver.communicate(timeout=60)[0] or "").split()
    assert driver.returncode == -signal.SIGKILL
    return said[0], Path(said[1])


async def test_containers_end_with_a_killed_driver(docker_host: str, client: Any) -> None:
    name, _ = driver_killed()
    deadline = time.monotonic() + 60
    while left := client.containers(all=True, filters={"label": f"{OWNER}={name}"}):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_the_next_start_removes_what_a_killed_driver_could_not(
    docker_host: str, client: Any, shell_image: str
) -> None:
    name, folder = driver_killed()
    assert folder.exists()
    # one that was made and never started, as by a driver killed between the two calls
    stuck = client.create_container(shell_image, labels={OWNER: name})["Id"]
    foreign = client.create_container(shell_image, labels={"somebody": "else"})["Id"]
    living = client.create_container(shell_image, labels={OWNER: owner()})["Id"]
    again = await DockerSandbox.open(size=1)
    try:
        there = {each["Id"] for each in client.containers(all=True)}
        assert stuck not in there
        assert {foreign, living} <= there
        assert not folder.exists()
    finally:
        await again.close()
        for container in (foreign, living):
            client.remove_container(container)


async def test_closing_leaves_no_container_and_no_folder(docker_host: str) -> None:
    sandbox = await DockerSandbox.open(size=2)
    await sandbox.pool().warm()
    folder = sandbox._folder  # pyright: ignore[reportPrivateUsage]
    before = len(os.listdir("/proc/self/fd"))
    own = DockerEngine.connect(docker_host).own()
    await sandbox.close()
    deadline = time.monotonic() + 60
    while len(DockerEngine.connect(docker_host).own()) > len(own) - 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert not folder.exists()
    assert len(os.listdir("/proc/self/fd")) < before


async def test_a_container_killed_by_the_engine_is_replaced(
    sandbox: DockerSandbox, client: Any
) -> None:
    running = asyncio.ensure_future(
        sandbox.execute("import time; time.sleep(1); print('survived')")
    )
    await asyncio.sleep(0.3)
    for made in client.containers(filters={"label": f"{OWNER}={owner()}"}):
        client.kill(made["Id"])
    assert (await running).stdout == "survived\n"


FROM_THE_ENVIRONMENT = """
from ludus.sandboxes import execute
print(execute('import os; print(os.path.exists("/ludus"))').stdout, end='')
"""


@pytest.mark.slow
async def test_the_environment_chooses_the_tier(docker_host: str) -> None:
    environment = {**os.environ, "LUDUS_SANDBOX": "docker"}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", FROM_THE_ENVIRONMENT],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert execute.__module__ == "ludus.sandboxes.api"
