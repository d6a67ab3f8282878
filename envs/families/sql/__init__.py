"""The text-to-SQL environment: questions about random databases, judged by execution."""

from .compare import same_table
from .databases import Database
from .queries import SqlQuestion
from .runner import TooCostly, run_untrusted
from .sql_env import Sql
from .suite import Suite, build_suite
from .themes import THEMES, Theme

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
