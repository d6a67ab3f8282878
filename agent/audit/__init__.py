"""How far an environment or a verifier can be gamed: `audit` plays attackers against it and reports
figures with intervals, in the schema of OpenEnv's RFC 008 (version 2).
"""

from .attackers import ATTACKERS, Attacker, AttackKind, Lesson, Scene
from .episodes import audit_episodes
from .exploits import Exploit, Guard, GuardedEnv, are_closed
from .measures import Judge, audit
from .pressure import Pressure
from .report import AuditReport, CheckResult, CheckStatus, report_of
from .tallies import AttackTally, Audit
from .verifiers import cases_env, judge_by

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
    "Guard",
    "GuardedEnv",
    "Judge",
    "Lesson",
    "Pressure",
    "Scene",
    "are_closed",
    "audit",
    "audit_episodes",
    "cases_env",
    "judge_by",
    "report_of",
]
