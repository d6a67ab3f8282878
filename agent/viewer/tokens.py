"""The tokens of a window as texts, and which of them are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ludus.errors import ConfigError, MissingExtra

from ..trajectory import Turn, TurnKind

Detokenizer = Callable[[Sequence[int]], str]
"""Converts ids to text, including special tokens."""

_UNFINISHED = "\ufffd"
"""The character to which decoders turn the bytes of an incomplete UTF-8 character."""
_LONGEST_CHARACTER = 4
"""The most bytes of a UTF-8 character, each of which may be a token of its own."""


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


def pieces(ids: Sequence[int], decode: Detokenizer) -> list[tuple[str, int]]:
    """Return the texts of ids in order, each with the number of tokens that share it: one, or the
    few that hold the parts of a character.
    """
    texts: list[tuple[str, int]] = []
    start = 0
    while start < len(ids):
        end = start + 1
        text = decode(ids[start:end])
        while text.endswith(_UNFINISHED) and end < min(len(ids), start + _LONGEST_CHARACTER):
            end += 1
            text = decode(ids[start:end])
        # Where more tokens do not complete a character, the bytes are no UTF-8, or the text has
        # this character itself. The token is then shown alone.
        if text.endswith(_UNFINISHED):
            end, text = start + 1, decode(ids[start : start + 1])
        texts.append((text, end - start))
        start = end
    return texts
