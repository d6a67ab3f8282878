"""Attacks on other processes: the keeper above all."""

# ruff: noqa: E501 - the attacks are programs, one to a line
ATTACKS = {
    "stop its keeper": "os.kill(os.getppid(), 0); return True",
    "signal everything": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(-1, 0); return [p for p in (1, os.getppid()) if p > 1 and p != os.getpid() and not os.kill(p, 0)] or None",
    "signal a thread of its keeper": "return call(234, os.getppid(), os.getppid(), 0) == 0",
    "signal the thread alone": "return call(200, os.getppid(), 0) == 0",
    "signal by descriptor": "return call(424, call(434, os.getppid(), 0), 0, None, 0) == 0",
    "queue a signal": "return call(129, os.getppid(), 0, struct.pack('iii', 0, 0, -1) + bytes(116)) == 0",
    "signal its keeper's group": "group = os.getpgid(os.getppid()); return group not in (0, os.getpgid(0)) and not os.killpg(group, 0)",
    "read its keeper's memory through proc": "return os.pread(os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY), 8, ctypes.cast(libc.getpid, ctypes.c_void_p).value)",
    "read where its keeper's memory is": "return open(f'/proc/{os.getppid()}/maps').read(20)",
    "read its keeper's environment": "return open(f'/proc/{os.getppid()}/environ', 'rb').read() or True",
    "read its keeper's command": "return open(f'/proc/{os.getppid()}/cmdline').read()",
    "read its keeper's descriptors": "return [os.readlink(f'/proc/{os.getppid()}/fd/{n}') for n in os.listdir(f'/proc/{os.getppid()}/fd')]",
    "open a descriptor of its keeper": "return [os.open(f'/proc/{os.getppid()}/fd/{n}', os.O_RDWR) for n in (0, 1, 2)]",
    "read what its keeper is doing": "return open(f'/proc/{os.getppid()}/syscall').read() or open(f'/proc/{os.getppid()}/status').read(20)",
    "have its keeper killed first": "open(f'/proc/{os.getppid()}/oom_score_adj', 'wb', 0).write(b'999'); return True",
    "have its keeper's session run last": "open(f'/proc/{os.getppid()}/autogroup', 'wb', 0).write(b'5'); return True",
    "forget its keeper's pages": "open(f'/proc/{os.getppid()}/clear_refs', 'wb', 0).write(b'1'); return True",
    "be its keeper's tracer": "return libc.ptrace(0x4206, os.getppid(), 0, 0) == 0",
    "have its keeper trace it": "return libc.ptrace(0, 0, 0, 0) == 0",
    "find the driver": "return [p for p in range(1, 1 << 16) if p == where['pid'] and open(f'/proc/{p}/cmdline').read()] or None",
    "find somebody's secret": """
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if b'LUDUS_ATTACK_SECRET' in open(f'/proc/{pid}/environ', 'rb').read(): return pid
        except OSError: pass""",
    "order its keeper's scheduling": "return call(144, os.getppid(), 3, struct.pack('i', 0)) == 0",
    "order its keeper's scheduling the new way": "return call(314, os.getppid(), struct.pack('IIQiIQQQ', 48, 0, 0, 1, 0, 0, 0, 0), 0) == 0",
    "order its keeper's input and output": "return call(251, 1, os.getppid(), (3 << 13)) == 0",
    "be told of by a pipe": """
    import fcntl; r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid()); fcntl.fcntl(r, 10, 0)
    return os.getppid() > 1 and fcntl.fcntl(r, fcntl.F_GETOWN) == os.getppid() and os.kill(os.getppid(), 0) is None""",
}

EXCUSED = {
    "docker": {"read its keeper's command": "it is the container's own, which holds no secret"},
    "gvisor": dict.fromkeys(
        (
            "order its keeper's scheduling",
            "order its keeper's scheduling the new way",
            "order its keeper's input and output",
        ),
        "a number without effect there: the host schedules the container as one",
    ),
}
