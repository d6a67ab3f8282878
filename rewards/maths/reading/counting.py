"""Numbers in the words of other languages: `treinta y uno`, `einunddreißig`, `三十一`.

English words are read by the parser; the others are rewritten in digits before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# The numbers from 0 to 20 and then the tens, with the forms of a number joined by slashes; and
# how a one is joined to its ten.
_LANGUAGES = (
    ("null eins/ein/eine/einen zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
     "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig/dreissig vierzig "
     "fünfzig sechzig siebzig achtzig neunzig hundert/einhundert", "{one}und{ten}"),
    ("zéro un/une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze "
     "seize dix-sept dix-huit dix-neuf vingt trente quarante cinquante soixante soixante-dix "
     "quatre-vingts/quatre-vingt quatre-vingt-dix cent", "{ten}-{one}"),
    ("cero uno/un/una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce "
     "quince dieciséis diecisiete dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta "
     "setenta ochenta noventa cien/ciento", "{ten} y {one}"),
    ("zero um/uma dois/duas três quatro cinco seis sete oito nove dez onze doze treze "
     "catorze/quatorze quinze dezesseis/dezasseis dezessete/dezassete dezoito dezenove/dezanove "
     "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem/cento", "{ten} e {one}"),
    ("zero uno/un/una due tre quattro cinque sei sette otto nove dieci undici dodici tredici "
     "quattordici quindici sedici diciassette diciotto diciannove venti trenta quaranta cinquanta "
     "sessanta settanta ottanta novanta cento", "{ten}{one}"),
    ("ноль один/одна/одно два/две три четыре пять шесть семь восемь девять десять одиннадцать "
     "двенадцать тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать "
     "девятнадцать двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто "
     "сто", "{ten} {one}"),
    ("영 하나/한/일 둘/두/이 셋/세/삼 넷/네/사 다섯/오 여섯/육 일곱/칠 여덟/팔 아홉/구 열/십 "
     "열하나/열한/십일 열둘/열두/십이 열셋/열세/십삼 열넷/열네/십사 열다섯/십오 열여섯/십육 "
     "열일곱/십칠 열여덟/십팔 열아홉/십구 스물/스무/이십 서른/삼십 마흔/사십 쉰/오십 예순/육십 "
     "일흔/칠십 여든/팔십 아흔/구십 백", "{ten}{one}"),
)  # fmt: skip


def _numerals() -> Iterator[tuple[str, int]]:
    for counting, joint in _LANGUAGES:
        forms = [one.split("/") for one in counting.split()]
        yield from ((form, number) for number, some in enumerate(forms[:21]) for form in some)
        for tens, some in enumerate(forms[20:], start=2):
            for ten in some:
                yield ten, 10 * tens
                if tens == 10:
                    continue
                for one in range(1, 20):
                    # `soixante et onze`, and in French alone a ten may be joined to a teen.
                    last = one < 10 or ten.startswith(("soix", "quatre"))
                    for word in forms[one] if last else ():
                        yield joint.format(ten=ten, one=word), 10 * tens + one
                        yield f"{ten} et {word}", 10 * tens + one
                        if joint == "{ten}{one}" and ten.isascii():  # `ventuno`
                            yield ten[:-1] + word, 10 * tens + one
                        if ten == "veinte":
                            yield f"veinti{word}", 10 * tens + one
    yield from zip(("veintidós", "veintitrés", "veintiséis"), (22, 23, 26), strict=True)


NUMERALS = {phrase.replace("-", " "): number for phrase, number in _numerals()}
"""Every number from 0 to 100 by its words, with spaces for hyphens."""
MAX_WORDS = 4
"""The most words of a number."""
_FIRST = re.compile(
    r"(?P<open>[\s*$]*(?:\\(?:text|mathrm)\w{0,2}\s*\{\s*)?)"
    r"(?P<words>[^\W\d_]+(?:[ -][^\W\d_]+){0,3})(?![^\W\d_])"
)
_IDEOGRAPHIC = re.compile(r"[零〇一二两兩三四五六七八九十百千]+")
_IDEOGRAPHS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "两": 2, "兩": 2, "十": 10, "百": 100, "千": 1000,
}  # fmt: skip
# `一共有六个`, `六つ`: the words before the count and the counter behind it are dropped.
_COUNTED = re.compile(
    rf"(?P<open>[\s*$]*(?:\\text\s*\{{\s*)?)(?:[^\W\d_]{{0,8}}[有是为為])?"
    rf"(?P<words>{_IDEOGRAPHIC.pattern})[个個つ]?(?=[种種条次人名]?\w{{0,3}}\W*$)"
)
# Words of English that are numbers elsewhere.
_ENGLISH = frozenset({"once", "due", "sei", "cent", "elf"})


def spelled(words: str) -> tuple[str, int] | None:
    """Return (the longest head of some words that is a number, its value), or None.

    >>> spelled("treinta y uno puntos"), spelled("thirty")
    (('treinta y uno', 31), None)
    """
    pieces = re.split(r"([ -])", words)
    for length in range(min(len(pieces), 2 * MAX_WORDS - 1), 0, -2):
        head = "".join(pieces[:length])
        number = NUMERALS.get(head.lower().replace("-", " "))
        rest = pieces[length + 1 :]
        article = number == 1 and rest != []  # `un cercle`, `eine Gerade`
        if number is not None and not article and not (head.lower() in _ENGLISH and rest == ["to"]):
            return head, number
    return None


def in_digits(answer: str) -> str:
    r"""Return an answer that begins with a number in words of another language, in digits.

    >>> in_digits(r"\text{sechs Nullen}"), in_digits("三十一个"), in_digits("x = 3")
    ('\\text{6 Nullen}', '31', 'x = 3')
    """
    if match := _COUNTED.match(answer):
        return f"{match['open']}{_ideographic(match['words'])}{answer[match.end() :]}"
    match = _FIRST.match(answer)
    number = spelled(match["words"]) if match else None
    if match is None or number is None:
        return answer
    return f"{match['open']}{number[1]}{answer[match.start('words') + len(number[0]) :]}"


def _ideographic(signs: str) -> int:
    """Return the value of Chinese or Japanese signs of number: 三百二十 is 320."""
    total, digit = 0, 0
    for sign in signs:
        value = _IDEOGRAPHS[sign]
        if value < 10:
            digit = 10 * digit + value
        else:
            total, digit = total + (digit or 1) * value, 0
    return total + digit
