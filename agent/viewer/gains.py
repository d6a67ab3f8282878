"""What training did to a policy: tasks sharpened and gained, experience not used, habits.

Two sets of episodes on the same tasks are compared, before and after: the first and the last
evaluation of a run, or files of `ludus eval --samples K --out FILE`. With K samples a task, a task
that none of them solved is unsolved at K, and may be solved at more.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from ludus.estimates import Estimate, mean_over_tasks
from ludus.rewards.maths.extracting.marks import all_boxes

from ..episodes import INDEX, read_episodes
from ..evaluation import pass_rates, valid
from ..trajectory import Episode, Trajectory
from .run import RunReader

_SAID = re.compile(r"\banswer(?:\s+is|:)\s*\**([^\s.,;*]+)", re.IGNORECASE)
HABITS: dict[str, re.Pattern[str]] = {
    "rechecking": re.compile(
        r"\b(?:(?:re|double)[- ]?check\w*|let(?:'s| me| us) (?:check|verify|confirm)|"
        r"verify(?:ing)?|to (?:check|verify|confirm)|sanity check|"
        r"plug(?:ging)? (?:it |this )?back)\b",
        re.IGNORECASE,
    ),
    "backtracking": re.compile(
        r"\b(?:wait|hmm+|actually|no,|that(?:'s| is) (?:wrong|not right|incorrect)|"
        r"i (?:made|was) (?:a mistake|wrong)|let me (?:try|start|think) (?:again|over|another)|"
        r"start(?:ing)? over|go(?:ing)? back|on second thought|scratch that)\b",
        re.IGNORECASE,
    ),
}
"""Words by which habits are counted: verification and backtracking of "Cognitive Behaviors that
Enable Self-Improving Reasoners" (arXiv 2503.01307), which asks a model instead.
"""


class HabitCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often an episode shows a habit, with the difference over tasks."""

    habit: str
    before: float
    after: float
    change: Estimate


class Gains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed between two sets of episodes on the same tasks."""

    tasks: int
    before_samples: int
    """Most samples of a task before."""
    after_samples: int
    sharpened: list[str]
    """Tasks that were solved at least once before, and are more often now."""
    gained: list[str]
    """Tasks that no sample solved before, and one does now."""
    dulled: list[str]
    """Tasks that are solved, and less often than before."""
    lost: list[str]
    """Tasks that were solved before, and no sample solves now."""
    always: int
    """Tasks that every sample solved, before and now."""
    never: int
    """Tasks that none solved, before and now."""
    by_chance: float
    """How many tasks would count as gained if nothing had changed: the expected number of tasks
    without a solution before, from how often the same tasks are solved now and then.
    """
    before_pass: dict[int, Estimate]
    """k -> pass@k before."""
    after_pass: dict[int, Estimate]
    habits: list[HabitCount] = []


def gains(before: Sequence[Episode], after: Sequence[Episode], *, passing: float = 1.0) -> Gains:
    """Compare episodes before and after training.

    A task counts as sharpened where its pass rate rose from above 0, and as gained where it rose
    from 0 (arXiv 2504.13837 tells the two apart by pass@k for large k).

    Args:
        before: episodes of the first policy.
        after: episodes of the trained policy.
        passing: the return from which an episode passes.

    Raises:
        ValueError: the two share no task with a valid episode.
    """
    first, last = _by_task(before), _by_task(after)
    tasks = sorted(first.keys() & last.keys())
    if not tasks:
        raise ValueError("the episodes before and after share no task")
    rates = {task: (_rate(first[task], passing), _rate(last[task], passing)) for task in tasks}

    def where(holds: Callable[[float, float], bool]) -> list[str]:
        return [task for task in tasks if holds(*rates[task])]

    returns = [
        [[trajectory.verdict.unwrap() for trajectory in played[task]] for task in tasks]
        for played in (first, last)
    ]
    return Gains(
        tasks=len(tasks),
        before_samples=max(len(first[task]) for task in tasks),
        after_samples=max(len(last[task]) for task in tasks),
        sharpened=where(lambda was, now: 0 < was < now),
        gained=where(lambda was, now: was == 0 < now),
        dulled=where(lambda was, now: 0 < now < was),
        lost=where(lambda was, now: now == 0 < was),
        always=len(where(lambda was, now: was == now == 1)),
        never=len(where(lambda was, now: was == now == 0)),
        by_chance=sum(_luck(first[task], last[task], passing) for task in tasks),
        before_pass=pass_rates(returns[0], passing),
        after_pass=pass_rates(returns[1], passing),
        habits=_habits(first, last, tasks),
    )


def _by_task(episodes: Sequence[Episode]) -> dict[str, list[Trajectory]]:
    played: dict[str, list[Trajectory]] = defaultdict(list)
    for episode in episodes:
        if episode.trajectories and valid(episode.trajectories[0]):
            played[episode.task].append(episode.trajectories[0])
    return played


def _rate(played: Sequence[Trajectory], passing: float) -> float:
    return fmean(trajectory.verdict.unwrap() >= passing for trajectory in played)


def _luck(first: Sequence[Trajectory], last: Sequence[Trajectory], passing: float) -> float:
    """Return the chance that a task counts as gained if both policies solve it equally often:
    if the solved samples of both were dealt to before and after at random.
    """
    solved = round(sum(trajectory.verdict.unwrap() >= passing for trajectory in [*first, *last]))
    if not solved or solved > len(last):
        return 0.0
    return math.comb(len(last), solved) / math.comb(len(first) + len(last), solved)


def _habits(
    first: dict[str, list[Trajectory]], last: dict[str, list[Trajectory]], tasks: Sequence[str]
) -> list[HabitCount]:
    counts: list[HabitCount] = []
    both = first, last
    for name in (*HABITS, "revised answers"):
        pairs = [
            tuple(
                fmean(habits_in(written(trajectory))[name] for trajectory in played[task])
                for played in both
            )
            for task in tasks
        ]
        counts.append(
            HabitCount(
                habit=name,
                before=fmean(was for was, _ in pairs),
                after=fmean(now for _, now in pairs),
                change=mean_over_tasks([now - was for was, now in pairs]),
            )
        )
    return counts


def written(trajectory: Trajectory) -> str:
    """Return what the policy wrote in an episode, thoughts included."""
    messages = [turn.message for turn in trajectory.turns if turn.message is not None]
    return "\n".join(f"{message.reasoning}\n{message.text}" for message in messages)


def habits_in(text: str) -> dict[str, float]:
    """Return how often each habit shows in a text."""
    counts = {name: float(len(words.findall(text))) for name, words in HABITS.items()}
    return counts | {"revised answers": revisions(text)}


def revisions(text: str) -> float:
    """Return how often an answer was stated that differs from the one stated before: in a box, or
    after "the answer is".

    >>> revisions("The answer is 4. Wait, the answer is 5. So \\\\boxed{5}.")
    1.0
    """
    stated = sorted(
        [(box.start, text[box.open : box.close]) for box in all_boxes(text) if box.closed]
        + [(match.start(), match[1]) for match in _SAID.finditer(text) if "boxed" not in match[1]]
    )
    answers = [answer.strip("$ ").casefold() for _, answer in stated]
    return float(sum(answer != other for answer, other in itertools.pairwise(answers)))


class ExperienceGap(msgspec.Struct, frozen=True, kw_only=True):
    """What training has seen, against what the policy does."""

    tasks: int
    """Tasks that were played at two steps or more."""
    best: float
    """Mean over tasks of the highest reward that any rollout earned."""
    policy: float
    """Mean over tasks of the mean reward in the last step that played it."""
    gap: Estimate
    """Best less policy: what was experienced and is not done."""


def experience(reader: RunReader) -> ExperienceGap | None:
    """Return the gap between the best experience and the policy in a run's training rollouts; None
    where no task was played at two steps.
    """
    reader.store.refresh_rollouts()
    pairs = reader.store.rows(
        "SELECT MAX(reward) AS best, AVG(IIF(step = newest, reward, NULL)) AS now "
        "FROM (SELECT task, step, reward, MAX(step) OVER (PARTITION BY task) AS newest "
        "FROM rollouts WHERE reward IS NOT NULL) GROUP BY task HAVING COUNT(DISTINCT step) > 1"
    )
    if not pairs:
        return None
    return ExperienceGap(
        tasks=len(pairs),
        best=fmean(pair["best"] for pair in pairs),
        policy=fmean(pair["now"] for pair in pairs),
        gap=mean_over_tasks([pair["best"] - pair["now"] for pair in pairs]),
    )


def evaluations_of(reader: RunReader) -> tuple[list[Episode], list[Episode]] | None:
    """Return the episodes of a run's first and last evaluation; None where it has fewer than
    two.
    """
    files = sorted(
        path for path in (reader.path / "episodes").glob("eval-*.jsonl") if path.name != INDEX
    )
    return (read_episodes(files[0]), read_episodes(files[-1])) if len(files) > 1 else None
