"""The smallest verifier: the answer is the gold, up to surrounding space and case."""

from __future__ import annotations

import math
import unicodedata

from ludus.verdict import Verdict

from .protocol import Sample


def exact(sample: Sample) -> Verdict:
    """Return 1 if the response equals the gold up to case, white space and the way in which accents
    are encoded, else 0. The gold is a text or a number, or a list of alternatives.

    A gold that says nothing (an empty text or list, `None`, `nan`) is invalid: an empty answer
    would equal it.
    """
    golds = sample.gold if isinstance(sample.gold, list) else [sample.gold]
    if not golds or not all(map(_says_something, golds)):
        return Verdict.invalid(
            "exact needs a gold: a text, or a list of texts that all count as right; none is empty"
        )
    answer = _plain(sample.text)
    hit = any(answer == _plain(str(gold)) for gold in golds)
    return Verdict.of(
        float(hit), "equal" if hit else f"{answer[:80]!r} is not the gold{sample.silence}"
    )


def _says_something(gold: object) -> bool:
    if isinstance(gold, float):
        return math.isfinite(gold)
    return isinstance(gold, int) or (isinstance(gold, str) and bool(gold.strip()))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split()).casefold()


exact.cheap_to_repeat = True  # type: ignore[attr-defined]
