r"""What a question asks for: an answer is no formula of the prompt that still has to be worked out,
and it has the form of the gold where the prompt names a form.

`refusal` looks only at an answer that equals the gold, and refuses no numeral, no plain fraction
and no option that the prompt lists. The others say what value the prompt makes of what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from ..conventions import Conventions
from ..proving.judge import Judge, NeedsPool
from ..proving.probe import approximate
from ..reading.labels import Labelled, labelled, place_of
from ..reading.nodes import EXACT, Node, Unreadable, has, is_scalar, symbols
from ..reading.plain import formulas
from ..reading.reader import clean, read
from ..reading.sides import LETTER_ASKED, sides
from ..reading.vocabulary import FUNCTIONS, unit_symbol
from .beside import misnamed
from .families import WHOLE_NUMBER_NAMES, whole_numbers
from .forms import OF_BOXES, Notated, plain_root, unasked
from .naming import is_curve
from .relations import same_relation

PROMPTS = 256
"""How many prompts keep their formulas in a cache."""
MAX_PROMPT = 8000
MAX_FORMULAS = 60
MAX_FORMULA = 300
_FORMULA = re.compile(
    r"(?s)\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$((?:[^$\\]|\\.)+?)\$"
)
# Arithmetic in plain text: `17 * 24`, `3^5 - 2`.
_PLAIN = re.compile(
    r"(?<![\w.,/])[(\-]?[\dA-Za-z](?:[\d.,()\s]|(?<=\d)[a-z](?![a-z])|[a-z](?=\^))*"
    r"(?:[-+*/^×·÷][\s(]*(?:[\d.]+[a-z]?|[a-z])(?![a-z])(?:\)|\s(?=[-+*/^×·÷]))*)+"
    r"|√\d+|\b\d+!(?!\w)"
)
_CHOOSES = re.compile(
    r"(?is)\bwhich (?:is|one|of|are|number|expression|fraction|value|function|has|option)\b"
    r"|\bchoose\b|\(A\).*\(B\)|\bA[.)].*\bB[.)]|\boptions?:|\b(?:larger|greater|smaller"
    r"|bigger)\b.*\bor\b"
)
_SEPARATORS = re.compile(r"(?<![<>!:])=|\\equiv|\\approx")


class Question(NamedTuple):
    """The formulas of a prompt that have to be worked out, and the forms that the prompt names."""

    asked: frozenset[Node]
    """The formulas with letters that stand alone, such as $a + 2b$ in `Find $a + 2b$`."""
    formulas: frozenset[Node]
    factored: bool
    expanded: bool
    numeral: bool
    evaluated: bool
    """Whether the prompt wants a number without powers and factorials."""
    interval: bool
    chooses: bool
    """Whether the prompt offers values of which one is to be chosen as it stands."""
    bounds: bool
    """Whether the prompt has an inequality."""
    relations: tuple[Node, ...]
    """The equations of the prompt that have several letters."""
    counts: bool
    """Whether the prompt ends by asking how many there are, and for no share of them."""
    base: bool
    units: frozenset[str]
    solutions: bool
    """Whether the prompt asks for the solutions of an equation."""
    quantities: frozenset[str]
    """The letters of the prompt, without those that it only states to be whole numbers."""


_FORMS = {
    "factored": r"\bfactor(?:i[sz]e|ed|ing|ization)?\b(?! of| tree)|\bfactoris|\bfaktorisier"
    r"|in faktoren"
    r"|\bfactori[cz]|\bfator(?:e|ar|ize)\b|\bfattorizz|\bscomp|на множители"
    r"|因式分解|因数分解|인수분해|गुणनखंड",
    "expanded": r"\b(?:expand|multiply out|expanded form|without (?:parentheses|brackets))\b"
    r"|\bdévelopp"
    r"|ausmultiplizier|multipliziere\b.*\baus\b|\bdesarroll|\bexpand[ai]|\bsvilupp"
    r"|раскро\w+ скобки|展开|展開|전개",
    "numeral": r"\b(?:as|in|into|to) (?:an? )?(?:\w+ )?(?:integer|numeral"
    r"|whole number|single number"
    r"|decimal|fraction|mixed number)\b(?! expansion| point)",
    "evaluated": r"\b(?:fully|completely) (?:evaluated?|worked out)\b|\bevaluated? (?:number|value"
    r"|integer|completely|fully)\b|\bwork (?:it|this|everything) out\b"
    r"|\bplain (?:decimal )?(?:integer"
    r"|number)\b|\bsingle (?:integer|number)\b|\bwrite out the (?:number|value|integer)\b"
    r"|\b(?:not?|without|don['’]t|never) (?:(?:leave|use|write|as|in|an?|any|the|your|answer"
    r"|with) )*"
    r"(?:powers?|exponents?|exponential|factorials?|binomials?)\b|\bausgerechnet|\bausrechnen\b"
    r"|\bohne potenz|\bsans puissance|\bsin potencia|не в виде степени|不要(?:写成|用)(?:幂"
    r"|指数|阶乘)",
    "interval": r"\b(?:interval notation|as an interval)\b(?!,? or\b)(?<!or interval notation)",
    "counts": r"(?:\b(?:how many|combien d|cuánt[oa]s|quant[oaie]s?|wie ?viele|сколько)\b|多少"
    r"|[几幾]|몇|何[個人本]|いくつ)(?![^.?]*(?:per ?cent|%|prozent|por ?ciento|anteil|share|rate"
    r"|fraction|процент|百分))[^.?？]*[?？][^?？%]*$",
    "base": r"\b(?:base|binary|octal|hexadecimal)\b",
    "solutions": r"\bsolve\b(?! (?:the|this) (?:following )?(?:problem|question|task))"
    r"|\ball\b[^.]{0,40}\b(?:solution|value|angle|root|zero|such that|for which)"
    r"|\ball (?:(?:real|positive|natural) )?(?:\$?[a-z]\$?\b|(?:integers|(?:whole )?numbers)\b)"
    r"|general solution|solution set|\blöse|alle lösungen"
    r"|allgemeine lösung|résou|toutes les solutions|solution générale|resuelv"
    r"|todas las soluciones|solución general|resolv|todas as soluções|solução geral|risolv"
    r"|tutte le soluzioni|soluzione generale|реши|все решения|общее решение|解方程|所有.{0,3}解"
    r"|通解|一般解|を解|모든|일반해",
    "bounds": r"[<>≤≥⩽⩾]|\\[lg]eq?(?:slant)?(?![a-z])|\\[lg]t(?![a-z])",
}
_PATTERNS = {form: re.compile(pattern, re.IGNORECASE) for form, pattern in _FORMS.items()}
_UNIT = re.compile(
    r"\b(?:in|to|into|many|of)\s+(?:\\text\{\s*)?(?:(?:square|cubic)\s+)?([A-Za-z]+)"
)


@lru_cache(maxsize=PROMPTS)
def question(prompt: str) -> Question:
    """Read the formulas and the wanted forms of a prompt."""
    prompt = prompt[:MAX_PROMPT]
    forms = {form: bool(pattern.search(prompt)) for form, pattern in _PATTERNS.items()}
    units = frozenset(filter(None, (unit_symbol(word) for word in _UNIT.findall(prompt))))
    texts = [next(filter(None, match)) for match in _FORMULA.findall(prompt)]
    texts += [match[0] for match in _PLAIN.finditer(_FORMULA.sub(" ; ", prompt))]
    sides = [side for text in texts for side in (text, *_SEPARATORS.split(text))]
    trees = {node for text in sides[-MAX_FORMULAS:] if (node := parsed(text)) is not None}
    compound = {_sorted(node) for node in trees if _to_work_out(node)}
    chooses = len(texts) > 1 and _CHOOSES.search(prompt) is not None
    if chooses:
        compound = set()
    running = [prompt[slice(*span)] for span in formulas(prompt, 0, len(prompt))]
    equations = (parsed(text) for text in (*texts, *running) if "=" in text)
    relations = tuple(node for node in equations if node and is_curve(node) and _several(node))
    alone = {_sorted(node) for text in texts if (node := parsed(text)) is not None}
    asked = {node for node in alone if node.op != "rel" and (symbols(node) or not is_scalar(node))}
    return Question(
        frozenset(asked), frozenset(compound), units=units, chooses=chooses,
        relations=relations, quantities=_quantities(prompt), **forms,
    )  # fmt: skip


# `$k$ is an integer`, `for integers $k$`.
_WHOLE = (
    r"integer|whole number|ganze|entier|entero|inteiro|inter[oi]\b|цел\w+|整[数數]|정수"
    r"|(?:\\in|∈)\s*(?:\\mathbb\s*\{?|\\)?[Zℤ]"
)
_STATED = re.compile(
    rf"(?i)\$?\b[a-z]\b\$?[\s,]*(?:[^\W\d_]{{1,9}}\s+){{0,3}}[为為は]?\s*(?:{_WHOLE})\w*"
    rf"|(?:{_WHOLE})\w*\s*\$?[a-z]\b"
)
_COMMANDS = re.compile(
    r"\\text\s*\{[^{}]*\}|\\?(?:" + "|".join(FUNCTIONS) + r")(?![a-z])|\\[A-Za-z]+"
)


def _quantities(prompt: str) -> frozenset[str]:
    """Return the letters that stand for something in a prompt: in its formulas, or alone."""
    plain = _STATED.sub(" ", prompt)
    inside = " ".join("".join(match) for match in _FORMULA.findall(plain))
    alone = re.findall(r"(?<![^\W\d_])(?<!['’])[A-Za-z](?![^\W\d_]|['’])", _FORMULA.sub(" ", plain))
    return frozenset(alone) | set(re.findall("[A-Za-z]", _COMMANDS.sub(" ", inside)))


def family(prompt: str, gold: str) -> str:
    r"""Return a gold whose letter is the parameter of a family of solutions with the set of that
    letter, where it leaves the set unsaid and the prompt asks for solutions; else "".

    >>> family("Solve $\\tan x = 0$.", "k\\pi"), family("A wheel has the radius r.", "2\\pi r")
    ('k\\pi, k \\in \\mathbb{Z}', '')
    """
    asked = question(prompt)
    node = parsed(gold) if asked.solutions and _PERIODIC.search(gold) else None
    letters = (WHOLE_NUMBER_NAMES & symbols(node)) - asked.quantities if node is not None else ()
    stated = len(letters) == 1 and node is not None and not whole_numbers(node)
    return rf"{gold}, {min(letters)} \in \mathbb{{Z}}" if stated else ""


_PERIODIC = re.compile(r"\\pi|π|°|\\circ|\\degree")


def _several(node: Node) -> bool:
    return node.note == "=" and len(symbols(node)) > 1


def refusal(prompt: str, gold: str, answer: str) -> tuple[str, str] | None:
    """Return (rule, reason) why an answer equal to the gold does not answer the question, or
    None.
    """
    asked = question(prompt)
    wanted, given = parsed(gold), parsed(answer)
    reason = misnamed(prompt, answer) or exchanged(prompt, gold, answer)
    sides = Notated(clean(gold), wanted), Notated(answer, _last_side(gold, answer), given)
    if reason := reason or unasked(prompt[:MAX_PROMPT], *sides):
        return "form", reason
    if wanted is None or given is None:
        return None
    if reason := (
        _unsolved(asked, wanted, given)
        or _renamed(asked, wanted, given)
        or _one_of_a_class(asked, prompt, wanted, given)
    ):
        return "form", reason
    wanted, given = value_of(wanted), value_of(given)
    if reason := _unworked(asked, wanted, given, answer):
        return "form", reason
    if _sorted(wanted) == _sorted(given):
        return None
    whole = parsed(answer)
    if {_sorted(given), _sorted(whole or given)} & asked.formulas:
        return "restated", "the answer repeats a formula of the question instead of working it out"
    reason = _misformed(asked, wanted, given, answer)
    return ("form", reason) if reason else None


def exchanged(prompt: str, gold: str, answer: str) -> str:
    r"""Return why values that words name are not those that the gold, or the order of the names in
    the question, gives these names; or "".

    >>> exchanged("Give the mean and the mode.", "9, 8", r"\text{mean}=8, \text{mode}=9")
    'the question asks for mean, mode, which are 8, 9'
    """
    gold = " ".join(re.sub(r"\\text\s*\{([^{}]*)\}|\\[ ,;]", r" \1 ", gold).split())
    wanted = labelled(gold, bare=True)
    nouns = [name for name, _ in wanted] or _NOUN.findall(gold)  # `10 boxes, 5 eggs`
    are_names = len({*nouns}) == len(nouns) > 1 and (
        wanted or all(noun in answer for noun in nouns)
    )
    ranked = _ranked(labelled(answer), " ".join(nouns) if are_names else prompt)
    values = [value for _, value in wanted] or _NOUN.sub("", gold).strip(" $()").split(",")
    given = [value for _, value in ranked]
    first, second = _equations(gold), _equations(answer)
    if len(first) > 1 and set(first) == set(second) and all(map(_WORDED.fullmatch, first)):
        own = [_same_number(first[name], second[name]) for name in first]
        if not any(own) and any(_same_number(first[name], other) for name in first
                                for other in second.values()):  # fmt: skip
            return "the values have each other's names"
    if not given and "=" not in gold and len(values) > 1 and "=" in answer:
        # `r + s = 7/2, rs = 3/2`, which are formulas of the question.
        stated = sorted(sides(prompt, answer, 0, len(answer)), key=lambda side: side.rank)
        ranked = [Labelled(side.name, side.value.rpartition("=")[2]) for side in stated]
        given = [value for _, value in ranked]
    if len(values) != len(given) or all(map(_same_number, values, given)):
        return ""
    names = ", ".join(name for name, _ in ranked)
    return f"the question asks for {names}, which are {', '.join(given)}"


_NOUN = re.compile(r"(?<=\d )[^\W\d_]{3,}")
_WORDED = re.compile(r"[^\W\d_]{2,}(?:[ -][^\W\d_]+)*")
"""A name in words; the indices of `x_1` and `x_2` may only count."""
MAX_EQUATIONS = 8
"""The most named values of an answer that are compared by name."""


def _equations(text: str) -> dict[str, str]:
    """Return the values of `GCD = 6, LCM = 36` by their names."""
    bare = re.sub(r"\\(?:text|mathrm)[a-z]*\{([^{}]*)\}", r"\1", text)
    pairs = (part.partition("=") for part in re.split(r"[,;]", bare)[:MAX_EQUATIONS])
    return {
        name.strip(" $\\").casefold(): value.rpartition("=")[2].strip(" $")
        for name, sign, value in pairs
        if sign
    }


def in_asked_order(prompt: str, answer: str) -> str:
    r"""Return the values that words name as a tuple in the order of their names in the question, or
    "" where it does not have them all.

    >>> in_asked_order("Give the mean and the mode.", r"\text{mode}=8, \text{mean}=9")
    '(9, 8)'
    """
    values = [value for _, value in _ranked(labelled(answer), prompt)]
    return f"({', '.join(values)})" if values else ""


def _ranked(pairs: list[Labelled], asked: str) -> list[Labelled]:
    """Return several named values in the order of their names in a text, or [] where it does not
    have each at a place of its own.
    """
    text = asked[:MAX_PROMPT].lower()
    places = {place_of(pair.name.lower(), text): pair for pair in pairs}
    several = 1 < len(pairs) == len(places) and min(places) >= 0
    return [places[place] for place in sorted(places)] if several else []


def _same_number(first: str, second: str) -> bool:
    """Return whether two texts are the same, or plain numbers of the same value."""
    nodes = parsed(first), parsed(second)
    if None in nodes or nodes[0] == nodes[1]:
        return nodes[0] == nodes[1]
    left, right = (
        approximate(node) if node is not None and is_scalar(node) else None for node in nodes
    )
    return left is not None and right is not None and abs(left - right) <= 1e-9 * abs(left)


def side_asked(prompt: str, answer: str) -> str:
    """Return the value of an equation whose left side is what the prompt asks for, or "":
    `a + 2b = 7` answers `Find $a + 2b$`. A side without letters could be refuted, and is no name.
    """
    if "=" not in answer or (node := parsed(answer)) is None or node.op != "rel":
        return ""
    named = node.note == "=" and _sorted(node.args[0]) in question(prompt).asked
    return answer.rpartition("=")[2] if named else ""


def assigned(prompt: str, response: str, place: int) -> str:
    """Return the value of the name that the prompt asks for, where a line of the response states
    nothing else and a consequence follows at `place`: `a = 3`, then `Thus the line is y = 3x`, or
    `So $a$ is the number of legs`.
    Else "".
    """
    asked = LETTER_ASKED.search(prompt[:MAX_PROMPT])
    follows = asked and _CONSEQUENCE.search(response, max(0, place - 80), place + 80)
    # The letter alone, of which a sentence says something in words.
    is_bare = asked and re.match(rf"\$?{asked[1]}\$?\s*(?!\s*[=<>]|[\w^+*/-])", response[place:])
    if not asked or not (is_bare or (follows and follows[1] != asked[1])):
        return ""
    lines = re.findall(
        rf"(?m)^[\s$*]*{asked[1]}\s*=\s*([^=\n,;]{{1,60}}?)[\s$*.]*$",
        response[max(0, place - 1500) : place],
    )
    return lines[-1] if lines else ""


_CONSEQUENCE = re.compile(
    r"(?i)\b(?:thus|so|hence|therefore),? the (?:\w+ ){1,4}(?:is|becomes)"
    r"\W{1,4}([A-Za-z])(?:\([a-z]\))?\s*="
)


def bound_asked(prompt: str, formula: str, golds: Sequence[str]) -> str:
    r"""Return the bound of a closing formula such as `n \ge \frac{8+3}{2} = \frac{11}{2}` where
    the question asks for the least (or greatest) value; else the formula. A gold that is itself a
    range asks for none.

    >>> [bound_asked("Find the least $n$.", said, ["3"]) for said in (r"n \ge 3", "n > 3")]
    ['3', 'n > 3']
    """
    if any(map(_RANGE.search, golds)):
        return formula
    signs = _ORDER.findall(formula)
    closed = len(signs) == 1 and signs[0][:3] in _CLOSED
    direction = _CLOSED[signs[0][:3]] if closed else None
    if direction is None or not direction.search(prompt) or "," in formula:
        return formula
    return re.split(rf"{_ORDER.pattern}|=", formula)[-1].strip()


_ORDER = re.compile(r"\\[lg]e(?:q|qslant)?(?![a-z])|[<>≤≥]|\\[lg]t(?![a-z])")
_RANGE = re.compile(rf"{_ORDER.pattern}|\\infty|[\[(][^()\[\]]*,")
_LEAST = re.compile(r"(?i)(?<!\bat )\b(?:least|smallest|minimum|minimal|lowest)\b(?! common)")
_GREATEST = re.compile(
    r"(?i)(?<!\bat )\b(?:greatest|largest|maximum|maximal|highest|most)\b(?! common)"
)
_CLOSED = {"\\ge": _LEAST, "≥": _LEAST, "\\le": _GREATEST, "≤": _GREATEST}


def _unsolved(asked: Question, wanted: Node, given: Node) -> str:
    """Return why an answer is the equation of the question, but not solved for the letter that the
    gold is solved for, or "".
    """
    letter = _isolated(wanted)
    if letter is None or given.op != "rel" or _isolated(given) == letter:
        return ""
    judge = Judge(Conventions())
    for equation in asked.relations:
        with suppress(NeedsPool):
            if _isolated(equation) != letter and same_relation(wanted, equation, judge):
                return f"the question asks for {letter}"
    return ""


def _renamed(asked: Question, wanted: Node, given: Node) -> str:
    """Return why an answer calls a quantity of the question by another letter, or ""."""
    if wanted.op == "mod":  # the letter of a congruence names the numbers, as that of `20k + 18`
        return ""
    lost = symbols(wanted) - symbols(given)
    others = symbols(given) - symbols(wanted) - {"T", "F"}  # which are true and false
    renamed = lost & asked.quantities & WHOLE_NUMBER_NAMES and others
    return f"the question says {min(lost)}" if renamed else ""


def _one_of_a_class(asked: Question, prompt: str, wanted: Node, given: Node) -> str:
    """Return why a single number is not the class of numbers that a gold `n = 18 (mod 20)` gives
    to a question of all solutions, or "".
    """
    if not has(wanted, "mod") or symbols(given) - symbols(wanted) or has(given, "mod"):
        return ""
    every = asked.solutions and not _REMAINDER.search(_FORMULA.sub(" ", prompt[:MAX_PROMPT]))
    return "the question asks for all solutions" if every else ""


_REMAINDER = re.compile(
    r"(?i)\b(?:mod(?:ulo)?|residues?|remainders?|rest|reste|resto|least|smallest|largest"
    r"|greatest|first"
    r"|between|less than|kleinste|plus petit|menor|mínimo)\b|остат|наименьш|余|最小|最大|나머지"
)
"""Words that ask for one number of a class."""


def _isolated(node: Node) -> str | None:
    """Return the letter that stands alone on one side of an equation and nowhere on the other."""
    if not is_curve(node) or node.note != "=":
        return None
    left, right = node.args
    for side, other in ((left, right), (right, left)):
        if side.op == "sym" and side.note not in symbols(other):
            return str(side.note)
    return None


_VALUES = frozenset({"factorial", "double factorial", "binom"})
"""Functions of numbers that are values as they stand."""


def _unworked(asked: Question, wanted: Node, given: Node, answer: str) -> str:
    """Return why a formula of numbers, equal to a gold that is a numeral, is no value, or ""."""
    if asked.chooses or wanted.op not in EXACT or symbols(given) or OF_BOXES.search(answer):
        return ""
    if _COMPLEX.fullmatch(answer.rpartition("=")[2]) or _worked_out(answer):
        return ""
    if asked.evaluated and given.op not in EXACT and any(map(_raised, _below(given))):
        return "the question asks for the number, which the answer leaves to be worked out"
    whole = wanted.value.denominator == 1
    quotient = _QUOTIENT.fullmatch(re.split(r"\\approx|≈", answer)[0].rpartition("=")[2].strip())
    # `120/10` is a division; a fraction may stay unreduced where no numeral is asked for.
    divides = quotient and int(quotient[2] or (asked.numeral and quotient[4]) or 1) > 1
    if (whole and divides and given.op in EXACT) or (
        not _scientific(given) and any(map(_is_open, _below(given)))
    ):
        return "the question asks for a value, which the answer leaves to be worked out"
    return ""


_COMPLEX = re.compile(r"[\s$]*[-−]?\d+\s*[-+−]\s*\d*\s*i[\s$.]*")
_QUOTIENT = re.compile(r"-?(?:(\d+)\s*/\s*(\d+)|\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\})")


def _below(node: Node) -> Iterator[Node]:
    """Yield a formula of numbers and its parts, but not those of a value."""
    yield node
    if node.op != "func" or node.note not in _VALUES:
        for part in node.args:
            yield from _below(part)


def _is_open(node: Node) -> bool:
    """Return whether a node is a sum, a product, a root or a function of numbers."""
    if node.op == "pow":
        return node.args[1].op == "num" and node.args[1].value.denominator != 1
    if node.op == "func":
        return node.note not in _VALUES
    return node.op == "add" or (node.op == "mul" and _numbers(node) > 1)


def _raised(node: Node) -> bool:
    """Return whether a node is a power or a factorial of numbers."""
    return node.op == "pow" or (node.op == "func" and node.note in _VALUES)


def _worked_out(answer: str) -> bool:
    """Return whether a side of a chain is a numeral: `32 = 2^5`."""
    first, *sides = answer.strip(" $.").split("=")
    return any(_NUMERAL.fullmatch(side.strip(" $")) for side in (first, *sides) if sides)


_NUMERAL = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def _misformed(asked: Question, wanted: Node, given: Node, answer: str) -> str:
    """Return why the form of an answer is not the one that the question asks for, or ""."""
    if asked.factored and _factors(wanted) > max(1, _factors(given)):
        return "the question asks for factors"
    if asked.expanded and _expanded(wanted) and not _expanded(given):
        return "the question asks for an expanded form"
    worked = wanted.op in EXACT and given.op in {"add", "mul", "pow", "func"}
    if asked.numeral and worked and not (_scientific(given) or _worked_out(answer)):
        return "the question asks for a numeral"
    ranged = asked.interval and wanted.op in {"bracket", "union"}
    if ranged and has(given, "rel") and given.note != "in":
        return "the question asks for an interval"
    ends = given.op in {"list", "set"} and not _of_several_letters(asked, given)
    if asked.bounds and wanted.op == "bracket" and ends:
        return "the question asks for an interval"
    if asked.counts and given.op == "percent" != wanted.op:
        return "the question asks for a count"
    if asked.base and wanted.op == "based" and given.op in {"num", "add", "mul"}:
        return f"the question asks for a numeral in base {wanted.value}"
    units = wanted.op == given.op == "quantity" and wanted.note != given.note
    if units and wanted.note in asked.units:
        return f"the question asks for {wanted.note}"
    return ""


def _of_several_letters(asked: Question, node: Node) -> bool:
    r"""Return whether a list has the values of several letters of the prompt: those that it names
    (`r = 3, \theta = \pi/2`), or those of a tuple in the prompt.
    """
    names = {item.args[0].note for item in node.args if item.op == "rel" and item.note == "="}
    letters = asked.quantities.union(*map(symbols, asked.asked))
    return len(names & letters) == len(node.args) or any(
        part.op == "bracket" and {item.op for item in part.args} == {"sym"} for part in asked.asked
    )


def _scientific(node: Node) -> bool:
    """Return whether a product is a numeral with a power of ten."""
    ten = Node("num", (), 10)
    return node.op == "mul" and any(part.op == "pow" and part.args[0] == ten for part in node.args)


def parsed(text: str) -> Node | None:
    if len(text) > MAX_FORMULA:
        return None
    try:
        node = read(text.strip(" .,;?:\n"))
    except (Unreadable, RecursionError):
        return None
    return None if node.op in {"text", "opaque"} else node


def _last_side(gold: str, answer: str) -> Node | None:
    """Return the tree of an answer, or of the value that a chain ends in."""
    if "=" in gold:
        return parsed(answer)
    return parsed(re.split(r"\\approx|≈", answer)[0].rpartition("=")[2])


def value_of(node: Node) -> Node:
    """Return the last side of `x = value`, or the node itself."""
    return node.args[-1] if node.op == "rel" and set(node.note.split()) <= {"=", "=="} else node


def _sorted(node: Node) -> Node:
    """Return the node with the terms of sums and the factors of products in one order."""
    if not node.args:
        return node
    args = tuple(map(_sorted, node.args))
    commutes = node.op in {"add", "mul"}
    return node._replace(args=tuple(sorted(args, key=repr)) if commutes else args)


def _to_work_out(node: Node) -> bool:
    """Return whether a formula of a prompt is compound: an operation, a relation or a number in a
    base.
    """
    if node.op in {"rel", "based", "func", "add", "abs", "matrix", "such"}:
        return True
    if node.op == "pow":
        return not plain_root(node)
    if node.op == "mul":
        return not all(_plain(part) for part in node.args) or _numbers(node) > 1
    return False


def _numbers(node: Node) -> int:
    return sum(part.op in {"num", "dec"} and part.value != -1 for part in node.args)


def _plain(node: Node) -> bool:
    return node.op in {"num", "dec", "const"} or plain_root(node)


def _factors(node: Node) -> int:
    """Return how many factors with variables a product has, with their multiplicity."""
    if node.op == "mul":
        return sum(map(_factors, node.args))
    if node.op == "pow" and node.args[1].op == "num" and node.args[1].value.denominator == 1:
        return abs(int(node.args[1].value)) * _factors(node.args[0])
    return int(bool(symbols(node)) and is_scalar(node))


def _expanded(node: Node) -> bool:
    """Return whether a formula has no product or power of a sum."""
    terms = node.args if node.op == "add" else (node,)
    return not any(
        term.op in {"mul", "pow"} and any(has(part, "add") for part in term.args[:2])
        for term in terms
    )
