"""A memory of files that outlives context windows, and the manager that offers the memory tool.

The commands and their arguments are those of the memory tool in the public API of a large vendor
(`memory_20250818`): view, create, str_replace, insert, delete and rename, below `/memories`.
Nothing touches a disk. Paths that lead out of the folder are refused all the same, so that a policy
does not learn to try. The number of files and of their characters is bounded.

    window 1   ... memory(command="create", path="/memories/notes", file_text="a = 5") ...   full
    window 2   s_1, the list of files, the newest exchange, ...

The files outlive the windows of an episode and end with the episode. Calls are sampled and trained
like any other. Alone, the manager starts a full window over with the first prompt, the list of
files and the newest exchange. Composed with others, it offers the tool and shows the list in every
window that opens; a full window is theirs as long as any of them can help.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, tool_result

from .keep import last_exchanges
from .protocol import (
    REFUSED,
    Handled,
    History,
    Reopen,
    TrimmingManager,
    add_to_prompt,
    own_calls,
    refuse,
    tool_spec,
)

ROOT = "/memories"


class _Command(msgspec.Struct, frozen=True, tag_field="command", forbid_unknown_fields=True):
    pass


class ViewFile(_Command, frozen=True, tag="view"):
    """Shows a file with line numbers, or lists a folder."""

    path: str
    view_range: tuple[int, int] | None = None


class CreateFile(_Command, frozen=True, tag="create"):
    """Writes a file, in place of any file at the same path."""

    path: str
    file_text: str


class ReplaceText(_Command, frozen=True, tag="str_replace"):
    """Replaces a text that occurs once in a file."""

    path: str
    old_str: str
    new_str: str = ""


class InsertText(_Command, frozen=True, tag="insert"):
    """Inserts a text after a line of a file; line 0 is the beginning."""

    path: str
    insert_line: int
    insert_text: str


class DeleteFile(_Command, frozen=True, tag="delete"):
    """Deletes a file, or a folder with everything below."""

    path: str


class RenameFile(_Command, frozen=True, tag="rename"):
    """Moves a file or a folder to a path where nothing is yet."""

    old_path: str
    new_path: str


Command = ViewFile | CreateFile | ReplaceText | InsertText | DeleteFile | RenameFile


class MemoryFolder:
    """Text files by path, all below `/memories`; a folder without files does not exist.

    Args:
        max_files: the most files.
        max_chars: the most characters in all files and their paths together.
    """

    def __init__(self, *, max_files: int, max_chars: int) -> None:
        self.files: dict[str, str] = {}
        self.max_files, self.max_chars = max_files, max_chars

    def run(self, arguments: dict[str, object]) -> str:
        """Carry out a command, given as the arguments of a call, and return the answer.

        Raises:
            ToolError: the arguments are not a command, the path cannot be used, or a limit is
                reached. The files are then as they were.
        """
        try:
            command: Command = msgspec.convert(arguments, Command)
        except msgspec.ValidationError as error:
            raise ToolError(f"this is not a memory command: {error}") from None
        match command:
            case ViewFile():
                return self._view(command)
            case CreateFile(path, text):
                return self._write(_inside(path), text, "was written")
            case ReplaceText():
                return self._replace(command)
            case InsertText():
                return self._insert(command)
            case DeleteFile(path):
                return self._delete(_inside(path))
            case RenameFile(old, new):
                return self._rename(_inside(old), _inside(new))

    def listing(self) -> str:
        """Return the path and the length of every file, a line each."""
        return "\n".join(
            f"{path} ({len(text)} characters)" for path, text in sorted(self.files.items())
        )

    def _view(self, command: ViewFile) -> str:
        path = _folder_or_file(command.path)
        if path not in self.files:
            entries = [line for line in self.listing().split("\n") if _is_below(line, path)]
            if not entries and path != ROOT:
                raise ToolError(f"there is nothing at {path}")
            return "\n".join([f"{path}:", *entries]) if entries else f"{path} is empty"
        lines = self.files[path].split("\n")
        first, last = command.view_range or (1, len(lines))
        last = len(lines) if last == -1 else last
        if not 1 <= first <= last <= len(lines):
            raise ToolError(
                f"view_range must be within 1 and {len(lines)}, the lines of {path}, got "
                f"[{first}, {last}]"
            )
        return "\n".join(
            f"{number:>4}\t{line}"
            for number, line in enumerate(lines, 1)
            if first <= number <= last
        )

    def _replace(self, command: ReplaceText) -> str:
        path, text = self._read(command.path)
        occurrences = text.count(command.old_str) if command.old_str else 0
        if occurrences != 1:
            raise ToolError(f"old_str must occur once in {path}, but occurs {occurrences} times")
        return self._write(path, text.replace(command.old_str, command.new_str), "was edited")

    def _insert(self, command: InsertText) -> str:
        path, text = self._read(command.path)
        lines = text.split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"insert_line must be from 0 to {len(lines)}, the lines of {path}, got "
                f"{command.insert_line}"
            )
        lines[command.insert_line : command.insert_line] = command.insert_text.split("\n")
        return self._write(path, "\n".join(lines), "was edited")

    def _delete(self, path: str) -> str:
        for deleted_path in self._paths_below(path):
            del self.files[deleted_path]
        return f"{path} was deleted"

    def _rename(self, old: str, new: str) -> str:
        new_paths = {path: new + path.removeprefix(old) for path in self._paths_below(old)}
        if self._find(new) or _is_below(new, old):
            raise ToolError(f"cannot move {old} to {new}: something is there already")
        self._refuse_below_files(new)
        self._keep({new_paths.get(path, path): text for path, text in self.files.items()})
        return f"{old} is {new} now"

    def _paths_below(self, path: str) -> list[str]:
        """Return the file at `path`, or all files below."""
        paths = self._find(path)
        if not paths:
            raise ToolError(f"there is nothing at {path}")
        return paths

    def _find(self, path: str) -> list[str]:
        return [
            candidate for candidate in self.files if candidate == path or _is_below(candidate, path)
        ]

    def _read(self, path: str) -> tuple[str, str]:
        place = _inside(path)
        if place not in self.files:
            raise ToolError(f"there is no file {place}")
        return place, self.files[place]

    def _write(self, path: str, text: str, message: str) -> str:
        if any(_is_below(existing, path) for existing in self.files):
            raise ToolError(f"{path} is a folder")
        self._refuse_below_files(path)
        self._keep({**self.files, path: text})
        return f"{path} {message}"

    def _refuse_below_files(self, path: str) -> None:
        if any(_is_below(path, existing) for existing in self.files):
            raise ToolError(f"a part of the path {path} is a file")

    def _keep(self, files: dict[str, str]) -> None:
        """Make `files` the content of the memory, unless a bound is exceeded."""
        chars = sum(len(path) + len(text) for path, text in files.items())
        if len(files) > self.max_files or chars > self.max_chars:
            raise ToolError(
                f"the memory holds at most {self.max_files} files and {self.max_chars} characters, "
                f"this would be {len(files)} and {chars}; shorten or delete some"
            )
        self.files = files


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _folder_or_file(path: str) -> str:
    """Return the normal form of a path inside the folder, or of the folder.

    Raises:
        ToolError: the path leads elsewhere.
    """
    normal_path = posixpath.normpath(path)
    if (normal_path != ROOT and not _is_below(normal_path, ROOT)) or "\0" in path or "\n" in path:
        raise ToolError(f"paths must be below {ROOT}, such as {ROOT}/notes.txt, got {path!r}")
    return normal_path


def _inside(path: str) -> str:
    """Return the normal form of a path inside the folder.

    Raises:
        ToolError: the path is the folder, or leads elsewhere.
    """
    normal_path = _folder_or_file(path)
    if normal_path == ROOT:
        raise ToolError(f"{ROOT} is the folder itself; name a file in the folder")
    return normal_path


_LINES = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
MEMORY = tool_spec(
    "memory",
    f"Edits text files below {ROOT}. They are kept when older messages are removed from view, so "
    "write down what will be needed.",
    {
        "command": {
            "type": "string",
            "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
        },
        "path": f"of every command but rename: a file such as {ROOT}/notes.txt, or a folder",
        "view_range": {**_LINES, "description": "of view: first and last line, -1 for the end"},
        "file_text": "of create: the content",
        "old_str": "of str_replace: a text that occurs once",
        "new_str": "of str_replace: the text in its place",
        "insert_line": {"type": "integer", "description": "of insert: the line before, 0 for none"},
        "insert_text": "of insert: the lines to insert",
        "old_path": "of rename: what is to be moved",
        "new_path": "of rename: where to",
    },
    required=["command"],
)


@dataclass(frozen=True, slots=True)
class MemoryTool(TrimmingManager):
    """Offers the tool `memory`, and clears full windows.

    Args:
        threshold: the share of the window from which the window is started over.
        carry: whether the newest exchange is shown again.
        max_files: the most files of an episode.
        memory_chars: the most characters in all files and their paths together.
    """

    threshold: float = 0.95
    carry: bool = True
    max_files: int = 32
    memory_chars: int = 16_000
    folder: MemoryFolder = field(
        init=False, default_factory=lambda: MemoryFolder(max_files=0, max_chars=0)
    )
    """The files of this episode; see `begin`."""
    name = "memory"
    tools = (MEMORY,)
    last_resort = True  # what was not written down is lost: others keep more of a full window

    def __post_init__(self) -> None:
        if self.max_files < 1 or self.memory_chars < 1:
            raise ConfigError(
                "max_files and memory_chars of memory must be at least 1, got "
                f"{self.max_files} and {self.memory_chars}"
            )
        folder = MemoryFolder(max_files=self.max_files, max_chars=self.memory_chars)
        object.__setattr__(self, "folder", folder)  # frozen: the settings are, the files are not

    def begin(self) -> MemoryTool:
        """Return a manager with an empty folder."""
        return replace(self)

    def when_full(self, history: History) -> Reopen:
        """Start over with the opening and the list of files."""
        return Reopen(last_exchanges(history, int(self.carry)), self.name)

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the list of files to the opening, once the memory holds a file."""
        listing = self.folder.listing()
        return add_to_prompt(opening, f"Your files:\n{listing}") if listing else opening

    def handle(self, action: Message, history: History) -> Handled | None:
        """Carry out the calls of `memory`. Beside calls of other tools, all calls are refused."""
        memory_calls = own_calls(action, self.tools)
        if not memory_calls:
            return None
        if len(memory_calls) < len(action.tool_calls):
            return refuse(action.tool_calls, "call memory without other tools beside it")
        return Handled([self._answer(call) for call in memory_calls])

    def _answer(self, call: ToolCall) -> Message:
        if call.error:
            return tool_result(f"{REFUSED}: {call.error}", call)
        try:
            return tool_result(self.folder.run(call.arguments), call)
        except ToolError as error:
            return tool_result(f"{REFUSED}: {error}", call)
