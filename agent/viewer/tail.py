"""Reading a file of JSON lines while somebody writes it.

A reader keeps the inode and the offset up to which it has read, and reads to the last line feed: a
half-written line waits. A file that has shrunk, or is another file of the same name, has been cut
back by a run that continues: everything is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

AT_ONCE = 4 << 20
"""Bytes that are read at a time; a longer line is read whole."""


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

    def __init__(self, path: Path, *, inode: int = 0, offset: int = 0) -> None:
        self.path = path
        self.inode, self.offset = inode, offset

    def restarted(self) -> bool:
        """Whether the file is not the one that was read so far, or is shorter; the next `lines`
        then begins at its start.
        """
        try:
            status = self.path.stat()
        except OSError:
            gone = self.offset > 0
            self.inode, self.offset = 0, 0
            return gone
        if status.st_ino == self.inode and status.st_size >= self.offset:
            return False
        known = self.offset > 0
        self.inode, self.offset = status.st_ino, 0
        return known

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each new whole line with its offset."""
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            file.seek(self.offset)
            rest = b""
            while block := file.read(AT_ONCE):
                whole, feed, rest_of_block = block.rpartition(b"\n")
                if not feed:
                    rest += block
                    continue
                for text in (rest + whole).split(b"\n"):
                    line = text + b"\n"
                    yield self.offset, line
                    self.offset += len(line)
                rest = rest_of_block
