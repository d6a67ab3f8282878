r"""The forms that a question can ask for: lowest terms, a decimal, a percentage, ...

A form is asked in the words of a language (`asks`), and a text has it or not (`held`). The law
holds for each form alike: where a question asks for it and the gold has it, an equal answer
without it does not answer the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from math import gcd, isqrt
from typing import NamedTuple

from ..proving.primes import prime_exponents
from ..reading.nodes import EXACT, Exact, Node, TooBig, const, has, magnitude, num
from .products import factors


class Notated(NamedTuple):
    """A gold or an answer: its text in the notation of the reader, and its tree."""

    text: str
    node: Node | None
    chain: Node | None = None
    """The whole of a chain such as `2 · 20 = 40`, whose last side is `node`."""


class Form(NamedTuple):
    """A form of answers."""

    name: str
    asks: re.Pattern[str]
    """The words of a question that ask for the form."""
    held: Callable[[Notated, Notated], bool]
    """Whether the first text has the form; the second is the gold."""


_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*-?(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))"
    r"|(?<![\w.])(\d+)\s*[/:]\s*(\d+)(?![\w.])"
)
_MIXED = re.compile(r"\d(?:\s|\\[ ,;:]|~)*\\[dt]?frac|\d\s+\d+\s*/\s*\d")
_SCIENTIFIC = re.compile(
    r"[\s$]*-?[1-9](?:\.\d+)?\s*(?:\\(?:times|cdot)\s*|\*\s*|[xX]\s*)10\s*(?:\^|\*\*)"
    r"|[\s$]*-?[1-9](?:\.\d+)?[eE][-+]?\d"
)
_LETTERED = "|".join(
    rf"\\[dt]?frac\{{?{top}\}}?\{{?{below}|{top} ?/ ?{below}"
    for top, below in ("ab", "cd", "mn", "pq", "rs", "xy")
)
"""The letters of a fraction that is asked for; `m/s` and `g/L` are units."""
_PERCENT = re.compile(
    r"(?i)%|\bper ?cent|pour ?cent|por ?cient|por cento|prozent|procent|процент"
    r"|パーセント|퍼센트|प्रतिशत"
)


def _parts(node: Node) -> list[Node]:
    return [node, *(deeper for part in node.args for deeper in _parts(part))]


def _root(node: Node) -> bool:
    return node.op == "pow" and node.args[1].op == "num" and node.args[1].value.denominator != 1


def plain_root(node: Node) -> bool:
    """Return whether a node is the root of a whole number without factors to draw out of it."""
    return _root(node) and node.args[0].op == "num" and node.args[0].value > 1 and _drawn(node)


def _drawn(root: Node) -> bool:
    """Return whether a root has no number, or small ones without a factor to draw out of it."""
    degree = root.args[1].value.denominator
    return all(
        number.denominator == 1
        and -1 - degree % 2 * MAX_RADICAND < number < MAX_RADICAND
        and all(int(number) % n**degree for n in range(2, isqrt(int(magnitude(number))) + 1))
        for number in _numbers(root.args[0])
    )


MAX_RADICAND = 10**6


def _settled(part: Node) -> bool:
    """Return whether a part of a formula has no numbers side by side that could be added,
    multiplied, reduced or drawn out of its root.
    """
    if part.op == "add":
        return sum(term.op in EXACT for term in part.args) < 2
    if part.op == "mul":
        above = _numbers(part)
        below = [
            number
            for factor in factors(part)
            if factor.op == "pow" and factor.args[1] == num(-1)
            for number in _numbers(factor.args[0])
        ]
        if len(above) > 1 or len(below) > 1:
            return False
        whole = all(number.denominator == 1 for number in (*above, *below))
        return not (above and below) or (whole and gcd(int(above[0]), int(below[0])) == 1)
    if _root(part):
        base = part.args[0]
        powers = [part for part in _parts(base) if part.op == "pow" and part.args[0].op == "num"]
        return _drawn(part) and all(map(_root, powers))
    return True


def _numbers(product: Node) -> list[Exact]:
    """Return the numbers but 1 and -1 among the factors of a product."""
    parts = factors(product) if product.op == "mul" else (product,)
    return [part.value for part in parts if part.op in EXACT and abs(part.value) != 1]


def _reduced(said: Notated, _: Notated) -> bool:
    """Return whether no fraction, ratio or root can be reduced, and no numbers are left to be
    worked out.
    """
    for match in _FRACTION.finditer(said.text):
        top, bottom = (int(number) for number in match.groups() if number)
        if gcd(top, bottom) > 1:
            return False
    of_boxes = said.node is None or OF_BOXES.search(said.text)
    return bool(of_boxes) or all(map(_settled, _parts(said.node or num(0))))


OF_BOXES = re.compile(r"\{-?\d+\}\s*[-+]|[-+]\s*\{-?\d+\}")
"""A sum with a box in it, which `extracting.enclosing` writes with braces: each box is a value."""


def _rational(said: Notated, gold: Notated) -> bool:
    """Return whether no root stands in a denominator."""
    nodes = _parts(said.node) if said.node else []
    return _reduced(said, gold) and not any(
        part.op == "pow"
        and part.args[1].op == "num"
        and part.args[1].value < 0
        and any(map(_root, (part, *_parts(part.args[0]))))
        for part in nodes
    )


def _imaginary(node: Node) -> bool:
    return any(part == const("i") for part in _parts(node))


def _in_parts(said: Notated, _: Notated) -> bool:
    """Return whether no function, power or product hides the parts of a complex number."""
    node = _bare(said.node)
    return node is None or not any(
        (part.op == "func" and part.note in {"cos", "sin"})
        or (part.op == "pow" and any(map(_imaginary, part.args)))
        or (part.op == "mul" and sum(map(_imaginary, part.args)) > 1)
        for part in _parts(node)
    )


def _exponential(said: Notated, _: Notated) -> bool:
    nodes = _parts(said.node) if said.node else []
    turned = any(part.op == "pow" and _imaginary(part.args[1]) for part in nodes)
    return turned and "cis" not in said.text


def _trigonometric(said: Notated, _: Notated) -> bool:
    nodes = _parts(said.node) if said.node else []
    functions = {part.note for part in nodes if part.op == "func"}
    return "cis" in said.text or ({"cos", "sin"} <= functions and any(map(_imaginary, nodes[:1])))


def _polar(said: Notated, gold: Notated) -> bool:
    return _exponential(said, gold) or _trigonometric(said, gold)


def _mixed(said: Notated, _: Notated) -> bool:
    return _MIXED.search(said.text) is not None


def _improper(said: Notated, gold: Notated) -> bool:
    return not _mixed(said, gold)


def _bare(node: Node | None) -> Node | None:
    """Return the number within a quantity, a percentage or `x = number`."""
    while node is not None and node.op in {"quantity", "percent", "degree", "rel"} and node.args:
        node = node.args[-1]
    return node


_QUOTIENT = re.compile(r"frac|[/%]")


def _decimal(said: Notated, _: Notated) -> bool:
    node = _bare(said.node)
    if _SCIENTIFIC.match(said.text) or (node is not None and node.op == "based"):
        return True
    numeral = node is not None and node.op in EXACT
    return numeral and _QUOTIENT.search(said.text) is None


def _places(node: Node) -> int:
    return len(node.note.rstrip("0").partition(".")[2]) if node.op == "dec" else 0


def _rounded(said: Notated, gold: Notated) -> bool:
    """Return whether a text is a numeral with no more decimals than the gold has."""
    node, wanted = _bare(said.node), _bare(gold.node)
    if node is None or wanted is None or wanted.op not in EXACT:
        return True
    if wanted.op == "num" and wanted.value.denominator != 1:
        return False
    if _SCIENTIFIC.match(said.text):
        return True
    numeral = node.op == "dec" or (node.op == "num" and node.value.denominator == 1)
    longest = len(wanted.note.partition(".")[2]) if wanted.op == "dec" else 0
    return numeral and _places(node) <= max(longest, _places(wanted))


def _fraction(said: Notated, gold: Notated) -> bool:
    node, wanted = _bare(said.node), _bare(gold.node)
    # `... can be written as m/n. Find m + n` asks for a whole number.
    is_whole = wanted is not None and wanted.op == "num" and wanted.value.denominator == 1
    return (
        node is not None
        and not is_whole
        and node.op in {"num", "ratio"}
        and said.node is not None
        and not has(said.node, "percent")
        and not _POINTED.search(said.text)
    )


_POINTED = re.compile(r"\.(?:\d|\\[a-z])")
"""A decimal, also a repeating one: `0.\\overline{3}`."""


def _percent(said: Notated, gold: Notated) -> bool:
    if _PERCENT.search(said.text):
        return True
    # `25` and `25%` are one numeral; `0.25` is another.
    node, wanted = _bare(said.node), _bare(gold.node)
    if node is None or wanted is None or said.text == gold.text:
        return False
    return {node.op, wanted.op} <= EXACT and node.value == wanted.value


def _scientific(said: Notated, _: Notated) -> bool:
    return _SCIENTIFIC.match(said.text) is not None


def _exact(said: Notated, _: Notated) -> bool:
    """Return whether a value that is no fraction is written without decimals."""
    return said.node is None or not (has(said.node, "dec") or said.text.endswith("..."))


def _with_pi(said: Notated, _: Notated) -> bool:
    return "pi" in said.text


def _closed(said: Notated, _: Notated) -> bool:
    return re.search(r"\\(?:sum|prod|[lc]?dots)(?![a-z])|\.\.\.|…", said.text) is None


def _solved_for_y(said: Notated, _: Notated) -> bool:
    node = said.node
    return node is not None and node.op == "rel" and node.args[0].op == "sym"


def _general(said: Notated, _: Notated) -> bool:
    node = said.node
    return node is not None and node.op == "rel" and node.args[0].op == "add"


def _prime_factors(said: Notated, gold: Notated) -> bool:
    """Return whether a side of a text is a product of primes and their powers, as one of the gold
    is. A gold that is a number has no factors.
    """
    wanted = any(side.op in {"mul", "pow"} for side in _sides(gold))
    return wanted and any(map(_of_primes, _sides(said)))


def _sides(said: Notated) -> tuple[Node, ...]:
    node = said.chain or said.node
    return node.args if node and node.op == "rel" else (node,) if node else ()


def _of_primes(product: Node) -> bool:
    factors = product.args if product.op == "mul" else (product,)
    bases = [part.args[0] if part.op == "pow" else part for part in factors]
    return all(part.op == "num" and _is_prime(part) for part in bases)


def _is_prime(node: Node) -> bool:
    with suppress(TooBig):
        return node.value.denominator == 1 and prime_exponents(node.value) == ((node.value, 1),)
    return False


def _form(name: str, asks: str, held: Callable[[Notated, Notated], bool]) -> Form:
    return Form(name, re.compile(asks, re.IGNORECASE), held)


FORMS = (
    _form(
        "lowest terms",
        r"\bsimpl(?:if(?:y|ied|ies)|est)\b|\blowest terms\b|\breduced? (?:the |this |your )?"
        r"(?:fraction|ratio|form|answer|to)\b|\birr[eé]d[uo][ck]\w*|\bsimplifi\w+|vereinfach"
        r"|\bkürz|gekürzt|\bsemplific|minimi termini|irriducibil|упрост|несократим|сократи"
        r"|既約|約分|化[简簡]|最[简簡]|[简簡][单単]に|기약|약분|간단히|सरल",
        _reduced,
    ),
    _form(
        "a rational denominator",
        r"\bradical form\b|\brational[iy][sz]|rational mach|rendre rationnel|有理化|유리화",
        _rational,
    ),
    _form(
        "a mixed number",
        r"\bmixed (?:number|fraction|numeral)|nombre mixte|gemischte|número mi[xs]to"
        r"|numero misto|смешанн|[带帶帯]分[数數]|대분수",
        _mixed,
    ),
    _form("an improper fraction", r"\bimproper fraction|假分[数數]|가분수", _improper),
    _form(
        "a decimal",
        r"\b(?:as|in|into|to) (?:an? )?(?:\w+ )?decimal\b(?! expansion| point)|decimal form"
        r"|(?:forme|écriture|nombre) décimale?|\bdezimal|(?:como|forma|número) decimal\b"
        r"|(?:come|forma|numero) decimale|десятичн\w+ (?:дроб|запис|вид)"
        r"|小[数數](?:で|に|表|形)"
        r""
        r"|[化成写寫为為][成为為]?小[数數]|소수로|दशमलव",
        _decimal,
    ),
    _form(
        "a rounded number",
        r"\bround(?:ed|ing)?\b(?! table| trip| robin)|\bto the nearest\b|\bdecimal places?\b"
        r"|\bsignificant (?:figures|digits)\b|\barrondi|\brunde\b|\bgerundet|\bredonde"
        r"|\barredond|\barroton|округл|四[捨舍]五入|精确到|保留|반올림",
        _rounded,
    ),
    _form(
        "a fraction",
        r"\b(?:(?:as|in|into|to) (?:\w+ )?|(?:as|to|find|give|state) an? (?:\w+ ){1,2}"
        r"|(?:find|give|state) a )(?:fraction|mixed number)\b(?! or (?:an? )?decimal)"
        r"|\b(?:quotient|ratio) of (?:two )?(?:whole numbers|integers)\b"
        r"|\b(?:what|which) (?:\w+ )?fraction (?:equals|is equ)|\blowest terms\b"
        r"|\bas an? rational number\b"
        rf"|\b(?:form|as) \W{{0,2}}(?:{_LETTERED})\b"
        r"|forme (?:de |d'une )?fraction|en fraction\b|als (?:\w+ )?bruch\b"
        r"|como (?:una )?fracci[oó]n|como (?:uma )?fraç[aã]o"
        r"|come frazione"
        r""
        r"|виде (?:обыкновенной |несократимой )?дроби"
        r"|分[数數](?:で|に|表|形)|[化写寫][成为為]分[数數]"
        r"|분수로|भिन्न",
        _fraction,
    ),
    _form(
        "radians",
        r"(?s)^(?!.*(?:\b(?:in|to|into) degrees?\b|\bdegree measure|how many degrees)).*"
        r"(?:\b(?:in|to|into) radians?\b|\bim bogenmaß|\ben radian|\bin radianti|в радиан"
        r"|弧度|라디안)",
        lambda said, _: said.node is None or not has(said.node, "degree"),
    ),
    _form(
        "a percentage",
        r"\b(?:as|in|what|which) (?:an? |the )?percent|\ben pourcentage|\bquel pourcentage"
        r"|\b(?:in|wie ?viel) prozent|\bporcentaje|\bporcentagem|\bpercentual"
        r"|в процентах|百分[数數比率]|パーセント|퍼센트|백분율|प्रतिशत",
        _percent,
    ),
    _form(
        "scientific notation",
        r"\b(?:scientific|exponential) notation\b|\bstandard (?:index )?(?:form|notation)\b"
        r"|\b(?:écriture|notation) scientifique|wissenschaftlich"
        r"|notaci[oó]n científica|notação científica|notazione scientifica|стандартн\w+ вид"
        r"|科学[记記計计][数數号號]?法|科學記號|指数表記|과학적 표기",
        _scientific,
    ),
    _form(
        "pi",
        r"\b(?:terms|multiple) of\W*(?:\\?pi\b|π)|(?:fonction de|términos de|termos de"
        r"|funzione di|через|vielfach\w* von|[用含])\W*(?:\\?pi\b|π)|π\W*を|π\W*로",
        _with_pi,
    ),
    _form(
        "an exact value",
        r"\bexact (?:value|answer|form|length|area)|valeurs? exacte|exakte|valor exac?to"
        r"|valore esatto|точное значение|精[确確]值|正確な値|정확한 값",
        _exact,
    ),
    _form(
        "prime factors",
        r"\bprime factor|product of (?:\w+ )?primes|facteurs? premiers?|primfaktor"
        r"|factores primos|fatores primos|fattori primi|прост\w+ множител"
        r"|[質质素]因子?[数數]|소인수",
        _prime_factors,
    ),
    _form(
        "the shells of a full configuration",
        r"\b(?:full|complete|unabbreviated)\b(?:\W+\w+){0,3}\W+configuration",
        lambda said, _: "[" not in said.text,
    ),
    _form(
        "a configuration with a noble gas",
        r"\b(?:noble[- ]gas|abbreviated|condensed|shorthand|core)\b",
        lambda said, _: re.match(r"[\s$\\a-z{]*\[", said.text) is not None,
    ),
    _form(
        "the form a + bi",
        r"(?<![a-z])(?:[a-z] ?\+ ?(?:[a-z]\\?,? ?i|i ?[a-z])\b[$ ]*(?:の形|꼴|的形式|form\b)"
        r"|(?:form|vid|вид|형태)\w*\W{1,3}[a-z] ?\+ ?(?:[a-z]\\?,? ?i|i ?[a-z])\b)"
        r"|\b(?:rectangular|cartesian|standard|algebraic) form\b"
        r"|\b(?:kartesische|algebraische|binomische)\w* (?:form|darstellung)"
        r"|\bform[ea] (?:alg[eé]bri[qc]|binómica|cart[eé]si|rectangular|retangular|binomial)"
        r"|алгебраическ\w+ (?:форм|вид)|代[数數]形式|直交形式|直交座標",
        _in_parts,
    ),
    _form(
        "the polar form",
        r"\bpolar ?form|\bmodulus[- ]argument form|\bform[ea] pola(?:ire|re?)\b|\bpolardarst"
        r"|полярн\w+ (?:форм|вид)|极坐标?形式|極(?:座標)?形式|극형식",
        _polar,
    ),
    _form(
        "the trigonometric form",
        r"\btrigonometri\w* (?:form|darst)|\bform[ea] trigonom|тригонометрическ\w+ (?:форм|вид)"
        r"|三角(?:形式|表示)",
        _trigonometric,
    ),
    _form(
        "the exponential form",
        r"\bexponential ?form|\bexponentialdarst|\bform[ea] e[xs]pon|показательн\w+ (?:форм|вид)"
        r"|指数形式|지수 ?(?:꼴|형식)|re\^\{?i",
        _exponential,
    ),
    _form("a closed form", r"\bclosed[- ]form|geschlossene[nr]? form|封闭形式", _closed),
    _form("the slope-intercept form", r"\bslope[- ]intercept form", _solved_for_y),
    _form("the standard form of a line", r"\b(?:standard|general) form\b", _general),
)
"""Every form with the words that ask for it, in the languages of the extraction."""
ORDERED = re.compile(
    r"(?i)\b(?:least|smallest|lowest|shortest|lightest|slowest|coldest"
    r"|youngest|greatest|largest|biggest"
    r"|highest|tallest|longest|heaviest|fastest|oldest|earliest) to (?:the )?(?:\w+est|least)\b"
    r"|\b(?:ascending|descending|increasing|decreasing"
    r"|alphabetical|chronological|numerical)"
    r" (?:order|sequence)\b"
    r"|\b(?:find|give|determine|compute|state|list|enter|write)\b[^.?]{0,120}\band\b[^.?]{0,80}"
    r"\bin (?:that|this|the given) order\b"
    r"|\b(?:find|give|state|list|enter|write|name|rank|arrange|put|place|sort)\b[^.?]{0,120}"
    r"\bin order\b(?! to\b)|\bfrom (?:the )?first to (?:the )?last\b"
    r"|(?-i:\(a\)[^()]+\(b\))|(?<![_＿])[_＿]{3,}+[^_＿]{1,200}[_＿]{3}"
    r"|ordre (?:dé)?croissant|plus (?:petit|grand) au plus"
    r"|\b(?:auf|ab)steigend"
    r"|der größe nach|de (?:menor|mayor) a |do (?:menor|maior) (?:para|ao)"
    r"|ordem (?:de)?crescente"
    r"|ordine (?:de)?crescente|dal più|порядке (?:возраст|убыв)"
    r"|从[小大]到|從[小大]到|[小大]きい?さ?い?順"
    r"|(?:작은|큰) (?:것|수|순)|오름차순|내림차순|昇順|降順"
)
"""Words that ask for the values of a list in one order."""
_REQUESTS = (
    r"(?:find|give|write(?: down| out)?|list|state|determine|compute|generate|name|identify|trace"
    r"|(?:what|which)(?: is| are)?)"
)
_FOR_WORK = r"(?![^.?;]*\b(?:and|then|to) (?:then )?(?:find|determine|compute|calculate|count)\b)"
SEQUENCED = re.compile(
    r"(?i)\b(?:rank|arrange|sort|order|list|classif|place|put)\w*\b[^.?;]{0,80}\bby (?:in"
    r"|de)creasing\b|\btraversal\b|\btopological (?:order|sort)|\b(?:in|by) (?:what|which) order\b"
    r"|\bin the order (?:in which|that|they|of)\b|\b(?:breadth|depth)[- ]first\b|(?:^|[.:;,]\s+"
    r"|\b(?:and|then|please)\s+)"
    rf"(?:rank|arrange|sort|order) (?:the|these|them|all)\b{_FOR_WORK}|\b{_REQUESTS} (?:the "
    rf")?(?:next|first|last)"
    r" (?:two|three|four|five|six|seven|\d{1,2}) (?:terms|numbers of|elements of)\b"
    rf"|\b{_REQUESTS} (?:the|an?) (?:shortest|cheapest|fastest|optimal|critical) (?:path|route)\b"
    rf"|\b(?:{_REQUESTS}|show|how)\b[^?.]{{0,40}}"
    r"\b(?:array|list|stack|queue)\b[^?]{0,60}\bafter (?:\w+ ){0,2}(?:pass|step|iteration|swap"
    r"|insert\w*|partition\w*|call|operation|push\w*|pop\w*)"
)
"""Words that ask for a sequence: of vertices, of terms, of the items of an array."""


_ROUGHLY = re.compile(r"\\approx|≈")
_INDEX = re.compile(r"_\{[^{}]*=[^{}]*\}")
"""The lower bound of a sum, whose sign of equality ends no side."""


def unasked(prompt: str, gold: Notated, answer: Notated) -> str:
    """Return why an answer equal to the gold has not the form that the prompt asks for, or "".

    Of a chain (`36/99 = 4/11`) the value counts that it ends in, or the fraction before a decimal
    there, and an approximation of that (`5\\sqrt2 \\approx 7.07`).
    """
    written = [answer]
    if "=" not in gold.text:
        exact, *rounded = _ROUGHLY.split(answer.text)
        *sides, value = _INDEX.sub("", exact).split("=")
        written = [answer if value == answer.text else answer._replace(text=value.strip())]
        chain = answer.chain.args if answer.chain and answer.chain.op == "rel" else ()
        if sides and chain and _POINTED.search(value) and _FRACTION.search(sides[-1]):
            written = [Notated(sides[-1].strip(), chain[-2], answer.chain)]
        if rounded and chain:
            written.append(Notated(rounded[-1], chain[-1], answer.chain))
    for form in FORMS:
        asked = form.asks.search(prompt) and form.held(gold, gold)
        if asked and not any(form.held(way, gold) for way in written):
            return f"the question asks for {form.name}"
    return ""
