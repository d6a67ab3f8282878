"""Runs commands (a compiler, a shell, a simulator) in the child process."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from .request import Request

NOT_FOUND = 127


def run(request: Request) -> int:
    """Run `options["steps"]`, a list of argument vectors, up to the first that fails.

    The last step replaces this process, so that its exit status and signals are those of the run.
    """
    # Python ignores SIGPIPE, and a command would inherit that; commands expect to be ended by it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    steps: list[list[str]] = request.options["steps"]  # type: ignore[assignment]
    for step in steps[:-1]:
        child = os.fork()
        if child == 0:
            _become(step)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            return code if code > 0 else 128 - code
    return _become(steps[-1])


def _become(step: list[str]) -> NoReturn:
    try:
        os.execvp(step[0], step)
    except OSError as error:
        os.write(2, f"{step[0]}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND)
