"""Values that words name: `mean = 8 and mode = 9`, `area: 12`, `(mean, mode) = (8, 9)`."""

from __future__ import annotations

import re
from typing import NamedTuple

from .vocabulary import DENIALS, words

MAX_LABELLED = 400
"""The longest answer, in characters, in which names are searched."""


class Labelled(NamedTuple):
    """A value and the words that name it."""

    name: str
    value: str


_MARKUP = re.compile(
    r"\\(?:text|mathrm|mbox)[a-z]{0,2}\s*\{([^{}]*)\}|\\(?:[ ,;:]|q?quad(?![a-z]))|[$~]"
)
# A comma within brackets joins the items of one value.
_JOINTS = re.compile(
    r"\s*(?:[;,](?=\s|[^\W\d_]|\Z)(?![^()\[\]]*[)\]])|\s(?:and|und|et|y|e|и)\s|[和と、])\s*"
)
_WORDS = (
    r"(?!(?:[A-Z]{3}|sin|cos|tan|log|exp|lim|max|min|gcd|lcm|arg|det)\b)"
    r"(?:[a-z]-)?[^\W\d_]{2,}(?:[ -][^\W\d_]{2,}){0,2}"
)
_PART = re.compile(
    rf"(?:the |der |die |das |la |el |le |il )?(?P<name>{_WORDS})\s*(?P<sign>[=:]|(?<=\w)\s)\s*"
    r"(?P<value>[-\d\\(\[.][^=:]*(?::\s*\d+)?|[a-z](?:\s*[-+*/^(][^=:]*)?)"
)
# `7 R 5`, `7 remainder 5`, `x + 2 with remainder 3`: the parts of a division.
_DIVIDED = re.compile(
    r"(?:quotient )?(?P<quotient>[^,;=A-Z]*[\dx])\s*,?(?: and| with| leaving)?(?: an?"
    r"| the)? ?\b(?:R"
    r"|rem\.?|[Rr]emainder|Rest|reste|resto|resta|остаток)(?: of"
    r"| is)? ?(?P<remainder>-?\d[^,;=A-Z]*)"
)
# `Primzahlen: 3, 5 and 7`: one name for the values of a list.
_HEADED = re.compile(
    rf"(?P<name>(?![A-Za-z]{{1,2}}\b){_WORDS})\s*:\s*(?P<values>-?\d[^:=]*(?:,|\band\b)[^:=]*)"
)
_TUPLE = re.compile(r"\(?([^()=\d\\]+)\)?\s*=\s*\(?([^()=]+)\)?")


def labelled(text: str, *, bare: bool = False) -> list[Labelled]:
    r"""Return the named values of an answer in which every value has a name in words, else [].

    `bare` allows several names without a sign.

    >>> labelled("quotient x + 2, remainder 3", bare=True)
    [Labelled(name='quotient', value='x + 2'), Labelled(name='remainder', value='3')]
    >>> labelled(r"\text{mean}: 8; \text{mode}: 9")
    [Labelled(name='mean', value='8'), Labelled(name='mode', value='9')]
    >>> labelled("x = 3"), labelled("mean = 8, 9")
    ([], [])
    """
    if len(text) > MAX_LABELLED or not (bare or "=" in text or ":" in text):
        return []
    plain = " ".join(_MARKUP.sub(r" \1 ", text).split()).strip(" .")
    if bare and (divided := _DIVIDED.fullmatch(plain)):
        return [Labelled(*pair) for pair in divided.groupdict().items()]
    names, values = _tuple(plain)
    if not names:
        parts = [_PART.fullmatch(part) for part in _JOINTS.split(plain) if part]
        signed = all(part and part["sign"].strip() for part in parts)
        if not all(parts) or not (signed or (bare and len(parts) > 1)):
            return []
        names = [part["name"] for part in parts if part]
        if not signed and any(name.split()[0].lower() in _CHANGES for name in names):
            return []
        values = [part["value"].strip() for part in parts if part]
    # Two letters are a segment or a product; a word of two signs is one only in other scripts.
    if any(len(name) < 3 and name.isascii() for name in names):
        return []
    return [Labelled(*pair) for pair in zip(names, values, strict=True)]


def _tuple(plain: str) -> tuple[list[str], list[str]]:
    """Return the names and values of `(mean, mode) = (8, 9)`, or two empty lists."""
    match = _TUPLE.fullmatch(plain)
    sides = [[item.strip() for item in side.split(",")] for side in match.groups()] if match else []
    if not sides or len(sides[0]) != len(sides[1]) or len(sides[0]) < 2:
        return [], []
    worded = all(re.fullmatch(_WORDS, name) for name in sides[0])
    return (sides[0], sides[1]) if worded else ([], [])


_COUNTS = re.compile(r"[^\W\d_]{3,} ?[^\W\d_]?\W*\d|\d R ?\d")


def with_names(text: str, *, bare: bool = False) -> str:
    r"""Return a text whose values words name in the notation of equations, any other as it is.
    `bare` allows several names without a sign.

    >>> with_names(r"\text{area: } 12"), with_names("3:4")
    ('\\text{area} = 12', '3:4')
    """
    bare = bare and _COUNTS.search(text) is not None
    if not bare and ":" not in text and text.isascii() and "(" not in text:
        return text
    if headed := _HEADED.fullmatch(text):
        return f"\\text{{{headed['name']}}} = {headed['values']}"
    pairs = _lettered(text) or labelled(text, bare=bare)
    if pairs and len(pairs[0].name) == 1:
        return ", ".join(map("{0.name} = {0.value}".format, pairs))
    return ", ".join(f"\\text{{{name}}} = {value}" for name, value in pairs) or text


_LETTERED = re.compile(r"(?P<name>[A-Za-z])\s*[:=]\s*(?P<value>[-\d\\($.][^,;:=]*)")


def _lettered(text: str) -> list[Labelled]:
    """Return the values of `A: 6, B: 9`, whose names are single letters, else []."""
    if ":" not in text or len(text) > MAX_LABELLED:
        return []
    plain = " ".join(_MARKUP.sub(r" \1 ", text).split()).strip(" .")
    parts = [_LETTERED.fullmatch(part) for part in re.split(r"[,;] ?| and ", plain) if part]
    pairs = [Labelled(part["name"], part["value"].strip()) for part in parts if part]
    return pairs if len({pair.name for pair in pairs}) == len(parts) > 1 else []


# `E[X]`, `\operatorname{Var}(X)`, `\sigma^2`: a symbol before the equals sign.
_MOMENT = re.compile(
    r"(?:\\(?:operatorname|mathrm|text|mathbb|mathbf)\s*\{)?(?<![A-Za-z])(?P<moment>E|Var|V|D|SD)\}?"
    r"\s*[(\[]\s*(?P<of>[A-Z])\s*[)\]](?=\s*=)"
)
_SYMBOL = re.compile(
    rf"{_MOMENT.pattern}|(?<![A-Za-z\d\\^_{{(])(?P<symbol>\\(?:mu|sigma|nu)(?![a-z])|\\(?:bar|overline)"
    r"\s*\{?\s*[a-zX]\s*\}?|[A-Za-z])(?P<square>(?:_\{?\w\}?)?(?:\^\{?2\}?)?)(?=\s*=)"
)
_EXPECTED = re.compile(r"(?i)\bexpect(?:ed value|ation)\b")
_MEANINGS = {
    "E": "mean", "Var": "variance", "V": "variance", "D": "variance", "SD": "standard deviation",
    "mu": "mean", "bar": "mean", "overline": "mean", "sigma^2": "variance", "s^2": "variance",
    "sigma": "standard deviation", "s": "standard deviation", "A": "amplitude", "T": "period",
    "P": "period", "f": "frequency", "nu": "frequency",
}  # fmt: skip


def with_quantities(gold: str, answer: str) -> tuple[str, str]:
    r"""Return a gold that names several values and an answer to it with words for the symbols that
    name quantities (`E[X]`, `\sigma^2`, and letters with which only one of the words begins).

    >>> with_quantities("mean 6, variance 4", r"\mu = 6, \sigma^2 = 4")[1]
    '\\text{mean} = 6, \\text{variance} = 4'
    """
    if "=" not in gold + answer or len(gold) + len(answer) > MAX_LABELLED:
        return gold, answer
    if _MOMENT.search(gold) is None and all(
        len(labelled(text, bare=True)) < 2 for text in (gold, answer)
    ):
        return gold, answer
    gold = _worded(gold, answer)
    return gold, _worded(answer, gold)


def _worded(text: str, other: str) -> str:
    words_there = [pair.name.casefold() for pair in labelled(other, bare=True)]
    subjects = {match["of"] for match in _MOMENT.finditer(text)}

    def word(match: re.Match[str]) -> str:
        symbol = match["moment"] or re.sub(
            r"[\\\s{}]|(?<=bar).*|(?<=overline).*", "", match["symbol"]
        )
        square = "^2" if "^" in (match["square"] or "") else ""
        meaning = _MEANINGS.get(symbol + square, "")
        begun = [name for name in words_there if name[0] == symbol[0].lower() and not square]
        related = match["moment"] or not {*words_there}.isdisjoint(_MEANINGS.values())
        if meaning not in words_there and len(begun) == 1 and len(symbol) == 1:
            meaning = begun[0]
        elif not related:
            return match[0]
        of = f" of {match['of']}" if len(subjects) > 1 else ""
        return rf"\text{{{meaning}{of}}}" if meaning else match[0]

    return _SYMBOL.sub(word, _EXPECTED.sub("mean", text))


# `p is true`, `q = F`; the values of `(p, q) = (T, F)`.
_TRUTH = re.compile(
    r"(?P<name>[A-Za-z])(?: is | ?[=:] ?| )(?:(?P<true>[Tt]rue|TRUE|[T1])|[Ff]alse|FALSE|[F0])"
)
_TRUTHS = re.compile(
    r"(?:\( ?(?P<names>[A-Za-z](?: ?, ?[A-Za-z])*) ?\) ?= ?)?"
    r"\( ?(?P<values>\w{1,5}(?: ?, ?\w{1,5})+) ?\)"
)


def truths(text: str) -> str:
    """Return the truth values of several letters as numbers, or "".

    >>> truths("p is true and q is false"), truths("(p, q) = (T, F)")
    ('p=1,q=0', 'p=1,q=0')
    >>> truths("(T, F)"), truths("p = 2, q = 1")
    ('(1,0)', '')
    """
    plain = " ".join(_MARKUP.sub(r" \1 ", text[:MAX_LABELLED]).split()).strip(" .")
    if listed := _TRUTHS.fullmatch(plain):
        values = [f"x {value.strip()}" for value in listed["values"].split(",")]
        names = (listed["names"] or "").replace(" ", "").split(",")
    else:
        values, names = [part for part in _JOINTS.split(plain) if part], []
    pairs = [_TRUTH.fullmatch(value) for value in values]
    said = ["1" if pair["true"] else "0" for pair in pairs if pair]
    if len(said) < max(2, len(values)):
        return ""
    if listed and not any(names):
        return f"({','.join(said)})"
    names = names or [pair["name"] for pair in pairs if pair]
    return ",".join(map("{}={}".format, names, said)) if len(names) == len(said) else ""


_CHANGES = DENIALS | words(
    "plus minus times and or over under about exactly approximately at by to from in on for with "
    "less more than most least between maximum minimum root square cube step case part room "
    "number option answer either about around"
)
"""Words before a bare value that do not name it."""


def place_of(name: str, text: str) -> int:
    """Return where a text has the words of a name, in any inflection, or -1.

    >>> place_of("медиана", "найдите медиану и моду"), place_of("mode", "the mean")
    (8, -1)
    """
    exact = text.find(name)
    if exact >= 0 or not name[0].isalpha():
        return exact
    stems = [re.escape(word[: max(3, len(word) - 2)]) for word in re.split(r"[ -]", name)]
    match = re.search(r"\b" + r"\w{0,3}\W+".join(stems) + r"\w{0,3}\b", text)
    return match.start() if match else -1
