"""Whether a process was kept from running by others, or put itself behind them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludus.sandboxes.local import kernel_memory, process_tree

_STAND_BACK = {
    "a nice value": "os.nice(5)",
    "the class for idle work": "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
    "the nice value of its session": "os.setsid(); open('/proc/self/autogroup', 'w').write('7')",
}


@contextmanager
def busy(before: str = "") -> Generator[int]:
    """A process that shares one core with another like it, so that each has to wait."""
    core = min(os.sched_getaffinity(0))
    code = (
        f"import os\nos.sched_setaffinity(0, [{core}])\n{before}\nprint(flush=True)\nwhile 1: pass"
    )
    command = [sys.executable, "-c", code]
    rival = subprocess.Popen([sys.executable, "-c", code.replace(before, "")])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            time.sleep(0.3)
            yield process.pid
        finally:
            process.kill()
            rival.kill()
            rival.wait()


def test_waiting_for_a_core_is_counted() -> None:
    with busy() as pid:
        assert process_tree.waited_s([pid]) > 0.02


@pytest.mark.parametrize("how", _STAND_BACK)
def test_who_stands_back_by_itself_has_not_waited(how: str) -> None:
    if "autogroup" in _STAND_BACK[how] and not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group processes by session")
    with busy(_STAND_BACK[how]) as pid:
        assert process_tree.waited_s([pid]) == 0.0


def test_processes_that_are_gone_have_not_waited() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert process_tree.waited_s([gone.pid]) == 0.0


@pytest.mark.parametrize("line", [r"\rVmPTE: -999999", r"\rRssAnon:-9", r"\nVmPTE: -999999"])
def test_the_name_of_a_process_is_no_line_of_its_memory(line: str) -> None:
    name = line.replace(r"\r", "\r").replace(r"\n", "\n")
    code = (
        "import ctypes, sys\nheld = bytearray(64 << 20)\n"
        f"ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert process_tree.usage([process.pid]).memory_bytes > 64 << 20
        assert process_tree.shared_out([process.pid]) > 64 << 20


@pytest.mark.parametrize(
    "look",
    [
        process_tree.children_of,
        process_tree.threads_of,
        *(
            lambda pid, measure=measure: measure([pid])
            for measure in (
                process_tree.usage,
                process_tree.shared_out,
                process_tree.waited_s,
                process_tree.runnable,
                kernel_memory.held_by,
            )
        ),
    ],
)
def test_a_process_that_cannot_be_looked_at_is_none_that_uses_nothing(
    look: Callable[[int], object],
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            look(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    gone = subprocess.Popen(["true"])
    gone.wait()
    look(gone.pid)
