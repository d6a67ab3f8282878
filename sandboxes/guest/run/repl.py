"""A session: runs cells in order in the same namespace, as at the Python prompt.

A socket carries requests in and answers out; what a cell prints goes to the output pipes.
Interrupts reach a cell, never the wait between cells.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import signal
import sys
from contextlib import suppress

from . import fetch, program
from .message_line import MessageLine
from .request import Request

PEER = 3
_MAX_BYTES = 0xFFFF_FFFF
"""Messages of the driver are bounded by the driver."""


def run(request: Request) -> int:
    """Serve the session until the driver closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = MessageLine(PEER)
    namespace = program.fresh_main().__dict__
    sys.argv = [""]
    gc.enable()
    program.give_full_depth()
    with suppress(EOFError):
        while True:
            message: dict[str, object] = json.loads(line.receive(_MAX_BYTES))
            answer = _DO[str(message["do"])](message, namespace)
            if answer is not None:
                line.send(json.dumps(answer).encode())
    return 0


def _cell(message: dict[str, object], namespace: dict[str, object]) -> dict[str, object]:
    source = str(message["code"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        # A last expression is compiled by itself, so that its value can be shown as at the prompt.
        import ast  # imported only here, to keep other children small

        tree = ast.parse(source, program.NAME)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, program.NAME, "exec", dont_inherit=True), namespace)
        if isinstance(last, ast.Expr):
            expression = compile(
                ast.Expression(last.value), program.NAME, "eval", dont_inherit=True
            )
            sys.displayhook(eval(expression, namespace))
    except BaseException as error:
        program.report(error, source.encode("utf-8", "replace"))
        return {"ok": False}
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        program.flush("stdout")
        program.flush("stderr")
    return {"ok": True}


_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How a file is opened for writing. A pipe that a cell has put in the place of the file is an error
at once; without the last flag the session would wait for a reader.
"""


def _write(message: dict[str, object], _: dict[str, object]) -> dict[str, object]:
    files: dict[str, str] = message["files"]  # type: ignore[assignment]
    try:
        for name, data in files.items():
            if folder := os.path.dirname(name):
                os.makedirs(folder, exist_ok=True)
            descriptor = os.open(name, _WRITTEN, 0o755)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(base64.b64decode(data))
    except OSError as error:
        return {"ok": False, "reason": str(error)}
    return {"ok": True}


def _read(message: dict[str, object], _: dict[str, object]) -> dict[str, object]:
    room: int = message["limit_bytes"]  # type: ignore[assignment]
    data = fetch.read(str(message["path"]), room)
    if isinstance(data, str):
        return {"ok": False, "reason": data}
    return {"ok": True, "data": base64.b64encode(data).decode()}


def _snapshot(_: dict[str, object], __: dict[str, object]) -> dict[str, object] | None:
    """Leave a stopped copy of this process behind.

    The process that returns from that stop is a copy of the copy, a branch: it finds a new socket
    to the driver behind its descriptor, and must not answer the snapshot request of the original.
    """
    for earlier in tuple(_copies):
        try:
            has_ended = os.waitpid(earlier, os.WNOHANG)[0] == earlier
        except ChildProcessError:
            has_ended = True
        if has_ended:
            _copies.remove(earlier)
    try:
        copy = os.fork()
    except OSError as error:
        return {"ok": False, "reason": str(error)}
    if copy:
        _copies.append(copy)
        return {"ok": True}
    _copies.clear()  # These are children of the original and not of its copy.
    os.kill(os.getpid(), signal.SIGSTOP)
    # From here on this process is a branch. All branches of a snapshot would draw the same random
    # numbers, and would find the directories of the original in their environment.
    for name in ("random", "numpy.random"):
        if module := sys.modules.get(name):
            module.seed()
    working_folder = os.getcwd()
    os.environ.update(HOME=working_folder, TMPDIR=working_folder)
    if tempfile := sys.modules.get("tempfile"):
        vars(tempfile).update(tempdir=None)
    return None


_copies: list[int] = []
"""The pids of the copies that this process has made and not reaped yet."""


_DO = {"cell": _cell, "write": _write, "read": _read, "snapshot": _snapshot}
