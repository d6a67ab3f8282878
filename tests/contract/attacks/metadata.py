"""Attacks on what is known of files, processes and the machine, and on what may be changed without opening them."""

# ruff: noqa: E501 - the attacks are programs, one to a line
ATTACKS = {
    "change the mode of a file": "os.chmod(where['victim'], 0o666); return True",
    "change the mode of a folder": "os.chmod(where['open'], 0o777); return True",
    "change the times of a file": "os.utime(where['victim'], (0, 0)); return True",
    "change the owner of a file to whose it is": "os.chown(where['victim'], where['uid'], -1); return True",
    "mark a file": "os.setxattr(where['victim'], 'user.ludus', b'x'); return True",
    "give rights to a file": "os.setxattr(where['victim'], 'system.posix_acl_access', struct.pack('<IHHIHHIHHI', 2, 1, 6, 0xffffffff, 4, 6, 0xffffffff, 32, 6, 0xffffffff)); return True",
    "change the mode of the library": "f = os.open(os.__file__, os.O_RDONLY); os.fchmod(f, os.fstat(f).st_mode & 0o777); return True",
    "change the times of the library": "f = os.stat(os.__file__); os.utime(os.__file__, ns=(f.st_atime_ns, f.st_mtime_ns)); return True",
    "set a flag of the library": """
    import fcntl
    f = os.open(os.__file__, os.O_RDONLY); flags = fcntl.ioctl(f, 0x80086601, bytes(8)); fcntl.ioctl(f, 0x40086602, flags); return True""",
    "look at a file": "return os.stat(where['witness']).st_size",
    "look at a file the new way": "return libc.statx(-100, where['witness'].encode(), 0, 0xfff, ctypes.create_string_buffer(256)) == 0",
    "ask whether a file may be read": "return os.access(where['witness'], os.F_OK)",
    "stand in a folder of the host": "os.chdir(os.path.dirname(where['witness'])); return True",
    "learn the machine's name": "return os.uname().nodename == where['host']",
    "learn of the driver": "return os.getpgid(where['pid']) == where['group']",
    "learn where the driver may run": "return os.getpgid(where['pid']) == where['group'] and os.sched_getaffinity(where['pid'])",
    "hold on to the driver": "return call(434, where['pid'], 0) and os.getpgid(where['pid']) == where['group']",
    "choose its own weight when memory runs out": "open('/proc/self/oom_score_adj', 'wb', 0).write(b'0'); return True",
    "have its pages forgotten": "open('/proc/self/clear_refs', 'wb', 0).write(b'1'); return True",
    "have the kernel dump what it likes": "open('/proc/self/coredump_filter', 'wb', 0).write(b'0xff'); return True",
    "map identities": "open('/proc/self/uid_map', 'wb', 0).write(b'0 0 1'); return True",
    "write through its own memory's file": "f = os.open('/proc/self/mem', os.O_RDWR); place = id(os.__doc__) + 48; os.pwrite(f, ctypes.string_at(place, 1), place); return os.path.isdir('/proc/kcore') or None",
    "read the kernel's core": "return os.open('/proc/kcore', os.O_RDONLY)",
    "read the mounts of the host": "return [l for l in open('/proc/self/mountinfo') if ' / ' in l.split(' - ')[0] and ('/dev/' in l or 'overlay' in l)] or None",
    "read its control group": "return [l for l in open('/proc/self/cgroup') if l.strip().split(':')[2] != '/'] or None",
    "change its control group": """
    import glob
    for place in glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True)[:50]:
        try: open(place, 'wb', 0).write(b'0'); return place
        except OSError: pass""",
    "read the firmware's tables": "return os.listdir('/sys/firmware') or None",
    "read the machine's devices": "return os.listdir('/proc/bus') or os.listdir('/sys/devices') or None",
    "read the machine's command line": "return open('/proc/cmdline').read()",
    "read its start": "return open('/proc/uptime').read()",
    "read the load of others": "return open('/proc/loadavg').read()",
    "read what others use": "return open('/proc/stat').read(10)",
    "read the network of the host": "return [l for l in open('/proc/net/unix') if where['socket'] in l] or None",
    "read the machine's partitions": "return open('/proc/partitions').read(10)",
    "read the kernel's modules": "return open('/proc/modules').read(10) or True",
    "read the kernel's settings by another way": "return os.listdir('/proc/sys/kernel')",
    "tell the machine's users": "return [l for l in open('/etc/passwd') if l.startswith('daemon')] or None",
    "read where names are looked up": "return open('/etc/resolv.conf').read() or None",
    "use a terminal of the machine": "return os.open('/dev/tty', os.O_RDWR) or os.open('/dev/ptmx', os.O_RDWR)",
    "use a disk of the machine": "return [os.open('/dev/' + n, os.O_RDONLY) for n in os.listdir('/dev') if n[:2] in ('vd', 'sd', 'nv', 'lo', 'dm')][:1] or None",
    "use the machine's virtual machines": "return os.open('/dev/kvm', os.O_RDWR)",
    "use the machine's fuse": "return os.open('/dev/fuse', os.O_RDWR)",
}

NOT_APPLICABLE = {
    "mark a file": "not every file system has attributes",
    "give rights to a file": "same",
    "set a flag of the library": "not every file system has flags",
    "have its pages forgotten": "the kernel may be built without it",
    "have the kernel dump what it likes": "same",
    "map identities": "identities are mapped once in a namespace: those of the first are",
    "write through its own memory's file": "harmless by itself: only the machine's memory would count",
    "read the kernel's modules": "the kernel may have none",
    "read the kernel's core": "the kernel may be built without it",
    "read the mounts of the host": "the machine's root may be of any kind",
    "read its control group": "a machine may have none",
    "change its control group": "same",
    "read the firmware's tables": "a virtual machine may have none",
    "read the network of the host": "the control has a network of its own, where names of sockets do not show",
    "read where names are looked up": "a machine may have none",
    "use a terminal of the machine": "a machine may have none that is free",
    "use a disk of the machine": "a machine may show none",
    "use the machine's virtual machines": "the machine may be one itself",
    "use the machine's fuse": "the kernel may be built without it",
    "learn where the driver may run": "follows from the one before",
}

_NO_NAMESPACE = "Landlock hides what is in files and processes, not that they are there"

EXCUSED = {
    "slots-landlock": dict.fromkeys(
        (
            "look at a file",
            "look at a file the new way",
            "ask whether a file may be read",
            "stand in a folder of the host",
            "learn the machine's name",
            "learn of the driver",
            "learn where the driver may run",
            "hold on to the driver",
        ),
        _NO_NAMESPACE,
    ),
    "docker": {
        "choose its own weight when memory runs out": "an engine's /proc can be written to; the container ends, and it is charged to the program",
        "have its pages forgotten": "an engine's /proc can be written to: its own alone",
        "have the kernel dump what it likes": "same; there are no dumps",
        "read the mounts of the host": "an engine shows where the container's own folders come from",
        "read its control group": "an engine shows its name",
        **dict.fromkeys(
            (
                "read the machine's command line",
                "read its start",
                "read the load of others",
                "read what others use",
                "read the machine's partitions",
                "read the kernel's modules",
                "read where names are looked up",
                "tell the machine's users",
                "read the kernel's settings by another way",
                "read the machine's devices",
                "read the firmware's tables",
            ),
            "an engine shows what the machine does as a whole",
        ),
    },
}
EXCUSED["gvisor"] = dict.fromkeys(
    EXCUSED["docker"], "it is of the kernel in user space, not of the host"
)
