"""Quantities of a run for rules that need more than the mean of a column; None for unknown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from ..config import RewardConfig
from ..recipes.conflicts import SEQUENCE_LOSSES, compares_groups
from .history import LONG, SHORT, Level, RunHistory

MOVED = 3.0
"""Standard errors by which a level has to differ from another to count as moved: the largest of
twenty comparisons of equal levels stays below with 95 % probability.
"""
RISEN = 2.0
"""Standard errors from which a reward counts as higher than that of the first steps."""
SHARE, SPREAD = "reward/share/", "reward/spread/"

# --- what was learned -----------------------------------------------------------------------------


def solved(run: RunHistory) -> float | None:
    """Return the share of the passing reward that the last three steps earn on average, or the
    share of solved groups where it is higher.
    """
    level, passing = run.level(3), float(run.setting("eval.passing"))
    if level is None or passing <= 0:
        return None
    share = level.mean / passing if (above_scale(run) or 0.0) < 2.0 else 0.0
    return max(share, run.mean("group/solved", 3) or 0.0)


def above_scale(run: RunHistory) -> float | None:
    """Return the mean reward as a share of what the environment and the parts could pay together if
    each paid at most `eval.passing`; 0 where it is no more than if each paid at most 1, which is
    the usual scale wherever the bar is.
    """
    level, passing = run.level(3), float(run.setting("eval.passing"))
    weights = 1.0 + sum(row.get("weight", RewardConfig.weight) for row in run.setting("reward"))
    if level is None or passing <= 0:
        return None
    return level.mean / (passing * weights) if level.mean > weights else 0.0


def _at_evaluation(run: RunHistory) -> tuple[Level, Level] | None:
    """Return the training reward at the last evaluation, and what held-out tasks earned then."""
    rows = [row for row in run.held_out if "eval/mean" in row]
    score = _score(rows[-1], "eval/mean", "eval") if rows else None
    if score is None:
        return None
    trained = run.level(3, before=len([row for row in run.rows if row["step"] > score.step]))
    return None if trained is None else (trained, score)


def held_out_behind(run: RunHistory) -> float | None:
    """Return by what share the last held-out reward is below that of training at the same step,
    where training passes and the difference is no chance.
    """
    both = _at_evaluation(run)
    if both is None or both[0].mean < 0.9 * float(run.setting("eval.passing")):
        return None
    trained, score = both
    return (trained.mean - score.mean) / trained.mean if trained.above(score) >= MOVED else 0.0


def held_out_ahead(run: RunHistory) -> float | None:
    """Return how much more held-out tasks earned than training at the same step, as a share of what
    passes, where the difference is no chance.
    """
    both, passing = _at_evaluation(run), float(run.setting("eval.passing"))
    if both is None or passing <= 0:
        return None
    trained, score = both
    return (score.mean - trained.mean) / passing if score.above(trained) >= MOVED else 0.0


def rise(run: RunHistory) -> float | None:
    """Return by how many errors the reward is above that of the first steps."""
    window = min(SHORT, len(run.rows) // 2)
    first, last = run.first_level(window), run.level(window)
    return None if first is None or last is None else last.above(first)


def movement(run: RunHistory) -> float | None:
    """Return by how many errors the reward moved at most: over the last twenty steps where little
    differs within groups, and over the run elsewhere, where a run that rises is none: what is said
    to learn is not said to be flat.
    """
    mixed = 1 - (run.mean("group/equal", SHORT) or 0.0)
    span = LONG if mixed < 0.3 else len(run.rows)
    if mixed >= 0.3 and (rise(run) or 0.0) >= MOVED:
        return None
    count = min(span, len(run.rows))
    window = min(SHORT, count // 3)
    befores = range(count - window + 1)
    levels = [each for before in befores if (each := run.level(window, before=before)) is not None]
    return max((abs(level.above(levels[-1])) for level in levels), default=None)


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
    if equal is None:
        return None
    return equal - (failed(run) or 0.0) - (run.mean("group/solved") or 0.0)


# --- rewards that are not what was meant ----------------------------------------------------------


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
    if then is None or now is None or now.above(then) < RISEN:
        return None
    return min(best.above(score) for score in scores[-2:])


def falling_part(run: RunHistory) -> tuple[str, float] | None:
    """Return the part of the reward that fell most since the first steps, and by what share."""
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
    shares = {name: run.mean(f"{SHARE}{name}", 10) or 0.0 for name in run.names(SHARE)}
    spreads = {name: run.mean(f"{SPREAD}{name}", 10) or 0.0 for name in run.names(SPREAD)}
    top = max(shares, key=lambda name: shares[name], default="")
    others = {name: spread for name, spread in spreads.items() if name != top and spread > 0.05}
    if not top or not others:
        return None
    return top, max(others, key=lambda name: others[name]), shares[top]


def judge_noise(run: RunHistory) -> float | None:
    """Return the variance of a judge's repeated verdicts as a share of what differs in groups."""
    repeated = [name for name in run.names("reward/metric/") if name.endswith("/spread")]
    spreads = [run.mean(f"reward/metric/{name}") or 0.0 for name in repeated]
    within = [value for name in run.names(SPREAD) if (value := run.mean(f"{SPREAD}{name}"))]
    within = within or [value for value in [run.mean("group/spread")] if value]
    return (max(spreads) / max(within)) ** 2 if spreads and within else None


# --- rollouts -------------------------------------------------------------------------------------


def lost(run: RunHistory) -> float | None:
    """Return the share of episodes without a reward."""
    played, missing = run.values("episode/count", SHORT), run.values("reward/unavailable", SHORT)
    return sum(missing) / sum(played) if played and sum(played) else None


def unread(run: RunHistory) -> float | None:
    """Return the share of tool calls that cannot be read."""
    calls = run.mean("episode/tool_calls", absent=0.0)
    broken = run.mean("episode/parse_errors", absent=0.0)
    return broken / calls if calls and broken is not None else None


def silent(run: RunHistory) -> float | None:
    """Return the share of episodes in which the policy calls no tool that it is offered."""
    share = run.mean("stop/no_calls", absent=0.0) or 0.0
    offered = run.mean("episode/tools_offered", absent=0.0)
    calls = run.mean("episode/tool_calls", absent=0.0) or 0.0
    return max(share, 1 - calls if offered else 0.0)


def lost_at_first(run: RunHistory) -> float | None:
    """Return the entropy of the first three steps in nats a token, where half of their turns or
    more came to no end, and a quarter still come to none.
    """
    entropies = [row["kind/act_entropy"] for row in run.rows[:3] if "kind/act_entropy" in row]
    cut = [row["turn/cut"] for row in run.rows[:3] if "turn/cut" in row]
    endless = cut and statistics.fmean(cut) >= 0.5 and (run.mean("turn/cut") or 0.0) >= 0.25
    return statistics.fmean(entropies) if entropies and endless else None


def growth(run: RunHistory) -> float | None:
    """Return the length of an answer beside that of twenty steps ago, or of the first steps."""
    then = run.mean("episode/tokens", SHORT, before=min(LONG, max(0, len(run.rows) - SHORT)))
    now = run.mean("episode/tokens")
    return now / then if then and now is not None else None


def entropy_left(run: RunHistory) -> float | None:
    """Return the share of the first steps' entropy that is left."""
    values = run.values("kind/act_entropy")
    first = statistics.median(values[:10]) if len(values) >= LONG else 0.0
    return statistics.median(values[-10:]) / first if first > 0 else None


def repeated_tasks(run: RunHistory) -> float | None:
    """Return the share of a step's groups whose task another group plays."""
    groups, tasks = run.mean("group/count", 1), run.mean("group/tasks", 1)
    return 1 - tasks / groups if groups and tasks else None


# --- the learner ----------------------------------------------------------------------------------


def moved(run: RunHistory) -> float | None:
    """Return how far the policy moved within a step before the last update, in nats per token."""
    return run.mean("update/kl_last", 2) or run.mean("update/kl", 2)


def scaled_back(run: RunHistory) -> float | None:
    """Return the share of steps in which an update was scaled back."""
    shares = run.values("update/share", SHORT)
    return sum(each < 1.0 for each in shares) / len(shares) if shares else None


def clipped(run: RunHistory) -> float | None:
    """Return the share of tokens whose gradient the clip stopped in the last update of a step. A
    ratio of whole sequences is clipped far more often, by design.
    """
    if run.of_recipe("algorithm.loss") in SEQUENCE_LOSSES:
        return None
    last = run.mean("update/clip_last")
    if last is not None:
        return last
    low, high, updates = (
        run.mean(f"update/{name}") for name in ("clip_low", "clip_high", "updates")
    )
    if low is None or high is None or not updates or updates < 2:
        return None
    return (low + high) * updates / (updates - 1)  # the first update never clips


def idle_clip(run: RunHistory) -> float | None:
    """Return the most that the clip ever stopped, where the user asked for a clip that cannot
    act.
    """
    options = run.of_recipe("algorithm.loss_options", {})
    asked = run.own_recipe and any(name.startswith("eps") for name in options)
    single = (run.mean("update/updates") or 0.0) <= 1.0
    if not asked or not single or run.of_recipe("algorithm.ratio_to") == "sampler":
        return None
    return max(run.values("update/clip_low") + run.values("update/clip_high"), default=0.0)


def engine_gap(run: RunHistory) -> float | None:
    """Return how far the engine is from the learner on tokens of the learner's own version."""
    fresh = run.mean("update/fresh_sampler_gap", 3)
    if fresh is not None:
        return fresh
    return None if run.mean("staleness/max", 3) else run.mean("update/old_sampler_gap", 3)


def gap_by_depth(run: RunHistory) -> float | None:
    """Return how many times the gap of the deepest tokens is that of the first thousand."""
    depths = run.names("update/sampler_gap_to/")
    first = run.mean("update/sampler_gap_to/1k", 3)
    if len(depths) < 2 or not first:
        return None
    last = run.mean(f"update/sampler_gap_to/{depths[-1]}", 3) or 0.0
    return last / first if last >= 0.02 else None


def gap_by_shape(run: RunHistory) -> float | None:
    """Return how many times the gap in passes of one number of rows is that of another."""
    shapes = run.names("update/sampler_gap_rows/")
    gaps = [run.mean(f"update/sampler_gap_rows/{shape}", 3) or 0.0 for shape in shapes]
    if len(gaps) < 2 or not min(gaps) or max(gaps) < 0.02:
        return None
    return max(gaps) / min(gaps)


def stale_gap(run: RunHistory) -> float | None:
    """Return the distance of old tokens from the learner, beyond that of fresh ones, where tokens
    are older than the learner.
    """
    age, gap = run.mean("staleness/mean"), run.mean("update/old_sampler_gap")
    if not age or gap is None:
        return None
    return gap - (run.mean("update/fresh_sampler_gap") or 0.0)


def rate_left(run: RunHistory) -> float | None:
    """Return the learning rate as a share of `trainer.lr`, in a warm-up that outlasts the run or
    where it is 0.
    """
    rate, peak = run.mean("update/lr", 3), run.setting("trainer.lr")
    updates = run.mean("update/updates", 3) or 1.0
    endless = run.setting("trainer.warmup_steps") > 0.5 * run.setting("steps") * updates
    return rate / peak if rate is not None and (endless or not rate) else None


def rarer_sign(run: RunHistory) -> float | None:
    """Return the share of advantages of the rarer sign."""
    positive, signal = run.mean("update/positive", 3), run.mean("update/signal", 3)
    return min(positive, 1 - positive) if signal and positive is not None else None


QUANTITIES: dict[str, Callable[[RunHistory], float | None]] = {
    "solved": solved,
    "above_scale": above_scale,
    "held_out_behind": held_out_behind,
    "held_out_ahead": held_out_ahead,
    "rise": rise,
    "movement": movement,
    "fall": fall,
    "failed": failed,
    "without_spread": without_spread,
    "held_out_fall": held_out_fall,
    "audited_fall": audited_fall,
    "falling_part": lambda run: part[1] if (part := falling_part(run)) else None,
    "dominating_part": lambda run: part[2] if (part := dominating_part(run)) else None,
    "judge_noise": judge_noise,
    "lost": lost,
    "unread": unread,
    "silent": silent,
    "silent_or_unread": lambda run: max(silent(run) or 0.0, unread(run) or 0.0),
    "lost_at_first": lost_at_first,
    "growth": growth,
    "entropy_left": entropy_left,
    "repeated_tasks": repeated_tasks,
    "moved": moved,
    "scaled_back": scaled_back,
    "clipped": clipped,
    "idle_clip": idle_clip,
    "engine_gap": engine_gap,
    "gap_by_depth": gap_by_depth,
    "gap_by_shape": gap_by_shape,
    "stale_gap": stale_gap,
    "rate_left": rate_left,
    "rarer_sign": rarer_sign,
}
"""Each quantity by the name that a rule gives."""

CONDITIONS: dict[str, Callable[[RunHistory], bool]] = {
    # So much is solved that a rule about missing signal has nothing to say.
    "unsolved": lambda run: (solved(run) or 0.0) < 0.9,
    "failing": lambda run: (failed(run) or 0.0) >= 0.9,
    "rising": lambda run: (rise(run) or 0.0) >= RISEN,
    "not_rising": lambda run: (risen := rise(run)) is not None and risen < RISEN,
    "varied": lambda run: (run.mean("group/identical", 3) or 0.0) < 0.5,
    "longer": lambda run: (growth(run) or 0.0) >= 1.3,
    "signal": lambda run: bool(run.mean("update/signal", 3)),
    "nothing_refused": lambda run: not run.mean("update/refused", 3, absent=0.0),
    "compares": lambda run: compares_groups(run.of_recipe("algorithm.advantage", "")),
    "in_groups": lambda run: run.of_recipe("sampling.group_size", 8) > 1,
    "own_format": lambda run: run.chosen("model.tool_format"),
    # Else the late ones are played to their end, and come yet.
    "late_dropped": lambda run: run.setting("overlap.late") != "wait",
}
"""Conditions of rules, by name: a rule applies only to runs for which its conditions are true."""
