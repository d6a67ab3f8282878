"""The lexer: characters to tokens, in a single linear pass.

LaTeX and plain notation give the same tokens. Spacing and sizing commands vanish; a token
remembers whether a space stood before it, because `2 1/3` is a mixed number and `21/3` is not.
"""

from __future__ import annotations

import re

import msgspec

from .nodes import TooBig, Unreadable
from .spellings import (
    BOLD,
    COMMANDS,
    DECORATED,
    ESCAPES,
    LETTERED,
    SIGNS,
    SPELLED,
    TEXT_COMMANDS,
    WORDED,
)
from .vocabulary import ALIASES, FUNCTIONS, GREEK, UNITS, is_word

MAX_TOKENS = 1500


class Token(msgspec.Struct, frozen=True):
    """A token: `kind` is a word used in `spellings`, or num, sym, func, word, cmd or end.

    `spaced` says whether a space came before.
    """

    kind: str
    value: str
    spaced: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        """The kind and the value."""
        return self.kind, self.value


_PATTERN = r"""
    (?P<space>  (?:\s|~|\\[,;:!>\ ]|\\(?:q?quad|left|right|[bB]igg?[lrm]?|displaystyle|textstyle
                |limits|nolimits|rm|bf|it|phantom|mathstrut|strut|hfill|hspace|mathopen|mathclose
                |ensuremath|nonumber|small|[lL]arge|LARGE|[hH]uge|normalsize
                |bfseries)(?![A-Za-z])|\\[lr]?vspace)+ )
  | (?P<num>    (?:\d{1,3}(?:(?:GROUP)\d{3})+(?!\d|,\d)(?:\.\d+)?|\d+(?:\.\d+)?(?:\{,\})?|\.\d+)
                (?:[eE][+-]?\d+(?![A-Za-z]))? )
  | (?P<cmd>    \\[A-Za-z]+\*? )
  | (?P<esc>    \\. )
  | (?P<foreign> [A-Za-z]*+[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]
                [A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]*|[\u0400-\u04ff]+
                |[\u0600-\u06ff]+|[\u0900-\u0dff]+|[\u0e00-\u0e7f]+
                |[\u3005\u3040-\u30ff\u4e00-\u9fff]+|[\uac00-\ud7af]+ )
  | (?P<run>    [A-Za-z]+ )
  | (?P<dots>   \.\.\.+ )
  | (?P<sign>   (?<=\d)!(?==\s*\d)|<=|>=|!=|<>|==|:=|\*\*|\+-|\+/-|->|=>|. )
"""
_TOP_LEVEL = re.compile(
    _PATTERN.replace("GROUP", r",|'|,\\!\s?|\{,\\?!?\}|\\[,!;:\ ]\s?|[\ ~]"), re.VERBOSE | re.DOTALL
)
_BRACKETED = re.compile(
    _PATTERN.replace("GROUP", r",\\!\s?|\{,\\?!?\}|\\[,!;:]"), re.VERBOSE | re.DOTALL
)


def tokenize(source: str) -> list[Token]:
    """Return the tokens of `source`, followed by an `end` token.

    Raises:
        TooBig: more than MAX_TOKENS tokens.
        Unreadable: a character that occurs in no formula.
    """
    tokens: list[Token] = []
    _scan(source, tokens, worded=False, nesting=0)
    tokens.append(Token("end", ""))
    if "min" in source:
        # Turn `min` after a number or a slash into minutes: `30 min` is not a minimum.
        for place in range(1, len(tokens) - 1):
            before, token, after = tokens[place - 1 : place + 2]
            counted = before.kind == "num" or before.value == "/" or after.value == "^"
            if token.pair == ("func", "min") and counted and after.kind not in _OPENS:
                tokens[place] = Token("word", "min", token.spaced)
    return tokens


_OPENS = frozenset({"open", "group", "sub", "sym"})


def _scan(source: str, tokens: list[Token], *, worded: bool, nesting: int) -> None:
    position, depth, spaced, end = 0, 0, worded, len(source)
    while position < end:
        # Inside brackets a comma separates items: 1,234 is one number at the top level only.
        match = (_BRACKETED if depth else _TOP_LEVEL).match(source, position)
        if match is None or match.lastgroup is None:
            raise Unreadable(f"unexpected character {source[position]!r}")
        kind, value, position = match.lastgroup, match[0], match.end()
        if kind == "space":
            spaced = True
            continue
        before = len(tokens)
        if before > MAX_TOKENS:
            raise TooBig(f"more than {MAX_TOKENS} tokens")
        if kind == "cmd" and value[1:] in TEXT_COMMANDS:
            if nesting > 20:
                raise TooBig("more than 20 nested text commands")
            start, stop, position = _argument(source, position)
            _text_command(value[1:], source[start:stop], tokens, spaced, nesting)
        else:
            _emit(kind, value, spaced, worded, tokens)
            if kind in _NESTING and len(tokens) > before and tokens[-1].kind in _DEPTH:
                depth = max(0, depth + _DEPTH[tokens[-1].kind])
        spaced = False


_DEPTH = {"open": 1, "close": -1}
_NESTING = frozenset({"sign", "esc", "cmd", "foreign"})
"""Groups of the pattern that may be a bracket."""


def _emit(kind: str, value: str, spaced: bool, worded: bool, tokens: list[Token]) -> None:
    if kind == "num":
        digits = value if value.isdigit() else _SEPARATORS.sub("", value)
        tokens.append(Token("num", digits, spaced))
    elif kind == "run":
        _letters(value, spaced, worded, tokens)
    elif kind == "foreign" and value not in SIGNS:
        tokens.append(Token("word", value.casefold(), spaced))
    elif kind in {"sign", "foreign"}:
        sign = SIGNS.get(value)
        if sign is None:
            if value.isalpha():
                tokens.append(Token("word", value.casefold(), spaced))
                return
            if value == "." and worded and tokens and tokens[-1].kind == "word":
                return
            if value in '."?@#`':
                tokens.append(Token("sign", value, spaced))
                return
            raise Unreadable(f"unexpected character {value!r}")
        tokens.append(Token(sign[0], sign[1], spaced))
    elif kind == "esc":
        sign = ESCAPES.get(value)
        if sign is None:
            raise Unreadable(f"unknown command {value!r}")
        if sign[0] != "space":
            tokens.append(Token(sign[0], sign[1], spaced))
    elif kind == "dots":
        tokens.append(Token("dots", "", spaced))
    else:
        name = value[1:].rstrip("*")
        if name == "Omega" and tokens and tokens[-1].kind == "num":
            tokens.append(Token("word", "ohm", spaced))
        elif name in COMMANDS:
            tokens.append(Token(*COMMANDS[name], spaced))
        elif name in GREEK:
            tokens.append(Token("sym", name, spaced))
        elif name in FUNCTIONS or name in ALIASES:
            tokens.append(Token("func", ALIASES.get(name, name), spaced))
        else:
            tokens.append(Token("cmd", name, spaced))


_SEPARATORS = re.compile(r"[^\d.eE+\-]")
"""Whatever a numeral may contain besides its value: marks between groups of thousands."""


def _letters(run: str, spaced: bool, worded: bool, tokens: list[Token]) -> None:
    lowered = run.lower()
    if lowered == "mod" or (not worded and lowered in SPELLED):
        tokens.append(Token(*SPELLED[lowered], spaced))
    elif not worded and (run in FUNCTIONS or run in ALIASES):
        tokens.append(Token("func", ALIASES.get(run, run), spaced))
    elif (
        not worded
        and _no_amount(tokens)
        and (
            run in _GLUED_UNITS
            or (run in _FACTORS and _begins(tokens))
            or (run in _PREFIXED and not (spaced and tokens))
        )
    ):
        _product(run, spaced, tokens)
    elif worded or is_word(run) or (run in _SPACED_UNITS and spaced and not _no_amount(tokens)):
        tokens.append(Token("word", run if len(run) < 3 or run in UNITS else lowered, spaced))
    else:
        _product(run, spaced, tokens)


def _no_amount(tokens: list[Token]) -> bool:
    """Return whether the letters that follow cannot be the unit of a number right before."""
    if not tokens:
        return True
    if tokens[-1].kind == "group":
        return len(tokens) == 1 or tokens[-2].kind not in {"num", "word"}
    return tokens[-1].kind in _LETTERS


def _begins(tokens: list[Token]) -> bool:
    """Return whether the letters that follow begin a formula, a numerator or a bracket."""
    return not tokens or tokens[-1].kind in {"group", "open", "rel"}


_FACTORS = frozenset({"mL", "cL", "nm", "km", "cm", "mm", "dm", "kg", "ha"})
"""Units that are a product at the beginning of a formula: `\\frac{mL^2}{3}`."""
_SPACED_UNITS = frozenset(
    {"MW", "GW", "TW", "MJ", "GJ", "TJ", "mi", "pc", "kpc", "Mpc", "ly", "dB", "AU"}
)
"""Units that behind a number and a space are no product, as `3 MN` may be."""
_GLUED_UNITS = frozenset({"hr", "mg", "ms", "ml", "pt", "lb", "ft", "yd", "min"})
_PREFIXED = frozenset({"Pa", "mM"} | {prefix + name for prefix in "kMGmun" for name in "NJWVACFHT"})
"""Units that without a number or a space before are a product: `\\frac{mV^2}{r}`."""
_LETTERS = frozenset({"sym", "const", "endgroup", "rel"})
r"""Kinds of tokens after which two letters are a product of variables rather than a unit: `2\pi
hr`, `\mu mg`.
"""


def _product(run: str, spaced: bool, tokens: list[Token]) -> None:
    """Emit adjacent letters as a product of variables."""
    for letter in run:
        tokens.append(Token("sym", letter, spaced))
        spaced = False


_UPRIGHT_FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "cot", "ln", "log", "cis", "gcd", "lcm", "arcsin", "arccos", "arctan"}
)
r"""Functions that are also typeset with `\mathrm` and `\text`."""
_STYLING = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|mathrm)(?![A-Za-z])|\\(?=[ij]math)|(?<=[ij])math|[{} ]"
)


def _text_command(name: str, inside: str, tokens: list[Token], spaced: bool, nesting: int) -> None:
    r"""Emit the tokens of `\text{...}` and similar commands; `inside` is the argument."""
    plain = _STYLING.sub("", inside)
    if name in {"bar", "dot"} and plain.isdigit():
        tokens += [Token("cmd", name), Token("num", plain)]
        return
    if name in DECORATED and plain:
        tokens.append(Token("sym", f"{name.removeprefix('wide')} {plain}", spaced))
        return
    if name == "mathbf" and plain in {"R", "Z", "N", "Q"}:
        name, inside = "", rf"\mathbb{{{plain}}}"
    word = inside.strip()
    if word in _UPRIGHT_FUNCTIONS or (name == "operatorname" and word in {*FUNCTIONS, *ALIASES}):
        tokens.append(Token("func", ALIASES.get(word, word), spaced))
        return
    if (name in BOLD and len(plain) == 1 and plain.isalpha()) or (name in LETTERED and plain):
        tokens.append(Token("sym", f"{'bold' if name in BOLD else name} {plain}", spaced))
        return
    worded = name in WORDED and (len(word) != 1 or name == "text")
    first = len(tokens)
    _scan(inside, tokens, worded=worded, nesting=nesting + 1)
    if len(tokens) > first and spaced:
        tokens[first] = msgspec.structs.replace(tokens[first], spaced=True)


def _argument(source: str, position: int) -> tuple[int, int, int]:
    """Return (start, end, after) of a braced argument, or of the next character. Linear time."""
    while position < len(source) and source[position] == " ":
        position += 1
    if position >= len(source) or source[position] != "{":
        # The next character, or the whole of the next command: `\\hat\\imath`.
        named = _COMMAND.match(source, position)
        stop = named.end() if named else min(position + 1, len(source))
        return position, stop, stop
    depth = 0
    for brace in _BRACES.finditer(source, position):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return position + 1, brace.start(), brace.end()
    return position + 1, len(source), len(source)


_COMMAND = re.compile(r"\\[A-Za-z]+")
_BRACES = re.compile(r"(?s)\\.|[{}]")
