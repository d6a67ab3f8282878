"""Rules about the learner: updates, clips, gradients, the engine's distance, staleness."""

from __future__ import annotations

import shlex

from ..recipes.conflicts import GROUP_ESTIMATORS, SEQUENCE_LOSSES
from .history import SHORT, RunHistory
from .reward_rules import is_solved
from .rule import FindingRule


def moved(run: RunHistory) -> float | None:
    """Return how far the policy moved within a step before the last update, in nats per token."""
    return run.mean("update/kl_last", 2) or run.mean("update/kl", 2)


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


def without_signal(run: RunHistory) -> float | None:
    """Return the share of trained tokens with an advantage, in a run that has not solved its
    tasks.
    """
    return None if is_solved(run) else run.mean("update/signal", 3)


def one_sign(run: RunHistory) -> float | None:
    """Return the share of advantages of the rarer sign, where rollouts are compared."""
    positive, signal = run.mean("update/positive", 3), run.mean("update/signal", 3)
    compares = run.of_recipe("algorithm.advantage") in GROUP_ESTIMATORS
    return min(positive, 1 - positive) if compares and signal and positive is not None else None


def share(values: list[float]) -> float | None:
    """Return the mean; None of nothing."""
    return sum(values) / len(values) if values else None


def _slower(run: RunHistory) -> str:
    return f"--trainer.lr={run.setting('trainer.lr') / 3:.2g}"


DROPPED = {
    "filter": (
        "the recipe's group filter drops every group: tasks are all too easy or all too hard",
        lambda run: f"--rollout.group_size={2 * int(run.of_recipe('sampling.group_size', 8))}",
    ),
    "overlong": (
        "every rollout ended by a limit, and the recipe leaves those out of the loss",
        lambda run: f"--rollout.max_tokens={2 * int(run.setting('rollout.max_tokens'))}",
    ),
    "correction": (
        "the recipe's corrections drop every token: learner and sampler disagree",
        lambda run: "--model.dtype=float32",
    ),
    "excluded": (
        "every rollout with trained tokens is excluded from the loss",
        lambda run: f"ludus view {shlex.quote(run.folder)}",
    ),
}
"""Why no token reached the loss, by column, with what to do."""


def _dropped(run: RunHistory) -> str:
    shares = {name: run.mean(f"update/dropped_{name}", 3, absent=0.0) or 0.0 for name in DROPPED}
    top = max(shares, key=lambda name: shares[name])
    return top if shares[top] else ""


def _nothing_sentence(run: RunHistory, number: float) -> str:
    reason = _dropped(run)
    why = DROPPED[reason][0] if reason else "the policy sampled none, as where the window is full"
    return f"no token of the last steps was trained on: {why}"


def _nothing_remedy(run: RunHistory) -> str:
    reason = _dropped(run)
    return DROPPED[reason][1](run) if reason else "--context.manager=summarize"


LEARNER_RULES = (
    FindingRule(
        name="refused",
        quantity=lambda run: run.mean("update/refused", 1),
        threshold=1.0,
        source="a number that is not finite",
        sentence=lambda run, number: (
            f"{number:.0f} updates were refused, since a loss or a gradient was not finite, and "
            f"the weights kept; after {run.setting('trainer.max_refused')} in a row the run stops. "
            "Their rows and episodes are in refused/ and episodes/"
        ),
        remedy=_slower,
        evidence=("update/refused",),
        severity="error",
        after=1,
    ),
    FindingRule(
        name="moved_far",
        quantity=moved,
        threshold=0.2,
        source="house: good runs stay below it over two steps; Spinning Up's PPO stops at 0.015",
        sentence=lambda run, number: (
            f"the policy moves {number:.3f} nats a token within a step: what it learned from one "
            "step's rollouts is far from what sampled them"
        ),
        remedy=_slower,
        evidence=("update/kl_last", "update/ratio_max"),
        after=1,
    ),
    FindingRule(
        name="updates_stopped",
        quantity=lambda run: run.mean("update/stopped", 1),
        threshold=1.0,
        source="trainer.max_kl",
        severity="info",
        sentence=lambda run, number: (
            f"{number:.0f} updates of the step were left out: the policy had moved more than "
            f"trainer.max_kl = {run.setting('trainer.max_kl'):g} nats a token"
        ),
        remedy=_slower,
        evidence=("update/stopped", "update/kl_last"),
        causes=("moved_far",),
        after=1,
    ),
    FindingRule(
        name="often_stopped",
        quantity=lambda run: share(
            [float(each < 1.0) for each in run.values("update/share", SHORT)]
        ),
        threshold=0.6,
        source="house",
        sentence=lambda run, number: (
            f"in {number:.0%} of the last steps an update was scaled back: it moved the policy "
            f"more than trainer.max_kl = {run.setting('trainer.max_kl'):g} nats a token"
        ),
        remedy=_slower,
        evidence=("update/share", "update/kl_after"),
        causes=("moved_far",),
    ),
    FindingRule(
        name="clipped",
        quantity=clipped,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"the clip stops {number:.0%} of the tokens in the last update of a step: little of "
            "what was sampled is learned"
        ),
        remedy=_slower,
        evidence=("update/clip_last",),
        causes=("moved_far",),
    ),
    FindingRule(
        name="clip_idle",
        quantity=idle_clip,
        threshold=1e-9,
        below=True,
        source="with one update every ratio is 1",
        sentence=lambda run, number: (
            f"the clip of {run.setting('recipe')!r} can never act: a step makes one update, in "
            "which every ratio is 1"
        ),
        remedy=lambda run: (
            f"--trainer.updates_per_step={min(4, run.setting('rollout.tasks_per_step'))}"
        ),
        evidence=("update/clip_low", "update/clip_high", "update/updates"),
        severity="info",
    ),
    FindingRule(
        name="nothing_trained",
        quantity=lambda run: run.mean("update/tokens", 3, absent=0.0),
        threshold=1.0,
        below=True,
        source="no token reached the loss",
        sentence=_nothing_sentence,
        remedy=_nothing_remedy,
        evidence=("update/tokens", "update/dropped_*"),
        severity="error",
        state="stuck",
        causes=("refused", "without_reward", "cut_turns", "context_full"),
    ),
    FindingRule(
        name="no_signal",
        quantity=without_signal,
        threshold=1e-9,
        below=True,
        source="every advantage is zero",
        sentence=lambda run, number: "every advantage of the last steps is zero",
        remedy=lambda run: (
            f"--rollout.group_size={2 * int(run.of_recipe('sampling.group_size', 8))}"
        ),
        evidence=("update/signal",),
        state="stuck",
        causes=("nothing_trained", "lone_groups", "all_wrong", "no_spread", "identical"),
    ),
    FindingRule(
        name="lone_groups",
        quantity=lambda run: (
            run.mean("group/lone")
            if run.of_recipe("algorithm.advantage") in GROUP_ESTIMATORS
            and run.of_recipe("sampling.group_size", 8) > 1
            else None
        ),
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"{number:.0%} of the groups have fewer than two rollouts with a reward, which "
            f"{run.of_recipe('algorithm.advantage')} compares"
        ),
        remedy=lambda run: f"--rollout.retries={1 + int(run.setting('rollout.retries'))}",
        evidence=("group/lone",),
        causes=("without_reward",),
        after=1,
    ),
    FindingRule(
        name="one_sided",
        quantity=one_sign,
        threshold=1e-9,
        below=True,
        source="compared rollouts have both signs",
        sentence=lambda run, number: (
            "every advantage that reached the loss has the same sign, though rollouts are "
            "compared: filters or masks have left one side of the groups only"
        ),
        remedy=lambda run: f"--rollout.max_tokens={2 * int(run.setting('rollout.max_tokens'))}",
        evidence=("update/positive", "update/dropped_*"),
        causes=("cut_turns",),
    ),
    FindingRule(
        name="no_gradient",
        quantity=lambda run: (
            run.mean("update/grad_norm", 3)
            if run.mean("update/signal", 3) and not run.mean("update/refused", 3, absent=0.0)
            else None
        ),
        threshold=1e-12,
        below=True,
        source="advantages, and a gradient of exactly zero",
        sentence=lambda run, number: (
            f"the gradient is exactly zero, though {run.mean('update/signal', 3) or 0.0:.0%} of "
            "the trained tokens have an advantage: everything is clipped or weighed by zero, or "
            "the loss does not reach the weights"
        ),
        remedy=lambda run: "--trainer.updates_per_step=1",
        evidence=("update/grad_norm", "update/signal"),
        severity="error",
        state="stuck",
        causes=("clipped",),
    ),
    FindingRule(
        name="no_rate",
        quantity=rate_left,
        threshold=0.2,
        below=True,
        clears=0.5,
        source="house",
        sentence=lambda run, number: (
            f"the learning rate is {number:.2g} of trainer.lr: the warm-up takes "
            f"{run.setting('trainer.warmup_steps'):,} updates (trainer.warmup_steps), and the run "
            f"has {run.setting('steps'):,} steps"
        ),
        remedy=lambda run: "--trainer.warmup_steps=0",
        evidence=("update/lr",),
        severity="error",
        state="stuck",
        after=1,
    ),
    FindingRule(
        name="sampler_gap",
        quantity=engine_gap,
        threshold=0.1,
        source="house: rounding of float32 is below 1e-3, of bfloat16 below 0.05 nats a token",
        sentence=lambda run, number: (
            f"the engine is {number:.3f} nats a token from the learner on tokens that the "
            "learner's own weights should have sampled: it has other weights, another temperature "
            "or another precision"
        ),
        remedy=lambda run: "--model.dtype=float32 --engine=local --local.engines=0",
        evidence=("update/fresh_sampler_gap", "engine/probe_gap"),
        severity="error",
        state="broken",
        after=1,
    ),
    FindingRule(
        name="gap_grows_with_depth",
        quantity=gap_by_depth,
        threshold=4.0,
        source="house",
        sentence=lambda run, number: (
            f"the engine differs from the learner {number:.1f} times as much in the deepest tokens "
            f"as in the first thousand ({run.mean('update/sampler_gap_to/1k', 3) or 0.0:.3f} "
            "nats): positions, cache or precision, not sampling"
        ),
        remedy=lambda run: "--model.dtype=float32",
        evidence=("update/sampler_gap_to/*",),
    ),
    FindingRule(
        name="gap_of_shape",
        quantity=gap_by_shape,
        threshold=4.0,
        source="house",
        sentence=lambda run, number: (
            f"the engine differs from the learner {number:.1f} times as much in passes of one "
            "number of rows as of another: kernels whose sums depend on the shape of the batch"
        ),
        remedy=lambda run: "--model.dtype=float32",
        evidence=("update/sampler_gap_rows/*",),
    ),
    FindingRule(
        name="stale",
        quantity=stale_gap,
        threshold=0.1,
        source="house: as far as a broken engine",
        sentence=lambda run, number: (
            f"tokens are {run.mean('staleness/mean') or 0.0:.1f} versions old, and {number:.3f} "
            "nats from the weights that learn from them"
        ),
        remedy=lambda run: (
            f"--overlap.max_staleness={max(1, int(run.setting('overlap.max_staleness')) // 2)}"
        ),
        evidence=("staleness/mean", "update/old_sampler_gap", "update/fresh_sampler_gap"),
    ),
)
