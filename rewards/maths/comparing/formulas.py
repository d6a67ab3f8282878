"""Chemical formulas and electron configurations: two are equal if the same symbols come in the
same order, whatever the typesetting. The sides of an equation have no order.
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
_ARROWS = re.compile(
    r"\\(?:long)?rightarrow(?![a-z])|\\(?:Rightarrow|Longrightarrow|implies|to)(?![a-z])|[-=]+>|⟶"
    r"|\\x(?:right|left)arrow\s*(?:\[[^\[\]]*\])?\s*\{(?:[^{}]|\{[^{}]*\})*\}"
    r"|\\overset\s*\{(?:[^{}]|\{[^{}]*\})*\}\s*\{\s*\\(?:long)?rightarrow\s*\}"
)
_EQUILIBRIUM = re.compile(
    r"\\(?:rightleftharpoons|leftrightharpoons|leftrightarrow)(?![a-z])|<-->|<->|<=>"
)
_PLUS = re.compile(r"(?<!\^)(?<!\^\d)\+(?!->|$)")
"""The sign between two substances, which is no charge."""
_CHARGED = re.compile(r"(?<=[A-Za-z\d\])])(?<!\^\d)(?<!\{\d)([+-])(?=[\s}(]|$)")
"""A charge as `\\ce` writes it, right behind its substance: `Ag+`."""
_STATE = re.compile(r"\((?:s|l|g|aq)\)")
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
    text = _CHARGED.sub(r"^\1", text) if "\\ce" in text else text
    text = _EQUILIBRIUM.sub("<=>", _ARROWS.sub("->", text)).replace("\\cdot", ".")
    text = _LAST_CHARGE.sub(r"^\1", _MARKUP.sub("", text))
    alone = re.fullmatch(r"[(\[]*[A-Z][)\]]*", text)
    if alone is not None or _FORMULA.fullmatch(text) is None:
        return None
    sides = [sorted(_PLUS.split(side)) for side in re.split("<=>|->|=", text)]
    return "->".join(map("+".join, sides)) if len(sides) == 2 else text


def same_formula(first: str, second: str) -> bool:
    """Return whether two formulas agree, of which one may leave the states of all substances out.

    >>> same_formula("2H2+O2->2H2O", "2H2(g)+O2(g)->2H2O(l)"), same_formula("NaCl(s)", "NaCl(aq)")
    (True, False)
    """
    if first == second:
        return True
    bare = [_STATE.sub("", text) for text in (first, second)]
    # Without its states a side may be in another order.
    sides = ["->".join("+".join(sorted(_PLUS.split(s))) for s in text.split("->")) for text in bare]
    return sides[0] == sides[1] and (bare[0] == first) != (bare[1] == second)


_NOBLE = {"He": "1s2", "Ne": "2s22p6", "Ar": "3s23p6", "Kr": "4s23d104p6",
          "Xe": "5s24d105p6", "Rn": "6s24f145d106p6"}  # fmt: skip
"""The shells that each noble gas adds to those of the one before."""
# The digits behind a shell end where the next shell begins: `1s22s2`.
_SHELL = re.compile(r"(\d[spdfg])\^?(\d{1,2}?)(?=\d[spdfg]|$)")
_SHELLS = re.compile(rf"(?:\[(?P<core>[A-Z][a-z])\])?(?P<shells>(?:{_SHELL.pattern})+)")


def configuration(text: str) -> frozenset[tuple[str, str]]:
    r"""Return the electrons of each shell, of an electron configuration in full or with the sign of
    a noble gas; empty for anything else.

    >>> configuration(r"[\mathrm{Ne}]\,3s^1") == configuration("1s^2 2s^2 2p^6 3s^1")
    True
    """
    bare = _MARKUP.sub("", text) if len(text) <= MAX_LENGTH else ""
    written = _SHELLS.fullmatch(bare)
    if written is None or (written["core"] or "He") not in _NOBLE:
        return frozenset()
    core = list(_NOBLE)[: list(_NOBLE).index(written["core"]) + 1] if written["core"] else []
    shells = [shell for gas in core for shell in _SHELL.findall(_NOBLE[gas])]
    shells += _SHELL.findall(written["shells"])
    once = len({shell for shell, _ in shells}) == len(shells) > 1
    return frozenset(shells) if once else frozenset()
