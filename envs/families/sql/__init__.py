"""The text-to-SQL environment: questions about random databases, judged by execution."""

from .compare import Suite, build_suite, same_table
from .queries import THEMES, Database, SqlQuestion, Theme
from .runner import TooCostly, run_untrusted
from .sql_env import Sql

__all__ = [
    "THEMES",
    "Database",
    "Sql",
    "SqlQuestion",
    "Suite",
    "Theme",
    "TooCostly",
    "build_suite",
    "run_untrusted",
    "same_table",
]
