"""The twenty questions environment, with a scripted user who answers yes or no."""

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
