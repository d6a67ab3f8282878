"""What a tier leaves to the machine, to its neighbours and to the operator; each with a positive control.

Programs are hostile on purpose. An ordinary user runs them in a process of their own, since the tests are root's.
"""

# ruff: noqa: E501 - programs, one to a line
from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.errors import ConfigError
from ludus.sandboxes import Limits, SlotSandbox
from ludus.sandboxes.guest.run.emptying import holds_more
from ludus.sandboxes.local import slot_sandbox
from ludus.sandboxes.open import open_with
from ludus.sandboxes.serving.runner import Runner
from ludus.sandboxes.settings import SandboxSettings
from ludus.wire.prometheus import ServerMetrics
from ludus.wire.routes import Context

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, also to become an ordinary user"),
]

NOBODY = 65534
FORK_BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
FILES_WITHOUT_END = """
import os, itertools
for _ in range(3): os.fork()
os.makedirs('d', exist_ok=True); os.chdir('d')
for number in itertools.count():
    os.close(os.open(f'{os.getpid()}-{number}', os.O_CREAT | os.O_WRONLY))
"""
SLOW_FILES = FILES_WITHOUT_END + "    __import__('time').sleep(0.01)\n"


async def observe(tier: str, program: str, limit_s: float, cancel_s: float) -> dict[str, object]:
    """Run a program, then a neighbour in the same slot (or cancel it), close the sandbox, and say what is left."""
    sandbox = SlotSandbox(tier, size=1)
    work = Path(str(sandbox._work)) if sandbox._work else None  # pyright: ignore[reportPrivateUsage]
    limits = Limits(timeout_s=limit_s, cpu_s=60)
    began = time.monotonic()
    asked = asyncio.ensure_future(sandbox.execute(program, limits=limits))
    seen: dict[str, object] = {"most": 0}
    if cancel_s:
        await asyncio.sleep(cancel_s)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    else:
        while not asked.done():
            await asyncio.wait([asked], timeout=0.5)
            if work:
                seen["most"] = max(int(str(seen["most"])), entries(work))
        done = asked.result()
        seen |= {"status": str(done.status), "detail": done.detail, "cpu_s": done.usage.cpu_s}
    seen["ran_s"] = time.monotonic() - began
    began = time.monotonic()
    if not cancel_s:
        seen["neighbour"] = (await sandbox.execute("print(1)")).stdout
        seen["neighbour_s"] = time.monotonic() - began
    await sandbox.close()
    await asyncio.sleep(0.3)  # a process that lives on would make more
    seen["left"] = entries(work) if work and work.exists() else 0
    return seen


def entries(folder: Path) -> int:
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def as_nobody(tier: str, program: str, limit_s: float, cancel_s: float = 0) -> dict[str, object]:
    """Do what `observe` does, as an ordinary user."""
    python, environment = _python_of_nobody()
    code = (
        "import asyncio, importlib.util, json, sys\n"
        "spec = importlib.util.spec_from_file_location('tiers', sys.argv[1])\n"
        "tiers = importlib.util.module_from_spec(spec); spec.loader.exec_module(tiers)\n"
        "print('SEEN' + json.dumps(asyncio.run(tiers.observe(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])))))\n"
    )
    done = subprocess.run(
        [python, "-c", code, __file__, tier, program, str(limit_s), str(cancel_s)],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env=environment,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "SEEN" in done.stdout, done.stderr[-2000:]
    seen: dict[str, object] = json.loads(done.stdout.rpartition("SEEN")[2])
    return seen


def _python_of_nobody() -> tuple[str, dict[str, str]]:
    """An interpreter that the ordinary user may run, and the environment in which it finds the packages."""
    pythons = (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}")
    python = next((python for python in pythons if _runs(python)), "")
    if not python:
        pytest.skip("no interpreter of this version that an ordinary user may run")
    path = ":".join(place for place in sys.path if place and not place.startswith(sys.base_prefix))
    return python, {"PYTHONPATH": path, "HOME": "/tmp"}


def _runs(python: str) -> bool:
    try:
        return (
            subprocess.run(
                [python, "-c", "import ctypes"], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"
            ).returncode
            == 0
        )
    except OSError:
        return False


EVERY = list(product(("root", "nobody"), (0, 1.5), (FILES_WITHOUT_END, SLOW_FILES)))
PAIRS = [EVERY[0], EVERY[3], EVERY[5], EVERY[6]]
"""Each two values of different columns meet in one of these."""


@pytest.mark.parametrize(
    ("user", "cancel_s", "program"),
    [*PAIRS, *(pytest.param(*case, marks=pytest.mark.slow) for case in EVERY if case not in PAIRS)],
)
def test_nothing_of_a_run_is_left_on_the_host(user: str, cancel_s: float, program: str) -> None:
    if user == "root":
        seen = asyncio.run(observe("slots-landlock", program, 3, cancel_s))
    else:
        seen = as_nobody("slots-landlock", program, 3, cancel_s)
    assert seen["left"] == 0, "neither files nor a process that makes more"
    if not cancel_s:
        assert seen["neighbour"] == "1\n"
        assert float(str(seen["neighbour_s"])) < 10, "it need not wait until all is deleted"
        assert int(str(seen["most"])) > 20, "positive control: the program did make files"


def test_a_work_directory_of_the_host_is_bounded_in_entries_and_bytes(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for number in range(10):
        (deep / str(number)).write_bytes(bytes(4096))
    (tmp_path / "loop").symlink_to(tmp_path)
    assert not holds_more(str(tmp_path), 13, 1 << 20)
    assert holds_more(str(tmp_path), 12, 1 << 20)
    assert holds_more(str(tmp_path), 13, 10 * 4096)
    fills = "for n in range(200):\n    open(str(n), 'wb').write(bytes(1 << 20))\nimport time; time.sleep(20)"
    seen = asyncio.run(observe("slots-landlock", fills, 20, 0))
    assert (seen["status"], seen["detail"]) == ("error", "wrote more files or bytes than a run may")


@pytest.mark.parametrize("tier", ["slots-root", "slots-landlock"])
def test_programs_read_a_folder_whose_name_is_no_text(tier: str) -> None:
    async def read(folder: bytes) -> str:
        sandbox = SlotSandbox(tier, size=1, readable=[os.fsdecode(folder)])
        try:
            done = await sandbox.execute(f"print(open({folder + b'/told'!r}).read())")
            return done.stdout or done.detail
        finally:
            await sandbox.close()

    with tempfile.TemporaryDirectory(dir="/var/tmp") as above:
        Path(above).chmod(0o755)
        folder = os.fsencode(above) + b"/caf\xe9"
        os.mkdir(folder)
        Path(os.fsdecode(folder), "told").write_text("seen")
        assert asyncio.run(read(folder)) == "seen\n"


def in_a_process(work: str, folder: Path) -> None:
    """Do what a function of this module does with a folder, in an interpreter without threads."""
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('tiers', sys.argv[1])\n"
        "tiers = importlib.util.module_from_spec(spec); spec.loader.exec_module(tiers)\n"
        "getattr(tiers, sys.argv[2])(sys.argv[3])\n"
    )
    command = [sys.executable, "-c", code, __file__, work, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def look_while_links_are_exchanged(work: str) -> None:
    """Look again and again, as an ordinary user, at a folder that a program exchanges for a link."""
    opened = os.open(
        work, os.O_RDONLY
    )  # the folders above belong to root, and are closed to others
    os.fchdir(opened)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.mkdir("x", 0)
    os.symlink("../victim", "y")
    keeper = os.getpid()
    if os.fork() == 0:
        exchange = ctypes.CDLL(None).syscall
        while os.getppid() == keeper:
            exchange(316, -100, b"x", -100, b"y", 2)  # renameat2, RENAME_EXCHANGE
        os._exit(0)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        holds_more(".", 1000, 1 << 30)
        for name in ("x", "y"):
            with suppress(OSError):
                folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                os.fchmod(folder, 0)
                os.close(folder)


def look_with_few_descriptors(folder: str) -> None:
    """Look at a folder while 1 to 4 descriptors are free: all of them are free again."""
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, highest + 8))
    held = list(iter(partial(opened_or_none, os.devnull), None))
    for free in range(1, 5):
        os.close(held.pop())
        holds_more(folder, 100, 1 << 20)
        again = list(iter(partial(opened_or_none, os.devnull), None))
        assert len(again) == free
        for descriptor in again:
            os.close(descriptor)


def test_a_look_at_what_a_program_wrote_follows_no_link_that_it_exchanges(tmp_path: Path) -> None:
    """A folder that nobody may list is unlocked, while the program puts a link in its place."""
    victim, work = tmp_path / "victim", tmp_path / "work"
    for folder in (tmp_path, victim, work):
        folder.mkdir(exist_ok=True)
        os.chown(folder, NOBODY, NOBODY)
    victim.chmod(0o755)
    in_a_process("look_while_links_are_exchanged", work)
    assert victim.stat().st_mode & 0o777 == 0o755


def test_a_look_without_descriptors_left_keeps_none(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / "folder" / str(number)).mkdir(parents=True)
    in_a_process("look_with_few_descriptors", tmp_path)


def opened_or_none(path: str) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_RDONLY)
    return None


@pytest.mark.parametrize("tier", ["slots-userns", "slots-root", "slots-landlock"])
def test_a_fork_bomb_ends_at_the_wall_limit(tier: str) -> None:
    if tier == "slots-userns":
        seen = as_nobody(tier, FORK_BOMB, 2)
    else:
        seen = asyncio.run(observe(tier, FORK_BOMB, 2, 0))
    assert seen["status"] in ("timeout", "error"), seen  # a watcher may end it for its processes
    # What its own processes take from each other is no waiting for the machine.
    assert float(str(seen["ran_s"])) < 6, seen
    assert seen["neighbour"] == "1\n"


def test_what_orphans_have_used_is_charged() -> None:
    orphan = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
        open('done', 'w').close()
        os._exit(0)
    os._exit(0)
os.wait()
while not os.path.exists('done'): time.sleep(0.01)
"""
    for tier in ("slots-root", "slots-landlock"):
        seen = asyncio.run(observe(tier, orphan, 20, 0))
        assert float(str(seen["cpu_s"])) > 0.45, (tier, seen)
    seen = as_nobody("slots-userns", orphan, 20)
    assert float(str(seen["cpu_s"])) > 0.45


def without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine be one on which no control groups can be made."""
    monkeypatch.setattr(slot_sandbox.ControlGroups, "find", lambda: "no control groups here")


async def test_a_server_takes_a_development_tier_only_by_its_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = SandboxSettings(size=1, for_tenants=True)
    sandbox = await open_with(None, server)  # positive control: with control groups it is chosen
    assert sandbox.tier == "slots-root"
    await sandbox.close()
    without_groups(monkeypatch)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    with pytest.raises(
        ConfigError, match=r"slots-root: a development tier.*LUDUS_SANDBOX=slots-root"
    ):
        await open_with(None, server)
    sandbox = await open_with(None, SandboxSettings(size=1))  # a program of one's own may
    await sandbox.close()
    with caplog.at_level(logging.WARNING):
        sandbox = await open_with("slots-root", server)
    assert "development tier" in caplog.text
    await sandbox.close()
    with pytest.raises(ConfigError, match="development tier"):
        await Runner(slots=2).start(Context("x", ServerMetrics()))


@pytest.mark.root
async def test_a_sandbox_whose_opening_is_cancelled_leaves_no_control_group() -> None:
    def groups() -> set[str]:
        folders = (path for path, _, _ in os.walk("/sys/fs/cgroup"))
        return {path for path in folders if f"/ludus-{os.getpid()}-" in path}

    before = groups()
    for tenths in (1, 3, 5):  # as a slot starts, and as programs probe it
        opening = asyncio.create_task(open_with("slots-root", SandboxSettings(size=1)))
        await asyncio.sleep(tenths / 10)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
        assert groups() == before


def test_what_ludus_serve_runs_takes_no_development_tier_of_its_own_choice() -> None:
    """What a verifier opens in a served process is a server's sandbox too. An ordinary user has no control groups here."""
    python, environment = _python_of_nobody()
    sample: dict[str, Any] = {
        "response": "```python\ndef f(n):\n    return n + 1\n```",
        "gold": {"tests": ["assert f(1) == 2"]},
    }
    details: dict[str, str] = {}
    for named in ("", "slots-userns"):
        server = subprocess.Popen(
            [python, "-m", "ludus", "serve", "coding", "--port", "0"],
            user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env=environment | ({"LUDUS_SANDBOX": named} if named else {}),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout
            url = server.stdout.readline().rpartition(" at ")[2].strip()
            with closing(ludus.connect(url)) as client:
                verdict = client.score("coding", ludus.Sample(**sample))
            details[named] = f"{verdict.status} {verdict.reward} {verdict.detail}"
        finally:
            server.terminate()
            server.communicate(timeout=30)
    assert "development tier" in details[""], details
    assert details["slots-userns"].startswith("ok 1.0"), "positive control: by its name it is taken"
