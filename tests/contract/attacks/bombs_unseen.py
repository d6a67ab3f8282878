"""Attacks on what the machine has, with what does not show as a process's own memory."""

# ruff: noqa: E501 - the attacks are programs, one to a line
_MANY = """
    reader, writer = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            held = 0; kept = []
            try:
                for _ in range(450): {make}
            except OSError: pass
            os.write(writer, b'%d\\n' % held); time.sleep(30); os._exit(0)
    os.close(writer)
    told = b''
    while told.count(b'\\n') < 8: told += os.read(reader, 99) or b'0\\n'
    time.sleep(1.5); return sum(map(int, told.split())) > 384 << 20"""

_SOCKETS = _MANY.format(
    make="""
                    kept += socket.socketpair()
                    for end in kept[-2:]:
                        end.setblocking(False)
                        try:
                            while True: held += end.send(bytes(1 << 15))
                        except BlockingIOError: pass"""
)

ATTACKS = {
    "keep memory in sockets": _SOCKETS,
    "keep memory in sockets, as heavy as its keeper": """
    try: open('/proc/self/oom_score_adj', 'w').write('0')
    except OSError: pass"""
    + _SOCKETS,
    "keep memory in large socket buffers": """
    kept = []; held = 0
    for _ in range(100):
        kept += socket.socketpair()
        for end in kept[-2:]:
            end.setblocking(False); end.setsockopt(socket.SOL_SOCKET, 32 if os.getuid() == 0 else 7, 4 << 20)
            try:
                while True: held += end.send(bytes(1 << 15))
            except BlockingIOError: pass
    return held > 384 << 20""",
    "keep memory where nobody may look": """
    kept = []; libc.prctl(4, 0, 0, 0, 0)
    for _ in range(12): kept.append(bytearray(b'x' * (32 << 20))); time.sleep(0.05)
    time.sleep(3.5); return len(kept)""",
    "start small threads without end": """
    import threading; threading.stack_size(1 << 16)
    for _ in range(400): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    time.sleep(3); return True""",
    "fork at every turn": """
    allowed, taken = os.pipe(); os.write(taken, bytes(600)); os.set_blocking(allowed, False); first = os.getpid()
    until, failed = time.monotonic() + where['patience'], 0
    while time.monotonic() < until and failed < 80:
        try: os.read(allowed, 1)
        except OSError: break
        try: os.fork()
        except OSError: os.write(taken, b'.'); failed += 1; time.sleep(0.01)
    if os.getpid() != first: time.sleep(30)
    try: left = len(os.read(allowed, 600))
    except OSError: left = 0
    return left < 300""",
    "open descriptors through children": """
    kept = []; a, b = socket.socketpair()
    for _ in range(30): kept += [os.open('/dev/null', os.O_RDONLY) for _ in range(50)]
    return len(kept)""",
    "write without end": """
    for _ in range(30): sys.stdout.write('x' * (1 << 20))
    sys.stdout.flush(); return True""",
    "write complaints without end": """
    for _ in range(30): os.write(2, b'x' * (1 << 20))
    return True""",
    "reserve a file's room": """
    with open('room', 'wb') as f: os.posix_fallocate(f.fileno(), 0, 1 << 30)
    return True""",
    "fill the disk with removed files": """
    kept = []
    for number in range(20):
        kept.append(open('gone', 'wb')); os.unlink('gone')
        for _ in range(10): kept[-1].write(bytes(1 << 20))
        kept[-1].flush()
    return True""",
    "fill the shared memory": """
    with open('/dev/shm/big', 'wb') as f:
        for _ in range(100): f.write(bytes(1 << 20))
    os.unlink('/dev/shm/big'); return True""",
    "fill the other folders": """
    for folder in ('/tmp', '/var/tmp', '/run', '/dev/shm', '/run/lock', '/mnt'):
        try:
            with open(folder + '/ludus-big', 'wb') as f:
                for _ in range(100): f.write(bytes(1 << 20))
            os.unlink(folder + '/ludus-big'); return folder
        except OSError: pass""",
    "use the processor in children nobody waits for": """
    import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); reader, writer = os.pipe(); used = 0
    until = time.monotonic() + where['patience']
    while time.monotonic() < until and used < 1.8e9:
        for _ in range(4):
            if os.fork() == 0:
                while time.process_time_ns() < 3 * 10**8: pass
                os.write(writer, b'.'); os._exit(0)
        for _ in range(4): os.read(reader, 1); used += 3 * 10**8
    return used >= 1.8e9""",
}

CPU_S = {"use the processor in children nobody waits for": 0.6}
"""A limit of CPU time of its own, so that its end does not take long."""

EXCUSED = {
    "slots-landlock": {
        "fork at every turn": "an ordinary user's processes are watched, not bounded; as root they are",
        "fill the disk with removed files": "only each file is bounded: there is no file system of its own",
    }
}
