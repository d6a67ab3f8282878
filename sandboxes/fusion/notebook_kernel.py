"""Runs the cells of a notebook in order, in the same namespace.

This is the program that runs in a slot for `/run_jupyter` and `/execute_batch`. It reads the cells
from a file and writes a line of JSON per cell to its standard output. The cells cannot reach that
output: theirs goes to memory files, also from processes that they start.
"""

from __future__ import annotations

import ast
import base64
import gc
import json
import linecache
import os
import resource
import signal
import sys
import traceback
from types import CodeType, FrameType, ModuleType
from typing import Any

CELLS_FILE = ".ludus-cells.json"
OUTPUT_FILE_BYTES = 64 << 20
"""How many bytes a stream of a cell may hold before its writes fail."""

KEPT_BYTES = 1 << 20
"""How many bytes are reported of each stream of a cell, and of each displayed object."""

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "application/json": "_repr_json_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
}

AGAIN_S = 0.5
"""After so many seconds a late cell that has caught `CellTimeout` is stopped again."""

TELLING_S = 1.0
"""Seconds that a cell's own exception may take to tell its text, where cells have a limit."""

_COROUTINE = 0x80
"""The flag of code that awaits at the top level (`inspect.CO_COROUTINE`)."""

Shown = list[dict[str, object]]


class CellTimeout(BaseException):
    """The cell took longer than `cell_timeout`; no `Exception`, since cells catch those."""


def main() -> None:
    """Run every cell and report the results."""
    with open(CELLS_FILE, encoding="utf-8") as stream:
        job = json.load(stream)
    os.unlink(CELLS_FILE)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_FILE_BYTES, hard))
    signal.signal(signal.SIGALRM, _Alarm.ring)
    report = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    displayed: Shown = []

    def display(*values: object) -> None:
        """Show values as a notebook does."""
        displayed.extend(_bundle(value) for value in values)

    # The cells get a `__main__` of their own, so that they see no name of this file.
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=sys.modules["builtins"], display=display)
    sys.modules["__main__"] = module
    namespace = module.__dict__
    for number, source in enumerate(job["cells"], 1):
        answer = _cell(str(source), number, namespace, displayed, float(job["cell_timeout"]))
        report.write(json.dumps(answer) + "\n")
        report.flush()
    namespace.clear()  # Files that the cells left open are flushed when their names are deleted.
    gc.collect()
    os._exit(0)  # A usual exit would wait for threads that the cells have started.


class _Alarm:
    """Stops the cell that runs, as often as it takes; nothing outside of a cell is stopped."""

    is_set = False

    @classmethod
    def set(cls, limit_s: float) -> None:
        """Stop what runs after so many seconds; 0 never does."""
        cls.is_set = True
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S if limit_s else 0)

    @classmethod
    def clear(cls) -> None:
        """Stop nothing any more."""
        cls.is_set = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    @classmethod
    def ring(cls, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if cls.is_set:
            raise CellTimeout("the cell took longer than cell_timeout")


def _bundle(value: object) -> dict[str, object]:
    """Return a value in every form that the value offers and JSON can hold, as a MIME bundle."""
    bundle: dict[str, object] = {"text/plain": repr(value)[:KEPT_BYTES]}
    for kind, name in _METHODS.items():
        method = None if isinstance(value, type) else getattr(value, name, None)
        form = method() if callable(method) else None
        if isinstance(form, bytes):
            form = base64.b64encode(form).decode()
        try:
            text = json.dumps(form, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            continue
        if form is not None and len(text) <= KEPT_BYTES:
            bundle[kind] = json.loads(text)  # as it is now: the cell may change it afterwards
    return bundle


def _cell(
    source: str, number: int, namespace: dict[str, Any], displayed: Shown, timeout_s: float
) -> dict[str, object]:
    streams = [_Stream(1), _Stream(2)]
    displayed.clear()
    errors: list[dict[str, object]] = []
    try:
        try:
            _Alarm.set(timeout_s)
            _run(source, f"<cell {number}>", namespace, displayed)
        finally:
            _Alarm.clear()
    except BaseException as error:
        _Alarm.clear()  # it may have rung before it was cleared above
        errors.append(_error_report(error, TELLING_S if timeout_s else 0))
    stdout, stderr = (stream.end() for stream in streams)
    return {"stdout": stdout, "stderr": stderr, "display": list(displayed), "error": errors}


def _run(source: str, name: str, namespace: dict[str, Any], displayed: Shown) -> None:
    # With its source in `linecache`, a traceback shows the lines of a cell.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    _evaluate(_compiled(tree, name, "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = _evaluate(_compiled(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None and not source.rstrip().endswith(";"):
            displayed.append(_bundle(value))
            namespace["_"] = value


def _error_report(error: BaseException, limit_s: float) -> dict[str, object]:
    """Describe an exception, whose class may be the cell's own: to tell its text may raise, or take
    longer than the limit.
    """
    frames = error.__traceback__
    while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
        frames = frames.tb_next
    text, lines = "", list[str]()
    try:
        _Alarm.set(limit_s)
        lines = traceback.format_exception(type(error), error, frames)[:200]
        text = str(error)[:KEPT_BYTES]
    except BaseException:
        pass
    finally:
        _Alarm.clear()
    kept = [line[:KEPT_BYTES] for line in lines]
    return {"ename": type(error).__name__, "evalue": text, "traceback": kept}


def _compiled(tree: ast.Module | ast.Expression, name: str, mode: str) -> CodeType:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(tree, name, mode, flags=flags, dont_inherit=True)
    return code


def _evaluate(code: CodeType, namespace: dict[str, Any]) -> object:
    value = eval(code, namespace)
    if not code.co_flags & _COROUTINE:
        return value
    import asyncio  # a large module, and few cells await

    return asyncio.run(value)


class _Stream:
    """The standard output or error of a cell, redirected to a memory file."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._file = os.memfd_create("cell")
        self._saved = os.dup(number)
        os.dup2(self._file, number)

    def end(self) -> str:
        """Restore the descriptor and return what was written."""
        stream = sys.stdout if self._number == 1 else sys.stderr
        try:
            stream.flush()
        except BaseException:  # the cell closed or replaced the stream
            stream = None
        os.dup2(self._saved, self._number)
        data = os.pread(self._file, KEPT_BYTES, 0)
        os.close(self._saved)
        os.close(self._file)
        return data.decode("utf-8", "replace")


if __name__ == "__main__":
    main()
