"""Values that a closing sentence describes in the way the question asks for: a bound in words, the
parities of an index, multiplicities, a unit said twice, the shells of an atom, an option by its
rank, a count with its noun, a loss for a gain.

Nothing here looks at the gold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ..reading.counting import Spelled, spelled_numbers
from ..reading.labels import place_of
from ..reading.numerals import ROMAN
from ..reading.plain import formulas
from ..reading.units import dimension
from ..reading.vocabulary import ALL_REALS, unit_symbol
from .sentence import DENIAL, closing_sentence, denied, governed
from .stance import related

PROMPTS = 256
"""How many prompts keep what they call for in a cache."""


class Described(NamedTuple):
    """A value with its place."""

    value: str
    start: int
    end: int


def described(prompt: str, body: str, start: int, end: int) -> Described | None:
    """Return the value that the closing sentence describes, or None."""
    for find in _called_for(prompt):
        if value := find(prompt, body, start, end):
            return value
    return None


@lru_cache(maxsize=PROMPTS)
def _called_for(prompt: str) -> tuple[_Finder, ...]:
    """Return the finders that a question calls for; rollouts share their question."""
    return tuple(find for asks, find in _FINDERS if asks.search(prompt))


_PHRASE = (
    r"(?:at least|at most|(?:strictly )?(?:less|greater|more|smaller) than(?: or equal to)?"
    r"|(?:no|not) (?:less|more) than)"
)
_LIMIT = r"(?:\s?\$[^$]+\$|[-−]?\d[\d./]*)"
_BOUND = re.compile(
    r"\$?(?<![A-Za-z])(?P<name>[a-z])\$?\s+"
    r"(?P<claims>(?:is|must be|has to be|should be|that (?:is|are)) )?"
    rf"(?P<phrase>{_PHRASE})\s+(?P<value>{_LIMIT})"
    rf"(?P<too>,? (?:and|but|or) (?:also )?(?:is )?{_PHRASE}\s+{_LIMIT})?[\s.*!]*$"
)
_FAILS = re.compile(
    r"(?i)\b(?:fails?|false|undefined|wrong|unless|or|nothing|contradict\w*|untrue|violat\w*"
    r"|invalid"
    r"|impossible|incorrect|broken|excluded|outside|except)\b"
)


_HOLDS = re.compile(
    r"(?i)(?<!stops )(?<!longer )(?<!never )\b(?:h[oe]ld|true|satisf|solution|solve|valid|work"
    r"|exactly|precisely|whenever)\w*"
)


def _bound(_: str, body: str, start: int, end: int) -> Described | None:
    """Find `so x is at least 5`, or two such bounds, for a question that solves an inequality."""
    bound = _BOUND.search(body, start, end)
    if bound is None or _denied(body[start : bound.start()]):
        return None
    if not bound["claims"] and not _HOLDS.search(body, start, bound.start()):
        return None  # `too small for x less than 3`
    said = f"{bound['name']} is {bound['phrase']} {bound['value']}{bound['too'] or ''}"
    return Described(said, bound.start(), bound.end("too" if bound["too"] else "value"))


def _denied(before: str) -> bool:
    return DENIAL.search(before) is not None or _FAILS.search(before) is not None


_EVERYWHERE = re.compile(
    r"(?<![的の正负負非한닌인된])(?<![한닌인된] )(?!real)"
    rf"(?P<said>{ALL_REALS.pattern.removeprefix('(?i)')})"
    r"(?:\s(?:works?|qualif(?:y|ies)|satisf(?:y|ies) (?:it|this)"
    r"|(?:is|are) (?:an? |the )?solutions?))?"
    r"[\s.*!$。_]*(?:で(?:す|ある)|이?다|입니다)?[\s.*!$。_]*$",
    re.IGNORECASE,
)


def _everywhere(_: str, body: str, start: int, end: int) -> Described | None:
    """Find `so the domain is all real numbers`, for a question for a set."""
    said = _EVERYWHERE.search(body, start, end)
    before = body[start : said.start()] if said else ""
    if said is None or _denied(before) or _OPEN.search(before):
        return None
    return Described(r"\mathbb{R}", *said.span("said"))


_ROMAN = re.compile(
    r"(?:(?<!\d)(?P<number>\d{1,7})[\s$*]*(?:=|→|\bis(?: written(?: as)?)?)[\s$*]*)?"
    rf"(?:\\(?:text|mathrm)\s*\{{)?(?<![^\W_])(?P<numeral>{ROMAN})[\s}}$.*!]*$"
)


def _roman(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the Roman numeral that a sentence ends in, with the number that it is said to be."""
    said = _ROMAN.search(body, start, end)
    if said is None or _denied(body[start : said.start()]):
        return None
    value = f"{said['number']} = {said['numeral']}" if said["number"] else said["numeral"]
    return Described(value, said.start(), said.end("numeral"))


_PARITY = re.compile(
    r"\$(?P<first>[^$]+)\$\s?,?\s+(?:for|if|when|where) (?:all )?"
    r"(?:\s?\$?(?P<letter>[a-z])\$?\s+(?:is )?)?"
    r"(?P<parity>odd|even)(?:\s+\$?(?P<behind>[a-z])\$?)?\s?,?\s+(?:and|but|while|whereas)?,?\s*"
    r"\$(?P<second>[^$]+)\$\s?,?\s+(?:for|if|when|where) (?:all )?(?:\s?\$?[a-z]\$?\s+(?:is )?)?"
    r"(?P<other>odd|even)(?:\s+\$?[a-z]\$?)?[\s.]*$"
)


def _parity(_: str, body: str, start: int, end: int) -> Described | None:
    """Find `b_n = 4/n for odd n and b_n = 0 for even n`, as a function by cases."""
    said = _PARITY.search(body, start, end)
    letter = said and (said["letter"] or said["behind"])
    if said is None or not letter or said["parity"] == said["other"]:
        return None
    if _denied(body[start : said.start()]):
        return None
    heads = [said[side].rpartition("=") for side in ("first", "second")]
    if heads[0][0].partition("=")[0].strip() != heads[1][0].partition("=")[0].strip():
        return None
    name = heads[0][0].partition("=")[0].strip()
    rows = r" \\ ".join(
        rf"{head[2]} & {letter} \text{{ {said[parity]}}}"
        for head, parity in zip(heads, ("parity", "other"), strict=True)
    )
    text = rf"\begin{{cases}} {rows} \end{{cases}}"
    return Described(f"{name} = {text}" if name else text, said.start(), said.end("second"))


_COUNTED = re.compile(
    r"(?P<value>-?\d+(?:/\d+)?|\$[^$=]+\$)\**,? ?\(?(?P<how>simple|double|triple"
    r"|(?:of |with |has )?(?:an? )?"
    r"(?:algebraic )?multiplicity(?: of)? (?:one|two|three|four|\$?\d\$?))\)?"
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:/\d+)?")


def _multiplicities(_: str, body: str, start: int, end: int) -> Described | None:
    """Find `4 (simple) and 1 (of multiplicity two)`, where each number of the sentence has one."""
    items = list(_COUNTED.finditer(body, start, end))
    others = _COUNTED.sub("", body[start:end])
    if not items or _NUMBER.search(others) or _denied(others):
        return None
    values = ", ".join(f"{item['value'].strip('$')} ({item['how'].strip('$')})" for item in items)
    return Described(values, items[0].start(), items[-1].end())


_SHELLS = re.compile(
    r"(?:(?<!\w)\[(?:He|Ne|Ar|Kr|Xe|Rn)\]\s*)?(?<!\w)"
    r"(?:\d[spdf](?:\^?\{?\d{1,2}\}?|[⁰¹²³⁴-⁹]{1,2})\s{0,2}){1,20}[.*]{0,3}\s*$"
)


def _shells(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the configuration that a sentence ends in: `[Ne] 3s¹`."""
    shells = _SHELLS.search(body, start, end)
    if shells is None or _denied(body[start : shells.start()]):
        return None
    return Described(shells[0].strip(" .*\n"), shells.start(), shells.end())


_ASKED = re.compile(
    r"(?i)\b(?:how many|in|into|to) (?P<unit>(?:percentage|basis) points?"
    r"|[a-zµ°]+[²³]?(?:/[a-z]+[²³]?)?(?: per [a-z]+)?)(?!\w)"
)
_VALUE = r"-?\d[\d,]*(?:\.\d+)?"
_NAME = r"[A-Za-zµ°]+[²³]?(?:/[a-z]+[²³]?)?(?: [a-z]+)?"
_TWICE = re.compile(
    rf"(?<![\w.])(?<![-+−×*·/÷]\s)(?P<first>(?P<value>{_VALUE}) (?P<one>{_NAME}?))(?:\s?=\s?"
    rf"|,? ?\(?(?:i\.e\.|that is|which is|(?P<either>or)"
    r"|equivalently|d\. ?h\.|das heißt|soit|c['’]est-à-dire|es decir|o sea|ou seja|cioè|то есть"
    r"|=),? ?| \()"
    rf"(?P<second>(?P<same>{_VALUE}) (?P<two>{_NAME}))\)?[\s.*!]*$"
)


def _twice(prompt: str, body: str, start: int, _: int) -> Described | None:
    """Find a value that is said in two units, the one that is asked last: `9000 seconds, i.e. 150
    minutes`. Whether the two are equal is left to the comparison.
    """
    said = _TWICE.search(body, start)
    if said is None or _denied(body[start : said.start()]):
        return None
    asked = {_unit(match["unit"].lower()) for match in _ASKED.finditer(prompt)}
    named = [_unit(said[name]) in asked for name in ("one", "two")]
    if named[0] == named[1]:
        return None
    group, other = ("first", "second") if named[0] else ("second", "first")
    value = said["value" if named[0] else "same"]
    if all(dimension(_unit(said[name])) for name in ("one", "two")):
        value = f"{said[other]} = {said[group]}"
    elif said["either"]:
        return None
    return Described(value, *said.span(group))


def _unit(name: str) -> str:
    name = name.replace("²", "^2").replace("³", "^3")
    return unit_symbol(name) or name.removesuffix("s")


_DECIDED = re.compile(
    r"\b(?P<verdict>(?:fail(?:ed)? to|do not|don['’]t|cannot|can['’]t) reject|reject)\s+(?:the )?"
    r"(?:null(?: hypothesis)?|\$?H_?\{?0\}?\$?|H₀)(?:,? \$?H_?\{?0\}?\$?| \(H₀\))?[\s.*!]*$"
)
_SUPPOSED = re.compile(
    r"(?i)\b(?:if|would|whether|when|should we|could|might|not enough to|wrong|never|claims?)\b"
)


def _decision(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the decision that a sentence ends in: `so we fail to reject the null hypothesis`."""
    said = _DECIDED.search(body, start, end)
    if said is None or _SUPPOSED.search(body, start, said.start()):
        return None
    text = "Reject H_0" if said["verdict"] == "reject" else "Do not reject H_0"
    if text == "Reject H_0" and DENIAL.search(body[start : said.start()]):
        return None
    return Described(text, *said.span())


_RANKED = re.compile(
    r"(?i)\W*(?:(?:so|thus|hence|therefore),? )?the (?P<rank>first|second|third|fourth|fifth)"
    r" (?:option|choice|answer|statement|one)\b(?: \([^()]{1,20}\))? is (?:the )?"
    r"(?:correct|right|true)(?: one| answer| option| choice)?[\s.!*]*$"
)
_RANKS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth",
)  # fmt: skip


def _ranked(prompt: str, body: str, start: int, end: int) -> Described | None:
    """Find the number or letter of the option in `the second option is correct`."""
    said = _RANKED.match(body, start, end)
    if said is None:
        return None
    place = _RANKS.index(said["rank"].lower())
    marks = re.findall(r"(?m)(?:^|\s)\(?([1-5]|[A-E])[).:]\s", prompt)
    is_list = marks in (list("12345"[: len(marks)]), list("ABCDE"[: len(marks)]))
    return Described(marks[place], *said.span("rank")) if is_list and place < len(marks) else None


def _run(_: str, body: str, start: int, end: int) -> Described | None:
    """Find `all integers from -4 to 4` at the end of a sentence, for a question for such."""
    said = _RUN.search(body, start, end)
    before = body[start : said.start()] if said else ""
    if said is None or _denied(before) or _OPEN.search(body[start:end]):
        return None
    if not _LEADS_TO.search(before):  # `We test all integers from 1 to 4`
        return None
    return Described(said["said"], *said.span("said"))


_LEADS_TO = re.compile(
    r"(?:^|\b(?:are|is|be|exactly|get|solves?|(?:solved|satisfied|met|given) by)|[:=∈])[\s*$]*$"
)
_RUN = re.compile(
    r"(?P<said>(?:all|every|each|the) (?:of the )?(?:even |odd )?(?:positive )?(?:integers?|whole"
    r" numbers?|natural numbers?)(?: [a-z])?,? (?:from )?[-−]?\d+ (?:to|through|up to(?: and"
    r" including)?) [-−]?\d+(?:,? \(?inclusive\)?)?)[\s.*!]*$"
)


def _numbered(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the only option of a sentence by its number in brackets: `So it is (3).`"""
    said = list(_BY_NUMBER.finditer(body, start, end))
    others = _BY_NUMBER.sub("", body[start:end])
    if len(said) != 1 or re.search(r"\d", others) or denied(body, start, end, *said[0].span()):
        return None
    return None if _SUPPOSED.search(others) else Described(said[0][0], *said[0].span())


_BY_NUMBER = re.compile(r"\([1-9]\)")
_TWO_LETTERS = re.compile(
    r"(?=.*(?<![A-Za-z])[xX](?![A-Za-z]))(?=.*(?<![A-Za-z])[yY](?![A-Za-z]))[^=]+=[^=]+"
)


def _equation(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the last equation in x and y of the closing sentence, or of the one before."""
    for _turn in range(2):
        for begin, stop in reversed(formulas(body, start, end)):
            if _TWO_LETTERS.fullmatch(body, begin, stop):
                is_denied = denied(body, start, end, begin, stop) or _FAILS.search(body[stop:])
                return None if is_denied else Described(body[begin:stop], begin, stop)
        end = len(body[:start].rstrip())
        start = closing_sentence(body[:end])[0]
    return None


def _function(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the only function that a text concludes with, before what only checks it."""
    for _turn in range(MAX_CHECKS):
        if functions := list(_DEFINED.finditer(body, start, end)):
            place = begin, stop = functions[0].span("said")
            is_claimed = _CLAIMS.search(body, start, begin) or _CLAIMS.search(body, stop, end)
            is_open = _FAILS.search(body[stop:]) or _GOES_ON.search(body[stop:])
            if not is_claimed or is_open or len(functions) > 1 or denied(body, start, end, *place):
                return None
            return Described(body[begin:stop], *place)
        end = len(body[:start].rstrip())
        start = closing_sentence(body[:end])[0]
    return None


MAX_CHECKS = 4
"""How many sentences at the end of a text are searched for a function."""
_DEFINED = re.compile(r"\$\s*(?P<said>[A-Za-z]\s?\(\s?[a-z]\s?\)\s*=[^=$]+)\$")
_CLAIMS = re.compile(r"(?i)\b(?:so|hence|thus|therefore|only|unique|must|answer|solution)\b")
_GOES_ON = re.compile(r"(?i)\b(?:so|hence|thus|therefore|also|another|second|other)\b")


_WHICH = re.compile(r"(?i)\b(?:which|what) (?P<noun>[a-z]{3,})(?! number\b)")
_ORDINAL = re.compile(
    rf"(?i)\b(?:(?P<n>\d+)(?:st|nd|rd|th)|(?P<word>{'|'.join(_RANKS)})) (?P<noun>[a-z]+)"
)


def _position(prompt: str, body: str, start: int, end: int) -> Described | None:
    """Find 7 in `so 33 is the 7th term`, for a question that asks which term it is."""
    asked = {match["noun"].lower() for match in _WHICH.finditer(prompt)}
    places = [
        match for match in _ORDINAL.finditer(body, start, end) if match["noun"].lower() in asked
    ]
    if len(places) != 1 or _denied(body[start : places[0].start()]):
        return None
    place = places[0]
    if not _IS_THE.search(body, start, place.start()) or _OPEN.search(body, place.end(), end):
        return None
    return Described(place["n"] or str(_RANKS.index(place["word"].lower()) + 1), *place.span())


_IS_THE = re.compile(r"\b(?:is|be|becomes?|comes|in|on|at) (?:exactly )?the[ *$]*$")
_OPEN = re.compile(r"\b(?:or|if|would|but)\b|[?=]")
_AT = re.compile(
    r"(?i)(?<![\w.:,])(?P<time>\d{1,2}(?::\d\d)? ?(?:[ap]\.m\.|[ap]m\b)|\d{1,2}:\d\d(?![\d:]))"
)


def _time(prompt: str, body: str, start: int, end: int) -> Described | None:
    """Find the time of day in `It is 11 p.m. in Tokyo`, if the sentence has only one."""
    # The points of `p.m.` end no sentence.
    line = body.rfind("\n", 0, end) + 1
    begin = line if body[line:start].count(". ") <= body[line:start].lower().count("m. ") else start
    times = list(_AT.finditer(body, begin, end))
    before = body[begin : times[0].start()] if times else ""
    if len({time["time"] for time in times}) != 1 or _denied(before) or _BESIDE.search(before):
        return None
    if any(map(str.isdigit, body[times[-1].end() : end])):
        return None
    return Described(times[0]["time"], *times[0].span("time"))


_BESIDE = re.compile(r"\b(?:not|if|before|after|until|from|than|or)\s*$")


def _count(prompt: str, body: str, start: int, end: int) -> Described | None:
    """Find the number of what the question counts, where a sentence has no later number: 8 in `so
    it has eight sides`, 0 in `so no real roots exist`.
    """
    kinds = _ASKED_KIND.findall(prompt)
    digits = [Spelled(m[0], *m.span()) for m in _COUNT.finditer(body, start, end)]
    spelt = [*spelled_numbers(body, start, end, alone=True)]
    none = [Spelled("0", *m.span()) for m in _NONE.finditer(body, start, end)]
    numbers = sorted([*digits, *spelt, *none], key=lambda number: number.start)
    numbers = [number for number in numbers if not _KNOWN.search(body, start, number.start)]
    if len(kinds) != 1 or not numbers:
        return None
    *others, counted = (_OF_KIND.match(body, number.end, end) for number in numbers)
    noun = _same_noun(counted, kinds[0])
    if counted is None or not noun or unit_symbol(noun):
        return None
    if any(_same_noun(other, kinds[0]) for other in others):
        return None  # `48 red marbles and 78 blue marbles`
    number = numbers[-1]
    place = number.start, number.end
    before, behind = body[start : number.start], body[counted.end() : end]
    if _LEFT_OPEN.search(f"{before}|{counted['noun']}|{behind}") or governed(body, start, *place):
        return None
    if number in none:
        is_some = DENIAL.search(before) or _SOME.search(behind)
        return None if is_some else Described("0", *place)
    is_other = denied(body, start, end, *place) or related(before)
    return None if is_other else Described(number.digits, *place)


def _part(_: str, body: str, start: int, end: int) -> Described | None:
    """Find the only fraction in words of a sentence, for a question for a fraction: `two thirds of
    the students do`.
    """
    parts = [number for number in spelled_numbers(body, start, end) if "/" in number.digits]
    if len(parts) != 1 or _FRACTION.search(body, start, end):
        return None
    place = parts[0].start, parts[0].end
    before = body[start : place[0]]
    is_open = _LEFT_OPEN.search(f"{_JOINT.split(before)[-1]}|{body[place[1] : end]}")
    is_other = is_open or denied(body, start, end, *place) or related(before)
    return None if is_other else Described(parts[0].digits, *place)


_FRACTION = re.compile(r"\d ?/ ?\d|\\[dt]?frac|[½⅓⅔¼¾⅕-⅞]|%|percent|prozent")
_JOINT = re.compile(r"[,;:]\s")


def _same_noun(counted: re.Match[str] | None, kind: str) -> str:
    """Return the last word behind a number that the question has in the noun that it counts."""
    words = counted["noun"].lower().split() if counted else []
    nouns = [word for word in words if len(word) > 2 and place_of(word, kind.lower()) >= 0]
    return nouns[-1] if nouns else ""


_ASKED_KIND = re.compile(
    r"(?i)(?:\bhow many|\bcombien d(?:e |['’])|\bwie ?viele|cuánt[oa]s|\bquant[oaie]s?|сколько)\s"
    r"+((?:(?!(?:are|is|were|was|do|does|did|have|has|had|can|could|will|would|must|should|of|in|on"
    r"|at|to|for|with|that|which|who|the|a|an|and|or|more|less|fewer|times|percent|per)\b)"
    r"[^\W\d_]++[ -]?){1,4})"
)
_COUNT = re.compile(r"(?<![\w.,])-?\d[\d.,]*(?:/\d+|e[-+]?\d+)?")
_NONE = re.compile(
    r"(?i)\b(?:no|keine?n?|aucune?|nessun[oa]?|ning[uú]na?|nenhuma?)(?=[\s*]+[^\W\d_])"
)
"""Words that a count of nothing has in the place of its number."""
_OF_KIND = re.compile(r"[\s*$]+(?P<noun>[^\W\d_]+(?:[ -][^\W\d_]+){0,2})")
_LEFT_OPEN = re.compile(
    r"(?i)\?|[<>≤≥=]|\b(?:if|unless|or|would|might|may|perhaps|maybe|probably|at (?:least|most)"
    r"|either|nearly|about|almost|more|fewer|less|than|others?|each|per|every|another|further"
    r"|longer|except|besides|instead|suppose|assume|wenn|oder|falls|si|ou|o|se|oppure|als|que|mehr"
    r"|plus|más|mais|più|autres?|otr[ao]s?|outr[ao]s?|altr[ie]|ander[en]*)\b"
)
"""Words that leave a count open, or make it one of other things."""
_KNOWN = re.compile(
    r"(?i)\b(?:the|these|those|all|both|his|her|its|their|our|my|first|last|next|die|den|les|los"
    r"|las|os|as|i|gli|le)\W*$"
)
"""Words before a count of what is spoken of already: `of the 12 apples`."""
_SOME = re.compile(
    r"\b(?:for|when|where|with|whose|that|(?<!, )which|(?<!, )who|among|between|but)\b"
)
"""Words that deny only some of what is counted."""
_OF_THEM = "how many|number|sum|product|values?|degree|coefficients?"
"""What may be asked of a function in place of itself."""
_Finder = Callable[[str, str, int, int], Described | None]
_CALLS: dict[_Finder, str] = {
    _bound: r"(?is)\A(?=.*(?:[<>≤≥]|\\[lg]eq?(?![a-z])|\\[lg]t(?![a-z])|inequalit))"
    r".*\b(?:solve|solutions?|which|what|find all)\b",
    _everywhere: r"(?i)\b(?:domain|range|for (?:which|what)|values? of|inequalit|solution set|where"
    r"|definitions|wertebereich|ungleichung|domaine|ensemble|inéquation|dom[ií]nio|inecuaci|inequaç"
    r"|disequazion|conjunto|insieme)|област|неравенств|定[义義]域|[值値]域|不等式|정의역|치역|부등식"
    r"|[<>≤≥]|\\(?:[lg]eq?|[lg]t)(?![a-z])",
    _roman: r"(?i)\broman (?:num|dig)|römisch|romain|romanos|romani\b|римск|[罗羅][马馬]"
    r"|ローマ|로마",
    _parity: r"_\{?n|\bcoefficient|\bn\b",
    _multiplicities: r"(?i)multiplicit",
    _shells: r"(?i)\bconfiguration",
    _twice: _ASKED.pattern,
    _decision: r"(?i)\breject|hypothes|\bsignifican|\bp-?value|H_?\{?0\b|H₀",
    _time: r"(?is)\b(?:what time|when (?:do|does|did|will|is|was)|at (?:what|which) hour)\b"
    r"(?!.*\bin (?:minutes|hours|seconds|days|years)\b)",
    _count: _ASKED_KIND.pattern,
    _part: r"(?i)\b(?:what|which) (?:fraction|part|portion|proportion|share)\b|\bbruchteil"
    r"|\bwelcher (?:teil|anteil)|\bquelle (?:fraction|part)|\bqué (?:fracción|parte)"
    r"|\bque (?:fração|parte)"
    r"|\b(?:che|quale) (?:frazione|parte)|какая (?:часть|доля)",
    _equation: r"(?i)\b(?:(?:re)?write|express|put|convert|bring)\b[^.?]{0,60}\by\s?=[^?]{0,60}"
    r"\bform\b|\b(?:(?:find|give|determine|write|state|what is)\b[^.?]{0,20}\bequation (?:of"
    r"|for)"
    r"|(?:find|give|what is) the (?:[a-z]+ )?line|die (?:Gerade|Gleichung der)|l'équation de"
    r"|la (?:retta|recta|droite|ecuación de)|a reta)\b",
    _function: rf"(?is)\b(?:find|determine)\b(?:(?!{_OF_THEM})[^.?]){{0,20}}\b"
    r"(?:functions?|polynomials?) (?:\$?\\?[a-z]\b|such|that|with|from|:)"
    rf"(?!.*\b(?:find|compute|calculate|determine|evaluate|what|give|state|{_OF_THEM})\b)",
    _position: _WHICH.pattern,
    _run: r"(?is)^(?!.*\b(?:how many|number of|sum|product|probability|average)\b)"
    r".*\b(?:integers?|whole numbers?|natural numbers?)\b",
    _numbered: r"(?is)\b(?:which|choose|select|option|correct)\b.*\(1\).*\(2\)",
    _ranked: r"(?i)\b(?:option|choice|statement|which|answer)\b",
}
_FINDERS = tuple((re.compile(asks), find) for find, asks in _CALLS.items())
"""What a question has to say for each kind of description."""


# --- gains and losses ---

_GAIN = re.compile(
    r"(?i)\b(?:gain|profit|winnings?|net return|payoff"
    r"|(?:net|percent\w*|overall) (?:change|result))\b"
)
_LOSS_ASKED = re.compile(r"(?i)\blos(?:s|es|e|t|ing)\b")
_LOSES = re.compile(
    r"(?i)\blos(?:s|es|e|ing|t)(?:\s+of|\s+is|\s+equals|\s*=|\s+about|\s+an average of"
    r"|\s+on average)*[\s$*({\\}]*$"
)
_A_LOSS = re.compile(
    r"(?is)(?:\\text\w*\s*\{)?(?:an? )?(?:expected |average |net )*loss of[\s}~]*"
    r"(?P<value>\\?\$?\s*\d[\d.,]*).*"
)
_AMOUNT = re.compile(r"[\s$\\]*(?P<value>\d[\d.,]*)(?!\d)")


def as_gain(prompt: str, before: str, answer: str) -> str:
    """Return a loss as a negative gain where the question asks for the gain, else the answer.

    >>> as_gain("What is the net gain?", "you can expect a loss of ", "$2.50")
    '-2.50'
    """
    if "los" not in before and "los" not in answer:
        return answer
    if not _GAIN.search(prompt) or _LOSS_ASKED.search(prompt):
        return answer
    loss = _A_LOSS.fullmatch(answer) or (_LOSES.search(before) and _AMOUNT.match(answer))
    return f"-{loss['value'].strip(' $.,').removeprefix(chr(92)).strip('$ ')}" if loss else answer
