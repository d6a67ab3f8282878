"""Rubric judges: language models that grade what rules cannot, with every guard a reward needs."""

from .aggregate import aggregate
from .judge import RubricJudge
from .preference import PreferenceJudge
from .rubric import Aggregation, ItemKind, Rubric, RubricItem, load_rubric, read_rubric

__all__ = [
    "Aggregation",
    "ItemKind",
    "PreferenceJudge",
    "Rubric",
    "RubricItem",
    "RubricJudge",
    "aggregate",
    "load_rubric",
    "read_rubric",
]
