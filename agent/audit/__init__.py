"""How far an environment or a verifier can be gamed: `audit` plays attackers that do no work, and
reports what they earn, with intervals, in the schema of OpenEnv's RFC 008 (version 2).

Read the files in this order; the module docstring of each defines its words.

1. `attackers.py`: what an attacker is, what it knows (a `Scene`, with a `Lesson` for each other
   task), and the attackers that are always played.
2. `answers.py`: a deed, a place of a deed, and whether an episode did the task.
3. `measures.py`, with `arena.py`: the course of an audit; `tallies.py` counts, `report.py` prints.
4. `places.py`, `deeds.py`, `forgeries.py`, `meddling.py`: how the expert's episode is spoilt;
   `laws.py` has the list of all of these changes.
5. `farms.py` (the expert's actions repeated), `climbers.py` (attackers that follow replies).
6. `rules.py` with `pieces.py` and `choosers.py` (answers read off a task), `moves.py`,
   `slots.py`, `programs.py`, `search.py` (the search for programs of moves), `notation.py` (calls
   written as text).
7. `pressure.py` (training by the reward alone), `model.py` (a model that is asked to cheat),
   `exploits.py` (guards), `episodes.py` (the audit of training), `verifiers.py`.
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
