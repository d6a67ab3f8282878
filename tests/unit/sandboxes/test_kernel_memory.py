"""What the kernel holds for a process is charged to it by number, where no group counts memory."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from ludus.sandboxes.guest.jail import policy, syscalls
from ludus.sandboxes.local import kernel_memory

HOLDERS = {
    "locks of ranges of a file": (
        "import fcntl, tempfile\nf = tempfile.TemporaryFile()\n"
        "for n in range(3000): fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * n)",
        3000 * kernel_memory.LOCK_BYTES,
    ),
    "descriptors watched": (
        "import os, select\nr, w = os.pipe()\nkept = [os.dup(r) for _ in range(100)]\n"
        "es = [select.epoll() for _ in range(20)]\n"
        "for e in es:\n    for d in kept: e.register(d)",
        20 * 100 * kernel_memory.WATCH_BYTES,
    ),
    "pipes": ("import os\nkept = [os.pipe() for _ in range(60)]", 60 * kernel_memory.PIPE_BYTES),
}
"""what -> a program that holds it, and what it is to be charged at least"""


@contextmanager
def holding(code: str) -> Generator[int]:
    """A process that has run `code` and waits."""
    command = [sys.executable, "-c", f"{code}\nprint(flush=True)\nimport time\ntime.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("what", HOLDERS)
def test_what_the_kernel_holds_is_charged(what: str) -> None:
    code, least = HOLDERS[what]
    with holding("pass") as idle:
        plain = kernel_memory.held_by([idle])
    with holding(code) as pid:
        assert kernel_memory.held_by([pid]) >= plain + 0.9 * least


MAPPED = (
    "import mmap\nkept = [mmap.mmap(-1, 4096, prot=(mmap.PROT_READ, mmap.PROT_READ | "
    "mmap.PROT_WRITE)[n % 2]) for n in range(40000)]\nlarge = mmap.mmap(-1, 1 << 30)"
)


def test_mappings_are_charged_where_there_may_be_many() -> None:
    with holding(MAPPED) as first, holding(MAPPED) as second, holding(MAPPED) as third:
        least = 3 * 40_000 * kernel_memory.MAPPING_BYTES
        assert kernel_memory.held_by([first, second, third]) >= least


def test_processes_that_are_gone_hold_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert kernel_memory.held_by([gone.pid]) == 0


REQUESTS = {
    "a lock of an open file": "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 1, 0, 0, 1, 0))",
    "a lease": "fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "a larger pipe": "fcntl.fcntl(os.pipe()[0], 1031, 1 << 17)",
    "a Landlock rule": "call(445, call(444, struct.pack('QQQ', 4, 0, 0), 8, 0), 1, "
    "struct.pack('=Qi', 4, os.open('/usr', os.O_PATH)), 0)",
}


def allowed(request: str, *, counted: bool) -> bool:
    """Whether a process behind the filter may make a request; `counted`: a group counts memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = (
            "import ctypes, fcntl, os, struct, tempfile\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "def call(*a):\n    got = libc.syscall(*a)\n"
            "    if got < 0: raise OSError(ctypes.get_errno(), 'refused')\n    return got\n"
            f"f = tempfile.TemporaryFile()\n{request}\n"
        )
        try:
            for name in ("ctypes", "fcntl", "struct", "tempfile"):  # before the filter
                importlib.import_module(name)
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            filter_ = policy.seccomp_program(
                mounts=False, named_sockets=True, memory_counted=counted
            )
            syscalls.install_seccomp(filter_)
            exec(code, {})
            os.write(writer, b"yes")
        except OSError:
            os.write(writer, b"no")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    assert said in (b"yes", b"no")
    return said == b"yes"


@pytest.mark.skipif(not syscalls.supported(), reason="needs Linux on x86-64")
@pytest.mark.parametrize("what", REQUESTS)
def test_what_cannot_be_charged_is_refused(what: str) -> None:
    assert not allowed(REQUESTS[what], counted=False)
    assert allowed(REQUESTS[what], counted=True) is (what != "a Landlock rule")
    assert allowed("fcntl.lockf(f, fcntl.LOCK_EX)", counted=False)
