"""Where untrusted code runs: slots behind walls, and grading that a solution cannot fool."""

from __future__ import annotations

from .api import close_default, execute, execute_async, grade, grade_async
from .docker import DockerSandbox
from .grading.hidden_tests import GradeOptions, Grading, TestResult, grade_in_detail
from .grading.repository import grade_repository
from .languages import LANGUAGES, UnknownLanguage
from .local.slot_sandbox import SlotSandbox
from .network import NetworkNotAllowed, NetworkPolicy
from .open import TIERS, TierFinding, examine, open_sandbox
from .protocol import Execution, ExecutionStatus, Limits, Sandbox, Usage
from .repl.session import Session, Snapshot
from .repl.snapshot_client import NotSnapshotable

__all__ = [
    "LANGUAGES",
    "TIERS",
    "DockerSandbox",
    "Execution",
    "ExecutionStatus",
    "GradeOptions",
    "Grading",
    "Limits",
    "NetworkNotAllowed",
    "NetworkPolicy",
    "NotSnapshotable",
    "Sandbox",
    "Session",
    "SlotSandbox",
    "Snapshot",
    "TestResult",
    "TierFinding",
    "UnknownLanguage",
    "Usage",
    "close_default",
    "examine",
    "execute",
    "execute_async",
    "grade",
    "grade_async",
    "grade_in_detail",
    "grade_repository",
    "open_sandbox",
]
