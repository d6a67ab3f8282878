"""Notations that a question calls for: orderings, cycles, permutations, dimensions, matchings.

Each function rewrites a text that has its notation in one common form, and leaves any other as it
is. Gold and answer are rewritten alike, so that only the form of what is said is given up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import permutations

from ..reading.nodes import EXACT, Unreadable
from ..reading.notation import as_words
from ..reading.reader import clean, read_cleaned
from ..reading.units import dimension
from ..reading.vocabulary import UNITS_OF_NUMBER, pairs
from .forms import ORDERED, SEQUENCED
from .sciences import (
    ENGINEERED,
    GAP,
    QUANTUM,
    bound_of_any_base,
    label_of_thing,
    rate_asked,
    tight_bound,
    with_imaginary_unit,
    without_operator_hats,
)

PROMPTS = 256
"""How many prompts keep what they call for in a cache."""
MAX_ITEMS = 50
"""The most items that a description is written out in."""


def renoted(gold: str, answer: str, prompt: str) -> tuple[str, str]:
    """Return gold and answer in the notation that the question calls for."""
    is_titled = len(gold) > MIN_TITLED and any(map(gold.lower().__contains__, _TITLES))
    if is_titled and _TITLE.search(gold):
        gold, answer = _titled(gold), _titled(answer)
    rewrites, signs = _called_for(prompt)
    for rewrite in rewrites:
        gold, answer = rewrite(gold), rewrite(answer)
    for sign in signs:
        gold, answer = _listed(gold, sign), _listed(answer, sign)
    if prompt:
        answer = label_of_thing(gold, tight_bound(gold, answer, prompt), prompt)
        answer = rate_asked(gold, answer, prompt)
    if "matrix" in gold:
        gold, answer = _as_multiple(gold, answer, prompt)
    if gold.startswith("\\{") and _INTEGERS_ASKED.search(prompt):
        answer = _between(answer)
    return gold, _measured(answer)


@lru_cache(maxsize=PROMPTS)
def _called_for(prompt: str) -> tuple[list[Callable[[str], str]], list[str]]:
    """Return the notations and the direction of the order that a question calls for; rollouts
    share their question.
    """
    said = prompt.lower()
    rewrites = [
        rewrite
        for signs, asks, rewrite in _NOTATIONS
        if any(sign in said for sign in signs.split()) and asks.search(prompt)
    ]
    ordered = any(words.search(prompt) for words in (ORDERED, SEQUENCED))
    directions = [sign for asks, sign in _DIRECTIONS if ordered and asks.search(prompt)]
    return [*_ALWAYS, *rewrites], directions


_TITLES = pairs("max=maximum min=minimum gcd=gcd hcf=gcd gre=gcd hig=gcd lcm=lcm lea=lcm")
_TITLED = (
    r"(?:max(?:imum)?|min(?:imum)?)(?: value)?|gcd|hcf|greatest common (?:divisor|factor)"
    r"|highest common factor|lcm|least common multiple"
)
_TITLE = re.compile(
    rf"(?i)\\text\s*\{{\s*(?:the )?(?P<set>{_TITLED})\s*[:=]?\s*\}}\s*[:=]?\s*(?=-?[\d\\])"
    rf"|(?<![\\A-Za-z{{])(?:the )?(?P<plain>{_TITLED})\s*[:=]\s*(?=-?[\d\\])"
)


MIN_TITLED = 8
"""The shortest gold that may have such names: `max 5, ...`."""


def _titled(text: str) -> str:
    """Return values with one name of a maximum, a divisor and the like before them."""
    return _TITLE.sub(
        lambda title: rf"\text{{{_TITLES[(title['set'] or title['plain'])[:3].lower()]}}} = ", text
    )


# --- orderings ---

_DIRECTIONS = tuple(
    (re.compile(words, re.IGNORECASE), sign)
    for words, sign in (
        (
            r"\b(?:least|smallest|lowest|shortest|lightest|slowest|coldest|youngest|earliest) to\b"
            r"|\bascending|(?<!de)\bincreasing (?:order|sequence)|\bby increasing\b"
            r"|ordre croissant|plus petit au"
            r"|\baufsteigend|\bde menor a|\bdo menor (?:para|ao)|ordem crescente|ordine crescente"
            r"|порядке возраст|从小[到至]|由小到|小さい順|오름차순|昇順",
            "<",
        ),
        (
            r"\b(?:greatest|largest|biggest|highest|tallest|longest|heaviest|fastest|oldest) to\b"
            r"|\bdescending|\bdecreasing (?:order|sequence)|\bby decreasing\b"
            r"|décroissant|plus grand au"
            r"|\babsteigend|\bde mayor a|\bdo maior (?:para|ao)|decrescente|порядке убыв"
            r"|从大[到至]|由大到|大きい順|내림차순|降順",
            ">",
        ),
    )
)
_ORDER = re.compile(r"\\lt(?![a-z])|\\gt(?![a-z])|[<>]")


def _listed(text: str, sign: str) -> str:
    """Return `1/3 < 2/5 < 1/2` as a list, where all signs are those of the order that is asked."""
    signs = {mark[0][1:2] == "l" or mark[0] == "<" for mark in _ORDER.finditer(text)}
    return _ORDER.sub(" , ", text) if signs == {sign == "<"} and "," not in text else text


_ARROWS = re.compile(rf"{GAP}(?:\\(?:to|rightarrow|longrightarrow)(?![a-z])|→|->|⟶){GAP}")
_HYPHENED = re.compile(r"(?:\\(?:text|mathrm)\s*\{)?\s*([A-Z](?:\s*[-–—]\s*[A-Z])+)\s*\}?")


def in_sequence(text: str) -> str:
    """Return `S → A → T` and `S-A-T` as the list of their items."""
    if hyphened := _HYPHENED.fullmatch(text.strip(" $.")):
        return ", ".join(re.findall("[A-Z]", hyphened[1]))
    return _ARROWS.sub(", ", text) if "," not in text else text


# --- permutations and cycles ---

_CYCLES = re.compile(
    rf"(?:\(\s*\d++(?:{GAP},?{GAP}\d++)*+\s*\)(?:{GAP}(?:\\circ|\\cdot|[∘·]))*+{GAP})+"
)


def _cycles(text: str) -> str:
    """Return disjoint cycles in one order, each from its least number: `(1 3 2)` for `(3 2 1)`, and
    for a chain of such (`\\sigma = (3 2 1) = (1 3 2)`) that all its sides are.
    """
    sides = text.replace("\\left", "").replace("\\right", "").strip(" $.").split("=")
    turned = [_turned(side.strip(" \\")) for side in (sides if "(" in sides[0] else sides[1:])]
    return turned[0] if len({*turned}) == 1 and turned[0] else text


def _turned(product: str) -> str:
    """Return a product of disjoint cycles in one order, else ""."""
    turned: list[list[int]] = []
    for cycle in re.findall(r"\(([^()]*)\)", product) if _CYCLES.fullmatch(product) else ():
        numbers = [int(number) for number in re.findall(r"\d+", cycle)]
        if len(numbers) == 1 and numbers[0] > 9:  # `(132)`, whose numbers have one digit
            numbers = [int(digit) for digit in str(numbers[0])]
        first = numbers.index(min(numbers))
        turned.append(numbers[first:] + numbers[:first])
    moved = [number for cycle in turned for number in cycle]
    if len({*moved}) < len(moved):
        return ""
    return "".join(f"({' '.join(map(str, cycle))})" for cycle in sorted(turned) if len(cycle) > 1)


_PERMUTED = re.compile(
    r"(?i)(?:all (?:the )?permutations of (?P<first>\(.+\))"
    r"|(?P<second>\(.+\)),? ?(?:(?:and|plus|with|or|together with|along with)?:? ?"
    r"(?:all|any)?(?: of)? ?(?:the |its |their )?(?:other )?permutations?"
    r"(?: thereof| of (?:it|these|them|this))?"
    r"|\(?in (?:any|some) order\)?|up to (?:order|permutations?|reordering)))"
)


def _permuted(text: str) -> str:
    """Return `(1,1,4) and its permutations` as the list of the tuples."""
    if "ermut" not in text and "order" not in text:
        return text
    plain = " ".join(re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}|\\[ ,;]", r" \1 ", text).split())
    plain = re.sub(r"^\(?[a-z](?:, ?[a-z])+\)? ?= ?", "", plain.strip(" $."))
    described = _PERMUTED.fullmatch(plain)
    tuples = described["first"] or described["second"] if described else ""
    rows = re.findall(r"\(([^()]*)\)", tuples)
    arrangements: dict[tuple[str, ...], None] = {}
    for row in rows:
        items = tuple(item.strip() for item in row.split(","))
        if not 1 < len(items) <= 4:
            return text
        arrangements |= dict.fromkeys(permutations(items))
    listed = ", ".join(f"({', '.join(items)})" for items in arrangements)
    return listed if 0 < len(arrangements) <= MAX_ITEMS else text


_INTEGERS = re.compile(
    r"(?i)(?:(?:all|every|each|any)(?: of)? )?(?:the )?(?:(?P<kind>even|odd) )?(?:positive )?"
    r"(?:integers?|whole numbers?|natural numbers?)(?: [a-z])?,? (?:from )?(?P<low>-?\d{1,4})"
    r" (?:to|through|up to(?: and including)?) (?P<high>-?\d{1,4})"
    r"(?:,? \(?(?:both )?inclu(?:sive|ded)\)?)?"
)


def _integers(text: str) -> str:
    """Return `all integers from 1 through 9` as a set."""
    if text.isdigit() or ("integer" not in (said := text.lower()) and "number" not in said):
        return text
    described = _INTEGERS.fullmatch(as_words(text).replace("−", "-"))
    if described is None:
        return text
    first, last = int(described["low"]), int(described["high"])
    step = 2 if described["kind"] else 1
    if step > 1:
        first += (first % 2 == 0) != (described["kind"].lower() == "even")
    numbers = list(range(first, last + 1, step))
    return rf"\{{{', '.join(map(str, numbers))}\}}" if 1 < len(numbers) <= MAX_ITEMS else text


_DOTTED = re.compile(
    r"(?P<before>-?\d{1,4}(?:\s*,\s*-?\d{1,4})*)\s*,\s*(?:\\[lc]?dots[bc]?|\.\.\.|…)\s*,\s*"
    r"(?P<behind>-?\d{1,4}(?:\s*,\s*-?\d{1,4})*)(?![\d.])"
)


def _dotted(text: str) -> str:
    r"""Return `-4, -3, \ldots, 4` written out, where all of its numbers are of one progression."""
    written = _DOTTED.search(text) if "dots" in text or "..." in text or "…" in text else None
    if written is None:
        return text
    before, behind = (list(map(int, side.split(","))) for side in written.groups())
    step = before[1] - before[0] if len(before) > 1 else 1
    numbers = list(range(before[0], behind[-1] + (1 if step > 0 else -1), step)) if step else []
    fits = numbers[: len(before)] == before and numbers[-len(behind) :] == behind
    if not fits or len(numbers) > MAX_ITEMS:
        return text
    return text[: written.start()] + ", ".join(map(str, numbers)) + text[written.end() :]


_INTEGERS_ASKED = re.compile(r"(?i)\b(?:integers?|whole numbers?)\b")
_BETWEEN = re.compile(
    r"(?P<low>-?\d{1,4})\s*(?P<above><|\\leq?(?![a-z])|≤|\\lt(?![a-z]))\s*[a-z]\s*"
    r"(?P<below><|\\leq?(?![a-z])|≤|\\lt(?![a-z]))\s*(?P<high>-?\d{1,4})"
)


def _between(text: str) -> str:
    """Return the whole numbers of `-4 <= n <= 4` as a set."""
    bounds = _BETWEEN.fullmatch(text.strip(" $."))
    if bounds is None:
        return text
    open_ends = [bounds[name] in {"<", "\\lt"} for name in ("above", "below")]
    numbers = range(int(bounds["low"]) + open_ends[0], int(bounds["high"]) + 1 - open_ends[1])
    return rf"\{{{', '.join(map(str, numbers))}\}}" if 1 < len(numbers) <= MAX_ITEMS else text


# --- multiples of the identity ---

_MATRIX = re.compile(r"(?s)\\begin\s*\{[pbB]?matrix\}(.*?)\\end\s*\{[pbB]?matrix\}[\s$.]*")
_ONE = re.compile(
    r"(?:\\(?:mathrm|mathbf|mathbb|mathit|operatorname|text|boldsymbol|bm)\s*\{\s*(Id?|[EO01])\s*\}"
    r"|(?<![A-Za-z\\])(Id?|[EO])(?![A-Za-z]))(?:\s*_\s*\{?\s*(\d)(?:\s*(?:\\times|×)\s*\d)?\s*\}?)?"
)
"""A name of the identity or of the zero matrix, with its size."""
_CALLED_ONE = re.compile(
    r"(?i)\bidentity|\bunit matrix|einheits|identit|identidad|единичн|单位|單位|単位|단위"
)


def _as_multiple(gold: str, answer: str, prompt: str) -> tuple[str, str]:
    r"""Return a matrix that is a multiple of the identity as `(2)I`, and an answer that calls it so
    (`2\mathbf{I}_2`) with the same name; a zero matrix may be called 0 as well.
    """
    matrix = _MATRIX.fullmatch(gold.rpartition("=")[2].strip(" $"))
    rows = [row.split("&") for row in matrix[1].split("\\\\") if row.strip()] if matrix else []
    cells = [(r == c, cell.strip()) for r, row in enumerate(rows) for c, cell in enumerate(row)]
    (*others, factor) = dict.fromkeys(cell for is_diagonal, cell in cells if is_diagonal) or [""]
    square = all(len(row) == len(rows) for row in rows)
    if others or {cell for is_diagonal, cell in cells if not is_diagonal} - {"0"}:
        return gold, answer
    said = answer.rpartition("=")[2].strip(" $.")
    names = list(_ONE.finditer(said))
    letter = (names[0][1] or names[0][2]) if len(names) == 1 else said
    leftover = re.sub(r"\\[A-Za-z]+|[^A-Za-z]", "", _ONE.sub("", said))
    is_sized = square and all(int(name[3] or len(rows)) == len(rows) for name in names)
    if letter in {"0", "O"}:
        is_zero = factor == "0" and not leftover and not {*said} & {"-", "+"}
        return ("0", "0") if is_zero else (gold, answer)
    if len(names) != 1 or not is_sized or {*leftover} - {*factor}:
        return gold, answer
    defined = rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])\W{{0,3}}(?:=|\^|be\b)"
    if re.search(defined, prompt) and not _CALLED_ONE.search(prompt):
        return gold, answer
    return f"({factor})I", _ONE.sub("I", said)


# --- dimensions and matchings ---

_DIMENSIONS = re.compile(
    r"(?is)\b(?:dimensions|abmessungen|seitenlängen|dimensiones|dimensões|dimensioni)\b"
    r"(?!.*\b(?:matri\w*|rows?|columns?|arrays?|tensors?)\b)"
)
_BY = re.compile(r"\\text\s*\{(?P<before>[^{}]*?)\s*\bby\b\s*(?P<behind>[^{}]*)\}|\bby\b")
_TIMES = re.compile(r"\\times(?![a-z])|×|(?<=[\d\s}m])[xX](?=[\s\d])")


def _sides(text: str) -> str:
    """Return `10 m by 20 m` as the list of its lengths."""
    text = _BY.sub(
        lambda by: (
            r"\text{ " + by["before"] + r"}\times " + by["behind"]
            if (by["before"] or "").strip()
            else rf"\times {by['behind'] or ''}"
        ),
        text,
    )
    lengths = [part.strip(" $") for part in _TIMES.split(text)]
    plain = all(re.match(r"\(?-?[\d\\]", length) and "^" not in length for length in lengths)
    return ", ".join(lengths) if 1 < len(lengths) < 4 and plain and "," not in text else text


_SHAPE_ASKED = re.compile(
    r"(?i)\b(?:size|dimensions?|order|shape)\b[^.?]*\bmatri|\bmatri[^.?]*\b(?:size|dimensions?|shape)\b"
)
_SHAPE = re.compile(
    rf"[(]?(\d+|[a-z]){GAP}(?:\\times|×|x|\\text\s*\{{\s*by\s*\}}|by|,){GAP}(\d+|[a-z])[)]?"
    rf"{GAP}(?:\\text\s*\{{\s*)?(?:matri\w+\s*)?\}}?"
)


def sides_asked(prompt: str, gold: str, answer: str) -> tuple[str, str]:
    """Return gold and answer with the lengths `4 x 4 x 2` as a list, where the question asks for
    dimensions and the gold has them; these are no product.
    """
    asked = ("imens" in prompt or "mess" in prompt) and _DIMENSIONS.search(prompt)
    sides = _sides(gold) if asked else gold
    return (gold, answer) if sides == gold else (sides, _sides(answer))


def same_shape(prompt: str, gold: str, answer: str) -> bool | None:
    """Decide whether an answer is the shape (2 by 4) of a matrix that the gold is, which is no
    product; None where the question asks for none, or the answer is neither a shape nor a number.
    """
    asked = "matri" in prompt and _SHAPE_ASKED.search(prompt)
    wanted = _SHAPE.fullmatch(gold.strip(" $.")) if asked else None
    if wanted is None:
        return None
    if given := _SHAPE.fullmatch(answer.strip(" $.")):
        return wanted.groups() == given.groups()
    return False if re.fullmatch(r"[\s$]*\d+[\s$.]*", answer) else None


_PAIRED = (
    r"(?:\\text\s*\{\s*(?:[-–—:→]|->)\s*\}|\\(?:long)?(?:left)?rightarrow(?![a-z])|\\(?:to|mapsto"
    r"|Rightarrow|leftrightarrow)(?![a-z])|->|matches|goes with|belongs to|[-–—:→↔=⇒⟶➔])"
)
_KEY = r"\d{1,2}|[A-Za-z]|i{2,3}|iv|vi{1,3}|ix"
_PAIR = re.compile(rf"(?i)\(?(?P<first>{_KEY})[).]?{GAP}{_PAIRED}{GAP}\(?(?P<second>{_KEY})\)?")


def _matched(text: str) -> str:
    """Return `1-b, 2-c` or `b → 1, c → 2` as one text, in the order of the keys."""
    bare = re.sub(r"\\(?:text|mathrm)\s*\{([A-Za-z0-9]+)\}", r"\1", text.strip(" $."))
    bare = re.sub(rf"\(\s*({_KEY})\s*,\s*({_KEY})\s*\)", r"\1→\2", bare)
    items = [item for item in re.split(rf"{GAP}[,;\n]{GAP}|{GAP}\band\b{GAP}", bare) if item]
    pairs = [_PAIR.fullmatch(item.strip()) for item in items]
    if len(pairs) < 2 or not all(pairs):
        return text
    keys = [sorted((pair["first"].lower(), pair["second"].lower())) for pair in pairs if pair]
    if any(len({*side}) < len(keys) for side in zip(*keys, strict=True)):
        return text
    return ", ".join(f"({', '.join(map(_indexed, key))})" for key in sorted(keys))


def _indexed(key: str) -> str:
    """Return a Roman numeral of several letters as a name, which a product would be else."""
    return key if len(key) == 1 or key.isdigit() else f"r_{{{_ROMAN.index(key)}}}"


_ROMAN = ("", "", "ii", "iii", "iv", "", "vi", "vii", "viii", "ix")


# --- values that are counted ---

_TIMES_OVER = re.compile(
    r"(?:\s|\\[ ,;]|,|~|\\text\s*\{|[({])*\b(?:(?:each |occurring |counted )?"
    r"(?:with |of |has |algebraic )*multiplicity(?: of)?"
    r"(?:\s|\\[ ,;]|[=}${]|\\text\s*\{)*(?P<count>\d|one|two|three|four)"
    r"|(?P<word>simple|double|triple|twice|once)(?: root| zero| eigenvalue)?)\b(?:\s|[)}$])*"
)
_COUNTS = {"simple": 1, "once": 1, "double": 2, "twice": 2, "triple": 3, **UNITS_OF_NUMBER}
_NAME = re.compile(r"\s*(?:\\?[A-Za-z]+(?:_\{?[\d,]+\}?)?\s*=\s*)?")


def _count(said: re.Match[str]) -> str:
    word = said["count"] or said["word"]
    return f" § {word if word.isdigit() else _COUNTS[word]} "


def _repeated(text: str) -> str:
    """Return `1 (multiplicity 2), 4` as the list `1, 1, 4`."""
    marked = _TIMES_OVER.sub(_count, text)
    if "§" not in marked:
        return text
    bare = re.sub(r"\\text\s*\{\s*(,|and|;)*\s*\}|\band\b", ",", marked.strip(" $\\{}"))
    values: list[str] = []
    for item in re.split(r"[,;]", bare):
        value, _, count = item.partition("§")
        if value.strip(" $}"):
            values += [_NAME.sub("", value, count=1).strip(" $")] * int(count.strip(" }$") or 1)
    return ", ".join(values) if 0 < len(values) <= MAX_ITEMS else text


def _grouped(text: str) -> str:
    """Return a numeral in the groups of India without them: `1,50,000`."""
    return re.sub(
        r"(?<![\d,])\d{1,2}(?:,\d\d)+,\d{3}(?![\d,])", lambda n: n[0].replace(",", ""), text
    )


_HATTED = re.compile(r"\\(?:wide)?hat\s*\{?\s*([A-Za-z])\s*\}?(?=\s*=)|ŷ(?=\s*=)")


def _unhatted(text: str) -> str:
    return _HATTED.sub(lambda name: name[1] or "y", text)


_SQUARES = re.compile(r"^[\s$]*(?:[sS]|[rR])(?:_\{?\w{1,3}\}?)?\s*\^\s*\{?2\}?(?=\s*=)")


def _squares(text: str) -> str:
    """Return `s^2 = 13` with one letter for the square, which names a variance and the like."""
    return _SQUARES.sub("v", text)


_ALWAYS = (_permuted, _integers, _dotted, bound_of_any_base)
_NOTATIONS: tuple[tuple[str, re.Pattern[str], Callable[[str], str]], ...] = (
    (
        "cycl zyk cicl цикл 轮换 輪換 巡回",
        re.compile(
            r"(?is)\A(?=.*(?:cycl|zyk|cicl|цикл|轮换|輪換|巡回))(?=.*(?:permut|S_|notation|disj"
            r"|schreibweise|подстановк|перестановк|[置轮輪]换|置換))"
        ),
        _cycles,
    ),
    ("dimens abmess seitenl", _DIMENSIONS, _sides),
    (
        "match pair ordne associe relie relacion",
        re.compile(
            r"(?i)\bmatch|\bpair (?:each|up)|\bzuordn|\bordne\b|\bassocie[rz]?\b|\brelie|\brelacion"
        ),
        _matched,
    ),
    (
        "multiplicit repeated vielfachheit multiplicidad",
        re.compile(r"(?i)multiplicit|\brepeated\b|vielfachheit|multiplicidad"),
        _repeated,
    ),
    (
        "₹ rs rupee lakh crore inr",
        re.compile(r"₹|\bRs\b|\brupees?\b|\blakhs?\b|\bcrores?\b|\bINR\b"),
        _grouped,
    ),
    (
        "regress squares best predict estimat fitted",
        re.compile(r"(?i)\bregress|least[- ]squares|best[- ]fit|\bpredict|\bestimat|\bfitted"),
        _unhatted,
    ),
    (
        "variance determination r-squared r²",
        re.compile(r"(?i)\bvariance|\bcoefficient of determination|\bR(?:-squared|²)"),
        _squares,
    ),
    ("impedance admittance phasor reactance complex transfer jω", ENGINEERED, with_imaginary_unit),
    ("commutator quantum hamiltonian eigenstate operator schr [", QUANTUM, without_operator_hats),
)
"""What a question has to say for a notation to be rewritten, and texts of which it cannot lack all,
which are looked for first.
"""


# --- calculations with units ---

_OPERATOR = re.compile(r"(\\times|\\cdot|\\div|\*|/(?=\s*\d))")


def _measured(text: str) -> str:
    """Return the last side of a calculation with units that holds: `100 m ÷ 20 s = 5 m/s`."""
    *heads, last = clean(text).split("=") if "=" in text else [text]
    if not heads or _OPERATOR.search("".join(heads)) is None:
        return text
    total = _amount(last)
    for head in heads if total else ():
        if any(map(str.isdigit, head)):
            side = _amount(head)
            if side is None or total is None or side[1] != total[1]:
                return text
            if abs(side[0] - total[0]) > abs(total[0]) / 100:
                return text
    return last.strip() if total and total[1] else text


def _amount(text: str) -> tuple[Fraction, tuple[tuple[str, int], ...]] | None:
    """Return (value in base units, dimensions) of a product of plain quantities, else None."""
    pieces = _OPERATOR.split(text)
    value, powers = Fraction(1), dict[str, int]()
    for piece, sign in zip(pieces[::2], ["*", *pieces[1::2]], strict=True):
        factor = _quantity(piece)
        turn = -1 if sign in {"/", "\\div"} else 1
        if factor is None or (turn < 0 and not factor[0]):
            return None
        value *= factor[0] ** turn
        for name, power in factor[1]:
            powers[name] = powers.get(name, 0) + turn * power
    return value, tuple(sorted((name, power) for name, power in powers.items() if power))


def _quantity(text: str) -> tuple[Fraction, tuple[tuple[str, int], ...]] | None:
    with suppress(Unreadable):
        node = read_cleaned(text.strip())
        number = node.args[0] if node.op == "quantity" else node
        scale = dimension(node.note) if node.op == "quantity" else (Fraction(1), ())
        if number.op == "pow" and scale and all(part.op == "num" for part in number.args):
            base, exponent = (Fraction(part.value) for part in number.args)
            if base == 10 and exponent.denominator == 1 and -MAX_ITEMS < exponent < MAX_ITEMS:
                return Fraction(10) ** int(exponent) * scale[0], scale[1]
        if number.op in EXACT and scale is not None:
            return Fraction(number.value) * scale[0], scale[1]
    return None
