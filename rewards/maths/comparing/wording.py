"""Answers in words: synonyms, lists of words, times of day, and yes or no with a reason."""

from __future__ import annotations

import re

from ..proving.judge import Judge
from ..reading.dates import date, same_name
from ..reading.nodes import Node
from ..reading.notation import as_words
from ..reading.vocabulary import NO_SOLUTION

_AND = r"(?:and|und|et|y|e|и)\s+"
_WORD_LIST = re.compile(rf"[,;]\s*{_AND}|[,;]\s*|\s+{_AND}")
# Subject and verb before a worded answer: `It is Tuesday`, `the series diverges`.
_LEAD = re.compile(
    r"^(?:(?:by|from|using) [^,]*, )?"
    r"(?:it|this|that|there|they|the(?: (?!(?:opposite|contrary|converse|inverse|negation"
    r"|complement|reverse|reciprocal|other|rest|former|latter|first|second|last|not|no|if|that|or"
    r"|than|nor|never|wrong|false|incorrect|untrue|negated|is|are)\b)[a-z]+){1,4})?\s*"
    r"(?:(?:is|are|was|falls on|has|have|will be|must be|on)\s+"
    r"|(?=(?:con|di)verges|(?:does not|doesn['’]t|fails to) converge))"
)
_BEHAVES = re.compile(
    r"(?:it|the (?:series|integral|sequence|limit|function)) (?:is )?"
    r"((?:con|di)verg\w+|(?:in|de)creas\w+)"
)
"""A gold that says how its subject behaves: `The series diverges`."""
_IS_A = re.compile(
    r"\b([a-z]) (?:is|ist|est|es|é|è|=) (?:(?:an?|eine?|une?|uno?|una|uma?) )?(?=[^\W\d_]{3})"
)
"""What joins a letter and what it is: `A is a knave`, `A: knave`."""
_ARTICLE = re.compile(r"^(?:the|an?)\s+")
_NULL = r"(?:the )?(?:null(?: hypothesis)?|h_?\{?0\}?|h₀)(?:,? h_?\{?0\}?)?"
_SAME = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (rf"(?i:{NO_SOLUTION})|(?:the )?empty(?: set)?|none(?: exists?)?", "no solution"),
        *((rf"(?:(?:is|are) )?{stem}(?:es?|ent|ing)", stem)
          for stem in ("converg", "diverg", "increas", "decreas")),
        (r"(?:(?:does not|doesn['’]t|fails to) converge|(?:is )?not convergent)", "diverg"),
        *((f"{way}wards?", way)
          for way in ("up", "down", "left", "right", "north", "south", "east", "west")),
        (r"(?:there (?:are|is) )?(?:thus )?(?:an )?infinite(?:ly)?(?: many| number of)?"
         r"(?: solutions| values)?", "infinitely many"),
        (rf"(?:yes,? )?(?:we |you )?(?:should |must |can )?reject(?: {_NULL})?", "reject h0"),
        (r"(?:no,? )?(?:we |you )?(?:fail(?:ed)? to|(?:do|should|must|can) ?not|don['’]t"
         rf"|can['’]t) reject(?: {_NULL})?"
         rf"|(?:{_NULL} )?(?:(?:is|should be) )?(?:not|cannot be) rejected",
         "do not reject h0"),
        (r"(?:there is |it has |(?=no limit))no limit"
         r"|(?:the )?(?:limit )?(?:dne|does ?n[o'’]t exist|does not exist)|不存在"
         "|n['’]existe pas|n[oã]o? existe|non esiste|existiert nicht|не существует",
         "does not exist"),
        ("不正确|不正確|不对|错误?的?|錯誤?的?|假命题|✗|×|falsch|faux|falso|неверно|ложь|거짓|偽"
         "|yanlış|fałsz|wrong", "false"),
        ("正确的?|正確的?|对的?|對的?|真命题|√|✓|wahr|richtig|vrai|verdadero|verdadeiro|vero|верно"
         "|истина|참|真|doğru|prawda|right", "true"),
        ("ja|oui|s[ií]|sì|sim|да|是的?|はい|예|네|evet|tak|có|हाँ|نعم", "yes"),
        ("nein|non|não|нет|否|不是|いいえ|아니요|아니오|hayır|nie|nee|không|नहीं|لا", "no"),
    )
)  # fmt: skip
"""Phrases with one meaning that need no number ("no solution", "does not exist")."""
_MANNER = re.compile(
    r"(?:is )?(?:(?P<adverb>[a-z]+ly) )?(?P<stem>(?:con|di)verg)(?:es?|ent|ing)"
    r"(?: (?P<last>[a-z]+ly))?"
)
_TIME = re.compile(r"(\d{1,2}):(\d\d) ([ap]m|h)")
_OPPOSITES = frozenset({"yes", "no", "true", "false"})
_NOT = re.compile(r"(?<=[a-z])n['’]t\b|(?<=can)not\b")
_REASON = re.compile(
    r"\s*(?:because|since|as|for|by|due to|so|therefore|it|they|he|she|this|that|these|the|there|"
    r"we|i|both|all|each|every|\w+ (?:is|are|has|have|can|does|do))\b"
)
"""How a reason after yes or no begins."""
_CONDITION = re.compile(
    r"\b(?:if|unless|when|whenever|provided|providing|only|but|except|assuming|suppose|depends?|"
    r"depending|given that|as long as|so long as|in case|or|yes|no|true|false|maybe|perhaps|"
    r"although|though|however|sometimes|usually|mostly|almost|partly)\b"
)
"""Words that make a yes or no depend on something, and so change the answer."""


def same_text(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two nodes, at least one of them words, are the same words or the same list of
    words.
    """
    clocks = _clock(gold), _clock(answer)
    if clocks[0] and clocks[1]:
        (minute, half), (answer_minute, answer_half) = clocks[0], clocks[1]
        # A time before 13:00 (780 minutes) without am or pm may be in either half of the day.
        either = (not half and minute < 780) or (not answer_half and answer_minute < 780)
        same = (minute - answer_minute) % (720 if either else 1440) == 0
        return judge.decided("time of day", same, "another time")
    first, second = _words_of(gold), _words_of(answer)
    same = False
    if first is not None and second is not None:
        if not judge.conventions.text_case:
            first, second = folded(first), folded(second)
        # Two texts that form no list have no items, which makes them no equal lists.
        in_order = judge.conventions.ordered_sets
        lists = [_list_items(words, in_order=in_order) for words in (first, second)]
        same = first == second or lists[0] == lists[1] != frozenset()
    reason = f"the words {answer.note or answer.op!r} are not {gold.note or gold.op!r}"
    return judge.decided("text", same, reason)


def same_words(gold: Node, answer_text: str, judge: Judge) -> bool:
    """Compare a gold in words with an answer as written: `It is Tuesday`, `Yes, because ...`."""
    if judge.conventions.text_case:
        return False
    named = _BEHAVES.fullmatch(gold.note.casefold())
    gold_words = folded(named[1] if named else gold.note)
    words = _NOT.sub(" not", as_words(answer_text).casefold())
    first, _, reason = words.partition(",")
    same = gold_words == folded(words) or gold_words == folded(_LEAD.sub("", words))
    # After a yes or no that agrees, anything but a plain reason may change its meaning.
    if gold_words in _OPPOSITES and first.strip() == gold_words:
        same = bool(_REASON.match(reason)) and not _CONDITION.search(reason)
    return judge.decided("text", same, f"the words {answer_text[:80]!r} are not {gold.note!r}")


def folded(phrase: str) -> str:
    """Return words in the form used for comparison: lower case, without article, synonyms replaced.

    >>> folded("The empty set"), folded("a Hyperbola"), folded("DNE")
    ('no solution', 'hyperbola', 'does not exist')
    """
    words = _IS_A.sub(r"\1: ", phrase.casefold())
    same = next((meaning for pattern, meaning in _SAME if pattern.fullmatch(words)), None)
    if how := _MANNER.fullmatch(words):  # `conditionally convergent`: converges conditionally
        return " ".join(filter(None, (how["stem"], how["adverb"], how["last"])))
    return same or date(words.removeprefix("the ")) or _ARTICLE.sub("", words)


def by_head_noun(prompt: str, gold: str, answer: str) -> bool:
    """Return whether two phrases differ only by a noun behind one of them that the prompt has, or
    that names a kind of object: `Odd function` for `odd`, `rechtwinkliges Dreieck` for
    `rechtwinklig`; or by a symbol (`Magnesium (Mg)`); or one is the initials or the
    short form (`Fri.`) of the other.
    """
    phrases = [_SYMBOL.sub("", folded(as_words(text))).split() for text in (gold, answer)]
    is_word = phrases[0] != [] and phrases[0][0].isalpha() and len(phrases[0][0]) > 1
    if phrases[0] == phrases[1] and is_word and phrases[0][0] not in _OPPOSITES:
        return True
    if len(phrases[0]) == len(phrases[1]) == 1 and same_name(*phrases[0], *phrases[1]):
        return True
    short, long = sorted(phrases, key=len)
    if len(short) == 1 and len(long) >= MIN_INITIALS:
        initials = "".join(word[:1] for word in long).upper()
        return as_words(min(gold, answer, key=len)) == initials
    if not short or len(long) != len(short) + 1 or short[0] in _OPPOSITES:
        return False
    noun, question = long[-1], prompt.casefold()
    known = noun in _KINDS or (len(noun) > 3 and noun in re.findall(r"[^\W\d_]+", question))
    offered = re.search(
        rf"\bor (?:an? )?{re.escape(noun)}\b|\b{re.escape(noun)}(?:,|,? or\b)", question
    )
    inflected = [re.sub(r"(?<=[a-zäöüß]{4})e[snmr]?$", "", word) for word in (short[-1], long[-2])]
    same = short[:-1] == long[:-2] and (short[-1] == long[-2] or inflected[0] == inflected[1])
    plain = not _CONDITION.search(noun) and all(map(str.isalpha, short))
    return known and same and plain and not offered


_SYMBOL = re.compile(r"(?<=[a-z]{3})\s*\((?!no|not|or|if)[a-z]{1,3}\d?\)?$")
"""A symbol behind its name: `Magnesium (Mg)`."""
MIN_INITIALS = 3
"""The fewest words that initials may stand for."""
_KINDS = frozenset(
    ("function", "series", "sequence", "matrix", "distribution", "triangle", "number", "integer",
     "theorem", "test", "variable", "event", "angle", "curve", "relation", "graph", "numbers")
)  # fmt: skip


def is_time(node: Node) -> bool:
    """Return whether a node is a time of day in words: `11 p.m.`."""
    return node.op == "text" and _TIME.fullmatch(node.note) is not None


def _clock(node: Node) -> tuple[int, str] | None:
    """Return (minutes since midnight, "am", "pm", "h" or "") of `3:45 pm`, `15 Uhr` or `15:45`;
    None for anything else.
    """
    if node.op == "ratio" and len(node.args) == 2 and all(part.op == "num" for part in node.args):
        hour, minute = (int(part.value) for part in node.args)
        return (60 * hour + minute, "") if hour < 25 and minute < 60 else None
    time_match = _TIME.fullmatch(node.note) if node.op == "text" else None
    if time_match is None:
        return None
    hour, minute, half = int(time_match[1]), int(time_match[2]), time_match[3]
    if half == "h":
        return 60 * hour + minute, half
    return 60 * (hour % 12 + (12 if half == "pm" else 0)) + minute, half


def _list_items(phrase: str, *, in_order: bool) -> frozenset[str] | list[str]:
    """Return the items of a list in words, or an empty set for words that form no list. Verdicts
    such as yes and no stay in order.
    """
    items = [item.strip() for item in _WORD_LIST.split(phrase) if item.strip()]
    if len(items) < 2:
        return frozenset()
    return items if in_order or _OPPOSITES.intersection(items) else frozenset(items)


def _words_of(node: Node) -> str | None:
    """Return an answer as words, or None for one that has another form."""
    if node.op == "set" and not node.args:
        return "no solution"
    if node.op == "list":
        items = [_words_of(item) for item in node.args]
        return None if None in items else ", ".join(filter(None, items))
    # The reader takes a short unknown word for a product of letters: `DNE` is D * N * E.
    if node.op == "mul" and all(part.op == "sym" for part in node.args):
        return "".join(part.note for part in node.args)
    if node.op not in {"text", "sym"}:
        return None
    return " ".join(_HYPHEN.sub(" ", node.note).split())


_HYPHEN = re.compile(r"(?<=[^\W\d])-(?=[^\W\d])")
