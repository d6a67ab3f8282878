"""What more sampling buys: pass@k, a majority vote and the best of k by a verifier, against tokens;
k tries at once against k rounds of revision; success against the number of summaries.

Tokens are those that the policy samples; prompts count nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import msgspec

from ludus.envs import Info
from ludus.envs.gym import Playable
from ludus.envs.session import Stepped
from ludus.envs.tasks import TaskPage
from ludus.estimates import Estimate, mean_over_tasks, pass_at_k, wilson
from ludus.messages import Message, Observation, Part, TextPart, as_messages
from ludus.rewards.maths.extracting.marks import all_boxes

from .evaluation import SEED_STRIDE, valid
from .loop import EpisodeMaker
from .trajectory import Episode, Trajectory, TurnKind

DRAWS = 2000
"""Subsets that are looked at where there are more: every task's majority is then exact to 0.02."""
REVISE = (
    "You have been asked this before, and answered:\n\n{answer}\n\nCheck that answer, and answer "
    "again."
)
ROUND_STRIDE = 500_009
"""Between the sampling seeds of two rounds, which no other sample has."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an episode that matters for a vote."""

    passed: bool
    vote: str
    tokens: int
    score: float | None = None
    """What the selecting verifier gave; None without a verifier, or where it failed."""


class ScalingRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures at k samples of a task, or k rounds."""

    k: int
    tokens: float
    """Mean tokens of k samples of a task."""
    passed: Estimate
    """pass@k: one of the k is right, as only an oracle could tell."""
    majority: Estimate
    """maj@k: the answer that most of the k gave is right."""
    best: Estimate | None = None
    """The best of the k by the verifier is right; None without one."""
    sequential: Estimate | None = None
    """The last round of revision that fits into the tokens of k samples is right; None where
    nothing was revised.
    """
    rounds: float = 0.0
    """Mean number of rounds that fit."""


class SummaryRow(msgspec.Struct, frozen=True, kw_only=True):
    """Success where an episode may write at most so many summaries."""

    summaries: int
    success: Estimate
    """Share of all episodes that passed with at most so many."""
    episodes: int
    """How many episodes wrote exactly so many."""
    beyond: bool
    """Whether training allowed fewer."""


def majority_at_k(votes: Sequence[str], passed: Sequence[bool], k: int, *, seed: int = 0) -> float:
    """Return the chance that the most frequent vote among `k` of the samples is right.

    Among votes that are equally frequent each is as likely; a vote counts as right by the share of
    its samples in the draw that passed. The mean is over all subsets of size k, or over `DRAWS` of
    them where there are more. Majority voting is that of self-consistency (arXiv 2203.11171).

    >>> majority_at_k(["4", "4", "5"], [True, True, False], 3)
    1.0
    >>> majority_at_k(["4", "4", "5"], [True, True, False], 2)  # 4 4 is right, twice 4 5 half
    0.6666666666666666

    Raises:
        ValueError: there are fewer than `k` samples.
    """
    count = len(votes)
    if not 1 <= k <= count:
        raise ValueError(f"need 1 <= k <= {count} samples, got {k}")
    subsets: list[tuple[int, ...]]
    if math.comb(count, k) <= DRAWS:
        subsets = list(itertools.combinations(range(count), k))
    else:
        generator = random.Random(seed)
        subsets = [tuple(generator.sample(range(count), k)) for _ in range(DRAWS)]
    return fmean(_winner([(votes[n], passed[n]) for n in subset]) for subset in subsets)


def _winner(drawn: Sequence[tuple[str, bool]]) -> float:
    members: dict[str, list[bool]] = defaultdict(list)
    for vote, passed in drawn:
        members[vote].append(passed)
    most = max(map(len, members.values()))
    return fmean(fmean(group) for group in members.values() if len(group) == most)


def best_of_k(scores: Sequence[float], passed: Sequence[bool], k: int) -> float:
    """Return the chance that the sample of the highest score among `k` is right.

    Unbiased: a sample that is the i-th lowest of n is the best of a subset with probability
    C(i - 1, k - 1) / C(n, k) (WebGPT, arXiv 2112.09332, section 3.2); samples of one score share
    what they have together.

    >>> best_of_k([0.1, 0.9, 0.5], [False, True, False], 2)  # 0.9 is in two of three pairs
    0.6666666666666666

    Raises:
        ValueError: there are fewer than `k` samples.
    """
    count = len(scores)
    if not 1 <= k <= count:
        raise ValueError(f"need 1 <= k <= {count} samples, got {k}")
    groups: dict[float, list[bool]] = defaultdict(list)
    for score, is_right in zip(scores, passed, strict=True):
        groups[score].append(is_right)
    below, total = 0, 0.0
    for score in sorted(groups):
        upto = below + len(groups[score])
        total += (math.comb(upto, k) - math.comb(below, k)) * fmean(groups[score])
        below = upto
    return total / math.comb(count, k)


def vote_of(trajectory: Trajectory) -> str:
    """Return the answer that an episode votes for: the last box of the last action, else the whole
    action with its calls, without differences of case and space.
    """
    actions = [turn.message for turn in trajectory.turns if turn.kind is TurnKind.ACT]
    message = actions[-1] if actions else None
    if message is None:
        return ""
    boxes = [message.text[box.open : box.close] for box in all_boxes(message.text) if box.closed]
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    written = msgspec.json.encode(calls, order="deterministic").decode() if calls else ""
    return " ".join(f"{boxes[-1] if boxes else message.text} {written}".casefold().split())


def sampled(
    episodes: Sequence[Episode], *, passing: float, scores: Sequence[float | None] = ()
) -> dict[str, list[Sampled]]:
    """Return the valid episodes of each task, in order.

    Args:
        episodes: the episodes.
        passing: the return from which an episode passes.
        scores: what the selecting verifier gave to each episode; empty without one.
    """
    tasks: dict[str, list[Sampled]] = defaultdict(list)
    for episode, score in zip(episodes, scores or [None] * len(episodes), strict=True):
        trajectory = episode.trajectories[0]
        if valid(trajectory):
            sample = Sampled(
                passed=trajectory.verdict.unwrap() >= passing,
                vote=vote_of(trajectory),
                tokens=trajectory.sampled_tokens,
                score=score,
            )
            tasks[episode.task].append(sample)
    return tasks


def scaling(
    tasks: Mapping[str, Sequence[Sampled]],
    chains: Mapping[str, Sequence[Sequence[Sampled]]] | None = None,
) -> list[ScalingRow]:
    """Return the figures for k = 1, 2, 4 ... up to the largest number of samples of a task.

    Args:
        tasks: the samples of each task; those with fewer than k are not in the row of k.
        chains: task -> its chains, each the rounds of revision in order.
    """
    largest = max(map(len, tasks.values()), default=0)
    ks = sorted({*(1 << n for n in range(largest.bit_length())), largest} - {0})
    return [_row_at(k, tasks, chains or {}) for k in ks]


def _row_at(
    k: int,
    tasks: Mapping[str, Sequence[Sampled]],
    chains: Mapping[str, Sequence[Sequence[Sampled]]],
) -> ScalingRow:
    samples = {task: given for task, given in tasks.items() if len(given) >= k}
    passed = {task: [sample.passed for sample in given] for task, given in samples.items()}
    majority = [
        majority_at_k([sample.vote for sample in given], passed[task], k)
        for task, given in samples.items()
    ]
    best = [
        best_of_k([sample.score for sample in given if sample.score is not None], passed[task], k)
        for task, given in samples.items()
        if all(sample.score is not None for sample in given)
    ]
    budget = {task: k * fmean(sample.tokens for sample in given) for task, given in samples.items()}
    lasts = [
        last_within(chain, budget[task])
        for task in samples
        for chain in chains.get(task, [])
        if chain
    ]
    return ScalingRow(
        k=k,
        tokens=fmean(budget.values()),
        passed=_share([pass_at_k(len(outcomes), sum(outcomes), k) for outcomes in passed.values()]),
        majority=_share(majority),
        best=_share(best) if best else None,
        sequential=_share([float(sample.passed) for sample, _ in lasts]) if lasts else None,
        rounds=fmean(rounds for _, rounds in lasts) if lasts else 0.0,
    )


def last_within(chain: Sequence[Sampled], tokens: float) -> tuple[Sampled, int]:
    """Return the last round that fits into so many tokens, and how many do; the first always
    does.
    """
    spent = list(itertools.accumulate(sample.tokens for sample in chain))
    rounds = max(1, sum(total <= tokens for total in spent))
    return chain[rounds - 1], rounds


def _share(rates: Sequence[float]) -> Estimate:
    if set(rates) <= {0.0, 1.0}:  # the tasks are trials of a binomial: Wilson's interval
        return wilson(round(sum(rates)), len(rates))
    mean = mean_over_tasks(rates)
    return Estimate(mean.value, max(mean.low, 0.0), min(mean.high, 1.0))


def by_summaries(
    episodes: Sequence[Episode], *, passing: float, trained: int | None = None
) -> list[SummaryRow]:
    """Return success against the number of summaries that an episode may write; empty where no
    episode wrote one.

    An episode that needed more summaries than S would have failed at a limit of S, as an overlong
    one, so that one evaluation gives all rows (SUPO, arXiv 2510.06727, plays each limit).

    Args:
        episodes: the episodes.
        passing: the return from which an episode passes.
        trained: the most summaries of an episode in training; None where that is not known.
    """
    played = [episode.trajectories[0] for episode in episodes if valid(episode.trajectories[0])]
    counts = [int(trajectory.metrics.get("summaries", 0)) for trajectory in played]
    if not any(counts):
        return []
    success = [trajectory.verdict.unwrap() >= passing for trajectory in played]
    return [
        SummaryRow(
            summaries=most,
            success=wilson(
                sum(won and count <= most for won, count in zip(success, counts, strict=True)),
                len(played),
            ),
            episodes=counts.count(most),
            beyond=trained is not None and most > trained,
        )
        for most in range(max(counts) + 1)
    ]


class Revised:
    """A session whose opening also shows an earlier answer.

    Args:
        session: plays the episodes; closed by the caller.
        answer: the earlier answer.
    """

    def __init__(self, session: Playable, answer: str) -> None:
        self._session, self._answer = session, answer
        self.id = session.id

    @property
    def deterministic(self) -> bool:
        """Whether task, seed and actions fix the episode."""
        return self._session.deterministic

    async def task_page(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """Return a page of the session's tasks."""
        return await self._session.task_page(split, offset=offset, limit=limit)

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode, and put the earlier answer behind the observation."""
        observation, info = await self._session.reset(seed=seed, options=options)
        *before, last = as_messages(observation)
        asked = REVISE.format(answer=self._answer)
        content: str | list[Part] = (
            f"{last.content}\n\n{asked}"
            if isinstance(last.content, str)
            else [*last.content, TextPart(text=f"\n\n{asked}")]
        )
        return [*before, msgspec.structs.replace(last, content=content)], info

    async def step(self, action: str | Message) -> Stepped:
        """Step the session."""
        return await self._session.step(action)

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()


class Reviser:
    """Makes chains of episodes: each episode shows the policy the previous answer, without a word
    on whether that was right, and asks for another.

    Args:
        maker: makes the episodes.
        rounds: episodes of a chain, the first included.
        first: (task, index of the sample) -> the first episode of the chain, which is not played
            again.
        on_episode: called with each episode that is played.
    """

    def __init__(
        self,
        maker: EpisodeMaker,
        rounds: int,
        first: Mapping[tuple[str, int], Episode],
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> None:
        self._maker, self._rounds, self._first = maker, rounds, first
        self._on_episode = on_episode
        self.chains: dict[str, list[list[Episode]]] = defaultdict(list)
        """Task -> its chains so far. A chain ends before a round that failed."""

    async def make(
        self, env: Playable, *, task: str, split: str, seed: int, sampling_seed: int
    ) -> Episode:
        """Play the rounds of a chain, and return the last episode."""
        index = sampling_seed % SEED_STRIDE
        chain = [self._first[task, index]]
        while len(chain) < self._rounds and valid(chain[-1].trajectories[0]):
            answer = _last_text(chain[-1].trajectories[0])
            episode = await self._maker.make(
                Revised(env, answer),
                task=task,
                split=split,
                seed=seed,
                sampling_seed=sampling_seed + ROUND_STRIDE * len(chain),
            )
            episode.index, episode.group = len(chain), f"{task}#{seed} revised"
            self._on_episode(episode)
            chain.append(episode)
        self.chains[task].append([episode for episode in chain if valid(episode.trajectories[0])])
        return chain[-1]


def _last_text(trajectory: Trajectory) -> str:
    actions = [turn.message for turn in trajectory.turns if turn.kind is TurnKind.ACT]
    message = actions[-1] if actions else None
    if message is None:
        return "(nothing)"
    calls = "".join(f"\n{call.name}({call.arguments})" for call in message.tool_calls)
    return f"{message.text}{calls}".strip() or "(nothing)"
