"""A shell in a sandbox session, with a tree of files that can be read back.

`_GUEST` is the half that runs in the sandbox: two helpers in the session's own interpreter, where
commands cannot reach them by name, since they run in processes of their own. Only the resulting
files are judged, and the expected files never enter the sandbox.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from ludus.errors import ToolError

from ..coding.workbench import Workbench, shortened
from .trees import Tree

TOP = "top"
"""The folder of the tree, in the session's working folder; commands run there."""
MAX_FILES, MAX_BYTES = 2_000, 512 * 1024
"""Limits of a tree that is read back, in files and bytes; no chore leads to a larger tree."""

_GUEST = f"""
import base64 as _b64, json as _json, os as _os, signal as _signal, subprocess as _sp
import time as _time, select as _select

def _ludus_shell(command, timeout_s, max_bytes):
    process = _sp.Popen(["bash", "-c", command], cwd={TOP!r}, stdin=_sp.DEVNULL, stdout=_sp.PIPE,
                        stderr=_sp.STDOUT, start_new_session=True)
    output, limit, deadline = b"", "", _time.monotonic() + timeout_s
    while True:
        left_s = deadline - _time.monotonic()
        ready = _select.select([process.stdout], [], [], max(0.0, min(left_s, 0.2)))[0]
        part = _os.read(process.stdout.fileno(), 65536) if ready else None
        output += part or b""
        if len(output) > max_bytes:
            limit = "too much output"
        elif left_s <= 0:
            limit = "timeout"
        # The output never ends while a background process holds it open, so that the end of bash,
        # with nothing left to read, ends the command too.
        if limit or part == b"" or (part is None and process.poll() is not None):
            break
    if limit:
        _os.killpg(process.pid, _signal.SIGKILL)
    code = process.wait()
    process.stdout.close()
    output = _b64.b64encode(output[:max_bytes]).decode()
    print(_json.dumps({{"output": output, "limit": limit, "code": code}}))

def _ludus_tree(max_files, max_bytes):
    files, size = {{}}, 0
    for folder, _, names in _os.walk({TOP!r}):
        for name in names:
            path = _os.path.join(folder, name)
            if _os.path.islink(path) or not _os.path.isfile(path):
                files[_os.path.relpath(path, {TOP!r})] = None
                continue
            size += _os.path.getsize(path)
            if len(files) >= max_files or size > max_bytes:
                print(_json.dumps({{"too_large": True}}))
                return
            with open(path, "rb") as stream:
                content = stream.read(max_bytes + 1)
            files[_os.path.relpath(path, {TOP!r})] = _b64.b64encode(content).decode()
    print(_json.dumps({{"files": files}}))

_os.makedirs({TOP!r}, exist_ok=True)
"""


class _CommandReply(msgspec.Struct):
    output: str
    """Base64, since output need not be UTF-8."""
    limit: str = ""
    """The limit that ended the command; empty if the command ended by itself."""
    code: int = 0


class _TreeReply(msgspec.Struct):
    files: dict[str, str | None] = {}
    """Base64 by path; None for what is no plain file."""
    too_large: bool = False


ReplyT = TypeVar("ReplyT", _CommandReply, _TreeReply)


class Shell:
    """Runs commands in the top folder of a tree of files.

    Args:
        tree: the files at the start of each new session.
        timeout_s: the time limit of a single command, in seconds.
        max_letters: about how many characters of a command's output are shown.
    """

    def __init__(self, tree: Tree, *, timeout_s: float, max_letters: int) -> None:
        files = {f"{TOP}/{path}": content for path, content in tree.items()}
        self._bench = Workbench(files, prepare=_GUEST)
        self._timeout_s = timeout_s
        self._max_letters = max_letters

    async def run(self, command: str) -> str:
        """Run a command; return the output, and how the command ended if not normally.

        Raises:
            ToolError: the command ended the session; the next command finds the tree as it was at
                the start.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        # In base64 no character of the command needs quoting inside the source of the call.
        data = base64.b64encode(command.encode("utf-8", "replace")).decode()
        code = (
            f"_ludus_shell(_b64.b64decode({data!r}).decode(), {self._timeout_s}, "
            f"{8 * self._max_letters})"
        )
        reply = await self._run_helper(code, _CommandReply)
        text = base64.b64decode(reply.output).decode("utf-8", "replace").rstrip("\n")
        ending = ""
        if reply.limit:
            ending = f"[stopped: {reply.limit}]"
        elif reply.code:
            ending = f"[exit code {reply.code}]"
        parts = [shortened(text, self._max_letters), ending]
        return "\n".join(part for part in parts if part) or "(no output)"

    async def tree(self) -> Tree | None:
        """Return all files; None if they are too many or too large, or not all are UTF-8 text.

        Raises:
            ToolError: an earlier command ended the session.
            RewardUnavailable: there is no sandbox, or it broke.
        """
        reply = await self._run_helper(f"_ludus_tree({MAX_FILES}, {MAX_BYTES})", _TreeReply)
        if reply.too_large or None in reply.files.values():
            return None
        try:
            return {
                path: base64.b64decode(content or "", validate=True).decode()
                for path, content in reply.files.items()
            }
        except (binascii.Error, UnicodeDecodeError):
            return None

    async def close(self) -> None:
        """Close the sandbox session, if open."""
        await self._bench.close()

    async def _run_helper(self, code: str, reply_type: type[ReplyT]) -> ReplyT:
        """Call a helper of `_GUEST` in the session, and read the JSON that it prints."""
        # The helper stops a late command itself, and its answer keeps the session. The longer limit
        # of the run is only met where the helper does not answer.
        execution = await self._bench.run(code, timeout_s=self._timeout_s + 10)
        try:
            return msgspec.json.decode(execution.stdout, type=reply_type)
        except (msgspec.DecodeError, UnicodeError) as error:
            await self._bench.close()
            raise ToolError(
                "the session was broken by what ran in it; the next command begins anew, with "
                "the files of the beginning"
            ) from error
