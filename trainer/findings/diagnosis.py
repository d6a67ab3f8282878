"""The diagnosis of a run: rules are applied step by step, and findings open and close."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ludus.findings import RunFinding, State, newest, read_findings

from .history import RunHistory, read_failures, rows_of
from .rule import RULES, FindingRule

RECENT = 10
"""Steps for which a finding that has closed still explains others."""
LEVEL = 3
"""Steps after which a rule about a level, and not about a trend, is asked."""
BIGGEST = 1e9
"""The largest number of a finding: JSON has no infinity."""
WORST: tuple[State, ...] = ("broken", "stuck", "solved", "learning")


class Diagnosis:
    """The findings of a run, which follow from its rows alone.

    Args:
        history: the run, which may have rows already.
        rules: the rules.
    """

    def __init__(self, history: RunHistory, rules: tuple[FindingRule, ...] = RULES) -> None:
        self.history = history
        self.findings: dict[str, RunFinding] = {}
        """The newest change of each finding."""
        self._rules = rules

    def add(self, row: Mapping[str, float]) -> list[RunFinding]:
        """Add a row of `metrics.jsonl`, and return the findings that have opened, changed or
        closed.
        """
        before = dict(self.findings)
        if self.history.add(row) or "eval/episodes" in row:
            for rule in self._rules:
                self._apply(rule)
            self._find_causes()
        return [each for name, each in self.findings.items() if before.get(name) != each]

    def _apply(self, rule: FindingRule) -> None:
        history, present = self.history, self.findings.get(rule.name)
        # A run of one or two steps is judged by what it has, but a trend takes its steps.
        short = rule.after <= LEVEL
        enough = min(rule.after, int(history.setting("steps"))) if short else rule.after
        number = rule.number(history) if len(history.rows) >= enough else None
        is_open = present is not None and present.status == "open"
        if is_open and present is not None and (number is None or rule.is_over(number)):
            self.findings[rule.name] = msgspec.structs.replace(
                present, step=history.step, status="closed"
            )
        elif not is_open and number is not None and rule.holds(number):
            # At the end of the list again, so that findings stand in the order of their opening.
            self.findings.pop(rule.name, None)
            self.findings[rule.name] = self._opened(rule, number)

    def _opened(self, rule: FindingRule, number: float) -> RunFinding:
        step = self.history.step
        # With dashes, as the command line's help writes the settings.
        remedy = re.sub(
            r"--[\w.]+", lambda name: name[0].replace("_", "-"), rule.remedy_of(self.history)
        )
        return RunFinding(
            step=step,
            name=rule.name,
            severity=rule.severity,
            state=rule.state,
            since=step,
            number=max(-BIGGEST, min(BIGGEST, number)) if not math.isnan(number) else 0.0,
            threshold=rule.threshold,
            sentence=rule.sentence_of(self.history, number),
            remedy=remedy,
            evidence=list(rule.evidence),
        )

    def _find_causes(self) -> None:
        step = self.history.step
        for rule in self._rules:
            finding = self.findings.get(rule.name)
            if finding is None or finding.status != "open" or finding.cause is not None:
                continue
            explains = (
                name
                for name in rule.causes
                if self._explains(name, finding.since) and rule.name not in self.causes_of(name)
            )
            cause = next(explains, None)
            if cause is not None:
                self.findings[rule.name] = msgspec.structs.replace(finding, step=step, cause=cause)

    def causes_of(self, name: str) -> list[str]:
        """Return the finding `name`, its cause, the cause of that, and so on: never in a circle,
        since whatever explains a finding is not explained by it.
        """
        chain = [name]
        while (finding := self.findings.get(chain[-1])) is not None and finding.cause is not None:
            chain.append(finding.cause)
        return chain

    def _explains(self, name: str, since: int) -> bool:
        """Whether a finding held shortly before something else began, or began soon after."""
        cause = self.findings.get(name)
        if cause is None or cause.since > since + RECENT:
            return False
        return cause.status == "open" or cause.step >= since - RECENT

    @property
    def state(self) -> State | None:
        """The state of the run: the worst among its open findings; None if no finding has one."""
        return state_of(self.findings.values())

    def standing(self) -> list[RunFinding]:
        """Return the findings after the newest step: open ones with the numbers of this step, and
        closed ones that are causes of open ones.
        """
        rules = {rule.name: rule for rule in self._rules}
        causes = {each.cause for each in self.findings.values() if each.status == "open"}
        for _ in self.findings:  # a cause may have a cause
            causes |= {self.findings[name].cause for name in causes if name in self.findings}
        standing: list[RunFinding] = []
        for name, finding in self.findings.items():
            number = rules[name].number(self.history) if finding.status == "open" else None
            if number is not None:
                renewed = self._opened(rules[name], number)
                standing.append(
                    msgspec.structs.replace(renewed, since=finding.since, cause=finding.cause)
                )
            elif finding.status == "open" or name in causes:
                standing.append(finding)
        return standing


def state_of(findings: Iterable[RunFinding]) -> State | None:
    """Return the worst state of the open findings."""
    states = {finding.state for finding in findings if finding.status == "open"}
    return next((state for state in WORST if state in states), None)


def diagnose(folder: Path) -> Diagnosis:
    """Return the diagnosis of a run folder, from its metrics by the rules of today."""
    history = RunHistory.read(folder)
    history.failures = read_failures(folder)
    diagnosis = Diagnosis(history)
    for row in rows_of(folder):
        diagnosis.add(row)
    return diagnosis


def events_of(folder: Path) -> list[RunFinding]:
    """Return the events of a run: the newest finding of each name that is no rule's, such as a
    checkpoint that could not be written.
    """
    names = {rule.name for rule in RULES}
    return [each for name, each in newest(read_findings(folder)).items() if name not in names]
