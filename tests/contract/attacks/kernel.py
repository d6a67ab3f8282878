"""Attacks on the kernel's doors: calls no program needs."""

# ruff: noqa: E501 - the attacks are programs, one to a line
ATTACKS = {
    "enter the namespace of the first process": "return call(308, os.open('/proc/1/ns/mnt', os.O_RDONLY), 0x20000) == 0",
    "enter its keeper's namespaces": "return call(308, call(434, os.getppid(), 0), 0x20000) == 0",
    "make a pid namespace": "return call(272, 0x20000000) == 0",
    "make a network namespace": "return call(272, 0x40000000) == 0",
    "make a time namespace": "return call(272, 0x80) == 0",
    "make an ipc namespace": "return call(272, 0x08000000) == 0",
    "make a control-group namespace": "return call(272, 0x02000000) == 0",
    "clone into a namespace the new way": """
    arguments = struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    pid = call(435, arguments, len(arguments))
    if pid == 0: os._exit(0)
    return pid""",
    "open a file system": "return call(430, b'tmpfs', 0) > 0",
    "open a tree of mounts": "return call(428, -100, b'/usr', 1) > 0",
    "change a mount": "libc.unshare(0x20000); return call(442, -100, b'/', 0, struct.pack('QQQQ', 0, 1, 0, 0), 32) == 0",
    "make all mounts writable": "libc.unshare(0x20000); return call(165, b'none', b'/', None, 32 | 4096, None) == 0",
    "unmount what is mounted": "libc.unshare(0x20000); return call(166, b'/proc', 2) == 0",
    "turn the root around": "libc.unshare(0x20000); os.mkdir('r'); call(165, b'r', b'r', None, 4096, None); os.mkdir('r/o'); return call(155, b'r', b'r/o') == 0",
    "watch every file": "return call(300, 0, 0) > 0",
    "open a file by its handle": """
    handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)); mount = ctypes.c_int()
    folder = os.open('/usr', os.O_RDONLY); call(303, -100, b'/usr', handle, ctypes.byref(mount), 0)
    return call(304, folder, handle, 0) > 0""",
    "compare itself with its keeper": "return call(312, os.getpid(), os.getppid(), 1, 0, 0) >= 0",
    "write to its keeper's memory": """
    near = ctypes.create_string_buffer(os.__doc__.encode()[:1]); place = id(os.__doc__) + 48
    near[0] = ctypes.string_at(place, 1); own = struct.pack('QQ', ctypes.addressof(near), 1); far = struct.pack('QQ', place, 1)
    return call(311, os.getppid(), own, 1, far, 1, ctypes.c_long(0)) == 1""",
    "advise its keeper's memory": "return call(440, call(434, os.getppid(), 0), struct.pack('QQ', 0, 0), 0, 3, 0) == 0",
    "move its keeper's memory": "return call(279, os.getppid(), 0, 0, 0, 0, 2) == 0",
    "make secret memory": "return call(447, 0) > 0",
    "place memory on a node": "return call(238, 0, 0, 0) == 0",
    "change how it is run": "return call(135, 0x0040000) >= 0",
    "change its segments": "return call(154, 0, ctypes.create_string_buffer(64), 64) >= 0",
    "open a port": "return call(173, 0x80, 1, 1) == 0",
    "join the key rings": "return call(250, 1, None) > 0",
    "ask for a key": "return call(250, 0, -3, 1) > 0",
    "set the clock": "now = struct.pack('qq', *divmod(time.clock_gettime_ns(0), 10**9)); return call(227, 0, now) == 0",
    "tune the clock": "return call(159, ctypes.create_string_buffer(208)) >= 0",
    "account for processes": "return call(163, None) == 0",
    "load a module": "return ctypes.get_errno() in (2, 8, 14, 22) if libc.syscall(175, ctypes.create_string_buffer(8), 8, b'') < 0 else True",
    "remove a module": "return ctypes.get_errno() in (2,) if libc.syscall(176, b'no_such_module', 2048) < 0 else True",
    "swap to a file": "return ctypes.get_errno() in (2, 22) if libc.syscall(167, b'/no/such', 0) < 0 else True",
    "restart the machine with a wrong word": "return ctypes.get_errno() == 22 if libc.syscall(169, 1, 1, 0, 0) < 0 else True",
    "load another kernel": "return ctypes.get_errno() in (22, 99, 14) if libc.syscall(246, 0, 0, 0, 1 << 20) < 0 else True",
    "set a quota": "return ctypes.get_errno() in (2, 3, 14, 15, 19, 20, 22, 38) if libc.syscall(179, 0x800007 << 8, b'/', 0, 0) < 0 else True",
    "set up a second io_uring": "return call(425, 1, ctypes.create_string_buffer(120))",
    "register with io_uring": "return ctypes.get_errno() in (9, 22) if libc.syscall(427, -1, 0, 0, 0) < 0 else True",
    "take a capability": """
    header = struct.pack('Ii', 0x20080522, 0); sets = struct.pack('6I', *([0xffffffff] * 6))
    libc.syscall(126, header, sets)
    return [int(l.split()[1], 16) for l in open('/proc/self/status') if l.startswith('CapEff')][0] != 0""",
    "take another group": "os.setgroups([0]); return os.getuid() == 0 or None",
    "take another identity": "os.setresuid(1, 1, 1); return where['uid'] != 1 and os.getuid() == 1",
    "raise its hard limit of files": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); return True",
    "call by the numbers of another table": "return libc.syscall(0x40000000 | 39) > 0",
    "give away the terminal's input": "import fcntl; master, slave = os.openpty(); fcntl.ioctl(slave, 0x5412, b'x'); return True",
}

NOT_APPLICABLE = {
    "make secret memory": "the kernel may be started without it",
    "change its segments": "the kernel may be built without it",
    "call by the numbers of another table": "the kernel may be built without it",
    "set a quota": "the kernel may be built without it",
    "register with io_uring": "may be switched off for everybody",
    "set up a second io_uring": "same",
    "load another kernel": "the kernel may be built without it",
    "load a module": "same",
    "remove a module": "same",
    "tune the clock": "the machine may not let even its root",
    "open a port": "a virtual machine may have none",
    "account for processes": "the kernel may be built without it",
    "join the key rings": "the kernel may be built without them",
    "ask for a key": "same",
    "place memory on a node": "the kernel may know no nodes",
    "move its keeper's memory": "same",
    "give away the terminal's input": "may be switched off for everybody",
}
"""Attacks that need what not every machine has. They are played on every tier, and nobody should
count them as held.
"""

EXCUSED = {
    "gvisor": {"take another identity": "of the kernel in user space; nothing outside knows it"}
}
