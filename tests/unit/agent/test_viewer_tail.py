"""Lines that are read while they are written, and files that take the place of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ludus.agent.viewer.tail import Tail

FIRST = b'{"a":1}\n{"a":2}\n'


def taken_over(tail: Tail) -> tuple[bool, list[bytes]]:
    return tail.restarted(), [line for _, line in tail.lines()]


def test_what_is_appended_is_read_once_and_a_half_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert taken_over(tail) == (False, [])
    path.write_bytes(FIRST + b'{"a"')
    assert taken_over(tail) == (False, FIRST.splitlines(keepends=True))
    with path.open("ab") as file:
        file.write(b":3}\n")
    again = Tail(path, inode=tail.inode, offset=tail.offset, end=tail.end)
    assert taken_over(tail) == taken_over(again) == (False, [b'{"a":3}\n'])


@pytest.mark.parametrize("content", [b'{"b":1000}\n{"b":2000}\n', b'{"b":1}\n', b""])
def test_a_file_in_the_place_of_another_is_read_from_its_start(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(FIRST)
    tail = Tail(path)
    taken_over(tail)
    path.write_bytes(content)  # of the same inode, as a file system gives it to the next file
    assert os.stat(path).st_ino == tail.inode
    assert taken_over(tail) == (True, content.splitlines(keepends=True))


def test_a_file_that_is_gone_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(FIRST)
    tail = Tail(path)
    taken_over(tail)
    path.unlink()
    assert [taken_over(tail), taken_over(tail)] == [(True, []), (False, [])]
