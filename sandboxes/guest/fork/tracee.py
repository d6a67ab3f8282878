"""A stopped process in which system calls are made from outside.

Meanwhile the process runs none of its own code, so nothing in it can prevent, notice or forge what
is done to it: that is why a session can be branched although it is not trusted. Linux on x86-64
only, like the rest of this package.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress

from ..jail import syscalls as sc

_REGISTERS = struct.Struct("<27Q")
# Indices in struct user_regs_struct.
_RIP, _RSP, _RAX, _ORIG_RAX, _FS_BASE = 16, 19, 10, 15, 21
_ARGUMENTS = (14, 13, 12, 7, 9, 8)  # rdi, rsi, rdx, r10, r8, r9
_NO_SYSCALL = (1 << 64) - 1
_SYSCALL = b"\x0f\x05"
_RED_ZONE, _SCRATCH = 512, 4096
_RESTARTED, _RESTARTED_BLOCK, _NR_RESTART = (-512, -513, -514), -516, 219
_ANY_CHILD = 0x4000_0000
_STOP_TIMEOUT_S = 5.0
_RUN_ON_CPU_S, _RUN_ON_S, _PAUSE_S = 1.0, 15.0, 0.001
"""How long a process that is to be stopped may go on to its next call: seconds of its own CPU time,
and of the clock, since it waits for its turn on a busy machine.
"""
_QUICK_TRIES = 100
_SYSCALL_STOP = 0x85


class TraceFault(Exception):
    """The process cannot be traced, has ended, or a call in the process failed."""


class Tracee:
    """A traced process; stopped from `seize` until `release` or `kill`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self._saved = list(_REGISTERS.unpack(self._get_registers()))
        # Below the red zone, where the ABI lets a leaf function keep data, the stack is free to
        # use.
        self._scratch = (self._saved[_RSP] - _RED_ZONE - _SCRATCH) & ~0xF
        self._used = 0

    @classmethod
    def seize(cls, pid: int) -> Tracee:
        """Begin to trace a process, and stop it at a system call; it dies when the tracer does.

        A process that runs is let go on for a second of CPU time, until it makes a call.

        Raises:
            TraceFault: the process cannot be traced or does not stop.
        """
        options = sc.PTRACE_O_TRACESYSGOOD | sc.PTRACE_O_TRACEFORK | sc.PTRACE_O_EXITKILL
        try:
            sc.ptrace(sc.PTRACE_SEIZE, pid, options)
            until, cpu_until = time.monotonic() + _RUN_ON_S, _cpu_s(pid) + _RUN_ON_CPU_S
            while True:
                sc.ptrace(sc.PTRACE_INTERRUPT, pid)
                _wait(pid)
                tracee = cls(pid)
                late = time.monotonic() > until or _cpu_s(pid) > cpu_until
                if late or tracee._is_at_syscall():
                    return tracee
                # A session that was just opened is still on its way to its first message.
                tracee._close()
                sc.ptrace(sc.PTRACE_CONT, pid)
                time.sleep(_PAUSE_S)
        except OSError as error:
            raise TraceFault(str(error)) from error

    def _get_registers(self) -> bytes:
        return sc.ptrace_read(sc.PTRACE_GETREGS, self.pid, _REGISTERS.size)

    def call(self, number: int, *arguments: int) -> int:
        """Make a system call in the process and return the result.

        Raises:
            TraceFault: the call failed, or the process has ended.
        """
        try:
            # The first stop is the entry of the call, the second its exit.
            self._enter(number, arguments)
            self._go_to_syscall_stop()
            self._go_to_syscall_stop()
            result = _signed(_REGISTERS.unpack(self._get_registers())[_RAX])
        except OSError as error:
            raise TraceFault(str(error)) from error
        if result < 0:
            raise TraceFault(f"call {number} in the process: {os.strerror(-result)}")
        return result

    def _enter(self, number: int, arguments: tuple[int, ...]) -> None:
        # The process is stopped behind a `syscall` instruction, which is executed again.
        instruction = self._saved[_RIP] - len(_SYSCALL)
        if not self._is_at_syscall():
            raise TraceFault("the process is not stopped at a system call")
        registers = list(self._saved)
        registers[_RIP], registers[_RAX] = instruction, number
        # Otherwise the kernel would take the process for one in an interrupted call and restart it.
        registers[_ORIG_RAX] = _NO_SYSCALL
        for place in _ARGUMENTS:
            registers[place] = 0
        for place, argument in zip(_ARGUMENTS, arguments, strict=False):
            registers[place] = argument & _NO_SYSCALL
        sc.ptrace_write(sc.PTRACE_SETREGS, self.pid, _REGISTERS.pack(*registers))

    def _is_at_syscall(self) -> bool:
        """Whether the process is stopped behind a `syscall` instruction."""
        return os.pread(self._memory, 2, self._saved[_RIP] - len(_SYSCALL)) == _SYSCALL

    def _go_to_syscall_stop(self) -> None:
        while True:
            sc.ptrace(sc.PTRACE_SYSCALL, self.pid)
            # Other stops are those of signals, which are dropped by going on without them.
            if _wait(self.pid) >> 8 == _SYSCALL_STOP:
                return

    def fork(self) -> Tracee:
        """Copy the process; the copy is traced and stopped as well.

        Both find their interrupted call as it was, since the saved registers are restored on
        release.
        """
        tid = self._tid_address()
        flags = 0x0100_0000 | 0x0020_0000 | 17  # CHILD_SETTID, CHILD_CLEARTID, SIGCHLD
        # clone(2) stops four times: at its entry, at the event that names the child, at its exit,
        # and in the child, which the kernel traces from its first moment.
        self._enter(56, (flags, 0, 0, tid))
        self._go_to_syscall_stop()
        sc.ptrace(sc.PTRACE_SYSCALL, self.pid)
        if _wait(self.pid) >> 16 != sc.PTRACE_EVENT_FORK:
            raise TraceFault("the process cannot be copied: it may have no more processes")
        (child,) = struct.unpack("<Q", sc.ptrace_read(sc.PTRACE_GETEVENTMSG, self.pid, 8))
        self._go_to_syscall_stop()
        _wait(child)
        copy = Tracee(child)
        copy._saved = list(self._saved)
        return copy

    def _tid_address(self) -> int:
        """Return the address at which the C library keeps the number of the thread."""
        base = self._saved[_FS_BASE]
        block = os.pread(self._memory, 0x400, base)
        own_pid = own_number(self.pid)
        for place in range(0x200, len(block) - 4, 4):
            if struct.unpack_from("<i", block, place)[0] == own_pid:
                return int(base + place)
        # The offset of `tid` in glibc's `struct pthread`.
        return int(base + 0x2D0)

    def put(self, data: bytes) -> int:
        """Write `data` below the stack; return the address. `forget` makes room again."""
        address = self._scratch + self._used
        self._used += (len(data) + 15) & ~0xF
        if self._used > _SCRATCH:
            raise TraceFault("too much data for one call")
        os.pwrite(self._memory, data, address)
        return int(address)

    def take(self, address: int, size: int) -> bytes:
        """Read the memory of the process."""
        return os.pread(self._memory, size, address)

    def forget(self) -> None:
        """Reuse the room of all data written by `put`."""
        self._used = 0

    def release(self) -> None:
        """Let the process go on from the stop, and end the tracing.

        Raises:
            TraceFault: the process has ended.
        """
        registers = list(self._saved)
        interrupted, number = _signed(registers[_RAX]), _signed(registers[_ORIG_RAX])
        if number >= 0 and interrupted in (*_RESTARTED, _RESTARTED_BLOCK):
            # Do what the kernel does to restart an interrupted call: step back to the instruction.
            registers[_RAX] = _NR_RESTART if interrupted == _RESTARTED_BLOCK else number
            registers[_RIP] -= len(_SYSCALL)
        registers[_ORIG_RAX] = _NO_SYSCALL
        try:
            sc.ptrace_write(sc.PTRACE_SETREGS, self.pid, _REGISTERS.pack(*registers))
            sc.ptrace(sc.PTRACE_DETACH, self.pid)
        except OSError as error:
            raise TraceFault(str(error)) from error
        finally:
            self._close()

    def kill(self) -> None:
        """Kill the process, and reap: a parent sees the end only after the tracer has."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.0002)
        self._close()

    def has_ended(self) -> bool:
        """Return whether the process has ended; an ended process is reaped by this call."""
        try:
            waited_pid, status = os.waitpid(self.pid, os.WNOHANG | _ANY_CHILD)
            has_ended = bool(waited_pid) and not os.WIFSTOPPED(status)
        except ChildProcessError:
            has_ended = True
        if has_ended:
            self._close()
        return has_ended

    def _close(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def await_stop(pid: int) -> None:
    """Wait until a process has stopped itself.

    Raises:
        TraceFault: the process does not stop.
        OSError: the process is gone.
    """
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        # A process's name is in the line, may hold any bytes, and stands between the first and the
        # last bracket.
        with open(f"/proc/{pid}/stat", "rb") as stat:
            if stat.read().rpartition(b")")[2].split()[0] == b"T":
                return
        time.sleep(0.0002)
    raise TraceFault("the process has not stopped itself")


def own_number(pid: int) -> int:
    """Return the pid that a process has in the innermost pid namespace."""
    with open(f"/proc/{pid}/status", "rb") as status:
        line = next(line for line in status if line.startswith(b"NSpid:"))
    return int(line.split()[-1])


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, by its clock (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _wait(pid: int) -> int:
    """Wait until the process stops; return the wait status.

    Raises:
        TraceFault: the process ended instead, or does not stop.
    """
    deadline, tries = time.monotonic() + _STOP_TIMEOUT_S, 0
    while time.monotonic() < deadline:
        tries += 1
        waited_pid, status = os.waitpid(pid, os.WNOHANG | _ANY_CHILD)
        if waited_pid and os.WIFSTOPPED(status):
            return status
        if waited_pid:
            raise TraceFault("the process has ended")
        os.sched_yield() if tries < _QUICK_TRIES else time.sleep(0.0001)
    raise TraceFault("the process does not stop")
