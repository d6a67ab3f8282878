"""Other words for the same answer: a gold and an answer are rewritten where one of them only says
again, in a notation or in words, what the other says.

Only pairs that are not equal as they stand come here, and what is rewritten has to be equal.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal

from ..extracting.golds import unboxed
from ..reading.nodes import Unreadable
from ..reading.numerals import ROMAN, of_roman
from ..reading.reader import read_cleaned
from ..reading.vocabulary import unit_symbol
from .renotation import renoted


def in_other_words(gold: str, answer: str, prompt: str) -> tuple[str, str] | None:
    """Return (gold, answer) without what only says one of them again: the digits behind a number in
    words (`nine (9)`), the calculation before a value (`\\binom{10}{3} = 120`), the name that the
    question gives the value (`\\text{The tens digit is } 2`), a unit written beside a formula, or
    the ends of an interval with its centre and margin; None where there is none.
    """
    given = unboxed(gold).strip(" $"), answer.strip(" $")
    wanted, said = renoted(*given, prompt)
    # Looking for a sign that a notation cannot lack spares most answers its search.
    if "(" in said and (twice := _SPELT_TWICE.fullmatch(said)):
        with suppress(Unreadable):
            is_same = read_cleaned(twice["word"].lower()) == read_cleaned(twice["digits"])
            said = twice["digits"] if is_same else said
    named = _NAMED.fullmatch(said) if said[:1] == "\\" else None
    if named and set(named["name"].lower().split()) <= set(re.findall(r"\w+", prompt.lower())):
        said = named["value"]
    is_interval = wanted[:1] + wanted[-1:] in {"()", "[]"} and "," in wanted
    ranged = _RANGED.fullmatch(said) if is_interval and _ASKS_INTERVAL.search(prompt) else None
    if ranged:
        said = f"{wanted[0]}{ranged[1]}, {ranged[2]}{wanted[-1]}"
    centred = _CENTRED.fullmatch(said) if is_interval and "confidence" in prompt else None
    if centred:
        centre, margin = map(Decimal, centred.groups())
        said = f"{wanted[0]}{centre - margin}, {centre + margin}{wanted[-1]}"
    if "=" in said and "^" in said and "*" not in wanted:
        said = _STARRED.sub("", said)
    counted = None if said.isascii() else _COUNTED_IN.fullmatch(_STYLE.sub("", said))
    if counted and re.search(rf"(?:几|幾|多少|何|몇)\s?{counted['word']}", prompt):
        said = counted["value"]
    if prompt and (asked := _IN_SCALE.search(prompt.rstrip(" .?\n").rpartition(". ")[2])):
        said = re.sub(rf"(?<=\d)(?:\s|\\[ ,;])*(?:\\text\{{\s*)?{asked['scale']}s?\b\}}?", "", said)
    if (roman := _ROMAN.fullmatch(_STYLE.sub("", said))) and roman["numeral"] in wanted:
        said = roman["numeral"] if of_roman(roman["numeral"]) == int(roman["number"]) else said
    if "_" in said and (in_base := _IN_BASES.fullmatch(said)):
        with suppress(ValueError):
            first = int(in_base["digits"], int(in_base["base"]))
            second = int(in_base["value"], int(in_base["other"] or 10))
            in_ten = int(in_base["other"] or 10) == 10
            said = in_base["value"] if first == second and in_ten else said
    substance = _SUBSTANCE.fullmatch(_STYLE.sub(" ", said))
    if substance and (not prompt or _named_in(prompt, substance["name"])):
        said = rf"{substance['value']}\text{{ {substance['unit']}}}"
    if "h" in said and (clock := _CLOCK.fullmatch(_STYLE.sub("", said))):
        hours, minutes = clock.groups()
        said = f"{hours}:{minutes}" if ":" in wanted else f"{hours} h {minutes} min"
    if (lasts := _LASTS.fullmatch(said)) and "min" in wanted and "h" in wanted:
        said = f"{lasts[1]} h {lasts[2]} min"
    if amount := _MONEY.fullmatch(said):
        said = f"{amount[1]}.{amount[3]:0>2} {amount[2]}"
    if "mol" in wanted:
        said = _MOLAR.sub(r"\\text{ mol/L}", said)
    calculation, sign, value = wanted.rpartition("=")
    if sign and "=" not in calculation:
        letters = re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", wanted))
        wanted = wanted if letters else value
    if (measured := _BESIDE.fullmatch(wanted)) and unit_symbol(measured["unit"]):
        wanted = rf"{measured['value']}\text{{ {measured['unit']}}}"
    if (bare := _PRODUCT.fullmatch(said)) and re.search(rf"\b{bare['unit']}\b", prompt):
        said = rf"{bare['value']}\text{{ {bare['unit']}}}"
    return None if (wanted, said) == given else (wanted, said)


_PRODUCT = re.compile(r"(?P<value>-?\d[\d.,]*) ?(?P<unit>ms|mi|pt)")
"""A value with a unit that may be a product of letters elsewhere."""
_IN_SCALE = re.compile(r"(?i)\b(?:in|how many) (?P<scale>thousand|million|billion|lakh|crore)s?\b")


def _named_in(prompt: str, name: str) -> bool:
    """Return whether a question names a substance, by its formula or in words."""
    plain = _STYLE.sub("", prompt).lower().replace("₂", "2").replace("₃", "3").replace("₄", "4")
    return name.replace(" ", "").lower() in plain.replace(" ", "")


_MOLAR = re.compile(
    r"(?<=\d)(?:\s|\\[ ,;]|~)*(?:\\(?:text|mathrm)\s*\{\s*)?(?:M(?![A-Za-z])"
    r"|mol[\s\\,;·⋅}]{0,4}(?:L[\s}]*(?:⁻¹|\^\{?-1\}?)|dm[\s}]*(?:⁻³|\^\{?-3\}?)))\}?$"
)
"""`0.25 M` and `0.25 mol L^{-1}`, which are `0.25 mol/L`."""
_CLOCK = re.compile(r"(?:[^\W\d]{0,20}(?:à|às|as|a|ore))?(\d{1,2})[hH](\d\d)\.?")
"""A time of day or a duration: `22h15`."""
_MONEY = re.compile(
    r"(\d+) ([Ee]uros?|reais|рубл\w+),? (?:(?:und|et|y|e|и) )?(\d\d?) (?:[Cc]ents?|centimes"
    r"|c[ée]nt[ai]vos|centesimi|копе\w+)"
)
_LASTS = re.compile(r"(\d{1,3}):(\d\d)(?: h(?:ours)?)?")
_ROMAN = re.compile(rf"(?P<number>\d{{1,5}})=(?P<numeral>{ROMAN})")
"""A number and the same in Roman numerals: `94 = XCIV`."""
_IN_BASES = re.compile(
    r"(?:\\(?:text|mathrm|mathbf)\{)?(?P<digits>[0-9A-Za-z]{1,40})\}?_\{?(?P<base>\d\d?)\}?\s*=\s*"
    r"(?:\\(?:text|mathrm|mathbf)\{)?(?P<value>[0-9A-Za-z]{1,40})\}?(?:_\{?(?P<other>\d\d?)\}?)?"
)
"""A numeral of one base, and the same in another: `2F3_{16} = 755_{10}`."""
_STYLE = re.compile(r"\\(?:text|mathrm|ce|[ ,;])|[\s{}_$~]+")
_SUBSTANCE = re.compile(
    r"\s*(?P<value>-?[\d.,/]+(?: ?(?:\\times|\\cdot|[×·]) ?10 ?\^ ?-?\d+)?)\s+"
    r"(?P<unit>m?mol|moles?|k?g|mg|grams?|kilograms?|milligrams?|m?L|lit(?:er|re)s?|molecules|atoms"
    r"|ions)\s+(?:of )?\s*(?!or\b|and\b)"
    r"(?P<name>(?:[A-Z][a-z]?(?: ?\d+)? ?)+|[a-z]{3,}(?: [a-z]{3,})?)\s*"
)
"""An amount of a substance: `2.00 g of NaOH`, `2 mol CO_2`."""
_RANGED = re.compile(r"(?:from )?(-?\d+(?:\.\d+)?)\s*(?:to|–|—|bis|à|até|до)\s*(-?\d+(?:\.\d+)?)")
"""An interval by its ends: `48.08 to 55.92`."""
_ASKS_INTERVAL = re.compile(r"(?i)\b(?:interval|range|between|values of|for (?:which|what))\b")
_STARRED = re.compile(r"(?<=[A-Za-z])\s*\^\s*(?:\{\s*)?(?:\*|\\ast|\\star)(?:\s*\})?(?=\s*[=,)])")
"""The star of an optimum behind its name: `P^* = 30`."""
_COUNTED_IN = re.compile(r"(?P<value>-?[\d.,/]+)(?P<word>[\u4e00-\u9fff\uac00-\ud7af]{1,4})")
"""A number with the word that the question counts in: `12倍`."""
_CENTRED = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:\\pm|±)\s*(\d+(?:\.\d+)?)")
"""A confidence interval by its centre and margin."""
_SPELT_TWICE = re.compile(
    r"(?:\\text\s*\{\s*)?(?P<word>[A-Za-z]+(?:[ -][A-Za-z]+){0,3})\s*\((?P<digits>\d+)\)\s*\}?"
)
_NAMED = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*(?:[Tt]he |[Ii]ts )?(?P<name>[A-Za-z ]{3,40}?) (?:is|=|equals):?"
    r"\s*\}\s*(?P<value>[^A-Za-z\s].*)"
)
_BESIDE = re.compile(
    r"(?P<value>[-\d.\s]*(?:(?:\\times|[×x])\s*10\^\{?-?\d+\}?|\\sqrt\{\d+\}))\s+(?P<unit>[A-Za-z]{1,4})"
)
