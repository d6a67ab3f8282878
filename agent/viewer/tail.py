"""Reading a file of JSON lines while somebody writes it.

A reader keeps the inode and the offset up to which it has read, and reads to the last line feed: a
half-written line waits. A file that has shrunk, or is another file of the same name, has been cut
back by a run that continues: everything is read again. Another file may have the inode of the one
that it took the place of, so that the last bytes that were read are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

AT_ONCE = 4 << 20
"""Bytes that are read at a time; a longer line is read whole."""
COMPARED = 1024
"""The most bytes before the offset that are compared."""


class Tail:
    """The new lines of a file, which need not exist.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lines"
    >>> tail = Tail(path)
    >>> _ = path.write_bytes(b"one\\ntw")
    >>> [line for _, line in tail.lines()]
    [b'one\\n']
    >>> _ = path.write_bytes(b"one\\ntwo\\n")
    >>> [line for _, line in tail.lines()]
    [b'two\\n']
    """

    def __init__(self, path: Path, *, inode: int = 0, offset: int = 0, end: bytes = b"") -> None:
        self.path = path
        self.inode, self.offset = inode, offset
        self.end = end
        """The last bytes before the offset."""

    def restarted(self) -> bool:
        """Whether the file is not the one that was read so far, or is shorter; the next `lines`
        then begins at its start.
        """
        try:
            status = self.path.stat()
        except OSError:
            gone = self.offset > 0
            self.inode, self.offset, self.end = 0, 0, b""
            return gone
        if status.st_ino == self.inode and status.st_size >= self.offset and self._goes_on():
            return False
        known = self.offset > 0
        self.inode, self.offset, self.end = status.st_ino, 0, b""
        return known

    def _goes_on(self) -> bool:
        """Whether the file still has what was read last before the offset."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset - len(self.end))
                return file.read(len(self.end)) == self.end
        except OSError:
            return False

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each new whole line with its offset."""
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            file.seek(self.offset)
            fragment = b""
            while block := file.read(AT_ONCE):
                whole, feed, rest_of_block = block.rpartition(b"\n")
                if not feed:
                    fragment += block
                    continue
                for text in (fragment + whole).split(b"\n"):
                    line = text + b"\n"
                    yield self.offset, line
                    self.offset += len(line)
                    self.end = (self.end + line)[-COMPARED:]
                fragment = rest_of_block
