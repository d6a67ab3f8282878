"""Plain punctuation for the searched text. Every character keeps the offset, so that places found
in the text are places in the response.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..reading.dates import NAME
from ..reading.vocabulary import unit_symbol

REACH = 20_000
"""How many characters at the end of a response are searched for words; marks are found anywhere."""
MAX_CLAUSE = 160
NEAR_CLAUSE = 64
"""How many characters before a statement may contain a word that denies, supposes or quotes the
statement.
"""
# Full-width punctuation and unusual spaces; each becomes a single ASCII character.
_WIDE = str.maketrans(
    {
        chr(code): chr(code - 0xFEE0)
        for code in range(0xFF01, 0xFF5F)
        if chr(code - 0xFEE0) not in "\\{}`~"
    }
    | dict(zip("।\u00a0\u3000\u202f\u2009", ".    ", strict=True))
)
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~")
# `So the sum is 892!` exclaims, as long as the text writes no factorial elsewhere.
_EXCLAIMED = re.compile(r"(?m)(?<=\s)(\**-?\d[\d.,]{0,30}\**)!(?=\**(?:\s*$|\s+[A-Z]))")
_SPEECH = re.compile(r"[A-Za-zÀ-ÿ]{2}[^$\\]*")
_FACTORIAL = re.compile(
    r"(?im)[\w)]!(?!\**(?:\s*$|\s+[A-Z]))|(?<![A-Za-z])[A-Za-z]!|\)!|factorial|permut|arrang|order"
)
_HTML = re.compile(r"</?(?:b|i|u|em|strong|mark|p|div|span|center|font|h[1-6])(?: [^<>]{0,60})?/?>")
_HIDDEN = re.compile(
    r"(?ms)<!--.*?(?:-->|$)|^[ \t]*%(?!\d).*?$|(?<![\\\d])(?<!\d[\s,])%[^\n]*\\boxed[^\n]*"
    r"|\\begin\{comment\}.*?\\end\{comment\}"
)
"""Comments of HTML and LaTeX, which are not printed."""
_NEGATED_MARKS = "❌✗✘❎🚫"
_DECORATION = (
    "\u2190-\u21ff\u2500-\u25b1\u25b8-\u25ca\u25cf-\u25e5\u2600-\u2775\u2780-\u2794\u2798-\u27bf\u27f5-\u27ff"
    "\u2b00-\u2bff\ufe0f\u200d\u220e\U0001f000-\U0001faff"
)
"""Arrows, boxes, emoji and check marks, which are not mathematics at the edge of an answer."""
_EDGE = re.compile(rf"^[\s{_DECORATION}]+|(?<![\s{_DECORATION}])[\s{_DECORATION}]+$")
_DECORATED = re.compile("(?<=[\\w)}$.]) ?[\u2600-\u2775\u2794\u2b50\U0001f300-\U0001faff]")
# A full stop ends a sentence unless it closes an abbreviation or an ordinal (`am 8. April`).
_SENTENCE_END = re.compile(
    rf"[.!?。\n\\$](?:(?<=[.!?])(?=\s|$|\$\s+[A-Z])(?!(?<=\.\.\.)\s[a-z])(?!(?<=\d\.)\s{NAME})"
    r"(?<![iI]\.e\.)(?<![eE]\.g\.)(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!approx\.)"
    r"|(?<=[。\n])|(?<=\\)\](?=.)|(?<=\$)\$(?=\s*[A-Z]))"
)


def surface(body: str) -> str:
    """Return `body` at the same length with plain punctuation, and without struck-out text or HTML
    emphasis.

    Only the last REACH characters are changed, where words are searched.
    """
    if len(body) > REACH:
        return body[:-REACH] + surface(body[-REACH:])
    body = with_dollars(body)
    if not body.isascii():
        if "分" in body or "분의" in body:
            body = _SHARE.sub(_share, body)
        if "\u20e3" in body:
            body = _KEYS.sub(lambda keys: re.sub(r"\D", "", keys[0]).ljust(len(keys[0])), body)
    if "!" in body and not _FACTORIAL.search(body):
        body = _EXCLAIMED.sub(_punctuated, body)
    if "~~" in body:
        body = _STRUCK.sub(_blank, body)
    if "≠" in body or "\\ne" in body or any(word in body for word in _EXCLUDING):
        body = _PUNCTURED.sub(_punctured, body)
    body = in_signs(body)
    if "[[" in body:
        body = _PRINTED.sub(_in_line, body)
    if "$" in body:
        body = _QUANTITY.sub(_in_one_formula, body)
    if "_" in body:
        body = _SPELT_APART.sub(lambda said: said[0].replace("_", ","), body)
    if "```" in body:
        body = _FENCED.sub(_unfenced, body)
    if "</" in body:
        body = _HTML.sub(_blank, body)
    if "<!--" in body or "%" in body or "{comment}" in body:
        body = _HIDDEN.sub(_blank, body)
    return body


_KEYS = re.compile("(?:\\d\ufe0f?\u20e3)+")
"""A number on keys of a telephone."""
_SPELT_APART = re.compile(r"(?<![\w\\^])\d{1,3}(?:_\d{3}){2,}(?!\w)")
"""A number as programs print it: `1_307_674`."""
_FENCED = re.compile(
    r"(?im)^(?P<output>[*_# ]{0,6}output\b[*_: ]*\n\s*(?=```)|(?=```output))?```\w{0,10} *\n"
    r"(?P<value>[^\n`]{1,80})\n``` *$(?P<end>\s*\Z)?"
)


def _unfenced(match: re.Match[str]) -> str:
    """Return the line of a fence that a program prints as `Result: 25`, and one that closes the
    text without the fence, at the same length.
    """
    if match["output"] is None and match["end"] is None:
        return match[0]
    before, behind = match.start("value") - match.start(), match.end() - match.end("value")
    lead = "\n" * before if match["output"] is None else "Result:".ljust(before)
    return lead + match["value"] + "\n" * behind


_POWER = r"\$?\^\{?[-−]?\d\}?"
_NAMED = r"(?:\\(?:text|mathrm)\{[A-Za-z/ ·⋅]{1,25}\}|[A-Za-z]{1,12})"
_QUANTITY = re.compile(
    rf"(?<![\w.,\\])(\$?[-−]?\d[\d.,]*\$?[ ~]?\$?)"
    rf"({_NAMED}(?:{_POWER})?(?:\$? ?[/·⋅]?\$?{_NAMED}(?:{_POWER})?){{0,3}})\$"
)
"""A number and its unit, parts of which stand in formulas of their own: `5 cm$^2$`."""


def _in_one_formula(match: re.Match[str]) -> str:
    """Return a number and its unit in one formula of the same length: `$5 cm^2$`."""
    names = re.findall(r"(?<!\\)\b[A-Za-z]+(?![a-z{])", match[2])
    quantity = match[0].replace("$", "")
    dollars = len(match[0]) - len(quantity)
    if dollars < 2 or not all(name == "per" or unit_symbol(name) for name in names):
        return match[0]
    is_begun = dollars % 2 == 1  # the number ends a formula that began before
    if is_begun != (match[0][0] != "$" and re.search(r"\d\$", match[1]) is not None):
        return match[0]
    return ("" if is_begun else "$") + quantity + " " * (dollars - 2 + is_begun) + "$"


_PRINTED = re.compile(r"\[\[[^\[\]]{1,200}\](?:[\s,]{1,20}\[[^\[\]]{1,200}\]){1,12}\s{0,20}\]")


def _in_line(match: re.Match[str]) -> str:
    """Return a matrix that a program prints, in rows with or without commas, in one line of the
    same length.
    """
    gap = r"(?<=[\d.\]])\s+(?=[-\d.\[])"
    return re.sub(gap, lambda space: ",".ljust(len(space[0])), match[0]).replace("\n", " ")


_GATES = {
    **dict.fromkeys(("OR", "ODER", "OU", "ИЛИ"), "∨"),
    **dict.fromkeys(("AND", "UND", "ET", "И"), "∧"),
    **dict.fromkeys(("NOT", "NICHT", "NON", "НЕ"), "¬"),
    "XOR": "⊕",
}
_GATE = re.compile(rf"\b(?:{'|'.join(_GATES)})\b")
_BINARY = tuple(f" {gate} " for gate, sign in _GATES.items() if sign != "¬")
_OPERAND = r"(?:\(|(?:NOT|NICHT|NON|НЕ) ){0,5}+[A-Za-z]['′]?(?!\w)\){0,5}"
_GATED = re.compile(rf"(?<![\w'’]){_OPERAND}(?: (?:X?OR|ODER|OU|ИЛИ|AND|UND|ET|И) {_OPERAND})+")
"""A formula of logic in words, of which `NOT A` alone may be an option that is denied."""


def in_signs(text: str) -> str:
    """Return a text with formulas of logic in signs, at the same length."""
    if not any(gate in text for gate in _BINARY):
        return text
    return _GATED.sub(
        lambda said: _GATE.sub(lambda word: _GATES[word[0]].ljust(len(word[0])), said[0]), text
    )


_EXCLUDING = (
    *("except", "excluding", "excepté", "excepto", "exceto", "other than", "apart from", "außer"),
    *("ohne", "sauf", "salvo", "tranne", "eccetto", "кроме", "除了", "除去"),
)
_EXCEPT = (
    rf"(?:\b(?:{'|'.join(_EXCLUDING[:-2])})\b|除了|除去)"
    r"(?: (?:for|at|when|für|bei|en|em|pour|para|per|точки))?"
)
_WITH = (
    r"with|and|where|but|mit|und|aber|wobei|avec|et|où|mais|con|y|donde|pero|com|e|mas|onde|dove|ma"
    r"|при|и|где|но|并且|且|其中|但|ただし|かつ|で|단|그리고"
)
_PUNCTURED = re.compile(
    r"(?P<close>\$?)(?:\s?[,;、]\s?|\s(?=[^\s$]))(?:\\text\s*\{\s*)?"
    rf"(?:(?P<but>{_EXCEPT})|(?:{_WITH})(?![^\W\d_])|(?<=[,;、])|(?<=[,;、]\s))"
    r"[:,]?\s?\}?\s?(?P<open>\$?)(?:(?P<letter>[a-z])\s?(?P<sign>=|\\neq?(?![a-z])|≠)\s?)?"
    r"(?P<value>-?[\d.]*\d|-?\\[dt]?frac\{\d+\}\{\d+\})(?![\w.^]*\d|\s?[-+*/^<>=])"
)
_REGION = re.compile(
    r"(?:(?<![A-Za-z\\])(?P<letter>[a-z])\s?(?:[<>≤≥∈]|\\(?:leq?|geq?|lt|gt|in)(?![a-z]))[^$\n.;]*"
    r"|(?<![A-Za-z])\([^()$\n]{1,20},[^()$\n]{1,20}\))$"
)
"""An inequality or an interval, which a point may be taken out of."""


def _punctured(match: re.Match[str]) -> str:
    """Return a point that is taken out of the region before it (`0 < x < 36 with x ≠ 9`) as a part
    of that formula, at the same length.
    """
    region = _REGION.search(match.string, max(0, match.start() - 60), match.start())
    letter = match["letter"]
    if region is None or (letter and region["letter"] not in {None, letter}):
        return match[0]
    if not match["but"] and (not letter or match["sign"] == "="):
        return match[0]
    letter = letter or region["letter"]
    out = f", {letter}≠{match['value']}" if letter else rf"∖\{{{match['value']}\}}"
    end = "$" if match["close"] and not match["open"] else ""
    room = len(match[0]) - len(out) - len(end)
    return out + " " * room + end if room >= 0 else match[0]


_SIGNS = "零一二三四五六七八九"
_SHARE = re.compile(
    rf"(?P<whole>\d{{1,4}}|[{_SIGNS}十]|百)\s?(?:分之|分の|분의)\s?(?P<part>\d{{1,4}}"
    rf"|[{_SIGNS}](?![{_SIGNS}十百千万]))"
)
"""A fraction in the words of Chinese, Japanese or Korean, with the whole first: `3分の1`."""


def _share(match: re.Match[str]) -> str:
    """Return such a fraction with a stroke, at the same length."""
    whole, part = (
        {"十": "10", "百": "100"}.get(sign, str(_SIGNS.find(sign) if sign in _SIGNS else sign))
        for sign in match.group("whole", "part")
    )
    fraction = f"{part}/{whole}"
    return fraction.ljust(len(match[0])) if len(fraction) <= len(match[0]) else match[0]


_WARNING = re.compile(
    r"(?is)\n[\s>#*_•-]*(?:(?:an? |the )?(?:common|typical|frequent|usual) (?:mistake|error|pitfall"
    r"|slip|misconception|trap)s?|pitfalls?|(?:key )?takeaways?|watch out|beware|caution"
    r"|warning)[*_]*:[*_]*\s(?P<said>(?:(?!\n\n).)+)\s*$"
)
_SECTION = re.compile(
    r"(?is)\n[ \t>#*_]*(?:\W\s)?(?:(?:the )?key (?:takeaways?|points?|ideas?|insights?|concepts?"
    r"|facts?)|takeaways?"
    r"|(?:useful |helpful |study )?(?:tips|notes|remarks)|fun facts?|further (?:reading|practice)"
    r"|why (?:this|it) works|wichtige punkte|merksätze|hinweise|anmerkungen|points? clés?|à retenir"
    r"|remarques|puntos clave|notas|consejos|pontos[- ]chave|dicas|punti chiave|osservazioni"
    r"|важные моменты|замечания|要点|关键点|ポイント|핵심 정리)[*_:]*\s*\n(?P<said>.+)$"
)
_SIGNED = re.compile(
    r"(?s)\n[ \t]*(?:(?<=\n\n)(?:—|–|--)\s?(?!(?:So|Hence|Thus|Therefore|Then"
    r"|Answer)\b)[A-Z][a-z](?P<said>[^\n=$\\:]{1,60})"
    r"|(?i:(?:(?:best|kind|warm) )?(?:regards|wishes)|sincerely|cheers),\s[^\n=$\\:]{1,40})\s*$"
)
_FOOTNOTES = re.compile(
    r"\n[ \t]*(?:(?:-{3,}|_{3,}|\*{3,})[ \t]*\n\s*)?"
    r"(?P<said>(?P<mark>\[\^?\w{1,3}\]|\\?\*(?=\s)|[†‡¹²³]|\(\*\)):?[ \t]*(?=[^\W\d_])[^\n]*)\s*$"
)
_CORRECTIONS = "I|my|answer|actually|correction|sorry|wait|boxed|final"
_CORRECTS = re.compile(rf"(?i)\b(?:{_CORRECTIONS})\b|####|<")
_OWN = re.compile(rf"(?i)\b(?:{_CORRECTIONS}|we|our|should|hence|so|thus|therefore)\b|####|<")
"""Words with which a remark may correct the answer, and is then kept."""


def without_notes(body: str) -> str:
    """Return the text without what is printed below it and says nothing of the answer: a warning of
    a mistake of others (`*Common mistake:* ...`), a section of remarks (`Key takeaways`), footnotes
    and a signature. References to the footnotes become spaces.
    """
    base = max(0, len(body) - MAX_NOTES)
    for _ in range(MAX_FOOTNOTES if "\n" in body else 0):
        matches = (form.search(body, base) for form in (_SIGNED, _WARNING, _SECTION, _FOOTNOTES))
        note = next(filter(None, matches), None)
        above = body[: note.start()] if note else ""
        own = _CORRECTS if note and note.re is _SECTION else _OWN
        if note is None or not above.strip() or own.search(note["said"] or ""):
            break
        if note.re is _FOOTNOTES:
            mark = re.escape(note["mark"].strip("\\"))
            above, references = re.subn(
                rf"(?<=[\w.,;!?)$])\\?{mark}(?![*\w])", lambda sign: " " * len(sign[0]), above
            )
            if references != 1:
                break
        body = above
    return body


MAX_NOTES = 600
"""The characters at the end that are searched for such notes."""
MAX_FOOTNOTES = 6
"""The most notes that one text ends in."""


def with_dollars(text: str) -> str:
    r"""Return a text with plain punctuation, without spaces in its numbers, and with dollar signs
    for `\(` and `\)`, so that one notation of formulas in a sentence is read, in its place; as it
    was where a dollar sign may be money, or a bracket is not printed. Where each dollar sign is
    money behind its amount, it becomes another sign.

    >>> with_dollars(r"so \(x = 3\)."), with_dollars("so 49 200 men")
    ('so  $x = 3$ .', 'so  49200 men')
    """
    text = text if text.isascii() else text.translate(_WIDE)
    text = _SPACED.sub(lambda n: n[0].replace(" ", "").rjust(len(n[0])), text)
    if "$" in text and len(_AMOUNT.findall(text)) == text.count("$"):
        return text.replace("$", "＄")
    if "\\(" not in text or text.count("\\(") != text.count("\\)") or _ESCAPED.search(text):
        return text
    if "$" in text and not _IN_PAIRS.match(text):  # an amount of money
        return text
    return text.replace("\\(", " $").replace("\\)", "$ ")


_SPACED = re.compile(r"(?<!\S)(?<![\d.,]\s)[-+−]?\d{1,3}(?: \d{3})+(?! {0,3}\d)")
# Both patterns begin with a literal, to which `re` skips fast.
_AMOUNT = re.compile(r"\$(?:(?<=\d\$)|(?<=\d[ \xa0]\$))(?=[\s.,;:!?)*}]|\Z)")
"""The sign of dollars behind an amount, as no formula ends where none has begun."""
_IN_PAIRS = re.compile(
    r"(?s)(?:[^$\\]|\\.|\$\$[^$]+\$\$|\$(?:(?!\\[()]|[A-Za-z]{3,} [a-z]{2,})[^$\n])+\$(?!\d))*+\Z"
)
_ESCAPED = re.compile(
    r"\\[()](?:(?<=\\..)|(?<=left..)|(?<=right..)|(?<=[bB]ig..)|(?<=[bB]igg..)"
    r"|(?<=[bB]ig[lrm]..)|(?<=[bB]igg[lrm]..))"
)


def lowered(text: str) -> str:
    """Return a text in small letters, in which every character keeps its place."""
    small = text.lower()
    return small if text.isascii() or len(small) == len(text) else text


def _punctuated(match: re.Match[str]) -> str:
    line = match.string[max(0, match.start() - 80) : match.start()].rpartition("\n")[2]
    spoken = _SPEECH.search(line)
    said = spoken is not None and spoken.end() == len(line) and "\\" not in line
    return f"{match[1]}." if said else match[0]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def without_decoration(text: str) -> str:
    """Return an answer without emoji, check marks and arrows at the edges.

    >>> without_decoration("371 ✅")
    '371'
    """
    return text if text.isascii() else _EDGE.sub("", text)


def before_decoration(text: str) -> str:
    """Return an answer up to an emoji in the middle; the text after the emoji says something
    else.
    """
    return _DECORATED.split(text, maxsplit=1)[0].rstrip()


def crossed_out(body: str, start: int, end: int) -> bool:
    """Return whether a cross stands in or beside the text: `370 ❌`."""
    if body.isascii():
        return False
    return any(mark in body[max(0, start - 3) : end + 4] for mark in _NEGATED_MARKS)


@lru_cache(maxsize=64)
def clause_before(body: str, place: int) -> str:
    """Return the sentence up to `place`, at most MAX_CLAUSE characters long."""
    start = max(0, place - MAX_CLAUSE)
    before = body[start:place]
    stripped = before.rstrip()
    # Most sentences end within the last characters, so that the rest is seldom searched.
    ends = list(_SENTENCE_END.finditer(stripped, max(0, len(stripped) - NEAR_CLAUSE)))
    ends = ends or list(_SENTENCE_END.finditer(stripped))
    return before[ends[-1].end() :] if ends else before


def clause_behind(body: str, place: int) -> str:
    """Return the sentence from `place` with its full stop, at most MAX_CLAUSE characters long."""
    stop = place + MAX_CLAUSE
    ending = _SENTENCE_END.search(body, place, stop)
    return body[place : ending.end() if ending else stop]


def blanked(body: str, spans: list[tuple[int, int]]) -> str:
    """Return `body` with some spans replaced by spaces."""
    pieces: list[str] = []
    place = 0
    for start, end in sorted(spans):
        if end > place:
            pieces += [body[place:start], " " * (end - max(place, start))]
            place = end
    return "".join([*pieces, body[place:]])
