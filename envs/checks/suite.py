"""The whole contract suite of environments, rule by rule."""

from __future__ import annotations

from ludus.contract import Report, Rule, examine

from . import conduct, fairness, task_rules
from .patience import STEP_TIMEOUT_S
from .subject import Checkable, EnvUnderCheck, subject_of

RULES: list[Rule[EnvUnderCheck]] = [
    ("types", conduct.returns_the_right_types),
    ("briefing", conduct.describes_its_tools),
    ("json", conduct.info_is_json),
    ("tasks", task_rules.has_stable_tasks),
    ("splits", task_rules.keeps_splits_apart),
    ("replay", conduct.replays_an_episode),
    ("gold", fairness.hides_its_gold),
    ("expert", fairness.rewards_its_expert),
    ("hostile text", fairness.scores_hostile_text),
    ("order", conduct.refuses_steps_out_of_order),
    ("actions", conduct.refuses_wrong_actions),
    ("gymnasium", conduct.passes_gymnasiums_own_check),
    ("close", conduct.closes_twice),
]
"""The rules in order; the rules that leave the environment closed come last."""


def check_env(
    env: Checkable, *, max_return: float | None = None, step_timeout_s: float = STEP_TIMEOUT_S
) -> Report:
    """Check an environment against the contract.

    Args:
        env: an id, `URL#ID` of a served environment, or a `TextEnv` class or object.
        max_return: the highest possible return; the environment's expert must reach it.
        step_timeout_s: the limit of a single reset or step; a later call is given up, which works
            on the main thread only.

    Returns:
        What each rule found.

    Raises:
        CheckFailed: rules are broken; the message names each, and what to do.
    """
    report = examine_env(env, max_return=max_return, step_timeout_s=step_timeout_s)
    return report.raise_if_failed()


def examine_env(
    env: Checkable, *, max_return: float | None = None, step_timeout_s: float = STEP_TIMEOUT_S
) -> Report:
    """Do what `check_env` does, but report broken rules instead of raising."""
    subject = subject_of(env)
    subject.max_return, subject.step_timeout_s = max_return, step_timeout_s
    try:
        _ = subject.gym  # an unknown id or a missing extra raises here, and is not a finding
        return examine(subject.name, subject, RULES)
    finally:
        subject.close()
