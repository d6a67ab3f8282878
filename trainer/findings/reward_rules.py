"""Rules about rewards: what a run has learned, why it learns nothing, what was lost or hacked."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from ..config import RewardConfig
from .history import LONG, SHORT, Level, RunHistory
from .rule import FindingRule

MOVED = 3.0
"""Standard errors by which a level has to differ from another to count as moved: the largest of
twenty comparisons of equal levels stays below with 95 % probability.
"""


def solved(run: RunHistory) -> float | None:
    """Return the share of the passing reward that the last three steps earn on average, or the
    share of solved groups where it is higher.
    """
    level, passing = run.level(3), float(run.setting("eval.passing"))
    if level is None or passing <= 0:
        return None
    return max(level.mean / passing, run.mean("group/solved", 3) or 0.0)


def is_solved(run: RunHistory) -> bool:
    """Whether so much is solved that a rule about missing signal has nothing to say."""
    share = solved(run)
    return share is not None and share >= 0.9


def rise(run: RunHistory) -> float | None:
    """Return by how many errors the reward is above that of the first steps."""
    window = min(SHORT, len(run.rows) // 2)
    first, last = run.first_level(window), run.level(window)
    return None if first is None or last is None else last.above(first)


def movement(run: RunHistory) -> float | None:
    """Return by how many errors the reward moved at most, in a run that has not solved its tasks:
    over the last twenty steps where little differs within groups, and over the run elsewhere, where
    a run that rises is none: what is said to learn is not said to be flat.
    """
    mixed = 1 - (run.mean("group/equal", SHORT) or 0.0)
    span = LONG if mixed < 0.3 else len(run.rows)
    if mixed >= 0.3 and (rise(run) or 0.0) >= MOVED:
        return None
    count = min(span, len(run.rows))
    window = min(SHORT, count // 3)
    levels = [
        level
        for before in range(count - window + 1)
        if (level := run.level(window, before=before)) is not None
    ]
    if not levels or is_solved(run):
        return None
    first = levels[-1]
    return max(abs(level.above(first)) for level in levels)


def fall(run: RunHistory) -> float | None:
    """Return by what share of the best level the reward has fallen; None where that may be
    chance.
    """
    best, last, peak = run.best_level(), run.level(3), run.best_level(1)
    if best is None or last is None or peak is None:
        return None
    if peak.above(last) >= 2.0 and last.mean <= 0.05 * peak.mean:
        best = peak  # all is lost: a single step may have been all that there was
    elif best.above(last) < MOVED:
        return None
    return min(2.0, (best.mean - last.mean) / max(abs(best.mean), 1e-9))


def failed(run: RunHistory) -> float | None:
    """Return the share of groups whose every rollout earns nothing."""
    share, level = run.mean("group/failed"), run.level()
    if share is None and level is not None and level.mean <= 0:  # a run of an older version
        share = run.mean("group/equal")
    return share


def without_spread(run: RunHistory) -> float | None:
    """Return the share of groups that earn the same, neither all nor nothing."""
    equal = run.mean("group/equal")
    if equal is None or is_solved(run):
        return None
    return equal - (failed(run) or 0.0) - (run.mean("group/solved") or 0.0)


def held_out_fall(run: RunHistory) -> float | None:
    """Return by how many errors the last two evaluations are below the best, where the reward of
    training rose since then. Greedy answers of a policy that learns often fall for one evaluation.
    """
    return _fall_while_rising(run, [_score(row, "eval/mean", "eval") for row in run.held_out])


def audited_fall(run: RunHistory) -> float | None:
    """Return by how many errors the audit's reward is below its best, where the reward of training
    rose since then.
    """
    return _fall_while_rising(run, [_score(row, "audit/reward", "audit") for row in run.rows])


def _score(row: Mapping[str, float], mean: str, prefix: str) -> Level | None:
    error = row.get(f"{prefix}/standard_error", 0.0)
    return Level(row[mean], error, int(row["step"])) if mean in row else None


def _fall_while_rising(run: RunHistory, levels: Sequence[Level | None]) -> float | None:
    scores = [level for level in levels if level is not None]
    if len(scores) < 2:
        return None
    best = max(scores, key=lambda score: score.mean)
    since = len([row for row in run.rows if row["step"] > best.step])
    then = run.level(SHORT, before=since) or run.first_level(3)
    now = run.level()
    if then is None or now is None or now.above(then) < 2.0:
        return None
    return min(best.above(score) for score in scores[-2:])


def undeserved(run: RunHistory) -> float | None:
    """Return the share of the reward that the audit does not count, where the reward has risen."""
    risen = rise(run)
    return run.mean("audit/undeserved") if risen is not None and risen >= 2.0 else None


def falling_part(run: RunHistory) -> tuple[str, float] | None:
    """Return the part of the reward that fell most while the reward rose, and by what share."""
    risen = rise(run)
    if risen is None or risen < 2.0:
        return None
    falls: dict[str, float] = {}
    for name in run.names("reward/part/"):
        first = run.mean(f"reward/part/{name}", SHORT, before=max(0, len(run.rows) - SHORT))
        last = run.mean(f"reward/part/{name}")
        if first and last is not None and first > 0:
            falls[name] = (first - last) / first
    worst = max(falls, key=lambda name: falls[name], default="")
    return (worst, falls[worst]) if worst else None


def dominating_part(run: RunHistory) -> tuple[str, str, float] | None:
    """Return the part that rollouts are compared by, another one that differs within groups as
    well, and the share of the first in the variance.
    """
    shares = {name: run.mean(f"reward/share/{name}", 10) or 0.0 for name in run.names(SHARE)}
    spreads = {name: run.mean(f"reward/spread/{name}", 10) or 0.0 for name in run.names(SPREAD)}
    top = max(shares, key=lambda name: shares[name], default="")
    others = {name: spread for name, spread in spreads.items() if name != top and spread > 0.05}
    if not top or not others:
        return None
    return top, max(others, key=lambda name: others[name]), shares[top]


SHARE, SPREAD = "reward/share/", "reward/spread/"


def judge_noise(run: RunHistory) -> float | None:
    """Return the variance of a judge's repeated verdicts as a share of what differs in groups."""
    spreads = [
        value
        for name in run.names("reward/metric/")
        if name.endswith("/spread") and (value := run.mean(f"reward/metric/{name}")) is not None
    ]
    within = [value for name in run.names(SPREAD) if (value := run.mean(f"{SPREAD}{name}"))]
    within = within or [value for value in [run.mean("group/spread")] if value]
    return (max(spreads) / max(within)) ** 2 if spreads and within else None


def rewards_weighed(run: RunHistory, part: str, factor: float) -> str:
    """Return the option that multiplies the weight of a part by `factor`; of the environment's own
    reward, whose weight is 1, the weights of the others are divided.
    """
    rows = []
    for row in run.setting("reward"):
        name, weight = row["name"], row.get("weight", RewardConfig.weight)
        if part == "env":
            weight /= factor
        elif name == part:
            weight *= factor
        rows.append(f'{{name = "{name}", weight = {weight:.3g}}}')
    return f"--reward '[{', '.join(rows)}]'" if rows else ""


def _even(run: RunHistory) -> str:
    parts = dominating_part(run)
    if parts is None:
        return ""
    top, other, share = parts
    rest = run.mean(f"{SHARE}{other}", 10) or 1e-4
    return rewards_weighed(run, top, math.sqrt(rest / share))


def warm_start(run: RunHistory) -> str:
    """Return the command that warms the model up on demonstrations."""
    env, model = (shlex.quote(str(run.setting(name))) for name in ("env", "model.path"))
    return f"ludus sft --env {env} --model.path {model}"


def _rate(run: RunHistory, factor: float) -> str:
    return f"--trainer.lr={run.setting('trainer.lr') * factor:.2g}"


def _from_best(run: RunHistory) -> str:
    return f"--model.path={shlex.quote(run.folder)}/checkpoints/best {_rate(run, 0.3)}"


def _flat(run: RunHistory) -> str:
    equal = run.mean("group/equal") or 0.0
    if equal > 0.7:
        return f"--rollout.group_size={2 * int(run.of_recipe('sampling.group_size', 8))}"
    return _rate(run, 3.0)


def _flat_sentence(run: RunHistory, number: float) -> str:
    equal = run.mean("group/equal") or 0.0
    why = (
        f"only {1 - equal:.0%} of the groups have mixed results: there is little to learn from"
        if equal > 0.7
        else f"though {1 - equal:.0%} of the groups have mixed results: the learning rate is too "
        "small, or the rewards say nothing about the answers"
    )
    return f"the reward has not moved for {len(run.rows)} steps ({run.level()}), {why}"


def _hacked_sentence(run: RunHistory, number: float) -> str:
    known = [row for row in run.held_out if "eval/mean" in row]
    best = max(known, key=lambda row: row["eval/mean"])
    return (
        f"the reward of training rose to {run.level()}, but the held-out reward fell from "
        f"{best['eval/mean']:.3f} at step {best['step']:.0f} to {known[-1]['eval/mean']:.3f}: "
        "the policy has found what pays in training alone; read its best answers"
    )


def _audited_sentence(run: RunHistory, number: float) -> str:
    known = [row for row in run.rows if "audit/reward" in row]
    best = max(known, key=lambda row: row["audit/reward"])
    return (
        f"the reward of training rose to {run.level()}, but the audit's reward, which counts right "
        f"answers alone, fell from {best['audit/reward']:.3f} at step {best['step']:.0f} to "
        f"{known[-1]['audit/reward']:.3f}{_likeness(run)}"
    )


def _likeness(run: RunHistory) -> str:
    """Say whose strategy the policy plays most."""
    shares = {name: run.mean(f"audit/like/{name}") or 0.0 for name in run.names("audit/like/")}
    most = max(shares, key=lambda name: shares[name], default="")
    return f": {shares[most]:.0%} of what is paid does what the attacker {most!r} does" * bool(most)


def _part_sentence(run: RunHistory, number: float) -> str:
    name = (falling_part(run) or ("", 0.0))[0]
    return (
        f"the reward rises, and its part {name!r} has fallen by {number:.0%} since the first steps "
        f"to {run.mean(f'reward/part/{name}') or 0.0:.3f}: the other parts are earned at its cost"
    )


def _dominated_sentence(run: RunHistory, number: float) -> str:
    top, other, _ = dominating_part(run) or ("", "", 0.0)
    return (
        f"{number:.0%} of what the rollouts of a group are compared by is {top!r}; {other!r} "
        "differs as well and hardly matters"
    )


def _collapse_sentence(run: RunHistory, number: float) -> str:
    best = run.best_level()
    at = f"{best.mean:.3f} at step {best.step}" if best else "its best"
    last = run.level(3)
    return f"the reward fell from {at} to {last.mean if last else math.nan:.3f}"


REWARD_RULES = (
    FindingRule(
        name="solved",
        quantity=solved,
        threshold=0.95,
        clears=0.85,
        source="house; the reward that passes is eval.passing",
        sentence=lambda run, number: (
            f"the tasks are solved: reward {run.level(3)}, where "
            f"{run.setting('eval.passing'):g} passes"
        ),
        remedy=lambda run: "",
        evidence=("reward/mean", "group/solved"),
        severity="info",
        state="solved",
        causes=("reward_hacking", "audit_falls"),
    ),
    FindingRule(
        name="learning",
        quantity=rise,
        threshold=MOVED,
        source="house: three standard errors of the difference, groups as observations",
        sentence=lambda run, number: (
            f"the reward rises: {run.first_level()} in the first steps, {run.level()} now"
        ),
        remedy=lambda run: "",
        evidence=("reward/mean",),
        severity="info",
        state="learning",
        causes=("reward_hacking", "audit_falls"),
        after=6,
    ),
    FindingRule(
        name="reward_hacking",
        quantity=held_out_fall,
        threshold=2.0,
        source="house: training up by two errors, two evaluations down by two; one fell in 8 of 57 "
        "runs that learned",
        sentence=_hacked_sentence,
        remedy=lambda run: f"ludus view {shlex.quote(run.folder)}",
        evidence=("reward/mean", "eval/mean"),
        severity="error",
        state="broken",
    ),
    FindingRule(
        name="audit_falls",
        quantity=audited_fall,
        threshold=2.0,
        source="house: training up by two errors, the audit's reward down by two",
        sentence=_audited_sentence,
        remedy=lambda run: f"ludus view {shlex.quote(run.folder)}",
        evidence=("reward/mean", "audit/reward", "audit/like/*"),
        severity="error",
        state="broken",
    ),
    FindingRule(
        name="undeserved",
        quantity=undeserved,
        threshold=0.5,
        source="house: half of a reward that has risen",
        sentence=lambda run, number: (
            f"the reward rises, and {number:.0%} of it is paid without the right answer"
            f"{_likeness(run)}"
        ),
        remedy=lambda run: f"ludus audit {shlex.quote(str(run.setting('env')))} --rl",
        evidence=("reward/mean", "audit/undeserved", "audit/like/*"),
        causes=("audit_falls",),
    ),
    FindingRule(
        name="part_falls",
        quantity=lambda run: part[1] if (part := falling_part(run)) else None,
        threshold=0.3,
        source="house",
        sentence=_part_sentence,
        remedy=lambda run: rewards_weighed(run, (falling_part(run) or ("", 0.0))[0], 3.0),
        evidence=("reward/mean", "reward/part/*"),
        causes=("length_bias", "part_dominates"),
        after=6,
    ),
    FindingRule(
        name="collapse",
        quantity=fall,
        threshold=0.4,
        source="house: three errors below the best three steps, and two fifths of them lost",
        sentence=_collapse_sentence,
        remedy=_from_best,
        evidence=("reward/mean",),
        severity="error",
        state="broken",
        causes=("refused", "sampler_gap", "stale", "moved_far", "cut_turns", "without_reward"),
    ),
    FindingRule(
        name="all_wrong",
        quantity=failed,
        threshold=0.9,
        source="house; Miles warns from half of the groups on",
        sentence=lambda run, number: (
            f"in {number:.0%} of the groups every rollout earns nothing: there is nothing to "
            "compare, and nothing is learned. Take easier tasks, or warm the model up on "
            "demonstrations"
        ),
        remedy=warm_start,
        evidence=("group/failed", "reward/mean"),
        severity="error",
        state="stuck",
        causes=(
            "moved_far",
            "collapse",
            "without_reward",
            "tool_format",
            "unread_calls",
            "no_calls",
            "cut_turns",
            "context_full",
            "identical",
        ),
    ),
    FindingRule(
        name="no_spread",
        quantity=without_spread,
        threshold=0.9,
        source="house; Miles warns from half of the groups on",
        sentence=lambda run, number: (
            f"in {number:.0%} of the groups all rollouts earn the same "
            f"({run.level()}), neither nothing nor all: the reward does not tell answers apart"
        ),
        remedy=lambda run: f"ludus view {shlex.quote(run.folder)}",
        evidence=("group/equal", "reward/mean"),
        severity="error",
        state="stuck",
        causes=("identical",),
    ),
    FindingRule(
        name="dead_groups",
        quantity=lambda run: None if is_solved(run) else run.mean("group/equal"),
        threshold=0.7,
        source="house; Miles warns from 0.5 on, which good runs reach",
        sentence=lambda run, number: (
            f"{number:.0%} of the groups earn the same on all rollouts "
            f"({run.mean('group/failed') or 0.0:.0%} nothing, "
            f"{run.mean('group/solved') or 0.0:.0%} all) and teach nothing"
        ),
        remedy=lambda run: (
            f"--rollout.group_size={2 * int(run.of_recipe('sampling.group_size', 8))}"
        ),
        evidence=("group/equal", "group/failed", "group/solved"),
        severity="info",
        causes=("all_wrong", "no_spread", "identical"),
    ),
    FindingRule(
        name="flat",
        quantity=movement,
        threshold=MOVED,
        below=True,
        source="house: the largest of twenty comparisons of equal levels",
        sentence=_flat_sentence,
        remedy=_flat,
        evidence=("reward/mean", "group/equal"),
        state="stuck",
        causes=(
            "collapse",
            "moved_far",
            "often_stopped",
            "no_rate",
            "no_gradient",
            "nothing_trained",
            "refused",
            "sampler_gap",
            "without_reward",
            "all_wrong",
            "no_spread",
            "identical",
            "judge_noise",
            "part_dominates",
            "stale",
            "clipped",
        ),
        after=12,
    ),
    FindingRule(
        name="part_dominates",
        quantity=lambda run: part[2] if (part := dominating_part(run)) else None,
        threshold=0.9,
        clears=0.8,
        source="house",
        sentence=_dominated_sentence,
        remedy=_even,
        evidence=("reward/share/*", "reward/spread/*"),
        causes=("judge_noise",),
        after=5,
    ),
    FindingRule(
        name="judge_noise",
        quantity=judge_noise,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"the judge's own noise is {number:.0%} of the variance that it rewards within groups: "
            "ask it more often for each answer (mode=samples), or give it a stricter rubric"
        ),
        remedy=lambda run: (
            f"--rollout.group_size={2 * int(run.setting('rollout.group_size') or 8)}"
        ),
        evidence=("reward/metric/*/spread", "reward/spread/*"),
    ),
)
