"""The manager `memory`: a tool with which the policy keeps notes in files.

    window 1   ... memory(command="create", path="/memories/notes", file_text="a = 5") ...   full
    window 2   s_1, the list of files, the newest exchange, ...

The files outlive the windows of an episode and end with the episode. Calls are sampled and trained
like any other. Alone, the manager starts a full window over with the first prompt, the list of
files and the newest exchange. Composed with others, it offers the tool and shows the list in every
window that opens; a full window is theirs as long as any of them can help.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, tool_result

from .decisions import Handled, Reopen
from .history import History, add_to_prompt
from .keep import last_exchanges
from .memory_folder import ROOT, MemoryFolder
from .protocol import ContextManager, Sizes, require_room_to_act
from .tools import REFUSED, own_calls, refuse, tool_spec

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
class MemoryTool(ContextManager):
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
        return MemoryTool(self.threshold, self.carry, self.max_files, self.memory_chars)

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        """Start over with the opening and the list of files."""
        return Reopen(last_exchanges(history, int(self.carry)), self.name)

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the list of files, once there is one."""
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

    def check(self, sizes: Sizes) -> None:
        """Require that the opening leaves room to act; the list of files comes on top."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

    def _answer(self, call: ToolCall) -> Message:
        if call.error:
            return tool_result(f"{REFUSED}: {call.error}", call)
        try:
            return tool_result(self.folder.run(call.arguments), call)
        except ToolError as error:
            return tool_result(f"{REFUSED}: {error}", call)
