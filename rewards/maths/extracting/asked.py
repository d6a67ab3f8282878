"""Values that only the question can tell apart in the closing sentence of a response: by the noun
that they count, by the name that they have, or as a yes or no.

Nothing here looks at the gold. Where the question names no value of the sentence, or every
reading is open, the answer stays what the ranking found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..reading.labels import place_of
from ..reading.vocabulary import words
from .sentence import closing_sentence, denied, governed

MAX_QUESTION = 2000
"""How many characters at the end of a prompt are searched for what it asks."""
MAX_PAIRS = 6
"""The most named values in a sentence."""
_SENTENCES = re.compile(r"(?<=[.!?。？])\s+|(?<=[。？])|\n")
_ASKS = re.compile(
    r"\?\s*$|？|\b(?:find|give|determine|compute|calculate|state|what|how (?:many|much))\b"
    r"|\b(?:gib|bestimme|berechne|nenne|trouve[rz]?|donne[rz]?|calcule[rz]?|détermine[rz]?|halla"
    r"|encuentra|calcula|da|determina|trova|ache|determine|encontre)\b"
    r"|найдите|найти|вычислите|определите|укажите|求|计算|計算|구하",
    re.IGNORECASE,
)
_NUMERAL = r"(?<![\w.,/^-])-?\d+(?:,\d+)*(?:\.\d+)?(?![\w/^])"
# A word that ends the noun behind a count.
_BREAKS = (
    r"(?:and|or|of|in|on|at|to|for|from|with|as|that|which|who|per|is|are|was|were|has|have|left"
    r"|alongside|besides|plus|while|but|so|because|since|if|when|by|into|out|its|the|a|an|more"
    r"|und|et|y|e|и)\b"
)
_NOUN = rf"(?!{_BREAKS})[^\W\d_]+(?:[ -](?!{_BREAKS})[^\W\d_]+){{0,2}}"
_COUNT = re.compile(rf"(?P<value>{_NUMERAL})[ *]+(?P<name>{_NOUN})")
_NAMED = re.compile(
    r"(?P<name>[^\W\d_]{3,}(?:[ -][^\W\d_]{3,}){0,2})\**\s*"
    r"(?:=|:|\b(?:is|equals|ist|est|es|é|è|vale"
    rf"|beträgt|равн[аоы]?|равен)\b)\s*\$?(?P<value>{_NUMERAL})"
)


class Named(NamedTuple):
    """A value with the words that name or count it."""

    name: str
    value: str
    start: int
    end: int


def asking(prompt: str) -> str:
    """Return the sentences of a prompt that ask for something, in small letters."""
    sentences = _SENTENCES.split(prompt[-MAX_QUESTION:])
    return " ".join(sentence for sentence in sentences if _ASKS.search(sentence)).lower()


def asked_value(prompt: str, body: str) -> Named | None:
    """Return the value of a response without a mark that its question picks, or None.

    Args:
        prompt: the question.
        body: what the response says, without its thoughts.
    """
    start, end = closing_sentence(body)
    sentence = body[start:end]
    return (
        _by_noun(prompt, body, start, end)
        or _by_name(prompt, body, start, end)
        or ((word := yes_or_no(prompt, sentence)) and Named("", word, start, end))
        or None
    )


def _by_noun(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the count of the noun that is asked (`12 full boxes and 6 loose rolls`), or all named
    values where all of their names are asked for; else None.
    """
    if "=" in body[start:end] and _COUNT.search(body, start, end):
        return None
    pairs = [pair for pair in _pairs(body, start, end) if not denied(body, start, end, *pair[2:])]
    if len({pair.name.lower() for pair in pairs}) < 2 or len(pairs) > MAX_PAIRS:
        return None
    question = asking(prompt)
    if counted := _HOW_MANY.search(question):
        question = question[counted.end() :]
    elif not _NAMED.search(body, start, end):
        return None
    asked = [pair for pair in pairs if place_of(pair.name.lower(), question) >= 0]
    if len(asked) == len(pairs):
        values = ", ".join(f"\\text{{{pair.name}}} = {pair.value}" for pair in asked)
        return Named("", values, start, end)
    if len(asked) != 1 or governed(body, start, *asked[0][2:]):
        return None
    return asked[0]


def _pairs(body: str, start: int, end: int) -> Iterator[Named]:
    """Yield the named values of a sentence, or where there are none its counted nouns."""
    named = list(_NAMED.finditer(body, start, end))
    for match in named if len(named) > 1 else _COUNT.finditer(body, start, end):
        yield Named(_ARTICLE.sub("", match["name"]), match["value"], *match.span("value"))


_HOW_MANY = re.compile(
    r"\bhow many\b|\bnumber of\b|\bcombien\b|\bwie ?viele?\b|cuánt[oa]s|quant[oaie]s?\b"
    r"|сколько|多少|几|몇|いくつ"
)
_ARTICLE = re.compile(r"^(?:and |und |et |the |their |its |der |die |das |la |el |le |il )+", re.I)
_NAME_ASKED = re.compile(
    r"(?:\b(?:find|determine|compute|calculate|what(?:'s| is)|halla|calcula|bestimme|berechne"
    r"|determina|trova|trouve[rz]?)|найдите)\s+(?:the |la |el |le |l'|den |die |das |il |lo )?"
    r"(?P<name>[^\W\d_]+(?:[ -][^\W\d_]+){0,2}?)(?:'s)?\s*"
    r"(?:[.?]|\b(?:of|to|for|in|at|if|when|de|del|der|des|di)\b)",
    re.IGNORECASE,
)
_GENERAL = words("value answer number result solution total difference")
"""Names of which a response may give several values on its way."""
_CONCLUDES = re.compile(r"\b(?:so|thus|hence|therefore|which (?:means|gives)|we get)\b", re.I)
_GOES_ON = re.compile(r"\W*(?:the|this|its|then)\s", re.IGNORECASE)
_STATED = r"\s+(?:is|equals|=|es|ist|est|è|равен|равна|равно)\s+(?:equal to\s+)?"
_VALUE = r"(?P<value>\$[^$\n]{1,40}\$|[-−]?\d[\d.,/]*\d|[-−]?\d)"


def _by_name(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the value that a sentence concludes under the name that is asked, where the closing
    sentence only goes on from there (`so the slope is 3. The tangent is y = 3x - 16.`), or None.
    """
    asked = _NAME_ASKED.search(prompt[-MAX_QUESTION:])
    closing = body[start:end]
    if asked is None or asked["name"].lower() in _GENERAL:
        return None
    within = re.compile(
        rf"\b{re.escape(asked['name'])}{_STATED}{_VALUE}[*]*,?\s+(?:so|and|hence|thus|which)\b",
        re.I,
    ).search(body, start, end)
    if within and closing.lower().count(asked["name"].lower()) == 1:
        return Named(asked["name"], within["value"].strip("$"), *within.span("value"))
    if not _GOES_ON.match(closing) or _CONCLUDES.search(closing):
        return None
    name = asked["name"].lower()
    before = body[:start].rstrip()
    begin = closing_sentence(before)[0]
    stated = re.compile(rf"\b{re.escape(name)}{_STATED}{_VALUE}[\s.*]*$", re.IGNORECASE).search(
        before, begin
    )
    if stated is None or name in closing.lower():
        return None
    concluded = _CONCLUDES.search(before, begin, stated.start())
    value = stated["value"].strip("$")
    return Named(name, value, *stated.span("value")) if concluded else None


_DECIDES = re.compile(
    r"(?:^|[.!?:,]\s+|\n)(?:is|are|was|were|does|do|did|can|could|will|has|have)\s+(?P<rest>[^?]{3,200})\?",
    re.IGNORECASE,
)
_NOT = re.compile(r"n['’]t\b|\b(?:not|cannot|never)\b", re.IGNORECASE)
_CLAUSES = re.compile(
    r"(?:\b(?:that|so|hence|thus|therefore|means|conclude|implies)\b|[:;,.])[,\s]+", re.IGNORECASE
)
_LINKING = words(
    "the a an it its is are was were does do did can could will has have not ca never this that "
    "these those they then also indeed"
)
"""Words of grammar, which a clause may have beyond those of the question."""


def yes_or_no(prompt: str, sentence: str) -> str:
    """Return "Yes" or "No" where the last clause of a sentence says or denies just what the prompt
    asks, else "".

    >>> yes_or_no("Is the matrix invertible?", "so it isn't invertible.")
    'No'
    >>> yes_or_no("Is the matrix invertible?", "so its determinant is 0.")
    ''
    """
    asked = _DECIDES.search(prompt[-MAX_QUESTION:])
    if asked is None or _NOT.search(asked["rest"]) or re.search(r"\bor\b", asked["rest"]):
        return ""
    clause = _CLAUSES.split(sentence.rstrip(" .!*\n"))[-1]
    claimed = _content(clause)
    whole = bool(claimed) and claimed <= _content(asked["rest"])
    verb = re.search(rf"\b(?:{'|'.join(_VERBS)})\b|n['’]t\b|'s\b", clause.lower())
    if not whole or not (verb or _finite(clause, asked["rest"])):
        return ""
    return "No" if _NOT.search(clause) else "Yes"


_VERBS = ("is", "are", "was", "were", "does", "do", "did", "can", "could", "will", "has", "have",
          "cannot")  # fmt: skip


def _finite(clause: str, asked: str) -> bool:
    """Return whether a clause has the verb of the question in the third person: `converges`."""
    in_question = set(re.findall(r"[a-z]+", asked.lower()))
    return any(word[:-1] in in_question for word in re.findall(r"[a-z]+s\b", clause.lower()))


def _content(text: str) -> set[str]:
    """Return the words, signs and numbers of a text that say more than its grammar."""
    plain = re.sub(r"n['’]t\b|n?not\b", " not", text.lower())
    pieces = re.findall(r"[^\W_]+|[^\w\s.,$*'’()]", plain)
    return {word.removesuffix("s") for word in pieces if word not in _LINKING}
