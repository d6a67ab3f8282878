"""Chemical formulas: two are equal if the same symbols come in the same order, whatever the
typesetting.
"""

from __future__ import annotations

import re

_ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se "
    "Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb "
    "Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu"
)
_SYMBOLS = "|".join(sorted(_ELEMENTS.split(), key=len, reverse=True))
_SPECIES = rf"\d*(?:(?:{_SYMBOLS})\d*|[()\[\]]\d*)+(?:\^\d*[+-])?(?:\((?:s|l|g|aq)\))?"
_FORMULA = re.compile(rf"{_SPECIES}(?:(?:\+|->|<=>|=|\.){_SPECIES})*")
_ARROWS = re.compile(r"\\(?:long)?rightarrow(?![a-z])|\\to(?![a-z])|-->")
_EQUILIBRIUM = re.compile(r"\\(?:rightleftharpoons|leftrightharpoons)(?![a-z])|<-->|<->|<=>")
_MARKUP = re.compile(
    r"\\(?:ce|mathrm|text|textrm|mathsf|rm|left|right)(?![a-z])|\\[,;:! ]|[\s{}$_~]"
)
_MARKED = re.compile(r"\\(?:ce|mathrm|text)|[A-Z][a-z]?[_^]|\d")
_LAST_CHARGE = re.compile(r"(?<!\^)(?<!\^\d)([+-])$")
MAX_LENGTH = 200


def formula(text: str) -> str | None:
    r"""Return a chemical formula or equation in one normal spelling, or None for anything else.

    A single capital letter gives None, because such a letter is a choice or a name.

    >>> formula(r"\mathrm{H}_2\mathrm{SO}_4"), formula("H2SO4"), formula("x_2")
    ('H2SO4', 'H2SO4', None)
    """
    if len(text) > MAX_LENGTH or _MARKED.search(text) is None:
        return None
    text = _EQUILIBRIUM.sub("<=>", _ARROWS.sub("->", text)).replace("\\cdot", ".")
    text = _LAST_CHARGE.sub(r"^\1", _MARKUP.sub("", text))
    alone = re.fullmatch(r"[(\[]*[A-Z][)\]]*", text)
    return text if alone is None and _FORMULA.fullmatch(text) else None
