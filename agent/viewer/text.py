"""Untrusted text as HTML: escaped, bounded in length, and with invisible characters shown."""

from __future__ import annotations

import html
import re

MAX_CHARS = 20_000
"""The most characters shown of one message; a longer message is shown from both ends."""

_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # drawn as nothing
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff"  # annotations, tags
    "\ud800-\udfff"  # lone surrogates, which UTF-8 cannot hold
    "]"
)
_SURROUNDED = 80


def markup(text: str) -> str:
    r"""Escape `text` for HTML.

    Characters that are invisible, or that reverse the text direction, are written as Python
    escapes inside a mark.

    >>> markup("<b>\x1b[2J")
    '&lt;b&gt;<mark>\\x1b</mark>[2J'
    """
    return _INVISIBLE.sub(
        lambda match: f"<mark>{ascii(match[0])[1:-1]}</mark>", html.escape(clipped(text))
    )


def attribute(text: str) -> str:
    """Escape `text` for a quoted HTML attribute."""
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], html.escape(clipped(text)))


def clipped(text: str) -> str:
    """Return `text`, or the beginning and end with the number of characters left out."""
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    left_out = f"{len(text) - 2 * half:,} characters are not shown"
    return f"{text[:half]}\n[... {left_out} ...]\n{text[-half:]}"


def excerpt(text: str, max_chars: int = _SURROUNDED) -> str:
    r"""Return `text` as a single short line.

    >>> excerpt("a\n b")
    'a b'
    """
    line = " ".join(text[: 8 * max_chars].split())
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"
