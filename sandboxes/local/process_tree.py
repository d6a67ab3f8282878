"""Resource usage of the processes of a slot, read from /proc by the driver.

Files are read as bytes: a process chooses its own name, which need not be valid text.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import kernel_memory

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)
"""What reading of a process raises that has ended. Anything else, such as no descriptor left, must
not pass for a process that uses nothing.
"""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The resource usage of a set of live processes, summed."""

    cpu_s: float
    memory_bytes: int
    """Resident pages that no file backs, page tables, and what the kernel holds for them
    (`kernel_memory`). Pages still shared after a fork, or on purpose, are counted once per process:
    see `shared_out`.
    """
    processes: int
    """The number of threads of all processes; a process with a single thread counts as 1."""
    own_cpu_s: dict[tuple[int, int], float]
    """The CPU seconds of each process, by pid and start time (in ticks after boot), without the
    time of children it has waited for.
    """


def children_of(parent: int) -> list[int]:
    """Return the pids of the children of `parent`, or an empty list if `parent` has ended."""
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except _GONE:
        return []
    return [int(pid) for pid in text.split()]


def descendants(root: int) -> list[int]:
    """Return the pids of all live processes below `root`, without `root` itself."""
    pids: list[int] = []
    waiting = [root]
    while waiting:
        children = children_of(waiting.pop())
        pids += children
        waiting += children
    return pids


def threads_of(pid: int) -> int:
    """Return the number of threads of a process, or 0 if the process has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except _GONE:
        return 0


def usage(pids: list[int]) -> TreeUsage:
    """Return what the processes `pids` have used so far; processes that have ended count as
    nothing.
    """
    cpu = memory = threads = 0
    cpu_times: dict[tuple[int, int], float] = {}
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            memory += _resident_bytes(pid)
        except _GONE:
            continue
        cpu += sum(int(ticks) for ticks in stat[11:15])
        cpu_times[pid, int(stat[19])] = sum(int(ticks) for ticks in stat[11:13]) / _TICKS_PER_S
        threads += int(stat[17])
    return TreeUsage(cpu / _TICKS_PER_S, memory + kernel_memory.held_by(pids), threads, cpu_times)


def _resident_bytes(pid: int) -> int:
    """Return the resident pages no file backs and the page tables of a process, in bytes.

    The figures come from `/proc/PID/status`, which a process cannot make unreadable.
    """
    kinds = (b"RssAnon:", b"RssShmem:", b"VmPTE:")
    return _sum_of_lines(f"/proc/{pid}/status", kinds)


def _sum_of_lines(path: str, kinds: tuple[bytes, ...]) -> int:
    # The name that a process gave itself may hold a carriage return, and then a line of its own.
    lines = (line for line in Path(path).read_bytes().split(b"\n") if line.startswith(kinds))
    return sum(int(line.split()[1]) << 10 for line in lines)


def waited_s(pids: list[int]) -> float:
    """Return the longest time, in seconds, that a process of `pids` was ready to run but had no
    core.

    Processes that put themselves behind others (by nice value, scheduling class or the priority of
    their session) wait by their own doing, and do not count.
    """
    waited = 0.0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            nice, policy = int(stat[16]), int(stat[38])
            own_nice, own_policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
            session_nice = 0
            with suppress(OSError):  # a kernel that does not schedule by session has no such file
                group = Path(f"/proc/{pid}/autogroup").read_text()
                session_nice = int(group.rpartition(" ")[2] or 0)
            if not (nice > own_nice or policy != own_policy or session_nice > 0):
                waited = max(
                    waited, int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
                )
        except _GONE:
            continue
    return waited


def runnable(pids: list[int]) -> int:
    """Return how many threads of the processes run on a core or wait for a core."""
    count = 0
    for pid in pids:
        with suppress(*_GONE):
            for task in os.listdir(f"/proc/{pid}/task"):
                status = Path(f"/proc/{pid}/task/{task}/stat").read_bytes()
                count += status.rpartition(b")")[2].split()[0] == b"R"
    return count


def shared_out(pids: list[int]) -> int:
    """Return the memory of the processes in bytes, each shared page counted once in all.

    This is exact, and takes about 0.1 ms per process. A process that made itself unreadable is
    charged for all it shares.
    """
    total = 0
    for pid in pids:
        try:
            kinds = (b"Pss_Anon:", b"Pss_Shmem:")
            total += _sum_of_lines(f"/proc/{pid}/smaps_rollup", kinds)
            total += _sum_of_lines(f"/proc/{pid}/status", (b"VmPTE:",))
        except PermissionError:
            with suppress(*_GONE):
                total += _resident_bytes(pid)
        except _GONE:
            continue
    return total + kernel_memory.held_by(pids)
