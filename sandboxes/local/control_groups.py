"""Control groups (cgroups, version 1 or 2) measure and limit what all processes of a slot use
together.

A group is made per slot and joined once; its limits are rewritten only when a run asks for others.
Where none can be made (no delegation, a read-only mount), `ControlGroups.find` says why, and slots
fall back to resource limits.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "ludus-"
_serial = itertools.count()
_NOT_MOUNTED = "no control-group hierarchy with memory, pids and cpu accounting may be used"
SLACK_BYTES = 16 << 20
"""Room added to the memory limit of a run: the pages of the warm interpreter are in the same group.
"""


@dataclass(frozen=True, slots=True)
class _Places:
    """The folders of a control group, by controller; on version 2 all three are the same folder."""

    memory: Path
    pids: Path
    cpu: Path
    unified: bool

    def folders(self) -> list[Path]:
        return list(dict.fromkeys((self.memory, self.pids, self.cpu)))

    def below(self, name: str) -> _Places:
        return _Places(self.memory / name, self.pids / name, self.cpu / name, self.unified)


class ControlGroups:
    """The control groups of a sandbox share a parent folder, which is named so that no other
    sandbox uses the name: by the pid and start time of the driver and a serial number.
    """

    def __init__(self, places: _Places) -> None:
        self._places = places

    @classmethod
    def find(cls) -> ControlGroups | str:
        """Return a parent for control groups that was tried out, or a text that says why none can
        be made.
        """
        reason = _NOT_MOUNTED
        for place in _candidates():
            groups = cls._below(place)
            if not isinstance(groups, str):
                return groups
            reason = groups
        return reason

    @classmethod
    def _below(cls, places: _Places) -> ControlGroups | str:
        remove_leftovers(places)
        pid = os.getpid()
        groups = cls(places.below(f"{_PREFIX}{pid}-{start_time(pid)}-{next(_serial)}"))
        try:
            groups._open()
            trial = groups.make("probe", processes=8)
            try:
                trial.limit_memory(64 << 20)
            finally:
                trial.remove()
        except OSError as error:
            groups.remove()
            return f"control groups cannot be made: {error}"
        return groups

    def _open(self) -> None:
        """Make the parent folder, and have memory and processes counted in the groups below."""
        for folder in self._places.folders():
            folder.mkdir(exist_ok=True)
        if self._places.unified:
            memory_place = self._places.memory
            for folder in (memory_place.parent, memory_place):
                # Have the memory and processes of groups below `folder` counted. (CPU time is
                # counted everywhere.)
                control = folder / "cgroup.subtree_control"
                missing = {"memory", "pids"} - set(control.read_text().split())
                if missing:
                    control.write_text(" ".join(f"+{name}" for name in sorted(missing)))

    def make(self, name: str, *, processes: int) -> ControlGroup:
        """Return a new control group that allows at most `processes` processes and threads.

        Raises:
            OSError: the kernel refuses the group.
        """
        places = self._places.below(name)
        try:
            for folder in places.folders():
                folder.mkdir(exist_ok=True)
            (places.pids / "pids.max").write_text(str(processes))
            return ControlGroup(places)
        except OSError:
            _remove_group(places.folders())
            raise

    def remove(self) -> None:
        """Remove the parent folder, which succeeds only after the groups below are removed."""
        for folder in self._places.folders():
            with suppress(OSError):
                folder.rmdir()


class ControlGroup:
    """The control group of a slot, with the files open from which usage is read."""

    def __init__(self, places: _Places) -> None:
        self._places = places
        self._unified = places.unified
        self._memory_limit = 0
        self._open: list[int] = []
        self._cpu = self._opened(places.cpu / ("cpu.stat" if self._unified else "cpuacct.usage"))
        events = "memory.events" if self._unified else "memory.oom_control"
        self._events = self._opened(places.memory / events)

    def _opened(self, file: Path) -> int:
        try:
            self._open.append(os.open(file, os.O_RDONLY))
        except OSError:
            self.release()
            raise
        return self._open[-1]

    @property
    def procs_files(self) -> list[str]:
        """The paths of the files to which a process writes 0 in order to join."""
        return [str(folder / "cgroup.procs") for folder in self._places.folders()]

    @property
    def memory_limit(self) -> int:
        """The memory limit in force, in bytes, with the interpreter's share (`SLACK_BYTES`)
        included.
        """
        name = "memory.max" if self._unified else "memory.limit_in_bytes"
        text = (self._places.memory / name).read_text().strip()
        return int(text) if text.isdigit() else 1 << 63  # "max"

    def limit_memory(self, memory_bytes: int) -> None:
        """Limit the memory of all processes and memory-backed files of the group together.

        `SLACK_BYTES` are added to `memory_bytes`. An unchanged limit is not written again.
        """
        if memory_bytes == self._memory_limit:
            return
        name = "memory.max" if self._unified else "memory.limit_in_bytes"
        (self._places.memory / name).write_text(str(memory_bytes + SLACK_BYTES))
        self._memory_limit = memory_bytes

    def cpu_s(self) -> float:
        """Return the CPU seconds used by the group since the group was made."""
        text = os.pread(self._cpu, 512, 0)
        return int(text.split()[1]) / 1e6 if self._unified else int(text) / 1e9

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed because memory ran out."""
        match = re.search(rb"oom_kill (\d+)", os.pread(self._events, 512, 0))
        return int(match[1]) if match else 0

    def processes(self) -> list[int]:
        """Return the pids in the group, as numbered in the pid namespace of this process."""
        return [int(pid) for pid in (self._places.pids / "cgroup.procs").read_text().split()]

    def release(self) -> None:
        """Close the files from which usage is read. A second call does nothing."""
        while self._open:
            os.close(self._open.pop())

    def remove(self) -> None:
        """Kill the remaining processes and remove the group, which may take half a second."""
        for _ in range(100):
            if self.try_to_remove():
                return
            time.sleep(0.005)  # a killed process leaves its group a moment later

    def try_to_remove(self) -> bool:
        """Kill the remaining processes and try to remove the group.

        Returns False while a process has not left the group yet; call again a few milliseconds
        later.
        """
        self.release()
        return _remove_group(self._places.folders())


class BorrowedGroup(ControlGroup):
    """A control group that a container engine made, and removes."""

    def __init__(self, places: _Places) -> None:
        super().__init__(places)
        self._refusals = self._opened(places.pids / "pids.events")

    def limit_memory(self, memory_bytes: int) -> None:
        """Do nothing: the engine set the limit of the container, and `bound_memory` can change the
        limit.
        """

    def bound_memory(self, total_bytes: int) -> bool:
        """Set the memory limit of the whole group to `total_bytes`, swap included on version 1.

        Returns False if this process has no permission to write the limit.
        """
        names = ["memory.max"]
        # On version 1 the limit with swap may never be below the limit without, so the limit with
        # swap is raised first and lowered last.
        if not self._unified:
            names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
            if total_bytes > self.memory_limit:
                names.reverse()
        files = [self._places.memory / name for name in names]
        try:
            for file in files:
                if file.exists():
                    file.write_text(str(total_bytes))
        except OSError:
            return False
        return True

    def refused_processes(self) -> int:
        """Return how often a process could not be started because the process limit was reached."""
        match = re.search(rb"max (\d+)", os.pread(self._refusals, 512, 0))
        return int(match[1]) if match else 0

    def try_to_remove(self) -> bool:
        """Close the files from which usage is read, and return True; the engine removes the
        group.
        """
        self.release()
        return True


def _candidates() -> Iterator[_Places]:
    """Yield the places where groups may be possible, the nearest first.

    The nearest place is the group of this process; on version 2 the groups above follow. A group
    that holds processes (such as the group in which a login or a service starts) can have none with
    limits below it, but its parent can.
    """
    own_places = _places_of("self")
    if own_places is None or not own_places.unified:
        if own_places and all(os.access(folder, os.W_OK) for folder in own_places.folders()):
            yield own_places
        return
    top = Path(_mounts()[""][1])
    for folder in (own_places.memory, *own_places.memory.parents):
        if not folder.is_relative_to(top):
            return
        if os.access(folder, os.W_OK) and _counts_memory(folder):
            yield _Places(folder, folder, folder, unified=True)


def _counts_memory(folder: Path) -> bool:
    return {"memory", "pids"} <= set((folder / "cgroup.controllers").read_text().split())


def _remove_group(folders: list[Path]) -> bool:
    for folder in folders:
        with suppress(OSError):
            for pid in map(int, (folder / "cgroup.procs").read_text().split()):
                # The kernel writes 0 for a process of another pid namespace. A signal to 0 would
                # end the driver's own process group.
                if pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            folder.rmdir()
    return not any(folder.exists() for folder in folders)


def remove_leftovers(places: _Places) -> None:
    """Remove the groups left behind by drivers that ended without cleaning up."""
    for folder in places.folders():
        for group_folder in folder.glob(_PREFIX + "*"):
            owner = re.fullmatch(rf"{_PREFIX}(\d+)-(\d+)(-\d+)?", group_folder.name)
            if not owner or start_time(int(owner[1])) == int(owner[2]):
                continue
            with suppress(OSError):  # another driver may remove them at the same time
                for group in group_folder.iterdir():
                    for _ in range(100):
                        if not group.is_dir() or _remove_group([group]):
                            break
                        time.sleep(0.005)
                group_folder.rmdir()


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks after boot, or 0 if the process has ended.

    A pid is used again after its process has ended; a pid with a start time is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # a process's name may hold any bytes
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[19])


def group_of(pid: int) -> BorrowedGroup | str:
    """Return the control group a container engine put the process in, or a text that says why usage
    cannot be read there.
    """
    try:
        places = _places_of(str(pid))
        if places is None or (places.unified and not _counts_memory(places.memory)):
            return _NOT_MOUNTED
        return BorrowedGroup(places)
    except OSError as error:  # the process has ended, and its group may be gone too
        return f"{error}"


def _places_of(pid: str) -> _Places | None:
    mounts = _mounts()
    # Each controller ("" for version 2) -> the group that the process is in.
    memberships: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        memberships.update(dict.fromkeys(controllers.split(","), path))
    folders = [_folder(mounts, memberships, name) for name in ("memory", "pids", "cpuacct")]
    if all(folders):
        memory, pids, cpu = (folder for folder in folders if folder)
        return _Places(memory, pids, cpu, unified=False)
    unified = _folder(mounts, memberships, "")
    return _Places(unified, unified, unified, unified=True) if unified else None


def _folder(
    mounts: dict[str, tuple[str, str]], memberships: dict[str, str], controller: str
) -> Path | None:
    if controller not in mounts or controller not in memberships:
        return None
    root, place = mounts[controller]
    path = memberships[controller]
    inner = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
    folder = Path(place) / inner.lstrip("/")
    return folder if os.access(folder, os.R_OK) else None


def _mounts() -> dict[str, tuple[str, str]]:
    """Map each controller ("" for version 2) to the root of the mount and the mount point."""
    mounts: dict[str, tuple[str, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            mounts[""] = root, place
        elif kind == "cgroup":
            mounts.update(dict.fromkeys(options.split(","), (root, place)))
    return mounts
