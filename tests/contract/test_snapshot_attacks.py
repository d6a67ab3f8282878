"""Branches of a session cannot reach each other, whatever ran in the session before it was copied.

An attack prints BROKEN when it got what it wanted. A prefix that prepares for sharing something is
refused by name, or gains nothing.
"""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ludus.sandboxes import NotSnapshotable, Session, SlotSandbox, open_sandbox
from ludus.sandboxes.guest.jail.syscalls import landlock_version

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root for slots-root"),
    pytest.mark.skipif(landlock_version() < 6, reason="needs Landlock 6 (Linux 6.12)"),
    pytest.mark.asyncio(loop_scope="module"),
]

HEAD = """
import ctypes, glob, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def others():
    return [n for n in range(2, 400) if n != os.getpid()]
def attempt(action):
    try:
        got = action()
    except Exception as error:
        print('held', type(error).__name__)
    else:
        print('BROKEN ' + repr(got)[:60] if got else 'held: nothing')
"""
VICTIM = "secret = 'S' + 'ECRET' * 3\nopen('secret.txt', 'w').write(secret)\nkept = [secret] * 1000\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind('\\0ludus-branch')\nlistener.listen()"

REACH = {
    "its files by their path": "return [p for d in ('/branches', '/sandbox') for w in os.walk(d) for p in w[2] if 'secret' in p] or [p for n in range(1, 30) for p in (f'/branches/{n}/files/secret.txt',) if _can(p)]",
    "its files through links": "os.symlink('/branches', 'l'); return glob.glob('l/*/files/secret.txt') or [p for n in range(1, 30) for p in (f'l/{n}/files/secret.txt',) if _can(p)]",
    "its files through a hard link": "return [n for n in range(1, 30) if _ok(lambda: os.link(f'/branches/{n}/files/secret.txt', f'hard{n}'))]",
    "its directory through proc": "return [n for n in others() for k in ('cwd', 'root', 'fd/0') if _ok(lambda: os.listdir(f'/proc/{n}/{k}') if k != 'fd/0' else os.readlink(f'/proc/{n}/fd/0'))]",
    "its memory through proc": "return [n for n in others() if _ok(lambda: open(f'/proc/{n}/mem', 'rb')) or _ok(lambda: open(f'/proc/{n}/maps').read())]",
    "its environment": "return [n for n in others() if _ok(lambda: open(f'/proc/{n}/environ').read())]",
    "its memory by a call": "near = ctypes.create_string_buffer(8); v = struct.pack('QQ', ctypes.addressof(near), 8); return [n for n in others() if libc.syscall(310, n, v, 1, v, 1, 0) > 0]",
    "it as a debugger": "return [n for n in others() if libc.ptrace(0x4206, n, 0, 0) == 0]",
    "its descriptors": "return [n for n in others() for f in [libc.syscall(434, n, 0)] if f >= 0 and libc.syscall(438, f, 1, 0) >= 0]",
    "it with a signal": "return [n for n in others() if _ok(lambda: os.kill(n, 0) or True)]",
    "all of them with a signal": "os.kill(-1, 9); return False",
    "its abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0ludus-branch'); return True",
    "its limits": "import resource; return [n for n in others() if _ok(lambda: resource.prlimit(n, resource.RLIMIT_CPU, (1, 1)) or True)]",
    "its cores": "return [n for n in others() if _ok(lambda: os.sched_setaffinity(n, os.sched_getaffinity(0)) or True)]",
    "its priority": "return [n for n in others() if _ok(lambda: os.setpriority(os.PRIO_PROCESS, n, 10) or True)]",
    "the folder of all branches": "return os.listdir('/branches')",
    "a new folder beside its own": "os.mkdir('../../mine'); return True",
    "the session's files": "return open('/sandbox/of_the_session').read()",
}
TOOLS = """
def _ok(action):
    try:
        return bool(action())
    except OSError:
        return False
def _can(path):
    return _ok(lambda: open(path).read())
"""

REFUSED = {
    "a helper left behind": ("import os, time\nif os.fork() == 0:\n    time.sleep(60)", "children"),
    "a helper in a session of its own": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(60)\nos.wait()",
        "children",
    ),
    "a helper made with the copy": (
        "import sys, os, time\nrepl = sys.modules['guest.run.repl']\nreal = os.fork\ndef fork():\n    if real() == 0: time.sleep(60)\n    return real()\nos.fork = fork",
        "fault",
    ),
    "a helper made after the copy": (
        "import sys, os, time, threading\nreal = os.fork\ndef fork():\n    pid = real()\n    if pid and real() == 0: time.sleep(60)\n    return pid\nos.fork = fork",
        "fault",
    ),
    "a thread made with the copy": (
        "import os, threading, time\nreal = os.fork\ndef fork():\n    pid = real()\n    if pid: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    return pid\nos.fork = fork",
        "threads",
    ),
    "a copy that shares memory": (
        "import os, ctypes, signal\nlibc = ctypes.CDLL(None)\nlibc.syscall.restype = ctypes.c_long\nstack = ctypes.create_string_buffer(1 << 20)\ndef fork():\n    pid = libc.syscall(56, 0x100 | 17, 0, 0, 0, 0)\n    return pid\ndef vfork():\n    pid = libc.syscall(56, 0x400 | 17, 0, 0, 0, 0)\n    return pid\nos.fork = vfork",
        "shared_memory",
    ),
    "a copy that does not stop": (
        "import os, time\nreal = os.kill\nos.kill = lambda pid, number: time.sleep(60)",
        "fault",
    ),
    "a copy that is somebody else": ("import os\nos.fork = lambda: 1", "fault"),
    "an open folder": ("import os\nd = os.open('.', os.O_RDONLY)", "files"),
    "an open file that was removed": (
        "import os\nf = open('gone', 'w+')\nos.unlink('gone')",
        "files",
    ),
    "a memory file": ("import os\nm = os.memfd_create('m')", "files"),
    "a pipe": ("import os\np = os.pipe()", "files"),
    "an event": ("import select\ne = select.epoll()", "files"),
    "shared memory without a descriptor": (
        "import mmap\nm = mmap.mmap(-1, 4096, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)",
        "shared_memory",
    ),
    "shared memory that is read-only for now": (
        "import mmap, os, ctypes\nfd = os.memfd_create('m')\nos.ftruncate(fd, 4096)\nm = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)\nlibc = ctypes.CDLL(None)\nos.close(fd)\nimport gc\nfor n in range(4, 64):\n    try: os.close(n)\n    except OSError: pass",
        "shared_memory",
    ),
    "a private mapping of its own file": (
        "import mmap, os\nopen('f', 'wb').write(bytes(4096))\nf = open('f', 'r+b')\nm = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE)\nfor n in range(4, 64):\n    try: os.close(n)\n    except OSError: pass",
        "files",
    ),
    "a second way to the driver": ("import os\nos.dup2(3, 60)", "sockets"),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sandbox() -> AsyncIterator[SlotSandbox]:
    opened = await open_sandbox("slots-root", size=2)
    assert isinstance(opened, SlotSandbox)
    if opened.groups is None:
        pytest.skip(opened.no_groups)
    yield opened
    await opened.close()


async def attack_all(attacker: Session) -> dict[str, str]:
    await attacker.run(HEAD + TOOLS)
    found: dict[str, str] = {}
    for name, body in REACH.items():
        lines = body.split("; ")
        code = "def attack():\n    " + "\n    ".join(lines) + "\nattempt(attack)"
        done = await attacker.run(code)
        found[name] = (done.stdout + done.stderr[-200:]).strip()
    return found


async def test_a_branch_reaches_neither_another_nor_the_session(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session:
        await session.run("open('of_the_session', 'w').write('x')")
        async with await session.snapshot() as snapshot:
            victim, attacker = await snapshot.restore(), await snapshot.restore()
            await victim.run(HEAD + VICTIM)
            found = await attack_all(attacker)
            assert {name: text for name, text in found.items() if "held" not in text} == {}
            assert (
                await victim.run("secret == kept[0] == open('secret.txt').read()")
            ).stdout == "True\n"
            await victim.close()
            await attacker.close()


async def test_the_session_reaches_no_branch(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session, await session.snapshot() as snapshot:
        victim = await snapshot.restore()
        await victim.run(HEAD + VICTIM)
        found = await attack_all(session)
        del found["the session's files"]
        assert {name: text for name, text in found.items() if "held" not in text} == {}
        assert (await victim.run("secret == kept[0]")).stdout == "True\n"
        await victim.close()


async def test_the_same_attacks_work_inside_one_session(sandbox: SlotSandbox) -> None:
    """The control: without a branch's walls, what a session starts is open to it."""
    async with await Session.open(sandbox) as session:
        await session.run(HEAD + TOOLS)
        await session.run("import time\nif os.fork() == 0:\n    time.sleep(60)")
        open_to_it = ("its memory through proc", "its environment", "it with a signal")
        for name in open_to_it:
            code = "def attack():\n    " + REACH[name] + "\nattempt(attack)"
            assert "BROKEN" in (await session.run(code)).stdout, name


@pytest.mark.parametrize("name", REFUSED)
async def test_a_session_that_prepared_to_share_is_refused(sandbox: SlotSandbox, name: str) -> None:
    prefix, reason = REFUSED[name]
    async with await Session.open(sandbox) as session:
        done = await session.run(prefix)
        assert done.ok, done
        with pytest.raises(NotSnapshotable) as caught:
            await (await session.snapshot()).close()
        assert caught.value.reason == reason, caught.value
        assert (await session.run("'on'")).stdout == "'on'\n"


async def test_a_hostile_session_cannot_keep_a_branch_from_its_walls(sandbox: SlotSandbox) -> None:
    """What would set up the walls if the branch did it itself has been taken out of the session."""
    prefix = "import sys, os, ctypes\nrepl = sys.modules['guest.run.repl']\nrepl._begin_anew = lambda: None\nos.chdir = os.setsid = lambda *a: None\nsys.modules['guest.jail.syscalls'].landlock_restrict = lambda *a, **k: None\nctypes.CDLL = lambda *a, **k: None"
    async with await Session.open(sandbox) as session:
        await session.run("open('of_the_session', 'w').write('x')")
        await session.run(HEAD + TOOLS)
        await session.run(prefix)
        async with await session.snapshot() as snapshot:
            victim, attacker = await snapshot.restore(), await snapshot.restore()
            await victim.run("open('secret.txt', 'w').write('x')")
            for name in (
                "its files by their path",
                "its memory through proc",
                "it with a signal",
                "the session's files",
            ):
                code = (
                    "def attack():\n    "
                    + "\n    ".join(REACH[name].split("; "))
                    + "\nattempt(attack)"
                )
                assert "held" in (await attacker.run(code)).stdout, name
            assert (await attacker.run("os.getcwd()")).stdout.startswith("'/branches/")
            await victim.close()
            await attacker.close()


async def test_one_branch_s_bombs_leave_the_others_alone(sandbox: SlotSandbox) -> None:
    async with await Session.open(sandbox) as session, await session.snapshot() as snapshot:
        bomber, bystander = await snapshot.restore(), await snapshot.restore()
        await bomber.run(
            "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(60)\n    except OSError: break"
        )
        await bomber.run("f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))")
        assert (
            await bystander.run(
                "import subprocess\nsubprocess.run(['echo', 'on'], capture_output=True).stdout"
            )
        ).stdout == "b'on\\n'\n"
        assert (await bystander.run("open('f', 'wb').write(bytes(1 << 20))")).stdout == "1048576\n"
        later = await snapshot.restore()
        assert (await later.run("'new'")).stdout == "'new'\n"
        for branch in (bomber, bystander, later):
            await branch.close()
