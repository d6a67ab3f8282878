"""Opens sandboxes: probes which tiers of isolation hold on this machine, and picks the strongest.

A probe does what an attacker would do (read a file of the host, open a socket, signal the
supervisor, mount) and must fail; or does what a program needs and must succeed. A tier that fails a
single probe is not offered. There is no list of kernel versions instead, because a system call may
exist and still be withheld (decision 0404).
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from dataclasses import dataclass, field, replace

from ludus.errors import ConfigError, LudusError, MissingExtra

from .custom import examine_custom, is_custom, open_custom
from .docker import DockerSandbox
from .guest.run.plan import DOCKER, LANDLOCK, ROOT, UNSAFE, USERNS
from .local.slot_sandbox import SlotSandbox
from .network import NetworkPolicy
from .protocol import REMOTE, ExecutionStatus, Limits, Sandbox
from .settings import DEFAULTS, TIER_VARIABLE, SandboxSettings

_log = logging.getLogger(__name__)

TIERS = (ROOT, USERNS, DOCKER, LANDLOCK, UNSAFE)
"""All tiers, in the order of trial. `unsafe` does not isolate at all and is never chosen."""


_LIMITS = Limits(timeout_s=10, cpu_s=5)

# 0x10000000 is CLONE_NEWUSER, and ptrace request 16 is PTRACE_ATTACH. A parent outside the pid
# namespace has the pid 0, which `kill` would take for the own process group, so pid 1 is tried.
# The last lines do what a program needs, and "done" shows that every line before was reached.
_PROBE_PROGRAM = """
import ctypes, os, socket, sys
witness = sys.argv[1]
def refused(name, action):
    try:
        action()
    except OSError:
        return
    print("open:", name)
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")
refused("a file of the host can be read", lambda: open(witness))
refused("a file can be made in /usr", lambda: open("/usr/bin/ludus-probe", "w"))
refused("an internet socket can be opened", lambda: socket.socket(socket.AF_INET))
refused("its keeper can be signalled", lambda: os.kill(os.getppid() or 1, 0))
refused("a namespace can be made", lambda: call(libc.unshare(0x10000000)))
refused("a file system can be mounted", lambda: call(libc.mount(b"x", b".", b"tmpfs", 0, None)))
refused("another process can be traced", lambda: call(libc.ptrace(16, os.getppid(), 0, 0)))
refused("it can become root", lambda: os.setuid(0))
open("own", "w").write("x")
print("done", os.getuid())
"""

_LIBRARY_PROGRAM = "import colorsys, plistlib, wave"
"""A program that imports standard-library modules which no slot has loaded beforehand."""

_LEFTOVER_PROGRAM = """
import os, time
open("left", "w").close()
left = os.fork()
if left == 0:
    os.setsid()
    time.sleep(60)
print(left)
"""
"""A program that leaves behind a file and a process, whose pid it prints."""

# Every run of a slot sees the same pids. A process that lives on is refused to be signalled or not,
# as the tier has it; only one that is gone is not found.
_CLEAN_PROGRAM = """
import os, sys
try:
    os.kill(int(sys.argv[1]), 0)
    state = "lives"
except ProcessLookupError:
    state = "gone"
except PermissionError:
    state = "lives"
print(state, os.listdir("."))
"""

_BOUND_PROGRAMS = {
    "memory is not bounded": "x = [bytearray(1 << 20) for _ in range(256)]",
    "disk is not bounded": "f = open('big', 'wb')\nfor _ in range(100): f.write(bytes(1 << 20))",
    "processes are not bounded": """
import os, time
for _ in range(80):
    if os.fork() == 0:
        time.sleep(30)
""",
}
"""Programs that exceed a limit, by the problem to report if they succeed.

They are run where a container engine, not ludus, sets the limits.
"""

_BOUND_LIMITS = Limits(timeout_s=10, cpu_s=5, memory_bytes=192 << 20)

_PROXY_PROGRAM = """
import os, socket
host, _, port = os.environ["https_proxy"].removeprefix("http://").partition(":")
way = socket.create_connection((host, int(port)), 5)
way.sendall(b"CONNECT 127.0.0.1:22 HTTP/1.1\\r\\n\\r\\n")
print(way.recv(99).split(b"\\r\\n")[0].decode())
"""


@dataclass(frozen=True, slots=True)
class TierFinding:
    """The result of probing a tier: the problems found, and notes for the operator."""

    tier: str
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        """Whether the tier may be used, which takes a result without problems."""
        return not self.problems


async def probe(sandbox: SlotSandbox) -> TierFinding:
    """Attack the isolation of an open sandbox from inside, and return what did not hold."""
    with tempfile.NamedTemporaryFile(prefix="ludus-witness-") as witness:
        # Readable by everybody, so that only isolation can refuse to open the file.
        os.chmod(witness.name, 0o644)
        execution = await sandbox.execute(_PROBE_PROGRAM, argv=[witness.name], limits=_LIMITS)
    problems = [
        line.removeprefix("open: ")
        for line in execution.stdout.splitlines()
        if line.startswith("open:")
    ]
    if "done" not in execution.stdout:
        problems.append(f"a program does not run: {execution.detail or execution.stderr[-300:]}")
    else:
        problems += await _probe_library(sandbox)
        problems += await _probe_leftovers(sandbox)
        # In the other tiers ludus sets the limits itself, and needs no probe of an engine.
        problems += await _probe_bounds(sandbox) if sandbox.tier == DOCKER else []
        problems += await _probe_network(sandbox) if sandbox.offers_network else []
    return TierFinding(sandbox.tier, problems, sandbox.notes)


async def _probe_library(sandbox: SlotSandbox) -> list[str]:
    """Return a problem if programs cannot import the standard library.

    A folder above this machine's Python may be closed to other users, and a program is another
    user.
    """
    execution = await sandbox.execute(_LIBRARY_PROGRAM, limits=_LIMITS)
    if execution.ok:
        return []
    problem = execution.detail or execution.stderr.strip().rpartition("\n")[2][-200:]
    return [
        f"programs cannot import the standard library: {problem}; is a folder above "
        f"{sys.base_prefix} closed to other users? Use a Python that all may read"
    ]


async def _probe_leftovers(sandbox: SlotSandbox) -> list[str]:
    """Return a problem unless a run starts in an empty directory, and without the process that the
    run before left behind.
    """
    first_run = await sandbox.execute(_LEFTOVER_PROGRAM, limits=_LIMITS)
    pid = first_run.stdout.strip()
    second_run = await sandbox.execute(_CLEAN_PROGRAM, argv=[pid], limits=_LIMITS)
    if first_run.ok and second_run.stdout == "gone []\n":
        return []
    problem = f"{first_run.detail} {second_run.stdout!r} {second_run.stderr[-200:]}"
    return [f"a run does not start clean: {problem}"]


async def _probe_bounds(sandbox: SlotSandbox) -> list[str]:
    problems: list[str] = []
    for problem, program in _BOUND_PROGRAMS.items():
        execution = await sandbox.execute(program, limits=_BOUND_LIMITS)
        if execution.ok or execution.status is ExecutionStatus.INFRA_ERROR:
            problems.append(f"{problem} {execution.detail}".rstrip())
    return problems


async def _probe_network(sandbox: SlotSandbox) -> list[str]:
    """Return a problem unless a run's proxy answers and refuses a connection to this machine."""
    execution = await sandbox.execute(_PROXY_PROGRAM, limits=_LIMITS, network=True)
    if " 403 " in execution.stdout:
        return []
    problem = execution.stdout or execution.detail or execution.stderr[-200:]
    return [f"a run with a network is not refused this machine's loopback: {problem!r}"]


async def examine(tier: str, settings: SandboxSettings = DEFAULTS) -> TierFinding:
    """Open a sandbox of `tier` with a slot of each kind, probe the isolation, and close the
    sandbox.

    If `tier` is the address of a server, or a sandbox of your own, a program is run there instead.

    Args:
        tier: the name of a tier, an address, or `module:attribute`.
        settings: how the sandbox is opened; `size` is not used.

    Returns:
        What was found. A tier that cannot be opened has the error among its problems.
    """
    if is_address(tier):
        from .remote import examine_remote

        return TierFinding(REMOTE, *await examine_remote(tier))
    if is_custom(tier):
        return TierFinding(tier, *await examine_custom(tier))
    if tier == UNSAFE:
        return TierFinding(
            tier, notes=["no isolation at all; not probed, since the probes would succeed"]
        )
    try:
        sandbox = await _make(tier, replace(settings, size=1))
    except LudusError as error:
        return TierFinding(tier, [str(error)])
    try:
        return await probe(sandbox)
    finally:
        await sandbox.close()


def is_address(tier: str) -> bool:
    """Return whether a tier is named by the address of a server.

    >>> is_address("remote:http://10.0.0.7:8765"), is_address("slots-root")
    (True, False)
    """
    return tier.startswith((f"{REMOTE}:", "http://", "https://"))


def refuse_unknown(tier: str) -> None:
    """Refuse a name that is neither a tier, an address of a server, nor a sandbox of your own.

    Raises:
        ConfigError: the name is unknown; the text lists the tiers and the other forms of a name.
    """
    if tier not in TIERS and not is_address(tier) and not is_custom(tier):
        raise ConfigError(
            f"no sandbox tier named {tier!r}; known: {', '.join(TIERS)}; a server is named by its "
            f"address, {REMOTE}:http://host:port, a sandbox of yours as module:attribute"
        )


async def open_sandbox(
    tier: str | None = None,
    *,
    size: int | None = None,
    image: str | None = None,
    runtime: str | None = None,
    network: NetworkPolicy | None = None,
) -> Sandbox:
    """Open the strongest sandbox that holds on this machine, or the sandbox that `tier` names.

    Args:
        tier: the name of a tier, the address of a server (`remote:http://host:port`), or a sandbox
            of your own (`module:attribute`; see `open_custom`).
        size: slots of each kind; by default twice the cores this process may use.
        image: an image the container engine has; implies the tier `docker`.
        runtime: an OCI runtime the engine knows, such as gVisor's "runsc"; implies the tier
            `docker`.
        network: what runs with `network=True` may reach; if left out, such runs are refused.

    Raises:
        ConfigError: the tier is unknown or fails a probe; or no tier is named and none holds
            (`unsafe` has to be named).
        MissingExtra: the tier named needs a package that is not installed.
    """
    return await open_with(tier, SandboxSettings(size, image, runtime, network))


async def open_with(tier: str | None, settings: SandboxSettings) -> Sandbox:
    """Open a sandbox as `open_sandbox` does, from settings in a single object."""
    if tier is None and settings.are_for_docker:
        tier = DOCKER
    if tier is not None and is_address(tier):
        if settings.are_for_docker or settings.network:
            raise ConfigError(
                "image, runtime and network are settings of the server, not of its clients"
            )
        from .remote import open_remote  # imported only here, because its HTTP client loads slowly

        return await open_remote(tier)
    if tier is not None and is_custom(tier):
        if settings.are_for_docker or settings.network:
            raise ConfigError(
                f"image, runtime and network are settings of ludus' own tiers, not of {tier!r}"
            )
        return await open_custom(tier)
    if tier is not None:
        return await _open(tier, settings)
    reasons: list[str] = []
    for candidate in TIERS[:-1]:  # all but `unsafe`
        try:
            sandbox = await _open(candidate, settings)
        except (ConfigError, MissingExtra) as error:
            reasons.append(f"  {candidate}: {error}")
            continue
        if not (settings.for_tenants and sandbox.development):
            return sandbox
        await sandbox.close()
        reasons.append(
            f"  {candidate}: a development tier ({sandbox.development}), which a server takes only "
            f"by its name, {TIER_VARIABLE}={candidate}"
        )
    raise ConfigError(
        "no sandbox tier holds here ('unsafe' runs without isolation, by name only):\n"
        + "\n".join(reasons)
    )


async def _open(tier: str, settings: SandboxSettings) -> SlotSandbox:
    sandbox = await _make(tier, settings)
    try:
        finding = await probe(sandbox) if tier != UNSAFE else TierFinding(tier)
        if not finding.holds:
            raise ConfigError("; ".join(finding.problems))
    except BaseException:  # a cancelled caller too: nobody else knows of the sandbox
        await sandbox.close()
        raise
    for note in sandbox.notes if settings.for_tenants else ():
        _log.warning("the sandbox %s: %s", tier, note)
    return sandbox


async def _make(tier: str, settings: SandboxSettings) -> SlotSandbox:
    if tier == DOCKER:
        return await DockerSandbox.open(
            image=settings.image,
            runtime=settings.runtime,
            size=settings.size,
            network=settings.network,
            readable=settings.readable,
        )
    refuse_unknown(tier)
    if settings.are_for_docker:
        raise ConfigError(f"an image and a runtime are for the tier 'docker', not {tier!r}")
    return SlotSandbox(
        tier, size=settings.size, network=settings.network, readable=settings.readable
    )
