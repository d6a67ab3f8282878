"""Rubrics that evolve with the policy (DR Tulu's RLER, arXiv 2511.19399): each question keeps a
buffer of criteria, new ones are proposed by contrasting rollouts, and those that no longer tell
rollouts apart are set aside.
"""

from .buffer import RubricBuffer, State, TrackedCriterion
from .judge import EvolvingJudge

__all__ = ["EvolvingJudge", "RubricBuffer", "State", "TrackedCriterion"]
