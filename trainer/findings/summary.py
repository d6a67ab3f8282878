"""Findings as text: the lines at the end of a run, and the report of `ludus explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ludus.findings import RunFinding, gravest_first

from .diagnosis import Diagnosis
from .rule import RULES

MOST = 3
"""Most lines of a summary."""


def roots_of(findings: Sequence[RunFinding]) -> list[RunFinding]:
    """Return the findings that are no consequence of another, the gravest first."""
    roots = [each for each in findings if each.cause is None]
    return gravest_first(sorted(roots, key=lambda each: each.since))


def consequences_of(finding: RunFinding, findings: Sequence[RunFinding]) -> list[RunFinding]:
    """Return all consequences of a finding, direct ones and those of consequences."""
    direct = [each for each in findings if each.cause == finding.name]
    return [every for each in direct for every in (each, *consequences_of(each, findings))]


def summary_of(diagnosis: Diagnosis) -> list[str]:
    """Return how a run stands, in three lines at most: its state with the reward, and the gravest
    findings with what to do.
    """
    if not diagnosis.history.rows and diagnosis.history.updates:
        return [f"trained on data: {losses_of(diagnosis.history.updates)}"]
    findings = diagnosis.standing()
    level = diagnosis.history.level(3)
    held_out = [row["eval/mean"] for row in diagnosis.history.held_out if "eval/mean" in row]
    scores = f", held-out {held_out[0]:.3f} -> {held_out[-1]:.3f}" if len(held_out) > 1 else ""
    reward = "no step has a reward" if level is None else f"reward {level}{scores}"
    control = diagnosis.history.setting("control")
    kind = f" (control run, rewards {control})" if control else ""
    lines = [f"{diagnosis.state or 'nothing to tell yet'}: {reward}{kind}"]
    grave = [each for each in roots_of(findings) if each.severity != "info"]
    for finding in grave[: MOST - 1]:
        lines.append(line_of(finding, findings))
    return lines


LOSSES = {"loss": "loss", "held_out/loss": "held-out loss", "held_out/accuracy": "agreement"}
"""From a column of a run on data to its name in the summary."""


def losses_of(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the first and the last value of each loss of a run on data.

    >>> losses_of([{"loss": 2.0}, {"loss": 1.5, "held_out/loss": 1.75}])
    'loss 2.000 -> 1.500, held-out loss 1.750'
    """
    parts = list[str]()
    for name, title in LOSSES.items():
        values = [row[name] for row in rows if name in row]
        ends = values if len(values) < 2 else [values[0], values[-1]]
        if ends:
            parts.append(f"{title} {' -> '.join(f'{value:.3f}' for value in ends)}")
    return ", ".join(parts)


def line_of(finding: RunFinding, findings: Sequence[RunFinding] = ()) -> str:
    """Return a finding as a line: its name and step, its sentence, consequences and remedy."""
    names = [each.name for each in consequences_of(finding, findings)]
    follows = f" (so {', '.join(names)})" if names else ""
    remedy = f". Try {finding.remedy}" if finding.remedy else ""
    return f"{finding.name} since step {finding.since}: {finding.sentence}{follows}{remedy}"


def explained(diagnosis: Diagnosis, events: Sequence[RunFinding] = ()) -> list[str]:
    """Return the lines of the whole report: the state of a run, each finding without a cause with
    its threshold, columns, consequences and remedy, and the events.
    """
    history, findings = diagnosis.history, diagnosis.standing()
    of = f" of {history.steps}" if history.steps else ""
    lines = [*summary_of(diagnosis)[:1], f"step {history.step}{of}"]
    sources = {rule.name: rule.source for rule in RULES}
    for finding in roots_of(findings):
        closed = "" if finding.status == "open" else f", until step {finding.step}"
        lines += [
            "",
            f"{finding.severity}  {finding.name}, since step {finding.since}{closed}",
            f"  {finding.sentence}",
            f"  threshold {finding.threshold:g} ({sources[finding.name]}); "
            f"see {', '.join(finding.evidence)}",
        ]
        lines += [
            f"  so {each.name}, since step {each.since}: {each.sentence}"
            for each in consequences_of(finding, findings)
        ]
        lines += [f"  try {finding.remedy}"] if finding.remedy else []
    event_lines = [
        f"  {event.name}, at step {event.step}: {event.sentence}"
        for event in events
        if event.severity != "info"
    ]
    return [*lines, *(["", "events"] if event_lines else []), *event_lines]
