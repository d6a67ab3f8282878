"""A single pass over a turn whose calls stand between tags: thoughts are skipped and calls are
read.

    <think> ... </think> said <tool_call> ... </tool_call> said <tool_call> ... </tool_call>

Tags count where they stand, not where they are quoted: a tag inside a call's arguments is part
of the arguments, and a call inside thoughts is a thought. The templates of some models write
`<think>` themselves, so a closing tag that nothing opened makes everything before it a thought.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ludus.messages import Message, Role, ToolCall

from .thoughts import closing, opening, past

MAX_CALLS = 128
"""The most calls of a turn that are read; the remaining calls share one error."""
INVENTED = ("<tool_response>", "<information>")
"""Tags that environments write around their answers; a policy that writes such a tag invents a
result.
"""
AFTER_INVENTED = "not run: it follows a result that you made up; wait for the real one"

Find = Callable[[str, int], int]
"""Returns the position of the next call from a given position on, or -1."""
Read = Callable[[str, int, str], tuple[list[ToolCall], int]]
"""Returns the calls that begin at a position, given the id of the first, and the position to
continue at.
"""


def nowhere(text: str, start: int) -> int:
    """Return -1: a `Find` that finds nothing."""
    return -1


def scan(text: str, find: Find, read: Read, *, stop: Find = nowhere) -> Message:
    """Read an assistant turn as a message.

    Args:
        text: the model's text.
        find: finds the next call.
        read: reads calls; an unreadable call is returned with an error.
        stop: finds the position after which nothing is a call.
    """
    turn = _Turn(text, find, read, stop)
    turn.run()
    said = "".join(turn.spoken)
    content = said.strip() if turn.calls else text
    return Message(role=Role.ASSISTANT, content=content, tool_calls=turn.calls)


def bounded(calls: list[ToolCall]) -> list[ToolCall]:
    """Return the calls of a turn, where all past `MAX_CALLS` become a single error."""
    if len(calls) < MAX_CALLS:
        return calls
    error = f"only the first {MAX_CALLS - 1} calls of a turn are read"
    return [*calls[: MAX_CALLS - 1], ToolCall(name="", id=calls[MAX_CALLS - 1].id, error=error)]


class _Next:
    """The next position of something in a text.

    A search runs again only once its last result has been passed, so that a pass over the text
    costs a single search of the whole text, whatever the content.
    """

    def __init__(self, text: str, find: Find) -> None:
        self._text, self._find = text, find
        self._at = find(text, 0)

    def after(self, position: int) -> int:
        """Return the first match from `position` on, or the end of the text."""
        if 0 <= self._at < position:
            self._at = self._find(self._text, position)
        return len(self._text) if self._at < 0 else self._at


@dataclass(slots=True)
class _Turn:
    text: str
    find: Find
    read: Read
    stop: Find
    spoken: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    position: int = 0
    thought: bool = False
    """Whether thoughts have ended; a closing tag after that is text."""
    invented: bool = False

    def run(self) -> None:
        """Go through the text from tag to tag."""
        # Every kind of tag is searched ahead, and the nearest decides. `_Next` keeps this linear.
        call, opened = _Next(self.text, self.find), _Next(self.text, opening)
        closed, stop = _Next(self.text, closing), _Next(self.text, self.stop)
        end = len(self.text)
        while self.position < end and len(self.calls) < MAX_CALLS:
            at = self.position
            lone = end if self.thought else closed.after(at)
            nearest = min(call.after(at), opened.after(at), lone)
            if stop.after(at) < nearest and lone < opened.after(at):
                nearest = lone  # the tag to stop at is inside a thought
            if nearest == end or stop.after(at) < nearest != lone:
                break
            if nearest == call.after(at):
                self._call(nearest, closed)
            elif nearest == opened.after(at):
                self._think(nearest, closed.after(nearest))
            else:
                self._thoughts_end(lone)
        self._say(end)
        self.calls = bounded(self.calls)

    def _call(self, start: int, closed: _Next) -> None:
        self._say(start)
        made, after = self.read(self.text, start, f"call_{len(self.calls)}")
        end = closed.after(start)
        inside = 0 <= opening(self.text, start) < end  # the model thinks in the middle of the call
        if not self.thought and any(one.error for one in made) and end < after and not inside:
            self._thoughts_end(end)  # what could not be read was half a thought
            return
        if self.invented:
            made = [ToolCall(name=one.name, id=one.id, error=AFTER_INVENTED) for one in made]
        self.calls += made
        self.position = after

    def _think(self, start: int, closed: int) -> None:
        """Skip a block of thoughts.

        A block that is never closed reaches to the end. If thoughts have ended before, the
        unclosed tag is only being talked about and stays text.
        """
        if closed < len(self.text):
            self._say(past(self.text, closed))
            self.thought = True
        else:
            self._say(past(self.text, start) if self.thought else len(self.text))

    def _thoughts_end(self, closed: int) -> None:
        """Treat everything so far as thoughts."""
        self.calls.clear()
        self.position = past(self.text, closed)
        self.spoken[:] = [self.text[: self.position]]
        self.thought, self.invented = True, False

    def _say(self, end: int) -> None:
        """Record the text before `end` as spoken, up to where the policy began to answer itself."""
        said = self.text[self.position : end]
        self.position = end
        if self.calls and not self.invented:
            marks = [at for mark in INVENTED if (at := said.find(mark)) >= 0]
            if marks:
                said, self.invented = said[: min(marks)], True
                self.spoken.append(said)
        if not self.invented:
            self.spoken.append(said)
