"""Does in the slot, before the first fork, what each child will do.

On the first calls the interpreter specialises its bytecode, fills its caches and writes to its
pages. Done here, all that is shared with the children. Otherwise every child would write to shared
pages and so copy them again, which is about half the cost of a run (decision 0400).
"""

from __future__ import annotations

import array
import os
import socket
import sys
from types import MappingProxyType

from ..jail import syscalls as sc
from ..testing import harness as testing, run_tests, solution_server, value_wire
from . import children, one_core, program, uploads
from .request import PYTHON, Request, encode, receive

_TIMES = 40
_PROGRAM = b"""
import sys
x = [1, 'a', 2.5, {'k': (1,)}]
def f(n):
    return n + 1
print('warm', f(1), x)
"""


def run() -> None:
    """Rehearse runs and gradings; standard output must be /dev/null."""
    our_end, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(_TIMES):
        sc.prctl(sc.PR_SET_DUMPABLE, 0)
        request = Request(mode=PYTHON, blobs=[_PROGRAM], streams=["out", "err"])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null, null]))]
        our_end.sendmsg([encode(request, number)], rights)
        received, streams = receive(far, number)
        children.place(streams)
        for descriptor in streams.values():
            os.close(descriptor)
        uploads.write_files(received.files)
        program.run(received)
        _rehearse_grading()
    sys.modules.pop("solution", None)
    os.close(null)
    our_end.close()
    far.close()


def _rehearse_grading() -> None:
    """Play both ends of a grading.

    There is a single thread, so each answer is written into the socket before its question is
    asked, and each question is answered after the end.
    """
    our_end, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    server = solution_server.SolutionServer(our_end.detach())
    server.line.tell_core(_NOWHERE)
    server.load(_SOLUTION)
    harness = testing.TestHarness(far.detach())
    # The first of `operations.ABILITIES` is that it may be called.
    server.line.send(["!", *_tokens(MappingProxyType({"f": ("function", "h0.1")}))])
    one_core.join(harness.line.hear_core())
    harness.resolve(["f"])  # The tests are read by few children (`deferred_modules`).
    server.line.send(["!", *_tokens([1, (2, "b"), 0.5])])
    with open(os.devnull, "w") as report:
        run_tests.write_rows(report, harness.results([_TEST], stop_early=True))
    server.line.answer_one()
    server.line.answer_one()
    harness.line.close()
    server.line.close()


# No core has this number, so that the slot stays free to run on any core (`one_core.join`).
_NOWHERE = 0xFFFF_FFFF
_SOLUTION = b"def f(x, y):\n    x.append(y)\n    return [1, (2, 'b'), 0.5]\n"
_TEST = compile("assert f([1], 'a') == [1, (2, 'b'), 0.5]", "tests", "exec")


def _tokens(value: object) -> list[value_wire.Token]:
    encoder = value_wire.Encoder(lambda _: "h0")
    encoder.add(value)
    return encoder.tokens
