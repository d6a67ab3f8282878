"""The meaning of commands and signs as tables: (kind of token, value).

`grammar.py` says what each kind means. A command that is in no table is kept as written, in its
place: an unknown operator or ornament never disappears.
"""

from __future__ import annotations

from .vocabulary import words

Meaning = tuple[str, str]


def _same(kind: str, names: str) -> dict[str, Meaning]:
    """Return a table in which every command name is also the value."""
    return {name: (kind, name) for name in names.split()}


COMMANDS: dict[str, Meaning] = {
    "cdot": ("op", "·"), "times": ("op", "×"), "ast": ("op", "*"), "div": ("op", "/"),
    "over": ("op", "/"),
    "pm": ("pm", "+-"), "mp": ("pm", "-+"),
    "le": ("rel", "<="), "leq": ("rel", "<="), "leqslant": ("rel", "<="), "leqq": ("rel", "<="),
    "ge": ("rel", ">="), "geq": ("rel", ">="), "geqslant": ("rel", ">="), "geqq": ("rel", ">="),
    "lt": ("rel", "<"), "gt": ("rel", ">"), "ne": ("rel", "!="), "neq": ("rel", "!="),
    "approx": ("rel", "~="), "simeq": ("rel", "~="), "approxeq": ("rel", "~="),
    "thickapprox": ("rel", "~="), "doteq": ("rel", "="), "coloneqq": ("rel", "="),
    "triangleq": ("rel", "="), "equiv": ("rel", "=="),
    "in": ("rel", "in"), "notin": ("rel", "notin"), "to": ("rel", "->"),
    "rightarrow": ("rel", "->"), "longrightarrow": ("rel", "->"), "mapsto": ("rel", "mapsto"),
    "gets": ("rel", "leftarrow"), "parallel": ("rel", "||"), "subsetneqq": ("rel", "subsetneq"),
    **_same("rel", "sim propto perp cong asymp subset subseteq subsetneq supset supseteq supsetneq "
            "ll gg prec succ preceq succeq vdash models ni nmid leftarrow leftrightarrow "
            "longleftarrow longleftrightarrow rightleftharpoons hookrightarrow nparallel nsubseteq "
            "ngeq nleq nless ngtr ncong"),
    "land": ("land", "land"), "wedge": ("land", "land"), "lor": ("lor", "lor"),
    "vee": ("lor", "lor"), "neg": ("not", "neg"), "lnot": ("not", "neg"),
    "Rightarrow": ("arrow", "Rightarrow"), "implies": ("arrow", "Rightarrow"),
    "Longrightarrow": ("arrow", "Rightarrow"), "Leftarrow": ("arrow", "Leftarrow"),
    "impliedby": ("arrow", "Leftarrow"), "Leftrightarrow": ("arrow", "iff"),
    "Longleftrightarrow": ("arrow", "iff"), "iff": ("arrow", "iff"),
    "cup": ("setop", "union"), "bigcup": ("setop", "union"), "cap": ("setop", "inter"),
    "setminus": ("setop", "minus"), "backslash": ("setop", "minus"),
    "smallsetminus": ("setop", "minus"),
    **_same("binary", "oplus otimes ominus oslash odot star bullet diamond wr amalg uplus sqcup "
            "sqcap barwedge veebar ltimes rtimes boxplus boxtimes bowtie"),
    "infty": ("const", "inf"), "pi": ("const", "pi"), "emptyset": ("emptyset", ""),
    "varnothing": ("emptyset", ""),
    "degree": ("degree", ""), "circ": ("circ", ""), "prime": ("prime", "'"),
    "lbrace": ("open", "{"), "rbrace": ("close", "}"), "lbrack": ("open", "["),
    "rbrack": ("close", "]"),
    "lparen": ("open", "("), "rparen": ("close", ")"), "langle": ("open", "⟨"),
    "rangle": ("close", "⟩"),
    "lfloor": ("open", "floor"), "rfloor": ("close", "floor"), "lceil": ("open", "ceil"),
    "rceil": ("close", "ceil"),
    "mid": ("bar", "|"), "vert": ("bar", "|"), "lvert": ("bar", "|"), "rvert": ("bar", "|"),
    "Vert": ("bar", "||"), "lVert": ("bar", "||"), "rVert": ("bar", "||"),
    "ldots": ("dots", ""), "cdots": ("dots", ""), "dots": ("dots", ""), "dotsc": ("dots", ""),
    "dotsb": ("dots", ""),
    "pmod": ("mod", ""), "bmod": ("mod", "bmod"), "mod": ("mod", ""),
    "colon": ("sign", ":"), "newline": ("row", ""),
    "exp": ("func", "exp"), "imath": ("sym", "i"), "jmath": ("sym", "j"),
    "pounds": ("currency", "pound"), "euro": ("currency", "euro"),
}  # fmt: skip
TEXT_COMMANDS = words(
    "text textbf textit textrm texttt textsf textnormal mbox hbox mathrm mathbf mathit mathsf "
    "mathcal mathscr mathfrak operatorname operatorname* boldsymbol bm bold emph underline "
    "vec hat bar tilde dot ddot widehat widetilde overrightarrow"
)
WORDED = words(
    "text textbf textit textrm texttt textsf textnormal mbox hbox mathrm operatorname emph"
)
DECORATED = words("vec hat bar tilde dot ddot widehat widetilde overrightarrow")
"""Ornaments, which are part of the name below."""
LETTERED = words("mathcal mathscr mathfrak")
"""Alphabets in which every letter is a separate name."""
BOLD = words("mathbf boldsymbol bm bold")
"""Commands for bold letters: a vector or a matrix where the operators around suggest so, else the
plain letter.
"""
SIGNS: dict[str, Meaning] = {
    "+": ("op", "+"), "-": ("op", "-"), "*": ("op", "*"), "/": ("op", "/"), "^": ("op", "^"),
    "**": ("op", "^"),
    "_": ("sub", "_"), "!": ("fact", "!"), "'": ("prime", "'"), "%": ("percent", ""),
    "<": ("rel", "<"), ">": ("rel", ">"), "=": ("rel", "="), "<=": ("rel", "<="),
    ">=": ("rel", ">="),
    "!=": ("rel", "!="), "<>": ("rel", "!="), "==": ("rel", "="), ":=": ("rel", "="),
    "->": ("rel", "->"),
    "=>": ("arrow", "Rightarrow"), "+-": ("pm", "+-"), "+/-": ("pm", "+-"),
    "(": ("open", "("), ")": ("close", ")"), "[": ("open", "["), "]": ("close", "]"),
    "{": ("group", "{"),
    "}": ("endgroup", "}"), "|": ("bar", "|"), ",": ("sep", ","), ";": ("sep", ";"),
    ":": ("sign", ":"),
    "&": ("cell", "&"), "£": ("currency", "pound"), "€": ("currency", "euro"),
    "¥": ("currency", "yen"), "¢": ("currency", "cent"), "\\": ("setop", "minus"),
}  # fmt: skip
ESCAPES: dict[str, Meaning] = {
    "\\{": ("open", "{"), "\\}": ("close", "}"), "\\|": ("bar", "||"), "\\%": ("percent", ""),
    "\\$": ("currency", "dollar"), "\\&": ("cell", "&"), "\\_": ("sub", "_"), "\\#": ("sign", "#"),
    "\\\\": ("row", ""), "\\'": ("prime", "'"), "\\-": ("space", ""), "\\/": ("space", ""),
}  # fmt: skip
SPELLED: dict[str, Meaning] = {
    "sqrt": ("cmd", "sqrt"), "frac": ("cmd", "frac"), "dfrac": ("cmd", "frac"),
    "tfrac": ("cmd", "frac"), "binom": ("cmd", "binom"), "cdot": ("op", "·"), "pi": ("const", "pi"),
    "infinity": ("const", "inf"), "inf": ("const", "inf"), "infty": ("const", "inf"),
    "mod": ("mod", ""), "leq": ("rel", "<="), "geq": ("rel", ">="), "neq": ("rel", "!="),
}  # fmt: skip
"""Commands that lost their backslash; no English word is among these."""
OPPOSITE = {"=": "!=", "in": "notin", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
r"""The relation that `\not` makes of each relation."""
