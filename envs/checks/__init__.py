"""The contract of environments as a suite of checks that anyone can run on an environment.

from ludus.envs.checks import check_env

def test_echo_keeps_the_contract() -> None:
    check_env("me/echo-v0")
"""

from ludus.contract import Finding, Report, RuleOutcome

from .rules import check_env, examine_env, leaks

__all__ = ["Finding", "Report", "RuleOutcome", "check_env", "examine_env", "leaks"]
