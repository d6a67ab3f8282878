"""Dates in words: `8 April`, `April 8th, 2024`, `8. April`, `le 8 avril`, `4月8日`; and the
names of days and months with their short forms.
"""

from __future__ import annotations

import re

_MONTHS = (
    "January Januar janvier enero janeiro gennaio января январь Jan",
    "February Februar février febrero fevereiro febbraio февраля февраль Feb",
    "March März mars marzo março марта март Mar",
    "April avril abril aprile апреля апрель Apr",
    "May Mai mai mayo maio maggio мая май",
    "June Juni juin junio junho giugno июня июнь Jun",
    "July Juli juillet julio julho luglio июля июль Jul",
    "August août agosto августа август Aug",
    "September septembre septiembre setembro settembre сентября сентябрь Sept Sep",
    "October Oktober octobre octubre outubro ottobre октября октябрь Oct",
    "November novembre noviembre novembro ноября ноябрь Nov",
    "December Dezember décembre diciembre dezembro dicembre декабря декабрь Dec",
)
_NUMBERS = {
    name.casefold(): number for number, names in enumerate(_MONTHS, 1) for name in names.split()
}
_WEEKS = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "segunda terça quarta quinta sexta sábado domingo",
    "понедельник вторник среда четверг пятница суббота воскресенье",
)
DAY = f"(?:{'|'.join(' '.join(_WEEKS).split())})"
"""Matches the name of a day of the week, as its language writes it."""
_SHORT_DAYS = dict(zip(("пн", "вт", "ср", "чт", "пт", "сб", "вс"), _WEEKS[-1].split(), strict=True))
_CALENDARS = (
    _NUMBERS,
    *({name.casefold(): day for day, name in enumerate(week.split())} for week in _WEEKS),
)
# The first letters spare most words the comparison with every name.
NAME = (
    r"(?=[JFMASONDEGjfmasondeg\u0400-\u04ff])"
    rf"(?:{'|'.join(sorted(' '.join(_MONTHS).split(), key=len, reverse=True))})(?!\w)\.?"
)
_PARTS = (
    rf"(?<![\w.,/])(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|º|°)? (?:of |de |di )?(?P<month>{NAME})"
    r"(?:,? (?:de )?(?P<year>\d{4}))?(?!\w)",
    rf"\b(?P<month>{NAME}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?(?![\w/])",
    r"(?:(?P<year>\d{4})[年년] ?)?(?P<month>\d{1,2})[月월] ?(?P<day>\d{1,2})[日号號일]",
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})",
)
DATE = "|".join(re.sub(r"\(\?P<\w+>", "(?:", part) for part in _PARTS[:3])
"""Matches a date in a text; the names of months begin as their languages write them."""
_READS = tuple(re.compile(part, re.IGNORECASE) for part in _PARTS)


def date(words: str) -> str:
    """Return a date in one spelling, or "" for words that are no date.

    >>> date("March 5th, 2024"), date("8. April"), date("4月8日"), date("5 marbles")
    ('2024-3-5', '-4-8', '-4-8', '')
    """
    matches = (pattern.fullmatch(words.strip(" .")) for pattern in _READS)
    match = next(filter(None, matches), None)
    if match is None:
        return ""
    named = match["month"].strip(".").casefold()
    month, day = int(named) if named.isdigit() else _NUMBERS[named], int(match["day"])
    return f"{match['year'] or ''}-{month}-{day}" if 0 < month < 13 and 0 < day < 32 else ""


def same_name(first: str, second: str) -> bool:
    """Return whether one of two words is the short form of the other, which names a day or month: a
    beginning that no other name of its calendar has.

    >>> same_name("Fri.", "Friday"), same_name("septembre", "sept."), same_name("Ju", "July")
    (True, True, False)
    """
    short, name = sorted((word.strip(" .").casefold() for word in (first, second)), key=len)
    short, name = _SHORT_DAYS.get(short, short), name.removesuffix("-feira")
    for names in _CALENDARS if len(short) > 1 else ():
        if name in names:
            meant = {number for other, number in names.items() if other.startswith(short)}
            return name.startswith(short) and meant == {names[name]}
    return False
