"""What a slot is told at birth, before it enters its walls. It holds paths and numbers, never a
secret.
"""

from __future__ import annotations

import json
from typing import NamedTuple

ROOT = "slots-root"
USERNS = "slots-userns"
LANDLOCK = "slots-landlock"
DOCKER = "docker"
UNSAFE = "unsafe"


class Plan(NamedTuple):
    """How one slot is walled in. (Not a dataclass: their module alone is a megabyte in every
    child.)
    """

    tier: str
    """One of ROOT, USERNS, LANDLOCK, DOCKER, UNSAFE."""
    work: str
    """The host directory to work in (LANDLOCK, UNSAFE), or "" where the slot mounts its own."""
    uid: int
    """The identity of programs; equal to the slot's own where it cannot change identity."""
    gid: int
    readable: list[str]
    """Host files and folders a program may read and execute, at the same path inside."""
    packages: list[str]
    """Site-packages entries (absolute) a program may import, apart from the standard library."""
    preload: list[str]
    """Modules imported once in the slot, so that programs find them loaded."""
    cgroup_procs: list[str]
    """`cgroup.procs` files the slot joins; empty where no control group is delegated."""
    scoped_signals: bool = False
    """Programs share the slot's identity: each enters a Landlock domain of its own, so that it
    cannot signal the slot.
    """
    disk_bytes: int = 64 << 20
    disk_inodes: int = 4096
    processes: int = 0
    """RLIMIT_NPROC where no control group counts processes; 0 leaves it alone."""
    address_space_bytes: int = 0
    """RLIMIT_AS where no control group counts memory; 0 leaves it alone."""

    network: bool = False
    """Programs may use internet sockets in the slot's own, otherwise empty network; the one way out
    is the driver's proxy.
    """
    strangers: bool = False
    """Programs of one identity are strangers to each other (branches of a session): the calls that
    set another's limits, priority or cores may name only the caller itself.
    """
    own_packages: bool = False
    """Programs may import what the interpreter's own site-packages hold (the image's, in a
    container).
    """

    def encode(self) -> bytes:
        """As one JSON object."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """The inverse of `encode`."""
        return cls(**json.loads(data))
