"""Attacks on what the machine has: broken means that the bound was not there.

Memory is held for a second past the bound: without control groups a bound is kept by looking every
20 ms, and on a busy machine the process that looks may have to wait for a core.
"""

# ruff: noqa: E501 - the attacks are programs, one to a line
ATTACKS = {
    "fill the disk with many files": """
    for number in range(20):
        with open(f'big{number}', 'wb') as f:
            for _ in range(10): f.write(bytes(1 << 20))
    return True""",
    "use up the inodes": """
    for number in range(5000): os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY))
    return True""",
    "use up the inodes with folders": """
    for number in range(5000): os.mkdir(str(number))
    return True""",
    "keep memory in shared maps": """
    import mmap; kept = []
    for _ in range(12):
        kept.append(mmap.mmap(-1, 32 << 20)); kept[-1].write(bytes(32 << 20)); time.sleep(0.05)
    time.sleep(1); return len(kept)""",
    "keep memory in processes": """
    children, (told, tell) = [], os.pipe()
    for _ in range(12):
        children.append(os.fork())
        if children[-1] == 0:
            kept = bytearray(os.urandom(4096) * 8192); os.write(tell, b'x'); time.sleep(150); os._exit(0)
        time.sleep(0.1)
    os.set_blocking(told, False)
    holding = 0  # on a busy machine a child needs seconds until it holds its memory
    until = time.monotonic() + where['patience']
    while time.monotonic() < until:
        if any(os.waitpid(child, os.WNOHANG)[0] for child in children): return False
        try: holding += len(os.read(told, 12))
        except BlockingIOError: time.sleep(0.05)
        if holding == 12: break
    time.sleep(1)
    return holding == 12 and not any(os.waitpid(child, os.WNOHANG)[0] for child in children)""",
    "keep memory in its own": """
    kept = []
    for _ in range(12): kept.append(bytearray(b'x' * (32 << 20))); time.sleep(0.05)
    time.sleep(1); return len(kept)""",
    "start threads without end": """
    import threading
    for _ in range(400): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    return True""",
    "open files without end": """
    kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(1500)]
    return len(kept)""",
    "lock memory": "kept = bytearray(100 << 20); return libc.mlockall(3) == 0 and any(int(l.split()[1]) > 100000 for l in open('/proc/self/status') if l.startswith('VmLck'))",
    "keep memory in files of memory": """
    kept = []
    for number in range(12):
        kept.append(os.memfd_create(str(number)))
        for _ in range(32): os.write(kept[-1], bytes(1 << 20))
    return len(kept)""",
}

EXCUSED = {
    "slots-landlock": {
        "fill the disk with many files": "only each file is bounded: there is no file system of its own",
        "use up the inodes": "same",
        "use up the inodes with folders": "same",
    }
}
