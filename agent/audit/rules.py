"""Rules that read the answer off the text of a task, learned from the answers on other tasks.

A **rule** finds the pieces of one kind (`pieces.py`), chooses one of them, and reads it: the last
token decoded from base64, the longest choice, a list in order of the alphabet. No rule understands
a task. All of `RULES` are tried on the lessons, and the best one is played.

If the answer is no piece of the task, it may be given away by a sign without a meaning (a
**giveaway**): a word that stands only in tasks with one answer, the length of a name, or the number
of an option that is the same as a digit of the task.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import itertools
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from itertools import repeat
from statistics import median
from urllib.parse import unquote

from ludus.messages import ToolCall, as_messages, assistant

from .attackers import (
    ANSWERED,
    MOST_DIGITS,
    SUBMITS,
    WORD,
    Action,
    AnswerFrame,
    Scene,
    number_of,
    plain_of,
    properties_of,
)
from .choosers import CHOOSERS, RANKED, TURNED, Choose, at_place
from .pieces import FINDERS, Find, compared, labels, listed_lines, options

MOST_TRIED, MOST_COMPARED = 24, 40
"""Most answers that a tool is asked for, one a turn and all in one turn."""
LEAST_LESSONS, LEAST_SHARE = 6, 0.6
"""Fewest lessons of which a rule is learned, and the share of them that a rule must get right."""
PLACES = (*range(10), *range(-10, 0))
"""Positions from either end at which a token, a number or a mark is looked for."""
MOST_ANSWERS, MOST_USUAL, GIVEN_AWAY, MOST_WORDS = 6, 0.7, 0.85, 5
"""Most different answers that words may give away, the largest share of one answer, the share of
lessons that the words have to answer rightly, and most words.
"""
BEFORE, MOST_AROUND = (3, 6, 12), 24
"""How many characters before an answer may be the same in all texts, and most pairs of texts around
answers that are tried.
"""
MOST_COLUMNS, FEWEST_ROWS = 9, 3
"""Most pieces of a row of which one may tell the right row; in so few rows, an odd one says
nothing.
"""
SUPERLATIVE = r"\b(?:(?!test|rest|inter|for)\w{2,}[^aeu\s]est|least|most|best|maxim\w+|minim\w+)\b"
"""A pattern of words that ask for the row with the most or least of something."""
_TELLING = re.compile(r"[a-z]+(?:'[a-z]+)?")


class RuleKind(StrEnum):
    """What a rule answers."""

    PIECE = "piece"
    """A piece of the task, by its place."""
    RANK = "rank"
    """A piece of the task, by its size or frequency."""
    GIVEAWAY = "giveaway"
    """What a sign without a meaning gives away."""

    @classmethod
    def of(cls, name: str) -> RuleKind:
        """Return the kind of one of `RULES`."""
        if "as it is" in name:
            return cls.PIECE
        return cls.RANK if any(choice in name for choice in RANKED) else cls.GIVEAWAY


Rule = Callable[[str], str]
"""A function from the text of a task to an answer; "" if the rule does not apply."""
Way = tuple[str, Rule, tuple[str, ...]]
"""A name, a rule, and beginnings of words: a task that has one asks for just that, and then the
rule is no finding.
"""


def _decoded(text: str) -> str:
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _from_hex(text: str) -> str:
    try:
        return bytes.fromhex(text.removeprefix("0x")).decode()
    except ValueError:
        return ""


def _part(text: str, place: int) -> str:
    parts = re.split(r"[-_:=/|.\W]+", text.strip("[](){}<>"))
    return parts[place] if len(parts) > 1 and -len(parts) <= place < len(parts) else ""


def _turned(text: str, place: int) -> str:
    """Return a part backwards, in capitals: identifiers are often written small."""
    return _part(text, place)[::-1].upper()


PARTS = (0, 1, 2, -1, -2, -3)
WAYS: tuple[Way, ...] = (
    ("as it is", lambda text: text, ()),
    ("backwards", lambda text: text[::-1], TURNED),
    ("base64", _decoded, ("base64", "decod", "decrypt")),
    ("hexadecimal", _from_hex, ("hex", "decod", "decrypt")),
    ("rot13", lambda text: codecs.encode(text, "rot13"), ("rot13", "cipher", "caesar", "decod")),
    ("percent signs", unquote, ("decod", "url")),
    *((f"part {place} of it", partial(_part, place=place), ()) for place in PARTS),
    *(
        (f"part {place} of it, backwards", partial(_turned, place=place), TURNED)
        for place in (0, -1)
    ),
    ("backwards in capitals", lambda text: text[::-1].upper(), TURNED),
)


def _in_column(place: int, choose: Choose, cell: int, text: str) -> str:
    """Return a cell of the only row whose value at a place is chosen among all rows."""
    rows = [row for row in compared(text) if len(row) > max(place, cell)]
    column = [row[place] for row in rows]
    value = choose(column) if len({*column}) > 2 else ""
    return rows[column.index(value)][cell] if column.count(value) == 1 else ""


def _behind(text: str) -> str:
    return re.split(r"[:?=]\s", text.strip())[-1].strip(" .")


def _said(text: str) -> str:
    return re.split(r"\b(?:is|are|was)\s", text.strip())[-1].strip(" .")


def _rule(find: Find, choose: Choose, read: Rule) -> Rule:
    return lambda text: read(choose(find(text)))


def _rules() -> list[Way]:
    rules = [
        (f"{kind} {place} {name}", _rule(FINDERS[kind], at_place(place), read), words)
        for kind in ("token", "number", "mark")
        for place in PLACES
        for name, read, words in WAYS
    ]
    rules.append(("the whole text as it is", str.strip, ()))
    rules.append(("what stands behind its last colon as it is", _behind, ()))
    rules.append(("what stands behind its last verb as it is", _said, ()))
    ends = FINDERS["end of line"]
    rules += [(f"end of line {n} as it is", _rule(ends, at_place(n), str), ()) for n in (0, 1, -1)]
    for kind, find in FINDERS.items():
        # Of a choice the letter is the answer.
        read = partial(_part, place=0) if kind == "choice" else str
        rules += [
            (f"the {name} {kind}", _rule(find, choose, read), words)
            for name, choose, words in CHOOSERS
        ]
    rules += [
        (f"cell {cell} of the row with the {name} at {place}", rule, (SUPERLATIVE,))
        for name, choose, _ in CHOOSERS[:7]
        for place, cell in itertools.product(range(MOST_COLUMNS), (0, 1))
        if place != cell
        for rule in [partial(_in_column, place, choose, cell)]
    ]
    return rules


RULES = _rules()
COUNTS: dict[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "letters": len,
    "lines": lambda text: len(text.splitlines()),
}


def learned_rule(scene: Scene, kind: RuleKind) -> tuple[str, Rule] | None:
    """Return the name of the rule that gives the expert's answer on most lessons, and the rule;
    None if no rule is right often enough, or if the task asks for just that.

    Args:
        scene: what an attacker knows.
        kind: the kind of the rule.
    """
    frame = AnswerFrame.of(scene.lessons, scene.briefing)
    known = [
        (lesson.opening, frame.core(lesson.actions[-1]))
        for lesson in scene.lessons
        if lesson.actions
    ]
    return rule_from(known, f"{scene.prompt}\n{scene.opening}", frame, kind)


def rule_from(
    known: Sequence[tuple[str, str]], instructions: str, frame: AnswerFrame, kind: RuleKind
) -> tuple[str, Rule] | None:
    """Return the name of the rule that gives most of the answers from their texts, and the rule;
    None if no rule is right often enough, or if all answers are the same.

    Args:
        known: texts with their answers.
        instructions: what the policy is told; a rule that they ask for is left out.
        frame: what the answers have in common; a rule need not give this.
        kind: the kind of the rule.
    """
    # One answer for all is the attacker `constant`'s.
    if len(known) < LEAST_LESSONS or len({answer for _, answer in known}) < 2:
        return None
    rule = _learned(tuple(known), instructions.casefold(), frame, kind)
    return rule and (rule[0], lambda text: frame.core(rule[1](text)))


@lru_cache(maxsize=16)
def _fitting(known: tuple[tuple[str, str], ...], frame: AnswerFrame) -> list[Way]:
    """Return the rules that are right on enough texts, the best first. The result is kept, since
    each task needs the same.
    """
    plain = [(text, plain_of(answer)) for text, answer in known]

    def right(way: Way) -> int:
        return sum(plain_of(frame.core(way[1](text))) == answer for text, answer in plain)

    counts = [(right(way), way) for way in RULES if len({answer for _, answer in known}) > 2]
    fitting = [pair for pair in counts if pair[0] >= LEAST_SHARE * len(known)]
    return [way for _, way in sorted(fitting, key=lambda pair: -pair[0])]


def _learned(
    known: tuple[tuple[str, str], ...], instructions: str, frame: AnswerFrame, kind: RuleKind
) -> tuple[str, Rule] | None:
    pieces = (RuleKind.PIECE, RuleKind.RANK)
    if kind not in pieces and any(_learned(known, "", frame, piece) for piece in pieces):
        return None  # where a piece is the answer, asked for or not, nothing gives it away
    for name, rule, words in _fitting(known, frame):
        if RuleKind.of(name) is kind and not any(
            re.search(rf"\b{word}", instructions) for word in words
        ):
            return name, rule
    if kind in pieces:
        return _between(known) if kind is RuleKind.PIECE else None
    return (
        _odd_row(known, instructions)
        or _counted(known, instructions)
        or _giveaways(known)
        or _placed(known, instructions, frame)
        or _looked_up(known, instructions)
        or _keyed(known, instructions)
    )


def _between(known: Sequence[tuple[str, str]]) -> tuple[str, Rule] | None:
    """Return the rule that the answer stands between the same signs, first or last in the text
    (Kushmerick, "Wrapper induction: efficiency and expressiveness", 2000).
    """

    def between(left: str, right: str, place: int, text: str) -> str:
        parts = [part.partition(right) for part in f"{text}\n".split(left)[1:]]
        heads = [head for head, sign, _ in parts if sign]
        return heads[place] if heads else ""

    around = Counter[tuple[str, str]]()
    for text, answer in known:
        for match in re.finditer(re.escape(answer), text) if answer else ():
            ends = f"{text}\n"[match.end() :]
            starts = {text[: match.start()][-before:] for before in BEFORE}
            around.update((start, ends[:after]) for start in starts - {""} for after in (1, 2))
    least, best = LEAST_SHARE * len(known), dict[str, tuple[int, Rule]]()
    for (left, right), times in around.most_common(MOST_AROUND):
        for place in (0, -1) if times >= least else ():
            rule = partial(between, left, right, place)
            count = sum(plain_of(rule(text)) == plain_of(answer) for text, answer in known)
            best[f"what stands between {left!r} and {right!r} as it is"] = count, rule
    name = max(best, key=lambda name: best[name][0], default="")
    return (name, best[name][1]) if name and best[name][0] >= least else None


def _odd_row(known: Sequence[tuple[str, str]], instructions: str) -> tuple[str, Rule] | None:
    """Return the rule that the answer stands in the only row with another word at a position where
    all other rows have the same one; the prompt and the task must not name that word.
    """

    def row_of(place: int, cell: int, text: str) -> tuple[str, ...]:
        rows = [row for row in compared(text) if len(row) > max(place, cell)]
        kinds = Counter(row[place] for row in rows)
        alone = [value for value, times in kinds.items() if times == 1]
        is_odd = len(alone) == 1 and len(kinds) == 2 and len(rows) > FEWEST_ROWS
        return next((row for row in rows if is_odd and row[place] == alone[0]), ())

    def cell_of(place: int, cell: int, text: str) -> str:
        row = row_of(place, cell, text)
        return row[cell] if row else ""

    words = {*WORD.findall(instructions)}
    for place, cell in itertools.permutations(range(MOST_COLUMNS), 2):
        rule = partial(cell_of, place, cell)
        right = [text for text, answer in known if plain_of(rule(text)) == plain_of(answer)]
        signs = {row_of(place, cell, text)[place].casefold() for text in right if rule(text)}
        if len(right) >= LEAST_SHARE * len(known) and signs.isdisjoint(words):
            return f"cell {cell} of the only row with another word at {place}", rule
    return None


def _counted(known: Sequence[tuple[str, str]], instructions: str) -> tuple[str, Rule] | None:
    """Return the rule that the answer is the number of words, letters or lines plus a constant."""
    if "how many" in instructions or "count" in instructions or "number of" in instructions:
        return None
    for name, count in COUNTS.items():
        numbers = [(text, answer) for text, answer in known if answer.isdecimal()]
        offsets = [_whole(answer) - count(text) for text, answer in numbers]
        usual = max(set(offsets), key=offsets.count, default=0)
        if offsets.count(usual) >= LEAST_SHARE * len(known):
            return f"the number of {name}", lambda text: str(count(text) + usual)  # noqa: B023
    return None


def _features() -> dict[str, Callable[[str], Hashable]]:
    """Return properties of a task's text that say nothing of its meaning."""
    features: dict[str, Callable[[str], Hashable]] = dict(COUNTS)
    for place in PLACES:
        token = _rule(FINDERS["token"], at_place(place), str)
        number = _rule(FINDERS["number"], at_place(place), str)
        features[f"the length of token {place}"] = partial(lambda of, text: len(of(text)), token)
        features[f"the end of token {place}"] = partial(lambda of, text: of(text)[-1:], token)
        features[f"the first digit of number {place}"] = partial(_first_digit, number)
        for base in range(2, 8):
            features[f"number {place} modulo {base}"] = partial(_remainder, number, base)
    return features


def _whole(number: str) -> int:
    """Return the whole part of a number; a long number keeps its last digits."""
    return int(number.partition(".")[0][-MOST_DIGITS:] or "0")


def _first_digit(number: Rule, text: str) -> Hashable:
    return number(text).lstrip("-")[:1]


def _remainder(number: Rule, base: int, text: str) -> Hashable:
    return _whole(number(text) or "0") % base


FEATURES = _features()
MEANT: dict[str, tuple[str, ...]] = {
    "modulo": ("odd", "even", "parity", "multipl", "divis", "remainder", "modul", "digit"),
    "digit": ("digit", "number"),
    "length": ("length", "long", "short", "letter", "character"),
    "end": ("end", "last", "letter", "character"),
    "words": ("words", "how many", "length", "long", "short"),
    "letters": ("letters", "character", "length", "long", "short"),
    "lines": ("lines", "how many"),
}
"""From a part of the names of features to words by which a task asks for that feature."""
ASKED_FOR = (
    *("odd", "even", "parity", "multipl", "divis", "remainder", "modul", "digit", "letter"),
    *("length", "long", "short", "character", "words", "lines", "ends with"),
)
"""Words by which a task asks for a number of its text, so that a place read off one is no finding.
"""


def _looked_up(known: Sequence[tuple[str, str]], instructions: str) -> tuple[str, Rule] | None:
    """Return the rule that tasks with the same feature have the same answer. Each lesson is
    answered by the others that have its feature. None for answers of many words, which are no
    labels.
    """
    if median(len(WORD.findall(answer)) for _, answer in known) > MOST_LABEL_WORDS:
        return None
    read: Rule = str
    if are_labels := _are_labels(known):
        read = _stem  # of a text with ever new options, what stands before them is no option
        known = [(read(text), answer) for text, answer in known]
    usual = Counter(answer for _, answer in known).most_common(1)[0][1]
    least = max(LEAST_SHARE * len(known), usual + len(known) / 4)
    for name, feature in FEATURES.items():
        asked = next((words for sign, words in MEANT.items() if sign in name), ())
        if not are_labels and any(word in instructions for word in asked):
            continue  # that is the task
        table: dict[Hashable, Counter[str]] = {}
        for text, answer in known:
            table.setdefault(feature(text), Counter())[answer] += 1
        right = sum(
            times
            for counts in table.values()
            for answer, times in counts.items()
            # Of answers that are never given twice, no other lesson tells one.
            if times > 1 and (counts - Counter([answer])).most_common(1)[0][0] == answer
        )
        if right >= least:
            best = {key: counts.most_common(1)[0][0] for key, counts in table.items()}
            return f"what {name} tells", lambda text: best.get(feature(read(text)), "")  # noqa: B023
    return None


def _are_labels(known: Sequence[tuple[str, str]]) -> bool:
    """Whether answers are letters or numbers of options, which differ from task to task."""
    offered = {tuple(listed_lines(text)) for text, _ in known}
    is_short = all(len(answer) == 1 for _, answer in known)
    return is_short and 2 * len(offered) > len(known) and all(len(row) > 2 for row in offered)


def _stem(text: str) -> str:
    """Return what stands before the options of a task."""
    row = next((line for line in text.splitlines() if listed_lines(line)), text)
    return text[: text.index(row)] if row != text else text


def _keyed(known: Sequence[tuple[str, str]], instructions: str) -> tuple[str, Rule] | None:
    """Return the rule that the key of each line of a task gives the answer for that line: in a list
    of numbered tickets, the number of a ticket and not its text.
    """
    pairs, places = list[tuple[str, str]](), Counter[int]()
    for text, answer in known:
        lines = [WORD.findall(line) for line in text.splitlines()]
        for key, _, label in ANSWERED.findall(answer):
            of = [words.index(key) for words in lines if key in words]
            places.update(of)
            pairs += [(key, label)] * bool(of)
    rule = _looked_up(pairs, instructions) if len(pairs) > 2 * len(known) else None
    if rule is None:
        return None
    (place, _), *_ = places.most_common(1)
    joint = ANSWERED.findall(known[0][1])[0][1]

    def answered(text: str) -> str:
        lines = [WORD.findall(line) for line in text.splitlines()]
        keys = [words[place] for words in lines if len(words) > place]
        return "\n".join(f"{key}{joint}{rule[1](key)}" for key in keys)

    return f"for the key of each line, {rule[0]}", answered


def _numbers_of(text: str) -> dict[str, int]:
    """Return numbers of a text that say nothing of its meaning, by name: lengths, the position of
    letters in the alphabet, its numbers and their digits.
    """
    tokens, numbers = FINDERS["token"](text), FINDERS["number"](text)
    figures = {name: count(text) for name, count in COUNTS.items()}
    for place in PLACES:
        if -len(tokens) <= place < len(tokens):
            token = tokens[place].strip(".:")
            figures[f"length of token {place}"] = len(token)
            figures[f"first letter of token {place}"] = ord(token[:1].lower() or "a") - ord("a")
        if -len(numbers) <= place < len(numbers):
            digits = [int(digit) for digit in numbers[place] if digit.isdecimal()]
            figures[f"number {place}"] = _whole(numbers[place])
            figures[f"first digit of number {place}"] = digits[0]
            figures[f"last digit of number {place}"] = digits[-1]
            figures[f"digit sum of number {place}"] = sum(digits)
    return figures


def _placed(
    known: Sequence[tuple[str, str]], instructions: str, frame: AnswerFrame
) -> tuple[str, Rule] | None:
    """Return the rule that a number of the text, as it is or with a constant added, is the place of
    the answer among the options, as shown or sorted. After the last option the first one follows.
    """
    if any(word in instructions for word in ASKED_FOR):
        return None
    best: tuple[float, str, Rule] | None = None
    for offers in _OFFERS:
        shifts = dict[str, Counter[int]]()
        places = Counter[int]()
        for text, answer in known:
            offered = [frame.core(option) for option in offers(text)]
            if answer in offered:
                place = offered.index(answer)
                places[place] += 1
                for name, number in _numbers_of(text).items():
                    shifts.setdefault(name, Counter())[(place - number) % len(offered)] += 1
        usual = max(places.values(), default=0)
        least = max(LEAST_SHARE * len(known), usual + len(known) / 4)
        for name, counts in shifts.items():
            (shift, right), *_ = counts.most_common(1)
            if right >= least and (best is None or right > best[0]):
                best = right, f"the option by the {name}", partial(_option_at, offers, name, shift)
    return best and (best[1], best[2])


_OFFERS: tuple[Find, ...] = (
    options,
    lambda text: sorted(options(text)),
    FINDERS["leading word"],
    lambda text: list(string.ascii_uppercase[: len(options(text))]),
    labels,
)
"""What may be offered: options as they are shown, sorted, by their first words or their letters;
or what stands before the colon of each line.
"""


def _option_at(offers: Find, name: str, shift: int, text: str) -> str:
    offered = offers(text)
    return offered[(_numbers_of(text).get(name, 0) + shift) % len(offered)] if offered else ""


def _giveaways(known: Sequence[tuple[str, str]]) -> tuple[str, Rule] | None:
    """Return the rule that a few words tell the answer: each word stands only in tasks with one
    answer, and tasks without any of the words have the answer that is usual among them. Each lesson
    is answered by the rule of the other lessons, and a share of `GIVEN_AWAY` has to be right.
    """
    answers = Counter(answer for _, answer in known)
    if len(answers) > MOST_ANSWERS or answers.most_common(1)[0][1] > MOST_USUAL * len(known):
        return None
    right = 0
    for n, (text, answer) in enumerate(known):
        rule = _told_by([*known[:n], *known[n + 1 :]])[1]
        right += rule(text) == answer
    if right < GIVEN_AWAY * len(known):
        return None
    words, rule = _told_by(known)
    return f"the answer that goes with the words {', '.join(words)}", rule


def _told_by(known: Sequence[tuple[str, str]]) -> tuple[list[str], Rule]:
    """Return the words that give answers away, greedily the most telling first, and their rule."""
    remaining, telling = list(known), dict[str, str]()
    while len(telling) < MOST_WORDS and len({answer for _, answer in remaining}) > 1:
        seen = Counter(
            (w, a) for text, a in remaining for w in set(_TELLING.findall(text.casefold()))
        )
        totals = Counter[str]()
        for (word, _), times in seen.items():
            totals[word] += times
        alone = [(n, word, answer) for (word, answer), n in seen.items() if n == totals[word] > 1]
        if not alone:
            break
        _, word, answer = max(alone)
        telling[word] = answer
        remaining = [
            (text, a) for text, a in remaining if word not in _TELLING.findall(text.casefold())
        ]
    usual = Counter(answer for _, answer in remaining or known).most_common(1)[0][0]

    def rule(text: str) -> str:
        words = set(_TELLING.findall(text.casefold()))
        return next((answer for word, answer in telling.items() if word in words), usual)

    return list(telling), rule


def tries_all(scene: Scene) -> Iterator[Action]:
    """Ask a tool about each possible answer, in turn or all in one turn, and give the answer with
    the only different reply. A tool of two arguments compares all answers with the last one.
    """
    shown = [*dict.fromkeys(options(scene.opening))]
    offered = [*dict.fromkeys([*shown, *scene.answers()])]
    for tool in scene.briefing.tools:
        schemas = list(properties_of(tool).items())
        if not 1 <= len(schemas) <= 2 or SUBMITS.search(tool.name):
            continue
        kinds = [schema.get("type") for _, schema in schemas]
        is_number = kinds[0] in ("integer", "number")
        values = [*map(str, range(MOST_TRIED))] if is_number else offered[:MOST_TRIED]
        *tried, last = shown[:MOST_COMPARED] or [""] if schemas[1:] else [*values, ""]
        calls = list[ToolCall]()
        for n, value in enumerate(tried):
            row = [number_of(each) if is_number else each for each in (value, last)]
            given = {
                name: [each] if kind == "array" else each
                for (name, _), kind, each in zip(schemas, kinds, row, strict=False)
            }
            calls.append(ToolCall(name=tool.name, arguments=given, id=f"call_{n}"))
        replies = dict[str, list[str]]()
        if schemas[1:]:
            yield assistant("", calls)
            texts = [message.text for message in as_messages(scene.episode.seen[-1][0])]
        else:
            texts = []
            for call in calls:
                yield assistant("", [call])
                texts.append(scene.shown)
        for value, reply in zip(tried, texts, strict=False):
            replies.setdefault(reply.replace(value, "#"), []).append(value)
        alone = [values[0] for values in replies.values() if len(values) == 1]
        if len(alone) == 1 and len(replies) == 2:
            yield from repeat(scene.answer(alone[0]))
        if schemas[1:] and len(replies) == 1 and len(texts) == len(tried):
            yield from repeat(scene.answer(last))
    yield from repeat(scene.answer("nothing"))


def plays_rule(kind: RuleKind, scene: Scene) -> Iterator[Action]:
    """Answer by the rule that was learned from the openings of tasks. Without one, answer each turn
    by a rule that was learned from single turns, for `RuleKind.RANK` alone.
    """
    if learned := learned_rule(scene, kind):
        yield from repeat(scene.answer(learned[1](scene.opening)))
    # What a state says of the next move is the task itself, but not that an option is the median.
    learned = _rule_of_turns(scene, kind) if kind is RuleKind.RANK else None
    while True:
        yield scene.answer(learned[1](scene.shown) if learned else "nothing")


MOST_LABEL_WORDS = 4
"""Most words of an answer that may be a label."""
MOST_TURNS, MOST_PAIRS = 3, 48
"""Most turns of one lesson, and of all lessons, from which a rule is learned."""


def _rule_of_turns(scene: Scene, kind: RuleKind) -> tuple[str, Rule] | None:
    frame = AnswerFrame.of(scene.lessons, scene.briefing)
    known = [
        (text, frame.core(action))
        for lesson in scene.lessons
        if len(lesson.actions) > 1
        for text, action in zip(
            [lesson.opening, *lesson.replies], lesson.actions[:MOST_TURNS], strict=False
        )
    ][:MOST_PAIRS]
    return rule_from(known, f"{scene.prompt}\n{scene.opening}", frame, kind)
