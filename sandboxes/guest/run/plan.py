"""The plan that a slot receives before being isolated: paths and numbers, never a secret."""

from __future__ import annotations

import json
from typing import NamedTuple

ROOT = "slots-root"
USERNS = "slots-userns"
LANDLOCK = "slots-landlock"
DOCKER = "docker"
UNSAFE = "unsafe"


class JailPlan(NamedTuple):
    """How a slot is isolated.

    This is not a dataclass: importing `dataclasses` alone costs a megabyte in every child.
    """

    tier: str
    """ROOT, USERNS, LANDLOCK, DOCKER or UNSAFE."""
    work: str
    """The host directory to work in (LANDLOCK, UNSAFE), or "" where the slot mounts a new
    directory.
    """
    uid: int
    """The user id of programs; equal to the slot's own where the slot cannot change identity."""
    gid: int
    readable: list[str]
    """Host files and folders that a program may read and execute, at the same path inside."""
    packages: list[str]
    """Absolute paths of site-packages entries that a program may import, besides the standard
    library.
    """
    preload: list[str]
    """Modules that are imported once in the slot, so that programs find them loaded."""
    cgroup_procs: list[str]
    """The `cgroup.procs` files that the slot joins; empty where no control group is delegated."""
    scoped_signals: bool = False
    """Whether each program enters a new Landlock domain, so that it cannot signal the slot. Needed
    where programs share the slot's identity.
    """
    disk_bytes: int = 64 << 20
    disk_inodes: int = 4096
    processes: int = 0
    """RLIMIT_NPROC, where no control group counts processes; 0 sets no limit."""
    address_space_bytes: int = 0
    """RLIMIT_AS, where no control group counts memory; 0 sets no limit."""

    network: bool = False
    """Whether programs may use internet sockets in the slot's own, otherwise empty network
    namespace; the only way out is the driver's proxy.
    """
    strangers: bool = False
    """Whether programs of the same identity must not affect each other (branches of a session): the
    calls that set another process's limits, priority or cores may then name only the caller.
    """
    hidden: tuple[str, ...] = ()
    """Folders within readable ones that a program may not read."""
    own_packages: bool = False
    """Whether programs may import the interpreter's own site-packages (the image's, in a
    container).
    """

    def encode(self) -> bytes:
        """Return the plan as a JSON object."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> JailPlan:
        """Read a plan that `encode` has written."""
        return cls(**json.loads(data))
