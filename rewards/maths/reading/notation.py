"""Normalisation of spelling: unicode mathematics to ASCII and LaTeX, in linear time.

Superscripts, subscripts and vulgar fractions are rewritten before compatibility folding, which
would lose them (`x²` would become `x2`, `2½` would become `21/2`).
"""

from __future__ import annotations

import re
import unicodedata

from .locales import LATIN_UNIT, uniform_units
from .siunitx import plain_units
from .vocabulary import NUMBER_WORDS, pairs

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₐₑₙₖₘₓ", "0123456789+-aenkmx")
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(map(chr, _SUPERSCRIPTS))}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(map(chr, _SUBSCRIPTS))}]+")
# A list of statements by circled numbers: `①, ③ and ④`.
_CIRCLED = re.compile(r"[①-⑳](?:[\s,、，]*(?:and\s*)?[①-⑳])*")
_VULGAR = re.compile("[¼-¾⅐-⅞]")

_SYMBOLS: dict[str, str] = {
    "×": r"\times ", "✕": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ",
    "•": r"\cdot ", "∗": "*", "÷": r"\div ", "⁄": "/", "∕": "/", "−": "-", "–": "-", "—": "-",
    "‐": "-", "‑": "-", "‒": "-", "﹣": "-", "±": r"\pm ", "∓": r"\mp ", "≤": r"\le ", "≥": r"\ge ",
    "⩽": r"\le ", "⩾": r"\ge ", "≦": r"\le ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≡": r"\equiv ", "∞": r"\infty ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ", "∅": r"\emptyset ",
    "⌀": r"\emptyset ", "∖": r"\setminus ", "°": r"\degree ", "º": r"\degree ", "∘": r"\circ ",
    "′": "'", "″": "''", "∣": r"\mid ", "→": r"\to ", "⇒": r"\Rightarrow ", "…": r"\ldots ",
    "⋯": r"\cdots ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "∠": r"\angle ",
    "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "∃": r"\exists ", "∀": r"\forall ", "∄": r"\nexists ", "∧": r"\land ", "∨": r"\lor ",
    "¬": r"\neg ", "⇔": r"\iff ", "↔": r"\leftrightarrow ", "⊕": r"\oplus ", "⊗": r"\otimes ",
    "⊂": r"\subset ", "⊆": r"\subseteq ", "⊃": r"\supset ", "⊇": r"\supseteq ", "⊥": r"\perp ",
    "≅": r"\cong ", "∝": r"\propto ", "↦": r"\mapsto ", "←": r"\leftarrow ", "∇": r"\nabla ",
    "∂": r"\partial ", "⇌": r"\rightleftharpoons ", "，": ",", "、": ",", "。": ".", "；": ";",
    "：": ":", "∶": ":", "（": "(", "）": ")", "｛": "{", "｝": "}", "％": "%", "“": '"', "”": '"',
    "‘": "'", "’": "'", "⟨": r"\langle ", "⟩": r"\rangle ", "∥": r"\parallel ", "或": " or ",
    "和": " and ", "与": " and ", "及": " and ", "且": " and ", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u2007": " ", "\u2002": " ", "\u2003": " ", "\u3000": " ", "\u200b": "",
    "\u200c": "", "\u200d": "", "\u2060": "", "\ufeff": "", "\u00ad": "", "\u2061": "",
    "\u2062": "", "ı": "i", "ℓ": r"\ell ", "ϕ": r"\varphi ", "ϵ": r"\epsilon ", "ª": "a",
    "\u2148": "i", "\u2147": "e",
}  # fmt: skip
_GREEK = pairs(
    "α=alpha β=beta γ=gamma δ=delta ε=epsilon ζ=zeta η=eta θ=theta κ=kappa λ=lambda μ=mu µ=mu ν=nu "
    "ξ=xi π=pi ρ=rho σ=sigma τ=tau φ=phi χ=chi ψ=psi ω=omega Γ=Gamma Δ=Delta Θ=Theta Λ=Lambda Π=Pi "
    "Σ=Sigma Φ=Phi Ψ=Psi Ω=Omega"
)
_TABLE = str.maketrans({**_SYMBOLS, **{letter: f"\\{name} " for letter, name in _GREEK.items()}})


# `5\mathrm{e}14`, as calculators print it.
_EXPONENT = re.compile(r"(?<=\d)\\(?:mathrm|text|rm)\s*\{[eE]\}(?=[-+]?\d)")
_SPACE = r"(?:\s|\\[ ,;]|~)*"
_UNIT_OF_PREFIX = r"(?:C|F|m|s|g|A|V|J|W|H|T|N|Pa)(?![A-Za-z])"
# `47 µC`, `47\mu\text{C}`: a prefix in Greek behind a number. `3\mu m` stays a product.
_MICRO = re.compile(
    rf"(?<=\d){_SPACE}(?:[μµ](?P<bare>{_UNIT_OF_PREFIX})"
    rf"|(?:[μµ]|\\mu){_SPACE}\\(?:text|mathrm)\s*\{{\s*(?P<styled>{_UNIT_OF_PREFIX})\s*\}}"
    rf"|\\(?:text|mathrm)\s*\{{\s*(?:[μµ]|\\mu){_SPACE}(?P<whole>{_UNIT_OF_PREFIX})\s*\}})"
)
# `5 kΩ`, `5\ \text{k}\Omega`, at the end of an answer.
_OHM = re.compile(
    rf"(?<=\d){_SPACE}(?:\\(?:text|mathrm)\s*\{{\s*([kMGm])\s*\}}{_SPACE}(?:[ΩΩ]|\\Omega)|([kMGm]?)[ΩΩ]"
    r"|()\\Omega)\s*\$?$"
)


_MACROS = re.compile(r"\\(?:SI|si|qty|unit|num|ang)\s*[{\[]")
"""The macros of siunitx."""
# `0xff`, `0b101`: a number of a program.
_LITERAL = re.compile(
    r"[\s$`]*(?:\\(?:text|texttt|mathtt|mathrm|mathbf)\s*\{\s*)?0(?P<base>[xXbBoO])"
    r"(?P<digits>(?<=[xX])[0-9A-Fa-f]{1,64}|(?<=[bB])[01]{1,200}|(?<=[oO])[0-7]{1,100})[\s}$`.]*"
)
_BASES = {"x": 16, "b": 2, "o": 8}
# `\text{R\$ }45`, `Rs. 45`, `EUR 45`: a currency in words before its amount.
_CURRENCY = re.compile(
    r"(?s)^[\s$]*(?P<open>\\(?:text|textrm|mathrm)\s*\{\s*)?(?P<name>R\\?\$|US\\?\$|Rs\b\.?|INR|USD|EUR"
    r"|GBP)(?:\s|~|\\[ ,;])*(?P<close>\}(?:\s|~|\\[ ,;])*)?(?P<amount>-?\.?\d.*)$"
)
_SIGNS = {"R": "R$", "U": "\\$", "r": "₹", "I": "₹", "E": "€", "G": "£"}


def _with_sign(currency: re.Match[str]) -> str:
    """Return an amount with the sign of its currency; reais have commas before their decimals."""
    name, amount = currency["name"], _DECIMAL_COMMA.sub(".", currency["amount"])
    amount = amount.replace("{,}", ",")
    if currency["open"] and not currency["close"]:
        amount = amount.replace("}", "", 1)
    elif currency["close"] and not currency["open"]:
        return currency[0]
    if name[0] == "R" and _REAIS.fullmatch(amount.strip(" $")):
        amount = amount.replace(".", "").replace(",", ".")
    return _SIGNS["r" if name.startswith("Rs") else name[0]] + amount


_REAIS = re.compile(r"-?\d{1,3}(?:\.?\d{3})*,\d\d")


_CROSS = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")


def to_latex(text: str) -> str:
    r"""Return `text` with unicode mathematics written as LaTeX.

    >>> to_latex("2√3 ≤ x²")
    '2\\sqrt 3 \\le  x^{2}'
    """
    if "\\" in text and _MACROS.search(text):
        text = plain_units(text)
    if currency := _CURRENCY.match(text):
        text = _with_sign(currency)
    if "0" in text and (literal := _LITERAL.fullmatch(text)):
        return "{}_{{{}}}".format(literal["digits"].upper(), _BASES[literal["base"].lower()])
    if "10" in text and ("x" in text or "X" in text):
        text = _CROSS.sub(r"\\times ", text)
    if "{e}" in text or "{E}" in text:
        text = _EXPONENT.sub("e", text)
    if "\\mu" in text or "\\Omega" in text or not text.isascii():
        text = _MICRO.sub(lambda unit: rf"\text{{ u{unit[unit.lastgroup or 0]}}}", text)
        text = _OHM.sub(lambda unit: rf"\text{{ {unit[unit.lastindex or 0]}ohm}}", text)
    if text.isascii():
        return uniform_units(text) if LATIN_UNIT.search(text) else text
    text = uniform_units(text)
    # Circled numbers are a list: `②③` becomes `2, 3`.
    text = _CIRCLED.sub(
        lambda run: ", ".join(str(ord(c) - ord("①") + 1) for c in run[0] if "①" <= c <= "⑳"), text
    )
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{run[0].translate(_SUBSCRIPTS)}}}", text)
    text = _VULGAR.sub(_vulgar, text).translate(_TABLE)
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_TABLE)


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}" if bottom else match[0]


_EDGES = " \t\r\n.,;:*_`\"'"
# Markdown emphasis, which must not touch a letter: `2**3**` is a power.
_EMPHASIS = re.compile(r"(?<![\w)\]}*])\*\*(?=[^\s*])([^*]+)(?<=\S)\*\*(?![\w(\[{\\*])")
# The ending of an ordinal number: `5th`, `5^{\text{th}}`.
_ORDINAL = re.compile(
    r"(?<=\d)(?:\^\s*\{\s*(?:\\(?:text|mathrm|textrm)\s*\{(?:st|nd|rd|th)\}|(?:st|nd|rd|th))\s*\}"
    r"|\\(?:text|mathrm|textsuperscript)\s*\{(?:st|nd|rd|th)\}|(?:st|nd|rd|th)(?![A-Za-z]))"
)
_DOLLARS = re.compile(r"(?<!\\)\$")
# A dollar sign before a lone amount: currency, no math delimiter.
_AMOUNT = re.compile(r"(?<!\\)\$(?=\s?-?\d[\d,]*(?:\.\d+)?[A-Za-z ]*[.!]?$)")
_DELIMITERS = re.compile(r"\\[()\[\]]")
_ORNAMENT = re.compile(
    r"\\(?:text)?color\s*\{[^{}]{0,40}\}|\\[hv]?(?:phantom|space)\*?\s*\{[^{}]{0,40}\}"
)
_LEAD_IN = re.compile(
    r"^(?:\s|\$|\\(?:therefore|implies|Rightarrow|Longrightarrow|to|checkmark)(?![a-zA-Z]))+"
)
_LEAD_OUT = re.compile(r"\\(?:checkmark|square|blacksquare|qed|Box)(?![a-zA-Z])[\s$.]*$")
"""Signs after an answer that mean "done", such as a check mark or a tombstone."""
# `\mathbf{2 1}` is 21: digits that were set apart.
_SET_APART = re.compile(r"\\(?:mathbf|textbf|boldsymbol)\s*\{([\d\s.,]*\d)[\s.]*\}")
# `\mathbf{755}_{10}`
_BEFORE_BASE = re.compile(r"\\(?:mathbf|textbf|boldsymbol)\s*\{(\d+)\}(?=\s*_)")
# The end of a row, with the space that follows the row: `\\\\[4pt]`, `\\cr`.
_ROW = re.compile(r"\\\\\s*\[-?[\d.]+(?:pt|em|ex|mm|cm)\]|\\cr(?![a-z])")
_GLUED = re.compile(r"\\q?quad(?=[a-z])")
_NEGATED = re.compile(r"(?:^|(?<=\())~(?=[A-Za-z(])")
# `9{,}3`: a comma that groups stands before three digits.
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=(?:\d{1,2}|\d{4,})(?![\d{]))")
# `(2,5 ; 5)`: where a semicolon separates, a comma starts decimals.
_SEMICOLONED = re.compile(r"[(\[{][^()\[\]{};]{0,200} ; [^()\[\]{}]*[)\]}]")
_COMMA_INSIDE = re.compile(r"(?<=\d),(?=\d)")
# Commands whose backslash was escaped once too often.
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}])")
_NUMBER_WORD = "|".join(sorted(NUMBER_WORDS))
_RANGING = r"[\s}$]{1,4}(?=[a-z]\w?\s*(?:\\in\b|\\[gl]eq?\b|[<>]))"
"""What follows the words of a quantifier: a letter and its range."""
_BOUNDS = (
    (" least", "at least", r"\\ge"), (" most", "at most", r"\\le"),
    ("less than", "(?:no|not) less than", r"\\ge"),
    ("less than", "less than or equal to", r"\\le"),
    ("less than", "(?:strictly )?less than", "<"), ("smaller", "(?:strictly )?smaller than", "<"),
    ("greater", "greater than or equal to", r"\\ge"),
    ("more than", "(?:no|not) more than", r"\\le"),
    ("greater", "(?:strictly )?greater than", ">"),
    ("larger", "larger than", ">"),
    ("bigger", "bigger than", ">"), (" above", "above", ">"), (" below", "below", "<"),
    ("more than", "(?:strictly )?more than", ">"),
)  # fmt: skip
"""What words say of a letter and its bound: `x is at least 5`."""


def _bounded(phrase: str) -> str:
    return (
        r"^(?:\\text\s*\{\s*)?\$?([a-z])\$?\s*(?:\\text\s*\{\s*)?"
        rf"\b(?:is|must be|has to be|should be) (?:{phrase})\b[\s}}$]*(?=-?[\d\\])"
    )


def _bounded_too(phrase: str) -> str:
    return (
        r"^([a-z]) (<|>|\\[lg]e) +(-?[\d\\][^,;A-Z]{0,40}?)[\s}$]*,?\s*(?:\\text\s*\{\s*)?"
        rf"\b(and|but|or) (?:also )?(?:is )?(?:{phrase})\b[\s}}$]*(?=-?[\d\\])"
    )


_HALVES = (
    (" half", "and (?:a|one)[- ]half"), (" halb", "und ein(?:e|en)? halb[a-z]{0,2}"),
    (" demi", "et demie?"), (" medi", "y medi[oa]"), (" mezz", "e mezz[oa]"), (" mei", "e mei[oa]"),
    (" половиной", "с половиной"),
)  # fmt: skip
"""Words for one half behind a number and its unit: `6 heures et demie`."""
_SAID = tuple(
    (sign, re.compile(pattern, re.IGNORECASE), meaning)
    for sign, pattern, meaning in (
        ("minus", rf"^minus\s+(?=\d|(?:{_NUMBER_WORD})\b)", "-"),
        ("negative", rf"^negative\s+(?=\d|(?:{_NUMBER_WORD})\b)", "-"),
        (" of ", r"^(-?\d+) out of (\d+)$", r"\1/\2"),
        (" in ", r"^(-?\d+) in (\d+)$", r"\1/\2"),
        ("per cent", r"\bper cent\b", "percent"),
        *(
            (sign, rf"^(-?\d+)( [^\W\d_]+)? {half}(?![^\W\d_])", r"\1.5\2")
            for sign, half in _HALVES
        ),
        ("半", r"^(-?\d+)\s?([^\W\d_]{0,3})半$", r"\1.5 \2"),
        *((sign, _bounded(phrase), rf"\1 {relation} ") for sign, phrase, relation in _BOUNDS),
        *(
            (sign, _bounded_too(phrase), rf"\1 \2 \3 \4 \1 {relation} ")
            for sign, phrase, relation in _BOUNDS
        ),
        (
            " but ",
            r"^([a-z] (?:<|>|\\[lg]e) [^,;A-Z]{1,40}?) but (?=[a-z] (?:<|>|\\[lg]e))",
            r"\1 and ",
        ),
        (":", r"^(\d{1,2}:\d\d) in the morning$", r"\1 am"),
        (":", r"^(\d{1,2}:\d\d) in the (?:afternoon|evening)$", r"\1 pm"),
        (" in ", r"^([a-z]) in (?=[\[({\]])", r"\1 \\in "),
        (" and ", r"^(\d+) and (\d+/\d+)(?!\w|/)", r"\1 \2"),
        ("const", r"\+\s*(?:\\(?:text|mathrm)\s*\{\s*)?const(?:ant|\.)?\s*\}?$", "+ C"),
        (".", r"^(-?\d+\.\d*)\((\d{1,20})\)$", r"\1\\overline{\2}"),
        ("us", r"^US\s?(?=\\?\$)", ""),
        ("light", r"\blight[- ]years?\b", "ly"),
        (
            "there",
            rf"(?:\\text\s*\{{\s*)?\bthere (?:exists|is)(?: an?| some)?{_RANGING}",
            r"\\exists ",
        ),
        ("where", rf",?\s{{0,9}}(?:\\text\s{{0,9}}\{{\s{{0,9}})?\bwhere{_RANGING}", ", "),
        ("for ", rf"^(?:\\text\s*\{{\s*)?for (?:all|every|each|any){_RANGING}", r"\\forall "),
    )
)
"""Numbers said in words, in the spelling of formulas, each with a text that it cannot lack."""
# `\left.` prints nothing, and \mathcal{O}(n) is O(n).
_UNPRINTED = re.compile(r"\\(?:left|right)\s*\.")
_BIG_O = re.compile(r"\\mathcal\s*\{O\}(?=\s*(?:\\left)?\()")
# `L = {2, 3}`: the usual names of a set of solutions say nothing about its members.
_SOLUTIONS = re.compile(
    r"^\s*(?:\\mathbb\s*\{?\s*[LS]\s*\}?|\\mathcal\s*\{?\s*[LS]\s*\}?\s*(?==\s*(?:\\left\s*)?\\\{)"
    r"|(?:IL|[LS])\s*(?==\s*(?:(?:\\left\s*)?(?:\\\{|[\[\]])|\\emptyset|\\varnothing)))\s*=\s*"
)
_ANOTHER = re.compile(r"[,;]\s*(?:\\mathbb\s*\{)?[A-Z]\}?\s*=")
# `(3|1)`, `(3 \mid 1)`: a point, as German writes it; a comma inside starts decimals.
_BAR = r"(?:\||\\mid(?![a-z])|\\middle\s*\|)"
_COORDINATE = r"(?:[-+\d\s.,/{}]|\\[,;: ]|\\(?:[dt]?frac|sqrt|pi)(?![a-z]))+"
_POINT = re.compile(rf"\({_COORDINATE}(?:{_BAR}{_COORDINATE}){{1,2}}(?:\\right\s*)?\)")
_SPACES = re.compile(r"\s+")
_COSMETIC = re.compile(
    r"\s+|\\[,;:!> ]|~"
    r"|\\(?:q?quad|left|right|displaystyle|limits|[bB]igg?[lrm]?|ensuremath)(?![a-zA-Z])"
)
_FRACTION_SHAPES = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
# `\frac12` and `\frac1{x}` are spelled with both braces.
_SHORT_FRACTION = re.compile(r"\\frac(\d)(\w)")
_HALF_SHORT = re.compile(r"\\frac(\d)\{")


def strip_delimiters(text: str) -> str:
    """Return the text without math delimiters, outer emphasis and a final full stop.

    A dollar sign before a lone amount becomes a currency sign.

    >>> strip_delimiters("**$42$.**")
    '42'
    """
    if "{:}" in text:
        text = text.replace("{:}", ":")
    lowered = text.lower()
    for sign, pattern, meaning in _SAID:
        if sign in lowered:
            text = pattern.sub(meaning, text)
    if " ; " in text:
        text = _SEMICOLONED.sub(lambda bracket: _COMMA_INSIDE.sub(".", bracket[0]), text)
    if "{,}" in text:
        text = _DECIMAL_COMMA.sub(".", text)
    if "$" in text:
        amount = text.count("$") == 1 and _AMOUNT.search(text)
        text = _AMOUNT.sub(r"\\$", text) if amount else _DOLLARS.sub(" ", text)
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    if "\\" in text:
        if "\\cr" in text or "\\[" in text:
            text = _ROW.sub(r"\\\\ ", text)
        text = _DELIMITERS.sub(" ", text)
        if "t." in text:
            text = _UNPRINTED.sub(" ", text)
        if "\\mathcal" in text:
            text = _BIG_O.sub("O", text)
        if "color" in text or "space" in text or "phantom" in text:
            text = _ORNAMENT.sub(" ", text)
        if "bf" in text or "bold" in text:
            text = _BEFORE_BASE.sub(r"\1", text)
            text = _SET_APART.sub(lambda digits: f"{{{digits[1].replace(' ', '')}}}", text)
        if lead := _LEAD_IN.match(text):
            text = text[lead.end() :]
        text = _LEAD_OUT.sub("", text)
        if "quad" in text:
            text = _GLUED.sub(" ", text)
    if "=" in text and not _ANOTHER.search(text):
        text = _SOLUTIONS.sub("", text)
    if "(" in text and ("|" in text or "\\mid" in text):
        text = _POINT.sub(
            lambda point: re.sub(_BAR, " , ", re.sub(r"(?<!\\),", ".", point[0])), text
        )
    if "&" in text and "\\begin" not in text:  # a row of `align`
        text = text.replace("\\&", " ").replace("&", " ")
    elif "&" in text and "ed}" in text:
        text = _ALIGNED.sub("=", text)
    if "~" in text:
        text = _NEGATED.sub(r"\\neg ", text)
    if "**" in text:
        text = _EMPHASIS.sub(r"\1", text.removeprefix("> "))
    if "th" in text or "st" in text or "nd" in text or "rd" in text:
        text = _ORDINAL.sub("", text)
    return _without_edges(text)


def _without_edges(text: str) -> str:
    """Return a text without what only begins or ends it: spaces, quotes, a stop, a sign before its
    value.
    """
    text = text.strip(' \t\r\n*`"')
    if text.endswith("\\"):
        text = text.rstrip("\\ ")
    while text.endswith((".", ",", ";", ":")) and not text.endswith(("...", "\\,", "\\;", "\\:")):
        text = text[:-1].rstrip(' \t\r\n*`"')
    while text[:1] in {"=", ":"}:
        text = text[1:].lstrip()
    if text.startswith("\\approx"):
        text = text[7:].lstrip()
    if text[:1] == "." and not text[1:2].isdigit():
        text = text.lstrip(_EDGES)
    return text


# The mark of alignment behind a name, and not at the beginning of a row.
_ALIGNED = re.compile(r"(?<=[\w})\]])[ ]?&[ ]?=|(?<=[\w})\]])[ ]?=[ ]?&")


def squeeze(text: str) -> str:
    r"""Return the text without anything that only changes the appearance; two answers with equal
    results are equal.

    >>> squeeze(r"\dfrac{1}{2} \, \left( x \right)")
    '\\frac{1}{2}(x)'
    """
    if "\\" in text or " " in text or "~" in text or not text.isprintable():
        text = _COSMETIC.sub("", text)
    if "frac" in text:
        text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", _FRACTION_SHAPES.sub(r"\\frac", text))
        text = _HALF_SHORT.sub(r"\\frac{\1}{", text)
    return text


def as_words(text: str) -> str:
    """Return plain words with single spaces and without markup: the form in which text answers are
    compared.
    """
    text = re.sub(
        r"\\(?:text|mathrm|textbf|textit|mathbf|textrm|mbox|operatorname)[a-z]*\s*\*?", " ", text
    )
    text = re.sub(r"\\[,;:!>$ ]|[{}$*~`\"]", " ", text)
    return _SPACES.sub(" ", text).lstrip(" .,;:()").rstrip(" .,;:!()")
