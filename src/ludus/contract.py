"""Findings of a contract suite: the result of each rule for an environment or a verifier.

The suites are `ludus.envs.checks` and `ludus.rewards.checks`. A rule is a function that returns
what it saw, raises `CheckFailed` where the contract is broken, or `NotApplicable`.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from ludus.errors import CheckFailed, LudusError

Subject = TypeVar("Subject")
Rule = tuple[str, Callable[[Subject], str]]
LIBRARIES = (
    "<frozen ",
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
)
"""Beginnings of the paths of files that the author of an environment does not edit."""


class RuleOutcome(StrEnum):
    """The outcome of a rule."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class NotApplicable(LudusError):
    """The rule has nothing to examine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule of the contract and the outcome."""

    rule: str
    outcome: RuleOutcome
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings about a subject, in the order of the rules."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule failed."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        """The rules that failed."""
        return [finding for finding in self.findings if finding.outcome is RuleOutcome.FAILED]

    def raise_if_failed(self) -> Report:
        """Return this report, or raise if a rule failed.

        Raises:
            CheckFailed: a rule failed; the message names each.
        """
        if self.failures:
            failed = [f for f in self.brief() if f.outcome is RuleOutcome.FAILED]
            failures = "; ".join(f"{finding.rule}: {finding.detail}" for finding in failed)
            raise CheckFailed(f"{self.subject}: {failures}")
        return self

    def brief(self) -> list[Finding]:
        """Return the findings with each failure told once, since a fault may break many rules."""
        details: dict[str, str] = {}
        findings: list[Finding] = []
        for finding in self.findings:
            if finding.outcome is RuleOutcome.FAILED:
                first = details.setdefault(finding.detail, finding.rule)
                if first != finding.rule:
                    finding = replace(finding, detail=f"the same as {first!r}")
            findings.append(finding)
        return findings

    def __str__(self) -> str:
        return "\n".join(f"{f.outcome:<8}{f.rule}: {f.detail}" for f in self.brief())


def examine(name: str, subject: Subject, rules: Sequence[Rule[Subject]]) -> Report:
    """Apply every rule to `subject`; a failed rule does not stop the others."""
    findings: list[Finding] = []
    for rule, check in rules:
        try:
            outcome, detail = RuleOutcome.PASSED, check(subject)
        except NotApplicable as reason:
            outcome, detail = RuleOutcome.SKIPPED, str(reason)
        except CheckFailed as error:
            outcome, detail = RuleOutcome.FAILED, str(error)
        except Exception as error:  # what is checked may be broken in any way
            outcome = RuleOutcome.FAILED
            detail = f"{type(error).__name__}: {error} ({where(error)})"
        findings.append(Finding(rule, outcome, detail))
    return Report(name, tuple(findings))


def where(error: BaseException) -> str:
    """Return the innermost place in the traceback that is in no library, `file.py:12`."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "no traceback"
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)] or frames
    return f"{own[-1].filename.rpartition('/')[2]}:{own[-1].lineno}"
