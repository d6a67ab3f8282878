"""The decision on a pair: a gold and an extracted answer are read, compared and given a verdict.

Only cheap steps run here, in the caller's thread. Where these leave the question open,
`NeedsPool` is raised and a pool worker repeats the decision with the costly steps allowed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ludus.verdict import Verdict

from .comparing.approximations import written
from .comparing.beside import base_asked, times_as
from .comparing.choices import (
    MAX_OPTION,
    choose,
    chosen_letter,
    in_letters,
    letters_in_order,
    listed,
)
from .comparing.compare import compare
from .comparing.forms import ORDERED, SEQUENCED
from .comparing.formulas import configuration, formula, same_formula
from .comparing.logic import same_logic
from .comparing.many import is_another
from .comparing.naming import is_curve
from .comparing.positive import over_positive, positive_letters
from .comparing.question import family, in_asked_order, parsed, question, refusal, side_asked
from .comparing.relations import same_relation
from .comparing.renotation import in_sequence, same_shape, sides_asked
from .comparing.rewording import in_other_words
from .comparing.sciences import litres, molar, same_strand
from .comparing.ways import apart
from .comparing.wording import by_head_noun, is_time, same_words
from .conventions import Conventions
from .extracting.asked_words import subject_asked
from .extracting.candidate import Extraction
from .extracting.golds import unboxed, unmarked, values_of
from .extracting.remarks import answer_alone, stated
from .extracting.verdicts import agrees, verdict
from .proving.judge import Deep, Judge, NeedsPool
from .reading.counting import in_digits
from .reading.labels import truths, with_names, with_quantities
from .reading.lexer import tokenize
from .reading.locales import points_for_commas
from .reading.nodes import Node, TooBig, Unreadable
from .reading.notation import as_words, squeeze
from .reading.reader import MAX_CHARACTERS, clean, read_cleaned
from .reading.units import dimension, read_unit
from .reading.vocabulary import DENIALS, NO_SOLUTION, unit_symbol

_TASK = re.compile(
    r"\\(?:i*int|lim|det|sum|prod|gcd|[dt]?frac\s*\{\s*d|begin\{vmatrix)|∫|∑|∏|lcm|gcd"
)
"""Commands that may make a gold a task (an integral, a determinant). An answer that only repeats
such a gold has not solved the task, so that equal text proves nothing.
"""
# Hints that a gold may be a chemical formula, which is then compared as such.
_CHEMICAL = re.compile(r"\\(?:ce|mathrm|text)(?![a-z])|[A-Z][a-z]?(?:[_^]|\)?_?\{?\d)")
_COUNTED_ATOMS = re.compile(r"(?=.*[A-Z].*[A-Z]).*[A-Za-z)]\d")
"""Two elements, of which a number counts one: no product, whose factors have no order."""
_ABOUT = re.compile(r"[\s$(]*(?:\\approx|≈|\\sim(?![a-z]))")
# `\textbf{(C)}\ 12`: the letter of an option before the answer to a question without options.
_OPTION = re.compile(
    r"^(?:\\(?:text|mathrm|mathbf|boldsymbol)[a-z]*\s*\{\s*\(?[A-J][).:]\s*\}(?:\s|\\[ ,;:]"
    r"|\\q?quad|~|:)*(?=[^\s=+*/^])|\([A-J]\)(?=\s|\\[ ,;:q]|~)(?:\s|\\[ ,;:]|\\q?quad"
    r"|~)*(?=[^\s=+*/^-]))|(?<=[\d}])\s+\([A-J]\)$"
)
# `(a) 5, (b) 7`: the labels of the parts of a question.
_PART = re.compile(
    r"(?:^|(?:[\s,;.]|\\q?quad){1,20}|\\\\)(?:and\s+)?(?:\\text\{\s*)?"
    r"\(([a-h]|i{1,3}|iv|v|[1-8](?=\)[\s\\:~}]))\)[\s:}~]*(?:\\ )?"
)
_BOTH = re.compile(r"±|\\pm(?![a-z])")
_LABELS = (list("abcdefgh"), list("12345678"), ["i", "ii", "iii", "iv", "v"])
"""The labels of parts, in order."""
_WORDS = frozenset({"text", "opaque"})
_CHANGED = re.compile(
    r"(?i)\b(?:squared|cubed|(?<!in )short|none|every|twice|half|double|triple|thrice|square|cube"
    r"|root|minus|negative|times|third|quarter|reciprocal|inverse|opposite|factorial|complement"
    r"|step|figure|case|part|question|problem|exercise|section|equation)\b"
)
"""Words beside a number that turn the number into another one ("twice"), or into a label ("step
3").
"""
_BEHIND = re.compile(r"(?<=\d) +([^\W\d_]+)")
_CHANGES = DENIALS - {"is", "are", "was"}
_IN_WORDS = re.compile(r"\\(?:text|mathrm)[a-z]*\s*\{([A-Za-z]{3,} \d{1,2})\}")
"""A date in words: `\\text{May 5}`."""
CALLER_CHARACTERS = 240
"""The length of gold and answer together above which both are read in the pool. Reading takes about
3 us a character, so that the caller's event loop is never held up.
"""


_TRUTH = re.compile(r"(?i)\b(?:true|false|[TF])\b")
GOLDS = 1024
"""How many golds keep their parsed form in a cache. Answers and pairs are never cached: a group of
rollouts shares its gold and nothing else.
"""


@dataclass(slots=True)
class PairDecision:
    """The outcome of comparing a gold with an answer: the result, the deciding rule and the
    trace.
    """

    equal: bool
    rule: str
    detail: str
    undecided: bool = False
    trace: list[tuple[str, str]] = field(default_factory=list)

    def verdict(self, *, pooled: bool = False) -> Verdict:
        """Return the decision as a verdict with reward 1 or 0; `pooled` adds the metric of that
        name.
        """
        metrics = {f"rule/{self.rule}": 1.0}
        if self.undecided:
            metrics["undecided"] = 1.0
        if pooled:
            metrics["pooled"] = 1.0
        return Verdict.of(float(self.equal), self.detail, metrics=metrics)


class BadGold(ValueError):
    """The gold cannot be read, so that no answer can be judged; the message gives the reason."""


def read_gold(gold: str) -> tuple[str, Node | None]:
    """Return (text, parsed form) of a gold; the parsed form is None for a gold beyond the size
    limits.

    Raises:
        BadGold: the gold cannot be read at all.
    """
    source = unboxed(gold)
    return source, gold_meaning(gold, clean(source))


def gold_meaning(gold: str, cleaned: str) -> Node | None:
    """Parse a cleaned gold; None means that the gold is too big, so that only equal text counts.

    Raises:
        BadGold: the gold cannot be read at all.
    """
    meaning = _read_gold(cleaned)
    if isinstance(meaning, str):
        raise BadGold(f"the gold {gold[:80]!r} cannot be read: {meaning}")
    if meaning is not None and meaning.op in _WORDS and gold.count("{") != gold.count("}"):
        raise BadGold(f"the gold {gold[:80]!r} cannot be read: its braces do not balance")
    return meaning


@lru_cache(maxsize=GOLDS)
def _read_gold(cleaned: str) -> Node | str | None:
    """Parse a cleaned gold, or return the reason for which the text cannot be read.

    The result is cached because a group of rollouts shares its gold.
    """
    try:
        return read_cleaned(cleaned) if len(cleaned) <= MAX_CHARACTERS else None
    except TooBig:
        return None
    except Unreadable as error:
        return str(error)


def decide(
    gold: str, answer: str, conventions: Conventions, *, prompt: str = "", deep: Deep | None = None
) -> PairDecision:
    """Decide whether the extracted `answer` says the same as `gold`, and answers the prompt if one
    is given.

    Raises:
        BadGold: the gold cannot be read.
        NeedsPool: the cheap steps leave the question open and `deep` is None.
    """
    if "②" in prompt or "(2)" in prompt:
        prompt, gold, answer = in_letters(prompt, gold, answer)
    if ")" in gold and (of_parts := _by_parts(gold, answer, conventions, deep)):
        return of_parts
    magnitude, way = apart(unboxed(gold))
    if way and gold != answer:
        given, said = apart(answer)
        if said != way:
            return PairDecision(False, "direction", f"the direction is {said or 'missing'}")
        gold, answer = magnitude, given
    order = _order_asked(prompt) if prompt else ""
    if order and not conventions.ordered_sets:
        conventions = replace(conventions, ordered_sets=True)
    if order == "sequence":
        gold, answer = in_sequence(unboxed(gold)), in_sequence(answer)
        if (same := letters_in_order(gold, answer)) is not None:
            return PairDecision(same, "choice", "the same letters" if same else "another order")
    gold = (prompt and family(prompt, unboxed(gold))) or gold
    if prompt and (of_kind := _of_its_kind(prompt, unboxed(gold), answer)):
        return of_kind
    if prompt:
        gold, answer = litres(prompt, *molar(prompt, *sides_asked(prompt, gold, answer)))
    decision = _equal(gold, answer, conventions, deep)
    if prompt and not decision.equal and (option := _by_option(prompt, gold, answer)):
        decision = _option_equal(*option, conventions, deep) or decision
    if prompt and not decision.equal and (roots := _unindexed(prompt, gold, answer)):
        decision = _equal(*roots, conventions, deep)
    if not decision.equal and (natural := _in_natural_logarithms(prompt, gold, answer)):
        decision = _equal(gold, natural, conventions, deep)
    if prompt and not decision.equal and (right := _right_for(prompt, gold, answer)):
        return right
    if prompt and not decision.equal and (named := _named(prompt, answer)):
        decision = _equal(gold, named, conventions, deep)
    if not decision.equal and (pair := in_other_words(gold, answer, prompt)):
        decision = _equal(*pair, conventions, deep)
        answer = pair[1] if decision.equal else answer
    bare = prompt and not decision.equal and "=" not in answer
    if bare and (side := side_asked(prompt, unboxed(gold))):
        decision = _equal(side, answer, conventions, deep)
    if prompt and not decision.equal and (letters := positive_letters(prompt)):
        decision = _over_positive(gold, answer, letters, conventions, deep) or decision
    # A word may be the gold itself, as `elf` and `once` are, before it is a number.
    digits = in_digits(answer) if conventions.locale == "auto" else answer
    if not decision.equal and digits != answer:
        return decide(gold, digits, conventions, prompt=prompt, deep=deep)
    if not decision.equal and answer[:1].isdecimal() and (wanted := in_digits(gold)) != gold:
        return decide(wanted, answer, conventions, prompt=prompt, deep=deep)
    return (
        _unless_refused(prompt, gold, answer, decision) if decision.equal and prompt else decision
    )


def _of_its_kind(prompt: str, gold: str, answer: str) -> PairDecision | None:
    """Decide on a gold of a kind that only the question tells, such as the shape of a matrix; None
    for any other.
    """
    if (shaped := same_shape(prompt, gold, answer)) is not None:
        return PairDecision(shaped, "shape", "the shape of a matrix")
    if (same := same_strand(prompt, gold, answer)) is not None:
        return PairDecision(same, "strand", "the sequence of bases")
    return None


def _right_for(prompt: str, gold: str, answer: str) -> PairDecision | None:
    """Return the decision that an answer is right where only the question makes it so, else
    None.
    """
    if _in_base(prompt, gold, answer):
        return PairDecision(True, "number base", "the base that the question names")
    if is_another(prompt, unboxed(gold), answer):
        return PairDecision(True, "one of many", "another of the right answers")
    if _same_line(prompt, gold, answer):
        return PairDecision(True, "relation", "an equation of the same line")
    if (said := verdict(answer)) and agrees(prompt, unboxed(gold), said):
        return PairDecision(True, "verdict", f"the answer says {said!r}")
    if _counts_none(gold, answer) and question(prompt).counts:
        return PairDecision(True, "count", "none is a count of zero")
    if same_logic(prompt, unboxed(gold), answer_alone(answer)):
        return PairDecision(True, "logic", "the same formula of logic in other signs")
    if _by_name(prompt, gold, clean(answer)):
        return PairDecision(True, "name", "the name of a function of the question")
    if by_head_noun(prompt, clean(unboxed(gold)), clean(answer_alone(answer))):
        return PairDecision(True, "text", "the same words, but for a noun of the question")
    return None


def _unless_refused(prompt: str, gold: str, answer: str, decision: PairDecision) -> PairDecision:
    """Return the decision on an answer that equals the gold, unless the question wants a form or a
    unit that the answer has not.
    """
    if decision.rule == "rounded gold" and _WRITES_OUT.search(prompt):
        reason = "the question asks for this number, not for a measurement"
        return PairDecision(False, "form", reason)
    if other := _in_another_unit(prompt, gold, answer):
        return PairDecision(False, "units", other, trace=decision.trace)
    refused = refusal(prompt, *with_quantities(unboxed(gold), _bare(answer)))
    if refused:
        return PairDecision(False, *refused, trace=[*decision.trace, refused])
    return decision


def _same_line(prompt: str, gold: str, answer: str) -> bool:
    """Return whether two equations are those of one line or plane, for which the question asks."""
    if "=" not in gold or "=" not in answer or not _LINE.search(prompt):
        return False
    first, second = parsed(gold), parsed(answer)
    if first is None or second is None or not (is_curve(first) and is_curve(second)):
        return False
    with suppress(NeedsPool):
        return same_relation(first, second, Judge(Conventions()))
    return False


_LINE = re.compile(
    r"(?i)\bequation (?:of|for) (?:the|an?) (?:[a-z]+ ){0,3}(?:line|plane|axis|asymptote|directrix"
    r"|bisector|tangent)\b(?!.*\b(?:in|of) the form\b)(?!.*\bform\b)"
)
"""A question for an equation of a line, in no form of its own."""


def _counts_none(gold: str, answer: str) -> bool:
    """Return whether one of two texts is 0 and the other says that there is nothing."""
    texts = {as_words(clean(text)) or clean(text).strip("$ .") for text in (gold, answer)}
    return "0" in texts and all(text == "0" or _NONE.fullmatch(text) for text in texts)


_NONE = re.compile(rf"(?i)\W*(?:none(?: of them)?|nothing|{NO_SOLUTION})\W*")
MAX_ASKED = 4000
"""How many characters at the end of a prompt are searched for a sequence."""


@lru_cache(maxsize=GOLDS)
def _order_asked(prompt: str) -> str:
    """Return "sequence" or "order" where a question asks for its values in one order, else ""."""
    if SEQUENCED.search(prompt[-MAX_ASKED:]):
        return "sequence"
    return "order" if ORDERED.search(prompt) else ""


def _over_positive(
    gold: str, answer: str, letters: frozenset[str], conventions: Conventions, deep: Deep | None
) -> PairDecision | None:
    """Decide whether two formulas are equal where the letters that the question names so are
    positive; None where this makes no difference.
    """
    with suppress(Unreadable, RecursionError):
        nodes = read_cleaned(clean(unboxed(gold))), read_cleaned(clean(answer_alone(answer)))
        if pair := over_positive(*nodes, letters):
            judge = Judge(conventions, deep=deep)
            if compare(*pair, judge):
                return PairDecision(True, judge.rule, "equal for positive quantities")
    return None


def _in_another_unit(prompt: str, gold: str, answer: str) -> str:
    """Return why an answer has another unit than the question asks for, where the gold leaves the
    unit to the question, or "".
    """
    places = _ASKED_UNIT.finditer(prompt)
    named: set[str | None] = {_unit_at(prompt, place.end()) for place in places}
    named |= {unit_symbol(word) for pair in _UNIT_IN_BRACKETS.findall(prompt) for word in pair}
    named |= {"mol/L"} if _ASKED_MOLAR.search(prompt) else set()
    # A pound is a weight or money, and a calorie of food is a kilocalorie.
    named -= {None, "", "lb", "cal"}
    if len(named) != 1 or not re.search(r"[A-Za-z]", answer):
        return ""
    with suppress(Unreadable, TooBig):
        node, wanted = read_cleaned(clean(answer)), read_cleaned(clean(unboxed(gold)))
        (asked,) = named
        node = node.args[-1] if node.op == "rel" else node
        given, counted = dimension(node.note), (asked or "").partition("/")[0]  # `5 hours` a day
        units = dimension(asked or ""), dimension(counted)
        if node.op == "quantity" and wanted.op != "quantity" and None not in (given, *units):
            # `cm^2` is of another quantity than the one that the question gives in `cm`.
            is_other = asked in re.findall("[A-Za-z]+", node.note) and given != units[0]
            is_right = given in units or is_other
            return "" if is_right else f"the question asks for {asked}, not {node.note}"
    return ""


def _unit_at(prompt: str, start: int) -> str:
    """Return the unit that a prompt names from `start` on, or ""; a single sign is a unit at the
    end of a clause, and may be a letter of the question elsewhere.
    """
    words = re.split(r"[?,;:\n]|[.](?= |$)", prompt[start : start + MAX_UNIT], maxsplit=1)[0]
    words = words.replace("$", "")
    marked = words if "\\" in words else rf"\text{{{words}}}"
    with suppress(Unreadable):
        unit = read_unit(tokenize(clean(marked)), 0)[1]
        is_said = len(unit) > 1 or _IN_FULL.match(words) or _IN_SIGN.fullmatch(words)
        return unit if is_said and dimension(unit) is not None else ""
    return ""


_IN_FULL = re.compile(r"[A-Za-z]{4}")
"""What begins a unit that is no sign: `metres`."""
_IN_SIGN = re.compile(r"\w(?: (?:to|rounded|correct)\b.*)?\s*")
"""A single sign at the end of a clause, before how exact the value has to be at most."""
MAX_UNIT = 40
"""How many characters behind `in` are searched for a unit."""
_ASKED_UNIT = re.compile(r"(?i)\b(?:in|how many) (?=[A-Za-z\\$])")
"""What stands before the unit that a question names."""
_UNIT_IN_BRACKETS = re.compile(
    r"[a-z$] (?:\((?:in )?(?:the )?([A-Za-z]{2,}|[JNWVTKLsmg])\)|\[([A-Za-z]{2,}|[JNWVTKLsmg])\])"
    r"(?=\s*(?:[?.,:;]|$|it\b|is\b|of\b|that\b|and\b))"
)
"""A unit in brackets behind what is asked: `How much energy is stored (J)?`."""
_ASKED_MOLAR = re.compile(r"\bconcentration\b[^.?]*\bin M\b")
_WRITES_OUT = re.compile(
    r"(?is)\bexact(?:ly)?\b|\b(?:write|express|convert)\b.*\d.*\b(?:scientific notation|standard "
    r"form)"
)


def _by_option(prompt: str, gold: str, answer: str) -> tuple[dict[str, str], str, str] | None:
    """Return (options, letter, text) where one of gold and answer is the letter of an option that
    the prompt lists and the other a text; else None.
    """
    wanted = chosen_letter(clean(unboxed(gold))) if len(gold) < MAX_OPTION else None
    alone = as_words(clean(answer_alone(answer))) if len(answer) < MAX_OPTION else ""
    lettered = re.match(r"\(?([A-J])[).:] (?=.)", alone)
    if lettered and as_words(listed(prompt).get(lettered[1], "")) == alone[lettered.end() :]:
        alone = lettered[1]
    given = alone if re.fullmatch("[A-J]", alone) else None
    if wanted and (letter := chosen_letter(alone)):
        options = listed(prompt) if gold.strip()[:1].islower() else {}
        return (options, wanted, options[letter]) if {letter, wanted} <= set(options) else None
    if (wanted is None) == (given is None):
        return None
    options = listed(prompt)
    letter, text = (wanted, answer) if wanted else (given, unboxed(gold))
    return (options, letter, text) if letter in options and len(text) < MAX_OPTION else None


def _option_equal(
    options: dict[str, str], letter: str, text: str, conventions: Conventions, deep: Deep | None
) -> PairDecision | None:
    """Decide whether a text is that of the option `letter` and of no other, else return None."""
    words = {other: as_words(option).casefold() for other, option in options.items()}
    if as_words(text).casefold() == words[letter]:
        return PairDecision(True, "option", f"the text of option {letter}")
    for other, option in options.items():
        equal = _equal(option, text, conventions, deep).equal
        if equal != (other == letter):
            return None
    return PairDecision(True, "option", f"the text of option {letter}")


_INDEX = re.compile(r"(?<![A-Za-z\\])([A-Za-z])(?:_\{?\d\}?|[₁-₉])?(?=\s*=)")


def _unindexed(prompt: str, gold: str, answer: str) -> tuple[str, str] | None:
    """Return gold and answer without the indices that only number values of one unknown
    (`x_1 = 5, x_2 = -2`), or None. Indices that the question itself uses are names.
    """
    stems = [_INDEX.findall(text) for text in (unboxed(gold), answer)]
    if any(len(names) < 2 for names in stems) or len({*stems[0], *stems[1]}) > 1:
        return None
    if re.search(rf"{stems[0][0]}(?:_|[₀-₉])", prompt):
        return None
    bare = _INDEX.sub(r"\1", unboxed(gold)), _INDEX.sub(r"\1", answer)
    return None if bare == (unboxed(gold), answer) else bare


_DEFINES = re.compile(r"(?<![A-Za-z\\])([A-Za-z])\s*\(\s*[a-z]\s*\)\s*=")


def _by_name(prompt: str, gold: str, answer: str) -> bool:
    """Return whether an answer is the bare name of the function in the gold, where the prompt
    offers several functions: `g` for `g(x) = x^4 - x^2`.
    """
    defined = _DEFINES.match(unboxed(gold))
    if defined is None or len(set(_DEFINES.findall(prompt))) < 2:
        return False
    return re.fullmatch(rf"{defined[1]}(?:\([a-z]\))?", answer.strip()) is not None


_INTEGRAL = re.compile(
    r"(?i)\\i*int(?![a-z])|∫|\b(?:anti-?)?(?:deriv|ableit|int[eé]gr|differenti|primitiv)|stammfunktion"
    r"|積分|积分|적분|интеграл|первообразн"
)
_LOGARITHM = re.compile(r"\\log(?![a-zA-Z])(?!\s*_)|(?<![A-Za-z\\])log(?![A-Za-z_])(?!\s*_)")


def _in_natural_logarithms(prompt: str, gold: str, answer: str) -> str:
    r"""Return an answer to a question of calculus with the logarithms that name no base as natural
    ones, where the gold has only these; else "".

    >>> _in_natural_logarithms("", r"\ln x + C", r"\log x + C")
    '\\ln x + C'
    """
    if "log" not in answer or "ln" not in gold or "log" in gold:
        return ""
    if not (_INTEGRAL.search(prompt) or re.search(r"\+\s*[CcKk]\W*$", gold)):
        return ""
    natural = _LOGARITHM.sub(r"\\ln", answer)
    return "" if natural == answer else natural


_NUMERAL = re.compile(r"(?:\\(?:text|mathrm)\{)?([0-9A-Za-z]+)\}?(?:\s*_\s*\{?(\d{1,2})\}?)?")
_OF_DIGITS = re.compile(r"(?i)\b(?:how many|(?:number|sum|product) of)\b")


def _in_base(prompt: str, gold: str, answer: str) -> bool:
    """Return whether gold and answer are the same digits, of which one names the base that the
    prompt asks for last: `101_2` for `101`.
    """
    pair = [_NUMERAL.fullmatch(clean(text)) for text in (unboxed(gold), answer_alone(answer))]
    wanted = base_asked(prompt)
    if not all(pair) or not wanted or _OF_DIGITS.search(prompt):
        return False
    (digits, base), (given, given_base) = (match.groups() for match in pair if match)
    one_sided = (base is None) != (given_base is None)
    return one_sided and digits.upper() == given.upper() and (base or given_base) == wanted


def _named(prompt: str, answer: str) -> str:
    """Return the value that an answer gives to what the question names, or ""."""
    if said := _beside(prompt, answer) or times_as(prompt, answer):
        return said
    bare = _bare(answer)
    return side_asked(prompt, bare) or in_asked_order(prompt, bare)


def _beside(prompt: str, answer: str) -> str:
    """Return the subject of a sentence whose other words repeat the question, or "".

    `Maria is the tallest` answers `Who is the tallest?` by `Maria`.
    """
    if name := subject_asked(prompt, as_words(answer)):
        return name
    sentence = _SUBJECT.fullmatch(answer.strip(" .*"))
    if sentence is None or sentence[1].lower() in prompt.lower():
        return ""
    asked = set(re.findall(r"\w+", prompt.lower()))
    return sentence[1] if set(re.findall(r"\w+", sentence[2].lower())) <= asked else ""


_SUBJECT = re.compile(r"([A-Z][a-z]+) ((?:is|was|has|won|wins) (?!not\b)[A-Za-z ,]{3,60})")


def _bare(answer: str) -> str:
    """Return the answer without the words and the letter of an option before its value."""
    return _OPTION.sub("", clean(answer_alone(answer)))


def _equal(
    gold: str, answer: str, conventions: Conventions, deep: Deep | None = None
) -> PairDecision:
    """Decide whether an answer says the same as the gold, whatever was asked."""
    gold = unboxed(gold)
    if conventions.locale == "comma":
        answer = points_for_commas(answer)
    task = _TASK.search(gold) is not None
    # Equal text settles most right answers without parsing; a repeated task is not an answer.
    if answer.strip() and gold.strip() == answer.strip() and not task:
        return PairDecision(True, "text", "the same text", trace=[("text", "equal")])
    if deep is None and len(gold) + len(answer) > CALLER_CHARACTERS:
        raise NeedsPool
    cleaned_gold, cleaned_answer = clean(gold), clean(answer_alone(answer))
    cleaned_gold, cleaned_answer = with_quantities(cleaned_gold, cleaned_answer)
    named_gold = with_names(cleaned_gold, bare=True)
    bare = named_gold != cleaned_gold
    cleaned_gold, cleaned_answer = named_gold, with_names(cleaned_answer, bare=bare)
    if _TRUTH.search(cleaned_gold) and (wanted := truths(cleaned_gold)):
        cleaned_gold, cleaned_answer = wanted, truths(cleaned_answer) or cleaned_answer
    if deep is None and len(cleaned_gold) + len(cleaned_answer) > CALLER_CHARACTERS:
        raise NeedsPool
    if "\\" not in cleaned_gold and (words := _IN_WORDS.fullmatch(cleaned_answer)):
        cleaned_answer = words[1].strip()
    # Formulas may be spaced in another way; in words and numbers, spaces count.
    if (cleaned_answer and not task) and (
        unmarked(cleaned_gold) == unmarked(cleaned_answer)
        or (
            not (cleaned_gold + cleaned_answer).isalnum()
            and squeeze(cleaned_gold) == squeeze(cleaned_answer)
        )
    ):
        return PairDecision(True, "text", "the same text", trace=[("text", "equal")])
    if (
        _CHEMICAL.search(cleaned_gold)
        and (gold_formula := formula(cleaned_gold))
        and (answer_formula := formula(cleaned_answer))
    ):
        if same_formula(gold_formula, answer_formula):
            return PairDecision(True, "formula", "the same formula")
        # A single letter is left to the comparison of choices.
        if len(gold_formula) > 1 and ("\\" in cleaned_gold or _COUNTED_ATOMS.search(cleaned_gold)):
            return PairDecision(
                False, "formula", f"the formula {answer_formula} is not {gold_formula}"
            )
    if "s" in cleaned_gold and (shells := configuration(cleaned_gold)):
        same = shells == configuration(cleaned_answer)
        return PairDecision(same, "configuration", "the shells of the atom")
    if conventions.choice_letters:
        choice = choose(cleaned_gold, cleaned_answer)
        if choice.equal is not None:
            return PairDecision(choice.equal, "choice", choice.detail)
        # The letters decide nothing: compare with the text of the gold's option instead.
        if choice.option:
            return _equal(choice.option, answer, conventions, deep)
    cleaned_gold, cleaned_answer = _without_parts(cleaned_gold), _without_parts(cleaned_answer)
    if "(" in cleaned_answer + cleaned_gold and not _OPTION.match(cleaned_gold):
        cleaned_answer = _OPTION.sub("", cleaned_answer)
    return _by_meaning(gold, cleaned_gold, cleaned_answer, conventions, deep)


def _without_parts(text: str) -> str:
    """Return the answers `(a) 5, (b) 7` to the parts of a question as a tuple."""
    labels = _PART.findall(text) if text.count("(") > 1 else []
    if len(labels) < 2:
        return text
    in_order = any(labels == row[: len(labels)] for row in _LABELS)
    # In `f (1) = 3, f (2) = 5` the numbers are no labels.
    if not in_order or (labels[0] == "1" and not text.startswith("(1)")):
        return text
    return f"({_PART.sub(', ', text).strip(' ,')})"


def _by_parts(
    gold: str, answer: str, conventions: Conventions, deep: Deep | None
) -> PairDecision | None:
    """Decide on parts one by one where a part of the gold has several values (`(a) 1, 3; (b) -1`);
    None where it has no such part.
    """
    wanted = _parts(gold)
    several = any(values_of(part) > 1 or _BOTH.search(part) for part in wanted)
    given = _parts(answer) if several else []
    if not given or len(given) != len(wanted):
        return None
    for pair in zip(wanted, given, strict=True):
        decision = decide(*pair, conventions, deep=deep)
        if not decision.equal:
            return decision
    return decision


def _parts(text: str) -> list[str]:
    """Return the parts of a text that begins with the label of one, in the order of their labels;
    empty if no row of labels has just these.
    """
    before, *pieces = _PART.split(unboxed(text))
    said = dict(zip(pieces[::2], pieces[1::2], strict=True))
    rows = (row[: len(said)] for row in _LABELS)
    row = next((row for row in rows if {*row} == {*said}), [])
    is_list = len(said) > 1 and 2 * len(said) == len(pieces) and not before.strip()
    return [said[label].strip(" ,;.$") for label in row] if is_list else []


def _by_meaning(
    gold: str, cleaned_gold: str, cleaned_answer: str, conventions: Conventions, deep: Deep | None
) -> PairDecision:
    meaning = gold_meaning(gold, cleaned_gold)
    if meaning is None:
        return PairDecision(
            False, "text", "the gold is too big to evaluate and the texts differ", undecided=True
        )
    try:
        answer = read_cleaned(cleaned_answer)
    except TooBig as error:
        return PairDecision(False, "limit", f"the answer is too big: {error}")
    except Unreadable as error:
        return PairDecision(False, "unreadable", f"the answer cannot be read: {error}")
    if meaning.op == "opaque" and answer != meaning:
        raise BadGold(
            f"the gold {gold[:80]!r} cannot be read as a formula: only its text equals it"
        )
    plain = answer.op in _WORDS and _CHANGED.search(cleaned_answer) is None
    if (
        plain
        and not _CHANGES.intersection(_BEHIND.findall(cleaned_answer.lower()))
        and meaning.op not in _WORDS
        and not (meaning.op == "ratio" and is_time(answer))
        and (statement := stated(cleaned_answer))
    ):
        with suppress(Unreadable):
            answer = read_cleaned(clean(statement))
    # A new judge for each pair, since the budget of work and the trace belong to the pair.
    judge = Judge(conventions, deep=deep)
    # A gold such as `\approx 3.14` says that its own digits are rounded.
    if _ABOUT.match(gold) and (rounded := written(meaning)) is not None:
        judge.approximate, meaning = True, rounded
    try:
        equal = compare(meaning, answer, judge) or (
            meaning.op == "text" and same_words(meaning, cleaned_answer, judge)
        )
    except RecursionError:
        return PairDecision(False, "limit", "nested too deep to compare")
    detail = "equal" if equal else judge.why_not or "not equal"
    return PairDecision(
        equal, judge.rule or "structure", detail, judge.undecided and not equal, judge.trace
    )


def no_answer(extraction: Extraction) -> Verdict:
    """Return the verdict (reward 0) on a response from which no answer could be extracted."""
    return Verdict.of(
        0.0, f"no answer: {extraction.reason}", metrics={f"rule/no answer ({extraction.rule})": 1.0}
    )


__all__ = ["BadGold", "NeedsPool", "PairDecision", "decide", "no_answer", "read_gold"]
