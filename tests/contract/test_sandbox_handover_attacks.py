"""Attacks where something is handed over: files fetched and uploaded, sources compiled, what a run leaves to the next.

Each is played on every tier of slots; that it would work is shown beside it, by a reader without care.
"""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.sandboxes import DockerSandbox, Execution, ExecutionStatus, Limits, SlotSandbox

ROOT = os.getuid() == 0
LIMITS = Limits(timeout_s=10, cpu_s=5, memory_bytes=256 << 20, output_bytes=1 << 20)
SECRET = "a secret of the host"
NOBODY = 65534

TIERS = [
    *([pytest.param("slots-root", marks=pytest.mark.root)] if ROOT else ["slots-userns"]),
    pytest.param("slots-landlock", marks=pytest.mark.slow),
    pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
]


@pytest.fixture
def witness() -> Iterator[Path]:
    """A file of the host that everybody may read."""
    folder = Path(tempfile.mkdtemp(prefix="ludus-handover-"))
    folder.chmod(0o755)
    file = folder / "witness.h"
    file.write_text(f'"{SECRET}"\n')
    file.chmod(0o644)
    yield file
    shutil.rmtree(folder)


def needs_readable_interpreter(tier: str) -> None:
    """Programs of this tier read the interpreter where it lies, with an identity of their own."""
    folders = (Path(sys.base_prefix), *Path(sys.base_prefix).parents)
    closed = any(not folder.stat().st_mode & stat.S_IXOTH for folder in folders)
    if ROOT and tier == "slots-landlock" and closed:
        pytest.skip(
            "the interpreter lies in a folder that is closed to others: see the run elsewhere"
        )


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="needs root, to become an ordinary user")
@pytest.mark.parametrize("user", [NOBODY, 0])
def test_all_of_this_holds_elsewhere(user: int) -> None:
    """As an ordinary user, and as root with the system's interpreter."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(system).exists():
        pytest.skip("the system has no interpreter of this version")
    places = (place for place in sys.path if place and not place.startswith(sys.base_prefix))
    command = [system, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command += ["-k", "slots-userns or slots-landlock"]
    environment = {**os.environ, "PYTHONPATH": ":".join(places), "HOME": "/tmp"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env=environment,
        user=user, group=user, extra_groups=[],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    assert " skipped" not in done.stdout


@asynccontextmanager
async def opened(
    tier: str, request: pytest.FixtureRequest, size: int = 1
) -> AsyncGenerator[SlotSandbox]:
    needs_readable_interpreter(tier)
    if tier == "docker":
        request.getfixturevalue("docker_host")
        sandbox: SlotSandbox = await DockerSandbox.open(size=size)
    else:
        sandbox = SlotSandbox(tier, size=size)
    try:
        yield sandbox
    finally:
        await sandbox.close()


FETCHES = {
    "a link to a file outside": "os.symlink(witness, 'loot')",
    "a link to a link": "os.symlink(witness, 'x'); os.symlink('x', 'loot')",
    "a link through proc": "os.symlink('/proc/self/root' + witness, 'loot')",
    "a link to standard input": "os.symlink('/dev/stdin', 'loot')",
    "a link to an open descriptor": "os.symlink('/proc/self/fd/0', 'loot')",
    "a link to itself": "os.symlink('loot', 'loot')",
    "a hard link": "os.link(witness, 'loot')",
    "a pipe": "os.mkfifo('loot')",
    "a pipe somebody writes to": "os.mkfifo('loot')\nif os.fork() == 0: os.setsid(); open('loot', 'w').write('x'); os._exit(0)",
    "a socket": "s = socket.socket(socket.AF_UNIX); s.bind('loot')",
    "a device": "os.mknod('loot', 0o20666, os.makedev(1, 5))",
    "a link to a device without end": "os.symlink('/dev/zero', 'loot')",
    "a link to a terminal": "os.symlink('/dev/tty', 'loot')",
    "a folder": "os.mkdir('loot')",
    "a file of holes": "open('loot', 'w').truncate(1 << 25)",
    "a file as large as may be": "open('loot', 'w').truncate((1 << 63) - 1)",
    "a file that grows": "open('loot', 'w').close()\nif os.fork() == 0:\n    os.setsid()\n    while True: open('loot', 'a').write('x' * 65536)",
    "a file put in place by a child": "open('loot', 'w').close()\nif os.fork() == 0:\n    os.setsid()\n    while True: os.unlink('loot'); os.symlink(witness, 'loot'); os.unlink('loot'); open('loot', 'w').close()",
    "a file its owner may not read": "open('loot', 'w').write('x'); os.chmod('loot', 0)",
    "a folder that is a link": "os.symlink(os.path.dirname(witness), 'deep')",
    "a folder nobody may enter": "os.mkdir('deep'); open('deep/witness.h', 'w').close(); os.chmod('deep', 0)",
    "a folder of folders": "here = os.open('.', 0)\nfor _ in range(2000): os.mkdir('d', dir_fd=here); here, old = os.open('d', 0, dir_fd=here), here; os.close(old)",
    "its own folder gone": "here = os.getcwd(); os.chdir('/'); shutil.rmtree(here, True)",
    "its own folder a link": "here = os.getcwd(); os.chdir('/'); os.rename(here, here + '2'); os.symlink('/etc', here)",
    "its own folder locked": "os.chmod('.', 0)",
    "names that are not text": "os.mkdir(b'\\xff\\xfe'); open(b'\\xff\\xfe/\\n\\x1b[2J', 'w').close(); os.symlink(witness, b'\\xc3\\x28')",
}
"""what stands at `loot` (or in `deep`) -> the program that puts it there"""

PATHS = ["loot", "deep/witness.h"]

_PREFACE = "import os, shutil, socket, sys\nwitness = sys.argv[1]\n"
_TRY = "try:\n{body}\nexcept OSError as error: print(error)\nprint('made')\n"


def program(body: str) -> str:
    return _PREFACE + _TRY.format(body="\n".join("    " + line for line in body.split("\n")))


@pytest.mark.parametrize("tier", TIERS)
async def test_what_stands_at_a_path_that_is_fetched_gives_nothing_away(
    tier: str, witness: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(tier, request) as sandbox:
        for name, body in FETCHES.items():
            done = await asyncio.wait_for(_fetch(sandbox, body, witness), 60)
            # only what it did to its own folder may keep a run from ending well
            assert done.status in (ExecutionStatus.OK, ExecutionStatus.ERROR), (name, done)
            assert all(SECRET.encode() not in data for data in done.files.values()), name
            assert set(done.files) | set(done.refused) == set(PATHS), name
            assert all(len(data) <= LIMITS.output_bytes for data in done.files.values())
            again = await sandbox.execute("import os\nprint(os.listdir('.'))")
            assert (again.status, again.stdout) == (ExecutionStatus.OK, "[]\n"), (name, again)


async def _fetch(sandbox: SlotSandbox, body: str, witness: Path) -> Execution:
    return await sandbox.execute(
        program(body), argv=[str(witness)], stdin=SECRET, limits=LIMITS, fetch_files=PATHS
    )


def test_a_reader_without_care_is_led_astray_by_each_of_them(witness: Path, tmp_path: Path) -> None:
    """What is fetched only after its makers are dead, or is odd without a secret, needs no reader."""
    led = (
        "a link to a file outside",
        "a link to a link",
        "a link through proc",
        "a hard link",
        "a folder that is a link",
    )
    for name in led:
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, "-c", program(FETCHES[name]), str(witness)]
        subprocess.run(command, cwd=folder, check=True, timeout=20, capture_output=True)
        place = folder / PATHS[0] if (folder / PATHS[0]).exists() else folder / PATHS[1]
        assert SECRET in place.read_text(), name


UPLOADS = [
    "../x", "/etc/x", "a/../../x", "a/../b", "..", ".", "", "/", "a//b", "./x", "a/.", "a/..", "x\0y", "\0", "a\nb",
    "\udcff", "x" * 256, "/".join("d" * 100 for _ in range(20)), "~/x\0", "a\x1b[2J", "//x", "a/./b", "..\0/x", "x/",
]  # fmt: skip


@pytest.mark.parametrize("tier", TIERS)
async def test_no_name_of_a_file_leaves_the_work_directory(
    tier: str, request: pytest.FixtureRequest
) -> None:
    async with opened(tier, request) as sandbox:
        for name in UPLOADS:
            with pytest.raises(ConfigError):
                await sandbox.execute("1", files={name: b"x"})
            with pytest.raises(ConfigError):
                await sandbox.execute("1", fetch_files=[name])
        for clash in ({"a": b"", "a/b": b""}, {"a/b/c": b"", "a/b": b""}):
            with pytest.raises(ConfigError):
                await sandbox.execute("1", files=clash)
        odd = {"...": b"1", "..x": b"2", "~": b"3", "-rf": b"4", "$(id)": b"5", "é\u202e": b"6"}
        done = await sandbox.execute(
            "import os; print(len(os.listdir('.')))", files=odd, fetch_files=list(odd)
        )
        assert (done.stdout, done.files) == ("6\n", odd)


LEAVINGS = {
    "a file": "open('left', 'w').close()",
    "a file in every folder it may write": "\n".join(
        (
            "for f in ('/tmp', '/dev/shm', '/var/tmp', '/run', '/sandbox', '/branches', '/dev', '/'):",
            "    try: open(f + '/left', 'w').close()",
            "    except OSError: pass",
        )
    ),
    "a file nobody can name": "open(b'\\xff\\n', 'w').close()",
    "a locked folder": "os.mkdir('left'); open('left/x', 'w').close(); os.chmod('left', 0)",
    "a folder locked from the start": "os.mkdir('left', 0)",
    "an attribute of the folder": "os.setxattr('.', 'user.left', b'x')",
    "the mode of the folder": "os.chmod('.', 0o700)",
    "a deep folder": "here = os.open('.', 0)\nfor _ in range(1500): os.mkdir('d' * 200, dir_fd=here); here, old = os.open('d' * 200, 0, dir_fd=here), here; os.close(old)",
    "a process": "if os.fork() == 0: time.sleep(60)",
    "a process of a session of its own": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)",
    "a process that heeds no signal": "if os.fork() == 0:\n    for n in range(1, 65):\n        try: signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    os.setpgid(0, 0); time.sleep(60)",
    "a stopped process": "p = os.fork()\nif p == 0: time.sleep(60)\nos.kill(p, signal.SIGSTOP)",
    "processes that give birth as they die": "for _ in range(20):\n    if os.fork() == 0:\n        while True:\n            try:\n                if os.fork(): os._exit(0)\n            except OSError: pass",
    "a process that holds the outputs": "if os.fork() == 0: os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(60)",
    "a thread": "threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()",
    "a shared segment": "libc.shmget(7, 4096, 0o1666)",
    "a queue of messages": "libc.mq_open(b'/left', 0o102, 0o666, None)",
    "an abstract socket": "if os.fork() == 0:\n    s = socket.socket(socket.AF_UNIX); s.bind('\\0left'); s.listen(); time.sleep(60)",
    "a limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "a mask": "os.umask(0o777)",
    "a low priority": "os.nice(10)",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 0.3)",
    "an environment": "os.environ['LEFT'] = 'x'; os.putenv('LEFT', 'x')",
    "a builtin": "builtins.LEFT = 1; sys.modules['left'] = os; sys.path.append('left')",
    "a secret in memory": "kept = ('LEFT' + '-IN-' + 'MEMORY') * 1000",
    "a descriptor": "os.dup2(1, 77)",
    "a full disk": "f = open('left', 'wb')\ntry:\n    while True: f.write(bytes(1 << 20)); f.flush()\nexcept OSError: pass",
    "as many files as fit": "try:\n    for n in range(5000): open(str(n), 'w').close()\nexcept OSError: pass",
    "a name for the host": "socket.sethostname('left')",
    "a mount": "libc.mount(b'x', b'.', b'tmpfs', 0, None)",
    "a lock on a file all share": "fcntl.flock(os.open(shared, 0), fcntl.LOCK_EX)\nif os.fork() == 0: time.sleep(60)",
}

_MODULES = sorted(path.name for path in Path(os.__file__).parent.glob("*.py"))
_SHARED = f"import os\nshared = os.path.dirname(os.__file__) + '/{_MODULES[os.getpid() % len(_MODULES)]}'\n"
"""A file that all slots of a machine read: another for each process of tests, since a lock on it is
seen by all.
"""

_LEAVE = (
    _SHARED
    + "import builtins, ctypes, fcntl, os, resource, signal, socket, sys, threading, time\nlibc = ctypes.CDLL(None)\n"
)
_LOOK = (
    _SHARED
    + """
import builtins, ctypes, fcntl, os, resource, signal, socket, sys, time
found = [n for n in os.listdir(b'.')] + list(os.listxattr('.'))
for folder in ('/tmp', '/dev/shm', '/branches', '/sandbox', '/var/tmp', '/run'):
    try: found += [n for n in os.listdir(folder) if n == 'left']
    except OSError: pass
try: found += [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (os.getpid(), 1, os.getppid())]
except OSError: pass
try: s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + 'left'); found.append('socket')
except OSError: pass
try: os.fstat(77); found.append(77)
except OSError: pass
libc = ctypes.CDLL(None)
if libc.shmget(7, 4096, 0) >= 0: found.append('segment')
found += [name for name in os.environ if name == 'LEFT'] + [n for n in ('left',) if n in sys.modules or n in sys.path]
if hasattr(builtins, 'LEFT') or os.uname().nodename == 'left': found.append('name')
mask = os.umask(0o22)
state = (mask, os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE), os.stat('.').st_mode, signal.getitimer(signal.ITIMER_REAL))
try: fcntl.flock(os.open(shared, 0), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: found.append('lock')
word = ('LEFT' + '-IN-').encode() + b'MEMORY' * 1 + ('LEFT' + '-IN-').encode()
for line in open('/proc/self/maps') if os.access('/proc/self/maps', os.R_OK) and not where else ():
    span, rights = line.split()[:2]
    if rights.startswith('r') and '[v' not in line:
        first, last = (int(x, 16) for x in span.split('-'))
        if ctypes.string_at(first, last - first).count(word) > 2: found.append('memory')
open('own', 'w').write('x' * 4096)
print([str(f) for f in found], state)
"""
)


@pytest.mark.parametrize("tier", TIERS)
async def test_a_run_leaves_nothing_to_the_next(tier: str, request: pytest.FixtureRequest) -> None:
    look = _LOOK.replace("not where", str(tier != "slots-landlock"))
    async with opened(tier, request) as sandbox:
        clean = await sandbox.execute(look, limits=LIMITS)
        assert (clean.status, clean.stdout[:3]) == (ExecutionStatus.OK, "[] "), clean
        for name, body in LEAVINGS.items():
            left = await sandbox.execute(_LEAVE + body, limits=LIMITS)
            assert left.status is not ExecutionStatus.INFRA_ERROR, (name, left)
            assert left.usage.wall_s < 8, name
            found = await sandbox.execute(look, limits=LIMITS)
            assert (found.status, found.stdout) == (clean.status, clean.stdout), (name, found, left)


@pytest.mark.parametrize("tier", TIERS[:1])
async def test_the_look_finds_what_is_left_in_the_same_run(
    tier: str, request: pytest.FixtureRequest
) -> None:
    seen = (
        "a file",
        "a process",
        "an abstract socket",
        "a mask",
        "a low priority",
        "a limit",
        "an environment",
        "a builtin",
        "a descriptor",
        "a secret in memory",
        "a timer",
        "a lock on a file all share",
    )
    look = _LOOK.replace("not where", "True")
    async with opened(tier, request) as sandbox:
        clean = await sandbox.execute(look, limits=LIMITS)
        for name in seen:
            code = f"{_LEAVE}{LEAVINGS[name]}\ntime.sleep(0.1)\n{look}"
            found = await sandbox.execute(code, limits=LIMITS)
            assert found.stdout != clean.stdout, (name, found)


SOURCES = {
    "c include": ("c", '#include "{w}"\nint main(){{return 0;}}'),
    "c include as text": (
        "c",
        '#include <stdio.h>\nconst char *s =\n#include "{w}"\n;\nint main(){{puts(s);}}',
    ),
    "c include of the accounts": ("c", '#include "/etc/shadow"\nint main(){{return 0;}}'),
    "c include by way of parents": (
        "c",
        '#include "../../../../../../../..{w}"\nint main(){{return 0;}}',
    ),
    "c include by a macro": ("c", '#define W "{w}"\n#include W\nint main(){{return 0;}}'),
    "c whether it is there": (
        "c",
        '#include <stdio.h>\nint main(){{\n#if __has_include("{w}")\nputs("{s}");\n#endif\n}}',
    ),
    "c assembler's incbin": (
        "c",
        '#include <stdio.h>\n__asm__(".data\\ns: .incbin \\"{w}\\"\\n.byte 0\\n.text");\nextern char s[] __asm__("s");int main(){{puts(s);}}',
    ),
    "c assembler's include": ("c", '__asm__(".include \\"{w}\\"");int main(){{return 0;}}'),
    "c embed": (
        "c",
        '#include <stdio.h>\nconst char s[]={{\n#embed "{w}"\n,0}};int main(){{puts(s);}}',
    ),
    "c++ include": ("cpp", '#include "{w}"\nint main(){{return 0;}}'),
    "c++ raw text": ("cpp", '#include <cstdio>\nint main(){{puts(\n#include "{w}"\n);}}'),
    "c++ import of a header": ("cpp", 'import "{w}";\nint main(){{return 0;}}'),
    "c keeper's proc": ("c", '#include "/proc/1/environ"\nint main(){{return 0;}}'),
    "c reads by itself": (
        "c",
        '#include <stdio.h>\nint main(){{char b[99]={{0}};FILE*f=fopen("{w}","r");if(f){{fread(b,1,98,f);puts(b);}}return 0;}}',
    ),
    "verilog include": ("verilog", '`include "{w}"\nmodule t; initial $finish; endmodule'),
    "verilog reads by itself": (
        "verilog",
        'module t; integer f,n; reg [8*64:1] s; initial begin f=$fopen("{w}","r"); if (f) begin n=$fgets(s,f); $display("%0s",s); end $finish; end endmodule',
    ),
    "verilog reads a memory": (
        "verilog",
        'module t; reg [7:0] m[0:9]; initial begin $readmemh("{w}",m); $finish; end endmodule',
    ),
    "bash reads by itself": ("bash", "cat {w}; exec 3<{w} && cat <&3; source {w}; echo $(<{w})"),
    "c++ templates without end": (
        "cpp",
        "template<int n> struct A {{ typedef typename A<n-1>::t t; typedef typename A<n+1>::t u; }}; int main(){{ A<900>::t x; }}",
    ),
    "c++ computes without end": (
        "cpp",
        "constexpr unsigned long f(unsigned long n){{ unsigned long s=0; for(unsigned long i=0;i<n;i++) s+=i; return s; }} int main(){{ constexpr auto x=f(1ul<<40); return x; }}",
    ),
    "c a huge array": ("c", "int a[1<<28]={{1}}; int main(){{return a[5];}}"),
    "c macros that grow": (
        "c",
        "\n".join(
            (
                "#define A0 1,1,1,1,1,1,1,1,1,1",
                *(f"#define A{n} {','.join([f'A{n - 1}'] * 10)}" for n in range(1, 9)),
                "int a[]={{A8}};int main(){{return 0;}}",
            )
        ),
    ),
    "c includes itself": ("c", "#include __FILE__\n#include __FILE__\nint main(){{return 0;}}"),
    "c complains without end": (
        "c",
        "\n".join(f"int x{n} = y{n};" for n in range(20000)) + "\nint main(){{return 0;}}",
    ),
}
_PLUGINS = {
    "specs": b"*cc1:\n-fplugin=./evil.so\n", "as": b"#!/bin/sh\necho BROKEN >&2\n", "cc1": b"#!/bin/sh\necho BROKEN >&2\n",
    "ld": b"#!/bin/sh\necho BROKEN >&2\n", "collect2": b"#!/bin/sh\necho BROKEN >&2\n", "gcc": b"#!/bin/sh\necho BROKEN >&2\n",
    "program": b"#!/bin/sh\necho BROKEN\n", "ivl": b"#!/bin/sh\necho BROKEN\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
async def test_a_compiler_is_no_weapon(
    tier: str, witness: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(tier, request) as sandbox:
        for name, (language, text) in SOURCES.items():
            if language == "verilog" and not shutil.which("iverilog"):
                continue
            code = (
                text.replace("{w}", str(witness))
                .replace("{s}", SECRET)
                .replace("{{", "{")
                .replace("}}", "}")
            )
            limits = Limits(timeout_s=5, cpu_s=3, compile_s=5, memory_bytes=256 << 20)
            done = await sandbox.execute(code, language, limits=limits)
            told = done.stdout + done.stderr + json.dumps(done.detail)
            assert SECRET not in told, (name, done)
            assert "root:" not in told, (name, done)
            assert done.status is not ExecutionStatus.INFRA_ERROR, (name, done)
        fine = '#include <stdio.h>\nint main(){puts("fine");return 0;}'
        done = await sandbox.execute(fine, "c", files=_PLUGINS)
        assert (done.stdout, done.stderr) == ("fine\n", ""), done


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_a_compiler_without_walls_is_one(witness: Path, tmp_path: Path) -> None:
    for name in (
        "c include as text",
        "c assembler's incbin",
        "c whether it is there",
        "c reads by itself",
    ):
        code = SOURCES[name][1].replace("{w}", str(witness)).replace("{s}", SECRET)
        (tmp_path / "main.c").write_text(code.replace("{{", "{").replace("}}", "}"))
        subprocess.run(
            ["gcc", "-o", "program", "main.c"],
            cwd=tmp_path,
            check=True,
            timeout=60,
            capture_output=True,
        )
        said = subprocess.run(
            ["./program"], cwd=tmp_path, capture_output=True, text=True, timeout=10
        )
        assert SECRET in said.stdout, name


HOGS = {
    "descriptors on their way": """
n = 0
try:
    while n < 20000:
        a, b = socket.socketpair(); kept.append((a, b)); a.setblocking(False)
        try:
            while True: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [b.fileno()] * 250))]); n += 250
        except BlockingIOError: pass
except OSError: pass""",
    "processes": """
try:
    for _ in range(1000):
        if os.fork() == 0: time.sleep(60)
except OSError: pass""",
    "the processor": """
for _ in range(4):
    if os.fork() == 0:
        while True: pass""",
    "pipes": """
try:
    while True:
        kept.append(os.pipe()); fcntl.fcntl(kept[-1][1], 1031, 1 << 20); os.set_blocking(kept[-1][1], False); os.write(kept[-1][1], bytes(1 << 20))
except OSError: pass""",
    "pending signals": """
signal.pthread_sigmask(signal.SIG_BLOCK, {40})
for _ in range(200000):
    if libc.sigqueue(os.getpid(), 40, None) != 0: break""",
    "timers": """
for _ in range(100000):
    if libc.timer_create(0, None, ctypes.create_string_buffer(8)) != 0: break""",
    "terminals": """
try:
    while True: kept.append(os.openpty())
except OSError: pass""",
    "a lock on what all read": "fcntl.flock(os.open(os.__file__, 0), fcntl.LOCK_EX)",
    "the whole disk": """
f = open('big', 'wb')
try:
    while True: f.write(bytes(1 << 20)); f.flush()
except OSError: pass""",
    "all memory it may have": "kept = bytearray(b'x' * (200 << 20))",
}

_HOG = """
import array, ctypes, fcntl, os, signal, socket, sys, time
libc = ctypes.CDLL(None); kept = []
{body}
print('taken', flush=True); time.sleep(1)
"""
_OTHER = "import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)"


@pytest.mark.parametrize("tier", TIERS)
async def test_what_one_run_takes_is_not_missing_to_another(
    tier: str, request: pytest.FixtureRequest
) -> None:
    async with opened(tier, request, size=3) as sandbox:
        for name, body in HOGS.items():
            hog = asyncio.ensure_future(sandbox.execute(_HOG.format(body=body), limits=LIMITS))
            await asyncio.sleep(0.3)
            while not hog.done():
                other = await sandbox.execute(_OTHER, files={"x": bytes(100_000)}, limits=LIMITS)
                assert other.stdout == "b'x\\n'\n", (name, other)
            assert (await hog).status is not ExecutionStatus.INFRA_ERROR, (name, await hog)
