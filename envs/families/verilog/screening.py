r"""Reads a design as tokens, and refuses what no design needs, before any tool sees the design.

The compiler does not get the text that was written, but its tokens, written out again with a space
between any two. So the compiler cannot read anything that was not read here: there are no comments,
no strings, no macros (a backtick is refused, and so is every directive but the harmless ones that
are taken out), no escaped identifiers (`\$display `), and no word glued to a number (`1'bxforce`).

Refused are: every system task and function but `$signed`, `$unsigned`, `$clog2` and `$bits`;
hierarchical names; keywords that reach beyond the module they stand in, print, wait for others or
belong to test benches; whatever stands outside of modules.
"""

from __future__ import annotations

import re

MAX_LETTERS = 64_000
"""The most characters of a design; what policies write has a few thousand."""

SYSTEM_FUNCTIONS = frozenset({"$signed", "$unsigned", "$clog2", "$bits"})
"""The allowed system functions, all of them pure; other names with `$` are refused."""

REFUSED_WORDS = frozenset(
    """
    accept_on alias assert assume before bind bins binsof chandle checker class clocking config
    const constraint context cover covergroup coverpoint cross deassign defparam design
    dist endchecker endclass endclocking endconfig endgroup endinterface endpackage endprimitive
    endprogram endproperty endsequence endspecify event eventually expect export extends extern
    final first_match force foreach fork forkjoin global iff ignore_bins illegal_bins implements
    implies import incdir include inout inside instance interconnect interface intersect join
    join_any join_none let liblist library local macromodule matches modport nettype new nexttime
    null package packed primitive program property protected pure rand randc randcase
    randsequence ref reject_on release restrict s_always s_eventually s_nexttime s_until
    s_until_with sequence shortreal showcancelled soft solve specify specparam string strong
    super sync_accept_on sync_reject_on table tagged this throughout timeprecision timeunit type
    union until until_with untyped use vectored virtual wait wait_order
    weak wildcard with within real realtime time chandle pulsestyle_ondetect pulsestyle_onevent
    noshowcancelled tran tranif0 tranif1 rtran rtranif0 rtranif1 cell endtable struct
    """.split()  # noqa: SIM905 - a list literal would take a line a word
)
"""Reserved words of IEEE 1800-2012 that a synthesizable module of this size does not need."""

_DROPPED_WORDS = frozenset({"unique", "unique0", "priority"})
"""Words that are removed, since Icarus Verilog does not know these promises about a `case`.

Where such a promise is kept, the word changes nothing.
"""

_HARMLESS_DIRECTIVE = re.compile(
    r"^[ \t]*`(?:timescale[ \t]+\d+[ \t]*[munpf]?s[ \t]*/[ \t]*\d+[ \t]*[munpf]?s"
    r"|default_nettype[ \t]+(?:none|wire)|resetall)[ \t]*$",
    re.M,
)
_ATTRIBUTE = re.compile(
    r"\(\*\s*[A-Za-z_]\w*(?:\s*=\s*\w+)?(?:\s*,\s*[A-Za-z_]\w*(?:\s*=\s*\w+)?)*\s*\*\)"
)
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f]+)
  | (?P<line>\n)
  | (?P<number>
        (?:\d[\d_]*[ \t]*)? '[sS]?
        (?: [bB][ \t]*[01xXzZ?_]+ | [oO][ \t]*[0-7xXzZ?_]+
          | [dD][ \t]*(?:\d[\d_]*|[xXzZ?]_*) | [hH][ \t]*[0-9a-fA-FxXzZ?_]+ )
      | '[01xXzZ]
      | \d[\d_]*
    )
  | (?P<system>\$[A-Za-z0-9_$]*)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<operator>
        <<<= | >>>= | === | !== | ==\? | !=\? | <<< | >>> | <<= | >>=
      | <= | >= | == | != | && | \|\| | \*\* | << | >> | ~& | ~\| | ~\^ | \^~ | -> | \+: | -:
      | \+\+ | -- | \+= | -= | \*= | /= | %= | &= | \|= | \^= | '\( | '\{ | \.\*
      | [-+*/%&|^~!<>=?:;,.()\[\]{}@\#]
    )
    """,
    re.X,
)


class RefusedDesign(Exception):
    """The design has something that is not allowed; the message says what, and where."""


def screened(source: str) -> str:
    r"""Return the tokens of a design, to be compiled in place of the text.

    >>> screened("module m(input a); // $finish\nendmodule")
    'module m ( input a ) ;\nendmodule'

    Raises:
        RefusedDesign: the design is too long, cannot be read, or has something that is not allowed.
    """
    if len(source) > MAX_LETTERS:
        raise RefusedDesign(f"the design has {len(source)} letters; at most {MAX_LETTERS} are read")
    text = _HARMLESS_DIRECTIVE.sub("", _without_comments(source.replace("\r\n", "\n")))
    tokens = _tokens(_ATTRIBUTE.sub(" ", text))
    _check_dots(tokens)
    _check_modules(tokens)
    # The compiler gets these tokens and not the text, so that it reads nothing else than what was
    # checked here. Line ends stay, since its messages name lines.
    lines: list[list[str]] = [[]]
    for token in tokens:
        if token == "\n":
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(" ".join(line) for line in lines)


def _without_comments(text: str) -> str:
    """Replace each comment by a space.

    Strings are refused, so that whatever looks like a comment is a comment.
    """
    kept_parts: list[str] = []
    place = 0
    for mark in re.finditer(r"//|/\*|\"", text):
        if mark.start() < place:
            continue
        kept_parts.append(text[place : mark.start()])
        if mark[0] == '"':
            raise RefusedDesign(f"line {_line(text, mark.start())}: strings are not allowed")
        close = "\n" if mark[0] == "//" else "*/"
        end = text.find(close, mark.end())
        if end < 0 and close == "*/":
            raise RefusedDesign(f"line {_line(text, mark.start())}: the comment is never closed")
        kept_parts.append(" ")
        place = len(text) if end < 0 else end + (0 if close == "\n" else 2)
    return "".join([*kept_parts, text[place:]])


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _tokens(text: str) -> list[str]:
    """Split a design into tokens, with line ends as tokens.

    Raises:
        RefusedDesign: the design has a character, word or system function that is not allowed.
    """
    tokens: list[str] = []
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise RefusedDesign(f"line {line}: {text[place]!r} is not allowed")
        kind, token = str(match.lastgroup), match[0]
        if kind == "system" and token not in SYSTEM_FUNCTIONS:
            raise RefusedDesign(f"line {line}: {token} is not allowed")
        if kind == "word" and token in REFUSED_WORDS:
            raise RefusedDesign(f"line {line}: {token} is not allowed")
        # Verilog allows `$` inside a name, and the pattern of words ends there: the compiler would
        # read another word than this check.
        if kind == "word" and text[match.end() : match.end() + 1] == "$":
            raise RefusedDesign(f"line {line}: names with $ are not allowed")
        if kind != "space" and token not in _DROPPED_WORDS:
            tokens.append(token)
        line += kind == "line"
        place = match.end()
    return tokens


def _check_dots(tokens: list[str]) -> None:
    """Check that a dot only names a port of an instance, `( .a(x), .b )`: no hierarchical name.

    Raises:
        RefusedDesign: a dot is used otherwise.
    """
    before, line = "", 1
    for token in tokens:
        if token == "\n":
            line += 1
            continue
        if token in (".", ".*") and before not in ("(", ","):
            raise RefusedDesign(f"line {line}: hierarchical names are not allowed")
        before = token


def _check_modules(tokens: list[str]) -> None:
    """Check that everything is in a module, and no module is in another.

    Raises:
        RefusedDesign: something is outside of modules, or modules are nested.
    """
    inside, line = False, 1
    for token in tokens:
        if token == "\n":
            line += 1
        elif token == "module":
            if inside:
                raise RefusedDesign(f"line {line}: a module inside a module")
            inside = True
        elif not inside:
            raise RefusedDesign(f"line {line}: {token!r} stands outside of a module")
        elif token == "endmodule":
            inside = False
    if inside:
        raise RefusedDesign("the last module is never closed")
