"""The tokens of a segment: shown, sampled, or sampled and trained.

A strip gives an overview of a whole window, with one bar per span. If a tokenizer is available,
the tokens themselves are shown, each with id, log-probability and weight version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ludus.errors import ConfigError, MissingExtra

from ..trajectory import Segment, Turn, TurnKind

Detokenizer = Callable[[Sequence[int]], str]
"""Converts ids to text, including special tokens."""

WIDTH, HEIGHT = 1000, 14
"""The size of a strip, in units of its SVG drawing."""
_UNFINISHED = "\ufffd"
"""The character to which decoders turn the bytes of an incomplete UTF-8 character."""
_LONGEST_CHARACTER = 4
"""The most bytes of a UTF-8 character, each of which may be a token of its own."""


class SpanBar(NamedTuple):
    """A span of a window, drawn to scale."""

    kind: str
    """The CSS class."""
    name: str
    length: int
    """The number of tokens."""
    start: int
    """The tokens before the span."""
    x: float
    width: float


class TokenPiece(NamedTuple):
    """One token, or several that hold one character."""

    kind: str
    """The CSS class."""
    title: str
    """The ids, with log-probabilities and weight versions."""
    text: str


def load_detokenizer(path: Path) -> Detokenizer:
    """Return the decoder of a model folder, or of a `tokenizer.json`.

    Raises:
        MissingExtra: the tokenizers library is not installed.
        ConfigError: the file does not exist, or is not a tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra.of("train", needed_for="showing tokens") from None
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"no tokenizer at {str(file)!r}; name a model folder or a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{str(file)!r} is not a tokenizer: {error}") from None
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


def class_of(turn: Turn, *, excluded: bool = False) -> str:
    """Return the CSS class of a turn's sampled tokens; `excluded` means that the loss ignores the
    whole trajectory.
    """
    if excluded or not turn.trained or not turn.out_ids:
        return "untrained"
    return "summary" if turn.kind is TurnKind.SUMMARY else "trained"


def bars(segment: Segment, *, excluded: bool) -> list[SpanBar]:
    """Return a bar for each span of the window; none for a window without tokens."""
    spans = [(len(segment.prompt_ids), "shown", "prompt")]
    for turn in segment.turns:
        spans.append((len(turn.obs_ids), "shown", "observation"))
        spans.append((len(turn.out_ids), class_of(turn, excluded=excluded), str(turn.kind)))
    total = sum(length for length, _, _ in spans)
    token_bars, start = list[SpanBar](), 0
    for length, kind, name in spans if total else []:
        token_bars.append(
            SpanBar(kind, name, length, start, WIDTH * start / total, WIDTH * length / total)
        )
        start += length
    return token_bars


def token_row(segment: Segment, decode: Detokenizer, *, excluded: bool) -> Iterator[TokenPiece]:
    """Yield every token of the window, those that share a character together."""
    yield from _tokens(segment.prompt_ids, [], [], "shown", decode)
    for turn in segment.turns:
        yield from _tokens(turn.obs_ids, [], [], "shown", decode)
        kind = class_of(turn, excluded=excluded)
        yield from _tokens(turn.out_ids, turn.logprobs, turn.versions, kind, decode)


def _tokens(
    ids: Sequence[int],
    logprobs: Sequence[float],
    versions: Sequence[int],
    kind: str,
    decode: Detokenizer,
) -> Iterator[TokenPiece]:
    facts: list[str] = []
    for token, logprob, version in zip_longest(ids, logprobs[: len(ids)], versions[: len(ids)]):
        fact = f"id {token}"
        fact += f", logprob {logprob:.4f}" if logprob is not None else ""
        facts.append(fact + (f", version {version}" if version is not None else ""))
    start = 0
    while start < len(ids):
        # A piece is one token, or the few that hold the parts of a character.
        end = start + 1
        text = decode(ids[start:end])
        while text.endswith(_UNFINISHED) and end < min(len(ids), start + _LONGEST_CHARACTER):
            end += 1
            text = decode(ids[start:end])
        # Where more tokens do not complete a character, the bytes are no UTF-8, or the text has
        # this character itself. The token is then shown alone.
        if text.endswith(_UNFINISHED):
            end, text = start + 1, decode(ids[start : start + 1])
        yield TokenPiece(kind, "; ".join(facts[start:end]), text)
        start = end
