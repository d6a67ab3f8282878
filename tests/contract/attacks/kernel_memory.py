"""Attacks on memory of the kernel's that no process is charged for, and on processes next door."""

ATTACKS = {
    "keep Landlock rules": """
    rules = call(444, struct.pack('QQQ', 4, 0, 0), 8, 0); folder = os.open('/usr', os.O_PATH)
    return rules >= 0 and call(445, rules, 1, struct.pack('=Qi', 4, folder), 0) == 0""",
    "signal any process there is": """
    found = []
    for pid in range(max(2, where['pid'] - 4000), where['pid'] + 4000):
        if pid == os.getpid(): continue
        try: os.kill(pid, 0)
        except OSError: continue
        found.append(pid)
    return found or None""",
    "signal the driver": "os.kill(where['pid'], 0); return True",
}
