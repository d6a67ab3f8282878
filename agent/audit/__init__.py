"""How far an environment or a verifier can be gamed: `audit` plays attackers against it and reports
figures with intervals, in the schema of OpenEnv's RFC 008 (version 2).
"""

from .attackers import ATTACKERS, Attacker, Kind, Lesson, Scene
from .measures import Audit, Exploit, Tally, audit, cases_env
from .report import CheckResult, Report, Status, report_of

__all__ = [
    "ATTACKERS",
    "Attacker",
    "Audit",
    "CheckResult",
    "Exploit",
    "Kind",
    "Lesson",
    "Report",
    "Scene",
    "Status",
    "Tally",
    "audit",
    "cases_env",
    "report_of",
]
