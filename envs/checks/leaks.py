"""Detects whether what is shown before the first action gives the answer away.

A short gold such as `7` turns up in many texts by chance. So several tasks are examined, and a
place leaks only if it shows the gold of its own task in nearly all of them, while the golds of the
*other* tasks mostly do not appear (a question that lists the choices A to D shows every gold).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

OWN_RATE = 0.9
"""Share of tasks from which a place in the observation that shows its own task's gold is suspected
of leaking.
"""
OTHERS_RATE = 0.5
"""Share of other tasks' golds from which the same place is cleared of the suspicion."""


def leaks(places_shown: Sequence[Mapping[str, object]], golds: Sequence[object]) -> list[str]:
    """Return the names of the places that show the gold.

    Args:
        places_shown: for each task, place -> what is shown there (text, or any value).
        golds: the gold of each task, in the same order.

    >>> leaks([{"observation": "6*7 (it is 42)"}, {"observation": "2*4 (8)"}], [42, 8])
    ['observation']
    """
    forms = [forms_of(gold) for gold in golds]
    places = dict.fromkeys(place for task_places in places_shown for place in task_places)
    texts = {
        place: [as_text(task_places.get(place, "")) for task_places in places_shown]
        for place in places
    }
    return [place for place in places if _leaks(texts[place], forms)]


def _leaks(texts: Sequence[str], forms: Sequence[frozenset[str]]) -> bool:
    own_leaks = [_shows(text, gold) for text, gold in zip(texts, forms, strict=True)]
    other_leaks = [
        _shows(text, gold)
        for i, text in enumerate(texts)
        for j, gold in enumerate(forms)
        if i != j and gold != forms[i]
    ]
    return _rate(own_leaks) >= OWN_RATE and _rate(other_leaks) < OTHERS_RATE


def _rate(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else 0.0


def _shows(text: str, gold: frozenset[str]) -> bool:
    for form in gold:
        # The form as a whole word or number: `5` is not shown by `1.5`.
        words = r"\s+".join(re.escape(word) for word in form.split())
        whole = rf"(?<!\w)(?<!\d[.,/]){words}(?!\w)(?![.,/]\d)"
        if re.search(whole, text, re.IGNORECASE):
            return True
    return False


def forms_of(gold: object) -> frozenset[str]:
    """Return the texts a gold can appear as; a list of alternatives gives the forms of each.

    >>> sorted(forms_of(42.0))
    ['42', '42.0']
    """
    if isinstance(gold, (list, tuple, set, frozenset)):
        return frozenset(form for item in gold for form in forms_of(item))
    forms = {as_text(gold).strip()}
    if isinstance(gold, (float, Fraction)) and gold == int(gold):
        forms.add(str(int(gold)))
    return frozenset(form for form in forms if form)


def as_text(value: object) -> str:
    """Return a value as text: strings and numbers unchanged, anything else as JSON."""
    if isinstance(value, (str, int, float, Fraction)):
        return str(value)
    return msgspec.json.encode(value, enc_hook=repr).decode()
