"""Makes untrusted text harmless for a prompt without changing what a person reads.

The text of a policy travels as one JSON string on a line of its own. JSON keeps quotes and line
ends inside the string. This module also keeps a tokenizer from reading special tokens in the text,
and a terminal from obeying control characters in it.
"""

from __future__ import annotations

import json
import unicodedata

MAX_CHARS = 60_000
"""The most characters of a text. A longer text loses its middle, and a mark says how much."""

_MARKS = frozenset("<>[]{}|")
_MARK_CATEGORIES = frozenset({"Ps", "Pe", "Sm", "So", "Sk"})
"""Characters that special tokens of chat templates are marked with: brackets and bars, and outside
ASCII every bracket and symbol. A list of the tokens themselves would always lack a family.
"""


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co"})
"""Categories of characters that show nothing and may still steer a model or a terminal: controls,
bidirectional controls, zero-width and tag characters, surrogates.
"""


def cleaned(text: str) -> str:
    """Return `text` with each hidden character replaced by U+FFFD, so that removal shows."""
    return "".join(
        "\ufffd"
        if character not in "\t\n" and unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def shortened(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return `text`, with a mark in place of the middle if longer than `max_chars` characters.

    >>> shortened("abcdefghij" * 10, 40)
    'abcdefghij[... 80 characters left out ...]abcdefghij'
    """
    if len(text) <= max_chars:
        return text
    kept_chars = max(1, max_chars // 4) if max_chars < 200 else max_chars // 2
    left_out = len(text) - 2 * kept_chars
    return f"{text[:kept_chars]}[... {left_out} characters left out ...]{text[-kept_chars:]}"


def quoted(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return `text` as a JSON string on a single line that holds no token of a chat template.

    Every mark of such a token is escaped, so that no tokenizer can read one, whatever its family; a
    JSON string means the same with and without escapes.

    >>> quoted("a\\n[INST]")
    '"a\\\\n\\\\u005bINST\\\\u005d"'
    """
    line = json.dumps(cleaned(shortened(text, max_chars)), ensure_ascii=False)
    # JSON leaves these characters as they are; str.splitlines and some servers end a line there.
    line = line.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    return "".join(_escaped(character) if _is_mark(character) else character for character in line)


def _is_mark(character: str) -> bool:
    if character.isascii():
        return character in _MARKS
    return character == "\u2581" or unicodedata.category(character) in _MARK_CATEGORIES


def _escaped(character: str) -> str:
    """Write a character as JSON escapes it: beyond the basic plane, in two halves."""
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"
