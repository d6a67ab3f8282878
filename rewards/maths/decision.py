"""From a gold and a response to a verdict: extract, read, compare; what is cheap is decided here
and now.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from ludus.verdict import Verdict

from .comparing.compare import matches
from .comparing.wording import same_words
from .conventions import Conventions
from .extracting.excerpt import Extraction
from .extracting.sentences import stated
from .proving.judge import Deep, Judge, NeedsPool
from .reading.nodes import Node, TooBig, Unreadable
from .reading.notation import as_words, points_for_commas, squeeze
from .reading.reader import MAX_CHARACTERS, clean, read_cleaned

_BOXED_GOLD = re.compile(r"\\boxed\s*\{")
_LABEL = re.compile(
    r"^[\s*]*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?"
    r"(?:answer|option|choice)\**\s*(?:is\s*:?|:|=)\s*(?:option\s+|choice\s+)?",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"^[(\s]*[A-J](?:[\s,()&]|AND)*(?:[A-J](?:[\s,()&]|AND)*){1,5}$")
_CHOICE_GOLD = re.compile(r"^[\s(]*([A-J])[\s).:]*$")
_CHOICE_ANSWER = re.compile(
    r"^(?:option|choice|answer)?\s*\(?([A-Ja-j])(?:\)|\s*[.:](?=\s|$)|\s*$|\)?\s*[.:])",
    re.IGNORECASE,
)


CALLER_CHARACTERS = 240
"""Gold and answer together, beyond which they are read in the pool; reading takes about 3 us a
character."""


GOLDS = 1024
"""Golds whose reading is remembered (golds only: never an answer or a pair)."""


@dataclass(slots=True)
class Decision:
    """How one pair was decided."""

    equal: bool
    rule: str
    detail: str
    undecided: bool = False
    trace: list[tuple[str, str]] = field(default_factory=list)

    def verdict(self, *, pooled: bool = False) -> Verdict:
        """The decision as a verdict."""
        metrics = {f"rule/{self.rule}": 1.0}
        if self.undecided:
            metrics["undecided"] = 1.0
        if pooled:
            metrics["pooled"] = 1.0
        return Verdict.of(float(self.equal), self.detail, metrics=metrics)


class BadGold(ValueError):
    """The gold cannot be read; the message says why."""


def read_gold(gold: str) -> tuple[str, Node | None]:
    """(text, meaning) of a gold; the meaning is None when it is too big to read.

    Raises:
        BadGold: it cannot be read at all.
    """
    source = _unboxed(gold)
    return source, gold_meaning(gold, clean(source))


def gold_meaning(gold: str, cleaned: str) -> Node | None:
    """What a cleaned gold means, None if it is too big to read: then only its text counts.

    Raises:
        BadGold: it cannot be read at all.
    """
    meaning = _read_gold(cleaned)
    if isinstance(meaning, str):
        raise BadGold(f"the gold {gold[:80]!r} cannot be read: {meaning}")
    if meaning is not None and meaning.op == "text" and gold.count("{") != gold.count("}"):
        raise BadGold(f"the gold {gold[:80]!r} cannot be read: its braces do not balance")
    return meaning


@lru_cache(maxsize=GOLDS)
def _read_gold(cleaned: str) -> Node | str | None:
    """The meaning of a gold, or why it has none. A group of rollouts shares its gold."""
    try:
        return read_cleaned(cleaned) if len(cleaned) <= MAX_CHARACTERS else None
    except TooBig:
        return None
    except Unreadable as error:
        return str(error)


def _unboxed(gold: str) -> str:
    """A gold given as a whole solution line: its box."""
    found = list(_BOXED_GOLD.finditer(gold))
    if not found:
        return gold
    depth, start = 0, found[-1].end()
    for place in range(start - 1, len(gold)):
        depth += {"{": 1, "}": -1}.get(gold[place], 0)
        if depth == 0:
            return gold[start:place]
    return gold


def decide(
    gold: str, answer: str, conventions: Conventions, *, deep: Deep | None = None
) -> Decision:
    """Whether the extracted `answer` says what `gold` says.

    Raises:
        BadGold: the gold cannot be read.
        NeedsPool: cheap means leave it open and there is no `deep`.
    """
    gold = _unboxed(gold)
    if conventions.locale == "comma":
        answer = points_for_commas(answer)
    if answer.strip() and gold.strip() == answer.strip():
        return Decision(True, "text", "the same text", trace=[("text", "equal")])
    if deep is None and len(gold) + len(answer) > CALLER_CHARACTERS:
        raise NeedsPool
    wanted, said = clean(gold), clean(_LABEL.sub("", answer))
    if deep is None and len(wanted) + len(said) > CALLER_CHARACTERS:
        raise NeedsPool
    if said and _same_writing(wanted, said):
        return Decision(True, "text", "the same text", trace=[("text", "equal")])
    choice = _choice(wanted, said, conventions)
    return choice or _by_meaning(gold, wanted, said, conventions, deep)


def _same_writing(wanted: str, said: str) -> bool:
    if wanted == said:
        return True
    plain = (wanted + said).isalnum()
    return not plain and squeeze(wanted) == squeeze(said)


def _by_meaning(
    gold: str, wanted: str, said: str, conventions: Conventions, deep: Deep | None
) -> Decision:
    meaning = gold_meaning(gold, wanted)
    if meaning is None:
        return Decision(
            False, "text", "the gold is too big to evaluate and the texts differ", undecided=True
        )
    try:
        answer = read_cleaned(said)
    except TooBig as error:
        return Decision(False, "limit", f"the answer is too big: {error}")
    except Unreadable as error:
        return Decision(False, "unreadable", f"the answer cannot be read: {error}")
    if answer.op == "text" and meaning.op != "text" and (statement := stated(said)):
        with suppress(Unreadable):
            answer = read_cleaned(clean(statement))
    judge = Judge(conventions, deep=deep)
    try:
        equal = matches(meaning, answer, judge) or (
            meaning.op == "text" and same_words(meaning, said, judge)
        )
    except RecursionError:
        return Decision(False, "limit", "nested too deep to compare")
    detail = "equal" if equal else judge.why_not or "not equal"
    return Decision(
        equal, judge.rule or "structure", detail, judge.undecided and not equal, judge.trace
    )


def _choice(gold: str, answer: str, conventions: Conventions) -> Decision | None:
    """Multiple choice: the gold is one letter and the answer is one too, perhaps with its text."""
    if not conventions.choice_letters or len(gold) > 60 or gold[-1:].isdigit():
        return None
    words, said = as_words(gold).upper(), as_words(answer).upper()
    if _LETTERS.match(words) and _LETTERS.match(said):
        first, second = (set(re.sub(r"AND|[^A-J]", "", text)) for text in (words, said))
        return Decision(
            first == second, "choice", "the same choices" if first == second else "other choices"
        )
    letter = _CHOICE_GOLD.match(words)
    if letter is None:
        return None
    bare = " ".join(strip_words(answer).split())
    found = _CHOICE_ANSWER.match(bare)
    chosen = found[1].upper() if found else _chosen_in_prose(bare)
    if chosen is None:
        return None
    equal = chosen == letter[1]
    why = "the same choice" if equal else f"choice {chosen}, not {letter[1]}"
    return Decision(equal, "choice", why)


def _chosen_in_prose(bare: str) -> str | None:
    """The only letter named in the first clause: `for sure D, it can't be A`."""
    clause = re.split(r"[,.;]|\bnot\b|\bbecause\b", bare, maxsplit=1)[0]
    letters = set(re.findall(r"(?<![\w'=+*/^-])[A-J](?![\w'=+*/^-])", clause))
    return letters.pop() if len(letters) == 1 and len(clause.split()) > 1 else None


def strip_words(answer: str) -> str:
    """The answer without markup, its punctuation kept."""
    bare = re.sub(r"\\(?:text|mathrm|mathbf|mbox)[a-z]*\s*", "", answer)
    return re.sub(r"[{}$*\\]", "", bare).strip()


def no_answer(extraction: Extraction) -> Verdict:
    """The verdict on a response without an answer."""
    return Verdict.of(
        0.0, f"no answer: {extraction.reason}", metrics={f"rule/no answer ({extraction.rule})": 1.0}
    )


__all__ = ["BadGold", "Decision", "NeedsPool", "decide", "no_answer", "read_gold"]
