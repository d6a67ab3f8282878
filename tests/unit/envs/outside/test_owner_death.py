"""A process that imports a peer's package ends with its owner, whatever it is busy with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

OWNER = """
import sys, threading
from ludus.envs.outside.process import PeerInterpreter
PeerInterpreter(sys.executable, sys.argv[1], memory_bytes=0, timeout_s=60, label="busy")
"""
BEGUN = """
import ctypes, os, sys
def load(settings):
    with open({begun!r}, "w") as stream:
        stream.write(str(os.getpid()))
    os.rename({begun!r}, {begun!r} + ".pid")
"""
BUSY = {
    "a loop of Python without the signal of Linux": (
        "    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n    while True: pass\n"
    ),
    "a call of C that keeps all threads waiting": "    sum(range(10 ** 15))\n",
}


@pytest.mark.parametrize("busy", BUSY)
def test_a_busy_import_ends_with_an_owner_that_was_killed(busy: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    adapter = tmp_path / "adapter.py"
    adapter.write_text(BEGUN.format(begun=str(begun)) + BUSY[busy])
    if sys.platform != "linux" and "C" in busy:
        pytest.skip("only Linux ends a process whose threads all wait for a call of C")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(adapter)])
    peer = int(_awaited(begun.with_name("begun.pid")))
    time.sleep(0.2)  # the import is in the midst of what keeps it
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(timeout=60)
    deadline = time.monotonic() + 60
    try:
        while _runs(peer):
            assert time.monotonic() < deadline, f"{peer} has outlived its owner by 10 s"
            time.sleep(0.02)
    finally:
        if _runs(peer):
            os.kill(peer, signal.SIGKILL)


def test_an_interpreter_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """The signal of Linux is sent at the end of a thread, so that it must not stay set."""
    adapter = tmp_path / "adapter.py"
    adapter.write_text("def load(settings): return {}\ndef catalogue(): return ['here']\n")
    done = subprocess.run(
        [sys.executable, "-c", THREADED, str(adapter)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['here']"


THREADED = """
import sys, threading, time
from ludus.envs.outside.process import PeerInterpreter
made = []
def start():
    made.append(
        PeerInterpreter(sys.executable, sys.argv[1], memory_bytes=0, timeout_s=30, label="x")
    )
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(0.3)
print(made[0].catalogue())
made[0].close()
"""


def _awaited(place: Path) -> str:
    deadline = time.monotonic() + 60
    while not place.exists():
        assert time.monotonic() < deadline, "the import has not begun within 30 s"
        time.sleep(0.02)
    return place.read_text()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # a zombie is dead, whoever has to reap it
