"""The choice of the answer among all candidates of a response, by a fixed ranking (`RANKING`).

The gold is never looked at, and one candidate is chosen, so that naming more values never raises
the chance of a reward. Every search runs from the end within bounded windows.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from ludus.messages import assistant
from ludus.thoughts import AUTO, apart, marks_of

from ..reading.counting import Spelled, spelled_numbers
from .again import MARKUP, again
from .asides import CONCLUDES, without_asides
from .candidate import MARKS, MAX_ANSWER, Candidate, CandidateKind, Extraction
from .closing import short_text, stressed, whole, worded
from .expressions import called_equation, last_expression, measured
from .marks import all_boxes, joined, recorded
from .picking import picked
from .sentence import DENIAL, closing_sentence
from .stance import Stance, framed, related, stance
from .statements import Statements
from .surface import blanked, clause_before, surface, without_decoration, without_notes

Finder = Callable[[str, Statements], Candidate | None]


class Rank(NamedTuple):
    """A line of the ranking: a title, the rule in words, and the function that finds the
    winner.
    """

    title: str
    wins: str
    """The rule in words: which candidate of this rank wins."""
    find: Finder
    """Returns the winner of this rank in a text from which refused statements were blanked, or
    None.
    """


def _in_text(find: Callable[[str], Candidate | None]) -> Finder:
    return lambda body, _: find(body)


def _result(body: str, statements: Statements) -> Candidate | None:
    """Return the last `the result is ...`, unless more computation follows."""
    claims = (
        seen for seen in reversed(statements.seen) if not seen.ignored and seen.end <= len(body)
    )
    result = next((claim for claim in claims if claim.kind is CandidateKind.RESULT), None)
    behind = DENIAL.sub("", body[result.end :]) if result else ""
    # The first two characters may close the formula of the result itself (`$`, `\)`).
    return None if any(c.isdigit() or c in "$\\" for c in behind[2:]) else result


RANKING: tuple[Rank, ...] = (
    Rank(
        "statement",
        "the last box, answer tag, #### line or announced answer that the writer claims; behind a"
        " box, an announcement counts only if it is another value",
        lambda _, statements: statements.last,
    ),
    Rank("result", "the last 'the result is ...', if nothing is computed after it", _result),
    Rank("whole response", "a short response that is not prose", _in_text(whole)),
    Rank("choice", "the letter that the closing sentence picks", _in_text(picked)),
    Rank("word", "'No, since ...' and 'so the day is Saturday'", _in_text(worded)),
    Rank("emphasis", "the only value in bold in the closing sentence", _in_text(stressed)),
    Rank(
        "last expression",
        "the last formula or number, whichever is later; not one that is denied, nor one behind a"
        " preposition if the closing sentence has another",
        _in_text(last_expression),
    ),
    Rank("short text", "a short response without digits, as it stands", _in_text(short_text)),
)
"""The ranking: the first line that finds a candidate decides."""


_VALUES = frozenset({CandidateKind.EMPHASIS, CandidateKind.FORMULA, CandidateKind.NUMBER})
"""Kinds of values within a sentence, whose words may deny or suppose them."""


class Ranked(NamedTuple):
    """A candidate with a rank (counted from 1) and the reason why the candidate won or lost."""

    rank: int
    candidate: Candidate
    fate: str


_TURN_ENDS = (
    "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "</s>", "<|end_of_text|>",
    "<end_of_turn>", "<|return|>",
)  # fmt: skip


@lru_cache(maxsize=16)
def thoughts_end(response: str, thinking: str = AUTO) -> int:
    """Return the position in a response where its thoughts end and what was said begins."""
    marks = marks_of(thinking)
    if marks is None or marks.mark.search(response) is None:  # as most responses
        return 0
    return len(response) - len(apart(assistant(response), thinking).text)


_NEXT_QUESTION = re.compile(
    r"\n[*_# ]{0,6}(?:Question|Problem|Exercise|Q|Human|User|Frage|Aufgabe|Exercice|Pregunta"
    r"|Domanda|Pergunta|Вопрос|Задача|问题|題目)[*_]{0,2}\s?[::](?!\d)[^\n]+(?:\n[^\n]+){0,6}?"
    r"\n\s*[*_# ]{0,6}"
    r"(?:Answer|Solution|A|Assistant|Antwort|Lösung|Réponse|Solución|Respuesta|Risposta|Soluzione"
    r"|Resposta|Solução|Ответ|Решение|答案|解)[*_]{0,2}\s?[::]"
)
"""Matches a question and its answer that a model makes up behind its own answer."""
_ANSWERED = re.compile(r"(?i)\\boxed\s*\{|####\s*\S|\banswer\s*(?:is\b|:)")


def _this_turn(body: str) -> str:
    """Return the text up to the end of the model's own turn, and to the next question that it makes
    up once it has answered.
    """
    if (
        _NEXT_QUESTION.search(body)
        and (answered := _ANSWERED.search(body))
        and (another := _NEXT_QUESTION.search(body, answered.end()))
    ):
        body = body[: another.start()]
    for mark in _TURN_ENDS if "<" in body else ():
        place = body.find(mark)
        if place > 0 and body[:place].strip():
            body = body[:place]
    return body


def extract(
    response: str,
    *,
    thinking: str = AUTO,
    truncated: bool = False,
    several: bool = False,
    prompt: str = "",
) -> Extraction:
    r"""Extract the answer of a response.

    Args:
        response: what the policy wrote.
        thinking: the marks around thoughts; see `ludus.thoughts`.
        truncated: the response was cut off, so that only a finished statement counts.
        several: the gold has several boxes, so that all boxes of the response are the answer.
        prompt: the question, whose mood tells a hypothesis from an answer.

    >>> extract(r"so $x$ is \\boxed{\\frac{1}{2}}.").text
    '\\\\frac{1}{2}'
    """
    offset = thoughts_end(response, thinking)
    body = without_notes(surface(_this_turn(response[offset:])))
    if not body.strip():
        reason = "nothing follows the thoughts" if offset else "the response is empty"
        return Extraction(None, "empty", offset, offset, reason)
    if not truncated and (repeated := _repeated(body, offset, several=several, prompt=prompt)):
        return repeated
    return _extracted(body, offset, truncated=truncated, several=several, prompt=prompt)


def _repeated(body: str, offset: int, *, several: bool, prompt: str) -> Extraction | None:
    """Return the extraction of a value that a text says again at its end, as a rival of what is
    said there; None where nothing is said again.
    """
    repeated = again(body, prompt)
    if repeated is None:
        return None
    said = _extracted(body[: repeated.cut], offset, several=several, prompt=prompt)
    if not said.text or body[said.end - offset : repeated.cut].strip(MARKUP):
        return None
    if not repeated.instead:
        return replace(said, rivals=(*said.rivals, repeated.value), said=said.text)
    if said.rule in _MARKED:
        return None
    return replace(
        said, text=repeated.value, start=offset + repeated.start, end=offset + len(body.rstrip()),
        rivals=(said.text,) if repeated.worked_out else (),
    )  # fmt: skip


_MARKED = MARKS | {CandidateKind.ANNOUNCED}


def _extracted(
    body: str, offset: int, *, truncated: bool = False, several: bool, prompt: str
) -> Extraction:
    """Extract the answer of a text that begins at `offset` of its response."""
    if (record := recorded(body, prompt)) is not None and not truncated:
        return _extraction(body, offset, record, [])
    statements = Statements(body, truncated=truncated, prompt=prompt)
    if statements.last is not None:
        return _extraction(body, offset, statements.last, statements.rivals, several=several)
    if truncated:
        return Extraction(None, "truncated", offset, offset, "cut off before a marked answer")
    ignored = [candidate for candidate in statements.seen if candidate.ignored]
    for _, candidate in _lower_ranks(body, statements, prompt):
        if not candidate.ignored:
            return _extraction(body, offset, candidate, [])
        ignored.append(candidate)
    if ignored:
        reason = f"the only answer does not count: {ignored[0].ignored}"
        return Extraction(None, "none", offset, offset, reason, refused=True)
    return Extraction(None, "none", offset, offset, "no box, no announced answer, no expression")


def _lower_ranks(
    body: str, statements: Statements, prompt: str = ""
) -> Iterator[tuple[int, Candidate]]:
    """Yield the candidate of each rank below the statements, with the number of the rank."""
    # These ranks search the text itself, so the refused statements are blanked first, and sentences
    # at the end that only check the answer.
    body, numbers = _in_digits(_claimed(body, statements))
    body = without_asides(body, prompt)
    ranks = deque(enumerate(RANKING[1:], start=2))
    while ranks:
        number, rank = ranks.popleft()
        candidate = rank.find(body, statements)
        if candidate is None:
            continue
        if not (candidate.ignored or candidate.void):
            refused = "it is taken back" if statements.retracted(candidate) else ""
            if candidate.kind in _VALUES:
                refused = refused or stance(body, candidate.start, candidate.start, candidate.end)
            void = framed(body, candidate.start, candidate.end)
            candidate = replace(candidate, ignored=refused, void=void)
        yield number, _moved_back(candidate, numbers)
        if candidate.ignored:
            # The writer does not claim this value, so it must not be found again by a lower rank.
            body = blanked(body, [(candidate.said_from, candidate.said_to)])
            if candidate.ignored == Stance.QUOTATION:  # which says nothing of other values
                ranks.appendleft((number, rank))


def _in_digits(body: str) -> tuple[str, list[Spelled]]:
    """Return (the text, the numbers in words that it has in digits now): those of the last
    sentences that conclude, behind `so` or the like, or list several, where no value is in digits,
    and those that are values anywhere.
    """
    end, numbers = len(body), list[Spelled]()
    for _ in range(MAX_SENTENCES):
        start = closing_sentence(body[:end])[0]
        concludes = [match.start() for match in _CLAUSE.finditer(body, start, end)]
        begin = (concludes or [start])[-1]
        said = set(_NUMERALS.findall(body, start, end))  # `a 15-gon, i.e. it has fifteen sides`
        spelt = [
            number
            for number in spelled_numbers(body, start, end)
            if number.digits not in said and not _DERIVED.match(body, number.end)
        ]
        later = [number for number in spelt if number.start >= begin]
        alone = (concludes or len(later) > 1) and not _HAS_VALUE.search(body, begin, end)
        numbers += [n for n in spelt[::-1] if (alone and n in later) or _is_value(body, n)]
        end = len(body[:start].rstrip())
        if not end:
            break
    for number in numbers:
        body = body[: number.start] + number.digits + body[number.end :]
    return body, numbers[::-1]


def _is_value(body: str, number: Spelled) -> bool:
    """Return whether a number in words is a value as one in digits would be: it is no small one, of
    which texts are made (`the two roots`), or it has a unit, or a clause says it of something.
    """
    is_large = number.digits.isdecimal() and (
        int(number.digits) > MAX_SMALL or body.endswith("dozen", number.start, number.end)
    )
    unit = measured(body, number.end) > number.end
    led = _TOLD.search(body, max(0, number.start - 24), number.start)
    stated = is_large or unit or (led and _CLAUSE_ENDS.match(body, number.end))
    # `It ends with twelve zeros`: in words the number counts, in digits it may be the last ones.
    return bool(stated) and not related(clause_before(body, number.start))


MAX_SMALL = 12
"""The largest number that a text may have in words without meaning a value."""
_TOLD = re.compile(
    r"(?i)\b(?:is|are|was|were|equals|equal to|gives?|makes?|gets?|leaves?|has|have|ist|gleich"
    r"|beträgt|vaut|est(?: de)?|égal à|es(?: de)?|igual a|é(?: de)?|è(?: di)?|uguale a"
    r"|равн[аоы]?|равен)\s(?:an? |only |just |exactly )?$"
)
_NUMERALS = re.compile(r"(?<![\w.])\d+(?:/\d+)?(?!\w)")
_CLAUSE_ENDS = re.compile(
    r"[*_]*(?: of (?:the|an?|his|her|their|its|all) [a-z ]+)?[*_]*\s*(?:[.,;!]|$)"
)
_CLAUSE = re.compile(
    rf"(?i)(?<![A-Za-zÀ-ÿА-я])(?:{CONCLUDES.pattern}|e[nm] total\b|in totale\b|всего\b)|[总總]共"
    "|一共|共有|全部で|모두"
)
_DERIVED = re.compile(
    r"-|\s?\(\d|[ *]*(?:[^\W\d_]+ )?(?:out of|(?:in|of) (?:two|three|four|five|six|ten)"
    r"|(?:squared|cubed|tens|hundredths)\b)"
)
"""Words behind a number that make it another one."""
MAX_SENTENCES = 4
"""How many sentences at the end of a text are searched for numbers in words."""
_HAS_VALUE = re.compile(r"[\d$\\=]")


def _moved_back(candidate: Candidate, numbers: list[Spelled]) -> Candidate:
    """Return a candidate with its places in the text that had these numbers in words."""
    start, end = candidate.start, candidate.end
    for number in numbers:
        longer = number.end - number.start - len(number.digits)
        start += longer if start > number.start else 0
        end += longer if end > number.start else 0
    return replace(candidate, start=start, end=end) if numbers else candidate


def _claimed(body: str, statements: Statements) -> str:
    """Return the text without statements that the writer does not claim, so that later ranks cannot
    find those values again.
    """
    spans = [
        (candidate.said_from, min(candidate.end, candidate.said_to))
        for candidate in statements.seen
        if candidate.ignored
    ]
    # A mark that is refused was the closing statement, so that no value before it is the answer.
    marks = [candidate.said_to for candidate in statements.seen if candidate.kind in MARKS]
    if marks:
        spans = [(0, max(marks))]
    return blanked(body, spans) if spans else body


def _extraction(
    body: str, offset: int, winner: Candidate, rivals: list[str], *, several: bool = False
) -> Extraction:
    rule, start, end = str(winner.kind), offset + winner.start, offset + winner.end
    if winner.void:
        return Extraction(None, rule, start, end, winner.void, refused=True)
    text = winner.text
    if several and winner.kind is CandidateKind.BOX:
        # Every box counts here, so no value is left that could be a rival (decision 0304).
        boxes = (box for box in all_boxes(body) if box.end <= winner.said_to)
        text = joined(body, [box for box in boxes if body[box.open : box.close].strip()])
        rule, rivals = "boxes", []
    if winner.kind is CandidateKind.BOX:
        text += _worked_out(text, body[winner.said_to : winner.said_to + 80])
    if not text.isascii():
        text = without_decoration(text)
    if len(text) > MAX_ANSWER:
        reason = f"the answer is longer than {MAX_ANSWER} characters"
        return Extraction(None, rule, start, end, reason)
    return Extraction(
        text, rule, start, end, rivals=tuple(rivals),
        equation=called_equation(body, text, winner.start),
    )  # fmt: skip


_UNWORKED = re.compile(
    r"(?=.*\d\D*[-+*/^!×·\\].*\d|\D*\\sqrt|\d+!)(?!.*(?:times|cdot|[×·*])\s*10\s*\^)"
    r"(?:[-\d\s.()+*/^!{}×·]|\\(?:cdot|times|sqrt|[dt]?frac|[dt]?binom|left|right|[,;!])(?![a-z]))+"
)
_WORKED = re.compile(
    r"\s{0,3}(?:\$|\\[)\]])?\s{0,3}(?:[a-z]{2,12}\s?)?(?:=|,?\s{0,3}(?:i\.\s?e\.|that is|which (?:"
    r"is|makes|equals|gives|comes to)|or simply|namely|das heißt|d\.\s?h\.|c['’]est-à-dire|soit"
    r"|es decir|o sea|ou seja|cioè|то есть|即)),?\s{0,3}(?:\$|\\\()?\s{0,3}"
    r"(?:(?P<value>\\[dt]?frac\{\d+\}\{\d+\}|-?\d{1,3}(?:(?:,|\\,|\{,\}| )\d{3})+(?!\d)|-?\d+)"
    r"|(?P<words>[a-z]{2,12}(?:[- ][a-z]{2,12}){0,6}))"
    r"(?=\s{0,3}(?:\$|\\[)\]])?\s{0,3}(?:[;!)\n]|\.(?!\d)|,\s|$))"
)
r"""What follows a box of numbers that the writer works out: `\boxed{9 \cdot 8}, i.e. 72`. A
number in scientific notation is worked out.
"""


def _worked_out(text: str, behind: str) -> str:
    r"""Return ` = value` where a box with numbers to work out is followed by what they come to, as
    in `\boxed{9 \cdot 8}, i.e. 72`, else "". The chain is then checked like any other.
    """
    if not _UNWORKED.fullmatch(text) or not (worked := _WORKED.match(behind)):
        return ""
    value = worked["value"] or "".join(
        number.digits
        for number in spelled_numbers(worked["words"], alone=True)
        if number.end - number.start == len(worked["words"])
    )
    if not value.startswith("\\"):
        value = re.sub(r"\\,|[{}, ]", "", value)
    return f" = {value}" if value else ""


def survey(
    response: str, *, thinking: str = AUTO, truncated: bool = False, prompt: str = ""
) -> list[Ranked]:
    """Return every candidate with rank and fate in text order, for explanations.

    `start` is an offset in the response; the other places stay offsets in the searched text.
    """
    offset = thoughts_end(response, thinking)
    body = without_notes(surface(_this_turn(response[offset:])))
    if not body.strip():
        return []
    repeat = None if truncated else _repeated(body, offset, several=False, prompt=prompt)
    repeated = again(body, prompt) if repeat else None
    body = body[: repeated.cut] if repeated else body
    statements = Statements(body, truncated=truncated, prompt=prompt)
    ranked = [(1, seen) for seen in statements.seen if seen.kind is not CandidateKind.RESULT]
    if statements.last is not None and statements.last not in statements.seen:
        # `last` is a correction, or a copy of a seen statement with a reason why it is void. The
        # copy takes the place of the original, which has the same start.
        ranked = [pair for pair in ranked if pair[1].start != statements.last.start]
        ranked.append((1, statements.last))
    ranked += _lower_ranks(body, statements, prompt)
    winner = statements.last
    if winner is None and not truncated:
        winner = next((other for rank, other in ranked if rank > 1 and not other.ignored), None)
    if repeat and repeated and repeated.instead:
        place = repeated.start, repeated.start + len(repeated.value)
        kind = CandidateKind(repeat.rule)
        winner = Candidate(kind, repeated.value, *place, *place)
        ranked.append((len(RANKING), winner))
    ranked.sort(key=lambda pair: (pair[1].start, pair[0]))
    fates = [_fate(rank, candidate, winner) for rank, candidate in ranked]
    return [
        Ranked(rank, replace(candidate, start=offset + candidate.start), fate)
        for (rank, candidate), fate in zip(ranked, fates, strict=True)
    ]


def _fate(rank: int, candidate: Candidate, winner: Candidate | None) -> str:
    if candidate is winner:
        return f"wins, but gives no usable answer: {candidate.void}" if candidate.void else "wins"
    if candidate.ignored:
        return f"does not count: {candidate.ignored}"
    if winner is None:
        return "does not count: the response was cut off"
    return "a later statement wins" if rank == 1 else "a higher rank wins"
