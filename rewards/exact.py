"""The smallest verifier: the answer is the gold, up to surrounding space and case."""

from __future__ import annotations

from ludus.verdict import Verdict

from .protocol import Sample


def exact(sample: Sample) -> Verdict:
    """Return 1 if the response equals the gold up to case and white space, else 0. The gold may be
    a list of alternatives.
    """
    if sample.gold is None:
        return Verdict.invalid(
            "exact needs a gold: a text, or a list of texts that all count as right"
        )
    golds = sample.gold if isinstance(sample.gold, list) else [sample.gold]
    answer = " ".join(sample.text.split()).casefold()
    hit = any(answer == " ".join(str(gold).split()).casefold() for gold in golds)
    return Verdict.of(
        float(hit), "equal" if hit else f"{answer[:80]!r} is not the gold{sample.silence}"
    )


exact.cheap_to_repeat = True  # type: ignore[attr-defined]
