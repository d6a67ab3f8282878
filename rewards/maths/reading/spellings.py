"""What commands and signs mean to the reader: one table each, and nothing else.

A token is (kind, value); the grammar in `parser`, `atoms` and `reader` knows the kinds.
"""

from __future__ import annotations

from .vocabulary import words

COMMANDS: dict[str, tuple[str, str]] = {
    "cdot": ("op", "*"), "times": ("op", "*"), "ast": ("op", "*"), "div": ("op", "/"),
    "over": ("op", "/"),
    "pm": ("pm", "+-"), "mp": ("pm", "-+"),
    "le": ("rel", "<="), "leq": ("rel", "<="), "leqslant": ("rel", "<="), "leqq": ("rel", "<="),
    "ge": ("rel", ">="), "geq": ("rel", ">="), "geqslant": ("rel", ">="), "geqq": ("rel", ">="),
    "lt": ("rel", "<"), "gt": ("rel", ">"), "ne": ("rel", "!="), "neq": ("rel", "!="),
    "approx": ("rel", "~="), "simeq": ("rel", "~="), "doteq": ("rel", "="), "equiv": ("rel", "=="),
    "sim": ("rel", "~"),
    "in": ("rel", "in"), "notin": ("rel", "notin"), "to": ("rel", "->"),
    "rightarrow": ("rel", "->"),
    "mapsto": ("rel", "->"), "subset": ("rel", "subset"), "subseteq": ("rel", "subset"),
    "parallel": ("rel", "||"),
    "perp": ("rel", "perp"), "propto": ("rel", "~"), "cong": ("rel", "cong"),
    "cup": ("setop", "union"), "cap": ("setop", "inter"), "setminus": ("setop", "minus"),
    "backslash": ("setop", "minus"),
    "infty": ("const", "inf"), "pi": ("const", "pi"), "emptyset": ("emptyset", ""),
    "varnothing": ("emptyset", ""),
    "degree": ("degree", ""), "circ": ("circ", ""), "prime": ("prime", "'"),
    "lbrace": ("open", "{"), "rbrace": ("close", "}"), "lbrack": ("open", "["),
    "rbrack": ("close", "]"),
    "lparen": ("open", "("), "rparen": ("close", ")"), "langle": ("open", "("),
    "rangle": ("close", ")"),
    "lfloor": ("open", "floor"), "rfloor": ("close", "floor"), "lceil": ("open", "ceil"),
    "rceil": ("close", "ceil"),
    "mid": ("bar", "|"), "vert": ("bar", "|"), "lvert": ("bar", "|"), "rvert": ("bar", "|"),
    "Vert": ("bar", "||"),
    "ldots": ("dots", ""), "cdots": ("dots", ""), "dots": ("dots", ""), "dotsc": ("dots", ""),
    "dotsb": ("dots", ""),
    "pmod": ("mod", ""), "bmod": ("mod", ""), "mod": ("mod", ""), "lor": ("word", "or"),
    "land": ("word", "and"),
    "vee": ("word", "or"), "wedge": ("word", "and"), "colon": ("sign", ":"), "newline": ("row", ""),
    "exp": ("func", "exp"), "text": ("text", ""), "neg": ("sign", "~"),
    "imath": ("sym", "i"), "jmath": ("sym", "j"), "pounds": ("currency", "pound"),
    "euro": ("currency", "euro"),
}  # fmt: skip
TEXT_COMMANDS = words(
    "text textbf textit textrm texttt textsf textnormal mbox hbox mathrm mathbf mathit mathsf "
    "mathcal mathscr mathfrak operatorname operatorname* boldsymbol bm bold emph underline "
    "vec hat bar tilde overrightarrow"
)
WORDED = words(
    "text textbf textit textrm texttt textsf textnormal mbox hbox mathrm operatorname emph"
)
DECORATED = words("vec hat bar tilde overrightarrow")
SIGNS: dict[str, tuple[str, str]] = {
    "+": ("op", "+"), "-": ("op", "-"), "*": ("op", "*"), "/": ("op", "/"), "^": ("op", "^"),
    "**": ("op", "^"),
    "_": ("sub", "_"), "!": ("fact", "!"), "'": ("prime", "'"), "%": ("percent", ""),
    "<": ("rel", "<"), ">": ("rel", ">"), "=": ("rel", "="), "<=": ("rel", "<="),
    ">=": ("rel", ">="),
    "!=": ("rel", "!="), "<>": ("rel", "!="), "==": ("rel", "="), ":=": ("rel", "="),
    "->": ("rel", "->"),
    "=>": ("rel", "=>"), "+-": ("pm", "+-"), "+/-": ("pm", "+-"),
    "(": ("open", "("), ")": ("close", ")"), "[": ("open", "["), "]": ("close", "]"),
    "{": ("group", "{"),
    "}": ("endgroup", "}"), "|": ("bar", "|"), ",": ("sep", ","), ";": ("sep", ";"),
    ":": ("sign", ":"),
    "&": ("cell", "&"), "£": ("currency", "pound"), "€": ("currency", "euro"),
    "¥": ("currency", "yen"), "¢": ("currency", "cent"), "\\": ("setop", "minus"),
}  # fmt: skip
ESCAPES: dict[str, tuple[str, str]] = {
    "\\{": ("open", "{"), "\\}": ("close", "}"), "\\|": ("bar", "||"), "\\%": ("percent", ""),
    "\\$": ("currency", "dollar"), "\\&": ("cell", "&"), "\\_": ("sub", "_"), "\\#": ("sign", "#"),
    "\\\\": ("row", ""), "\\'": ("prime", "'"), "\\-": ("space", ""), "\\/": ("space", ""),
}  # fmt: skip
SPELLED: dict[str, tuple[str, str]] = {
    "sqrt": ("cmd", "sqrt"), "frac": ("cmd", "frac"), "dfrac": ("cmd", "frac"),
    "tfrac": ("cmd", "frac"), "binom": ("cmd", "binom"), "cdot": ("op", "*"), "pi": ("const", "pi"),
    "infinity": ("const", "inf"), "inf": ("const", "inf"), "infty": ("const", "inf"),
    "mod": ("mod", ""), "leq": ("rel", "<="), "geq": ("rel", ">="), "neq": ("rel", "!="),
}  # fmt: skip
"""Commands that lost their backslash; none of them is a word of English."""
