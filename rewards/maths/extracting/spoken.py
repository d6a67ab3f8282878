"""The end of an answer that was announced in words."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from ..reading.counting import in_digits
from ..reading.locales import MEASURE, joined_by_and
from ..reading.vocabulary import ALTERS, COUNTER
from .asides import claim_end
from .candidate import MAX_ANSWER
from .languages import LANGUAGES
from .phrases import REASON
from .surface import before_decoration, without_decoration

MAX_SENTENCES = 40
MAX_LISTED = 64
# Quotes, arrows, emoji and list marks before the value.
_LEAD = re.compile(
    r"(?:[\s:>\"“”«»„`‘∴】【』「『➜➔✅✔✓👉→⇒️]|#{1,6}\s|(?<=\n)[-*•]\s+|=>|[—–](?=\s)|-\s(?=\D)"
    r"|\}(?=\s))*+"
)
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3})(?=[^\s*_])([^\n]{1,120}?)(?<=[^\s])\1(?![\w*(^])")
_MATH = re.compile(
    r"(?s)\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$((?:[^$\\]|\\.)+?)\$(?!\d)"
)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer|letter"
    r"|\\text(?:bf)?\{)\s*)?\(?([A-J])(?![^\W_])\)?+\}?[*_]*(?=\s*(?:$"
    r"|[.,;:!?)\n\"”—–]|\s-|because\b|since\b|as\b|and not\b|not\b|but\b|which\b|\(|car\b|weil\b"
    r"|porque\b|perché\b|так как|потому|です|である|입니다|이다"
    r"|因))(?!\s*[-+*/=^<>\d])(?!\.\d)(?!\s*\([A-J]\))"
)
# `A, B and C`: several letters, so that the first is not the choice.
_LISTED_LETTERS = re.compile(
    r"\(?[A-J]\)?[*_]*\s*(?:,|/|;|\bor\b|\band\b)+\s*(?:or\s|and\s)?[*_]*\(?[A-J]\b"
)
# What may follow a formula that is the whole answer: the end, or a reason.
_AFTER_FORMULA = re.compile(
    r"(?i)\s*(?:[.,;:*_\"”!?。…]|$|\n|\(|[—–-]\s|(?:because|since|as|which|where|so|for|from|by"
    r"|is|in"
    r"|not|and not|but|car|weil|porque|perché|pois)\b|(?:です|である|となり|になり|だ|입니다"
    r"|이다|이|가|так|т\."
    r"|потому))"
)
# What shows that the answer goes on after an emphasis or a formula.
_ANOTHER = re.compile(
    r"[*_\"”]*\s*(?:,\s*(?:and\s|or\s)?\s*(?=[-$\d*(\\])|(?:and|or|to|ou|oder|o|или|et"
    r"|und)\s+(?=[-$\d*(\\A-J])|/|;|または|또는|或)"
)
_AND = re.compile(r"\s*(?:,\s*and\b|,\s*or\b|,|\band\b|\bor\b)\s*(?=\$|\\\(|\\\[)")
_SENTENCE_END = re.compile(
    r"[.!?](?=\s+[A-ZÀ-ÖА-Я一-鿿가-힣\\*<(#\"]|\s*$|\s*\n)|(?<=[.!?]\$)(?=\s+[A-Z])|\n\s*\n|。"
    r"|\n(?=\S)|(?<=[\w)])\.(?=\s+\d+\s?=)"
)
# `the area is 5`: words before the value, cut off if these are prose.
_SAID = re.compile(r"[^,;]*\s(?:is|are|equals)\s+(?:equal to\s+|about\s+|approximately\s+)?(?=\S)")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_DIGIT = re.compile(r"\d")
_QED = re.compile(r"(?:(?<![\s,.])[\s,.]+)?\b(?:QED|Q\.E\.D\.?)$")
# `No, 91 = 7 * 13`: the word decides and a reason follows. `Not Monday but Tuesday`.
_DECIDED = re.compile(
    r"(?is)(?P<word>yes|no|true|false)[*_]*(?:[,:;—–]|\.(?!\s*\d))\s+(?=\S)"
    r"(?!.*\b(?:yes|no|true|false|unless|if|except|provided|only|(?:as|so) long"
    r"|when(?:ever)?|assuming|depend\w*|for|with|where|sometimes|usually|but|however|wait"
    r"|actually|or|sorry)\b)"
    r"|not\s+[A-Za-z]+,?\s+but\s+(?P<other>[A-Za-z]+)\W*$"
)
_POWER = re.compile(r"[\w)\]]\*\*[\w(]")
_EQUIVALENTLY = re.compile(r"\s{0,3},?\s{0,3}or\s{0,3},?\s{0,3}equivalently\s{0,3},?\s{0,3}")
_ARTICLE = re.compile(r"^A(?=\s(?!and\b|or\b|because\b|since\b|is\b|as\b|not\b|but\b)[a-z]{2})")
"""Matches the article "A" in front of words, which is not a choice letter."""
_LETTERS = re.compile(r"\(?[A-J]\)?(?:\s*(?:(?:,\s*)?(?:and|or)|[,/&])\s*\(?[A-J]\)?)+")
_BEHIND = re.compile(
    "(?:" + "|".join(language.behind for language in LANGUAGES if language.behind) + r").{0,12}$"
)
# `四十一元,即41元`: the value again, in digits.
_AGAIN = re.compile(
    r"^(?!.*(?:[至最][少多大小]|不|没|約|约|大概|以|或))[^\d$\\]{1,40}[,\uff0c]\s*(?:即|也就是"
    r"|すなわち|つまり|즉)\s*(?=-?[\d$\\])"
)
# A number with a counter word of another script (`12个`), but not `12以上` (at least 12).
_COUNTED = re.compile(
    rf"(?:^|(?<![不非])[共有为是需])(-?\d[\d,]*(?:\.\d+)?)\s?(?=(?:{COUNTER})|[\u0400-\u04ff])"
    rf"(?!\w{{0,11}}(?:{ALTERS})|или|не\b|млн|млрд|тыс)[ЀӿЀ-ӿ぀-ヿ一-鿿가-힣]{{1,12}}$"
)
# A short sentence of ideographs around one number: `应找回44.5元`, without a word that bounds it.
_ONLY = re.compile(
    r"(?!.*(?:不|非|无|没|超|至少|最多|至多|约|以|未|或|大于|小于|倍(?!数)|少|多|第|余|除|ない|約|第"
    r"|아니|약))"
    r"(?:[^\Wa-zA-Z]{0,20}[^\W\da-zA-Z])?[^\W\da-zA-Z](-?\d[\d,]*(?:\.\d+)?(?:/\d+)?[元円원米克升秒]?)[^\W\da-zA-Z]{0,4}"
)


# `30 км`: a unit is no counter word, and belongs to the value.
_MEASURED = re.compile(
    rf"(?:^|(?<![不非])[共有为是需は이은는])(-?\d[\d.,]*\s?{MEASURE})(?:です|だ|입니다|이다)?$"
)


_STATED = re.compile(
    r"(?!.*(?:아니|않|약 |이상|이하|초과|미만|또는|보다|만약|면 ))[가-힣, ]{1,40}[은는이가] "
    r"(-?\d[\d,]*(?:\.\d+)?(?:/\d+)?"
    r"|\$[^$]+\$)"
)
"""A Korean sentence that ends in its only value: `따라서 구하는 확률은 1/6`."""
_REMARK = re.compile(
    r"(?<=\S)\s*\((?!(?:or|if|when|unless|for|only|provided)\b)[^()\n]*\b(?:would|will|is|are"
    r"|was|were)\s[^()\n]*\)[\s.]*$"
)
"""A sentence in brackets behind a value: `135° (8 of them would be 1080°)`."""


_SPELT_TWICE = re.compile(
    rf"(?P<words>[零一二两三四五六七八九十百千]+)(?P<unit>{COUNTER}?)\((?P<digits>\d+)\s?(?P=unit)\)"
)


def _once(twice: re.Match[str]) -> str:
    """Return a number in words with its digits in brackets (`四十八把(48把)`) in digits alone."""
    same = in_digits(twice["words"]) == twice["digits"]
    return f"{twice['digits']}{twice['unit']}" if same else twice[0]


class Spoken(NamedTuple):
    """An answer in words with offsets."""

    text: str
    start: int
    end: int
    asked: bool = False
    """Whether the sentence with the answer is a question."""


@lru_cache(maxsize=16)
def spoken(body: str, place: int) -> Spoken:
    """Return the answer that begins at `place`, up to the end of the sentence or of the only
    formula.

    Cached, since two nouns may announce one value.
    """
    ahead = body[place : place + MAX_ANSWER + 64]
    lead_match = _LEAD.match(ahead)
    lead = lead_match.end() if lead_match else 0
    start, end = _bounds(ahead, lead)
    text = ahead[start:end]
    is_question = ahead[end : end + 3].lstrip("*_$ ").startswith("?") or text.endswith("?")
    bare = cleaned(text)
    if bare != text and (bare_start := text.find(bare)) >= 0:
        start, end = start + bare_start, start + bare_start + len(bare)
    return Spoken(bare, place + start, place + end, is_question)


def _bounds(ahead: str, lead: int) -> tuple[int, int]:
    """Return where the answer begins and ends in `ahead`, after `lead` characters of decoration.

    The narrowest form that fits is taken: a number, an emphasised text, a choice letter, a formula
    or a list of formulas, and otherwise the sentence up to its end or a reason.
    """
    emphasis = _EMPHASIS.match(ahead, lead)
    if emphasis and not _ANOTHER.match(ahead, emphasis.end()):
        return emphasis.span(2)
    choice = _CHOICE.match(ahead, lead + (len(emphasis[1]) if emphasis else 0))
    if choice and not _LISTED_LETTERS.match(ahead, choice.start(1)):
        return choice.span(1)
    math = _MATH.match(ahead, lead)
    if math is not None:
        # The end of the list of formulas that begins with `math`: `$8$, $4$`.
        end = math.end()
        for _ in range(MAX_LISTED):
            joint = _AND.match(ahead, end)
            following = _MATH.match(ahead, joint.end()) if joint else None
            if following is None:
                break
            end = following.end()
        list_end = end if _AFTER_FORMULA.match(ahead, end) else math.end()
        if list_end > math.end():
            return lead, list_end
        if _AFTER_FORMULA.match(ahead, math.end()) and not _ANOTHER.match(ahead, math.end()):
            # Each of the four ways to write a formula has a group; one of these has matched.
            return next(span for i in range(1, 5) if (span := math.span(i)) != (-1, -1))
    end = _sentence_end(ahead, lead)
    remark = _REMARK.search(ahead, lead, end)
    end = remark.start() if remark else end
    values = [value for value in _EMPHASIS.finditer(ahead, lead, end) if _DIGIT.search(value[2])]
    outside = [ahead[lead : values[0].start()], ahead[values[-1].end() : end]] if values else []
    if len(values) == 1 and not _DIGIT.search(outside[0]) and not outside[1].strip(" ."):
        return values[0].span(2)
    claim = _SAID.match(ahead[:end])
    unsaid = claim and _DIGIT.search(claim[0]) and not _DIGIT.search(ahead, claim.end(), end)
    if claim and not unsaid and len(_PROSE.findall(claim[0])) > 1:
        lead = claim.end()
    if "," in ahead[lead:end] or ";" in ahead[lead:end]:
        end = claim_end(ahead, lead, end)
    if reason := REASON.search(ahead, lead, end):
        reason_start = len(ahead[: reason.start()].rstrip(" \n\t,;(-"))
        end = reason_start if ahead[lead:reason_start].strip(" *$(") else end
    return lead, end


def cleaned(text: str) -> str:
    """Return the text without emphasis, decoration and the words that some languages put after a
    value.
    """
    text = text.strip()
    if ("**" in text or "__" in text) and not _POWER.search(text):
        text = text.replace("**", "").replace("__", "").strip()
    text = _QED.sub("", text.rstrip('"”»`’')).rstrip()
    if bare := _DECIDED.match(text):
        text = bare["word"] or bare["other"]
    if "equivalently" in text:
        text = _EQUIVALENTLY.sub(" or ", text)
    text = _ARTICLE.sub("a", text)
    if _LETTERS.fullmatch(text):
        text = text.replace("(", "").replace(")", "")
    if text.isascii():
        return text
    text = before_decoration(without_decoration(text))
    text = _AGAIN.sub("", text)
    text = _BEHIND.sub("", _SPELT_TWICE.sub(_once, text)).strip()
    text = joined_by_and(text, foreign=True)
    count_match = _MEASURED.search(text) or _COUNTED.search(text) or _ONLY.fullmatch(text)
    if count_match := count_match or _STATED.fullmatch(text):
        text = count_match[1]
    return text.strip(" *_」』】")


def _sentence_end(ahead: str, start: int) -> int:
    for sentence_end in islice(_SENTENCE_END.finditer(ahead, start), MAX_SENTENCES):
        place = sentence_end.start()
        inside_math = (
            ahead.count("$", 0, place) % 2 == 1
            or ahead.count("\\[", 0, place) > ahead.count("\\]", 0, place)
            or ahead.count("\\(", 0, place) > ahead.count("\\)", 0, place)
        )
        if place > start and not inside_math:
            return place
    return len(ahead)
