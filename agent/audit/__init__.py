"""How far an environment or a verifier can be gamed: `audit` plays attackers against it and reports
figures with intervals, in the schema of OpenEnv's RFC 008 (version 2).
"""

from .attackers import ATTACKERS, Attacker, AttackKind, Lesson, Scene
from .measures import AttackTally, Audit, Exploit, audit, cases_env
from .report import AuditReport, CheckResult, CheckStatus, report_of

__all__ = [
    "ATTACKERS",
    "AttackKind",
    "AttackTally",
    "Attacker",
    "Audit",
    "AuditReport",
    "CheckResult",
    "CheckStatus",
    "Exploit",
    "Lesson",
    "Scene",
    "audit",
    "cases_env",
    "report_of",
]
