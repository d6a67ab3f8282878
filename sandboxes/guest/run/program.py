"""Runs a Python program as `python main.py` would, in an interpreter that is already warm."""

from __future__ import annotations

import atexit
import gc
import linecache
import marshal
import os
import sys
import traceback
from contextlib import suppress
from types import ModuleType, TracebackType

from .request import MARSHAL_VERSION, PYTHON, Request

NAME = "main.py"
"""The file name that a program sees in its tracebacks."""


def run(request: Request) -> int:
    """Run `blobs[0]` as `__main__`; return the exit code."""
    source = request.blobs[0]
    arguments: list[str] = request.options.get("argv", [])  # type: ignore[assignment]
    sys.argv = [NAME, *arguments]
    gc.enable()
    give_full_depth()
    return finish(execute(source, fresh_main().__dict__))


def give_full_depth(further: int = 0) -> None:
    """Raise the recursion limit by the frames of ours below the program, which must not count.

    Call this before the program runs, never later: what the program sets is its own.

    Args:
        further: frames that later calls of the program will have below them in addition.
    """
    own_depth, frame = further, sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None:
        own_depth, frame = own_depth + 1, frame.f_back
    sys.setrecursionlimit(_RECURSION_LIMIT + own_depth)


_RECURSION_LIMIT = sys.getrecursionlimit()


def touch() -> None:
    """Write to the pages that every run writes to, before the request comes.

    The kernel then copies them while nobody waits, and a parked child starts faster.
    """
    marshal.loads(_SAMPLE_REQUEST)
    execute(_SAMPLE, fresh_main().__dict__)
    print(end="", flush=True)  # noqa: T201 - nothing, and into /dev/null: no request is here yet
    give_full_depth()


_SAMPLE = b"import sys\nx = [1, 'a', 2.5, {'k': (1,)}]\ndef f(n):\n    return n + 1\ny = f(1)\n"
_SAMPLE_REQUEST = marshal.dumps((0, PYTHON, [_SAMPLE], {}, {}, ["out", "err"]), MARSHAL_VERSION)


def fresh_main() -> ModuleType:
    """Make a new, empty `__main__` module."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=NAME, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = module
    return module


def execute(source: bytes, namespace: dict[str, object]) -> int:
    """Execute `source`; print an uncaught exception as Python does. Return the exit code."""
    try:
        exec(compile(source, NAME, "exec", dont_inherit=True), namespace)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as error:
        caught = error
    else:
        return 0
    return _uncaught(caught, source)  # behind the handler: what a hook raises stands alone


def _uncaught(error: BaseException, source: bytes) -> int:
    """Give an exception that the program did not catch to its `sys.excepthook`, as Python does;
    return the exit code.
    """
    hook = vars(sys).get("excepthook", sys.__excepthook__)
    if "excepthook" not in vars(sys):
        _say("sys.excepthook is missing")
    if hook is sys.__excepthook__:
        report(error, source)
        return 1
    frames = _own_frames(error, source)
    flush("stdout")
    try:
        hook(type(error), error, frames)
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as fault:
        _say("Error in sys.excepthook:")
        report(fault, source)
        _say("\nOriginal exception was:")
        report(error, source)
    return 1


def _say(line: str) -> None:
    """Print a line where errors go, unless the program has left no stream to print to."""
    with suppress(BaseException):
        if stream := getattr(sys, "stderr", None):
            print(line, file=stream)


def _exit_code(stop: SystemExit) -> int:
    """Return the exit code of `sys.exit(...)`; of a text, which is printed, the code is 1."""
    # The program may have closed the stream, and the code and its text may be of its own classes.
    with suppress(BaseException):
        code = stop.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF if abs(code) < 1 << 63 else 0xFF
        if stream := getattr(sys, "stderr", None) or sys.__stderr__:
            print(code, file=stream)
    return 1


def report(error: BaseException, source: bytes) -> None:
    """Print an exception with the lines of the program, without the frames of this package."""
    frames = _own_frames(error, source)
    flush("stdout")
    _print(error, frames)


def _own_frames(error: BaseException, source: bytes) -> TracebackType | None:
    """Return the frames of an exception without those of this package, which it loses, and show
    its readers the lines of the program.
    """
    lines = source.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[NAME] = (len(source), None, lines, NAME)
    # A class of the program's may have a `__traceback__` of its own.
    frames: TracebackType | None = _TRACEBACK.__get__(error)
    hidden = os.path.dirname(os.path.dirname(__file__)) + os.sep  # the package `guest`
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(hidden):
        frames = frames.tb_next
    BaseException.with_traceback(error, frames)
    return frames


_TRACEBACK = vars(BaseException)["__traceback__"]


def _print(error: BaseException, frames: TracebackType | None) -> None:
    """Print an exception, unless the program has left no stream to print to."""
    with suppress(BaseException):
        if stream := getattr(sys, "stderr", None):
            traceback.print_exception(type(error), error, frames, file=stream)


def finish(code: int) -> int:
    """Do what the interpreter does at the end, then return `code`.

    That is: wait for threads, run exit handlers, clear globals, and flush.
    """
    try:
        if threading := sys.modules.get("threading"):
            threading._shutdown()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        flush("stdout")
        # Files that the program left open are flushed when its globals are cleared.
        sys.modules["__main__"].__dict__.clear()
        gc.collect()
    except BaseException as error:
        _print(error, _TRACEBACK.__get__(error))
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        flush(name)
    return code


def flush(name: str) -> None:
    """Flush a stream of `sys`, if the program has left a stream to flush."""
    with suppress(BaseException):  # the program closed, replaced or deleted the stream
        getattr(sys, name).flush()


def redirect_nothing() -> None:
    """Open /dev/null as standard input, output and error."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    if null > 2:
        os.close(null)
