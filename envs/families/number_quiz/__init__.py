"""The number quiz: short questions about whole numbers, for released models of little skill."""

from .number_quiz_env import NumberQuiz

__all__ = ["NumberQuiz"]
