"""The metrics of a step."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from ludus.agent import Finish, Trajectory, TurnKind
from ludus.metrics import Stopwatch
from ludus.rewards.pool import fates_of

from ..findings.history import LostEpisodes
from ..learning.experience import CUT
from ..rollout.collect import Group
from ..rollout.mixture import environment_of
from ..rollout.scoring import mean_metrics
from ..rollout.trees import tree_numbers


def summarize_step(
    groups: Sequence[Group],
    update: Mapping[str, float],
    watch: Stopwatch,
    wire: Mapping[str, float],
    *,
    passing: float = 1.0,
) -> dict[str, float]:
    """Return a flat table: `reward/*`, `episode/*`, `stop/*`, `group/*`, `kind/*` (act, summary,
    fold), `turn/cut`, `context/*`, `update/*`, `time/*`, `wire/*`.

    Args:
        groups: the groups of the step.
        update: the numbers of its updates.
        watch: where its time went.
        wire: the counters of the environment's client.
        passing: the reward from which a rollout solves its task (eval.passing).
    """
    trajectories = [
        trajectory
        for group in groups
        for episode in group.episodes
        for trajectory in episode.trajectories
    ]
    tokens = sum(trajectory.sampled_tokens for trajectory in trajectories)
    seconds = sum(watch.seconds.values())
    turns = sum(len(trajectory.turns) for trajectory in trajectories)
    return {
        **_rewards(trajectories),
        **_parts(groups),
        **_episodes(groups, trajectories),
        **_groups(groups, passing),
        **_kinds(trajectories),
        **_context(trajectories),
        **_by_environment(groups),
        **tree_numbers([group.episodes for group in groups]),
        **{f"update/{name}": value for name, value in update.items()},
        **{f"time/{name}_s": value for name, value in watch.seconds.items()},
        "tokens_per_s": tokens / seconds if seconds else 0.0,
        **{f"wire/{name}": value for name, value in wire.items()},
        # Of the whole step: where generation runs ahead, a step may hardly wait for it.
        **({"wire/steps_per_s": turns / seconds if seconds else 0.0} if wire else {}),
    }


def tokens_of(row: Mapping[str, float]) -> float:
    """Return the tokens that a row of a run's metrics stands for: those sampled in a step or a
    survey, or those trained in a supervised update.

    >>> tokens_of({"episode/tokens": 12.5, "episode/count": 8.0})
    100.0
    """
    sampled = row.get("episode/tokens", 0.0) * row.get("episode/count", 0.0)
    return sampled + row.get("survey/tokens", 0.0) + row.get("tokens", 0.0)


def summarize_survey(groups: Sequence[Group]) -> dict[str, float]:
    """Summarize the rollouts of a first estimate of success rates: `survey/rollouts`,
    `survey/tokens` (sampled, in all), `survey/reward`.
    """
    played = [
        trajectory
        for group in groups
        for episode in group.episodes
        for trajectory in episode.trajectories
    ]
    rewards = [trajectory.verdict.unwrap() for trajectory in played if trajectory.verdict.ok]
    return {
        "survey/rollouts": float(len(played)),
        "survey/tokens": float(sum(trajectory.sampled_tokens for trajectory in played)),
        "survey/reward": statistics.fmean(rewards),
    }


def _rewards(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return means over the trajectories with a reward, and the number of trajectories without."""
    scored = [trajectory.verdict for trajectory in trajectories if trajectory.verdict.ok]
    rewards = [verdict.unwrap() for verdict in scored]
    numbers = {"reward/unavailable": float(len(trajectories) - len(scored))}
    if rewards:
        numbers["reward/mean"] = statistics.fmean(rewards)
        numbers["reward/std"] = statistics.pstdev(rewards)
    parts: dict[str, list[float]] = {}
    for verdict in scored:
        for name, (value, _) in verdict.parts.items():
            parts.setdefault(name, []).append(value)
    numbers |= {f"reward/part/{name}": statistics.fmean(values) for name, values in parts.items()}
    numbers |= {f"reward/metric/{name}": mean for name, mean in mean_metrics(scored).items()}
    fates = Counter(fate for trajectory in trajectories for fate in fates_of(trajectory.verdict))
    numbers |= {f"reward/pool/{fate}": n / len(trajectories) for fate, n in fates.items()}
    return numbers


def _episodes(groups: Sequence[Group], trajectories: Sequence[Trajectory]) -> dict[str, float]:
    count = len(trajectories)
    numbers = {
        "episode/count": float(count),
        "episode/turns": sum(len(trajectory.turns) for trajectory in trajectories) / count,
        "episode/tokens": sum(trajectory.sampled_tokens for trajectory in trajectories) / count,
        "episode/segments": sum(len(trajectory.segments) for trajectory in trajectories) / count,
        "episode/excluded": sum(trajectory.exclude_from_loss for trajectory in trajectories)
        / count,
        "episode/retries": float(sum(group.retries for group in groups)),
    }
    for reason, times in Counter(trajectory.stop for trajectory in trajectories).items():
        numbers[f"stop/{reason}"] = times / count
    totals: Counter[str] = Counter()
    for trajectory in trajectories:
        totals.update(trajectory.metrics)
    return numbers | {f"episode/{name}": total / count for name, total in totals.items()}


def _parts(groups: Sequence[Group]) -> dict[str, float]:
    """Return what the rollouts of a group are compared by, where rewards have several parts:
    `reward/spread/NAME`, the mean over groups of a part's standard deviation within the group,
    and `reward/share/NAME`, the part's share of the weighted variance within groups.
    """
    spreads: dict[str, list[float]] = {}
    variances: dict[str, float] = {}
    for group in groups:
        verdicts = [each.verdict for each in _played(group) if each.verdict.ok]
        for name in {name for verdict in verdicts for name in verdict.parts}:
            parts = [verdict.parts[name] for verdict in verdicts if name in verdict.parts]
            spread = statistics.pstdev(value for value, _ in parts)
            spreads.setdefault(name, []).append(spread)
            variances[name] = variances.get(name, 0.0) + (parts[0][1] * spread) ** 2
    if len(spreads) < 2:
        return {}
    total = sum(variances.values())
    numbers = {f"reward/spread/{name}": statistics.fmean(each) for name, each in spreads.items()}
    shares = variances.items() if total else ()
    return numbers | {f"reward/share/{name}": each / total for name, each in shares}


def _played(group: Group) -> list[Trajectory]:
    return [trajectory for episode in group.episodes for trajectory in episode.trajectories]


def _groups(groups: Sequence[Group], passing: float) -> dict[str, float]:
    """Describe the groups of a step.

    `group/count`, `group/tasks` (different ones), and shares: `group/lone` (fewer than two
    rewards), `group/equal` (two or more rewards, all the same), `group/solved` and `group/failed`
    (of the equal ones, those that earn `passing` or more, and those that earn 0 or less),
    `group/identical` (two or more rollouts, all of the same tokens). `group/spread` is the root
    of the mean variance of the rewards of a group, `group/length_reward` the mean correlation of
    tokens and reward within the groups in which both differ.
    """
    lone, equal, solved, failed, identical = 0, 0, 0, 0, 0
    variances: list[float] = []
    correlations: list[float] = []
    for group in groups:
        played = _played(group)
        scored = [
            (float(trajectory.sampled_tokens), trajectory.verdict.reward)
            for trajectory in played
            if trajectory.verdict.reward is not None
        ]
        rewards = [reward for _, reward in scored]
        responses = {
            tuple(tuple(turn.out_ids) for turn in trajectory.turns)
            for trajectory in played
            if trajectory.turns
        }
        lone += len(rewards) < 2
        identical += len(played) > 1 and len(responses) == 1
        if len(rewards) < 2:
            continue
        variances.append(statistics.pvariance(rewards))
        if min(rewards) == max(rewards):
            equal, solved = equal + 1, solved + (rewards[0] >= passing)
            failed += rewards[0] <= 0
        elif len({length for length, _ in scored}) > 1:
            correlations.append(statistics.correlation(*zip(*scored, strict=True)))
    count = len(groups)
    shown = {"group/spread": statistics.fmean(variances) ** 0.5} if variances else {}
    if correlations:
        shown["group/length_reward"] = statistics.fmean(correlations)
    return {
        **shown,
        "group/count": float(count),
        "group/tasks": float(len({group.task.id for group in groups})),
        "group/lone": lone / count,
        "group/equal": equal / count,
        "group/solved": solved / count,
        "group/failed": failed / count,
        "group/identical": identical / count,
    }


def _by_environment(groups: Sequence[Group]) -> dict[str, float]:
    """Describe each environment of a run with several: `env/NAME/groups`, `/reward` (mean),
    `/solved` (share with a reward above 0) and `/tokens` (of a rollout).
    """
    names = sorted({name for group in groups if (name := environment_of(group.task.id))})
    numbers: dict[str, float] = {}
    for name in names:
        own = [group for group in groups if environment_of(group.task.id) == name]
        played = [trajectory for group in own for trajectory in _played(group)]
        rewards = [each.verdict.unwrap() for each in played if each.verdict.ok]
        numbers[f"env/{name}/groups"] = float(len(own))
        numbers[f"env/{name}/tokens"] = sum(each.sampled_tokens for each in played) / len(played)
        if rewards:
            numbers[f"env/{name}/reward"] = statistics.fmean(rewards)
            numbers[f"env/{name}/solved"] = statistics.fmean(reward > 0 for reward in rewards)
    return numbers


def failures_of(step: int, groups: Sequence[Group]) -> list[LostEpisodes]:
    """Return the reasons for which episodes of a step have no reward, the commonest first."""
    tasks: dict[str, list[str]] = {}
    for group in groups:
        for verdict in (trajectory.verdict for trajectory in _played(group)):
            if not verdict.ok:
                reason = f"{verdict.status}: {verdict.detail:.120}"
                tasks.setdefault(reason, []).append(group.task.id)
    failures = [
        LostEpisodes(step=step, reason=reason, count=len(ids), tasks=list(dict.fromkeys(ids))[:3])
        for reason, ids in tasks.items()
    ]
    return sorted(failures, key=lambda failure: -failure.count)


def _kinds(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return tokens per episode and entropy by kind of span.

    The entropy is the mean of `-logprob` over sampled tokens, in nats, which is an unbiased
    estimate at the sampling temperature.
    """
    acts = [
        turn
        for trajectory in trajectories
        for turn in trajectory.turns
        if turn.kind is TurnKind.ACT
    ]
    numbers: dict[str, float] = {}
    if acts:
        numbers["turn/cut"] = statistics.fmean(turn.finish is Finish.LENGTH for turn in acts)
    for kind in TurnKind:
        spans = [
            turn for trajectory in trajectories for turn in trajectory.turns if turn.kind is kind
        ]
        tokens = sum(len(turn.out_ids) for turn in spans)
        if tokens:
            numbers[f"kind/{kind}_tokens"] = tokens / len(trajectories)
            numbers[f"kind/{kind}_entropy"] = -sum(sum(turn.logprobs) for turn in spans) / tokens
            numbers[f"kind/{kind}_span_tokens"] = tokens / len(spans)
    return numbers


def _context(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Describe the context summaries of a step; empty where no summary was written.

    `p_sum` is the share of episodes with a summary, `p_success_sum` the share of those episodes
    with a reward above 0; overlong ends are counted too.
    """
    scored = [trajectory for trajectory in trajectories if trajectory.verdict.ok]
    summed = [trajectory for trajectory in scored if trajectory.metrics.get("summaries")]
    if not summed:
        return {}
    return {
        "context/p_sum": len(summed) / len(scored),
        "context/p_success_sum": statistics.fmean(
            trajectory.verdict.unwrap() > 0 for trajectory in summed
        ),
        "context/reward_sum": statistics.fmean(
            trajectory.verdict.unwrap() for trajectory in summed
        ),
        "context/overlong": statistics.fmean(trajectory.stop in CUT for trajectory in scored),
    }
