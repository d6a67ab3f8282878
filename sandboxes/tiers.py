"""The tiers of isolation, strongest first: which of them hold on this machine is found out by
doing.

A probe does what an attacker would do (read a file of the host, open a socket, signal its keeper,
mount) and must fail; or does what a program needs and must succeed. A tier that fails one probe is
not offered.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field

from ludus.errors import ConfigError

from .inside.plan import LANDLOCK, ROOT, UNSAFE, USERNS
from .protocol import Limits, Sandbox
from .slot_sandbox import SLOT_TIERS, SlotSandbox

TIERS = (ROOT, USERNS, LANDLOCK, UNSAFE)
"""All tiers by falling strength. `unsafe` is no isolation at all and is never chosen."""

_LIMITS = Limits(timeout_s=10, cpu_s=5)

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

_LEFTOVER_PROGRAM = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nprint('left')"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What the probes say about one tier."""

    tier: str
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        """Whether the tier may be used."""
        return not self.problems


async def probe(sandbox: SlotSandbox) -> Finding:
    """Try the walls of a sandbox from inside."""
    notes = (
        []
        if sandbox.groups or sandbox.tier == UNSAFE
        else [sandbox.no_groups + "; using resource limits and a watcher"]
    )
    with tempfile.NamedTemporaryFile(prefix="ludus-witness-") as witness:
        os.chmod(witness.name, 0o644)
        tried = await sandbox.execute(_PROBE_PROGRAM, argv=[witness.name], limits=_LIMITS)
    problems = [
        line.removeprefix("open: ")
        for line in tried.stdout.splitlines()
        if line.startswith("open:")
    ]
    if "done" not in tried.stdout:
        problems.append(f"a program does not run: {tried.detail or tried.stderr[-300:]}")
    else:
        left = await sandbox.execute(_LEFTOVER_PROGRAM, limits=_LIMITS)
        again = await sandbox.execute("import os; print(os.listdir('.'))", limits=_LIMITS)
        if not left.ok or again.stdout != "[]\n":
            problems.append(
                f"a run does not start clean: {left.detail} {again.stdout!r} {again.stderr[-200:]}"
            )
    return Finding(sandbox.tier, problems, notes)


async def examine(tier: str) -> Finding:
    """Start one slot of `tier`, probe it, end it."""
    if tier == UNSAFE:
        return Finding(
            tier, notes=["no isolation at all; not probed, since the probes would succeed"]
        )
    try:
        sandbox = SlotSandbox(tier, size=1)
    except ConfigError as error:
        return Finding(tier, [str(error)])
    try:
        return await probe(sandbox)
    finally:
        await sandbox.close()


async def open_sandbox(tier: str | None = None, *, size: int | None = None) -> Sandbox:
    """The strongest sandbox that holds here, or the one named.

    Raises:
        ConfigError: the tier is unknown or fails a probe; with no tier named, none holds. `unsafe`
            only by name.
    """
    if tier is not None:
        return await _open(tier, size)
    reasons: list[str] = []
    for candidate in TIERS[:-1]:
        try:
            return await _open(candidate, size)
        except ConfigError as error:
            reasons.append(f"  {candidate}: {error}")
    raise ConfigError(
        "no sandbox tier holds here ('unsafe' runs without isolation, by name only):\n"
        + "\n".join(reasons)
    )


async def _open(tier: str, size: int | None) -> Sandbox:
    if tier not in SLOT_TIERS:
        raise ConfigError(f"no sandbox tier named {tier!r}; known: {', '.join(TIERS)}")
    sandbox = SlotSandbox(tier, size=size)
    finding = await probe(sandbox) if tier != UNSAFE else Finding(tier)
    if not finding.holds:
        await sandbox.close()
        raise ConfigError("; ".join(finding.problems))
    return sandbox
