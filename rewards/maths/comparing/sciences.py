r"""Conventions of the sciences: what a question of circuits, of quantum mechanics or of genes lets
an answer write in another way than the gold does.

Each function rewrites a text, or a pair of gold and answer, and leaves any other as it is.
"""

from __future__ import annotations

import re

from ..reading.notation import as_words
from ..reading.vocabulary import unit_symbol

GAP = r"(?:\s|\\[ ,;:]|~|\\q?quad(?![a-z]))*+"
"""Spaces between two signs of a formula."""

# --- circuits ---

_J = re.compile(r"(?<![A-Za-z\\{])j(?![A-Za-z_({])|\\(?:mathrm|text|mathbf)\s*\{\s*j\s*\}|\\jmath")
_COMPLEX = re.compile(
    rf"(?P<name>\\?[A-Za-z]+(?:_\{{?\w+\}}?)?\s*=\s*)?\(?(?P<value>[^()=A-Zg-h]*(?<![A-Za-z\\])i(?![A-Za-z])[^()=]*?)\)?{GAP}"
    r"(?P<unit>\\Omega|Ω|\\(?:text|mathrm)\s*\{\s*(?:Ω|\\Omega|ohms?|V|A|VA|W|S)\s*\})[\s$.]*"
)
ENGINEERED = re.compile(
    r"(?i)\b(?:impedance|admittance|phasors?|reactance|complex power|transfer function)\b|\bj\s?ω"
)


def with_imaginary_unit(text: str) -> str:
    """Return the number `3 + j4` of an engineer with the imaginary unit i, and a unit behind it as
    that of the whole number.
    """
    text = _J.sub("i", text) if "j" in text else text
    whole = _COMPLEX.fullmatch(
        re.sub(r"(?<![A-Za-z\\])i(?=\d)", "i ", text).replace("$", "").strip()
    )
    if whole is None:
        return text
    unit = re.sub(r"\\(?:text|mathrm)|[{}\s]", "", whole["unit"])
    unit = "ohm" if unit in {"\\Omega", "Ω", "ohm", "ohms"} else unit
    if unit == "S":
        unit = "A/V"
    return rf"{whole['name'] or ''}({whole['value'].strip()})\text{{ {unit}}}"


# --- operators ---

QUANTUM = re.compile(
    r"(?i)\b(?:commutators?|quantum|hamiltonian|eigenstates?|ladder operators?|schr[oö]dinger)\b"
    r"|\[\s*\\?(?:hat)?\{?[xpLSJ]"
)
_OPERATOR = re.compile(r"\\(?:wide)?hat\s*(?:\{\s*([A-Za-z])\s*\}|([A-Za-z]))")


def without_operator_hats(text: str) -> str:
    r"""Return a formula of quantum mechanics without the hats of its operators, unless a letter
    stands with and without one: `\hat p` and `p` then differ.
    """
    hatted = {first or second for first, second in _OPERATOR.findall(text)}
    bare = re.sub(r"\\[A-Za-z]+", " ", _OPERATOR.sub(" ", text))
    if not hatted or hatted & set(bare):
        return text
    return _OPERATOR.sub(lambda hat: f" {hat[1] or hat[2]}", text)


# --- running times ---

_BIG_O = re.compile(
    r"[\s$]*(?:T\s*\(n\)\s*(?:=|\\in|∈)\s*)?(?:\\mathcal\s*\{?O\}?|O)\s*(?:\\left)?\("
)
_LOGARITHM = re.compile(r"\\?(?<![A-Za-z])(?:ln|lg|log(?:_\{?(?:2|10|e)\}?|₂|₁₀)?)(?![_A-Za-z₀-₉])")
_THETA = re.compile(r"(?:\\Theta|Θ)(?=\s*(?:\\left)?\()")
_UPPER_ASKED = re.compile(r"(?i)\b(?:upper bound|big[- ]?oh?)\b")
_TIMES = re.compile(r"(?i)\b(?:complexity|running time|runtime|asymptotic\w*|tight|worst|time)\b")


def bound_of_any_base(text: str) -> str:
    r"""Return a bound `O(n \log_2 n)` as `O(n \log n)`: the base only changes a constant."""
    return _LOGARITHM.sub(r"\\log", text) if _BIG_O.match(_THETA.sub("O", text)) else text


def tight_bound(gold: str, answer: str, prompt: str) -> str:
    r"""Return an answer `\Theta(f)` as `O(f)` where the gold has only the upper bound of what the
    question asks for: the tight bound says more.
    """
    if not _BIG_O.match(gold) or not _THETA.search(answer):
        return answer
    asked = _TIMES.search(prompt) and not _UPPER_ASKED.search(prompt)
    return _THETA.sub("O", answer, count=1) if asked else answer


# --- strands ---

_END = r"\s*['’′]|\s*\^?\{?\\prime\}?"
_STRAND = re.compile(
    rf"\(?\s*(?P<first>[35])(?:{_END})?[\s–-]*(?P<bases>[ACGTU](?:[ACGTU\s-]*[ACGTU])?)"
    rf"[\s–-]*(?P<last>[35])(?:{_END})?\s*\)?"
)
_BASES = re.compile(r"[ACGTU]{3,}")
_BACKWARDS = re.compile(
    r"(?i:\b(?:writ|giv|express|report|stat|list)\w*\b)"
    r"(?:(?!\breads\b|\b(?:is|are|was|be|being) read\b)[^.?;]){0,60}?"
    rf"\b3(?:{_END})?\s*(?:→|->|\\to|to|-)\s*5(?:{_END})?(?![\w-])"
)
"""Where a question wants a sequence from the end 3' on: not where an enzyme reads one so."""


def same_strand(prompt: str, gold: str, answer: str) -> bool | None:
    """Decide whether two sequences of bases are the same, read from the end 5' to the end 3'; None
    for other texts, and where the question is not of such.

    A sequence without ends goes as the question says, and from 5' to 3' where it does not.
    """
    if not _OF_BASES.search(prompt):
        return None
    strands: list[str] = []
    for text in map(_plain_strand, (gold, answer)):
        strand = _STRAND.fullmatch(text)
        bases = re.sub(r"[\s-]", "", strand["bases"] if strand else text)
        if not _BASES.fullmatch(bases) or (strand and strand["first"] == strand["last"]):
            return None
        turned = strand["first"] == "3" if strand else _BACKWARDS.search(prompt) is not None
        strands.append(bases[::-1] if turned else bases)
    return strands[0] == strands[1]


_OF_BASES = re.compile(r"\b(?:strands?|m?[DR]NA|codons?|complement|primer|template|nucleotides?)\b")


def _plain_strand(text: str) -> str:
    text = text.replace("^{\\prime}", "'").replace("^\\prime", "'")
    return re.sub(r"\\(?:text|mathrm|texttt|mathtt)|[{}$*]|\\[ ,;]", "", text)


# --- concentrations ---

_MOLAR = re.compile(
    rf"(?<=[\d}}]){GAP}(?:\\(?:text|mathrm)\s*\{{\s*)?(?P<milli>m?)(?:M(?![A-Za-z])"
    r"|mol[\s\\,;·⋅}]{0,4}(?:L[\s}]*(?:⁻¹|\^\{?-1\}?)|dm[\s}]*(?:⁻³|\^\{?-3\}?)))\}?[\s$.]*$"
)
_DISSOLVED = re.compile(
    r"\b(?:concentrat\w*|konzentration|molar\w*|solubility|löslichkeit|solution|lösung|dilut\w*|titrat\w*"
    r"|pO?H|equilibrium|K_?(?:sp|a|b)|mol)\b"
)


_LETTER_M = re.compile(r"(?<!\bin )(?<![\d\\A-Za-z])(?<!\d )(?<![\d}]\$ )\$?M\b(?!\s*\()")


def molar(prompt: str, gold: str, answer: str) -> tuple[str, str]:
    """Return gold and answer with `0.25 M` as `0.25 mol/L`, where the question is of solutions."""
    if not (_MOLAR.search(gold) or _MOLAR.search(answer)) or not _DISSOLVED.search(prompt):
        return gold, answer
    if _LETTER_M.search(prompt) or re.search(r"\dM\b", gold):  # a mass, and no unit
        return gold, answer
    first, second = (_MOLAR.sub(r"\\text{ \g<milli>mol/L}", text) for text in (gold, answer))
    return first, second


_LITRES = re.compile(r"(?<=\d)(?:\s|\\[ ,;])+l$")


def litres(prompt: str, gold: str, answer: str) -> tuple[str, str]:
    """Return gold and answer with `0.5 l` as litres, where the question names this unit."""
    if not re.search(r"(?i)\blit(?:er|re|ro)|литр|\d l\b", prompt):
        return gold, answer
    first, second = (_LITRES.sub(r"\\text{ L}", text.strip(" $")) for text in (gold, answer))
    return first, second


# --- things with a label ---

_LABELLED = re.compile(r"(?P<noun>[A-Za-z]{3,20})\s+(?P<label>[A-Z]|\d{1,2})")


def label_of_thing(gold: str, answer: str, prompt: str) -> str:
    """Return an answer that is the label of a thing in full: `Y` as `Brand Y`, where the question
    asks `Which brand` and has several of them.
    """
    thing = _LABELLED.fullmatch(gold)
    if thing is None or as_words(answer) != thing["label"]:
        return answer
    noun = re.escape(thing["noun"])
    labels = set(re.findall(rf"(?i:\b{noun})s?\s+([A-Z]|\d{{1,2}})\b", prompt))
    labels |= set(re.findall(rf"(?i:\b{noun}s)\s+[A-Z\d]{{1,2}} and ([A-Z]|\d{{1,2}})\b", prompt))
    asked = re.search(rf"\b(?:which|what) (?:\w+ )?{noun}\b", prompt, re.IGNORECASE)
    return gold if asked and len(labels) > 1 and thing["label"] in labels else answer


# --- rates ---

_RATE = re.compile(
    rf"(?s)(?P<value>.*?[\d}}A-Za-z€£$])(?P<open>{GAP}(?:\\(?:text|mathrm)\s*\{{)?)\s*(?:/|\bper\b)\s*"
    r"(?:\\(?:text|mathrm)\s*\{\s*)?(?P<unit>[A-Za-z]{1,6})\s*\}{0,2}"
)
_OF_MANY = re.compile(r"(?P<value>-?\d[^/]*?) ?(?:/|\bper) ?(?P<many>\d+ [^\W\d_]+)")
"""So much of each hundred or thousand: `7.7 L/100 km`."""
_EVERY = {
    "year": r"annual|yearly", "month": r"monthly", "week": r"weekly", "day": r"daily",
    "h": r"hourly",
}  # fmt: skip
_ASKS = (
    r"(?:what|how (?:much|many|far)|find|calculate|compute|determine|give|state)\b"
    r"(?:(?!\b(?:if|when|given|while|where|from)\b)[^.?;,]){0,60}?\b"
)
_MOLE = re.compile(r"(?i)\b(?:per|each|one|1|a) mol(?:e\b|\b)|\bmolar\b")
_MOLES = re.compile(r"(?<![\d.,])(?:[2-9]|\d\d+|\d*\.\d+)[\d.]*\s*mol(?:es)?\b")


def rate_asked(gold: str, answer: str, prompt: str) -> str:
    """Return a rate (`5000 dollars per year`) as the amount, where the gold has no rate and the
    question asks for that of one year: `What is the annual depreciation?`.

    A question that gives a rate itself may ask for a total, which is no rate.
    """
    if "/" not in answer and "per" not in answer:
        return answer
    many = _OF_MANY.fullmatch(answer.strip(" $."))
    if many and re.search(rf"\bper {re.escape(many['many'])}\b", prompt):
        return answer if _OF_MANY.fullmatch(gold) else many["value"]
    rate = _RATE.fullmatch(answer.strip(" $."))
    unit = unit_symbol(rate["unit"]) if rate else None
    if rate is None or unit is None or re.search(r"/\s*[A-Za-z\\]|\bper\b", gold):
        return answer
    if not re.search(r"[A-Za-z$]", re.sub(r"\\(?:times|cdot|text|mathrm|frac)", "", gold)):
        return answer
    one_mole = _MOLE.search(prompt) and not _MOLES.search(prompt)
    if not (one_mole if unit == "mol" else _asks_for_rate(prompt, unit)):
        return answer
    value = rate["value"]
    return value + "}" * (value.count("{") - value.count("}"))


def _asks_for_rate(prompt: str, unit: str) -> bool:
    """Return whether a question asks for what is done in one unit of time, and gives no rate."""
    named = "|".join(
        {name for name in re.findall(r"[A-Za-z]+", prompt) if unit_symbol(name) == unit}
    )
    every = _EVERY.get(unit, "(?!)")
    asked = (
        rf"{_ASKS}(?:(?:per|each|every) (?:{named or '(?!)'})|(?:{every})(?! (?:rate|percent)))\b"
    )
    given = (
        rf"\d[\d.,]*\s*(?:%|[A-Za-z°$€]+)?\s*(?:/|per |an? |each |every )\s*(?:{named or '(?!)'})\b"
        rf"|(?:{every}) (?:rate|percentage)"
    )
    return bool(re.search(asked, prompt, re.IGNORECASE)) and not re.search(given, prompt)
