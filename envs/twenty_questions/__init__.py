"""Twenty questions, with a scripted user who answers yes, no, or that it does not understand."""

from .env import TwentyQuestions
from .things import PROPERTIES, Thing, draw_things, questions_needed
from .user import Asked, NotUnderstood, understand

__all__ = [
    "PROPERTIES",
    "Asked",
    "NotUnderstood",
    "Thing",
    "TwentyQuestions",
    "draw_things",
    "questions_needed",
    "understand",
]
