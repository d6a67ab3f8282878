"""Rules about rollouts: episodes without a reward, limits, tools, lengths, exploration."""

from __future__ import annotations

import statistics

from .history import LONG, SHORT, RunHistory
from .reward_rules import is_solved, rise, warm_start
from .rule import FindingRule


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


def own_format(run: RunHistory) -> float | None:
    """Return the share of calls that are not made or cannot be read, where the user chose their
    format.
    """
    chosen = run.chosen("model.tool_format")
    return max(silent(run) or 0.0, unread(run) or 0.0) if chosen else None


def growth(run: RunHistory) -> float | None:
    """Return the length of an answer beside that of twenty steps ago, or of the first steps."""
    then = run.mean("episode/tokens", SHORT, before=min(LONG, max(0, len(run.rows) - SHORT)))
    now = run.mean("episode/tokens")
    return now / then if then and now is not None else None


def useless_growth(run: RunHistory) -> float | None:
    """Return the growth of answers in a run whose reward has not risen meanwhile."""
    risen = rise(run)
    return growth(run) if risen is not None and risen < 2.0 else None


def paid_length(run: RunHistory) -> float | None:
    """Return the correlation of length and reward within groups, where answers have grown."""
    grown = growth(run)
    return run.mean("group/length_reward") if grown is not None and grown >= 1.3 else None


def entropy_left(run: RunHistory) -> float | None:
    """Return the share of the first steps' entropy that is left, where the reward has not risen."""
    values, risen = run.values("kind/act_entropy"), rise(run)
    if len(values) < LONG or risen is None or risen >= 2.0 or is_solved(run):
        return None
    first = statistics.median(values[:10])
    return statistics.median(values[-10:]) / first if first > 0 else None


def alike(run: RunHistory) -> float | None:
    """Return the share of groups whose rollouts are equal token by token, in a run that has not
    solved its tasks.
    """
    return None if is_solved(run) else run.mean("group/identical", 3)


def _shorter(run: RunHistory) -> str:
    then = run.mean("episode/tokens", SHORT, before=max(0, len(run.rows) - SHORT)) or 1.0
    turns = run.mean("episode/turns") or 1.0
    return f"--rollout.max_tokens={max(1, round(1.5 * then / turns))}"


def _explore(run: RunHistory) -> str:
    temperature = run.setting("rollout.temperature")
    if 0 < temperature < 1:
        return "--rollout.temperature=1.0"
    return f"--trainer.lr={run.setting('trainer.lr') / 3:.2g}"


def _lost_sentence(run: RunHistory, number: float) -> str:
    return (
        f"{number:.0%} of the episodes have no reward and are left out of loss and baseline: "
        f"{run.reason_of_failures()}"
    )


ROLLOUT_RULES = (
    FindingRule(
        name="without_reward",
        quantity=lost,
        threshold=0.05,
        source="Miles: aborted 0.05",
        sentence=_lost_sentence,
        remedy=lambda run: (
            f"--rollout.concurrency={max(1, int(run.setting('rollout.concurrency')) // 2)} "
            f"--rollout.episode_timeout_s={2 * float(run.setting('rollout.episode_timeout_s')):g}"
        ),
        evidence=("reward/unavailable", "stop/*"),
        severity="error",
        after=1,
    ),
    FindingRule(
        name="verifiers_asked_again",
        quantity=lambda run: run.mean("episode/verifier_retries", absent=0.0),
        threshold=0.05,
        source="house",
        sentence=lambda run, number: (
            f"verifiers were unavailable and asked again {number:.2f} times an episode"
        ),
        remedy=lambda run: (
            f"--rollout.concurrency={max(1, int(run.setting('rollout.concurrency')) // 2)}"
        ),
        evidence=("episode/verifier_retries", "episode/verifier_gave_up"),
        severity="info",
        after=1,
    ),
    FindingRule(
        name="cut_turns",
        quantity=lambda run: run.mean("turn/cut"),
        threshold=0.25,
        source="Miles: truncation 0.25",
        sentence=lambda run, number: (
            f"{number:.0%} of the turns were cut at rollout.max_tokens = "
            f"{run.setting('rollout.max_tokens')}; a call that is cut is never run"
        ),
        remedy=lambda run: f"--rollout.max_tokens={2 * int(run.setting('rollout.max_tokens'))}",
        evidence=("turn/cut",),
        causes=("tool_format", "moved_far", "collapse", "longer_without_reward", "length_bias"),
    ),
    FindingRule(
        name="context_full",
        quantity=lambda run: run.mean("stop/context_full", absent=0.0),
        threshold=0.25,
        source="Miles: truncation 0.25",
        sentence=lambda run, number: (
            f"{number:.0%} of the episodes ended because the window was full, after "
            f"{run.mean('episode/turns') or 0.0:.1f} turns "
            f"(rollout.window = {run.setting('rollout.window') or 'that of the model'})"
        ),
        remedy=lambda run: (
            f"--rollout.window={2 * int(run.setting('rollout.window'))}"
            if run.setting("rollout.window")
            else "--context.manager=summarize"
        ),
        evidence=("stop/context_full", "episode/turns"),
    ),
    FindingRule(
        name="tool_format",
        quantity=own_format,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"{number:.0%} of the calls are not made, or cannot be read as model.tool_format = "
            f"{run.setting('model.tool_format')!r}, which is not what the model writes"
        ),
        remedy=lambda run: "--model.tool_format=auto",
        evidence=("episode/tool_calls", "episode/parse_errors", "stop/no_calls"),
        severity="error",
        causes=("moved_far", "collapse"),
    ),
    FindingRule(
        name="unread_calls",
        quantity=unread,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"{number:.0%} of the tool calls could not be read as model.tool_format = "
            f"{run.setting('model.tool_format')!r}"
        ),
        remedy=warm_start,
        evidence=("episode/parse_errors", "episode/tool_calls"),
        causes=("tool_format", "moved_far", "collapse", "cut_turns"),
    ),
    FindingRule(
        name="no_calls",
        quantity=silent,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"in {number:.0%} of the episodes the policy calls no tool that it is offered"
        ),
        remedy=warm_start,
        evidence=("episode/tools_offered", "episode/tool_calls", "stop/no_calls"),
        causes=("tool_format", "moved_far", "collapse", "cut_turns", "unread_calls"),
    ),
    FindingRule(
        name="identical",
        quantity=alike,
        threshold=0.9,
        clears=0.7,
        source="house",
        sentence=lambda run, number: (
            f"in {number:.0%} of the groups all rollouts are the same, token by token, at reward "
            f"{run.level(3)}: a group says nothing"
        ),
        remedy=_explore,
        evidence=("group/identical", "kind/act_entropy"),
        state="stuck",
        causes=("moved_far", "collapse"),
    ),
    FindingRule(
        name="entropy_falls",
        quantity=entropy_left,
        threshold=0.2,
        below=True,
        source="house, relative: absolute bars such as 1 nat misfire on tool calls",
        sentence=lambda run, number: (
            f"the entropy fell to {number:.0%} of that of the first steps "
            f"({run.mean('kind/act_entropy') or 0.0:.3f} nats a token), and the reward has not "
            "risen: exploration is ending"
        ),
        remedy=_explore,
        evidence=("kind/act_entropy", "reward/mean"),
        causes=("moved_far", "collapse", "identical"),
        after=LONG,
    ),
    FindingRule(
        name="longer_without_reward",
        quantity=useless_growth,
        threshold=1.5,
        clears=1.25,
        source="house",
        sentence=lambda run, number: (
            f"answers have grown {number:.1f} times to {run.mean('episode/tokens') or 0.0:.0f} "
            f"tokens without a higher reward; {run.mean('turn/cut') or 0.0:.0%} of the turns are "
            "cut"
        ),
        remedy=_shorter,
        evidence=("episode/tokens", "reward/mean", "turn/cut"),
        causes=("moved_far", "collapse"),
        after=10,
    ),
    FindingRule(
        name="length_bias",
        quantity=paid_length,
        threshold=0.5,
        source="house",
        sentence=lambda run, number: (
            f"longer rollouts earn more within their groups (correlation {number:.2f}), and "
            f"answers have grown {growth(run) or 1.0:.1f} times: length is what is being learned"
        ),
        remedy=lambda run: "--recipe=dr_grpo",
        evidence=("group/length_reward", "episode/tokens"),
        after=6,
    ),
    FindingRule(
        name="late_ones_were_longer",
        quantity=lambda run: (
            run.mean("bias/length", 1)
            if run.setting("overlap.late") != "wait"  # else those that are played come yet
            else None
        ),
        threshold=0.8,
        below=True,
        clears=0.9,
        source="house; docs/training.md, what it gains",
        sentence=lambda run, number: (
            f"trained rollouts have {number:.0%} of the length of issued ones: "
            f"overlap.late = {run.setting('overlap.late')!r} favours short answers"
        ),
        remedy=lambda run: "--overlap.late=wait --overlap.deadline_s=0",
        evidence=("bias/length",),
    ),
    FindingRule(
        name="repeated_tasks",
        quantity=lambda run: (
            1 - tasks / groups
            if (groups := run.mean("group/count", 1)) and (tasks := run.mean("group/tasks", 1))
            else None
        ),
        threshold=0.05,
        source="house",
        sentence=lambda run, number: (
            f"{number:.0%} of the groups of the step play a task twice: split "
            f"{run.setting('split')!r} has no more that are not retired"
        ),
        remedy=lambda run: (
            f"--rollout.tasks_per_step={max(1, int(run.mean('group/tasks', 1) or 1))}"
        ),
        evidence=("group/tasks", "group/count"),
        severity="info",
        after=1,
    ),
)
