"""Names of processes, by which what a process left behind is told from what is in use."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .local.control_groups import start_time


def owner() -> str:
    """Return a name of this process that is never used twice on this machine.

    The system uses pids again, so the start time and the boot are part of the name.
    """
    pid = os.getpid()
    return f"{_boot()}/{_pid_namespace()}/{os.geteuid()}/{pid}-{start_time(pid)}"


def lives(name: str) -> bool:
    """Return whether the process that `owner()` named so may still be alive.

    Nothing is known of processes in another pid namespace, nor, for an ordinary user, of other
    users' processes; these count as alive.
    """
    # No process survives a restart of the machine. A label of another form was not written by this
    # version, so nothing is known of its process.
    boot, *fields = name.split("/")
    label_match = re.fullmatch(r"(\d+)/(\d+)/(\d+)-(\d+)", "/".join(fields))
    if boot != _boot() or not label_match:
        return label_match is None
    namespace, uid, pid, started = label_match.groups()
    if namespace != _pid_namespace() or os.geteuid() not in (0, int(uid)):
        return True
    return start_time(int(pid)) == int(started)


def prefix_of_folders(kind: str) -> str:
    """Return how the names of this process's temporary folders begin; see `stale_folders`."""
    return f"{kind}{owner().replace('/', '.')}-"


def stale_folders(kind: str) -> Iterator[Path]:
    """Yield the temporary folders of processes of this user that died without cleaning up.

    Args:
        kind: how the names of the folders begin, such as "ludus-agent-".
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{kind}*"):
        name = folder.name.removeprefix(kind).rpartition("-")[0].replace(".", "/")
        try:
            about = folder.lstat()
        except FileNotFoundError:  # another process removes them too
            continue
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not lives(name):
            yield folder


def _boot() -> str:
    with suppress(FileNotFoundError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""  # no Linux: nothing is known of any process, so all count as alive


def _pid_namespace() -> str:
    with suppress(FileNotFoundError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return "0"
