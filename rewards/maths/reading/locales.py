r"""Units, currencies and numerals in the spelling of other languages.

A unit of another script becomes the unit's name here (`600円` is `600 yen`), and a decimal
comma becomes a point where the language or the numeral itself leaves no doubt.
"""

from __future__ import annotations

import re

_NAMES = {
    "ruble": "₽|руб(?:\\.|л(?:ь|я|ей|ю|ях|ям|и))?|р\\.",
    "zloty": "zł(?:ot(?:y(?:ch)?|e))?",
    "rupee": "₹|रुपये|रुपए|रुपया",
    "yen": "円",
    "won": "₩|원",
    "yuan": "元(?:钱)?|人民币",
    "euro": "евро|ευρώ|ユーロ|欧元|유로",
    "dollar": "доллар(?:а|ов)?|dólar(?:es)?|ドル|美元|달러",
    "mm": "мм|миллиметр(?:а|ов)?|毫米|ミリメートル|밀리미터"
    "|mil[ií]metros?|millimètres?|millimetri|Millimeter",
    "cm": "см|сантиметр(?:а|ов)?|厘米|センチ(?:メートル)?|센티미터"
    "|cent[ií]metros?|centimètres?|centimetri|Zentimeter",
    "km": "км|километр(?:а|ов)?|千米|公里|キロメートル|킬로미터"
    "|(?:kil[óo]|qu?il[ôo])metros?|kilomètres?|chilometri|Kilometer",
    "m": "м|метр(?:а|ов)?|米|メートル|미터|mètres?|metros?|metri|Meter",
    "mg": "мг|毫克|ミリグラム",
    "kg": "кг|килограмм(?:а|ов)?|千克|公斤|キログラム|킬로그램"
    "|(?:kilo|quilo)gram(?:os?|as?|mes?)|chilogrammi|Kilogramm",
    "g": "г|грамм(?:а|ов)?|克|グラム|그램|gramos?|gramas?|grammes?|grammi|Gramm",
    "mL": "мл|毫升|ミリリットル|밀리리터",
    "L": "л|литр(?:а|ов)?|升|リットル|리터|litros?|litri",
    "h": "ч|час(?:а|ов)?|小时|小時|時間|시간|horas?|heures?|Stunden?",
    "min": "мин(?:ут(?:а|ы)?)?|分钟|分鐘|분|minutos?|minuti|Minuten?",
    "s": "с|сек(?:унд(?:а|ы)?)?|秒|초|segundos?|secondes?|secondi|Sekunden?",
}
_UNIT = "|".join(f"(?P<{name}>{spellings})" for name, spellings in _NAMES.items())
ANY_UNIT = f"(?:{'|'.join(_NAMES.values())})"
"""Matches a unit or currency in the spelling of another language."""
_BEHIND = re.compile(
    rf"(?P<joint>(?<=[\d)}}])(?:\s|\\[ ,;]|~|\\(?:text|mathrm)\s*\{{)*)(?:{_UNIT})(?![^\W²³])\.?"
)
LATIN_UNIT = re.compile(
    r"metr[io]|[mM]eter\b|segund|second[ei]|Sekunde|horas?\b|heures?\b|Stunde|minut[io]|Minute|gram[ao]s?\b"
    r"|gramm|litr[io]"
)
"""Stands in an ASCII text that has a unit of another language."""
# `25平方厘米`, `м²`, `км/ч`, `metros por segundo`: a power before or behind, and what it is per.
_POWER = re.compile(
    rf"(?<=\d)\s*(?:平方|кв\.\s?|(?P<cubed>立方|куб\.\s?))(?P<unit>{ANY_UNIT})(?![^\W²³])"
)
_PER = re.compile(
    r"(?:(?<=[A-Za-z²³])\s?/\s?|(?<=[A-Za-z])\s(?:por|par|pro|per|al|в)\s|(?<=[A-Za-z])每)"
    rf"(?:{_UNIT})(?![^\W²³])"
)
# `₹500`: the sign of a currency before its amount.
_BEFORE = re.compile(r"([₹₽₩])\s*(-?\d[\d,.]*\d|\d)")


def uniform_units(text: str) -> str:
    """Return a text whose units of other scripts have the names that the reader knows.

    >>> uniform_units("600円"), uniform_units("₹500"), uniform_units("3個")
    ('600 yen', '500 rupee', '3個')
    >>> uniform_units("90 км/ч"), uniform_units("15 metros por segundo"), uniform_units("25平方米")
    ('90 km/h', '15 m/s', '25 m^2')
    """
    text = _BEFORE.sub(r"\2\1", text)
    text = _POWER.sub(lambda power: f" {power['unit']}^{3 if power['cubed'] else 2}", text)
    text = _BEHIND.sub(_named, text)
    return _PER.sub(lambda match: "/" + next(name for name in _NAMES if match[name]), text)


def _named(match: re.Match[str]) -> str:
    name = next(name for name in _NAMES if match[name])
    joint = match["joint"]
    return f"{joint}{name}" if joint else f" {name}"


_TAIL = r"(?:\s|\\?%|\\[ ,;]|\\(?:text|mathrm)\s*\{[^{}]*\}|[^\W\d_]|[²³/.€£₽₹$])*"
_COMMA = re.compile(rf"[\s$]*-?(?P<whole>[\d.]*\d)(?:,|\{{,\}})(?P<decimals>\d+){_TAIL}")
_POINTS = re.compile(rf"[\s$]*-?(?!0)\d{{1,3}}(?:\.\d{{3}})+(?!\d){_TAIL}")
_MONEY = re.compile(r"€|\beuros?\b|\\text|zł|руб|₽|%")
_GROUPS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3})+(?![\d.]|,\d{3})")
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
    return comma or sure or "." in match["whole"]


def grouping_points(numeral: str, prompt: str, *, comma: bool) -> bool:
    """Return whether the points of a lone numeral group thousands (`2.750`), as those of its
    question do.
    """
    return bool(
        comma
        and _POINTS.fullmatch(numeral)
        and _GROUPS.search(prompt)
        and not _POINT.search(prompt)
    )
