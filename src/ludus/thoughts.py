"""Splits a model's text into thoughts and answer: here, and nowhere else.

Models write thoughts between marks of their own, before what they say. Where a prompt opened the
thoughts, the turn begins within them. `apart` splits a message into `reasoning` and `content`, and
`Message.written` joins them again, byte for byte. A thought that never ends is all thought: nothing
was said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role

AUTO, NONE = "auto", "none"
CLOSING_QUOTE = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»"}  # noqa: RUF001
"""The quotation marks, each with the mark that closes what it opens."""


@dataclass(frozen=True)
class Thoughts:
    """The marks around thoughts.

    Args:
        pairs: how thoughts begin and end, as regular expressions without groups. A block that never
            ends reaches to the end of the turn.
        lone: an end that counts without a beginning, because templates write the beginning. The
            default matches nowhere.
    """

    pairs: tuple[tuple[str, str], ...]
    lone: str = r"(?!)"

    def opening(self, text: str, start: int = 0) -> int:
        """Return the position from `start` on where thoughts begin, or -1."""
        match = self._opening.search(text, start)
        return -1 if match is None else match.start()

    def closing(self, text: str, start: int = 0) -> int:
        """Return the position from `start` on of an end that counts by itself, or -1."""
        match = self._lone.search(text, start)
        return -1 if match is None else match.start()

    def past(self, text: str, closing: int) -> int:
        """Return the position after the end at position `closing`, or where the thoughts end that
        begin there.
        """
        bounds = self._block(text, closing)
        return _past(self._lone, text, closing) if bounds is None else bounds[1]

    def opened_by(self, prompt: str) -> str:
        """Return the mark, with following white space, that leaves `prompt` within thoughts; else
        empty.
        """
        match = self._at_the_end.search(prompt)
        return "" if match is None else match[0]

    def leading(self, text: str, opened: str = "") -> int:
        """Return the position after the mark that ends the thoughts with which a turn begins, which
        the prompt may have `opened`; 0 for a turn that begins otherwise.
        """
        whole, end = opened + text, 0
        while (bounds := self._block(whole, _past(_SPACE, whole, end))) is not None:
            end = bounds[1]
        return max(end - len(opened), 0) if end or not opened else len(text)

    def split(self, text: str) -> tuple[str, str, str, str] | None:
        """Return a turn as what stands before its thoughts, the thoughts, what stands between, and
        what was said; None for a turn without thoughts.

        What was said follows the last thought. Thoughts that never end leave nothing said. A mark
        in quotation marks, or later in a block of code, is only being talked about.
        """
        if self.mark.search(text) is None:  # as most turns, which this makes cheap
            return None
        start = _past(_SPACE, text)
        opening = self._opening.match(text, start)
        bounds = self._block(text, start)
        if bounds is None:
            bounds = _unquoted(self._lone, text, 0)
            if bounds is not None and self._opening.search(text, 0, bounds[0]) is not None:
                bounds = None
        while (later := self._later(text, bounds[1] if bounds else 0)) is not None:
            bounds = later
        if bounds is None:
            return None
        closing, end = bounds
        start = min(_past(_SPACE, text, opening.end() if opening else 0), closing)
        thought = text[start:closing].rstrip()
        said = _past(_GAP, text, end)
        return text[:start], thought, text[start + len(thought) : said], text[said:]

    def _later(self, text: str, start: int) -> tuple[int, int] | None:
        """Return the bounds of the mark that ends the next thoughts from `start` on."""
        fences, counted = 0, start
        for mark in self.mark.finditer(text, start):
            fences += text.count(_FENCE, counted, mark.start())
            counted = mark.start()
            if fences % 2 == 0 and not is_quoted(text, *mark.span()):
                bounds = mark.span() if mark.lastgroup is None else self._block(text, mark.start())
                if bounds is not None:
                    return bounds
        return None

    def _block(self, text: str, start: int) -> tuple[int, int] | None:
        """Return the bounds of the mark that ends a block of thoughts which begins at `start`; at
        the end of the text for a block that never ends.
        """
        opening = self._opening.match(text, start)
        if opening is None:
            return None
        ending = self._endings[int(str(opening.lastgroup).removeprefix("kind"))]
        return _unquoted(ending, text, opening.end()) or (len(text), len(text))

    @cached_property
    def _opening(self) -> re.Pattern[str]:
        # Each pair is a group with the pair's number in its name. Beginnings with one first
        # character share it, since `re` skips fast to the characters with which a pattern begins.
        by_first: dict[str, list[str]] = {}
        for number, (begin, _) in enumerate(self.pairs):
            first = begin[: 2 if begin.startswith("\\") else 1]
            by_first.setdefault(first, []).append(f"(?P<kind{number}>{begin[len(first) :]})")
        return re.compile(
            "|".join(f"{first}(?:{'|'.join(tails)})" for first, tails in by_first.items())
        )

    @cached_property
    def _endings(self) -> list[re.Pattern[str]]:
        return [re.compile(end) for _, end in self.pairs]

    @cached_property
    def mark(self) -> re.Pattern[str]:
        """What begins thoughts, or ends them by itself; a text without a match has none."""
        return re.compile(f"{self._opening.pattern}|{self.lone}")

    @cached_property
    def _lone(self) -> re.Pattern[str]:
        return re.compile(self.lone)

    @cached_property
    def _at_the_end(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{'|'.join(begin for begin, _ in self.pairs)})\s*\Z")


_FENCE = "```"
_SPACE = re.compile(r"\s*")
_GAP = re.compile(r"\s*\n| (?!\s)|")
"""White space between thoughts and speech; the indentation of the first line is the speech's."""
PAIRS = {
    "think": ("<think>", "</think>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "gemma": ("<|channel>thought", "<channel|>"),
    "kimi": ("◁think▷", "◁/think▷"),
    "cohere": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "open_thoughts": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "apriel": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    **{
        tag: (f"<{tag}>", f"</{tag}>")
        for tag in (
            *("thinking", "thought", "thoughts", "reasoning"),
            *("analysis", "reflection", "scratchpad"),
        )
    },
}
"""The marks of models, before and after thoughts."""
_ESCAPED = {name: (re.escape(begin), re.escape(end)) for name, (begin, end) in PAIRS.items()}
# A sentence begins thoughts only before their end, or where a prompt stops: anybody may write it.
# Of several before one end the last counts, so that each character is looked at once.
_ESCAPED["apriel"] = (
    rf"{_ESCAPED['apriel'][0]}"
    rf"(?=\s*\Z|(?:(?!{'|'.join(_ESCAPED['apriel'])})[\s\S])*+{_ESCAPED['apriel'][1]})",
    _ESCAPED["apriel"][1],
)
_NEXT = r"\s*<\|start\|>assistant\s*"
_HARMONY = (
    r"<\|channel\|>analysis\s*<\|message\|>",
    rf"<\|end\|>(?:{_NEXT}<\|channel\|>(?:final|commentary)\s*<\|message\|>"
    rf"|{_NEXT}(?=<\|channel\|>analysis\s*<\|message\|>))?|(?=<\|start\|>)",
)
ALL = Thoughts((*_ESCAPED.values(), _HARMONY), "|".join(end for _, end in _ESCAPED.values()))
MARK = ALL.mark
"""Matches in every text with thoughts, whatever their marks."""
MARKS: Mapping[str, Thoughts | None] = {
    AUTO: ALL,
    NONE: None,
    "harmony": Thoughts((_HARMONY,)),
    **{name: Thoughts((pair,), pair[1]) for name, pair in _ESCAPED.items()},
}
"""The marks by the names that settings have: `auto` knows all of them, `none` leaves text alone."""


def marks_in(template: str) -> tuple[str, str]:
    """Return what a model writes before and after thoughts, as far as the chat template tells."""
    known = (pair for pair in PAIRS.values() if all(mark in template for mark in pair))
    begin, end = next(known, PAIRS["think"])
    return f"{begin}\n", f"\n{end}\n\n"


def closing_of(opened: str) -> str:
    """Return the mark that ends thoughts which `opened` began; empty for no mark.

    >>> closing_of("<think>\\n")
    '</think>'
    """
    return dict(PAIRS.values()).get(opened.strip(), "")


def marks_of(thoughts: str) -> Thoughts | None:
    """Return the marks of a setting; None where thoughts stay in the text.

    Raises:
        ConfigError: nothing has this name.
    """
    if thoughts not in MARKS:
        raise ConfigError(f"thoughts must be one of {', '.join(MARKS)}, got {thoughts!r}")
    return MARKS[thoughts]


def apart(message: Message, thoughts: str = AUTO, *, opened: str = "") -> Message:
    """Return a message with its thoughts in `reasoning` and what was said in `content`.

    A message whose thoughts are apart already stays as it is.

    >>> message = apart(Message(role=Role.ASSISTANT, content="<think>hm</think> 7"))
    >>> message.content, message.reasoning, message.written
    ('7', 'hm', '<think>hm</think> 7')

    Args:
        message: an assistant's message.
        thoughts: the marks; a key of `MARKS`.
        opened: the mark with which the prompt opened the thoughts; see `Thoughts.opened_by`.

    Raises:
        ConfigError: no marks have this name.
    """
    marks, text = marks_of(thoughts), message.content
    if marks is None or message.role is not Role.ASSISTANT or message.thinks:
        return message
    if not isinstance(text, str):
        return message
    parts = marks.split(opened + text)
    if parts is None and opened:  # thoughts that a prompt opened, and nothing ended
        thought = text.rstrip()
        parts = opened, thought, text[len(thought) :], ""
    if parts is None:
        return message
    before, reasoning, between, said = parts
    return msgspec.structs.replace(
        message, content=said, reasoning=reasoning, thought_marks=(before[len(opened) :], between)
    )


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether quotation marks stand right before and after a part of the text."""
    closing = CLOSING_QUOTE.get(text[start - 1]) if start else None
    return closing is not None and text.startswith(closing, end)


def _unquoted(mark: re.Pattern[str], text: str, start: int) -> tuple[int, int] | None:
    """Return the bounds of the first mark from `start` on that is not quoted."""
    bounds = (match.span() for match in mark.finditer(text, start))
    return next((span for span in bounds if not is_quoted(text, *span)), None)


def _past(pattern: re.Pattern[str], text: str, start: int = 0) -> int:
    """Return where a match of `pattern` ends that begins at `start`."""
    match = pattern.match(text, start)
    return start if match is None else match.end()
