"""Numbers in the words of other languages: `treinta y uno`, `einunddreißig`, `三十一`.

English words are read by the parser; the others are rewritten in digits before.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .vocabulary import DENIALS, FRACTION_WORDS, SCALES, UNITS_OF_NUMBER, words

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


def _numerals(languages: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, int]]:
    for counting, joint in languages:
        forms = [entry.split("/") for entry in counting.split()]
        yield from ((form, number) for number, some in enumerate(forms[:21]) for form in some)
        for tens, some in enumerate(forms[20:], start=2):
            for ten in some:
                yield ten, 10 * tens
                if tens == 10 or not joint:
                    continue
                for units in range(1, 20):
                    # `soixante et onze`, and in French alone a ten may be joined to a teen.
                    last = units < 10 or ten.startswith(("soix", "quatre"))
                    for word in forms[units] if last else ():
                        yield joint.format(ten=ten, one=word), 10 * tens + units
                        yield f"{ten} et {word}", 10 * tens + units
                        if joint == "{ten}{one}" and ten.isascii():  # `ventuno`
                            yield ten[:-1] + word, 10 * tens + units
                        if ten == "veinte":
                            yield f"veinti{word}", 10 * tens + units
    yield from zip(("veintidós", "veintitrés", "veintiséis"), (22, 23, 26), strict=True)


NUMERALS = {
    phrase.replace("-", " "): number for phrase, number in _numerals(_LANGUAGES)
} | dict.fromkeys(("ein dutzend", "una docena de", "uma dúzia de", "una dozzina di", "дюжина"), 12)
"""Every number from 0 to 100 by its words, with spaces for hyphens."""
# Of further languages, with `~` for a space within a number.
_FURTHER_LANGUAGES = (
    ("sıfır bir iki üç dört beş altı yedi sekiz dokuz on on~bir on~iki on~üç on~dört on~beş "
     "on~altı on~yedi on~sekiz on~dokuz yirmi otuz kırk elli altmış yetmiş seksen doksan yüz",
     "{ten} {one}"),
    ("zero jeden/jedna/jedno dwa/dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć "
     "jedenaście dwanaście trzynaście czternaście piętnaście szesnaście siedemnaście osiemnaście "
     "dziewiętnaście dwadzieścia trzydzieści czterdzieści pięćdziesiąt sześćdziesiąt "
     "siedemdziesiąt osiemdziesiąt dziewięćdziesiąt sto", "{ten} {one}"),
    ("nula jedna/jeden/jedno dva/dvě tři čtyři pět šest sedm osm devět deset jedenáct dvanáct "
     "třináct čtrnáct patnáct šestnáct sedmnáct osmnáct devatenáct dvacet třicet čtyřicet padesát "
     "šedesát sedmdesát osmdesát devadesát sto", "{ten} {one}"),
    ("số~không một/mốt hai ba bốn/tư năm/lăm sáu bảy tám chín mười mười~một/mười~mốt mười~hai "
     "mười~ba mười~bốn/mười~tư mười~năm/mười~lăm mười~sáu mười~bảy mười~tám mười~chín hai~mươi "
     "ba~mươi bốn~mươi năm~mươi sáu~mươi bảy~mươi tám~mươi chín~mươi một~trăm", "{ten} {one}"),
    ("nol satu dua tiga empat lima enam tujuh delapan sembilan sepuluh sebelas dua~belas "
     "tiga~belas empat~belas lima~belas enam~belas tujuh~belas delapan~belas sembilan~belas "
     "dua~puluh tiga~puluh empat~puluh lima~puluh enam~puluh tujuh~puluh delapan~puluh "
     "sembilan~puluh seratus", "{ten} {one}"),
    ("nul een/één twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien "
     "vijftien zestien zeventien achttien negentien twintig dertig veertig vijftig zestig zeventig "
     "tachtig negentig honderd", "{one}en{ten}"),
    ("noll ett/en två tre fyra fem sex sju åtta nio tio elva tolv tretton fjorton femton sexton "
     "sjutton arton nitton tjugo trettio fyrtio femtio sextio sjuttio åttio nittio hundra",
     "{ten}{one}"),
    ("null en/ett to tre fire fem seks sju/syv åtte ni ti elleve tolv tretten fjorten femten "
     "seksten sytten atten nitten tjue tretti førti femti seksti sytti åtti nitti hundre",
     "{ten}{one}"),
    ("nul en/et to tre fire fem seks syv otte ni ti elleve tolv tretten fjorten femten seksten "
     "sytten atten nitten tyve tredive fyrre halvtreds treds halvfjerds firs halvfems hundrede",
     "{one}og{ten}"),
    ("нуль один/одна/одне два/дві три чотири п'ять шість сім вісім дев'ять десять одинадцять "
     "дванадцять тринадцять чотирнадцять п'ятнадцять шістнадцять сімнадцять вісімнадцять "
     "дев'ятнадцять двадцять тридцять сорок п'ятдесят шістдесят сімдесят вісімдесят дев'яносто сто",
     "{ten} {one}"),
    ("μηδέν ένα/μία δύο τρία/τρεις τέσσερα/τέσσερις πέντε έξι επτά/εφτά οκτώ/οχτώ εννέα/εννιά δέκα "
     "έντεκα δώδεκα δεκατρία δεκατέσσερα δεκαπέντε δεκαέξι δεκαεπτά δεκαοκτώ δεκαεννέα είκοσι "
     "τριάντα σαράντα πενήντα εξήντα εβδομήντα ογδόντα ενενήντα εκατό", "{ten} {one}"),
    ("zero unu/una doi/două trei patru cinci șase șapte opt nouă zece unsprezece "
     "doisprezece/douăsprezece treisprezece paisprezece cincisprezece șaisprezece șaptesprezece "
     "optsprezece nouăsprezece douăzeci treizeci patruzeci cincizeci șaizeci șaptezeci optzeci "
     "nouăzeci o~sută", "{ten} și {one}"),
    ("ศูนย์ หนึ่ง/เอ็ด สอง สาม สี่ ห้า หก เจ็ด แปด เก้า สิบ สิบหนึ่ง/สิบเอ็ด สิบสอง สิบสาม สิบสี่ "
     "สิบห้า สิบหก สิบเจ็ด สิบแปด สิบเก้า ยี่สิบ สามสิบ สี่สิบ ห้าสิบ หกสิบ เจ็ดสิบ แปดสิบ เก้าสิบ "
     "หนึ่งร้อย", "{ten}{one}"),
    ("אפס אחת/אחד שתיים/שניים שלוש/שלושה ארבע/ארבעה חמש/חמישה שש/שישה שבע/שבעה שמונה תשע/תשעה "
     "עשר/עשרה אחת~עשרה שתים~עשרה שלוש~עשרה ארבע~עשרה חמש~עשרה שש~עשרה שבע~עשרה שמונה~עשרה "
     "תשע~עשרה עשרים שלושים ארבעים חמישים שישים שבעים שמונים תשעים מאה", "{ten} ו{one}"),
    ("صفر واحد/واحدة اثنان/اثنين ثلاثة/ثلاث أربعة/أربع خمسة/خمس ستة/ست سبعة/سبع ثمانية تسعة/تسع "
     "عشرة/عشر أحد~عشر اثنا~عشر ثلاثة~عشر أربعة~عشر خمسة~عشر ستة~عشر سبعة~عشر ثمانية~عشر تسعة~عشر "
     "عشرون ثلاثون أربعون خمسون ستون سبعون ثمانون تسعون مئة/مائة", "{one} و{ten}"),
    ("صفر یک دو سه چهار پنج شش هفت هشت نه ده یازده دوازده سیزده چهارده پانزده شانزده هفده هجده "
     "نوزده بیست سی چهل پنجاه شصت هفتاد هشتاد نود صد", "{ten} و {one}"),
    ("शून्य एक दो तीन चार पाँच/पांच छह/छः सात आठ नौ दस ग्यारह बारह तेरह चौदह पंद्रह सोलह सत्रह "
     "अठारह उन्नीस बीस तीस चालीस पचास साठ सत्तर अस्सी नब्बे सौ", ""),
)  # fmt: skip


_ALONE = re.compile(r"[\s*$]*(?:\\text\s*\{\s*)?(?P<words>[^\d\\{}$*.,;]{1,40}?)[\s}$*.।]*")
_SPELLINGS = str.maketrans("’ʼ-~șțë", "''  şţe")
_FURTHER = {
    phrase.translate(_SPELLINGS): number for phrase, number in _numerals(_FURTHER_LANGUAGES)
}
"""Numbers of languages that are read only where the number is the whole answer."""
_PARTS = {
    form: whole
    for forms in (
        "drittel viertel fünftel sechstel siebtel achtel neuntel zehntel",
        "tiers quart/quarts cinquième/cinquièmes sixième/sixièmes septième/septièmes "
        "huitième/huitièmes"
        " neuvième/neuvièmes dixième/dixièmes",
        "tercio/tercios cuarto/cuartos quinto/quintos sexto/sextos séptimo/séptimos octavo/octavos"
        " noveno/novenos décimo/décimos",
        "terço/terços quarto/quartos quinto/quintos sexto/sextos sétimo/sétimos oitavo/oitavos"
        " nono/nonos décimo/décimos",
        "terzo/terzi quarto/quarti quinto/quinti sesto/sesti settimo/settimi ottavo/ottavi "
        "nono/noni"
        " decimo/decimi",
        "треть/трети/третьих четверть/четверти/четвёртых пятая/пятых шестая/шестых седьмая/седьмых"
        " восьмая/восьмых девятая/девятых десятая/десятых",
    )
    for whole, some in enumerate(forms.split(), start=3)
    for form in some.split("/")
}
"""The parts of a whole by their words: thirds to tenths."""


def _fraction(words: list[str]) -> tuple[str, int]:
    """Return (the fraction that begins a list of words, how many they are), or ("", 0)."""
    for length in range(1, min(len(words), 5)):
        part = NUMERALS.get(" ".join(words[:length]))
        whole = _PARTS.get(words[length])
        if part and whole:
            return f"{part}/{whole}", length + 1
    return "", 0


_SIZES = [
    (word, size)
    for size, forms in (
        (10**6, "millionen millones milhões milioni миллионов миллиона million millions millón "
         "milhão milione миллион"),
        (1000, "tausend mille mila mil тысяча тысячи тысяч 천"),
    )
    for word in sorted(forms.split(), key=len, reverse=True)
]  # fmt: skip
"""Words of a size: what stands before one multiplies it, and what follows is added."""
_HUNDREDS = {
    form: 100 * number
    for forms in (
        "hundert/einhundert "
        + " ".join(f"{digit}hundert" for digit in _LANGUAGES[0][0].split()[2:10]),
        "cent "
        + " ".join(f"{digit}~cents/{digit}~cent" for digit in _LANGUAGES[1][0].split()[2:10]),
        "cien/ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos "
        "ochocientos novecientos",
        "cem/cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos "
        "novecentos",
        "cent " + " ".join(f"{digit}cento/{digit}cent" for digit in _LANGUAGES[4][0].split()[2:10]),
        "сто двести триста четыреста пятьсот шестьсот семьсот восемьсот девятьсот",
        "백/일백 이백 삼백 사백 오백 육백 칠백 팔백 구백",
    )
    for number, some in enumerate(forms.split(), start=1)
    for word in some.replace("~", " ").split("/")
    for form in (word, re.sub("os$", "as", word))
}
_HEADS = frozenset(
    phrase.split()[0][: 1 if phrase > "가" else 3]
    for phrase in [*NUMERALS, *_HUNDREDS, *(word for word, _ in _SIZES)]
)
"""How the first word of a number may begin."""


@lru_cache(maxsize=1024)
def _value(phrase: str) -> int | None:
    """Return the number that words with spaces for hyphens say, or None: those up to a hundred are
    known, and larger ones are put together at their largest size.
    """
    if phrase in NUMERALS:
        return NUMERALS[phrase]
    for word, size in _SIZES:
        head, matched, tail = phrase.partition(word)
        many = (_value(head.strip()) if head else 1) if matched else None
        if many and many < 1000 and (remainder := _rest(tail)) is not None and remainder < size:
            return many * size + remainder
    for length in range(len(phrase), 0, -1):
        hundreds = _HUNDREDS.get(phrase[:length])
        if hundreds and (remainder := _rest(phrase[length:])) is not None and remainder < 100:
            return hundreds + remainder
    return None


def _rest(tail: str) -> int | None:
    return _value(_JOINT.sub("", tail, 1)) if tail else 0


_JOINT = re.compile(r" ?(?:und|(?<= )(?:et|y|e|и) )?")
# Words that make the number before them another one: `zwei Drittel`, `deux ou trois`. Some of them
# are nouns of English, which digits may count.
_CHANGES = (
    DENIALS
    | {phrase for phrase, number in NUMERALS.items() if number != 1 and len(phrase) > 1}
    | words(
        "zu maximal minimal quadrat ou or à plus maximum minimum cube tiers quart quarts cents "
        "mille o u coma cubo medio media mil cientos centos honderd duizend hundra hundre "
        "тисяч тисячі alla половиной целых 반 정도 분의 천 만 억"
    )
)
MAX_WORDS = 9
"""The most words of a number."""
_FIRST = re.compile(
    r"(?P<open>[\s*$]*(?:\\(?:text|mathrm)\w{0,2}\s*\{\s*)?)"
    r"(?P<words>[^\W\d_]+(?:[ -][^\W\d_]+){0,8})(?![^\W\d_])"
)
_DIGITS = str.maketrans("零〇一二两兩三四五六七八九", "0012223456789")
_UNITS = {"十": 10, "百": 100, "千": 1000}
# `十三四` and `三四` are a number or the next one, and `一百二` may be 120: no single number.
_NO_NUMBER = re.compile(
    r"[1-9]\d|0(?!\d)|00|千[1-9](?![百十])|百[1-9](?!十)|十[1-9]?[十百千]|百[1-9]?[百千]|千[1-9]?千"
)
# `一共有六个`, `六つ`: words that only lead to a count, and the counter behind it, are dropped. Any
# other words may deny the count or bound it.
_COUNTED = re.compile(
    r"(?P<open>[\s*$]*(?:\\text\s*\{\s*)?)"
    r"(?:答案|结果|結果|所以|因此|一共|总共|總共|共计|共|[有是为為])*"
    r"(?P<words>[零〇一二两兩三四五六七八九十百千]+)[个個つ]?(?=\w{0,4}\W*$)"
)
# Words of English that are numbers elsewhere.
_ENGLISH = frozenset({"once", "due", "sei", "cent", "cents", "elf"})


def spelled(phrase: str) -> tuple[str, int] | None:
    """Return (the longest head of some words that is a number, its value), or None.

    >>> spelled("treinta y uno puntos"), spelled("thirty")
    (('treinta y uno', 31), None)
    """
    if not _HEADS.intersection((phrase[:3].lower().split(" ")[0], phrase[:1])):
        return None
    pieces = re.split(r"([ -])", phrase)
    for length in range(min(len(pieces), 2 * MAX_WORDS - 1), 0, -2):
        head = "".join(pieces[:length])
        number = _value(head.lower().replace("-", " ").replace("ún", "un"))
        tail = pieces[length + 1 :]
        article = number == 1 and tail != []  # `un cercle`, `eine Gerade`
        if number is not None and not article and not (head.lower() in _ENGLISH and tail == ["to"]):
            return head, number
    return None


def in_digits(answer: str) -> str:
    r"""Return an answer that begins with a number in words of another language, or a chain that
    ends in one, in digits; but not where words behind the number make it another one.

    >>> in_digits(r"\text{sechs Nullen}"), in_digits("三十一个"), in_digits("x = sechs")
    ('\\text{6 Nullen}', '31', 'x = 6')
    >>> in_digits("sechs Drittel"), in_digits("sechs Dutzend"), in_digits("没有六个")
    ('6/3', 'sechs Dutzend', '没有六个')
    """
    head, sign, said = answer.rpartition("=")
    alone = _ALONE.fullmatch(said)
    if alone and (known := _FURTHER.get(alone["words"].lower().translate(_SPELLINGS))) is not None:
        return f"{head}{sign}{known}"
    first = _FIRST.match(said)
    if first and (fraction := _fraction(re.split(r"[ -]", first["words"].lower())))[1]:
        pieces = re.split(r"([ -])", first["words"])
        tail = "".join(pieces[2 * fraction[1] - 1 :]) + said[first.end() :]
        if not tail.strip(" .}$*"):
            return f"{head}{sign}{first['open']}{fraction[0]}{tail}"
    if match := _COUNTED.match(said):
        number, end = _ideographic(match["words"]), match.end()
    elif (match := _FIRST.match(said)) and (numeral := spelled(match["words"])):
        number, end = numeral[1], match.start("words") + len(numeral[0])
    else:
        return answer
    if number is None or _CHANGES.intersection(re.findall(r"[^\W\d_]+", said[end:].lower())):
        return answer
    return f"{head}{sign}{match['open']}{number}{said[end:]}"


def _ideographic(signs: str) -> int | None:
    """Return the value of Chinese or Japanese signs of number: three or more digits by their places
    (`二〇二四`), or digits with tens, hundreds and thousands; None if they are no single number.
    """
    digits = signs.translate(_DIGITS)
    if digits.isdigit():
        return None if len(digits) == 2 else int(digits)
    if _NO_NUMBER.search(digits):
        return None
    total, digit = 0, 0
    for sign in digits:
        if sign in _UNITS:
            total, digit = total + (digit or 1) * _UNITS[sign], 0
        else:
            digit = int(sign)
    return total + digit


# --- the numbers of a sentence ---


class Spelled(NamedTuple):
    """A number in words, with its place in a text."""

    digits: str
    start: int
    end: int


def spelled_numbers(
    text: str, start: int = 0, end: int | None = None, *, alone: bool = False
) -> Iterator[Spelled]:
    """Yield the numbers in words of a text, in digits, without those of what is spoken of already
    (`the two roots`).

    Args:
        text: a text of any language that `spelled` knows.
        start: where the search begins.
        end: where the search ends; the end of the text if None.
        alone: also yield `one` where no other number stands beside it; it may be an article.

    >>> [number.digits for number in spelled_numbers("minus two, sixty-six and one half")]
    ['-2', '66', '1/2']
    >>> [number.digits for number in spelled_numbers("二十四颗糖, vingt-quatre, the two of them")]
    ['24', '24']
    """
    pieces = list(_PIECE.finditer(text, start, len(text) if end is None else end))
    place = 0
    while place < len(pieces):
        value, length = _read(text, pieces[place:])
        if (_ONE if alone else _LISTED).match(text, pieces[place].start()):
            value = value or "1"
        first, last = pieces[place], pieces[place + max(length, 1) - 1]
        ahead = max(start, first.start() - 24), first.start()
        if value and not (_SPOKEN_OF.search(text, *ahead) or _SCALED.search(text, *ahead)):
            sign = MINUS.search(text, max(start, first.start() - 12), first.start())
            begin = sign.start() if sign else first.start()
            yield Spelled(f"-{value}" if sign else value, begin, last.end())
        place += max(length, 1)


def _read(text: str, pieces: list[re.Match[str]]) -> tuple[str, int]:
    """Return (the number that begins a list of words, in digits; how many words it has), or ("",
    0).
    """
    if parts := _PART_OF.fullmatch(pieces[0][0]):
        whole, part = _ideographic(parts[1]), _ideographic(parts[2])
        return (f"{part}/{whole}", 1) if whole and part else ("", 0)
    words = [pieces[0][0].lower()]
    for piece, behind in itertools.pairwise(pieces[: 2 * MAX_WORDS]):
        if text[piece.end() : behind.start()] not in {" ", "-"}:
            break
        words.append(behind[0].lower())
    if _SIGNS.fullmatch(words[0]) and (number := _ideographic(words[0])) is not None:
        return str(number), 1
    if (fraction := _fraction(words))[1]:
        return fraction
    if words[:3] == ["half", "a", "dozen"]:
        return "6", 3
    if words[0] == "a" and words[1:2] and words[1] in _SCALES:
        words[0] = "one"
    total, group, length = 0, 0, 0
    for turn, word in enumerate(words):
        joins = word == "and" and group % 100 == 0 and group and words[turn + 1 : turn + 2]
        if joins and words[turn + 1] in UNITS_OF_NUMBER:
            continue
        if word in UNITS_OF_NUMBER and (not group or group % 100 == 0 or _joins(group, word)):
            group += UNITS_OF_NUMBER[word]
        elif word in _SCALES and length and SCALES[word] in {12, 100}:
            group *= SCALES[word]
        elif word in _SCALES and length:
            total, group = total + group * SCALES[word], 0
        else:
            break
        length = turn + 1
    if not length:
        known = spelled(" ".join(words[:MAX_WORDS]))
        if known is None or known[0] in _ENGLISH or known[1] == 1 or len(words[0]) < 2:
            return "", 0
        return str(known[1]), len(re.split(r"[ -]", known[0]))
    if words[length : length + 3] == ["and", "a", "half"]:
        return f"{total + group}.5", length + 3
    part = FRACTION_WORDS.get(words[length]) if length < len(words) else None
    if part and total == 0 and (group == 1 or words[length].endswith("s")):
        return f"{group}/{part}", length + 1
    return ("", length) if total + group == 1 and length == 1 else (str(total + group), length)


def _joins(group: int, word: str) -> bool:
    """Return whether a unit goes on with tens: `twenty one`."""
    return group % 10 == 0 and group % 100 > 10 and 0 < UNITS_OF_NUMBER[word] < 10


_ONE = re.compile(r"(?i)one\b(?!-)")
_LISTED = re.compile(r"(?i)one(?=(?:, | and )(?:two|three|four|five|six|seven|eight|nine|ten)\b)")
_SCALES = frozenset(SCALES) - {"lakhs", "crores"}
_PART_OF = re.compile(r"([二两三四五六七八九十百]+)分之([一二三四五六七八九十百]+)")
_PIECE = re.compile(
    r"[二两三四五六七八九十百]+分之[一二三四五六七八九十百]+"
    r"|[零〇一二两兩三四五六七八九十百千]{2,}|[^\W\d_零〇一二两兩三四五六七八九十百千]+"
)
_SIGNS = re.compile(r"[零〇一二两兩三四五六七八九十百千]{2,}")
_SCALED = re.compile(r"(?:\d|\b(?:por|pour|per))\s?$")  # `2.5 million`, `7 por cento`
MINUS = re.compile(r"(?i)(?<!\w)(?:minus|negative|moins|menos|meno|минус)\s$")
_SPOKEN_OF = re.compile(
    r"(?i)(?:(?<!\w)(?:the|these|those|all|both|his|her|its|their|our|only|first|last|next|any|each"
    r"|every|other|die|den|diese|les|ces|los|las|estos|estas|os|as|i|gli|le|все|эти)(?: only)?"
    r"|[每这這那第其])\W*$"
)
