"""The twenty questions environment, with a scripted user who answers yes or no."""

from .things import PROPERTIES, Thing, draw_things, questions_needed
from .twenty_questions_env import TwentyQuestions
from .user import AskedProperty, NotUnderstood, understand

__all__ = [
    "PROPERTIES",
    "AskedProperty",
    "NotUnderstood",
    "Thing",
    "TwentyQuestions",
    "draw_things",
    "questions_needed",
    "understand",
]
