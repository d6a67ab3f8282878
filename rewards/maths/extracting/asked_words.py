"""Answers in words of the closing sentence that only the question can tell apart: who or what it
asks for, and what is said of several, one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ..reading.dates import DAY
from ..reading.vocabulary import words
from .asked import CAPITAL, CLAUSES, DOUBTED, MAX_QUESTION, NEGATIONS, Named, content, of_another
from .phrases import UNASSERTED
from .sentence import DENIAL, closing_sentence, denied
from .stance import framed

_WHO = re.compile(r"(?i)\b(?:(?P<who>who)|which|what) (?P<clause>[a-z][^?.;:,]*)(?:,[^?.]*)?\?")
MAX_NOUN = 5
"""The most words between `which` and the predicate: `which of the three friends has ...`."""
_INSERTED = words("the a an now then still also therefore thus clearly finally indeed currently")
"""Words that a predicate may have or not."""
_LEADS = re.compile(
    r"(?i)\W*(?:(?:so|thus|hence|therefore|then|now|overall|clearly|in the end|at the end)\b,?\s+)*"
)
_DOES = re.compile(
    rf"(?i:it is |it's )?(?P<name>{CAPITAL}[^\W\d_]+(?: {CAPITAL}[^\W\d_]+)?)\s+(?:who\s+)?"
    r"(?P<does>[a-z][^.;:,?!]*)"
)
_CONJUNCTS = re.compile(rf",? (?:and|while|whereas|but) (?={CAPITAL})|[,;]\s")
_CONTRASTED = re.compile(rf",? (?:and )?not {CAPITAL}[^\W\d_]+$")


def subject_asked(prompt: str, sentence: str) -> str:
    """Return the name of which a sentence says just what the question asks, where it says so of no
    other, or "".

    >>> subject_asked("Tom has 5 stamps. Who has the most now?", "So Eli has the most stamps.")
    'Eli'
    >>> subject_asked("Who has the most now?", "Eli gave the most to Fay.")
    ''
    """
    asked = list(_WHO.finditer(prompt[-MAX_QUESTION:]))
    if len(asked) != 1 or NEGATIONS.search(asked[0]["clause"]):
        return ""
    sentence = _LEADS.sub("", _CONTRASTED.sub("", sentence.rstrip(" .!*\n")), count=1)
    if DENIAL.search(sentence) or DOUBTED.search(sentence):
        return ""
    clause = _predicate(asked[0]["clause"])
    skipped = range(1) if asked[0]["who"] else range(1, min(MAX_NOUN, len(clause) - 1) + 1)
    parts = [part.strip("* ") for part in _CONJUNCTS.split(sentence)]
    said = [(part, _DOES.fullmatch(part)) for part in parts]
    if any(does is None and part.istitle() for part, does in said):  # `Ann and Ben won`
        return ""
    known = content(prompt)
    names = {
        does["name"]
        for _, does in said
        if does and any(_says(_predicate(does["does"]), clause[skip:], known) for skip in skipped)
    }
    return names.pop() if len(names) == 1 else ""


def _predicate(clause: str) -> list[str]:
    return [word for word in re.findall(r"[^\W_]+", clause) if word.lower() not in _INSERTED]


_ADJUNCTS = (["on"], ["of"], ["among"], ["overall"], ["after"])


def _says(said: list[str], asked: list[str], known: set[str]) -> bool:
    """Return whether a predicate begins with the one that is asked and goes on in words of the
    question, without another name.
    """
    if len(said) > 1 and asked[: len(said)] == said and asked[len(said) :][:1] in _ADJUNCTS:
        return True  # `is the fastest`, where `Who is the fastest on average?` is asked
    if not asked or said[: len(asked)] != asked:
        return False
    further = said[len(asked) :]
    if further[:1] == ["than"] and len(further) == 2:  # `Ann is older than Ben`
        return True
    return content(" ".join(further)) <= known and not any(word[0].isupper() for word in further)


def in_words(prompt: str, body: str, options: Collection[str] = ()) -> Named | None:
    """Return the words that the closing sentence stresses (`so it is a **rhombus**`) or ends in
    behind its verb (`it is called a rhombus`), for a gold that is words; else None.

    Other words in bold, words of doubt and denials leave the sentence without an answer, and so
    does another subject than that of the question, unless the words are one of its `options`.
    """
    start, end = closing_sentence(body)
    if name := subject_asked(prompt, body[start:end]):
        begin = body.find(name, start)
        return Named("", name, begin, begin + len(name))
    stressed = [match for match in _STRESSED.finditer(body, start, end) if match["words"]]
    clause = _STATED_WORDS.search(body, start, end) if not stressed else None
    while clause and (later := _STATED_WORDS.search(body, clause.start("words"), end)):
        clause = later
    clause = clause or (None if stressed else _CLOSES.search(body, start, end))
    clause = clause or (None if stressed else _LED_TO.search(body, start, end))
    said = clause or (stressed[-1] if stressed else None)
    if said is None or len({match["words"].casefold() for match in stressed}) > 1:
        return None
    led = CLAUSES.match(body, start, said.start("words"))
    before = body[led.end() if led else start : said.start("words")]
    behind = body[said.end("words") : end]
    doubtful = DOUBTED.search(before) or DOUBTED.search(behind) or UNASSERTED.search(before)
    place = said.span("words")
    if doubtful or denied(body, start, end, *place) or framed(body, *place) or "?" in behind:
        return None
    led_to = clause is not None and clause.re is _LED_TO
    is_option = said["words"].casefold() in options
    predicate = _PREDICATE.search(before) if is_option else None
    if predicate and not content(predicate[0]) <= content(prompt) | _GENERAL_VERBS:
        return None  # `Animals need **oxygen**`
    if not led_to and not is_option and of_another(prompt, body[place[0] - len(before) : end]):
        return None
    asked = content(prompt)
    # `Maria is the tallest`: the subject answers, and the rest repeats the question.
    of_subject = (
        clause and not clause[0].startswith("belongs") and clause.re not in {_CLOSES, _LED_TO}
    )
    lead = _LEADS.sub("", before, count=1)
    if (
        of_subject
        and not is_option
        and content(said["words"]) <= asked
        and not content(lead) <= asked
    ):
        subject = _ANSWERING.match(body, place[0] - len(before), place[0])
        return Named("", subject["name"], *subject.span("name")) if subject else None
    return Named("", said["words"], *said.span("words"))


_PREDICATE = re.compile(r"[^\W\d_]+(?= (?:an? |the )?[*_]*$|[*_]+$|$)")
"""The last word before the words of an option."""
_GENERAL_VERBS = words(
    "be unit answer option choice choose pick select take give call name mean say get fit correct"
    " right"
)


def statements(body: str) -> Named | None:
    """Return what a closing sentence says of several, one by one (`A is a knave; B is a knight`),
    if it says nothing else; else None.
    """
    start, end = closing_sentence(body)
    said = STATEMENTS.fullmatch(body, start, end)
    return said and Named("", said["said"], *said.span("said"))


_STATEMENT = (
    rf"{CAPITAL}[^\W\d_]*(?: is| ist| est| es| é| è| =|:) "
    r"(?:(?:an?|the|eine?|une?|uno?|una|uma?) )?(?!no|nicht|pas|não)[^\W\d_]{3,}(?: [^\W\d_]{3,})?"
)
STATEMENTS = re.compile(
    rf"(?i:{_LEADS.pattern.removeprefix('(?i)')})(?P<said>{_STATEMENT}"
    rf"(?:(?:[;,]? (?:and|und|et|y|e|и)|[;,]) {_STATEMENT})+)[\s.!*]*"
)
"""What each of several is, in one sentence."""
_ANSWERING = re.compile(
    r"(?:(?:So|Thus|Hence|Therefore|Then),?\s+)?(?P<name>(?!(?i:so|thus|then|it|this|that|there)\b)"
    r"[^\W\d_]{2,}(?: [^\W\d_]+){0,2}?)\s+(?:is|are|was|were|has|have|be)\b[^.]*$"
)


_COMPOUND = r"(?:[A-Z][a-z]?[\d₀-₉]*){2,}(?:\((?:[A-Z][a-z]?[\d₀-₉]*)+\)[\d₀-₉]*)?(?!\w)"
"""A chemical formula, which is a word with digits."""
_WORDS = rf"(?P<words>{_COMPOUND}|(?:[^\W\d_]{{2,}}|[一-鿿])(?:[ '’-][^\W\d_]+){{0,6}})"
_STRESSED = re.compile(
    rf"(?<![*\w])(?P<mark>\*{{1,3}}|__?)(?:(?:an?|the) )?{_WORDS}[.!]?(?P=mark)(?![*\w])"
)
_STATED_WORDS = re.compile(
    r"\b(?:is|are|was|be|['’]s|gives|called|known as|named|namely|have|get|belongs to|ist"
    r"|est|es|è|é)\s+(?:(?:thus|then|therefore|hence)\s+)?"
    r"(?:(?:an?|the|eine?|une?|una|la|le|el)\s+)?(?!called|known|named)"
    rf"(?P<words>{_COMPOUND}|[^\W\d_]{{2,}}(?:[ '’-][^\W\d_]+){{0,4}})"
    r"(?: \((?!not\b)[^()\d\s?]{1,8}\))?"
    r"(?:, (?:an?|the|just like|which|because|since) [^.!?;\n]*)?[.!]*\s*$"
)
_CLOSES = re.compile(
    r"(?:[^\s:]+ [^\s:]+ (?!before:)[^\s:]+:|\b(?:to|on|an?|towards?|is|ist|un)(?: the)?) \**"
    rf"(?P<words>{DAY}"
    r"|(?:nor|sou)th(?:-?(?:ea|we)st)?|east|west)\**[.!]*\s*$"
)
"""A day of the week or a direction that a sentence ends in."""
_LED_TO = re.compile(
    rf"(?:→|⇒|⟹|∴|->|=>|(?<![<>=!])=|[,;:] (?:so|hence|thus|therefore),?|:(?=\s{_COMPOUND}))\s*\**"
    rf"(?P<words>{_COMPOUND}|"
    r"(?!(?:it|this|that|the|no|not|there|we|done|true|false"
    r"|QED)\b)[^\W\d_]{3,}(?: [^\W\d_]{3,})?)"
    r"\**[.!]*\s*$"
)
"""A word or two that a sentence ends in behind an arrow or a word of consequence."""
