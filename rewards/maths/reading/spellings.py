"""The meaning of commands and signs as tables: (kind of token, value).

`grammar.py` says what each kind means. A command that is in no table is kept as written, in its
place: an unknown operator or ornament never disappears.
"""

from __future__ import annotations

from .vocabulary import words

Meaning = tuple[str, str]


def _meanings(table: str) -> dict[str, Meaning]:
    """Return the meanings of a table. Each line has a kind of token and then entries `name=value`,
    or names that are also their values.
    """
    rows = (line.split() for line in table.strip().split("\n"))
    split = ((kind, entry.partition("=")) for kind, *entries in rows for entry in entries)
    return {name: (kind, value if sign else name) for kind, (name, sign, value) in split}


COMMANDS = _meanings("""
    op cdot=· times=× ast=* div=/ over=/
    pm pm=+- mp=-+
    rel le=<= leq=<= leqslant=<= leqq=<= ge=>= geq=>= geqslant=>= geqq=>= lt=< gt=> ne=!= neq=!=
    rel approx=~= simeq=~= approxeq=~= thickapprox=~= doteq== coloneqq== triangleq== equiv=== in
    rel notin to=-> rightarrow=-> longrightarrow=-> mapsto gets=leftarrow parallel=||
    rel subsetneqq=subsetneq sim propto perp cong asymp subset subseteq subsetneq supset supseteq
    rel supsetneq ll gg prec succ preceq succeq vdash models ni nmid leftarrow leftrightarrow
    rel longleftarrow longleftrightarrow rightleftharpoons hookrightarrow nparallel nsubseteq ngeq
    rel nleq nless ngtr ncong
    land land wedge=land
    lor lor vee=lor
    not neg lnot=neg
    arrow Rightarrow implies=Rightarrow Longrightarrow=Rightarrow Leftarrow impliedby=Leftarrow
    arrow Leftrightarrow=iff Longleftrightarrow=iff iff
    setop cup=union bigcup=union cap=inter setminus=minus backslash=minus smallsetminus=minus
    binary oplus otimes ominus oslash odot star bullet diamond wr amalg uplus sqcup sqcap barwedge
    binary veebar ltimes rtimes boxplus boxtimes bowtie
    const infty=inf pi
    emptyset emptyset= varnothing=
    degree degree=
    circ circ=
    prime prime='
    open lbrace={ lbrack=[ lparen=( langle=⟨ lfloor=floor lceil=ceil
    close rbrace=} rbrack=] rparen=) rangle=⟩ rfloor=floor rceil=ceil
    bar mid=| vert=| lvert=| rvert=| Vert=|| lVert=|| rVert=||
    dots ldots= cdots= dots= dotsc= dotsb=
    mod pmod= bmod mod=
    sign colon=:
    row newline=
    func exp
    sym imath=i jmath=j
    currency pounds=pound euro
""")
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
    "**": ("op", "^"), "_": ("sub", "_"), "!": ("fact", "!"), "'": ("prime", "'"),
    "%": ("percent", ""), "<": ("rel", "<"), ">": ("rel", ">"), "=": ("rel", "="),
    "<=": ("rel", "<="), ">=": ("rel", ">="), "!=": ("rel", "!="), "<>": ("rel", "!="),
    "==": ("rel", "="), ":=": ("rel", "="), "->": ("rel", "->"), "=>": ("arrow", "Rightarrow"),
    "+-": ("pm", "+-"), "+/-": ("pm", "+-"), "(": ("open", "("), ")": ("close", ")"),
    "[": ("open", "["), "]": ("close", "]"), "{": ("group", "{"), "}": ("endgroup", "}"),
    "|": ("bar", "|"), ",": ("sep", ","), ";": ("sep", ";"), ":": ("sign", ":"), "&": ("cell", "&"),
    "£": ("currency", "pound"), "€": ("currency", "euro"), "¥": ("currency", "yen"),
    "¢": ("currency", "cent"), "\\": ("setop", "minus"),
}  # fmt: skip
ESCAPES: dict[str, Meaning] = {
    "\\{": ("open", "{"), "\\}": ("close", "}"), "\\|": ("bar", "||"), "\\%": ("percent", ""),
    "\\$": ("currency", "dollar"), "\\&": ("cell", "&"), "\\_": ("sub", "_"), "\\#": ("sign", "#"),
    "\\\\": ("row", ""), "\\'": ("prime", "'"), "\\-": ("space", ""), "\\/": ("space", ""),
}  # fmt: skip
SPELLED = _meanings("""
    cmd sqrt frac dfrac=frac tfrac=frac binom
    op cdot=·
    const pi infinity=inf inf infty=inf
    mod mod=
    rel leq=<= geq=>= neq=!=
""")
"""Commands that lost their backslash; no English word is among these."""
OPPOSITE = {"=": "!=", "in": "notin", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
r"""The relation that `\not` makes of each relation."""
