"""Sandboxes run untrusted code in isolation, and grade solutions by tests that no solution can
see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.lazy import lazy_exports

if TYPE_CHECKING:
    from .api import close_default, execute, execute_async, grade, grade_async
    from .docker import DockerSandbox
    from .grading.hidden_tests import GradeOptions, Grading, TestResult, grade_in_detail
    from .grading.repository import grade_repository
    from .languages import LANGUAGES, UnknownLanguage
    from .local.slot_sandbox import SlotSandbox
    from .network import NetworkNotAllowed, NetworkPolicy
    from .open import TIERS, TierFinding, examine, open_sandbox
    from .protocol import Execution, ExecutionStatus, Limits, Program, Sandbox, Usage
    from .remote import RemoteSandbox
    from .repl.session import Session, Snapshot
    from .repl.snapshot_client import NotSnapshotable
    from .serving.blocking import BlockingSandbox
    from .serving.server import SandboxService

__all__ = [
    "LANGUAGES",
    "TIERS",
    "BlockingSandbox",
    "DockerSandbox",
    "Execution",
    "ExecutionStatus",
    "GradeOptions",
    "Grading",
    "Limits",
    "NetworkNotAllowed",
    "NetworkPolicy",
    "NotSnapshotable",
    "Program",
    "RemoteSandbox",
    "Sandbox",
    "SandboxService",
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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".api": "close_default execute execute_async grade grade_async",
        ".docker": "DockerSandbox",
        ".grading.hidden_tests": "GradeOptions Grading TestResult grade_in_detail",
        ".grading.repository": "grade_repository",
        ".languages": "LANGUAGES UnknownLanguage",
        ".local.slot_sandbox": "SlotSandbox",
        ".network": "NetworkNotAllowed NetworkPolicy",
        ".open": "TIERS TierFinding examine open_sandbox",
        ".serving.blocking": "BlockingSandbox",
        ".serving.server": "SandboxService",
        ".protocol": "Execution ExecutionStatus Limits Program Sandbox Usage",
        ".remote": "RemoteSandbox",
        ".repl.session": "Session Snapshot",
        ".repl.snapshot_client": "NotSnapshotable",
    },
)
