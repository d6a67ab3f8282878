"""Attacks on files and services outside."""

# ruff: noqa: E501 - the attacks are programs, one to a line
ATTACKS = {
    "read it by way of an open folder": """
    folder = os.open('.', os.O_RDONLY)
    for _ in range(20): folder = os.open('..', os.O_RDONLY, dir_fd=folder)
    return os.read(os.open(where['witness'].lstrip('/'), os.O_RDONLY, dir_fd=folder), 9)""",
    "read it by way of an unreadable folder": """
    folder = os.open('.', os.O_PATH)
    for _ in range(20): folder = os.open('..', os.O_PATH, dir_fd=folder)
    return os.read(os.open(where['witness'].lstrip('/'), os.O_RDONLY, dir_fd=folder), 9)""",
    "read it through its keeper's root": "return open(f'/proc/{os.getppid()}/root' + where['witness']).read()",
    "read it through its keeper's folder": "return open(f'/proc/{os.getppid()}/cwd/' + '../' * 12 + where['witness'].lstrip('/')).read()",
    "read it through the first process": "return open('/proc/1/root' + where['witness']).read()",
    "read it through its own folder": "return open('/proc/self/cwd/' + '../' * 12 + where['witness'].lstrip('/')).read()",
    "map it": "import mmap; return mmap.mmap(os.open(where['witness'], os.O_RDONLY), 0, prot=1).read(6)",
    "run it": "os.execv(where['runnable'], ['x']); return True",
    "load it as a library": "return ctypes.CDLL(where['library'])",
    "import it": "sys.path.insert(0, os.path.dirname(where['witness'])); import ludus_attack_module as m; return m.secret",
    "copy it inside the kernel": """
    near = os.open('copy', os.O_RDWR | os.O_CREAT); far = os.open(where['witness'], os.O_RDONLY)
    os.copy_file_range(far, near, 6); return os.pread(near, 6, 0)""",
    "add to a file anyone may write": "open(where['victim'], 'a').write('x'); return True",
    "truncate a file anyone may write": "os.truncate(where['victim'], 0); return True",
    "remove a file of an open folder": "os.unlink(where['removable']); return True",
    "make a file in an open folder": "os.close(os.open(where['open'] + '/made', os.O_CREAT | os.O_WRONLY)); return True",
    "make a folder in an open folder": "os.mkdir(where['open'] + '/folder'); return True",
    "make a link in an open folder": "os.symlink('/', where['open'] + '/link'); return True",
    "make a pipe in an open folder": "os.mkfifo(where['open'] + '/pipe'); return True",
    "make a socket in an open folder": "s = socket.socket(socket.AF_UNIX); s.bind(where['open'] + '/socket'); return True",
    "move a file out": "open('own', 'w').close(); os.rename('own', where['open'] + '/moved'); return True",
    "move a file in": "os.rename(where['movable'], 'stolen'); return True",
    "change whose it is": "os.chown(where['victim'], os.getuid(), os.getgid()); return os.getuid() == 0 or None",
    "list the machine's home folders": "return [n for n in os.listdir(where['home']) if n not in sys.base_prefix.split('/')] or os.listdir('/home') or None",
    "list what the machine runs": "return os.listdir('/var/lib') or None",
    "list the folders of other slots": "return [n for n in os.listdir('..') if n.startswith('slot-')] or None",
    "watch the programs of the host": "w = libc.inotify_init1(0); return libc.inotify_add_watch(w, b'/usr/bin', 0x22) >= 0",
    "be told what the host opens": """
    import fcntl; folder = os.open('/usr/bin', os.O_RDONLY); fcntl.fcntl(folder, 1026, 1); return True""",
    "watch a folder of the host": "w = libc.inotify_init1(0); r = libc.inotify_add_watch(w, os.path.dirname(where['witness']).encode(), 0x100); return r >= 0",
    "write where settings are": "open('/etc/ludus-attack', 'w').close(); os.unlink('/etc/ludus-attack'); return True",
    "write beside its own folder": "open('../ludus-attack', 'w').close(); os.unlink('../ludus-attack'); return True",
    "write into the library": "open(os.path.dirname(os.__file__) + '/ludus_attack.py', 'w').close(); os.unlink(os.path.dirname(os.__file__) + '/ludus_attack.py'); return True",
    "connect by way of its keeper": "s = socket.socket(socket.AF_UNIX); s.connect(f'/proc/{os.getppid()}/root' + where['socket']); return s.recv(9)",
    "connect by way of a link": "os.symlink(where['socket'], 's'); s = socket.socket(socket.AF_UNIX); s.connect('s'); return s.recv(9)",
    "open a socket of any family but its own": """
    found = []
    for family in range(2, 46):
        for kind in (1, 2, 3, 5):
            try: found.append(socket.socket(family, kind).family)
            except OSError: pass
    return [f for f in found if f != 1] or None""",
    "pair sockets that reach a name": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect(where['datagram']); a.send(b'x'); return True",
    "read the kernel's log": "return libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0",
    "read the machine's memory": "return os.open('/dev/mem', os.O_RDONLY)",
    "read the kernel's messages": "return os.read(os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK), 8192)",
    "read the machine's random state": "return open('/proc/sys/kernel/random/boot_id').read()",
    "read the addresses of the kernel": "return open('/proc/kallsyms').read(10)",
    "read what the machine's memory holds": "return open('/proc/meminfo').read(10)",
    "read who interrupts": "return open('/proc/interrupts').read(10)",
    "read the keys in use": "return open('/proc/keys').read(10) or True",
    "be able to name the core dumper": "return os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "be able to press the system key": "return os.open('/proc/sysrq-trigger', os.O_WRONLY)",
}

NOT_APPLICABLE = {
    "read the machine's memory": "a machine may have no such device",
    "be able to press the system key": "the kernel may be built without it",
}

EXCUSED = {
    "network": {
        "open a socket of any family but its own": "its sockets are of an empty network of its own: there is nothing to reach"
    },
    "gvisor": dict.fromkeys(
        (
            "read the machine's random state",
            "read what the machine's memory holds",
            "read the kernel's log",
            "read who interrupts",
            "list what the machine runs",
            "list the machine's home folders",
        ),
        "it is of the kernel in user space, not of the host",
    ),
    "docker": {
        "list what the machine runs": "it is the image's folder",
        "list the machine's home folders": "same",
        "read the machine's random state": "an engine shows it; it names the boot, and nothing else",
        "read what the machine's memory holds": "an engine shows how much there is",
        "read the addresses of the kernel": "an engine shows that there are none to see",
        "read who interrupts": "an engine shows what the machine does as a whole",
        "read the keys in use": "an engine shows that there are none to see",
        "watch a folder of the host": "it is the container's own folder of that name",
    },
}
