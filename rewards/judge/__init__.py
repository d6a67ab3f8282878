"""Rubric judges: language models that grade what rules cannot, with every guard a reward needs."""

from .caller import Effort, JudgeCaller
from .judge import RubricJudge, data_of, failure
from .preference import PreferenceJudge
from .prompt import about_item
from .reading import read_item
from .rubric import Aggregation, ItemKind, Rubric, RubricItem, aggregate, load_rubric, read_rubric
from .settings import JudgeSettings, open_judge

__all__ = [
    "Aggregation",
    "Effort",
    "ItemKind",
    "JudgeCaller",
    "JudgeSettings",
    "PreferenceJudge",
    "Rubric",
    "RubricItem",
    "RubricJudge",
    "about_item",
    "aggregate",
    "data_of",
    "failure",
    "load_rubric",
    "open_judge",
    "read_item",
    "read_rubric",
]
