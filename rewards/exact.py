"""The smallest verifier: the answer is the gold, up to surrounding space and case."""

from __future__ import annotations

import math
import unicodedata

from ludus.verdict import Verdict

from .protocol import Sample


def exact(sample: Sample) -> Verdict:
    """Return 1 if the response equals the gold up to case and white space, else 0. The gold may be
    a list of alternatives.
    """
    golds = sample.gold if isinstance(sample.gold, list) else [sample.gold]
    if not golds or not all(map(_says_something, golds)):
        given = "" if sample.gold is None else f"; {sample.gold!r:.80} says nothing"
        return Verdict.invalid(
            f"exact needs a gold: a text, or a list of texts that all count as right{given}"
        )
    answer = _plain(sample.text)
    hit = any(answer == _plain(str(gold)) for gold in golds)
    return Verdict.of(
        float(hit), "equal" if hit else f"{answer[:80]!r} is not the gold{sample.silence}"
    )


def _says_something(gold: object) -> bool:
    """Return whether a gold is a number or a text that no empty answer equals."""
    if isinstance(gold, float):
        return math.isfinite(gold)
    return isinstance(gold, int) or (isinstance(gold, str) and bool(gold.strip()))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split()).casefold()


exact.cheap_to_repeat = True  # type: ignore[attr-defined]
