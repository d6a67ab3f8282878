"""Python cells that run shell commands inside a sandbox session."""

from __future__ import annotations

_MAX_FILES = 200

PREPARE = f"""
def _ludus_shell(command, timeout_s):
    import os, signal, subprocess, sys
    script = (
        'python() {{ "%s" "$@"; }}; python3() {{ python "$@"; }}; export -f python python3; '
        'eval "$1"' % sys.executable
    )
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", command],
        stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True,
    )
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"[stopped after {{timeout_s:g}} s]")
    else:
        if code:
            print(f"[exit code {{code}}]")

def _ludus_list():
    import os
    count = 0
    for folder, folders, names in os.walk("."):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name))
            if count == {_MAX_FILES}:
                print("...")
                return
            print(path, os.lstat(path).st_size)
            count += 1
"""
"""Code that is run at the start of each session."""

LIST = "_ludus_list()"


def shell_cell(command: str, timeout_s: float) -> str:
    """Return a cell that runs `command` in bash and prints the output at once.

    At the end the cell prints the exit code, if that is not 0, or that the command was stopped.
    """
    return f"_ludus_shell({command!r}, {timeout_s!r})"
