"""Every tier that claims to hold must hold against these; each is shown to work where there are no walls.

An attack is a program that prints BROKEN when it got what it wanted. The same table runs on each tier that can run here,
as root and as an ordinary user, and (the positive control) on `unsafe` inside throwaway namespaces, where it must succeed.
"""

# ruff: noqa: E501 - the attacks are programs, one to a line
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from ludus.sandboxes import DockerSandbox, ExecutionStatus, Limits, NetworkPolicy, SlotSandbox

ROOT = os.getuid() == 0
NOBODY = 65534
LIMITS = Limits(timeout_s=5, cpu_s=3, memory_bytes=256 << 20)
UNLIMITED = Limits(timeout_s=150, cpu_s=150, memory_bytes=64 << 30, output_bytes=1 << 30)
"""For the positive control: `unsafe` has a watcher, but nothing that keeps code out."""
PATIENCE_S, PATIENCE_WITHOUT_WALLS_S = 20, 120
"""Seconds after which an attack gives up. Without walls, one that only a busy machine slows still has to work."""

_HEAD = """
import ctypes, json, os, socket, struct, sys, time
where = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*arguments):
    result = libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def attack():
"""

_TAIL = """
try:
    got = attack()
except Exception as error:
    print("held:", type(error).__name__, error)
else:
    print("BROKEN", repr(got)[:80]) if got is not None and got is not False else print("held: nothing gained")
"""

ATTACKS: dict[str, str] = {
    # files outside
    "read a file of the host": "return open(where['witness']).read()",
    "read it through proc root": "return open('/proc/self/root' + where['witness']).read()",
    "read it through parents": "return open('../' * 12 + where['witness'].lstrip('/')).read()",
    "read it through a link": "os.symlink(where['witness'], 'l'); return open('l').read()",
    "list the folder of the host": "return os.listdir(os.path.dirname(where['witness']))",
    "write to the host": "open(where['witness'] + '.new', 'w').write('x'); return True",
    "keep a hard link": "os.link(where['witness'], 'hard'); return True",
    "read the account file": "return [l for l in open('/etc/shadow')] or None",
    "read the driver's environment": """
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if b'LUDUS_ATTACK_SECRET' in open(f'/proc/{pid}/environ', 'rb').read(): return pid
        except OSError: pass""",
    "find a secret in its own environment": "return os.environ.get('LUDUS_ATTACK_SECRET')",
    "see processes of the host": "return [p for p in os.listdir('/proc') if p.isdigit() and int(p) == where['pid']] or None",
    "change the interpreter": "open(os.__file__, 'a').write(''); return True",
    "read kernel settings": "return open('/proc/sys/kernel/hostname').read()",
    "list sys": "return os.listdir('/sys') or None",
    # services
    "connect to loopback": "return socket.create_connection(('127.0.0.1', where['port']), where['patience']).recv(9)",
    "connect to a socket file": """
    s = socket.socket(socket.AF_UNIX); s.connect(where['socket']); return s.recv(9)""",
    "connect to an abstract socket": """
    s = socket.socket(socket.AF_UNIX); s.connect('\\0' + where['abstract']); return s.recv(9)""",
    "send to a datagram socket file": """
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', where['datagram']); return True""",
    "open a datagram internet socket": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "open a raw socket": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "open a packet socket": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "open a netlink socket": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "open an ipv6 socket": "return socket.socket(socket.AF_INET6)",
    # kernel doors
    "trace its keeper": """
    keeper = os.getppid(); pid = os.fork()
    if pid == 0:
        if libc.syscall(101, 16, keeper, 0, 0) < 0: os._exit(0)
        os.waitpid(keeper, 0x40000000); libc.syscall(101, 17, keeper, 0, 0); os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7""",
    "read its keeper's memory": """
    near = ctypes.create_string_buffer(8); far = ctypes.c_char_p(b'x')
    vec = struct.pack('QQ', ctypes.addressof(near), 8)
    out = struct.pack('QQ', ctypes.cast(libc.getpid, ctypes.c_void_p).value, 8)
    return call(310, os.getppid(), vec, 1, out, 1, ctypes.c_long(0)) == 8""",
    "take its keeper's descriptors": "call(438, call(434, os.getppid(), 0), 0, 0); return True",
    "make a user namespace": "call(272, 0x10000000); return True",
    "make a mount namespace": "call(272, 0x20000); return True",
    "clone into namespaces": """
    pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    return pid""",
    "mount": "os.mkdir('m'); call(165, b'x', b'm', b'tmpfs', 0, 0); call(166, b'm', 2); return True",
    "change root": "call(161, b'.'); return True",
    "load a bpf map": "return call(321, 0, struct.pack('IIII', 2, 4, 8, 4) + bytes(112), 128)",
    "add a key": "return call(248, b'user', b'ludus', b'x', 1, -2)",
    "set up io_uring": "return call(425, 4, bytes(120))",
    "open userfaultfd": "return call(323, 1)",
    "read performance events": "return call(298, struct.pack('IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0)",
    "name a file by handle": """
    handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); mount = ctypes.c_int()
    call(303, -100, b'/usr', handle, ctypes.byref(mount), 0); return True""",
    "make a device": "os.mknod('dev', 0o600 | 0o20000, os.makedev(1, 1)); return True",
    "change the host name": "name = os.uname().nodename; socket.sethostname('broken'); socket.sethostname(name); return True",
    "raise its priority": "before = os.nice(0); return os.nice(-5) < before",
    "become root": "os.setuid(0); return os.getuid() == 0 and where['uid'] == 0",
    "raise a limit": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048)); return True",
    "make a shared segment": "return call(29, 77, 4096, 0o1666)",
    "make a message queue": "return call(240, b'ludus', 0o102, 0o666, 0)",
    "trace itself by a child": """
    pid = os.fork()
    if pid == 0: time.sleep(60); os._exit(0)
    call(101, 16, pid, 0, 0); return True""",
    "signal its keeper": "os.kill(os.getppid(), 0); return True",
    "limit its keeper": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)); return True",
    "slow its keeper": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 1); return True",
    "pin its keeper": "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)); return True",
    "write outside its directory": """
    try: mounts = [line.split()[1] for line in open('/proc/self/mounts')]
    except OSError: mounts = []
    for folder in [*mounts, '/', '/run', '/var', '/var/tmp', '/home', '/srv', '/ludus', '/packages', '/dev', '/dev/shm']:
        if os.path.realpath(folder) in (os.getcwd(), '/tmp', os.environ['HOME']): continue
        try:
            open(folder + '/ludus-kept', 'w').close(); return folder
        except OSError: pass""",
    "reach the container engine": """
    for path in (where['engine'], '/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock', '/ludus/line/socket'):
        s = socket.socket(socket.AF_UNIX)
        try: s.connect(path); return path
        except OSError: pass""",
    "find an open descriptor": """
    left = []
    for number in range(3, 256):
        try: os.fstat(number); left.append(number)
        except OSError: pass
    return left or None""",
    "use the 32-bit entry": """
    import mmap
    page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex('b814000000cd80c3'))
    run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page))); return run() > 0""",
    # bombs: broken means that the bound was not there
    "fill the disk": """
    with open('big', 'wb') as f:
        for _ in range(100): f.write(bytes(1 << 20))
    return True""",
    "fork without end": """
    pids = []
    for _ in range(80):
        pid = os.fork()
        if pid == 0: time.sleep(30); os._exit(0)
        pids.append(pid)
    return len(pids)""",
}

NOT_APPLICABLE = {
    "find a secret in its own environment": "slots start with a clean environment on every tier, `unsafe` too",
    "find an open descriptor": "a slot hands none over on any tier; checked because one leak would reach its sockets",
    "read performance events": "the kernel's paranoia level may refuse it anywhere",
    "open userfaultfd": "may be switched off for everybody",
    "use the 32-bit entry": "the kernel may be built without it",
}
"""Attacks that no positive control can be required of, and why. They are played on every tier, and nobody should count
them as held.
"""

MISTAKES = ("SyntaxError", "NameError", "AttributeError", "TypeError", "ModuleNotFoundError")

WEAKER_TIER: dict[str, dict[str, str]] = {
    "slots-landlock": {
        "fork without end": "an ordinary user's processes are watched, not bounded; as root they are"
    },
    "gvisor": {
        "read kernel settings": "they are of the kernel in user space, not of the host",
        "list sys": "same",
        "make a device": "that kernel has none but its own harmless ones, whatever a file's number says",
        "raise its priority": "a number without effect there: the host schedules the container as one",
        "slow its keeper": "same",
        "pin its keeper": "same",
        "use up the inodes": "its file systems have no limit of inodes; their bytes are bounded, and they are its own",
        "use up the inodes with folders": "same",
        "start threads without end": "its threads are not counted; their memory is",
        "start small threads without end": "same",
        "use the machine's fuse": "of the kernel in user space: there is nothing behind it",
        **dict.fromkeys(
            (
                "read where its keeper's memory is",
                "read its keeper's environment",
                "read its keeper's command",
                "read its keeper's descriptors",
                "open a descriptor of its keeper",
            ),
            "release 20221219 shows every process of a container to every other; the keeper holds no secret, and nothing but /dev/null opens",
        ),
    },
    "network": {
        "open a datagram internet socket": "its socket is of an empty network of its own: there is nothing to reach"
    },
}
"""tier -> attacks it does not claim to hold, and why (docs/sandboxes.md)."""


CPU_S: dict[str, float] = {}
"""attack -> its own limit of CPU time, where it has one."""


def _tables() -> list[dict[str, Any]]:
    """The further attacks, by what they aim at."""
    folder = Path(__file__).parent / "attacks"
    return [runpy.run_path(str(table)) for table in sorted(folder.glob("*.py"))]


for _table in _tables():
    assert ATTACKS.keys().isdisjoint(_table["ATTACKS"])
    ATTACKS.update(_table["ATTACKS"])
    NOT_APPLICABLE.update(_table.get("NOT_APPLICABLE", {}))
    CPU_S.update(_table.get("CPU_S", {}))
    for _tier, _excused in _table.get("EXCUSED", {}).items():
        WEAKER_TIER.setdefault(_tier, {}).update(_excused)


def program(body: str) -> str:
    lines = body.strip("\n").splitlines()
    indented = "\n".join(line if line.startswith("    ") else "    " + line for line in lines)
    return f"{_HEAD}{indented}\n{_TAIL}"


class Targets:
    """What the attacks aim at: a secret file, services, an environment variable."""

    def __enter__(self) -> dict[str, object]:
        self.folder = Path(tempfile.mkdtemp(prefix="ludus-attack-"))
        self.folder.chmod(0o755)
        (self.folder / "witness").write_text("secret")
        (self.folder / "witness").chmod(0o644)
        os.environ["LUDUS_ATTACK_SECRET"] = "secret"
        self.bystander = subprocess.Popen(["sleep", "600"])
        self.fill()
        abstract = self.folder.name
        self.sockets = [
            socket.socket(family) for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        ]
        self.sockets[0].bind(("127.0.0.1", 0))
        self.sockets[1].bind(str(self.folder / "stream"))
        self.sockets[2].bind("\0" + abstract)
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(str(self.folder / "datagram"))
        for path in ("stream", "datagram"):
            (self.folder / path).chmod(0o777)
        for service in self.sockets:
            service.listen()
            threading.Thread(target=_serve, args=(service,), daemon=True).start()
        return {
            "witness": str(self.folder / "witness"), "port": self.sockets[0].getsockname()[1], "uid": os.getuid(),
            "socket": str(self.folder / "stream"), "datagram": str(self.folder / "datagram"),
            "abstract": abstract, "pid": os.getpid(), "home": str(Path("~root").expanduser()), "group": os.getpgid(0), "host": socket.gethostname(),
            **{name: str(self.folder / place) for name, place in self.PLACES.items()},
            "engine": self._engine(), "patience": PATIENCE_S,
        }  # fmt: skip

    PLACES: ClassVar = {
        "runnable": "runnable", "library": "library.so", "victim": "victim", "open": "open",
        "removable": "open/removable", "movable": "open/movable",
    }  # fmt: skip

    def _engine(self) -> str:
        """The container engine's socket; where none can be seen from here, one that answers."""
        engine = os.environ.get("DOCKER_HOST", "").removeprefix("unix://")
        return engine if engine and Path(engine).exists() else str(self.folder / "stream")

    def fill(self) -> None:
        """Files that are there to be run, loaded, changed and stolen."""
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        for name in ("victim", "open/removable", "open/movable"):
            (self.folder / name).write_text("x")
            (self.folder / name).chmod(0o666)
        (self.folder / "runnable").write_text("#!/bin/sh\necho BROKEN\n")
        (self.folder / "runnable").chmod(0o755)
        (self.folder / "ludus_attack_module.py").write_text("secret = 'secret'\n")
        (self.folder / "ludus_attack_module.py").chmod(0o644)
        mapped = Path("/proc/self/maps").read_text().split()
        library = next(place for place in mapped if place.startswith("/") and "libc.so" in place)
        shutil.copy(library, self.folder / "library.so")

    def __exit__(self, *_: object) -> None:
        self.bystander.kill()
        self.bystander.wait()
        for service in [*self.sockets, self.datagram]:
            service.close()
        shutil.rmtree(self.folder)
        del os.environ["LUDUS_ATTACK_SECRET"]


def _serve(service: socket.socket) -> None:
    while True:
        try:
            connection, _ = service.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), connection:  # whom it reached may be gone by now
            connection.sendall(b"reached")


async def open_tier(tier: str, network: NetworkPolicy | None) -> SlotSandbox:
    if tier == "docker":
        return await DockerSandbox.open(size=2, network=network)
    if tier == "gvisor":
        return await DockerSandbox.open(size=2, network=network, runtime="runsc")
    return SlotSandbox(tier, size=2, network=network)


async def run_attacks(tier: str, network: NetworkPolicy | None = None) -> dict[str, str]:
    """attack -> what became of it."""
    names = [name for name in ATTACKS if tier != "unsafe" or name not in NOT_APPLICABLE]
    sandbox = await open_tier(tier, network)
    try:
        with Targets() as targets:
            plays = [play(sandbox, name, targets, network is not None) for name in names]
            results = dict(zip(names, await asyncio.gather(*plays), strict=True))
            results["a run after all of them"] = (await sandbox.execute("print('fine')")).stdout
    finally:
        await sandbox.close()
    return results


async def play(sandbox: SlotSandbox, name: str, targets: dict[str, object], network: bool) -> str:
    """What became of one attack; they are played as many at a time as there are slots."""
    cpu_s = CPU_S.get(name)
    limits = msgspec.structs.replace(LIMITS, cpu_s=cpu_s, timeout_s=20) if cpu_s else LIMITS
    walls = sandbox.tier != "unsafe"
    done = await sandbox.execute(
        program(ATTACKS[name]),
        argv=[json.dumps(targets | ({} if walls else {"patience": PATIENCE_WITHOUT_WALLS_S}))],
        limits=limits if walls else UNLIMITED,
        network=network,
    )
    return f"{done.status}|{done.stdout[-1000:]}{done.stderr[-200:]}{done.detail}"


def run_elsewhere(tier: str, *wrapper: str, **options: Any) -> dict[str, str]:
    """Run the table in another process (other namespaces, another user)."""
    code = (
        "import asyncio, json, importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('attacks', sys.argv[1])\n"
        "attacks = importlib.util.module_from_spec(spec); sys.modules['attacks'] = attacks; spec.loader.exec_module(attacks)\n"
        "tier, _, network = sys.argv[2].partition('+')\n"
        "policy = attacks.NetworkPolicy() if network else None\n"
        "print('RESULT' + json.dumps(asyncio.run(attacks.run_attacks(tier, policy))))\n"
    )
    any_user = bool(options) or tier == "slots-landlock"  # its programs are of another user
    command = [*wrapper, _python(any_user), "-c", code, __file__, tier]
    environment = {**os.environ, "PYTHONPATH": _import_path()}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=570, env=environment, cwd="/tmp", **options
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(found[-1].removeprefix("RESULT"))


def _import_path() -> str:
    """Where packages are; the standard library is the interpreter's own."""
    return ":".join(path for path in sys.path if path and not path.startswith(sys.base_prefix))


def _python(as_nobody: bool) -> str:
    """An interpreter of this version that the ordinary user may run."""
    if not as_nobody:
        return sys.executable
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, system):
        with contextlib.suppress(OSError):
            trial = [candidate, "-c", "import ctypes"]
            if (
                subprocess.run(
                    trial, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"
                ).returncode
                == 0
            ):
                return candidate
    pytest.skip("no interpreter of this version that an ordinary user may run")


def check_held(results: dict[str, str], *tiers: str) -> None:
    excused = {name for tier in tiers for name in WEAKER_TIER.get(tier, {})}
    broken = {
        name: result
        for name, result in results.items()
        if "BROKEN" in result and name not in excused
    }
    assert broken == {}, f"these attacks succeeded: {broken}"
    faulty = {
        name: result
        for name, result in results.items()
        if any(mistake in result for mistake in MISTAKES) and name != "import it"
    }
    assert faulty == {}, "an attack that fails by a mistake of its own has shown nothing"
    odd = {
        name: result
        for name, result in results.items()
        if result.startswith(ExecutionStatus.INFRA_ERROR)
    }
    assert odd == {}, "a program must not be able to cause an infra_error"
    assert results["a run after all of them"] == "fine\n"


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="needs root")
@pytest.mark.parametrize("tier", ["slots-root", "slots-landlock"])
def test_no_attack_succeeds_as_root(tier: str) -> None:
    check_held(run_elsewhere(tier), tier)


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="needs root")
@pytest.mark.parametrize("tier", ["slots-root", pytest.param("docker", marks=pytest.mark.docker)])
def test_no_attack_succeeds_with_a_network(tier: str, request: pytest.FixtureRequest) -> None:
    if tier == "docker":
        request.getfixturevalue("docker_host")
    check_held(asyncio.run(run_attacks(tier, NetworkPolicy())), tier, "network")


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="needs root, to become an ordinary user")
@pytest.mark.parametrize("tier", ["slots-userns", "slots-landlock"])
def test_no_attack_succeeds_as_an_ordinary_user(tier: str) -> None:
    check_held(run_elsewhere(tier, user=NOBODY, group=NOBODY, extra_groups=[]), tier)


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="needs root, to become an ordinary user")
def test_no_attack_succeeds_with_a_network_of_an_ordinary_user() -> None:
    options: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    check_held(run_elsewhere("slots-userns+network", **options), "slots-userns", "network")


@pytest.mark.docker
def test_no_attack_succeeds_in_a_container(docker_host: str) -> None:
    check_held(asyncio.run(run_attacks("docker")), "docker")


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("runsc"), reason="needs gVisor (apt-get install runsc)")
def test_no_attack_succeeds_in_a_container_with_a_kernel_in_user_space(docker_host: str) -> None:
    check_held(asyncio.run(run_attacks("gvisor")), "gvisor")


@pytest.mark.docker
@pytest.mark.skipif(not ROOT, reason="needs root, to become an ordinary user")
def test_no_attack_succeeds_in_a_container_of_an_ordinary_user(docker_host: str) -> None:
    gid = os.stat(docker_host.removeprefix("unix://")).st_gid
    check_held(run_elsewhere("docker", user=NOBODY, group=NOBODY, extra_groups=[gid]), "docker")


_OWN_TMP = """
mount -t tmpfs x /mnt && mkdir /mnt/checkout && mount --bind "$1" /mnt/checkout &&
mount -t tmpfs x /tmp && mkdir -p "$1" && mount --bind /mnt/checkout "$1" &&
cd /tmp && ip link set lo up 2>/dev/null; shift; exec "$@"
"""
"""A /tmp of its own, in which the checkout is still where it was (it may be below /tmp)."""


@pytest.mark.root
@pytest.mark.skipif(not ROOT or not shutil.which("unshare"), reason="needs root and unshare")
def test_each_attack_works_where_there_are_no_walls() -> None:
    namespaces = (
        "unshare",
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--uts",
        "--fork",
        "--mount-proc",
        "--",
    )
    inside = ("sh", "-c", _OWN_TMP, "sh", str(Path(__file__).parents[2]))
    results = run_elsewhere("unsafe", *namespaces, *inside)
    # an attack that took its keeper down has worked, and so has one its watcher had to end
    worked = ("BROKEN", "infra_error", "started more than")
    void = {
        name: result
        for name, result in results.items()
        if not any(word in result for word in worked)
    }
    void.pop("a run after all of them")
    assert void == {}
