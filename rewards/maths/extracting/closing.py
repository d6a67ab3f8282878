"""Answers without a mark: a short response as a whole, or the value that a closing sentence picks
or stresses.
"""

from __future__ import annotations

import itertools
import re

from ..reading.counting import MINUS, spelled
from ..reading.labels import labelled
from ..reading.vocabulary import NO_SOLUTION, NUMBER_WORDS, unit_symbol, words
from .candidate import Candidate, CandidateKind
from .coordinates import coordinates
from .expressions import last_expression
from .phrases import MAY_BE, NO_LIMIT, RETRACTION
from .picking import CHECKED_OPTION, PICKED
from .rows import assigned_apart, rows_of, table_row
from .running import ends_in_formula
from .sentence import CALCULATED, DENIAL, UNSURE, closing_sentence, denied, unanswered
from .spoken import cleaned, spoken
from .stance import stance
from .surface import crossed_out, lowered, without_decoration
from .verdicts import LAST_VERDICT, YES_NO, last_word

MAX_WHOLE = 200
"""The longest response, in characters, that may be an answer as a whole."""
MAX_VERBS = 8
"""How many words of a closing sentence are tried as the verb before a number in words."""
MAX_WORDS = 8
"""The most words in a response without digits that may be an answer as a whole."""
# Words of an argument: a short response with any of these and a value is prose.
_NARRATIVE = words(
    "there are then hence thus have get gives therefore find add so since is ist sind beträgt also "
    "somit daher folglich ergibt erhalten obtient obtenemos otteniamo получаем "
    "получим имеем est sont vaut donc alors es son entonces são portanto então sono quindi "
    "dunque è é равен равна равно значит"
)
_HOLDS_ANSWER = re.compile(r"\d|\\\(|\\\[|\$")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-zÀ-ÿͰ-῿]{3,}")
# Words that belong to formulas, and do not make a text prose.
_KNOWN = words(
    "sin cos tan cot sec csc log exp sqrt frac max min gcd lcm and inf infinity for all mod pmod"
)
# List marks, headings and arrows before an answer, and `qed` behind.
_DRESS = re.compile(
    r"(?i)^(?:an?\s+(?=[\d$\\])|[-*•]\s+(?=\S)|>\s+|#{1,6}\s+|(?:∴|⇒|⟹|=>|->|\\(?:therefore|implies"
    r"|Rightarrow)(?![a-z])|所以|因此|故|よって|ゆえに|したがって|따라서)[,、]?\s*)+|[\s,.]*\b(?:q\.?e\.?d\.?)$"
)


# --- the whole response ---


def whole(body: str) -> Candidate | None:
    """Return a short response that is not prose as a candidate, else None."""
    stripped = body.strip()
    if len(stripped) > MAX_WHOLE or not any(map(str.isalnum, stripped)):
        return None
    if _BLOCK.search(stripped):
        return None
    if len(CHECKED_OPTION.findall(stripped)) > 1:
        return None
    arrow = _ARROW.match(stripped)
    if arrow and not _PROSE.search(re.sub(r"\\[A-Za-z]+", "", arrow["before"])):
        stripped = arrow["value"]
    reasoned = YES_NO.match(stripped)
    if last_word(stripped) or (reasoned and reasoned["sum"]):
        return None
    stripped = table_row(stripped) or _chained(_STRESSED_END.sub(r"\1\2", _one_value(stripped)))
    if to_values := _TO_VALUES.fullmatch(stripped):
        stripped = to_values["value"].replace("∅", "\\emptyset")
    if MAY_BE.match(lowered(stripped[closing_sentence(stripped)[0] :])):
        return None
    if (
        not stripped
        or _is_prose(stripped)
        or _CONTINUED.search(stripped)
        or ends_in_formula(stripped)
    ):
        return None
    start = max(0, body.rfind(stripped))
    text = cleaned(_DRESS.sub("", without_decoration(stripped)).strip())
    text = _TITLED.sub("", _LABELLED.sub("", text))
    text = _HEADED.sub("", text, 1) if text.count("=") == 1 else text
    if text.startswith("_") and text.endswith("_"):
        text = text.strip("_")
    if not any(map(str.isalnum, text)):
        return None
    ignored = ""
    if stripped.endswith("?"):
        ignored = "it is asked"
    elif crossed_out(body, start, start + len(stripped)):
        ignored = "it is crossed out"
    # Cleaning may have changed the text; it is then placed at the start of the response.
    start += max(0, stripped.find(text))
    end = start + len(text)
    return Candidate(CandidateKind.WHOLE, text, start, end, start, end, ignored=ignored)


_BLOCK = re.compile(r"[\w.:;)]\s*\n\s*(?:\$\$|\\\[)\s*(?![=\s&])[^$]+(?:\$\$|\\\])[\s.]*\Z")
"""A displayed formula behind lines of text, which is the value alone."""


def _chained(text: str) -> str:
    """Return the last side of a calculation in plain text (`v = gt = 9.8 · 3 = 29.4 m/s`), with the
    one before if that has a unit as well, so that the two have to agree.
    """
    if "=" not in text or "$" in text or "\\" in text:
        return text
    if solved := _SOLVED.fullmatch(text):
        return solved["value"]
    *steps, last = _STEP.split(_ASIDE.sub("", text))
    first, *sides = last.split("=")
    if (
        len(sides) > 1
        and _CONSTANT.fullmatch(sides[-1])
        and _KNOWN.issuperset(_PROSE.findall(first))
    ):
        return sides[-1].strip()
    is_value = _VALUE.fullmatch(sides[-1] if sides else first)
    if not (is_value and all(map(_WORKED.fullmatch, sides[:-1]))):
        return text
    if (not sides and "=" in steps[0]) or (steps and len(sides) == 1 and _WORKED.fullmatch(first)):
        return last.strip()
    if not steps and len(sides) == 1 and _CONVERTS.match(first):
        return sides[0].strip()
    if len(sides) < 2 or not (_NAME.fullmatch(first) or _WORKED.fullmatch(first)):
        return text
    return "=".join(sides[-2:] if _UNIT.search(sides[-2]) else sides[-1:]).strip()


_STRESSED_END = re.compile(r"((?:=|→|⇒|=>)\s*)\*\*([^*\n]+)\*\*(?=[.\s]*\Z)")
_SOLVED = re.compile(
    r"(?:[^\n]*(?<![\w.]))?\d[\d.]* ?(?P<name>[a-z])(?![A-Za-z])[^,;=\n]{0,40}=[^,;=\n]{1,30}"
    r"(?:[,;→⟹⇒]|\s(?:and|und|et|y|e|и)\s)\s*(?:(?:so|hence|thus|therefore|also|donc)\s)?"
    r"(?P<value>(?P=name)\s?=[^=,;]*)"
)
"""The value of an unknown behind its equation: `4x = 14, x = 3.5`."""
_ASIDE = re.compile(r"\s\([^()\d]*\)(?=[.\s]*$)")
_STEP = re.compile(r";\s|→|⇒|\.\s(?=[A-Za-z] ?=)")
_NAME = re.compile(r"\s*[^\W\d_][\w'′]{0,5}(?:\([^()]*\))?\s*")
_WORKED = re.compile(r"(?:(?![,;:](?!\d)|[^\W\d_]{4}|\s(?:and|und|et|or)\s)[^=<>≤≥])+")
_UNIT = re.compile(r"\d[\s·]*(?!π|e-?\d)[^\W\d_]")
_VALUE = re.compile(
    r"\s*[-−]?\d[\d.,]*(?:e[-+]?\d+|\s?[·×x*]\s?10(?:\^[-−]?\d+|[⁻⁺]?[⁰¹²³⁴-⁹]+))?(?:\s?π)?"
    r"(?:₁₀|\s?(?:[A-Za-zµ°Ω%][\w/²³⁻¹·^]{0,9})?)[.\s]*"
)
_CONVERTS = re.compile(r"\s*\d[\d.,]* ?[^\W\d_][^=]*\s[×·*÷]\s(?!.*[^\W\d_]{4})")
"""A product of a value with a unit: `72 km/h × (1 h / 3600 s)`."""
_CONSTANT = re.compile(r"(?=[^√π]*[√π])[-−+·*/()\d.,√π²³½¼¾ ]+")
"""An exact constant, which a chain works out: `cos 75° = ... = (√6 − √2)/4`."""
_ARROW = re.compile(
    r"(?s)(?P<before>.*)(?:⟹|⇒|=>|(?<=\d)\s?(?:⟺|⇔|\\(?:iff"
    r"|Leftrightarrow)(?![a-z]))(?=[^<>≤≥]*[<>≤≥])"
    r"|\\(?:implies|Rightarrow"
    r"|Longrightarrow)(?![a-z]))\s*(?P<value>\S.*)"
)
_TO_VALUES = re.compile(
    r"[^=\n$\\]*(?:[^\W\d_]{2}|[一-鿿가-힣])[^=\n$\\]*(?:⟹|⇒|→|=>|->)\s*(?P<value>∅|\{[^{}]*\}|\\emptyset"
    r"|[-−]?\d[\d./]*(?:[,;] [-−]?\d[\d./]*)+)[.\s]*"
)
"""Words and a set or a list behind an arrow: `no common elements → ∅`."""
_LABELLED = re.compile(
    r"(?i)(?<!\w)(?:A|ans\.?|tl;?dr|\[?(?:(?:so|the|my|our|final|total|correct|this is|required"
    r"|overall)\s+)*(?:rounded(?: to [\w ]{3,30})?|answer|count|total|sum"
    r"|value|result|number)\]?)(?::\s+|(?<=\])\s+)(?=[-\d$\\(]|[A-Za-z]\s?[=≈])"
)
"""A heading in the line of its value: `Our final count: 441`."""
_TITLED = re.compile(
    r"(?:[^\W\d_]{2,} ){0,4}[^\W\d_]{2,}:\s+"
    r"(?=[-−\d(][-−\d.,;/ +*·×÷=()]*(?:(?<=\d) ?[A-Za-zµ°][\w²³/]{0,9})?\W{0,2}$"
    r"|\$(?:\\left)?\\?[{(\[](?:[^A-Za-z$]|\\[A-Za-z]+)*\$\.?$)"
)
_EXPLAINS = re.compile(
    r"(?is)\W*(?:explanation|reason(?:ing)?|because|since|proof|justification|solution|work"
    r"|steps?|why"
    r"|check|explication|begründung|explicación|объяснение|解析|理由|说明)\b.*"
)
_CONTINUED = re.compile(r"\\\\[^&\\]{0,40}&\s*=|\w\s*\\begin\{align")
"""Rows of a calculation, of which the last is the value."""
_CONCLUDES = re.compile(r"(?i)\W*(?:so|hence|thus|therefore)\b")
_PART = re.compile(r"\W*(?:[a-h1-9]|i{1,3}|iv)\)")
_UNFINISHED = re.compile(r"(?:,|\\\\|and|or|^[^$]*\$\$)\Z|^\\[\[\]]\Z")
_DISPLAY = re.compile(r"(?s)\$\$(?:(?!\$\$).)+\$\$|\\\[(?:(?!\\\]).)+\\\]")
_ASSIGNS = re.compile(r"\W*([A-Za-z](?:_\{?\w+\}?)?)\s*=[^=]*")


def _one_value(text: str) -> str:
    """Return the line of a short response that is its value: the last, or the one before an
    explanation. Lines that belong together stay one text.
    """
    joined = _DISPLAY.sub(lambda formula: " ".join(formula[0].split()), text)
    lines = [line.strip() for line in joined.split("\n") if line.strip()]
    if len(lines) < 2:
        return text
    if letters := _several_of_a_letter(lines):
        return letters
    explained = [n for n, line in enumerate(lines) if n and _EXPLAINS.fullmatch(line)]
    if explained and not any(map(_CONCLUDES.match, lines[explained[0] :])):
        del lines[explained[0] :]
    names = [match[1] if (match := _ASSIGNS.fullmatch(line)) else "" for line in lines]
    together = (
        all(map(_PART.match, lines))
        or ("" not in names and len(set(names)) == len(lines))
        or any(line.count("{") != line.count("}") or _UNFINISHED.search(line) for line in lines)
    )
    if len(lines) > 1 and (together or any(map(_is_prose, lines))):
        return text if together else ""
    if _HOLDS_ANSWER.search(lines[-1]):
        return lines[-1]
    # Words behind a line that has a value, or states an equation, are a remark.
    is_long = len(lines[-1].split()) > 1 or lines[-1].endswith("!")
    remark = is_long and any(map(_VALUED.search, lines[:-1]))
    return "" if remark else text


def _several_of_a_letter(lines: list[str]) -> str:
    """Return the lines as one list where they give one letter a different number each, or are
    numbers behind bullets; else "".
    """
    rows = [match for line in lines if (match := _NUMERAL_ROW.fullmatch(line))]
    if len(rows) != len(lines) or len({row["name"] for row in rows}) > 1:
        return ""
    values = {row["value"] for row in rows}
    return ", ".join(row["row"] for row in rows) if len(values) == len(rows) else ""


_NUMERAL_ROW = re.compile(
    r"(?:[-*•]\s+)?\$?(?P<row>(?:(?P<name>[A-Za-z])\s?=\s?)?(?P<value>[-−]?\d[\d.]*(?:/\d+)?))\$?[.,;]?"
)
_VALUED = re.compile(r"[=≈].*\d|\$")
"""A line with a value of a name, or a formula."""


# --- several values ---


def listed_values(body: str, count: int, prompt: str = "") -> Candidate | None:
    """Return the answer of a response to a question for `count` values: the lines that end it, if
    each names a value, the formulas that its last sentence joins, or what it works out for each of
    the letters that the question asks for; None where there are not so many.
    """
    if count in {2, 3} and (point := coordinates(body, count)):
        return point
    if (listed := rows_of(body, count)) and not _STEPS.search(body, listed.start):
        around = body[: listed.start].rstrip()[-120:], body[listed.start :]
        if not any(map(_DISOWNS.search, around)):
            return listed
    apart = assigned_apart(prompt, body, count)
    if apart and not _DISOWNS.search(body, apart.start):
        return apart
    joined = last_expression(body, joins=True)
    if joined is None or joined.void or joined.text.count("=") != count:
        return None
    start = closing_sentence(body)[0]
    if _DISOWNS.search(body, start, joined.start) or stance(body, start, joined.start, joined.end):
        return None
    return joined


_DISOWNS = re.compile(
    r"(?i)\b(?:wrong|incorrect|reject\w*|discard\w*|false|invalid|extraneous|not|no|violat\w+"
    r"|guess\w*"
    r"|contradict\w*|either|or|claims?|instance|example|tr(?:y|ies|ied)|suppose|assume|if|unless)\b"
)
"""Words beside values that the writer does not claim."""
_STEPS = re.compile(r"\b(?:Step|Case|Check|Given|Note|Option|Total|Answer|Hence|Thus|Therefore)\b")


# `None of these`, `possible: A or C`: such a response picks no single letter.
_ALL_OR_NONE = re.compile(
    rf"(?i)\b(?:all|none|any|each|both|every) of\b|\b(?:possible|possibilities|candidates)\b"
    rf"|{DENIAL.pattern}"
)


def short_text(body: str) -> Candidate | None:
    """Return a short response without digits as a candidate, else None.

    The caller tries this when nothing else in the text is an answer.
    """
    stripped = body.strip()
    if len(stripped) > MAX_WHOLE or not any(map(str.isalnum, stripped)) or stripped.endswith("?"):
        return None
    if any(map(str.isdigit, stripped)) or len(_PROSE.findall(stripped)) > MAX_WORDS:
        return None
    if (
        RETRACTION.search(lowered(stripped))
        or UNSURE.search(stripped)
        or (_LETTERED.match(stripped) and _ALL_OR_NONE.search(stripped))
    ):
        return None
    start = body.find(stripped)
    end = start + len(stripped)
    return Candidate(CandidateKind.WHOLE, cleaned(stripped), start, end, start, end)


_IDEOGRAPHS = re.compile("[一-鿿぀-ヿ가-힣]")
"""A character of Chinese, Japanese or Korean."""
_SENTENCE = re.compile(r"[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω][^\W\d_A-ZА-Я]*(?:['’]s)?,?\s.*\d.*\.$")
_FIRST_PERSON = re.compile(r"(?:I(?:['’]\w+)?|(?:That|It)(?:['’]s| is))\s")
_LETTERED = re.compile(
    r"(?s)(?!\(?[A-J][).:]\s)(?!\W*(?i:option|choice|answer|letter)\W*[A-J]\W*$)(?!.*[\\=\d])"
    r"(?=.*\b[A-J]\b).*?\b[A-Za-z]{3,}\b"
)
"""Words around a capital letter that is not a choice: `A solution exists.`"""
_OPENED = re.compile(r"^[A-Za-z][A-Za-z ,]+(?:\$[^$]+\$|\\\(.+\\\))[.\s]*$")
"""A phrase before one formula: `In conclusion, $x = 7/2$.`"""


_GIVEN = re.compile(r"(?:At|For|If|When|With|Since|As)\s+\$[^$]+\$\s*,?\s*\$[^$]+\$[.\s]*$")
"""A case and what holds in it: `At $t = 2,$ $y = 5$.`"""


_SHOWN_LAST = re.compile(
    r"[^\W\d_]{2}[^\n]*(?:\$|\\\)|\d)[^\n\w]*\n\s*(?:\$\$[^$]+\$\$|\\\[[^\n]+\\\])[\s.]*$"
)
"""A line of words and formulas before a formula of its own: `Here $a = 6$.`, `$$S = 9$$`."""


def _is_prose(text: str) -> bool:
    """Return whether a text reads as sentences rather than as a single answer."""
    # The words below are counted in scripts that write words apart. A text of ideographs is taken
    # for a sentence as soon as it has a digit.
    if len(_IDEOGRAPHS.findall(text)) > 2:
        return bool(_nothing(text, 0, len(text))) or (
            any(map(str.isdigit, text)) and not labelled(text)
        )
    # Names of commands, and of plain arguments such as `\text{for all}`, are not words of prose.
    bare = re.sub(r"\\[A-Za-z]+\s*(?:\{[A-Za-z ]*\})?", " ", text)
    unknown_words = [word for word in _PROSE.findall(bare) if word.lower() not in _KNOWN]
    has_answer = _HOLDS_ANSWER.search(text) is not None
    least = 1 if text.count("$") > 3 else 2
    if (len(unknown_words) >= least and _SENTENCE.match(without_decoration(text).strip("*_"))) or (
        _LETTERED.match(text) or PICKED.search(text)
    ):
        return True
    # `so the day is Saturday` and `there are two roots` are read by `worded`, which takes the last
    # words alone.
    if not has_answer and (_CONCLUDED.search(text) or _nothing(text, 0, len(text))):
        return True
    if len(unknown_words) > 1 and (
        _count_in_words(text, 0, len(text)) or _subject_count(text, 0, len(text))
    ):
        return True
    if has_answer and (_FIRST_PERSON.match(text) or _WORKS.search(text)):
        return True
    if has_answer and unknown_words and DENIAL.search(bare) and "\\text" not in text:
        return True
    if _GIVEN.match(text) or (unknown_words and _SHOWN_LAST.search(text)):
        return True
    # The fewer words a text has, the more it takes to call it prose: a formula or a bold value
    # between words is the answer of a sentence, and the words are not part of the answer.
    return (
        len(unknown_words) > 5
        or (has_answer and re.search(r"[.!?]\s+[A-Z$]", text) is not None)
        or _LEFT_OUT.match(text) is not None
        or (
            has_answer
            and any(word.lower() in _NARRATIVE for word in re.findall(r"[^\W\d_]+", bare))
        )
        or (len(unknown_words) > 2 and ("$" in text or CALCULATED.search(text) is not None))
        or (len(unknown_words) > 1 and _GOES_ON.search(text) is not None)
        or (len(unknown_words) > 1 and re.search(r"\$.+\$|\*\*.+\*\*", text) is not None)
        or (len(unknown_words) > 0 and _OPENED.search(text) is not None)
    )


_WORKS = re.compile(
    r"(?i)\b(?:this|it|that|which) (?:holds|is true) for\b|=[^=]*\d[^=]*, (?:i\.e\.|(?:which|that)"
    r" (?:is|makes|gives|equals|comes)\b)|^(?:so )?only\b.*\bworks\W*$"
)
_LEFT_OUT = re.compile(
    r"(?:(?!≠|\\ne)[^$])*\$(?:(?!≠|\\ne)[^$])+\$[^$]*\$\s?[a-z]\s?(?:≠|\\neq?(?![a-z]))[^$]*\$\W*$"
)
"""A formula before the point that it leaves out: `$\\frac{1}{x - 3}$, for $x \\ne 3$`."""
_GOES_ON = re.compile(r"=\s*[-\d.,/]+(?: ?[^\s,\d=]{1,8})?, (?=[^\W\d_]{2})(?!\S+\s*=)")
"""A calculation before a clause in words: `28/80 = 0.35, that is 35 percent`."""


# --- the closing sentence ---

# `so the day is Saturday`: the last word of a conclusion without numbers.
_CONCLUDED = re.compile(
    r"(?<![Ii]f )\b(?i:so|hence|thus|therefore"
    r"|conclude that)\b,?\s[^.\d$\\]{1,60}?\s(?:is|are|was|on|be)\s+"
    r"(?:an?\s+|the\s+)?[*_]*"
    r"(?P<word>(?:(?:negative|minus) (?=infinity))?[A-Za-z][a-z-]*)[*_]*"
    r"(?: \(and not (?!certain|sure|necessar|always|proven|proved|correct|true|right)[a-z]+\))?"
    r"[.!]?\s*$"
)
# `100 days later it is a Friday`: a name behind the verb, unless the sentence denies.
_NAMED = re.compile(
    r"[^.$\\]{1,120}?\s(?:is|was|falls on|will be|comes|won by)\s+(?:an?\s+|the\s+)?"
    r"[*_]*(?P<word>[A-Z][a-z]{2,})[*_]*[.!]?[*_]*\s*$"
)
_NUMBERS = "|".join(sorted(NUMBER_WORDS, key=len, reverse=True))
# `So 25! ends with six zeros`: a verb, a number in words and what it counts, up to the end of the
# sentence. A number behind an article or a preposition is of things already spoken of.
_VERB = (
    r"\b(?:(?!this\b|\w+stens\b|his\b|its\b|as\b|us\b|plus\b|is one\b)\w{2,}s"
    r"(?: with| in| to)?|are|were|had"
    r"|have|got|get|be|need|leaving|giving|making|[a-z]{4,} of|hat(?: d(?:as|er|ie) \w+)?"
    r"|(?:es )?gibt(?: es)?|auf|[а-яё]{2,}|il y a|possède|compte|ont|hay|tienen?|há|tem|têm|ha"
    r"|ci sono|(?:sind|ist) es|sind|sont|son|são|sono|est|es(?! gibt)|ist|é|è|a)"
)
_COUNTS = re.compile(
    rf"(?i){_VERB}\s+(?:(?:exactly|only|just|equal to|about|also|donc|genau|exactamente|ровно)\s+)?"
    r"(?P<rest>[^\W\d_][^\d$=.,;:()*]{1,70})[.!]?"
    r"(?:;\s(?:es|it is|it's|c'est|das ist)\s[^;\d$]*)?\s*$"
)
_DERIVED = re.compile(
    r"(?i)\b(?:of(?! them\W*$)|or|and|than|times|percent|fewer|less|most|least|if|unless|not"
    r"|digits?|hundreds?|each|other|per|und|oder|ou|et|y|o|e|и|или|als|que|чем)\b"
)
"""Words behind a count that make it another number, or one of several."""
_STATED = re.compile(r"(?:=|\b(?:is|are|equals|gives|has|have|get|makes)\b)\s*[$\\(*{]*-?\d")
_AGAIN = re.compile(r",\s+(?:which|so|hence|thus|therefore|i\.e\.|that is)\b")
_ENGLISH_NUMBER = re.compile(
    rf"(?i)(?:(?:{_NUMBERS})\b(?:[ -]|$)(?:and (?:a )?(?=(?:{_NUMBERS})\b))?)+"
)
_SUBJECT = re.compile(
    r"(?i)\W*(?:(?:so|therefore|thus|hence|then|in total|in all|overall|altogether),?\s+)*"
    r"(?:exactly\s+)?"
    rf"(?P<n>(?:{_NUMBERS})\b(?:(?:[ -](?:and (?:a )?)?)(?:{_NUMBERS})\b)*)"
    r"(?P<noun>(?: [a-z]+){1,4}?)"
    r" (?:(?:are|is|were|was)\s(?:left(?! out)|needed|required|necessary|empty|free"
    r"|possible|available|enough|sufficient|made|played|formed|exchanged|in (?:all|total))"
    r"|(?:can|could) be (?:made|formed|drawn|chosen)|remain|satisfy|work|exist|take place|occur"
    r"|happen)"
    r"\b[a-z ]{0,30}[.!]?\s*$"
)
_NO_COUNT = words(
    "more extra in out tens hundredths tenths squared cubed groups pairs rows teams boxes ways"
)
"""Words behind a number that make it no count of what the sentence is about."""
_NOT_ALONE = re.compile(r"(?i)(?:one|a|an|half|third|quarter|thirds|dozen)\b")
# `so the limit doesn't exist`, `there are no real solutions`: the end of a sentence says that there
# is nothing to find.
_NOTHING = re.compile(
    r"(?i)(?:^|(?<=[,;.:!?\n])\s*+|\b(?:so|hence|thus|therefore|that)\s)[^,;.\d]{0,60}?(?P<word>"
    rf"(?:(?<!\w)|(?<=[一-鿿가-힣]))(?:no (?!other|more|further)\w+ (?:solutions?|roots?)"
    rf"|{NO_SOLUTION})"
    r"(?=[.!*。]*\s*$)"
    r"|(?<=\blimit )(?:does not|doesn['’]t) exist(?=[.!*]*\s*$))"
)
_ABSENT = re.compile(
    r"\b(?:no|not|keine?|pas|aucune|sin|sem|não|non|nessuna|senza|нет|не имеет|empty)\b|n['’]t\b"
    r"|[没沒无無없]|ない|なし"
)


def _nothing(body: str, start: int, end: int) -> re.Match[str] | None:
    """Return the words at the end of a sentence that say that there is nothing to find."""
    return _NOTHING.search(body, start, end) if _ABSENT.search(body, start, end) else None


# Words that conclude a response without answering: `So the statement is proved`.
_COMMENTS = words(
    "correct right valid satisfied complete done proved proven finished possible it this that"
)
_EMPHASIS = re.compile(
    r"(?!\*\})(?<![A-Za-z0-9)}])(\*{1,3}|`)(?=[^\s*`])([^*`\n]{1,120}?)(?<=\S)\1(?![A-Za-z0-9({])"
)


def worded(body: str) -> Candidate | None:
    """Return a word that answers the question: `No, since 91 = 7 * 13`, `so the day is Saturday`;
    or None.
    """
    word_match = YES_NO.match(body) if len(body) <= 2 * MAX_WHOLE else None
    word_match = word_match or last_word(body)
    start, end = closing_sentence(body)
    word_match = word_match or LAST_VERDICT.match(body, start, end)
    if word_match is None:
        if counted := _subject_count(body, start, end):
            return counted
        if missing := NO_LIMIT.match(body, start, end):
            place = missing.start("said"), end
            return Candidate(CandidateKind.WORD, "does not exist", *place, start, end)
        word_match = (
            _nothing(body, start, end)
            or _CONCLUDED.search(body, start, end)
            or _NAMED.match(body, start, end)
        )
        if word_match is None and (count := _count_in_words(body, start, end)):
            return count
    if word_match is None or word_match["word"].lower() in _COMMENTS:
        return None
    ignored = ""
    if word_match.re is _NOTHING and _unclaimed(body, start, word_match.start("word")):
        ignored = "it is denied or supposed"
    return Candidate(
        CandidateKind.WORD, word_match["word"], *word_match.span("word"), *word_match.span(),
        ignored=ignored,
    )  # fmt: skip


_SUPPOSED = re.compile(
    r"(?i)\W*(?:if|when|unless|si|wenn|falls|se|если|若|如果)\b[^,;]*,(?!.*\b(?:so|hence|thus"
    r"|therefore|that)\b)"
    r"[^;]*"
)


def _unclaimed(body: str, start: int, place: int) -> bool:
    """Return whether a sentence denies or supposes what a word at `place` itself denies: `does not
    have no solutions`.
    """
    before = body[start:place]
    denials = DENIAL.finditer(f"{before}x")
    denied_twice = any(denial.end() > len(before) for denial in denials)
    return denied_twice or _SUPPOSED.fullmatch(before) is not None


def _subject_count(body: str, start: int, end: int) -> Candidate | None:
    """Return the number in words of the subject of a closing sentence (`So two roots are real`)."""
    counted = _SUBJECT.match(body, start, end)
    if counted is None or _NOT_ALONE.fullmatch(counted["n"]):
        return None
    first, *others = counted["noun"].split()
    if _DERIVED.search(" ".join([first, *others])) or _NO_COUNT.intersection([first, *others]):
        return None
    place = counted.span("n")
    ignored = "it is denied" if denied(body, start, end, *place) else ""
    return Candidate(CandidateKind.WORD, counted["n"], *place, start, end, ignored=ignored)


def _count_in_words(body: str, start: int, end: int) -> Candidate | None:
    """Return the number in words that a closing sentence counts with (`there are two roots`), or
    None. A value in digits that the sentence states comes first.
    """
    body = _STRESSED_WORD.sub(lambda word: word[0].replace("*", " "), body)
    place, length = start, 0
    for _ in range(MAX_VERBS):
        sentence = _COUNTS.search(body, place, end)
        if sentence is None:
            return None
        phrase, begin, place = sentence["rest"], sentence.start("rest"), sentence.start() + 1
        english = _ENGLISH_NUMBER.match(phrase)
        foreign = spelled(phrase) if english is None else None
        if length := english.end() if english else len(foreign[0]) if foreign else 0:
            break
    else:
        return None
    # `1800/12 = 150 minutes, which is two and a half hours`: the last clause says it again.
    again = [clause.end() for clause in _AGAIN.finditer(body, start, begin)]
    if _STATED.search(body, (again or [start])[-1], begin):
        return None
    if MINUS.search(body, start, begin):
        return None
    behind = phrase[length:]
    alone = _NOT_ALONE.fullmatch(phrase[:length].strip())
    if alone or _DERIVED.search(behind) or "-" in behind:
        return None
    stop = begin + length
    unit = re.match(r"\s*(?:(?:square|cubic)\s+)?[A-Za-z]+", behind)
    if unit and unit_symbol(unit[0].split()[-1]):
        stop += unit.end()
    ignored = "it is denied" if denied(body, start, end, sentence.start(), stop) else ""
    text = body[begin:stop].strip()
    return Candidate(CandidateKind.WORD, text, begin, stop, start, end, ignored=ignored)


_OTHERS = re.compile(
    r"(?i)\b(?:candidates?|poles?|possib\w+|exclud\w+|test\w*|cases?|false|wrong|incorrect|not"
    r"|either)\b"
)
"""Words that make stressed values other things than the answer."""


_BETWEEN_VALUES = re.compile(r"\s*(?:,\s*)?(?:and|und|et|y|e|и)?\s*")
_ARE = re.compile(r"\b(?:are|sind|sont|son|são|sono|равны)\b")
_STRESSED_WORD = re.compile(r"(?<![*\w])(\*{1,2})[^\W\d_]+(?:[ -][^\W\d_]+)?\1(?![*\w])")
_STRESSED_SENTENCE = re.compile(
    r"(?:The|It|So|This|They|He|She|We|There|You|I|One|Each|In|Thus|Hence|Therefore)\s(?:[a-z]+\s)+"
    r"|[A-ZÀ-ÞА-Я][^\W\d_]*\s(?:[^\W\d_A-ZÀ-ÞА-Я]+\s){2,}"
    r"|[A-ZÀ-ÞА-Я][^\W\d_]*\s(?:[^\W\d_]+\s)++\d[\d.,]*+\s[^\W\d_]++"
    r"(?: [^\W\d_]++)*+[.!]?$"
)
"""A whole sentence in bold, of which a lower rank takes the value."""


def stressed(body: str) -> Candidate | None:
    """Return the only value in bold in the closing sentence, as in `earned **$10** for 50 minutes`,
    or None.
    """
    start, end = closing_sentence(body)
    if refusal := unanswered(body, start, end):
        return refusal
    emphases = [
        emphasis
        for emphasis in _EMPHASIS.finditer(body, start, end)
        if _HOLDS_ANSWER.search(emphasis[2])
        and not _STRESSED_SENTENCE.match(emphasis[2])
        and not denied(body, start, end, *emphasis.span())
    ]
    if not emphases or _HOLDS_ANSWER.search(body[end:]):
        return None
    first, last = emphases[0], emphases[-1]
    if len({emphasis[2] for emphasis in emphases}) != 1:
        gaps = [body[a.end() : b.start()] for a, b in itertools.pairwise(emphases)]
        are_values = _ARE.search(body, start, first.start())
        if not are_values or not all(map(_BETWEEN_VALUES.fullmatch, gaps)):
            return None
        if body[last.end() : end].strip(" .!*") or _OTHERS.search(body, start, first.start()):
            return None
        text = ", ".join(emphasis[2].strip("., ") for emphasis in emphases)
        return Candidate(
            CandidateKind.EMPHASIS, text, first.start(2), last.end(2), first.start(), last.end()
        )
    label = _HEADED.match(last[2])
    start, text = last.start(2) + label.end() if label else last.start(2), last[2]
    text = spoken(text[label.end() :] if label else text, 0).text or text
    return Candidate(CandidateKind.EMPHASIS, text, start, last.end(2), *last.span())


_HEADED = re.compile(r"\A[^\W\d_]{3,}(?: [^\W\d_]+){0,3} ?= ?(?=[-−\d$\\])")
"""The name in words before a value in bold: `**Speed = 10 m/s**`."""
