"""Values that only the question can tell apart in the closing sentence of a response: by the noun
that they count, by the name that they have, or as a yes or no.

Nothing here looks at the gold. Where the question names no value of the sentence, or every
reading is open, the answer stays what the ranking found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..reading.counting import spelled_numbers
from ..reading.dates import DATE
from ..reading.labels import place_of
from ..reading.sides import LETTER_ASKED, sides
from ..reading.vocabulary import COUNTER, words
from .described import described
from .expressions import measured
from .phrases import UNASSERTED
from .sentence import DENIAL, POINT, closing_sentence, denied, governed
from .stance import framed, related

MAX_QUESTION = 2000
"""How many characters at the end of a prompt are searched for what it asks."""
MAX_PAIRS = 6
"""The most named values in a sentence."""
_SENTENCES = re.compile(r"(?<=[.!?。？])\s+|(?<=[。？])|\n")
_ASKS = re.compile(
    r"(?i)\?\s*$|？|\b(?:find|give|determine|compute|calculate|state|what|how (?:many|much))\b"
    r"|\b(?:gib|bestimme|berechne|nenne|trouve[rz]?|donne[rz]?|calcule[rz]?|détermine[rz]?|halla"
    r"|encuentra|calcula|da|determina|trova|ache|determine|encontre)\b"
    r"|найдите|найти|вычислите|определите|укажите|求|计算|計算|구하"
)
_NUMERAL = r"(?<![\w.,/^-])-?\d+(?:,\d+)*(?:\.\d+)?(?![\w/]|\^(?!\{?\\circ))"
# A word that ends the noun behind a count.
_BREAKS = (
    r"(?:and|or|of|in|on|at|to|for|from|with|as|that|which|who|per|is|are|was|were|has|have|left"
    r"|alongside|besides|plus|while|but|so|because|since|if|when|by|into|out|its|the|a|an|more"
    r"|und|et|y|e|и)\b"
)
_NOUN = rf"(?!{_BREAKS})[^\W\d_]+(?:[ -](?!{_BREAKS})[^\W\d_]+){{0,2}}"
_COUNT = re.compile(rf"(?P<value>{_NUMERAL})[ *]+(?![ijk]\b)(?P<name>{_NOUN})")
# What a name has of its own, such as its share; any other possession is another owner.
_OWN = (
    r"(?:share|part|portion|total|amount|number|count|score|sum|age|height|weight|length|speed|time"
    r"|money|salary|alter|anteil|summe|âge|edad|parte|idade|età|is|has|are)\b"
)
CAPITAL = "[A-ZÀ-ÖØ-ÞА-Я]"
"""A pattern of the first letter of a name."""
_POSSESSED = rf"(?:(?!(?i:{_OWN}))[^\W\d_]+ (?:of|von|de|di) (?={CAPITAL}))?"
# A capitalised word with what it possesses: that it is a name shows in question and answer both.
_OWNER = re.compile(
    rf"(?<![\w'’]){_POSSESSED}(?!(?:So|Then|Thus|Hence|Therefore|The|A|How|If)\b)"
    rf"(?P<name>{CAPITAL}[^\W\d_]{{1,20}})(?:['’]s (?!{_OWN})[^\W\d_]+)?"
)
_NAMED = re.compile(
    rf"(?P<name>{_POSSESSED}"
    r"[^\W\d_]{3,}(?:[ -][^\W\d_]{3,}){0,2})\**\s*"
    r"(?:=|:|\b(?:is|equals|ist|est|es|é|è|vale"
    rf"|beträgt|равн[аоы]?|равен)\b)[\s*$]*(?:[a-z]\s?=\s?)?(?P<value>{_NUMERAL})"
)
# `an area of 49`, `$240 of interest`: the value is said to be of a name.
_OF = re.compile(
    r"(?:\b(?:an?|the|its|with) (?P<name>[^\W\d_]{3,}(?:[ -][^\W\d_]{3,})?)"
    rf" of \$?(?P<value>{_NUMERAL})|(?P<of>{_NUMERAL}) (?:in|of) (?P<noun>{_NOUN}))"
    r"(?! ?[-+−·×*/=^])"
)


class Named(NamedTuple):
    """A value with the words that name or count it."""

    name: str
    value: str
    start: int
    end: int


def asking(prompt: str) -> str:
    """Return the sentences of a prompt that ask for something."""
    sentences = _SENTENCES.split(prompt[-MAX_QUESTION:])
    return " ".join(sentence for sentence in sentences if _ASKS.search(sentence))


def asked_value(prompt: str, body: str) -> Named | None:
    """Return the value of a response without a mark that its question picks, or None.

    Args:
        prompt: the question.
        body: what the response says, without its thoughts.
    """
    start, end = closing_sentence(body)
    value = (
        _by_row(prompt, body)
        or ((place := described(prompt[-MAX_QUESTION:], body, start, end)) and Named("", *place))
        or _by_ratio(prompt, body, start, end)
        or _by_owner(prompt, body, start, end)
        or _by_sides(prompt, body, start, end)
        or _by_letter(prompt, body, start, end)
        or _by_counter(prompt, body, start, end)
        or _by_noun(prompt, body, start, end)
        or _by_name(prompt, body, start, end)
        or _by_predicate(prompt, body, start, end)
        or _by_alternative(prompt, body, start, end)
        or _by_form(prompt, body, start, end)
        or _by_chance(prompt, body, start, end)
    )
    return None if value is None or framed(body, value.start, value.end) else value


_LABELLED = re.compile(r"(?m)(?:^[ \t]*[-*•] [*_]*[^\W\d_][^:=\n]{1,40}[:=][^\n]+\n?){2,12}\s*\Z")
_LABEL = re.compile(rf"[-*•] [*_]*(?P<name>[^:=\n]+?)[*_]*\s?[:=][*_\s]*(?P<value>{_NUMERAL})")


def _by_row(prompt: str, body: str) -> Named | None:
    """Return the value of the only row at the end whose label is the name that is asked, or None.

    A noun that is counted is no name: `How many apples are left?` does not ask for `Apples: 10`.
    """
    rows = _LABELLED.search(body, max(0, len(body) - MAX_QUESTION))
    asked = _NAME_ASKED.search(prompt[-MAX_QUESTION:]) if rows else None
    if rows is None or asked is None:
        return None
    name = asked["name"].lower().removeprefix("its ")
    named = [
        Named(name, row["value"], *row.span("value"))
        for row in _LABEL.finditer(body, rows.start())
        if row["name"].lower() == name
    ]
    return named[0] if len(named) == 1 else None


def _several(pairs: list[Named], body: str, start: int, end: int) -> bool:
    """Return whether a sentence claims the values of several names, each once, and all of them."""
    return (
        1 < len({pair.name.lower() for pair in pairs}) <= len(pairs) <= MAX_PAIRS
        and not any(denied(body, start, end, pair.start, pair.end) for pair in pairs)
        and not any(_changed(body, start, pair.start, pair.name) for pair in pairs)
        and not _ALTERNATIVES.search(body, start, pairs[-1].end)
    )


def _changed(body: str, start: int, place: int, name: str) -> bool:
    """Return whether words before a name make another value of it: `half the quotient is 7`."""
    before = body[start : max(start, body.rfind(name, start, place))]
    before = re.sub(r"(?:the|die|der|das|le|la|el|il)\s+$", "", before).rstrip() + " "
    return related(before) or before.lower().endswith("half ")


# `either`, or an `or` or `if` in front of the last value; `o` is an article of Portuguese, too.
_ALTERNATIVES = re.compile(
    r"(?i)(?<!in )(?<!for )\beither\b(?! (?:way|case)\b)|\b(?:entweder|soit|либо)\b"
    r"|\d[^.,;]*?(?<!\be)\so\s"
    r"|\d.*?\b(?:or|oder|ou|oppure|или|if|unless)\b"
)


def _by_owner(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the value of the person or thing that the question names (`Lena has 17 and Paul has
    34`, of which Paul is asked), where the sentence gives each of several its own; else None.
    """
    names = {match["name"] for match in _OWNER.finditer(prompt[-MAX_QUESTION:])}
    said = [match for match in _OWNER.finditer(body, start, end) if match["name"] in names]
    values = [
        value
        for value in re.finditer(_NUMERAL, body[start:end])
        if not body[: start + value.start()].endswith(" of the ")
    ]
    if len(said) != len(values):
        return None
    pairs = [
        Named(name[0], value[0], start + value.start(), start + value.end())
        for name, value in zip(said, values, strict=True)
    ]
    # Each name stands before its value and behind the value of the one before.
    places = [
        place for name, pair in zip(said, pairs, strict=True) for place in (name.end(), pair.end)
    ]
    wanted = {match[0] for match in _OWNER.finditer(asking(prompt))}
    asked = [pair for pair in pairs if pair.name in wanted]
    in_turn = places == sorted(places) and _several(pairs, body, start, end)
    return asked[0] if in_turn and len(asked) == 1 else None


def _by_sides(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the values of all names that the prompt asks for, where the closing sentence gives
    each name one (`so r + s = 7/2 and rs = 3/2`); else None.
    """
    given = sides(prompt[-MAX_QUESTION:], body, start, end)
    if not given or _ALTERNATIVES.search(body, start, end):
        return None
    for side in given:
        before = body[start : side.place]
        if denied(body, start, end, side.start, side.end) or _changed(before, 0, len(before), ""):
            return None
    text = ", ".join(f"{side.name} = {side.value}" for side in given)
    return Named("", text, given[0].start, given[-1].end)


def _by_letter(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the value of the only letter that the prompt asks for, where the closing sentence
    gives it and another letter one number each (`so x = 7, which makes y = 3`); else None.
    """
    asked = set(LETTER_ASKED.findall(prompt[-MAX_QUESTION:]))
    given = list(_LETTER_GIVEN.finditer(body, start, end)) if len(asked) == 1 else []
    pairs = [Named(match["name"], match["value"], *match.span("value")) for match in given]
    wanted = [pair for pair in pairs if pair.name in asked]
    if len(wanted) != 1 or not _several(pairs, body, start, end):
        return None
    changed = re.search(rf"\b{wanted[0].name}\s?[=≠<>≤≥]", body[wanted[0].end : end])
    return None if changed else wanted[0]


_LETTER_GIVEN = re.compile(
    r"(?<![\w\\^(+*/·×−-])(?<![-+*/·×−] )\$?(?P<name>[a-z])\s?=\s?(?P<value>[-−]?\d[\d.]*(?:/\d+)?"
    r"|\\[dt]?frac\{-?\d+\}\{\d+\})\$?(?=[*]*(?:[.,;]|\s+[^\W\d_]|\s*$))(?<!\.)"
)


def _by_noun(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the count of the noun that is asked (`12 full boxes and 6 loose rolls`), or all named
    values where all of their names are asked for; else None.
    """
    if "=" in body[start:end] and _COUNT.search(body, start, end):
        return None
    pairs = list(_pairs(body, start, end))
    # `3 h 35 min` is one quantity.
    if not _several(pairs, body, start, end) or POINT.match(body, pairs[0].start):
        return None
    question = asking(prompt).lower()
    if counted := list(_HOW_MANY.finditer(question)):
        asked = _counted(pairs, question, [match.end() for match in counted])
    elif _NAMED.search(body, start, end) or _OF.search(body, start, end):
        asked = [pair for pair in pairs if place_of(pair.name.lower(), question) >= 0]
    else:
        return None
    if len(asked) == len(pairs):
        values = ", ".join(f"\\text{{{pair.name}}} = {pair.value}" for pair in asked)
        return Named("", values, pairs[0].start, pairs[-1].end)
    if len(asked) != 1 or governed(body, start, *asked[0][2:]):
        return None
    # `36 eggs in 2 days, so 18 in one`: the sentence goes on to another value.
    concluded = counted and _CONCLUDES.search(body, asked[0].end, end)
    return None if concluded and re.search(r"\d", body[concluded.end() : end]) else asked[0]


def _by_counter(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the count of what is asked in a script without articles, where a sentence counts
    several (`りんごは7個、みかんは8個`), else None.
    """
    if body.isascii() or prompt.isascii():
        return None
    asked = list(_COUNT_ASKED.finditer(prompt[-MAX_QUESTION:]))
    if any(_COMPARES.search(match[0]) for match in asked):
        return None
    sentence = _in_digits(body, start, end) if len(asked) == 1 else ""
    pairs = [Named(m["name"], m["value"], start, end) for m in _COUNTER.finditer(sentence)]
    ranks = [max(_shared(pair.name, noun) for noun in asked[0].groups()) for pair in pairs]
    several = len(pairs) == len({pair.name for pair in pairs}) > 1 and ranks.count(max(ranks)) == 1
    is_open = DENIAL.search(sentence) or DOUBTED.search(sentence) or _IS_NOT.search(sentence)
    if not several or not max(ranks) or is_open:
        return None
    return pairs[ranks.index(max(ranks))]


_COMPARES = re.compile(
    r"比|[多少][几幾]|相?差|より|더|차이|ずつ|残|剩|余|남|合|一共|总|總|全部|모두|합|[和与與跟と]"
    r"|[과와] "
)
"""A question for more than one of several counts, or for what is left of one."""
_IS_NOT = re.compile(r"[では]な[くい]|じゃな|不是|没有|沒有|아니|않")
_TOPIC = r"(?:は|が|を|有|为|是|은|는|이|가|을|를)?"
_COUNTER = re.compile(
    rf"(?P<name>[^\W\da-zA-Z]{{1,9}}?)\s?{_TOPIC}\s?[*$]*(?P<value>\d+)[*$]*\s?(?:{COUNTER}|円|元|원)"
    rf"(?:[(（](?P=value)\s?{COUNTER}?[)）])?"
)
"""A name and its count, perhaps with the count again in brackets."""
_COUNT_ASKED = re.compile(
    rf"(?P<before>(?:[^\W\d]+ )?[^\W\d]{{1,9}}?)\s?{_TOPIC}\s?"
    rf"(?:多少|[几幾]|何(?={COUNTER}|円)|いくつ|몇)\s?(?:{COUNTER}|円|元|원)?"
    r"(?P<behind> ?[^\W\d]{0,6})"
)


def _shared(name: str, noun: str) -> int:
    """Return how many letters at the end of two nouns are the same."""
    return max((len(name) - n for n in range(len(name)) if noun.endswith(name[n:])), default=0)


def _counted(pairs: list[Named], question: str, places: list[int]) -> list[Named]:
    """Return the pairs whose nouns stand next behind one of the places, in the order of `pairs`,
    with those that `and` joins to them.
    """
    asked: set[Named] = set()
    for place, stop in zip(places, [*places[1:], len(question)], strict=True):
        text = question[place:stop]
        places_found = ((place_of(pair.name.lower(), text), pair) for pair in pairs)
        spots = sorted((at, pair) for at, pair in places_found if at >= 0)
        for turn, (at, pair) in enumerate(spots):
            if turn and not _JOINED.search(text, spots[turn - 1][0], at):
                break
            asked.add(pair)
    return [pair for pair in pairs if pair in asked]


def _pairs(body: str, start: int, end: int) -> Iterator[Named]:
    """Yield the named values of a sentence, or where there are none its counted nouns."""
    patterns = (_NAMED, _COUNT) if "=" in body[start:end] else (_NAMED, _OF, _COUNT)
    kinds = [list(kind.finditer(body, start, end)) for kind in patterns]
    for match in next((matches for matches in kinds if len(matches) > 1), kinds[-1]):
        begin, stop = match.span("value" if match["name"] else "of")
        stop = stop if match.re is _COUNT else measured(body, stop)
        yield Named(_ARTICLE.sub("", match["name"] or match["noun"]), body[begin:stop], begin, stop)


_HOW_MANY = re.compile(
    r"\bhow many\b|\bnumber of\b|\bcombien\b|\bwie ?viele?\b|cuánt[oa]s|quant[oaie]s?\b"
    r"|сколько|多少|几|몇|いくつ"
)
_JOINED = re.compile(r",|\b(?:and|und|et|y|e|и)\b|和|と")
_ARTICLE = re.compile(r"(?i)^(?:and |und |et |the |their |its |der |die |das |la |el |le |il )+")
_NAME_ASKED = re.compile(
    r"(?i)(?:\b(?:find|determine|compute|calculate|what(?:'s| is)|halla|calcula|bestimme|berechne"
    r"|determina|trova|trouve[rz]?)|найдите)\s+(?:the |la |el |le |l'|den |die |das |il |lo )?"
    r"(?P<name>[^\W\d_]{2,}(?:[ -][^\W\d_]+){0,2}?)(?:'s)?\s*"
    r"(?:[.?]|\b(?:of|to|for|in|at|if|when|de|del|der|des|di)\b)"
)
_GENERAL = words("value answer number result solution total difference")
"""Names of which a response may give several values on its way."""
_CONCLUDES = re.compile(r"(?i)\b(?:so|thus|hence|therefore|which (?:means|gives)|we get)\b")
_GOES_ON = re.compile(r"(?i)\W*(?:the|this|its|then)\s")
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
        rf"(?i)\b{re.escape(asked['name'])}{_STATED}{_VALUE}[*]*,?(?:\s+(?:so|and|hence|thus"
        rf"|which)\b|[\s.]*$)"
    ).search(body, start, end)
    if within and closing.lower().count(asked["name"].lower()) == 1:
        return Named(asked["name"], within["value"].strip("$"), *within.span("value"))
    if not _GOES_ON.match(closing) or _CONCLUDES.search(closing):
        return None
    name = asked["name"].lower()
    before = body[:start].rstrip()
    begin = closing_sentence(before)[0]
    stated = re.compile(rf"(?i)\b{re.escape(name)}{_STATED}{_VALUE}[\s.*]*$").search(before, begin)
    if stated is None or name in closing.lower():
        return None
    concluded = _CONCLUDES.search(before, begin, stated.start())
    value = stated["value"].strip("$")
    return Named(name, value, *stated.span("value")) if concluded else None


_DECIDES = re.compile(
    r"(?i)(?:^|[.!?:,]\s+|\n)(?:is|are|was|were|does|do|did|can|could|will|has"
    r"|have)\s+(?P<rest>[^?]{3,200})\?"
)
NEGATIONS = re.compile(r"(?i)n['’]t\b|\b(?:not|cannot|never)\b")
"""Words that deny a predicate."""
CLAUSES = re.compile(
    r"(?is).*(?:\b(?:that|so|hence|thus|therefore|means|conclude|implies|but|yet)\b"
    r"|[:;,.—])[,\s]+(?=\S)"
)
"""What leads to the last clause of a sentence."""
LINKING = words(
    "the a an it its is are was were does do did can could will has have not ca never this that "
    "these those they then also indeed s c ce das es ist est"
)
"""Words of grammar, which a clause may have beyond those of the question."""


def _by_predicate(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return "Yes" or "No" where the last clause of a sentence says or denies just what the prompt
    asks (`Is it invertible?`, `so it isn't invertible`), else None.
    """
    asked = _DECIDES.search(prompt[-MAX_QUESTION:])
    if asked is None or NEGATIONS.search(asked["rest"]) or re.search(r"\bor\b", asked["rest"]):
        return None
    end = start + len(body[start:end].rstrip(" .!*\n"))
    led = CLAUSES.match(body, start, end)
    begin = led.end() if led else start
    clause = body[begin:end]
    if _ASKED_BACK.match(clause) or (led and UNASSERTED.search(led[0])):
        return None
    existence = _EXISTENCE.match(asked[0].strip(" .!?:,\n"))
    exists = _EXISTS.match(clause.lstrip()) if existence else None
    if exists and not (led and _CONDITIONAL.search(led[0])):
        noun = (exists["noun"] or exists["other"]).lower().removesuffix("s")
        is_asked = re.search(rf"\b{re.escape(noun)}", asked["rest"], re.IGNORECASE)
        says = "No" if exists["no"] or exists["none"] or exists["not"] else "Yes"
        return Named("", says, begin, end) if is_asked else None
    claimed = content(clause)
    whole = bool(claimed) and claimed <= content(asked["rest"])
    verb = re.search(rf"\b(?:{_VERBS})\b|n['’]t\b|'s\b", clause.lower())
    if not whole or not (verb or _finite(clause, asked["rest"])):
        return None
    return Named("", "No" if NEGATIONS.search(clause) else "Yes", begin, end)


_EXISTENCE = re.compile(
    r"(?i)(?:do(?:es)? there exist|(?:is|are) there)\b(?!\s(?:exactly|infinitely|finitely|no|only"
    r"|at|more|less|fewer|always|two|one)\b|\s\d)|(?:do(?:es)?|can|could) [^?]* exist$"
    r"|is it possible to (?:find|construct|draw|have|build) "
)
_EXISTS = re.compile(
    r"(?i)(?:(?P<no>no such)|such an?|one such|infinitely many "
    r"such)\s+[$]?(?P<noun>\w+)[$]?\s+"
    r"(?:(?P<not>cannot|(?:can|does) not|(?:ca|does)n['’]t) |does |can )?"
    r"exists?$|there (?:is|are|exists?|can be) (?P<none>no )?such\s+"
    r"(?:an? )?[$]?(?P<other>\w+)[$]?\s*$"
)
_CONDITIONAL = re.compile(r"(?i)\b(?:for|if|when|unless|among)\b")
_OFFERED = re.compile(
    r"(?i)(?:^|[.!?:,]\s+|\n)(?!(?:how|what|which|who|find|give|combien|wie viele"
    r"|quel|qua(?:l|is|le|li)|quant\w|cu[áa]l\w*|qué|que)\b)[^.!?\n]*?\b(?P<first>[^\W\d_]{3,})(?:-t-(?:elle|il))?,?\s+(?:or|oder|ou|o|oppure"
    r"|или)\s+(?:(?:is|does|do|will) (?:it|they) )?(?:(?:an?|the|eine?|une?|una) "
    r")?(?P<second>[^\W\d_]{3,})\b[^.!?\n]{0,60}\?"
)
_FORMULA = re.compile(r"\$[^$]*\$")
_GIVES_REASON = re.compile(
    r"(?i),?\s+(?:since|because|as|by|for|denn|weil|da|car|parce que|porque|perché|так как)"
    r"(?! (?:con|di)vergence)\s"
)


def _by_alternative(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the one of two words that the prompt offers (`converge or diverge?`) which the last
    clause says, and does not deny; else None.
    """
    # A point within a formula ends no sentence.
    offered = _OFFERED.search(_FORMULA.sub("$", prompt[-MAX_QUESTION:]))
    # Of `converge absolutely, converge conditionally or diverge?` the offer has more than a word.
    offer = " ".join(offered.groups()) if offered else ""
    if offered is None or (re.search(r"ly\b", offer) and re.search(r"\b(?:con|di)verge\b", offer)):
        return None
    unlike = _UNLIKE.search(body, start, end) if "onverge" in offer else None
    if unlike and not DOUBTED.search(body, start, unlike.start()):
        return Named("", "diverges", *unlike.span())
    for reason in _GIVES_REASON.finditer(body, start, end):
        if body[start : reason.start()].strip():
            end = reason.start()
            break
    # `composite, not prime`: the other word of the offer, denied.
    other = re.compile(rf"(?i),?\s(?:and )?not (?:an? )?(?:{'|'.join(offered.groups())})\W*$")
    end = contrast.start() if (contrast := other.search(body, start, end)) else end
    led = CLAUSES.match(body, start, end - 1)
    begin = led.end() if led else start
    clause = body[begin:end]
    if DENIAL.search(clause) or _HEDGED.search(clause) or _ASKED_BACK.match(clause):
        return None
    if of_another(prompt, clause):
        return None
    said = [
        (match, word)
        for word in offered.groups()
        for match in re.finditer(rf"(?i)\b{_stem(word)}\w{{0,4}}\b", clause)
    ]
    if len(said) != 1 or (led and UNASSERTED.search(led[0])):
        return None
    match, word = said[0]
    return Named("", word, begin + match.start(), begin + match.end())


_UNLIKE = re.compile(
    r"(?i)\b(?:it|(?:the|this) (?:\w+ )?(?:series|sum|integral|sequence))(?: \$[^$]*\$)?"
    r"(?: thus| therefore)? (?:(?:does|can|is) ?not|(?:doesn|can|isn)['’]t|fails to)"
    r" converge(?:nt)?[\s.!*]*$"
)
DOUBTED = re.compile(
    r"(?i)\b(?:might|may|could|would|should|seem\w*|appear\w*|hardly|almost|nearly|barely"
    r"|formerly|if|unless|whether|either|or|(?<!you )(?<!he )(?<!hey )looks?(?! to)"
    r"|könnte|würde|scheint|semble|parece|sembra|oder|ou|wenn|si|maybe|perhaps|probably"
    r"|in (?:theory|principle)|on paper|at first|initially|originally|so far|until"
    r"|at the (?:start|beginning)|but only)\b"
)
"""Words of doubt, and those with which a sentence says so of another time, or not quite."""
_HEDGED = re.compile(rf"{DOUBTED.pattern}|\b(?:can|fail\w*|nothing|nobody|none|only|of|looks?)\b")
"""Words that also leave a clause open, or make it one about another thing (`the series of ...`)."""
_SUBJECT = re.compile(
    r"((?:\S+ )?[-+*/^] \S+|\S*[-+*/^\d]\S*)(?: in [\w ]{3,20})?"
    r" (?:is|are|equals|=|ist|est|es)(?=\s)"
)


def of_another(prompt: str, clause: str) -> bool:
    """Return whether a clause speaks of a number or formula that the question does not have."""
    subject = _SUBJECT.search(re.sub(r"\*{2,3}", "", clause))
    if subject is None:
        return False
    return re.sub(r"\s", "", subject[1]) not in re.sub(r"[\s$]", "", prompt)


def _stem(word: str) -> str:
    """Return a word without its inflection: `converg` for `converges`, `decreas`."""
    return re.sub(r"(?<=\w{4})(?:ing|ent|iert|es|e|s)$", "", word)


_DATE = re.compile(DATE)
_DATE_ASKED = re.compile(
    r"(?i)\b(?:what|which) date\b|\bthe date\b|\bwhich day of\b|\bwhen\b|\bwann\b|\bwelche[mn]"
    r" (?:tag|datum)\b|\bquand[o ]|\bquel(?:le)? (?:date|jour)\b|\bcuándo|\bqué (?:fecha|día)|\bque"
    r" dia\b|\bche giorno\b|когда|какого числа|哪[天一]|几[月号日]|いつ|何[月日]|언제|며칠"
)
_BASE_ASKED = re.compile(
    r"(?i)\b(?:(?:in|to|into|as an?|en|im|nach|na|em|au) (?:the )?(?:hex"
    r"|hexad[ée][cz]imal\w*|base[ -]?(?:1[1-9]|2\d|3[0-6]"
    r"|sixteen|twelve)|sistema hexadecimal|hexadezimalsystem)|hexadecimal (?:form|representation"
    r"|digits?|number|notation)|hexadezimal\w*)\b|十六进制|16進数|шестнадцатеричн"
)
_DIGITS = re.compile(
    r"(?:(?<!and)(?<!or)(?<!und)(?<!et)(?<!\d)(?<!\d[,;])\s"
    r"|[=($])(?:0x(?=[0-9A-Z]+\b))?(?P<value>0x[0-9a-f]{1,12}|(?!I\b|A\s[a-z])[0-9A-Z]{1,12})"
    r"(?:₁₆|_\{?(?:16|hex)\}?)?[)$*]*(?:\s(?:in|en|im) (?:the )?(?:hex\w*"
    r"|base[ -]\w+)(?: \w{6,})?)?"
    r"[.\s*$]*$"
)


def _by_form(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the date, or the digits of a base above ten, that the closing sentence ends in where
    the prompt asks for such; else None.
    """
    dates = list(_DATE.finditer(body, start, end)) if _DATE_ASKED.search(prompt) else []
    last = dates[-1] if dates and not body[dates[-1].end() : end].strip(" .*!") else None
    if (last or len(dates) == 1) and not denied(body, start, end, *dates[-1].span()):
        return Named("", dates[-1][0], *dates[-1].span())
    digits = _DIGITS.search(body, max(0, start - 1), end) if _BASE_ASKED.search(prompt) else None
    if digits is None or denied(body, start, end, *digits.span("value")):
        return None
    before = body[start : digits.start("value")]
    if related(before) or _HEDGED.search(before) or of_another(prompt, before):
        return None
    return Named("", digits["value"], *digits.span("value"))


_CHANCE_ASKED = re.compile(
    r"(?i)\b(?:probability|chances?|likelihood|odds|wahrscheinlichkeit|chance|probabilité"
    r"|probabilidad\w*"
    r"|probabilità)\b|вероятност|шанс"
)
_CHANCE = re.compile(
    r"(?i)(?P<lead>[^\d;:=]*?)(?<![\w-])(?P<part>\d+|one|eine?|une?|una|uno|uma?|один|одна)"
    r"(?: [^\W\d_]+)?[ -]+(?:in|out of|von|sur|de cada|de|en|entre|em(?: cada)?|su|из)[ -]+"
    r"(?P<whole>\d+)[*]*(?:[ -](?:chances?|times|cases|Fällen|cas|casos|casi|случаев))?[\s.!*]*"
)
_LEAD_WORDS = words(
    "so thus hence therefore then the this that it is s there a an happens in of equal to "
    "probability chance likelihood die der das ist also damit somit wahrscheinlichkeit beträgt "
    "est c ce donc il y la de d des probabilité es decir por tanto lo hay una un probabilidad "
    "probabilidade a são é portanto há ou seja quindi è di probabilità значит это итак вероятность "
    "равна"
)
"""Words that may stand before a chance, with its name."""
_RATIO_ASKED = re.compile(
    r"(?i)\b(?:ratio|odds|verhältnis|rapport|razón|razão|proporção|rapporto)\b|отношени"
)
_RATIO = re.compile(
    r"(?:\b(?:is|are|of|equals|be|have|becomes|(?:simplifies|reduces) to|ist|beträgt|est(?: de)?"
    r"|es(?: de)?|é(?: de)?|è(?: di)?|равно|как)|=|:)\s*[*]*(?P<first>\d+)"
    r"(?P<one>(?: [^\W\d_]+){0,2}?) (?:(?:for|to) every|to|zu|à|a|para|к) (?P<second>\d+)"
    r"(?P<other>(?: (?!in\b)[^\W\d_]+){0,2}?)[*]*"
    r"(?: in (?:simplest form|lowest terms))?[\s.!*]*$"
)
_PAIR = re.compile(
    r"\b((?:[^\W\d_]{3,} )??[^\W\d_]{3,})\s?(?:to|:|zu|à|a|para|к)\s(?:the |den |les |las |as )?"
    r"([^\W\d_]{3,}(?: [^\W\d_]{3,})?)"
)


def _by_ratio(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return `3:2` of a closing sentence that ends in `3 to 2`, or in `3 boys to 2 girls`, where a
    ratio is asked, of the same things in the same order; else None.
    """
    if not _RATIO_ASKED.search(prompt):
        return None
    sentence = _in_digits(body, start, end)
    ratio = _RATIO.search(sentence)
    before = sentence[: ratio.start()] if ratio else ""
    if ratio is None or DENIAL.search(before) or DOUBTED.search(before) or related(before):
        return None
    question = asking(prompt).lower()
    named = [ratio[name].strip().lower() for name in ("one", "other")]
    places = [question.find(name) for name in named]
    if any(named) and not -1 < places[0] < places[1]:
        return None
    turned = {(second, first) for first, second in _PAIR.findall(question)}
    if turned.intersection(_PAIR.findall(before.lower())):
        return None
    value = f"{ratio['first']}:{ratio['second']}"
    return Named("", value, start, end)


def _in_digits(body: str, start: int, end: int) -> str:
    """Return a sentence with all its numbers in digits."""
    sentence = body[start:end]
    for number in [*spelled_numbers(body, start, end, alone=True)][::-1]:
        before, behind = body[start : number.start], sentence[number.end - start :]
        sentence = f"{before}{number.digits}{behind}"
    return sentence


def _by_chance(prompt: str, body: str, start: int, end: int) -> Named | None:
    """Return the fraction of `a 3 in 4 chance` where a probability is asked; else None."""
    if not _CHANCE_ASKED.search(prompt):
        return None
    chance = _CHANCE.fullmatch(_in_digits(body, start, end))
    lead = chance["lead"] if chance else ""
    said = {word.lower() for word in re.findall(r"[^\W\d_]+", lead)}
    if chance is None or not said <= _LEAD_WORDS:  # `the chance of blue is` says it of another
        return None
    part, whole = (int(n) if n.isdigit() else 1 for n in chance.group("part", "whole"))
    return Named("", f"{part}/{whole}", start, end) if part <= whole else None


_VERBS = "is|are|was|were|does|do|did|can|could|will|has|have|cannot"
_ASKED_BACK = re.compile(rf"(?i)\W*(?:{_VERBS})\b")


def _finite(clause: str, asked: str) -> bool:
    """Return whether a clause has the verb of the question in the third person: `converges`."""
    in_question = set(re.findall(r"[a-z]+", asked.lower()))
    return any(word[:-1] in in_question for word in re.findall(r"[a-z]+s\b", clause.lower()))


def content(text: str) -> set[str]:
    """Return the words, signs and numbers of a text that say more than its grammar."""
    plain = re.sub(r"n['’]t\b|n?not\b", " not", text.lower())
    pieces = re.findall(r"[^\W_]+|[^\w\s.,$*'’()]", plain)
    return {word.removesuffix("s") for word in pieces if word not in LINKING}
