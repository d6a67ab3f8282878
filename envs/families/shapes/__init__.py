"""`ludus/shapes-v0`: questions about pictures of coloured shapes."""

from .shapes_env import ShapesQuiz

__all__ = ["ShapesQuiz"]
