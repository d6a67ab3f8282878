"""Describes the container of a slot in the terms of the engine's API.

This module decides everything and calls nothing. Every restriction is written down here, whatever
the engine's own defaults are: no network, a read-only root, all capabilities dropped but three, no
new privileges, bounds on memory, processes and the two writable folders, and no access to the
engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..guest.jail import policy
from ..local.control_groups import SLACK_BYTES
from ..local.supervisor import GUEST_PARENT
from ..protocol import DEFAULT_LIMITS

CAPABILITIES = ("SETUID", "SETGID", "KILL")
"""The capabilities with which a slot changes the identity of its children and ends them. The
children have none.
"""

LUDUS = "/ludus"
"""The folder of a container in which the files of the slot itself appear."""

LINE_FOLDER = "line"
"""The name of the folder with the socket to the driver, on the driver's side as well."""
LINE = f"{LUDUS}/{LINE_FOLDER}"
"""The folder of the socket to the driver.

The driver unlinks the socket before the first program runs, so no program can connect to it.
"""

SOCKET = "socket"

# The folder of the slot's code is in `sys.path` only during the import, and not for programs.
_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
from guest.run.container import main
sys.path.pop(0)
main(sys.argv[2])
"""

_RUNTIME_BYTES = 64 << 20
_RUNTIME_PIDS, _PIDS_PER_PROCESS = 256, 8
"""Room for what gVisor takes beside a program.

Release 20221219 took 38 MB and 158 threads at rest, and 8 threads for each process (decision 0419).
"""

_HIDDEN = (
    "/sys", "/dev/mqueue", "/dev/pts", "/etc/resolv.conf",
    *(
        f"/proc/{name}"
        for name in (
            "acpi", "asound", "buddyinfo", "bus", "cgroups", "cmdline", "config.gz", "consoles",
            "crypto", "devices", "diskstats", "dma", "driver", "execdomains", "fb", "fs",
            "interrupts", "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys",
            "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "locks", "mdstat",
            "misc", "modules", "mtrr", "pagetypeinfo", "partitions", "pressure", "sched_debug",
            "schedstat", "scsi", "slabinfo", "softirqs", "swaps", "sys", "sysrq-trigger", "sysvipc",
            "timer_list", "timer_stats", "tty", "version", "vmallocinfo", "vmstat", "zoneinfo",
        )
    ),
)  # fmt: skip
"""Paths that are covered by empty files or folders: the host's settings and counters, and kernel
file systems in which a run could leave something behind.
"""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, shown read-only."""

    source: str
    target: str


def guest_mount() -> Mount:
    """Return the mount of the slot's own code."""
    return Mount(f"{GUEST_PARENT}/guest", f"{LUDUS}/guest")


def line_mount(folder: Path) -> Mount:
    """Return the mount of the socket to the driver, from the folder of a slot."""
    return Mount(str(folder / LINE_FOLDER), LINE)


@dataclass(frozen=True, slots=True)
class Container:
    """The description of a container that is to be made."""

    image: str
    """The id of the image from which the container is made."""
    python: tuple[str, ...]
    """The command that starts the interpreter: the image's, or the driver's."""
    mounts: Sequence[Mount]
    processes: int
    """The most processes a program may have at once."""
    disk_bytes: int
    """The size of each of the two writable folders."""
    inodes: int = 4096
    runtime: str | None = None
    """The engine's name of an OCI runtime, such as gVisor's `runsc`; None for the default."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    covered: Sequence[str] = ()
    """Folders that are covered by empty ones: those that no program may read, and those that the
    image declares as volumes, since a volume is disk space without a bound.
    """

    @property
    def overhead_bytes(self) -> int:
        """Memory that is not the program's: the slot's, and that of a kernel in user space."""
        return SLACK_BYTES + (_RUNTIME_BYTES if self.runtime else 0)

    @property
    def memory_bytes(self) -> int:
        """The memory limit of all processes and files when a container starts; no swap is
        allowed.
        """
        return DEFAULT_LIMITS.memory_bytes + self.overhead_bytes

    @property
    def pids(self) -> int:
        """The bound on the host's processes and threads that make up the container."""
        if self.runtime:
            return _RUNTIME_PIDS + _PIDS_PER_PROCESS * self.processes
        return self.processes + 1  # The slot is a process of the container as well.

    def slot(self) -> dict[str, object]:
        """Return the request body for a container with a slot.

        The engine removes the container when the slot ends.
        """
        command = (*self.python, "-I", "-S", "-E", "-c", _BOOT, LUDUS, f"{LINE}/{SOCKET}")
        return self._config(command, auto_remove=True)

    def trial(self, code: str) -> dict[str, object]:
        """Return the request body for a container that runs `code` in the interpreter once.

        The caller removes the container.
        """
        return self._config((*self.python, "-I", "-S", "-c", code), auto_remove=False)

    def _config(self, command: Sequence[str], *, auto_remove: bool) -> dict[str, object]:
        binds = [
            {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": True}
            for mount in self.mounts
        ]
        room = f"rw,exec,nosuid,nodev,size={self.disk_bytes},nr_inodes={self.inodes},mode=1777"
        covered = dict.fromkeys(self.covered, "ro,noexec,nosuid,nodev,size=4096,mode=0555")
        return {
            "Image": self.image,
            "Entrypoint": list(command),
            "Cmd": [],
            # The slot is root in the container, to give each program another identity.
            "User": "0:0",
            "WorkingDir": "/",
            "Hostname": policy.HOSTNAME,
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "Labels": dict(self.labels),
            # An image's own health check would run as root beside the slot.
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "none",
                "IpcMode": "none",
                "ReadonlyRootfs": True,
                "Privileged": False,
                "CapDrop": ["ALL"],
                "CapAdd": list(CAPABILITIES),
                "SecurityOpt": ["no-new-privileges"],
                "Memory": self.memory_bytes,
                "MemorySwap": self.memory_bytes,  # memory and swap together, so no swap is left
                "PidsLimit": self.pids,
                "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
                "Tmpfs": {**covered, **dict.fromkeys(policy.CONTAINER_FOLDERS, room)},
                "Mounts": binds,
                "MaskedPaths": list(_HIDDEN),
                "ReadonlyPaths": [],
                "LogConfig": {"Type": "none", "Config": {}},
                "RestartPolicy": {"Name": "no"},
                "Init": False,
                "AutoRemove": auto_remove,
                **({"Runtime": self.runtime} if self.runtime else {}),
            },
        }
