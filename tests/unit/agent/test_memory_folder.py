"""The folder behind the memory tool: commands, bounds, and paths that lead elsewhere."""

from typing import Any

import pytest

from ludus.agent.context import MemoryFolder
from ludus.errors import ToolError


def folder(**bounds: int) -> MemoryFolder:
    return MemoryFolder(**({"max_files": 4, "max_chars": 200} | bounds))


def run(files: MemoryFolder, command: str, **arguments: Any) -> str:
    return files.run({"command": command, **arguments})


def test_a_file_is_written_shown_and_edited() -> None:
    files = folder()
    run(files, "create", path="/memories/a.txt", file_text="one\ntwo\nthree")
    assert run(files, "view", path="/memories/a.txt") == "   1\tone\n   2\ttwo\n   3\tthree"
    assert run(files, "view", path="/memories/a.txt", view_range=[2, -1]) == (
        "   2\ttwo\n   3\tthree"
    )
    run(files, "str_replace", path="/memories/a.txt", old_str="two", new_str="2")
    run(files, "insert", path="/memories/a.txt", insert_line=0, insert_text="zero")
    assert files.files == {"/memories/a.txt": "zero\none\n2\nthree"}


def test_folders_are_where_files_are() -> None:
    files = folder()
    run(files, "create", path="/memories/sub/b", file_text="12345")
    assert run(files, "view", path="/memories") == "/memories:\n/memories/sub/b (5 characters)"
    run(files, "rename", old_path="/memories/sub", new_path="/memories/other")
    assert list(files.files) == ["/memories/other/b"]
    run(files, "delete", path="/memories/other")
    assert run(files, "view", path="/memories") == "/memories is empty"


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\r", "\x85"])
def test_what_other_texts_may_break_lines_at_is_a_letter_of_a_path(mark: str) -> None:
    files, path = folder(), f"/memories/a{mark}b/c{mark}d"
    run(files, "create", path=path, file_text="12345")
    for shown in ("/memories", f"/memories/a{mark}b"):
        assert run(files, "view", path=shown) == f"{shown}:\n{path} (5 characters)"


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/memories/../etc", "../x", "", "/memoriesx/a", "/memories/a\0b", "/memories"],
)
def test_paths_outside_are_refused_and_change_nothing(path: str) -> None:
    files = folder()
    with pytest.raises(ToolError):
        run(files, "create", path=path, file_text="x")
    assert not files.files


def test_a_path_that_only_looks_as_if_it_led_elsewhere_is_used() -> None:
    files = folder()
    run(files, "create", path="/memories/x/../y", file_text="")
    assert list(files.files) == ["/memories/y"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": "create", "path": "/memories/f"}, "file_text"),
        ({"command": "format", "path": "/memories"}, "format"),
        ({"path": "/memories"}, "command"),
        ({"command": "view", "path": 3}, "str"),
        ({"command": "view", "path": "/memories", "force": True}, "force"),
        ({"command": "view", "path": "/memories/none"}, "nothing at"),
        ({"command": "view", "path": "/memories/a", "view_range": [2, 1]}, "view_range"),
        ({"command": "view", "path": "/memories/a", "view_range": [0, 1]}, "view_range"),
        ({"command": "str_replace", "path": "/memories/a", "old_str": "x"}, "2 times"),
        ({"command": "str_replace", "path": "/memories/a", "old_str": ""}, "0 times"),
        ({"command": "insert", "path": "/memories/a", "insert_line": 9, "insert_text": ""}, "0 to"),
        ({"command": "delete", "path": "/memories/z"}, "nothing at"),
        ({"command": "create", "path": "/memories/a/b", "file_text": ""}, "is a file"),
        ({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/a"}, "there"),
        ({"command": "rename", "old_path": "/memories/a", "new_path": "/memories/a/b"}, "there"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    arguments: dict[str, Any], said: str
) -> None:
    files = folder()
    run(files, "create", path="/memories/a", file_text="xx")
    with pytest.raises(ToolError, match=said):
        files.run(arguments)
    assert files.files == {"/memories/a": "xx"}


def test_a_folder_is_no_file() -> None:
    files = folder()
    run(files, "create", path="/memories/a", file_text="")
    run(files, "create", path="/memories/b", file_text="")
    with pytest.raises(ToolError, match="is a file"):
        run(files, "rename", old_path="/memories/a", new_path="/memories/b/c")
    run(files, "create", path="/memories/sub/b", file_text="")
    with pytest.raises(ToolError, match="is a folder"):
        run(files, "create", path="/memories/sub", file_text="")


def test_files_and_characters_are_bounded_by_every_command_that_adds_some() -> None:
    files = folder(max_files=1, max_chars=20)
    run(files, "create", path="/memories/a", file_text="123456789")  # 11 of the path, and 9
    for command, more in (
        ("create", {"path": "/memories/b", "file_text": ""}),
        ("create", {"path": "/memories/a", "file_text": "1234567890"}),
        ("insert", {"path": "/memories/a", "insert_line": 1, "insert_text": ""}),
        ("str_replace", {"path": "/memories/a", "old_str": "1", "new_str": "11"}),
        ("rename", {"old_path": "/memories/a", "new_path": "/memories/aa"}),
    ):
        with pytest.raises(ToolError, match="at most 1 files and 20 characters"):
            run(files, command, **more)
    assert files.files == {"/memories/a": "123456789"}
