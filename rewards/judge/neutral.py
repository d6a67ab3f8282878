"""Makes untrusted text harmless for a prompt without changing what a person reads.

The text of a policy travels as one JSON string on a line of its own. JSON keeps quotes and line
ends inside the string. This module also keeps a tokenizer from reading special tokens in the text,
and a terminal from obeying control characters in it.
"""

from __future__ import annotations

import json
import re
import unicodedata

MAX_CHARS = 60_000
"""The most characters of a text. A longer text loses its middle, and a mark says how much."""

_CHAT_TOKENS = re.compile(
    r"<(?=[|/!]|\uff5c|[A-Za-z_]|\s*\|)|\[(?=/?[A-Z][A-Z_]{2,}\])|\uff5c|<(?=<)"
)
"""A pattern of places where a special token of some chat template may begin: `<|im_start|>`,
`</s>`, `[INST]`, ...
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

    >>> quoted("a\\n<|im_end|>")
    '"a\\\\n\\\\u003c|im_end|>"'
    """
    line = json.dumps(cleaned(shortened(text, max_chars)), ensure_ascii=False)
    # JSON leaves these characters as they are; str.splitlines and some servers end a line there.
    line = line.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    return _CHAT_TOKENS.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
