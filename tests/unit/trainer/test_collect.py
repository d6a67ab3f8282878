"""Groups of rollouts: seeds, retries, failures, verifiers."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from ludus.agent import Episode, EpisodeLimits, Policy, ScriptedPolicy, Stop
from ludus.envs import EnvSession, TextEnv
from ludus.errors import TrainingFailed
from ludus.messages import Message
from ludus.rewards import Sample, make_verifier
from ludus.trainer.config import EvalConfig
from ludus.trainer.rollout import source as sources
from ludus.trainer.rollout.collect import (
    Collector,
    Cut,
    Drawing,
    PlayBounds,
    Ticket,
    refuse_failure,
)
from ludus.trainer.rollout.evaluate import evaluate
from ludus.trainer.rollout.scoring import EpisodeScorer, WeightedVerifier
from ludus.trainer.rollout.source import LocalSource
from ludus.trainer.rollout.stages import Stages
from ludus.verdict import Status, Verdict

COUNTING = threading.Lock()


class Guess(TextEnv):
    """Reward 1 for the number of the episode's own randomness; fails as often as it is told to."""

    failures = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.number = self.rng.randrange(1000)
        return str(self.number), {}

    def step(self, action: str) -> Any:
        with COUNTING:
            fails = Guess.failures > 0
            Guess.failures -= fails
        if fails:
            return "", Verdict.unavailable("the judge is down"), True, False, {}
        return "", float(action == str(self.number)), True, False, {}

    def gold(self) -> str:
        return str(self.number)


def collector(
    policy: Policy | None = None,
    scorer: EpisodeScorer | None = None,
    env: type[TextEnv] = Guess,
    **bounds: Any,
) -> Any:
    source = LocalSource("test/guess-v0", lambda: EnvSession(env(), "test/guess-v0"))
    policy = policy or ScriptedPolicy(lambda messages: messages[-1].text)
    return Collector(source, policy, scorer=scorer, bounds=PlayBounds(**bounds))


@pytest.fixture(autouse=True)
def _no_failures() -> None:
    Guess.failures = 0


async def collect(made: Any, indices: Iterable[int] = (0, 1), size: int = 3) -> Any:
    tasks = await made.source.tasks("train", list(indices))
    groups = await made.collect(tasks, group_size=size, seed=0)
    await made.source.close()
    return groups


async def test_rollouts_of_a_group_share_task_and_environment_seed() -> None:
    groups = await collect(collector())
    for group in groups:
        shown = {
            episode.trajectories[0].turns[0].observation[-1].text for episode in group.episodes
        }
        assert len(shown) == 1
        assert len({episode.seed for episode in group.episodes}) == 1
        assert [episode.index for episode in group.episodes] == [0, 1, 2]
        assert [episode.trajectories[0].verdict.reward for episode in group.episodes] == [1.0] * 3
    assert groups[0].episodes[0].seed != groups[1].episodes[0].seed


async def test_an_unavailable_reward_is_played_again_and_never_a_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ludus.trainer.rollout.collect.BACKOFF_S", 0.001)
    Guess.failures = 2
    groups = await collect(collector(retries=3))
    assert sum(group.retries for group in groups) == 2
    verdicts = [e.trajectories[0].verdict for group in groups for e in group.episodes]
    assert all(verdict.reward == 1.0 for verdict in verdicts)


async def test_what_keeps_failing_stays_in_the_group_without_a_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ludus.trainer.rollout.collect.BACKOFF_S", 0.001)
    Guess.failures = 10**6
    (group,) = await collect(collector(retries=1), indices=[0], size=2)
    for episode in group.episodes:
        trajectory = episode.trajectories[0]
        assert trajectory.verdict.reward is None
        assert trajectory.stop is Stop.REWARD_UNAVAILABLE
        assert trajectory.exclude_from_loss
        assert trajectory.exclude_from_baseline


async def test_an_evaluation_counts_failures_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.trainer.rollout.collect.BACKOFF_S", 0.001)
    Guess.failures = 1
    made = collector(retries=0)
    found = await evaluate(made, EvalConfig(tasks=4))
    assert (found.mean, found.failed, len(found.rewards)) == (1.0, 1, 3)
    await made.source.close()


async def test_slow_plain_environments_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(4)

    class Meets(Guess):
        """Its step goes on once four are there."""

        def step(self, action: str) -> Any:
            together.wait(60)
            return super().step(action)

    groups = await collect(collector(env=Meets, retries=0), indices=range(4), size=2)
    verdicts = [e.trajectories[0].verdict for group in groups for e in group.episodes]
    assert [verdict.reward for verdict in verdicts] == [1.0] * 8


async def test_an_environment_that_hangs_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CALL_S", 0.1)
    judged = threading.Event()

    class Hangs(Guess):
        """Its thread outlives the episode, so it touches nothing that a later test reads."""

        def step(self, action: str) -> Any:
            judged.wait(60)
            return "", 0.0, True, False, {}

    try:
        (group,) = await collect(collector(env=Hangs, retries=0), indices=[0], size=1)
    finally:
        judged.set()
    trajectory = group.episodes[0].trajectories[0]
    assert trajectory.stop is Stop.REWARD_UNAVAILABLE
    assert "no answer within 0.1 s" in trajectory.verdict.detail


async def test_the_time_of_an_episode_is_bounded() -> None:
    async def never(messages: Sequence[Message]) -> Any:
        await asyncio.sleep(60)
        return ""

    made = collector(ScriptedPolicy(never), episode=EpisodeLimits(episode_timeout_s=0.1), retries=0)
    (group,) = await collect(made, indices=[0], size=1)
    assert group.episodes[0].trajectories[0].stop is Stop.TIMEOUT
    assert group.episodes[0].trajectories[0].verdict.retryable


class Length:
    """How long the last answer is."""

    def score(self, sample: Sample) -> Any:
        return Verdict.of(len(sample.text), metrics={"length": len(sample.text)})


class Late:
    """Never answers."""

    async def score(self, sample: Sample) -> Any:
        await asyncio.sleep(60)
        return Verdict.of(1.0)


class Rank:
    """The longest answer of a group gets 1."""

    def score(self, sample: Sample) -> Any:
        return Verdict.invalid("needs a group")

    def score_group(self, samples: Sequence[Sample]) -> Any:
        longest = max(len(sample.text) for sample in samples)
        return [Verdict.of(float(len(sample.text) == longest)) for sample in samples]


async def test_verifiers_are_composed_into_one_verdict_with_parts() -> None:
    made = collector(
        ScriptedPolicy(lambda messages: "abc"),
        scorer=EpisodeScorer(
            [WeightedVerifier("length", Length(), 0.5), WeightedVerifier("rank", Rank())]
        ),
    )
    (group,) = await collect(made, indices=[0], size=2)
    verdict = group.episodes[0].trajectories[0].verdict
    # 0 from the environment, half of 3 for the length, 1 for being among the longest
    assert verdict.reward == pytest.approx(2.5)
    assert verdict.parts == {"env": (0.0, 1.0), "length": (3.0, 0.5), "rank": (1.0, 1.0)}
    assert verdict.metrics == {"length": 3.0}


async def test_a_late_verifier_makes_the_whole_reward_unavailable() -> None:
    late = WeightedVerifier("late", Late(), timeout_s=0.05)
    (group,) = await collect(collector(scorer=EpisodeScorer([late])), indices=[0], size=1)
    trajectory = group.episodes[0].trajectories[0]
    assert trajectory.verdict.reward is None
    assert trajectory.exclude_from_baseline


async def test_a_verifier_of_the_recipe_gets_the_gold_once_the_episode_is_over() -> None:
    exact = WeightedVerifier("exact", make_verifier("exact"), 2.0)
    (group,) = await collect(collector(scorer=EpisodeScorer([exact])), indices=[0], size=1)
    verdict = group.episodes[0].trajectories[0].verdict
    assert verdict.parts == {"env": (1.0, 1.0), "exact": (1.0, 2.0)}
    assert verdict.reward == pytest.approx(3.0)


class Broken:
    """Raises, or gives too few verdicts."""

    def score(self, sample: Sample) -> Verdict:
        raise KeyError("no such thing")


class Short(Broken):
    def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        return []


@pytest.mark.parametrize("broken", [Broken(), Short()])
async def test_a_verifier_that_fails_makes_the_reward_unavailable_and_the_run_goes_on(
    broken: Broken,
) -> None:
    scorer = EpisodeScorer(
        [WeightedVerifier("broken", broken), WeightedVerifier("length", Length())]
    )
    (group,) = await collect(collector(scorer=scorer), indices=[0], size=2)
    for episode in group.episodes:
        assert episode.trajectories[0].verdict.status is Status.ERROR
        assert episode.trajectories[0].exclude_from_baseline


class Seeded(ScriptedPolicy):
    """Notes the sampling seed of every episode."""

    def __init__(self) -> None:
        super().__init__(lambda messages: messages[-1].text)
        self.seeds: list[int] = []

    def begin(self, *, seed: int = 0) -> Any:
        self.seeds.append(seed)
        return super().begin(seed=seed)


async def test_a_task_that_comes_again_in_a_step_is_sampled_anew() -> None:
    policy = Seeded()
    made = collector(policy)
    groups = await collect(made, indices=(0, 1, 0, 0), size=3)
    assert len(set(policy.seeds)) == 12
    # the task and its environment are the same ones
    assert len({group.task.id for group in groups}) == 2
    assert len({groups[k].episodes[0].seed for k in (0, 2, 3)}) == 1
    assert len({group.episodes[0].group for group in groups}) == 4


async def test_a_task_that_a_refill_brings_again_is_sampled_anew() -> None:
    policy = Seeded()
    made = collector(policy)
    tasks = await made.source.tasks("train", [0, 1])
    await made.collect(tasks, group_size=2, seed=0)
    await made.collect(tasks, group_size=2, seed=0, first=2)
    assert len(set(policy.seeds)) == 8
    await made.source.close()


async def test_the_same_tasks_and_seed_are_sampled_as_before() -> None:
    """The control: what is played again by itself, as after a resume, is the same."""
    seeds: list[list[int]] = []
    for _ in range(2):
        policy = Seeded()
        await collect(collector(policy), indices=(0, 1, 0))
        seeds.append(sorted(policy.seeds))
    assert seeds[0] == seeds[1]


async def test_groups_and_rollouts_carry_their_ordinals() -> None:
    made = collector()
    tasks = await made.source.tasks("train", [4, 5])
    groups = await made.collect(tasks, group_size=3, seed=0, first=7)
    assert [group.ordinal for group in groups] == [7, 8]
    # ordinal of the group x 3 + index
    assert [[one.ordinal for one in group.episodes] for group in groups] == [
        [21, 22, 23],
        [24, 25, 26],
    ]
    await made.source.close()


async def test_seeds_follow_from_the_ordinal_and_not_from_the_company() -> None:
    """A group that is played again alone, as after a resume, has the seeds it had."""
    together, alone = Seeded(), Seeded()
    await collect(collector(together), indices=(0, 1, 2), size=2)
    made = collector(alone)
    (task,) = await made.source.tasks("train", [2])
    await made.collect([task], group_size=2, seed=0, first=2)
    assert set(alone.seeds) < set(together.seeds)
    other = Seeded()
    again = collector(other)
    await again.collect([task], group_size=2, seed=0, first=3)
    assert not set(other.seeds) & set(together.seeds)  # the control
    for one in (made, again):
        await one.source.close()


async def test_groups_are_yielded_as_they_finish() -> None:
    (early,) = await collect(collector(), indices=[0], size=1)
    (turn,) = early.episodes[0].trajectories[0].turns
    gate, number = asyncio.Event(), turn.observation[-1].text

    async def answer(messages: Sequence[Message]) -> str:
        if messages[-1].text == number:  # of the first group, whichever begins first
            await gate.wait()
        return messages[-1].text

    made = collector(ScriptedPolicy(answer))
    tasks = await made.source.tasks("train", [0, 1])
    tickets = [Ticket(ordinal=n, task=task) for n, task in enumerate(tasks)]
    found: list[int] = []
    async for group in made.stream(tickets, group_size=2, seed=0):
        found.append(group.ordinal)
        gate.set()
    assert found == [1, 0]
    await made.source.close()


async def test_a_group_that_is_cut_keeps_what_has_finished() -> None:
    begun = 0

    async def answer(messages: Sequence[Message]) -> str:
        nonlocal begun
        begun += 1
        if begun == 2:
            await asyncio.sleep(60)
        return messages[-1].text

    finished, cut = list[Episode](), Cut(deadline_s=3600)

    def done(episode: Episode) -> None:
        finished.append(episode)
        if len(finished) == 2:  # however long they have taken, and once the second's task has ended
            asyncio.get_running_loop().call_soon(setattr, cut, "deadline_s", 0.3)

    made = collector(ScriptedPolicy(answer))
    (task,) = await made.source.tasks("train", [0])
    drawing = Drawing(group_size=3, seed=0)
    group = await made.play(Ticket(ordinal=0, task=task), drawing, cut=cut, done=done)
    # Which of them asks the policy second is not settled: their environments are reset in threads.
    kept = sorted(episode.index for episode in finished)
    assert [episode.index for episode in group.episodes] == kept
    (late,) = group.late
    assert sorted([*kept, late]) == [0, 1, 2]
    assert 0.3 <= group.late[late] < 60
    await made.source.close()


async def test_stages_say_who_waits_for_whom() -> None:
    asked = asyncio.Event()

    async def never(messages: Sequence[Message]) -> str:
        asked.set()
        await asyncio.sleep(60)
        return ""

    made, stages, cut = collector(ScriptedPolicy(never), concurrency=1), Stages(), Cut()
    (task,) = await made.source.tasks("train", [0])
    playing = asyncio.create_task(
        made.play(
            Ticket(ordinal=4, task=task), Drawing(group_size=2, seed=0), cut=cut, stages=stages
        )
    )
    await asyncio.wait_for(asked.wait(), 60)
    told = stages.told()
    assert stages.moves > 0  # a rollout that waits for its policy has moved
    assert "generation: 1 rollout of group 4" in told
    assert "a free place (rollout.concurrency): 1 rollout of group 4" in told
    cut.ask()
    assert (await asyncio.wait_for(playing, 60)).episodes == []
    assert stages.told() == ""
    await made.source.close()


@pytest.mark.parametrize(
    ("failed", "most", "words"),
    [(3, 1.0, ""), (2, 0.5, ""), (3, 0.5, "3 of 4 episodes have no reward"), (4, 1.0, "all 4")],
)
async def test_a_step_with_too_many_failures_ends_the_run_with_their_causes(
    failed: int, most: float, words: str
) -> None:
    Guess.failures = failed
    groups = await collect(collector(retries=0, concurrency=1), indices=(0,), size=4)
    episodes = groups[0].episodes
    if not words:
        refuse_failure(episodes, most=most)
        return
    with pytest.raises(TrainingFailed, match=f"{words}.*the judge is down"):
        refuse_failure(episodes, most=most)
