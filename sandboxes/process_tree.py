"""What the processes of one slot have used, read from /proc by the driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """Sums over live processes."""

    cpu_s: float
    memory_bytes: int
    """Resident anonymous pages. Those still shared after a fork are counted once per process: see
    `shared_out`.
    """
    processes: int


def children_of(parent: int) -> list[int]:
    """The processes whose parent it is; none if it is gone."""
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


def descendants(root: int) -> list[int]:
    """All live processes below `root`, which is left out."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = children_of(waiting.pop())
        found += children
        waiting += children
    return found


def threads_of(pid: int) -> int:
    """How many threads it has; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def usage(pids: list[int]) -> TreeUsage:
    """What `pids` have used so far. Processes that are gone count nothing."""
    cpu = memory = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pages = Path(f"/proc/{pid}/statm").read_text().split()
        except OSError:
            continue
        cpu += sum(int(ticks) for ticks in stat[11:15])
        memory += (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
    return TreeUsage(cpu / _TICKS_PER_S, memory, len(pids))


def waited_s(pids: list[int]) -> float:
    """The longest time one of them has been ready to run and was not let, in seconds.

    Those that put themselves behind others (by nice value, scheduling class or the priority of
    their session) wait by their own doing, and do not count.
    """
    waited = 0.0
    for pid in pids:
        try:
            if not _stands_back(pid):
                waited = max(waited, _waited_s(pid))
        except OSError:
            continue
    return waited


def _waited_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def _stands_back(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    nice, policy = int(stat[16]), int(stat[38])
    own_nice, own_policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    return nice > own_nice or policy != own_policy or _session_nice(pid) > 0


def _session_nice(pid: int) -> int:
    """The nice value of its whole session, where the kernel groups processes by session."""
    try:
        text = Path(f"/proc/{pid}/autogroup").read_text()
    except OSError:
        return 0
    return int(text.rpartition(" ")[2] or 0)


def shared_out(pids: list[int]) -> int:
    """Memory in bytes with each shared page counted once in all: exact, and about 0.1 ms a
    process.
    """
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))
    return total
