"""The report of an audit: check ids and schema of OpenEnv's RFC 008, version 2."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import StrEnum

import msgspec

from ludus.contract import RuleOutcome
from ludus.estimates import Estimate, mean_over_tasks
from ludus.messages import Message, as_action

from .attackers import AttackKind
from .tallies import CHEAT_WARNING, AttackTally, Audit

FLOOR_MARGIN = 0.25
"""The least distance between the expert and who does nothing, as a share of its reward."""
ORACLE_TOLERANCE = 0.1
SPREAD_TOLERANCE = 0.2
HEADROOM = 0.1


class CheckStatus(StrEnum):
    """The outcome of a check."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class CheckResult(msgspec.Struct, kw_only=True):
    """The result of one check: figures, what was seen, and what to repair if it failed."""

    check_id: str
    status: CheckStatus
    measured: dict[str, float | str | list[float]] = {}
    evidence: list[str] = []
    remediation: str = ""
    duration_s: float = 0.0


class AuditReport(msgspec.Struct, kw_only=True):
    """The report, with the field names of the schema."""

    report_schema_version: str = "2"
    target: str
    source_digest: str
    signature: str = "openenv.yaml"
    manifest: None = None
    policy_version: str = "v2"
    lane: str = "hub"
    levels_run: list[int] = msgspec.field(default_factory=lambda: [1, 2, 3, 4])
    results: list[CheckResult]
    verdict: str = "pass"

    @property
    def failures(self) -> list[CheckResult]:
        """The checks that failed or could not be carried out."""
        return [r for r in self.results if r.status in (CheckStatus.FAIL, CheckStatus.ERROR)]


WARNING_ONLY = {
    "runtime.trajectory_record",
    "statistical.headroom",
    "statistical.training_signal",
    "statistical.gameability_gap",
}
"""Checks whose failure is a warning."""

_CONTAINER = "it is played in this process, without a container to look at"
_UNASKED = {
    "static": (
        "manifest reproducible_build image_hygiene layout sbom oci_labels resource_declaration "
        "timeout_ceiling dependency_pinning task_distribution_pinning",
        "ludus environments are Python packages; a manifest and an image are OpenEnv's",
    ),
    "hub": (
        "layer_isolation time_to_first_work cosign_signature cross_host_determinism "
        "immutable_versioning",
        "it is about a published image",
    ),
    "runtime": ("network_policy host_containment resource_bounds", _CONTAINER),
    "semantic": ("verifier_portability resource_envelope", _CONTAINER),
}
SKIPPED = {
    "runtime.rubric_introspectable": "rewards are numbers or verdicts here, not trees of rubrics",
    "runtime.reward_attribution": "parts of a verdict are optional here",
    **{
        f"{lane}.{name}": reason
        for lane, (names, reason) in _UNASKED.items()
        for name in names.split()
    },
}
"""Checks that are not carried out, and why."""
RULE_OF = {
    "runtime.observation_schema": "types",
    "runtime.state_contract": "order",
    "runtime.trajectory_record": "json",
    "runtime.tool_declaration_accuracy": "briefing",
    "runtime.task_declaration_accuracy": "tasks",
    "runtime.seed_control": "replay",
    "runtime.episode_determinism": "replay",
    "runtime.episode_isolation": "replay",
    "runtime.oracle_containment": "gold",
    "semantic.replayability": "replay",
    "semantic.verifier_determinism": "replay",
    "semantic.canary_floor": "expert",
}
"""From an id of the audit to the rule of `ludus check` whose outcome it takes."""
_OUTCOMES = {
    RuleOutcome.PASSED: CheckStatus.PASS,
    RuleOutcome.FAILED: CheckStatus.FAIL,
    RuleOutcome.SKIPPED: CheckStatus.SKIP,
}


def report_of(audit: Audit) -> AuditReport:
    """Return the report of an audit, with a result for each check, sorted by its id."""
    rules = {finding.rule: finding for finding in audit.contract.findings}
    results = [_startup(audit)]
    results += [
        _result(_OUTCOMES[rules[rule].outcome], check_id, rules[rule].detail)
        for check_id, rule in RULE_OF.items()
    ]
    for check_id, measure in MEASURES.items():
        is_played = audit.tallies and not audit.fault
        result = measure(audit) if is_played else _skipped(UNPLAYED)
        result.check_id = check_id
        results.append(result)
    results += [_result(CheckStatus.SKIP, *why) for why in SKIPPED.items()]
    results.sort(key=lambda result: result.check_id)
    return AuditReport(
        target=audit.subject,
        source_digest=hashlib.sha256(audit.subject.encode()).hexdigest(),
        results=results,
        verdict=_verdict(results),
    )


def _verdict(results: list[CheckResult]) -> str:
    if any(
        result.status is CheckStatus.ERROR
        or (result.status is CheckStatus.FAIL and result.check_id not in WARNING_ONLY)
        for result in results
    ):
        return "fail"
    return "pass" if all(result.status is CheckStatus.PASS for result in results) else "warn"


def _result(status: CheckStatus, check_id: str, evidence: str) -> CheckResult:
    return CheckResult(check_id=check_id, status=status, evidence=[evidence] if evidence else [])


def _skipped(reason: str) -> CheckResult:
    return _result(CheckStatus.SKIP, "", reason)


def _startup(audit: Audit) -> CheckResult:
    status = CheckStatus.ERROR if audit.fault else CheckStatus.PASS
    result = _result(
        status, "runtime.startup", audit.fault or f"{len(audit.tasks)} tasks were played"
    )
    if audit.skipped:
        result.evidence.append(f"no time for {', '.join(audit.skipped)}; raise --budget-s")
    return result


def _judged(
    holds: bool, *, evidence: str = "", remedy: str = "", **figures: float | Estimate
) -> CheckResult:
    result = _result(CheckStatus.PASS if holds else CheckStatus.FAIL, "", evidence)
    result.remediation = "" if holds else remedy
    for name, figure in figures.items():
        if isinstance(figure, Estimate):
            interval = [figure.low, figure.high]
            result.measured |= {name: figure.value, f"{name}_interval": interval}
        else:
            result.measured[name] = figure
    return result


UNPLAYED = "it could not be played; see runtime.startup"
NO_EXPERT = "there is no expert to compare with: demonstrate() gives none"
ON_SERVER = "the expert stays on the server; audit it where the environment runs"


def _rewards(audit: Audit) -> CheckResult:
    faults = [f"{t.attacker.name}: {t.fault}" for t in audit.tallies if t.fault]
    return _judged(
        not faults,
        evidence="; ".join(faults[:3]),
        remedy="let step() answer any action, with a finite reward, instead of raising",
        lowest=audit.lowest,
        highest=audit.highest,
    )


def _oracle(audit: Audit) -> CheckResult:
    if audit.is_remote:
        return _skipped(ON_SERVER)
    if not audit.expert:
        return _judged(False, evidence=NO_EXPERT, remedy="write demonstrate(), the best actions")
    # What another attack earned on a task is known to be possible there, and nowhere else.
    best = max(audit.expert)
    others = [trial for tally in audit.tallies for trial in tally.trials]
    most = {task.id: paid for task, paid in zip(audit.tasks, audit.expert, strict=False)}
    short = max((t.reward - most.get(t.task, t.reward) for t in others), default=0.0)
    return _judged(
        min(audit.expert) > 0 and short <= ORACLE_TOLERANCE * abs(best),
        remedy="let demonstrate() earn something on every task, and no less than any attacker; "
        "beaten_by says by how much an attacker earned more",
        oracle_reward=audit.oracle,
        worst=min(audit.expert),
        highest=best,
        beaten_by=short,
    )


def _floor(audit: Audit) -> CheckResult:
    return _judged(
        audit.oracle - audit.floor >= FLOOR_MARGIN * abs(audit.oracle) and audit.oracle > 0,
        remedy="pay nothing for an episode in which nothing was done",
        oracle_reward=audit.oracle,
        measured_floor=audit.floor,
    )


def _leakage(audit: Audit) -> CheckResult:
    rule = next(f for f in audit.contract.findings if f.rule == "gold")
    leaks = [tally for tally in audit.winners if tally.attacker.kind is AttackKind.LEAK]
    evidence = [rule.detail] if rule.outcome is RuleOutcome.FAILED else []
    return _judged(
        not leaks and not evidence,
        evidence="; ".join([*evidence, *map(told, leaks)]),
        remedy="take the answer out of what the policy is shown, replies and refusals included; "
        "pay nothing for what was taken back, nor after more tries than allowed",
    )


def _reachability(audit: Audit) -> CheckResult:
    rewards = audit.expert or [t.reward for tally in audit.tallies for t in tally.trials]
    if not audit.expert and not any(rewards):
        return _skipped(NO_EXPERT)
    share = sum(reward > audit.floor for reward in rewards) / len(rewards) if rewards else 0.0
    return _judged(share > 0, remedy="let right actions earn more than none", reached=share)


def _separation(audit: Audit) -> CheckResult:
    if not audit.expert:
        return _skipped(NO_EXPERT)
    chance = next((t for t in audit.tallies if t.attacker.name == "random calls"), None)
    if chance is None or not chance.trials:
        return _skipped("the random player found no time")
    best = mean_over_tasks(audit.expert)
    luck = mean_over_tasks([trial.reward for trial in chance.trials])
    return _judged(
        len(audit.expert) > 1 and best.value > luck.high,
        evidence="tiers: chance and the expert; models of other sizes by `ludus eval`",
        remedy="random calls earn as much as the expert; pay for what only the task asks for",
        expert=best,
        chance=luck,
    )


def _headroom(audit: Audit) -> CheckResult:
    winners = audit.winners
    # Who spoils what the expert does on a task has its understanding.
    blind = (t for t in audit.tallies if t in winners or t.attacker.kind is not AttackKind.FORGED)
    room = 1.0 - max(tally.gain.value for tally in blind)
    remedy = "an attack earns nearly as much as the expert; repair what the failed checks name"
    return _judged(room >= HEADROOM, remedy=remedy, headroom=room)


def _variance(audit: Audit) -> CheckResult:
    if audit.spread is None:
        return _skipped(NO_EXPERT)
    signal = abs(audit.oracle - audit.floor)
    noise = audit.spread / signal if signal else 0.0
    return _judged(
        noise <= SPREAD_TOLERANCE,
        remedy="equal actions earn different rewards; score by a mean of several judgements",
        noise_to_signal=noise,
    )


def _signal(audit: Audit) -> CheckResult:
    if audit.mixed is None:
        return _skipped(NO_EXPERT)
    return _judged(
        audit.mixed.value > 0,
        remedy="the expert's actions, some replaced by junk, earn what the whole episode earns; "
        "let the reward depend on each action that the task needs",
        tasks_with_spread=audit.mixed,
    )


def _adversarial(audit: Audit) -> CheckResult:
    winners = audit.winners
    best = max(audit.tallies, key=lambda tally: tally.gain.value)
    result = _judged(
        not winners,
        evidence=told(best) if best.gain.value else "",
        remedy="check what each attack left wrong, and pay for the right result alone, once; "
        "`--keep FILE` writes an episode of each attack, which `ludus check ID --exploits FILE` "
        "plays again after a repair",
        best_attack=best.gain,
    )
    result.evidence = [told(tally) for tally in winners] or result.evidence
    return result


def _gap(audit: Audit) -> CheckResult:
    cheats = [tally for tally in audit.tallies if tally.attacker.kind is AttackKind.CHEAT]
    if not cheats:
        return _skipped("no cheat found time")
    best = max(cheats, key=lambda tally: tally.gain.low)
    pressure = audit.pressure
    figures = {"gap": best.gain}
    if pressure is not None:
        figures |= {
            "trained_reward": pressure.reward,
            "trained_success": pressure.success,
            "trained_gap": pressure.gap,
        }
    result = _judged(
        best.gain.low <= CHEAT_WARNING and (pressure is None or pressure.gap.low <= CHEAT_WARNING),
        evidence=told(best) if best.gain.value else "",
        remedy="pay nothing for an episode that solves nothing",
        **figures,
    )
    if pressure is not None:
        result.evidence.append(str(pressure))
        for rollout in pressure.episodes[:3]:
            said = [as_action(action) for action in rollout.actions]
            shown = [message.text or str(message.tool_calls) for message in said]
            result.evidence.append(
                f"on {rollout.task!r} the trained policy earns {rollout.reward:.2f} of the "
                f"expert's reward, of which {rollout.success:.2f} is deserved, for {shown!s:.160}"
            )
    return result


def told(tally: AttackTally) -> str:
    """Return a line about an attacker: its name, what it does, what it earns with the interval, and
    the task, the reward and the last action of its best episode.
    """
    best = tally.best
    action = best.actions[-1] if best.actions else ""
    about = tally.attacker.about or "answers this piece of what it was shown"
    return (
        f"{tally.attacker.name} ({about}) earns {tally.gain.value:.2f} of the expert's reward "
        f"({tally.gain.low:.2f} to {tally.gain.high:.2f}); on {best.task!r} it is paid "
        f"{best.reward:g}, its last action is {_said(action)[:80]!r}"
    )


def _said(action: object) -> str:
    """Return an action as one line: its text and its calls, such as `ship(bay=0)`."""
    if not isinstance(action, str | Message):
        return str(action)
    message = as_action(action)
    calls = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in message.tool_calls
    ]
    return " ".join(filter(None, [message.text, *calls]))


MEASURES: dict[str, Callable[[Audit], CheckResult]] = {
    "runtime.reward_well_formed": _rewards,
    "semantic.oracle_max": _oracle,
    "semantic.floor_gap": _floor,
    "semantic.no_solution_leakage": _leakage,
    "statistical.reward_reachability": _reachability,
    "statistical.difficulty_separation": _separation,
    "statistical.headroom": _headroom,
    "statistical.variance_bound": _variance,
    "statistical.training_signal": _signal,
    "statistical.adversarial_floor": _adversarial,
    "statistical.gameability_gap": _gap,
}
"""Checks that the audit measures."""
