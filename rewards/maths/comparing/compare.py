"""The comparison of an answer with a gold, up to the point where both are plain values to match."""

from __future__ import annotations

from ..proving.judge import Judge
from ..reading.nodes import EXACT, Node, symbols
from .approximations import readings
from .constants import is_antiderivative
from .domains import without_exclusions
from .families import counting, real_numbers, whole_numbers
from .matching import matches
from .tasks import is_open, unevaluated, worked


def compare(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether `answer` says the same as `gold`.

    A gold that is a task (a determinant, say) is worked out first. A gold with an approximation
    has two readings, either of which may be answered.

    Raises:
        NeedsPool: the cheap steps leave the question open.
    """
    if gold.op in EXACT and answer.op in EXACT:
        return matches(gold, answer, judge)
    answer = without_exclusions(gold, answer)
    if answer.op == "rel" and len(answer.args) > 2 and set(answer.note.split()) == {"="}:
        answer = _without_tasks(answer)
    parts = answer.args if answer.op == "list" else (answer,)
    claimed = tuple(
        side for part in parts for side in (part.args[1:] if part.op == "rel" else (part,))
    )
    if any(unevaluated(side) for side in claimed) and not is_open(gold):
        return judge.decided(
            "unevaluated", False, "the answer repeats a task instead of working out the value"
        )
    if gold.op == "call" and gold.note == "integral":
        return is_antiderivative(gold, answer, judge)
    if unevaluated(gold) and not symbols(gold) and symbols(claimed[-1]):
        return judge.decided(
            "free letters", False, "the gold is a number, and the answer has free letters"
        )
    judge.whole, judge.free = whole_numbers(gold), real_numbers(gold)
    judge.counts = counting(gold) if judge.whole else judge.whole
    exact, rounded = readings(worked(gold))
    if exact is not None and matches(exact, answer, judge):
        return True
    if rounded is None:
        return False
    judge.approximate = True
    return matches(rounded, answer, judge)


def _without_tasks(chain: Node) -> Node:
    """Return a chain without the steps that are tasks themselves: `lim f = 3 lim g = 3`."""
    first, *steps, last = chain.args
    kept = (first, *(step for step in steps if not unevaluated(step)), last)
    return chain._replace(args=kept, note=" ".join("=" for _ in kept[1:]))
