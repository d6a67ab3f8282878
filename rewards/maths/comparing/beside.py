r"""What the words beside a value make of it: the value of another name than the question asks for,
what remains, a difference, or a comparison the other way round.
"""

from __future__ import annotations

import re

from ..reading.dates import date
from ..reading.notation import as_words
from ..reading.vocabulary import UNITS_OF_NUMBER


def misnamed(prompt: str, said: str) -> str:
    """Return why the name that words give a value is not the one that is asked, or ""."""
    label = _LABEL.search(said)
    prompt = _COMMON_DIVISOR.sub(" ", prompt)
    for rivals in _RIVALS if label else ():
        given = [name for name, words in rivals.items() if label and words.search(label[1])]
        asked = [name for name, words in rivals.items() if words.search(prompt)] if given else []
        if asked and not set(given) & set(asked):
            return f"the question asks for the {asked[0]}, not the {given[0]}"
    return ""


_COMMON_DIVISOR = re.compile(r"(?i)\bcommon divisor")
"""What Euclid's algorithm finds as its last remainder."""
_LABEL = re.compile(
    r"(?<![^\W\d_])((?:[^\W\d_]{2,}[ -]){0,2}[^\W\d_]{2,20})\s*\}?\s*"
    r"(?:=|:|[为為是は]|\b(?:is|equals|ist|beträgt|est|vaut|es|é|è|vale|равн[аоы]?"
    r"|равен)\b)[\s$*(\[\\}]*(?:boxed\{)?(?:[-\d.{∞√π](?:[^:=;A-Za-z]|\\[A-Za-z]+)*)?$"
)


def _rivals(*names: tuple[str, str]) -> dict[str, re.Pattern[str]]:
    return {
        name: re.compile(rf"(?i)\b(?:{name}|{latin})|{other}")
        for name, latin, other in ((n, *words.split(" / ")) for n, words in names)
    }


_RIVALS = (
    _rivals(
        ("mean", r"average|mittelwert|durchschnitt|moyenne|media\b|média / средн|平均|평균"),
        ("median", r"médiane|mediana / медиан|中位|中央値|중앙값"),
        ("mode\\b", r"modus|moda\b / мод[ауыое]\b|众数|眾數|最頻値|최빈값"),
        ("range", r"spannweite|étendue|rango|amplitude|gamma\b / размах|极差|範囲|범위"),
        ("variance", r"varianz|varianza|variância / дисперси|方差|分散|분산"),
        (
            "deviation",
            r"standardabweichung|écart|desviación|desvio|deviazione / отклонени|标准差|偏差",
        ),
        ("sum\\b", r"summe\b|somme\b|suma\b|soma\b|somma\b / сумм[аыуое]|总和|合計"),
    ),
    _rivals(
        ("area", r"fläche|flächeninhalt|aire\b|área|superficie / площад|面积|面積|넓이"),
        ("perimeter", r"umfang|périmètre|perímetro|perimetro / периметр|周长|周長|둘레"),
        (
            "circumference",
            r"umfang|circonférence|circunferencia|circonferenza / длин\w+ окружност|圆周",
        ),
        ("volume", r"volumen\b / объ[её]м|体积|体積|부피"),
        ("radius", r"rayon|radio\b|raio|raggio / радиус|半径|반지름"),
        ("diameter", r"durchmesser|diamètre|diámetro|diâmetro|diametro / диаметр|直径|지름"),
        ("diagonal", r"diagonale / диагонал|对角线|対角線|대각선"),
    ),
    _rivals(
        (
            "domain",
            r"definitionsbereich|domaine|dominio|domínio / область определения|定义域|定義域",
        ),
        ("range", r"wertebereich|image\b|rango|imagem|codominio / область значений|值域|치역"),
    ),
    _rivals(("ph\\b", "ph\\b / \0"), ("poh", "poh / \0")),
    _rivals(
        ("minimum", r"mínimo|minimo / минимум|наименьш|最小|최소"),
        ("maximum", r"máximo|massimo / максимум|наибольш|最大|최대"),
    ),
    _rivals(
        ("quotient", r"cociente|quociente|quoziente / частн|商|몫"),
        ("remainder", r"rest\b|reste\b|resto\b / остат|余数|余り|나머지"),
        ("divisor", r"diviseur|divisore / делител|除数"),
    ),
)
"""Names of which a question about one is not answered by the value of another."""


def part_asked(prompt: str, before: str, behind: str) -> str:
    """Return why a value that counts the others (`the remaining 4`) or a difference (`15 years
    older than`) is not what the prompt asks for, or "".
    """
    if _OTHERS.search(before) and not _OTHERS_ASKED.search(prompt):
        return "the value counts what remains, which the question does not ask for"
    derived = _DERIVED.search(before)
    relation = derived and next(filter(None, derived.groups())).lower()
    if relation and relation not in prompt.lower():
        return f"the question does not ask for the {relation}"
    if _DIFFERS.match(behind) and not _DIFFERENCE_ASKED.search(prompt):
        return "the value is a difference, which the question does not ask for"
    return ""


_OTHERS = re.compile(r"(?i)\b(?:the|her|his|their|its) (?:remaining|other|rest of the)[ *$]*$")
_DERIVED = re.compile(
    r"(?i)\bits (complement|supplement|(?:square|cube)(?! root)|reciprocal|inverse|double|half"
    r"|negative|opposite|conjugate|successor|predecessor)\b"
    r"(?! (?:otherwise|if|when|for|where)\b)[^.,;]*$"
    r"|\bthe (reciprocal|complement|supplement|successor|predecessor)"
    r"(?: of (?:it|this|that))? (?:is|would be|equals)\b[^.,;]*$"
    r"|\b(half|twice|double|triple|a third|a quarter)(?: of)? (?:it|this|that)\b[^.,;]*$"
)
_OTHERS_ASKED = re.compile(r"(?i)\b(?:remain\w*|others?|left|rest|still)\b")
_DIFFERS = re.compile(
    r"[ *$.]*(?:(?!(?:is|are|was|were)\b)\w+ )?(?:more|less|fewer|(?:old|young|tall|short|long"
    r"|heavi|light|high|low|fast|slow"
    r"|warm|cold|bigg|larg|small|great|cheap|near|deep|wid)e?r)(?: \w+)? than\b"
)
_DIFFERENCE_ASKED = re.compile(
    r"(?i)\b(?:than|differ\w*|by how|more|fewer|less|exceeds?|gap|change\w*)\b"
)


_HOW_MANY_TIMES = re.compile(
    r"(?i)\bhow many times\b(?P<first>[^?]{3,80}?)\b(?:than|as)\b(?! many| "
    r"much)(?P<second>[^?]{1,80})"
)
_TIMES_AS = re.compile(
    r"(?i)(?:^|[.,:;\n])(?P<subject>[^.,:;\n]*?)\b"
    r"(?:is|are|was|were|appears?|seems?|looks?)[\s$*]*$"
)


# `How many times as fast as the car is the jet?`: the things in the other order.
_INVERTED = re.compile(r"(?P<base>.*?)\b(?:is|are|was|were|do(?:es)?|did|has|have)\b(?P<thing>.*)")
_LESSENS = re.compile(
    r"\b(?:slow|light|small|short|low|less|few|young|weak|dim|near|clos|cheap|cool|cold|thin"
    r"|narrow)"
    r"(?:e?r)?\b"
)


def turned_round(prompt: str, before: str, answer: str, behind: str) -> str:
    """Return why `B is 9 times heavier`, or `A is 9 times lighter`, does not say how many times
    heavier A is than B, or ""; nor do so many percent.
    """
    asked = "imes" in prompt and _HOW_MANY_TIMES.search(prompt)
    if not asked:
        return ""
    if re.search(r"%|\bper ?cent", answer) or re.match(r"\W*(?:%|per ?cent)", behind):
        return "the question asks how many times"
    if number := re.match(r"[\s$]*\d[\d.,]*(?=\s)", answer):
        behind = answer[number.end() :] + behind
    compared = re.match(r"[\s$*{}\\]*(?:text\s*\{\s*)?times\b(?: as)?\s*(?P<how>\w*)", behind)
    if compared is None:
        return ""
    said = _TIMES_AS.search(before)
    texts = asked["first"], asked["second"], said["subject"] if said else ""
    if inverted := _INVERTED.match(asked["second"]):
        texts = inverted["thing"], inverted["base"], texts[2]
    first, second, subject = (set(re.findall(r"\w+", text)) for text in texts)
    own, others = first - second - _ARTICLES, second - first - _ARTICLES
    is_turned = bool(subject & others) and not subject & own
    lessens = [_LESSENS.search(text) is not None for text in (asked[0], compared["how"])]
    is_opposite = compared["how"] != "" and lessens[0] != lessens[1]
    return "the answer compares them the other way round" if is_turned != is_opposite else ""


def times_as(prompt: str, answer: str) -> str:
    """Return the number of `the jet is 50 times as fast`, where the question asks for it and it
    compares the things that way round; else "".
    """
    said = _SAID_TIMES.fullmatch(as_words(answer)) if "times" in answer else None
    if said is None or "how many times" not in prompt.lower():
        return ""
    turned = turned_round(prompt, said["before"], said["value"], said["behind"])
    return "" if turned or _DENIES.search(answer) else said["value"]


_SAID_TIMES = re.compile(
    r"(?P<before>[^\d.,;:]{0,40}?)(?P<value>(?<![\w.])\d[\d.,]*)"
    r"(?P<behind> times (?:as )?[a-z]+(?: (?:as|than) [^\d.,;:]{1,40})?)"
)
_DENIES = re.compile(r"\b(?:not|never|if|or|about|at (?:least|most)|more|less|nearly|almost)\b|n't")
_ARTICLES = frozenset({"the", "a", "an", "of", "The"})


_BASE = (
    r"(?:base[ -]?\$?(?P<size>\d{1,2}|[a-z]{3,9})|(?P<name>binary|octal|decimal"
    r"|hex(?:adecimal)?))\b"
)
_BASE_ASKED = re.compile(
    r"(?i)\b(?:in|to|into|as an?|the(?= [a-z]+ (?:representation|expansion|form|notation)\b))"
    rf"(?: the)? {_BASE}"
)
_BASE_BEFORE = re.compile(
    rf"(?i)\b(?:in (?:the )?|(?=\S+[ -](?:form|representation|expansion|notation))){_BASE}[^\d.;]*$"
)
_BASE_BEHIND = re.compile(rf"(?i)[\s$*}})_]*(?:\(|in |\(in ){_BASE}")
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hex": 16, "hexadecimal": 16, **UNITS_OF_NUMBER}


def _base(named: re.Match[str]) -> str:
    """Return the base of a match in digits, or "" where its word is no number."""
    word = (named["size"] or named["name"]).lower()
    return word if word.isdigit() else str(_BASES.get(word, ""))


def base_asked(prompt: str) -> str:
    """Return the base that a prompt asks for last, in digits, or "".

    >>> base_asked("Convert 100 from base 10 to base five."), base_asked("Convert it in two steps.")
    ('5', '')
    """
    return ([""] + [base for named in _BASE_ASKED.finditer(prompt) if (base := _base(named))])[-1]


def other_base(prompt: str, before: str, behind: str) -> str:
    """Return why the words beside a numeral put it in another base than the prompt asks for, or
    "".
    """
    asked = base_asked(prompt) if "base" in before + behind else ""
    named = _BASE_BEHIND.match(behind) or _BASE_BEFORE.search(before) if asked else None
    said = _base(named) if named else ""
    return f"the question asks for base {asked}, not {said}" if said and said != asked else ""


def other_event(prompt: str, before: str, answer: str) -> str:
    """Return why the words before a date make it that of another event than the question's, or ""
    (`It was borrowed on 8 April`, where the question is when it is due).
    """
    happens = _HAPPENS.search(before)
    if happens is None or not date(answer) or _STEM.sub("", happens[1].lower()) in prompt.lower():
        return ""
    return f"the date is that of another event: {happens[1]!r}"


# What happens on a date, other than that it is or falls on it.
_HAPPENS = re.compile(
    r"(?i)\b(?!(?:is|was|be|are|were|it|due|date|day|falls?|then|therefore|so|thus"
    r"|hence)\b)([a-z]{2,})"
    r"\s+on (?:the )?$"
)
_STEM = re.compile(r"(?<=\w{4})(?:ing|ent|iert|es|e|s)$")
