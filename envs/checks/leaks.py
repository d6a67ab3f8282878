"""Whether the answer can be read off what the policy or the client is shown before it acts.

One short gold such as `7` turns up in many texts by chance. So several tasks are looked at, and a
place leaks only if it shows the gold of its own task in nearly all of them, while the golds of the
*other* tasks mostly do not stand there (a question that lists the choices A to D shows every gold).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

OWN_RATE = 0.9
"""A place that shows its own task's gold at least this often is suspect,"""
OTHERS_RATE = 0.5
"""unless it shows the golds of other tasks at least this often too."""


def leaks(shown: Sequence[Mapping[str, object]], golds: Sequence[object]) -> list[str]:
    """The places that show the gold.

    Args:
        shown: of each task, what stands at each place: text, or a value.
        golds: of each task.

    >>> leaks([{"observation": "6*7 (it is 42)"}, {"observation": "2*4 (8)"}], [42, 8])
    ['observation']
    """
    forms = [forms_of(gold) for gold in golds]
    places = dict.fromkeys(place for one in shown for place in one)
    texts = {place: [as_text(one.get(place, "")) for one in shown] for place in places}
    return [place for place in places if _leaks(texts[place], forms)]


def _leaks(texts: Sequence[str], forms: Sequence[frozenset[str]]) -> bool:
    own = [_shows(text, gold) for text, gold in zip(texts, forms, strict=True)]
    others = [
        _shows(text, gold)
        for i, text in enumerate(texts)
        for j, gold in enumerate(forms)
        if i != j and gold != forms[i]
    ]
    return _rate(own) >= OWN_RATE and _rate(others) < OTHERS_RATE


def _rate(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else 0.0


def _shows(text: str, gold: frozenset[str]) -> bool:
    return any(_token(form).search(text) is not None for form in gold)


def _token(form: str) -> re.Pattern[str]:
    """`form` as a whole: not within a word, and not within a number (`5` is not in `1.5`)."""
    words = r"\s+".join(re.escape(word) for word in form.split())
    return re.compile(rf"(?<!\w)(?<!\d[.,/]){words}(?!\w)(?![.,/]\d)", re.IGNORECASE)


def forms_of(gold: object) -> frozenset[str]:
    """The texts a gold can be shown as; a list of alternatives has those of each.

    >>> sorted(forms_of(42.0))
    ['42', '42.0']
    """
    if isinstance(gold, (list, tuple, set, frozenset)):
        return frozenset(form for one in gold for form in forms_of(one))
    forms = {as_text(gold).strip()}
    if isinstance(gold, (float, Fraction)) and gold == int(gold):
        forms.add(str(int(gold)))
    return frozenset(form for form in forms if form)


def as_text(value: object) -> str:
    """A value as text; what is more than a number or text, as JSON."""
    if isinstance(value, (str, int, float, Fraction)):
        return str(value)
    return msgspec.json.encode(value, enc_hook=repr).decode()
