"""Combines the scores of a rubric's items into a reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .rubric import Aggregation, Rubric, RubricItem


def fails_gate(item: RubricItem, score: float) -> bool:
    """Return whether a gate fails: a merit with a score below 0.5, or a flaw with 0.5 or more."""
    return (score >= 0.5) is item.is_flaw


def aggregate(rubric: Rubric, scores: Mapping[str, float]) -> float:
    """Combine the scores of a rubric's items into the reward of a response.

    With scores s in [0, 1], weights w, and goodness g = s for merits and 1 - s for flaws:

    | aggregation | formula | source |
    |---|---|---|
    | positive_normalised | sum(w s) / sum(w where w > 0) | HealthBench |
    | weighted_sum | sum(w s) | |
    | weighted_mean | sum(w s) / sum(w) | Rubrics as Rewards, explicit |
    | evolving | sum(w s) / max(sum(w where w > 0), 1) | DR Tulu |
    | implicit | one holistic score, read under the id `overall` | Rubrics as Rewards, implicit |
    | mean | mean(g) | |
    | min | min(g) | |
    | worst_k | mean of the k smallest g | |

    A response that fails a gate gets `rubric.floor` whatever the other items say.

    Args:
        rubric: its items, formula, clip and floor.
        scores: score by item id. Every item needs a score, unless a gate has failed: then the
            scores of the gates are enough.

    >>> from .rubric import read_rubric
    >>> rubric = read_rubric([{"text": "a", "weight": 2.0}, {"text": "b", "weight": -1.0}])
    >>> aggregate(rubric, {"item-1": 1.0, "item-2": 1.0})
    0.5
    """
    for gate in rubric.gates:
        if gate.id in scores and fails_gate(gate, scores[gate.id]):
            return rubric.floor
    if rubric.aggregation is Aggregation.IMPLICIT:
        value = scores["overall"]
    else:
        value = _combined(rubric, rubric.graded, scores)
    return min(1.0, max(0.0, value)) if rubric.clip else value


def _combined(rubric: Rubric, items: Sequence[RubricItem], scores: Mapping[str, float]) -> float:
    total = sum(item.weight * scores[item.id] for item in items)
    positive = sum(item.weight for item in items if not item.is_flaw)
    goodness = sorted(1 - scores[i.id] if i.is_flaw else scores[i.id] for i in items)
    match rubric.aggregation:
        case Aggregation.POSITIVE_NORMALISED:
            return total / positive
        case Aggregation.WEIGHTED_MEAN:
            return total / sum(item.weight for item in items)
        case Aggregation.EVOLVING:
            return total / max(positive, 1.0)
        case Aggregation.MEAN:
            return sum(goodness) / len(goodness)
        case Aggregation.MIN:
            return goodness[0]
        case Aggregation.WORST_K:
            worst = goodness[: rubric.worst]
            return sum(worst) / len(worst)
        case _:
            return total
