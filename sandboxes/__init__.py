"""Where untrusted code runs: slots behind walls, and grading that a solution cannot fool."""

from __future__ import annotations

from .containers import DockerSandbox
from .egress import NetworkNotAllowed, NetworkPolicy
from .facade import close_default, execute, execute_async, grade, grade_async
from .grading import GradeOptions, Grading, TestResult, grade_in_detail
from .grading_repository import grade_repository
from .languages import LANGUAGES, UnknownLanguage
from .protocol import Execution, ExecutionStatus, Limits, Sandbox, Usage
from .sessions import Session, Snapshot
from .slot_sandbox import SlotSandbox
from .tiers import TIERS, Finding, examine, open_sandbox
from .warden import NotSnapshotable

__all__ = [
    "LANGUAGES",
    "TIERS",
    "DockerSandbox",
    "Execution",
    "ExecutionStatus",
    "Finding",
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
