"""The rules, in one list."""

from __future__ import annotations

from .learner_rules import LEARNER_RULES
from .reward_rules import REWARD_RULES
from .rollout_rules import ROLLOUT_RULES
from .rule import FindingRule

RULES: tuple[FindingRule, ...] = (*LEARNER_RULES, *ROLLOUT_RULES, *REWARD_RULES)
"""Every rule, causes before what they cause where that is possible."""
