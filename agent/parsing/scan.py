"""Text in a policy's turn that claims to be somebody else's: made-up results and turns.

A policy that goes on after its call often writes the result itself, or the next user's turn. A
call in there is not the policy's own, and nothing after a made-up turn is.

    <think> ... </think> said <tool_call> ... </tool_call> said <tool_call> ... </tool_call>

Tags count where they stand, not where they are quoted: a tag inside a call's arguments is part
of the arguments, and a call inside thoughts is a thought. The templates of some models write
`<think>` themselves, so a closing tag that nothing opened makes everything before it a thought.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ludus.messages import Message, Role, ToolCall
from ludus.thoughts import ALL, CLOSING_QUOTE, is_quoted

_RESULTS = (
    ("<tool_response>", "</tool_response>"),
    ("<tool_responses>", "</tool_responses>"),
    ("<tool_result>", "</tool_result>"),
    ("<tool_results>", "</tool_results>"),
    ("<tool_output>", "</tool_output>"),
    ("<tool_outputs>", "</tool_outputs>"),
    ("<function_response>", "</function_response>"),
    ("<function_result>", "</function_result>"),
    ("<function_results>", "</function_results>"),
    ("<information>", "</information>"),
    ("<observation>", "</observation>"),
    ("<search_result>", "</search_result>"),
    ("<search_results>", "</search_results>"),
    ("<interpreter>", "</interpreter>"),
    ("<result>", "</result>"),
    ("<|tool_response>", "<tool_response|>"),
    ("<|tool_response_start|>", "<|tool_response_end|>"),
    ("<TOOL_RESPONSE>", "</TOOL_RESPONSE>"),
    ("<start_function_response>", "<end_function_response>"),
    ("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ("<user>", "</user>"),
    ("<!--", "-->"),
)
"""Marks that environments and templates write around results, and a comment's."""
_ROLE = r"(?:user|system|developer|tool|ipython|environment|observation|function)"
_TURNS = (
    rf"<\|im_start\|>\s*{_ROLE}",
    rf"<\|start_header_id\|>\s*{_ROLE}\s*<\|end_header_id\|>",
    rf"<\|header_start\|>\s*{_ROLE}\s*<\|header_end\|>",
    rf"<start_of_turn>\s*{_ROLE}",
    rf"<\|turn>\s*{_ROLE}",
    r"<\|start\|>(?!\s*assistant)",
    r"<\|(?:user|observation|system|tool|tool_response)\|>",
    r"<\|start_of_role\|>(?!\s*assistant)",
    r"<SPECIAL_1[01]>\s*(?:System|User)",
    r"<\|im_(?:user|system)\|>",
    r"<\|(?:USER|SYSTEM)_TOKEN\|>",
    r"<｜User｜>",
    r"\[INST\]",
    rf"\]~b\]\s*{_ROLE}",
    rf"<beginning_of_sentence>\s*{_ROLE}",
)
"""Marks with which templates begin somebody else's turn."""
_RESULT = re.compile("|".join(re.escape(begin) for begin, _ in _RESULTS))
_TURN = re.compile("|".join(_TURNS))
_WORD = re.compile(
    r"(?<![^\n])(?:#{1,4}[ ]*|\*\*)?(?:(?P<user>User|Human|USER|HUMAN)"
    r"|Observation|Tool (?:result|response|output)|Tool|Result)(?:\*\*)?[ ]?:"
)
"""How turns and results begin in plain transcripts. The words for results are common in prose, so
that they count only after a call.
"""
_CLOSING = dict(_RESULTS)
_TRIED = 8
"""How many marks are tried as the end of what the policy said itself."""
_NEAR = 400
"""How many characters before and after a call are searched for the ends of its line."""


class Claim(NamedTuple):
    """A mark after which text claims to be somebody else's."""

    start: int
    end: int
    """The position after the mark."""
    closing: str
    """The mark that ends a result; empty for a turn, which nothing ends."""
    only_after_call: bool


Find = Callable[[str, int], int]
"""Returns the position of the next call from a given position on, or -1."""
Read = Callable[[str, int, str], tuple[list[ToolCall], int]]
"""Returns the calls that begin at a position, given the id of the first, and the position to
continue at.
"""


def finder(pattern: re.Pattern[str]) -> Find:
    """Return what finds the next position at which a pattern matches."""

    def find(text: str, start: int) -> int:
        match = pattern.search(text, start)
        return -1 if match is None else match.start()

    return find


find_result, find_turn, find_word = finder(_RESULT), finder(_TURN), finder(_WORD)
"""What finds marks that begin results and turns, and lines that begin like a transcript."""


def claim_at(text: str, position: int) -> Claim:
    """Return the mark, or the word, at position `position`."""
    for pattern in (_RESULT, _TURN):
        match = pattern.match(text, position)
        if match is not None:
            return Claim(position, match.end(), _CLOSING.get(match[0], ""), only_after_call=False)
    match = _WORD.match(text, position)
    assert match is not None
    return Claim(position, match.end(), "", only_after_call=match["user"] is None)


def begins_line(text: str, position: int) -> bool:
    """Return whether only white space, or a mark that just ended, stands between the line's
    beginning and `position`.
    """
    window_start = max(0, position - _NEAR)
    before = text[
        max(text.rfind("\n", window_start, position) + 1, window_start) : position
    ].rstrip()
    return not before or before[-1] in ">]}"


def end_of_block(text: str, claim: Claim) -> int:
    """Return the position after the mark that ends a result, or -1.

    A result inside the result, with marks of its own, does not end the outer one. Where marks of
    ends are missing, the last of them counts.
    """
    begin = text[claim.start : claim.end]
    depth, position = 1, claim.end
    while depth:
        closed = text.find(claim.closing, position)
        if closed < 0:
            return position if position > claim.end else -1
        depth += text.count(begin, position, closed) - 1
        position = closed + len(claim.closing)
    return position


def begins_here(text: str, position: int) -> bool:
    """Return whether a mark, or a word of a transcript, stands at position `position`."""
    return any(pattern.match(text, position) is not None for pattern in (_RESULT, _TURN, _WORD))


def own_beginnings(text: str) -> Iterator[str]:
    """Yield the text up to each of the first marks, or words, of somebody else, for turns in which
    a call comes first.
    """
    for pattern in (_RESULT, _TURN, _WORD):
        for match in islice(pattern.finditer(text), _TRIED):
            yield text[: match.start()]


def quotation_end(text: str, start: int, after: int) -> int:
    """Return where a quotation ends in which a call from `start` to `after` stands, or -1.

    Quotation marks, or a code span, begin right before the call and end in the same line as the
    call. A line that begins with `>` is a quotation too.
    """
    window_start, far = max(0, start - _NEAR), min(len(text), after + _NEAR)
    line = max(text.rfind("\n", window_start, start) + 1, window_start)
    end = text.find("\n", after, far)
    end = far if end < 0 else end
    if text[line:start].lstrip().startswith("> "):
        return end
    closing = CLOSING_QUOTE.get(text[start - 1]) if start else None
    return -1 if closing is None else text.find(closing, after, end)


MAX_CALLS = 128
"""The most calls of a turn that are read; the remaining calls share one error."""
AFTER_INVENTED = "not run: it follows a result or a turn that you made up; wait for the real one"
IN_A_FENCE = "not run: it stands in a code block with text after it; write the call by itself"
_FENCE = "```"


def nowhere(text: str, start: int) -> int:
    """Return -1: a `Find` that finds nothing."""
    return -1


def scan(text: str, beginning: re.Pattern[str], read: Read, *, stop: Find = nowhere) -> Message:
    """Read an assistant turn as a message.

    Args:
        text: the model's text.
        beginning: whatever begins a call, whole or damaged.
        read: reads calls; an unreadable call is returned with an error.
        stop: finds the position after which nothing is a call.
    """
    turn = _Turn(text, beginning, read, stop)
    turn.run()
    text_said = "".join(turn.spoken)
    content = text_said.strip() if turn.calls else text
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
    beginning: re.Pattern[str]
    read: Read
    stop: Find
    spoken: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    position: int = 0
    thought: bool = False
    """Whether a block of thoughts has ended. A closing tag without an opening tag is text from then
    on.
    """
    invented_to: int = 0
    """Calls before this position stand in words that the policy made up for somebody else."""
    block_to: int = 0
    """The end of the last made-up result that has one."""
    silent: bool = False
    """Whether what is said is made up too, and left out."""
    quoted: int = 0
    """The number of calls that were only quoted."""
    fenced: bool = False
    """Whether a Markdown code block is open."""
    unclosed: set[str] = field(default_factory=set)
    """Ends of results that the rest of the text does not contain, so that it is searched only once.
    """

    def run(self) -> None:
        """Go through the text from tag to tag."""
        # Every kind of tag is searched ahead, and the nearest decides. `_Next` keeps this linear.
        call = _Next(self.text, finder(self.beginning))
        thought_opening = _Next(self.text, ALL.opening)
        closed, stop = _Next(self.text, ALL.closing), _Next(self.text, self.stop)
        results, turns = _Next(self.text, find_result), _Next(self.text, find_turn)
        words = _Next(self.text, find_word)
        end = len(self.text)
        while self.position < end and len(self.calls) + self.quoted < MAX_CALLS:
            position = self.position
            # A closing tag of thoughts counts once, and not where a made-up result quotes it.
            lone = end if self.thought else closed.after(max(position, self.block_to))
            claimed = min(turns.after(position), words.after(position))
            if self.block_to <= position:  # a result inside a result changes nothing
                claimed = min(claimed, results.after(position))
            if self.invented_to == end:  # all the rest counts as made up already
                claimed = end
            nearest = min(call.after(position), thought_opening.after(position), claimed, lone)
            if stop.after(position) < nearest and lone < thought_opening.after(position):
                nearest = lone  # the tag to stop at is inside a thought
            if nearest == end or stop.after(position) < nearest != lone:
                break
            if nearest == call.after(position):
                self._call(nearest, thought_opening, closed)
            elif nearest == thought_opening.after(position):
                self._record_spoken(ALL.past(self.text, nearest))
                self.thought = True
            elif nearest == lone:
                self._thoughts_end(lone)
            else:
                self._somebody_else(nearest)
        self._record_spoken(end)
        self.calls = bounded(self.calls)

    def _call(self, start: int, thought_opening: _Next, closed: _Next) -> None:
        self._record_spoken(start)
        calls, after = self.read(self.text, start, f"call_{len(self.calls)}")
        end = closed.after(start)
        inside = thought_opening.after(start) < end  # the model thinks in the middle of the call
        if not self.thought and any(call.error for call in calls) and end < after and not inside:
            self._thoughts_end(end)  # what could not be read was half a thought
            return
        quoted = quotation_end(self.text, start, after)
        if quoted >= 0:
            self.quoted += 1
            self._record_spoken(quoted)
            return
        if self.silent or start < self.invented_to:
            calls = [ToolCall(name="", id=call.id, error=AFTER_INVENTED) for call in calls]
        elif self.fenced:
            # Prose after the code block shows that the call is an example.
            closed_at = self.text.find(_FENCE, after)
            tail = self.text[closed_at + len(_FENCE) :].strip() if closed_at >= 0 else ""
            if tail and not tail.startswith(_FENCE) and self.beginning.match(tail) is None:
                calls = [ToolCall(name="", id=call.id, error=IN_A_FENCE) for call in calls]
        self.calls += calls
        self.position = after

    def _somebody_else(self, start: int) -> None:
        """Note from where to where the policy speaks for somebody else."""
        claim = claim_at(self.text, start)
        end = -1
        if claim.closing and claim.closing not in self.unclosed:
            end = end_of_block(self.text, claim)
            if end < 0:
                self.unclosed.add(claim.closing)
        if end < 0:  # perhaps a mark without an end is only being talked about
            in_a_line = bool(claim.closing) and not begins_line(self.text, claim.start)
            mentioned = not self.calls and (claim.only_after_call or in_a_line)
            if mentioned or is_quoted(self.text, claim.start, claim.end):
                self._record_spoken(claim.end)
                return
        self._record_spoken(start)
        self.block_to = max(self.block_to, end)
        # After a call a made-up result is the answer that the policy did not wait for: whatever it
        # writes from there on follows from the invention (decision 0517).
        invention_end = len(self.text) if self.calls or end < 0 else end
        self.invented_to = max(self.invented_to, invention_end)
        self.silent = bool(self.calls)
        self._record_spoken(claim.end)

    def _thoughts_end(self, closed: int) -> None:
        """Treat everything so far as thoughts."""
        self.calls.clear()
        self.position = ALL.past(self.text, closed)
        # The content of a message keeps its thoughts as they were written (decision 0517).
        self.spoken[:] = [self.text[: self.position]]
        self.thought, self.silent, self.fenced, self.invented_to = True, False, False, 0

    def _record_spoken(self, end: int) -> None:
        """Record the text before `end` as spoken."""
        text = self.text[self.position : end]
        self.position = end
        self.fenced ^= text.count(_FENCE) % 2 == 1
        if not self.silent:
            self.spoken.append(text)
