r"""Units, currencies, numerals and lists in the spelling of other languages.

A unit of another script becomes the unit's name here (`600円` is `600 yen`), and a decimal
comma becomes a point where the language or the numeral itself leaves no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from unicodedata import normalize

_NAMES = {
    "ruble": "₽|руб(?:\\.|л(?:ь|я|ей|ю|ях|ям|и))?|р\\.",
    "zloty": "zł(?:ot(?:y(?:ch)?|e))?",
    "rupee": "₹|रुपये|रुपए|रुपया",
    "yen": "円",
    "won": "₩|원",
    "yuan": "元(?:钱)?|人民币",
    "euro": "евро|ευρώ|ユーロ|欧元|유로",
    "real": "R\\$|reais|real(?![- ])",
    "degree": "度|도|градус\\w{0,2}|[Gg]rad(?![a-z])|grados?|degrés?|gradi|μοίρ(?:α|ες)|μοιρών"
    "|derece|stopni|độ|डिग्री|درجة",
    "percent": "por ?ciento|por cento|pour ?cent|[Pp]rozent|per ?cento|per cent|percent|procent"
    "|процент\\w{0,3}|パーセント|퍼센트|प्रतिशत|٪|(?:في |ب)المئة",
    "hryvnia": "₴|грн\\.?|грив(?:ень|н[яіюі])",
    "kopiyka": "копі(?:йка|йки|йок)",
    "dollar": "＄|доллар(?:а|ов)?|dólar(?:es)?|ドル|美元|달러|دولار(?:ات|ًا|ا)?|डॉलर",
    "dinar": "دينار",
    "riyal": "ريال",
    "dirham": "درهم",
    "mile": "миль|мил[яи]|英里|マイル|마일|milles?|millas?|milhas?|Meilen?|migli[ao]",
    "inch": "дюйм\\w{0,2}|英寸|インチ|인치|pulgadas?|pouces?|polegadas?|pollic[ei]|Zoll",
    "foot": "фут(?:а|ов)?|英尺|フィート|피트|pies?|pieds?|pés?|pied[ei]|Fu(?:ß|ss)",
    "pound": "фунт(?:а|ов)?|磅|ポンド|파운드|libras?|livres?|libbr[ae]|Pfund",
    "gallon": "галлон\\w{0,2}|加仑|ガロン|갤런|gal[oó]n(?:es)?|gal(?:ão|ões)|gallon[ei]|Gallonen?",
    "jin": "斤",
    "ha": "га|гектар\\w{0,2}|公顷|公頃|ヘクタール|헥타르|hectáreas?|hectares?|ettar[oi]|Hektar",
    "kopek": "коп(?:\\.|е(?:йка|йки|йкам|ек))?",
    "jiao": "角|毛",
    "fen": "分钱|分錢",
    "cent": "¢|цент(?:а|ов)?|美分|セント|센트",
    "eurocent": "céntimos?|centimes?|centesim[io]|欧分",
    "centavo": "centavos?",
    "mm": "мм|миллиметр\\w{0,2}|毫米|ミリメートル|밀리미터"
    "|mil[ií]metros?|millimètres?|millimetri|[Mm]illimetern?|मिमी|ملم",
    "dm": "дм|дециметр\\w{0,2}|分米|デシメートル",
    "cm": "см|сантиметр\\w{0,2}|厘米|センチ(?:メートル)?|센티미터"
    "|cent[ií]metros?|centimètres?|centimetri|[Zz]entimetern?|सेमी|सेंटीमीटर|سم|سنتيمتر[اًات]*",
    "km": "км|километр\\w{0,2}|千米|公里|キロメートル|킬로미터"
    "|(?:kil[óo]|qu?il[ôo])metros?|kilomètres?|chilometri|[Kk]ilometern?|किमी|किलोमीटर|كم|كيلومتر[اًات]*",
    "m": "м|метр\\w{0,2}|米|メートル|미터|mètres?|metros?|metri|[Mm]etern?|मीटर|م|متر[اًات]*|أمتار",
    "mg": "мг|毫克|ミリグラム",
    "kg": "кг|килограмм\\w{0,2}|千克|公斤|キログラム|킬로그램"
    "|(?:kilo|quilo)gram(?:os?|as?|mes?)|chilogrammi|Kilogramm|किग्रा|किलोग्राम|كج?غ?م|كيلو[جغ]رام[اًات]*",
    "g": "г|грамм\\w{0,2}|克|グラム|그램|gramos?|gramas?|grammes?|grammi|Gramm|ग्राम|[جغ]رام[اًات]*",
    "mL": "мл|миллилитр\\w{0,2}|毫升|ミリリットル|밀리리터|mililitros?|millilitri",
    "L": "л|литр\\w{0,2}|升|リットル|리터|litros?|litri|Litern?|लीटर|لتر[اًات]*",
    "J": "Дж|джоул\\w{0,2}|焦耳|ジュール",
    "kJ": "кДж|килоджоул\\w{0,2}|千焦",
    "N": "Н|ньютон\\w{0,2}|牛顿|ニュートン",
    "W": "Вт|ватт\\w{0,2}|瓦特?|ワット",
    "kW": "кВт|киловатт\\w{0,2}|千瓦|キロワット",
    "Hz": "Гц|герц\\w{0,2}|赫兹|ヘルツ",
    "t": "тонн\\w{0,2}|吨|toneladas?|Tonnen?",
    "day": "дн(?:я|ей|ям)|день|天|d[ií]as?|jours?|Tagen?|Tage|giorn[io]|दिन|يوم[اً]*|أيام",
    "week": "недел[яьию]|semanas?|semaines?|Wochen?|settiman[ae]",
    "h": "ч|час(?:а|ов)?|小时|小時|時間|시간|giờ|horas?|heures?|Stunden?|or[ae]|घंट[ेा]|ساع(?:ة|ات)",
    "min": "мин(?:ут(?:а|ы)?)?|分钟|分鐘|분|phút|minutos?|minut[oi]|Minuten?|मिनट|دقيقة|دقائق",
    "s": "с(?! половин)|сек(?:унд(?:а|ы)?)?|秒|초|giây|segundos?|secondes?|second[oi]|Sekunden?"
    "|सेकंड|सेकेंड|ثانية|ثوان[ٍي]?",
}
_SPELLINGS = {name: re.compile(spellings) for name, spellings in _NAMES.items()}
_SQUARE_SIGNS = "[\u3380-\u33df]"  # `㎡`, `㎏`: a unit in one character
_SOME_UNIT = f"(?:{'|'.join(_NAMES.values())}|[ckm]?m|k?g|m?L|{_SQUARE_SIGNS})"
# `25平方厘米`, `12 mètres carrés`, `90 км/ч`, `15 metros por segundo`: a power stands before or
# behind, and then what it is per.
_SQUARE, _CUBE = (
    r"平方|제곱|кв\.\s?|квадратн\w{2,3}\s|[Qq]uadrat",
    r"立方|세제곱|куб\.\s?|кубическ\w{2,3}\s|[Kk]ubik",
)
_SQUARED, _CUBED = (
    r"\s(?:[cq]uadrad[oa]s?|carrés?|quadrat[io]|квадратн\w{2})",
    r"\s(?:c[úu]bic[oa]s?|cubes?|cubi|кубическ\w{2})",
)
_DIVISORS = {
    "h": "时|時|saat|jam|uur|tim(?:me)?|godz(?:\\.|in[aęy])?",
    "min": "dakika|menit|minuut",
    "s": "saniye|detik|sekund[aę]",
}
"""Units of time that may be other words where they do not divide, as a time of day."""
_HOUR = f"(?:{'|'.join(_DIVISORS.values())})"
_PER = r"(?:\s?/\s?|\s(?:por|par|pro|per|al|в)\s|\s(?:à|de)\sl['’]|\sall['’]|每)"
MEASURE = (
    rf"(?:{_SQUARE}|{_CUBE})?{_SOME_UNIT}(?:{_SQUARED}|{_CUBED}|[²³])?"
    rf"(?:{_PER}(?:{_SOME_UNIT}|{_HOUR}))?(?:(?![^\W²³])|(?=です|である|입니다|이다))"
)
"""Matches a unit or currency in the spelling of another language."""
_MEASURED = re.compile(
    r"(?P<joint>(?:(?<=[\d)}π])|(?<=\\pi))(?:\s|\\[ ,;]|~|\\(?:text|mathrm)\s*\{)*)"
    rf"(?:(?P<square>{_SQUARE})|(?P<cube>{_CUBE}))?(?P<unit>{_SOME_UNIT})"
    rf"(?:(?P<squared>{_SQUARED})|(?P<cubed>{_CUBED}))?"
    rf"(?P<mark>[²³]?)(?:{_PER}(?P<divisor>{_SOME_UNIT}|{_HOUR}))?(?![^\W²³])\.?"
)
# Every branch begins with a letter, to which `re` skips fast.
LATIN_UNIT = re.compile(
    r"R\$|reais|p(?<!\wp)o[ru]r? ?cien?t|p(?<!\wp)ou?r ?cent|rozent|per cento|procent|"
    r"mill[ea]s?\b|milhas?|Meile|migli|pulgada|pouce|polegada|pollic|Zoll|p(?<!\wp)ies?\b|p(?<!\wp)i[ée]d|Fuss|libr[ae]s?\b|livre|libbr|Pfund|gal[oó]n|Gallone|hect[aá]re|ettar|Hektar|centavo|c[ée]ntim|centesim"
    r"|metr[io]|meter\b|Meter\b|segund|second[ei]|Sekunde|horas?\b|heures?\b|Stunde|minut[io]|Minute|gram[ao]s?\b|Tage|Woche|semana|semaine|dias?\b|jours?\b|giorn|settiman|tonelad|Tonne"
    r"|m/(?:saat|jam|uur|tim|godz|dakika|menit|minuut|saniye|detik|sekund)|gramm|litr[io]|Litern|grad[io]?s?\b|Grad[io]?s?\b|degr[ée]s?\b"
)
"""Stands in an ASCII text that has a unit of another language."""
# A unit in brackets: `240(km)`.
_BRACKETED = re.compile(rf"(?<=[\dπ])\s?[(（]({MEASURE})[)）]")
# `₹500`: the sign of a currency before its amount.
_BEFORE = re.compile(r"(R\$|[₹₽₩])\s*(-?\d[\d,.]*\d|\d)")


def uniform_units(text: str) -> str:
    r"""Return a text whose units of other scripts have the names that the reader knows.

    >>> uniform_units("600円"), uniform_units("₹500"), uniform_units("3個")
    ('600 yen', '500 rupee', '3個')
    >>> uniform_units("90 км/ч"), uniform_units("15 metros por segundo"), uniform_units("25平方米")
    ('90 km/h', '15 m/s', '25 \\text{m}^2')
    """
    text = CLOCK.sub(_clock, _MYRIADS.sub(_counted, text))
    text = _BRACKETED.sub(r" \1", _BEFORE.sub(r"\2\1", text))
    return _IN_TWO_UNITS.sub(r"\g<first> \g<second>", _MEASURED.sub(_named, text))


_SIZES = {**dict.fromkeys("万萬만", 10**4), **dict.fromkeys("亿億억", 10**8)}
MYRIAD = r"(?:[万萬亿億억]|만(?=\s?[원명개\d]|[^\w\s]|\s*$))"
"""A myriad or its square behind a number; in Korean other words may begin so."""
_MANY = r"\d+(?:,\d{3})*(?:\.\d+)?"
_MYRIADS = re.compile(
    rf"(?<![\d.])(?<!\d,){_MANY}\s?{MYRIAD}(?:\s?{_MANY}\s?{MYRIAD})*(?:\s?\d{{1,4}})?(?!\s?[\d千천])"
)


def _counted(match: re.Match[str]) -> str:
    """Return a number such as `1億2000万` in digits."""
    parts = re.findall(rf"({_MANY})\s?([万萬만亿億억]?)", match[0])
    total = sum(Fraction(number.replace(",", "")) * _SIZES.get(size, 1) for number, size in parts)
    return str(total) if total.denominator == 1 else match[0]


CLOCK = re.compile(
    r"(?:(?P<am>[午上]前|上午|오전)|(?P<pm>午後|下午|오후))?\s?(?P<hour>\d{1,2})\s?[時时点點시]\s?"
    r"(?P<minute>\d{1,2})\s?[分분]"
)
"""A time of day in Chinese, Japanese or Korean: `午後3時15分`."""


def _clock(match: re.Match[str]) -> str:
    half = " am" if match["am"] else " pm" if match["pm"] else ""
    return f"{match['hour']}:{match['minute']:0>2}{half}"


_IN_TWO_UNITS = re.compile(
    r"(?P<first>\d[\s~]*(?:h|min|m|kg|day|week))\b[\s}]*(?:\\text\s*\{\s*)?(?:et|und|y|e|и|con)[\s}]+"
    r"(?P<second>\d+[\s~]*(?:\\text\s*\{\s*)?(?:min\w*|s|cm|g|h|days?))(?![^\W_])"
)
"""`2 h et 15 min`: one measure in two units."""


def _named(match: re.Match[str]) -> str:
    square, cube = match["square"] or match["squared"], match["cube"] or match["cubed"]
    power = "^2" if square else "^3" if cube else match["mark"]
    divisor = f"/{_name(match['divisor'])}" if match["divisor"] else ""
    name = _name(match["unit"])
    if not name[-1].isalpha():
        name, power = name[:-1], f"^{name[-1]}"
    if power and "{" not in match["joint"]:
        name = f"\\text{{{name}}}"  # `m^2` alone may be the square of a variable
    return f"{match['joint'] or ' '}{name}{power}{divisor}"


def _name(spelling: str) -> str:
    """Return the name that the reader knows of a unit."""
    names = (name for name, spellings in _SPELLINGS.items() if spellings.fullmatch(spelling))
    divisors = (name for name, words in _DIVISORS.items() if re.fullmatch(words, spelling))
    return next(names, next(divisors, normalize("NFKC", spelling)))


_TEN = r"(?:[·⋅×*]|\\(?:cdot|times)(?![a-z]))\s*10\s*(?:\^\{?-?\d{1,3}\}?|[⁻⁰¹²³⁴-⁹]+)"
_TAIL = (
    rf"(?:{_TEN}|"
    r"\s|\\?%|\\[ ,;]|\\(?:text|mathrm)\s*\{[^{}]*\}|\^\{?[23]\}?|[^\W\d_]|[²³/.€£₽₹$＄])*+"
)
_COMMA = re.compile(
    rf"(?:R\$|[\s$€£])*[-−]?(?P<whole>[\d.]*\d)(?:,|\{{,\}})(?P<decimals>\d+){_TAIL}"
)
_POINTS = re.compile(rf"(?:R\$|[\s$€£])*-?(?!0)\d{{1,3}}(?:\.\d{{3}})+(?!\d){_TAIL}")
_MONEY = re.compile(r"€|\b[Ee]uros?\b|\\text|zł|руб|₽|R\$|%")
_GROUPS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3})+(?!\d|\.\d|,\d{3})")
_POINT = re.compile(r"\d\.(?:\d{1,2}|\d{4,})(?!\d)")


def decimal_comma(numeral: str, *, comma: bool) -> bool:
    """Return whether the comma of a lone numeral is its decimal mark.

    Args:
        numeral: a number, perhaps with a unit.
        comma: the words around it are of a language with decimal commas.

    >>> [decimal_comma(n, comma=False) for n in ("7,50 €", "7{,}50", "7,50", "1,234")]
    [True, True, False, False]
    """
    match = _COMMA.fullmatch(numeral)
    if match is None:
        return False
    sure = len(match["decimals"]) != 3 and ("{,}" in numeral or _MONEY.search(numeral) is not None)
    sure = sure or (match["whole"] == "0" and "{,}" in numeral)  # no group follows a zero
    return comma or sure or "." in match["whole"]


# `1.234.567`: more than one point can only group thousands.
_GROUPED = re.compile(r"[\s$]*-?\d{1,3}(?:\.\d{3}){2,}[\s$]*")
# Three digits behind a comma.
_THREE = re.compile(r"(?<!\b0)(?:,|\{,\})\d{3}(?!\d)")
_COMMA_DECIMAL = re.compile(r"\d{1,3}(?:\.\d{3})+(?!\d)(?:(?:,|\{,\})\d+)?|\d+(?:,|\{,\})\d+")


def points_for_commas(text: str) -> str:
    """Convert a text with decimal commas to the usual notation.

    >>> points_for_commas("1.234,5")
    '1234.5'
    """
    return _COMMA_DECIMAL.sub(
        lambda match: match[0].replace(".", "").replace("{,}", ".").replace(",", "."), text
    )


_SPACED_WORDS = (
    "la le les est donc réponse des une sous combien calculer calculez quelle quel vaut trouvez"
    " de du un et ile jest oblicz kosztuje het bereken hoeveel antwoord svar hitung berapa jawaban"
    " vypočtěte vypočítejte obsah kolik odpověď je"
)
_POINTED_WORDS = (
    "der das ist sind mit von wird welcher welches antwort ein eine einen eines wie viel und "
    "berechne schreibe beträgt groß welche bestimme el los las es por respuesta cuántos cuánto "
    "una están calcula escribe cuál halla é são portanto resposta quanto quantos uma calcule "
    "escreva qual il è sono quindi risposta di quanti scrivi calcola quale trova gli della ogni ha "
    "hanno nel costa costano"
)


_POINTED = frozenset(_POINTED_WORDS.split())
_COMMAS = _POINTED | frozenset(_SPACED_WORDS.split())
_WORD = re.compile(r"[^\W\d_]+")
# A word in small letters with a mark of its language counts too; names have capitals.
_ACCENTED = re.compile("[a-z]*[äöüßàâáãéèêíóõúñç][a-zß-ÿ]*")
_OF_COMMAS = re.compile(
    "(?i:[а-яё]{4})|(?<!\\w)[^\\W\\d_A-ZÀ-Þ]{0,12}[ąćęłńśźżčďěňřšťůžğışőåøæđơưẠ-ỹ]"
)
"""A word with letters of languages that all write decimals with a comma; names have capitals."""
_ENGLISH = re.compile(
    r"(?i)\b(?:the|what|how|many|does|with|there|they|she|which|therefore|it is|this is)\b"
)
"""A word of an English text, which may have a foreign one: `How many złoty does she pay?`."""


@lru_cache(maxsize=256)
def writes_commas(text: str, least: int = 2) -> bool:
    """Return whether a text has at least so many words of languages that write decimals with a
    comma.

    >>> writes_commas("Wie groß ist die Fläche?"), writes_commas("What is the Möbius band?")
    (True, False)
    """
    is_known = not text.isascii() and _OF_COMMAS.search(text) and not _ENGLISH.search(text)
    return bool(is_known) or _shows(_COMMAS, text, least)


@lru_cache(maxsize=256)
def groups_by_points(text: str) -> bool:
    """Return whether a text is in a language that writes 10200 as `10.200`."""
    return writes_commas(text) and _shows(_POINTED, text, 2)


def _shows(words: frozenset[str], text: str, least: int) -> bool:
    """Return whether a text has so many different words of a language."""
    said = set(_WORD.findall(text))
    known = {word.lower() for word in said} & words
    if not text.isascii():
        known |= {word for word in said if _ACCENTED.fullmatch(word)}
    return len(known) >= least


_JOINER = re.compile(
    r"(?<=[\d$)}*A-J%])(?:\s|\\[ ,;])*(?:\\(?:text|mathrm)\s*\{\s*)?"
    r"(?:(?<![^\s{])(?:(?P<or>ou|oder|o|или|hoặc|veya|lub|atau|eller|або|ή|या)"
    r"|(?P<and>et|und|и|và|ve|oraz|dan|och|og|та|και|और)|(?P<letter>y|e|en))(?![^\s}\\])"
    r"|(?P<or2>または|又は|或者?|또는|혹은|이거나)|(?P<and2>と|과|와|和))"
    r"(?:\s*\})?(?:\s|\\[ ,;])*(?=[\d$(\\A-J*-]|[A-Za-z](?:_\{?\d\}?)?\s?=)"
)
"""The words for "or" and "and" of other languages between two values."""


def joined_by_and(answer: str, *, foreign: bool | Callable[[], bool]) -> str:
    r"""Return an answer with English words between its values.

    Args:
        answer: an answer as written.
        foreign: whether the words around are of another language, or what tells it where that is
            needed. Elsewhere `y` and `e` may be variables.

    >>> joined_by_and(r"2, 3 \text{ y } 5", foreign=False), joined_by_and("2 e 5", foreign=False)
    ('2, 3 and 5', '2 e 5')
    """

    def is_foreign() -> bool:
        return foreign() if callable(foreign) else foreign

    def english(match: re.Match[str]) -> str:
        is_apart = re.search(r"\s|\\[ ,;]", match[0])  # `5\mathrm{e}14` is no list
        if match["letter"] and not (is_apart and ("{" in match[0] or is_foreign())):
            return match[0]
        return " or " if match["or"] or match["or2"] else " and "

    return _JOINER.sub(english, answer)


def _uniform(text: str) -> bool:
    """Return whether a text has no mark in a number and no word between values."""
    return "," not in text and "." not in text and _JOINER.search(text) is None


# A number within a formula; brackets that list values; a measure with a decimal comma (`2,4 km`).
_NUMERAL = re.compile(r"(?<![\w.,])\d(?:[\d.,]|\{,\})*\d(?![.,]?\w)")
_LISTED = re.compile(r"[(\[{](?!,\})[^()\[\]{}]{0,200}[,;]|[=\d], ")
_DECIMALS = re.compile(r"[=≈] [-−]?(?:0,\d+|\d+,(?:\d\d?|\d{4,}))(?![\d,])")
"""A numeral with a decimal comma, as three digits behind it may be a group."""
_WITH_COMMA = r"(?<![\w.,])\d+(?:,|\{,\})(?:\d\d?|\d{4,})(?![\d,])"
_CALCULATED = re.compile(rf"{_WITH_COMMA} ?\$?[:÷·×+−/-] ?\d|[:÷·×+−-] {_WITH_COMMA}")
"""A calculation with a decimal comma: `7,5 : 4`."""
_MARKED = re.compile(r"\d(?:[.,]|\{,\})\d")
"""A mark within a number, without which no language has to be told."""
_SURE = re.compile(r"(?<![\d.,])\d{1,3},\d{1,2}\s?(?:[ckdm]?m|k?g|[mc]?[lL]|h|€|zł)(?!\w)")


class Locale:
    """How the writers of a question and of a response write numbers and lists.

    Args:
        prompt: the question.
        around: the words around an answer.
    """

    def __init__(self, prompt: str, around: str) -> None:
        self.prompt = prompt
        self.around = around

    def gold(self, gold: str) -> str:
        """Return a lone number of a gold with a decimal point, and a list with English words
        between its values.

        Three digits behind a comma may be a group, whatever the language. So may those behind a
        point, but only where the question itself groups so.
        """
        if gold.isalnum() or _uniform(gold):
            return gold
        pointed = gold
        if _MARKED.search(gold):
            certain = _THREE.search(gold) is None
            comma = certain and (writes_commas(self.prompt) or writes_commas(self.around))
            grouped = writes_commas(self.prompt) and _GROUPS.search(self.prompt) is not None
            pointed = self._pointed(gold, comma=comma, grouped=grouped, pointed=self.prompt)
        return joined_by_and(pointed, foreign=lambda: writes_commas(self.prompt))

    def answer(self, answer: str) -> str:
        """Return a lone number of an answer with a decimal point, and a list with English words
        between its values.
        """
        if answer.isdigit() or ("=" not in answer and _uniform(answer)):
            return answer
        pointed = self._numeral(answer) if _MARKED.search(answer) else answer
        if "=" in answer and not _LISTED.search(answer):
            pointed = self._chain(answer)
        return joined_by_and(
            pointed,
            foreign=lambda: writes_commas(self.around, least=1) or writes_commas(self.prompt),
        )

    def _marks(self, answer: str) -> tuple[bool, bool]:
        """Return whether a comma starts decimals and whether a point may group thousands."""
        certain = _THREE.search(answer) is None
        comma = writes_commas(self.around) or (certain and writes_commas(self.prompt))
        if not comma and _DECIMALS.search(self.around):
            comma = writes_commas(self.prompt, least=1)
        comma = comma or _CALCULATED.search(self.prompt) is not None
        return comma, groups_by_points(self.prompt) or groups_by_points(self.around)

    def _numeral(self, answer: str) -> str:
        """Return a lone number, or the only number behind words, with a decimal point."""
        comma, grouped = self._marks(answer)
        said = self.prompt + self.around
        pointed = self._pointed(answer, comma=comma, grouped=grouped, pointed=said)
        numerals = _NUMERAL.findall(answer)
        if pointed != answer or len(numerals) != 1 or not answer[:1].isalpha() or "=" in answer:
            return pointed
        money = comma or _MONEY.search(answer) is not None
        value = self._pointed(numerals[0], comma=money, grouped=grouped, pointed=said)
        return answer.replace(numerals[0], value)  # `Ana recibe 6,50 euros`

    def _chain(self, answer: str) -> str:
        """Return a chain such as `4 · 12,50 zł = 50,00 zł` with decimal points in all of its
        sides.
        """
        head, sign, value = answer.rpartition("=")
        if not _MARKED.search(answer):
            return f"{head}{sign}{value.strip().rstrip('. ') or value}"
        comma, grouped = self._marks(answer)
        grouped = grouped or _SURE.search(answer) is not None
        money = _MONEY.search(answer) is not None and _THREE.search(answer) is None
        comma = comma or money or grouped
        said = self.prompt + self.around
        point = partial(self._pointed, comma=comma, grouped=grouped, pointed=said)
        sides = [_NUMERAL.sub(lambda match: point(match[0]), text) for text in (head, value)]
        return f"{sides[0]}{sign}{sides[1].strip().rstrip('. ') or value}"

    @staticmethod
    def _pointed(numeral: str, *, comma: bool, grouped: bool, pointed: str) -> str:
        """Return a numeral, or each of several between semicolons, with a decimal point; no point
        groups where the text `pointed` has one that starts decimals (`2.5`).
        """
        items = numeral.split(";")
        if len(items) > 1:  # `1,5; 4` lists no pairs
            comma = comma or not (_THREE.search(numeral) or all("," in item for item in items))
            pointed_item = partial(Locale._pointed, comma=comma, grouped=grouped, pointed=pointed)
            return ";".join(map(pointed_item, items))
        groups = grouped and _POINTS.fullmatch(numeral) and not _POINT.search(pointed)
        if groups or _GROUPED.fullmatch(numeral) or decimal_comma(numeral, comma=comma):
            return points_for_commas(numeral)
        return numeral
