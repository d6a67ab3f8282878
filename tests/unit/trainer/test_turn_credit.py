"""Rewards at their turns: credit that is exact where everything can be enumerated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn, TurnKind
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import Experience, gather, rewarded_rows
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.inputs import Inputs
from ludus.trainer.recipes.recipe import load_recipe
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict


def rollout(
    *segments: Segment, reward: float | None = None, stop: Stop = Stop.TERMINATED, **more: Any
) -> Trajectory:
    """A trajectory that earned what its turns did, unless a verifier said otherwise."""
    made = Trajectory(
        verdict=Verdict.of(0.0),
        stop=stop,
        terminated=stop is Stop.TERMINATED,
        segments=list(segments),
        **more,
    )
    made.verdict = Verdict.of(made.ret if reward is None else reward)
    return made


def turn(*ids: int, reward: float = 0.0, obs: tuple[int, ...] = (), **more: Any) -> Turn:
    return Turn(
        obs_ids=list(obs), out_ids=list(ids), logprobs=[-1.0] * len(ids), reward=reward, **more
    )


def experience(*trajectories: Trajectory) -> Experience:
    task = Task(id="train/0", split="train")
    episodes = [Episode(task=task.id, trajectories=[one]) for one in trajectories]
    found = gather([Group(task, episodes, 0)])
    assert found is not None
    return found


def credited(
    recipe: str, found: Experience, overrides: Mapping[str, object] | None = None, **tensors: Tensor
) -> Any:
    algorithm = resolve(load_recipe(recipe, overrides), max_tokens=8)
    return algorithm.advantages(
        Inputs(
            rewards=found.rewards,
            groups=found.groups,
            mask=found.batch.mask,
            rollouts=found.rollouts,
            turn_rewards=found.turn_rewards,
            turns=found.turns,
            **tensors,
        )
    )


# --- where a turn's reward stands -----------------------------------------------------------------


def test_a_turns_reward_is_on_its_last_token_and_the_verifiers_at_the_end() -> None:
    played = rollout(
        Segment(prompt_ids=[9], turns=[turn(1, 2, reward=0.5), turn(3, reward=0.25, obs=(8, 8))]),
        Segment(prompt_ids=[9, 9], turns=[turn(4, 5, reward=1.0)]),
        reward=3.0,
    )
    found = experience(played)
    assert found.turn_rewards.tolist() == [[0, 0, 0.5, 0, 0, 0.25], [0, 0, 0, 1.0, 0, 0]]
    assert found.turns.tolist() == [[-1, 0, 0, -1, -1, 1], [-1, -1, 2, 2, -1, -1]]
    # returns-to-go: the verifier's 1.25 is added at the very end
    whole = {"algorithm": {"advantage_options": {"eps": 0.0}}}
    got = credited("reinforce_pp", found, whole).advantages
    expected = torch.tensor([3.0, 3.0, 2.5, 2.25, 2.25])
    expected = (expected - expected.mean()) / expected.std()
    torch.testing.assert_close(got[found.batch.mask.bool()], expected)


@pytest.mark.parametrize(
    ("segments", "placed"),
    [
        # not trained: to the token before it
        ([[turn(1, 2, reward=1.0), turn(3, reward=0.5, trained=False)]], [[0, 0, 1.5, 0]]),
        # nothing trained before it: to the first token after it
        ([[turn(3, reward=0.5, trained=False), turn(1, 2, reward=1.0)]], [[0, 0, 0.5, 1.0]]),
        # an empty answer
        ([[turn(1, 2, reward=1.0), turn(reward=0.5)]], [[0, 0, 1.5]]),
        ([[turn(reward=0.5), turn(1, 2, reward=1.0)]], [[0, 0.5, 1.0]]),
        # a window of which nothing is trained, first, between and last
        ([[turn(5, reward=2.0, trained=False)], [turn(1, 2, reward=1.0)]], [[0, 2.0, 1.0]]),
        (
            [[turn(1)], [turn(5, reward=2.0, trained=False)], [turn(2, reward=1.0)]],
            [[0, 2.0], [0, 1.0]],
        ),
        ([[turn(1, reward=1.0)], [turn(5, reward=2.0, trained=False)]], [[0, 3.0]]),
    ],
)
def test_what_was_earned_without_a_trained_token_is_not_lost(
    segments: list[list[Turn]], placed: list[list[float]]
) -> None:
    played = rollout(*(Segment(prompt_ids=[9], turns=turns) for turns in segments))
    made = rewarded_rows(played)
    assert [row.rewards for row in made] == placed
    assert sum(sum(row.rewards) for row in made) == played.ret


def test_an_answer_that_left_its_window_earned_before_the_summary() -> None:
    gone = turn(7, 7, reward=4.0)
    summary = turn(5, 6, kind=TurnKind.SUMMARY, obs=(8,))
    window = Segment(prompt_ids=[9], turns=[turn(1, 2, reward=1.0), summary], discarded=[gone])
    played = rollout(window, Segment(prompt_ids=[9], turns=[turn(3, reward=0.5)]))
    assert [row.rewards for row in rewarded_rows(played)] == [[0, 0, 5.0, 0, 0, 0], [0, 0.5]]


# --- one rollout, however it is cut ---------------------------------------------------------------

WORDS = [(3, 4, 5), (6, 7), (8,), (3, 5, 7, 9)]
EARNED = [0.5, -1.0, 0.0, 2.0]


def cut(*sizes: int) -> Trajectory:
    """The same four turns, in windows of so many; an observation that opens one is its prompt."""
    left = iter(zip(WORDS, EARNED, strict=True))
    segments: list[Segment] = []
    for size in sizes:
        turns = [turn(*ids, reward=earned) for ids, earned in itertools.islice(left, size)]
        for later in turns[1:]:
            later.obs_ids = [2, 2]
        segments.append(Segment(prompt_ids=[1, 2, 2], turns=turns))
    return rollout(*segments, stop=Stop.MAX_TURNS, state_ids=[1, 2])


CUTS = [(4,), (1, 3), (2, 2), (1, 1, 1, 1), (3, 1)]
TURN = {"algorithm": {"credit": {"discount": "turn"}, "advantage_options": {"gamma": 0.9}}}
TOKEN = {"algorithm": {"advantage_options": {"gamma": 0.9}}}


@pytest.mark.parametrize("recipe", ["ppo", "reinforce_pp"])
@pytest.mark.parametrize("overrides", [TOKEN, TURN])
def test_a_rollout_in_one_row_or_in_several_has_the_same_advantages(
    recipe: str, overrides: dict[str, object]
) -> None:
    other = rollout(Segment(prompt_ids=[1], turns=[turn(5, 6, reward=1.0)]))
    said = torch.linspace(-1, 2, 10)  # the value before each token of the rollout
    found: list[Tensor] = []
    for sizes in CUTS:
        made = experience(other, cut(*sizes))
        trained = made.batch.mask.bool()
        mine = trained & (made.rollouts == 1).unsqueeze(1)
        values = torch.full(trained.shape, float("nan")).masked_fill(trained, 0.3)
        values[mine] = said
        states = torch.tensor([0.0, 0.7])
        more = {"values": values, "bootstrap": states} if recipe == "ppo" else {}
        found.append(credited(recipe, made, overrides, **more).advantages[mine])
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=1e-6, atol=1e-6)


def test_gae_runs_across_the_border_of_two_windows_by_hand() -> None:
    """Two windows of one token each: values 0.5 and 0.25, rewards 1 and 2, gamma .5, lambda .5."""
    played = rollout(
        Segment(prompt_ids=[1], turns=[turn(3, reward=1.0)]),
        Segment(prompt_ids=[1], turns=[turn(4, reward=2.0)]),
        stop=Stop.CONTEXT_FULL,
    )
    overrides = {"algorithm": {"whiten": False, "advantage_options": {"gamma": 0.5, "lam": 0.5}}}
    values = torch.tensor([[0.0, 0.5], [0.0, 0.25]])
    made = credited(
        "ppo", experience(played), overrides, values=values, bootstrap=torch.tensor([4.0])
    )
    # delta_1 = 2 + .5 * 4 - .25 = 3.75; delta_0 = 1 + .5 * .25 - .5 = .625, and .25 * 3.75 more
    assert made.advantages.tolist() == [[0.0, 1.5625], [0.0, 3.75]]
    assert made.returns.tolist() == [[0.0, 2.0625], [0.0, 4.0]]


def test_a_summary_gets_the_credit_of_the_window_that_follows_by_hand() -> None:
    """An action, then its summary, then a window that earns 2: gamma .5, lambda .5.

    The values before action, summary and second action are 0.5, 0.2 and 0.25. This is the credit
    across compactions of CompactionRL (arXiv 2607.05378).
    """
    played = rollout(
        Segment(prompt_ids=[1], turns=[turn(3), turn(4, kind=TurnKind.SUMMARY)]),
        Segment(prompt_ids=[1], turns=[turn(5, reward=2.0)]),
    )
    overrides = {"algorithm": {"whiten": False, "advantage_options": {"gamma": 0.5, "lam": 0.5}}}
    values = torch.tensor([[0.0, 0.5, 0.2], [0.0, 0.25, 0.0]])
    made = credited(
        "ppo", experience(played), overrides, values=values, bootstrap=torch.tensor([0.0])
    )
    # 2 - .25 = 1.75; the summary: .5 * .25 - .2 + .25 * 1.75 = .3625;
    # the action before: .5 * .2 - .5 + .25 * .3625 = -.309375
    assert made.advantages[0].tolist() == pytest.approx([0.0, -0.309375, 0.3625])
    assert made.advantages[1].tolist() == pytest.approx([0.0, 1.75, 0.0])


def test_the_discount_counts_tokens_or_turns_by_hand() -> None:
    """Turns of three and of two tokens, rewards 1 and 2, gamma .5."""
    played = rollout(
        Segment(prompt_ids=[1], turns=[turn(3, 4, 5, reward=1.0), turn(6, 7, reward=2.0)])
    )
    found, raw = experience(played), {"whiten": False}
    values = torch.tensor([[0.0, 0.1, 9.0, 9.0, 0.2, 9.0]])
    options = {"gamma": 0.5, "lam": 1.0}
    by_turn = {**raw, "credit": {"discount": "turn"}, "advantage_options": options}
    made = credited("ppo", found, {"algorithm": by_turn}, values=values)
    # G = 1 + .5 * 2 = 2 and 2; less the value before each turn; what is said inside one is not read
    torch.testing.assert_close(
        made.advantages, torch.tensor([[0.0, 1.9, 1.9, 1.9, 1.8, 1.8]]), rtol=1e-6, atol=1e-6
    )
    assert made.value_mask.tolist() == [[0, 1, 0, 0, 1, 0]]
    assert made.returns.tolist() == [[0.0, 2.0, 0.0, 0.0, 2.0, 0.0]]
    by_token = {**raw, "advantage_options": options}
    made = credited("ppo", found, {"algorithm": by_token}, values=torch.zeros(1, 6))
    # 2 is four tokens away from the first: 1/4 + 2/16, 1/2 + 2/8, 1 + 2/4, 1, 2
    assert made.advantages.tolist() == [[0.0, 0.375, 0.75, 1.5, 1.0, 2.0]]


# --- an environment that can be enumerated --------------------------------------------------------

STATES, TURNS, TOKENS = 2, 3, 2
ACTIONS = tuple(itertools.product((0, 1), repeat=TOKENS))
REWARD = torch.tensor([[0.0, 1.0, -0.5, 0.5], [3.0, 2.0, 4.0, 2.5]], dtype=torch.float64)
"""[state, action]: the next window does not show it."""
MOVES = torch.tensor([[0.05, 0.3, 0.1, 0.6], [0.95, 0.7, 0.9, 0.4]], dtype=torch.float64)
"""[state, action]: the chance that the next state is 1."""
THETA = torch.tensor([[0.3, -0.7, 0.5], [-0.4, 0.6, 0.9]], dtype=torch.float64)
"""[state, node]: the logit of token 1 at the start, after a 0 and after a 1."""


class Path(NamedTuple):
    """One way an episode may go."""

    states: tuple[int, ...]
    """One more than there are actions."""
    actions: tuple[int, ...]


def paths(turns: int) -> Iterator[Path]:
    for states in itertools.product(range(STATES), repeat=turns + 1):
        for actions in itertools.product(range(len(ACTIONS)), repeat=turns):
            yield Path(states, actions)


def nodes(action: int) -> list[int]:
    """Where the two tokens of an action are chosen."""
    return [0, 1 + ACTIONS[action][0]]


def policy(theta: Tensor) -> Tensor:
    """[state, action]: the probability of each action, token by token."""
    one = torch.sigmoid(theta)
    rows = [
        [
            torch.stack(
                [
                    one[state, node] if token else 1 - one[state, node]
                    for node, token in zip(nodes(action), ACTIONS[action], strict=True)
                ]
            ).prod()
            for action in range(len(ACTIONS))
        ]
        for state in range(STATES)
    ]
    return torch.stack([torch.stack(row) for row in rows])


POLICY: list[list[float]] = policy(THETA).tolist()
ONE: list[list[float]] = torch.sigmoid(THETA).tolist()
UP: list[list[float]] = MOVES.tolist()


def chance(path: Path) -> float:
    """The probability of a path; the first state is either."""
    found = 0.5
    for state, action, after in zip(path.states, path.actions, path.states[1:], strict=False):
        up = UP[state][action]
        found *= POLICY[state][action] * (up if after else 1 - up)
    return found


def exact_gradient(turns: int, after: Tensor, gamma: float = 1.0) -> Tensor:
    """Of the expected discounted sum of rewards and of `after` [state], what the state past the
    last turn is worth: by autograd through the Bellman equation.
    """
    theta = THETA.clone().requires_grad_()
    chosen, value = policy(theta), after
    for _ in range(turns):
        ahead = (1 - MOVES) * value[0] + MOVES * value[1]
        value = (chosen * (REWARD + gamma * ahead)).sum(1)
    (found,) = torch.autograd.grad(value.mean(), theta)
    return found


def played(path: Path, *, at_the_end: bool = False, stop: Stop = Stop.TERMINATED) -> Trajectory:
    """A path as the trainer sees it: a window a turn, which shows the state and the turn."""
    earned = [float(REWARD[s, a]) for s, a in zip(path.states, path.actions, strict=False)]
    if at_the_end:
        earned = [*([0.0] * (len(earned) - 1)), sum(earned)]
    windows = [
        Segment(prompt_ids=[10 + state], turns=[turn(*ACTIONS[action], reward=reward)])
        for state, action, reward in zip(path.states, path.actions, earned, strict=False)
    ]
    return rollout(*windows, stop=stop, state_ids=[10 + path.states[-1]])


def gradient(advantages: Tensor, every: list[Path]) -> Tensor:
    """E[sum of A times the score], exactly: [state, node]."""
    found = [[0.0] * 3 for _ in range(STATES)]
    rows = iter(advantages.tolist())
    for path in every:
        weight = chance(path)
        for state, action in zip(path.states, path.actions, strict=False):
            credit = next(rows)
            for place, (node, token) in enumerate(
                zip(nodes(action), ACTIONS[action], strict=True), start=1
            ):
                found[state][node] += weight * credit[place] * (token - ONE[state][node])
    return torch.tensor(found, dtype=torch.float64)


def expected_after(every: list[Path], earned: Mapping[Path, list[float]]) -> Tensor:
    """[P * turns, 3]: for each window and token, the mean of what is earned from there on over all
    paths that show the same: what the best critic says that reads the window.
    """
    chances: dict[tuple[int, ...], float] = {}
    sums: dict[tuple[int, ...], float] = {}
    for path in every:
        p = chance(path)
        for k, key in window_keys(path):
            chances[key] = chances.get(key, 0.0) + p
            sums[key] = sums.get(key, 0.0) + p * sum(earned[path][k:])
    rows: list[list[float]] = []
    for path in every:
        said = [sums[key] / chances[key] for _, key in window_keys(path)]
        rows += [[0.0, *said[i : i + TOKENS]] for i in range(0, len(said), TOKENS)]
    return torch.tensor(rows, dtype=torch.float64)


def window_keys(path: Path) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What is on the page before each token, and which turn it is."""
    for k, (state, action) in enumerate(zip(path.states, path.actions, strict=False)):
        for place in range(TOKENS):
            yield k, (k, state, *ACTIONS[action][:place])


def earned_by(path: Path) -> list[float]:
    return [float(REWARD[s, a]) for s, a in zip(path.states, path.actions, strict=False)]


def off(found: Tensor, exact: Tensor) -> float:
    """How far a gradient is from the exact one, as a share of its length."""
    return float((found - exact).norm() / exact.norm())


def raw(lam: float) -> dict[str, object]:
    return {"algorithm": {"whiten": False, "advantage_options": {"lam": lam}}}


@pytest.mark.parametrize(
    "lam", [*(pytest.param(lam, marks=pytest.mark.slow) for lam in (0.0, 0.5)), 0.95, 1.0]
)
def test_gae_with_rewards_at_their_turns_is_exact_and_with_their_sum_at_the_end_it_is_not(
    lam: float,
) -> None:
    every = list(paths(TURNS))
    exact = exact_gradient(TURNS, torch.zeros(STATES))
    earned = {path: earned_by(path) for path in every}
    values = expected_after(every, earned)
    found = credited("ppo", experience(*map(played, every)), raw(lam), values=values)
    assert off(gradient(found.advantages, every), exact) < 1e-6
    # the positive control: the sum at the end, with the best critic that reads the same windows
    total = {path: [*([0.0] * (TURNS - 1)), sum(earned[path])] for path in every}
    late = experience(*(played(path, at_the_end=True) for path in every))
    values = expected_after(every, total)
    moved = credited("ppo", late, raw(lam), values=values)
    bias = off(gradient(moved.advantages, every), exact)
    if lam == 1.0:
        assert bias < 1e-6
    else:
        assert bias > 0.01


@pytest.mark.slow
def test_returns_of_turns_vary_less_than_the_sum_of_all() -> None:
    """Without a critic both are exact; a turn's own return leaves out what it could not cause."""
    every = list(paths(TURNS))
    exact = exact_gradient(TURNS, torch.zeros(STATES))
    spread: list[float] = []
    for at_the_end in (False, True):
        made = experience(*(played(path, at_the_end=at_the_end) for path in every))
        zeros = torch.zeros_like(made.batch.mask)
        returns = credited("ppo", made, raw(1.0), values=zeros).advantages.double()
        assert off(gradient(returns, every), exact) < 1e-6
        each = [gradient(returns[3 * n : 3 * n + 3], [p]) for n, p in enumerate(every)]
        chances = [chance(path) for path in every]
        second = sum(float(one.square().sum()) / p for one, p in zip(each, chances, strict=True))
        spread.append(second - float(exact.square().sum()))
    assert spread[1] > 1.3 * spread[0]


STAY = 0.9
"""The chance, after each turn, that the episode goes on, where it has no last turn."""


def endless_values() -> Tensor:
    """[state]: V = sum over actions of p (r + STAY * V(next)), where the episode has no limit."""
    chosen = policy(THETA)
    up = (chosen * MOVES).sum(1)
    step = torch.stack([1 - up, up], 1)
    reward = (chosen * REWARD).sum(1)
    return torch.linalg.solve(torch.eye(STATES, dtype=torch.float64) - STAY * step, reward)


@pytest.mark.parametrize("lam", [0.95, 1.0])
def test_a_truncated_episode_ends_in_the_value_of_its_state(lam: float) -> None:
    """The gradient of the first two turns, where an episode goes on with STAY, and we stop looking.

    STAY is gamma here, so that no path ends by itself.
    """
    every = list(paths(2))
    ahead = endless_values()
    exact = exact_gradient(2, ahead, STAY)
    made = experience(*(played(path, stop=Stop.MAX_TURNS) for path in every))
    assert made.states is not None
    assert made.states_of.tolist() == list(range(len(every)))
    states = made.states.ids[:, 0] - 10  # a window of one token, which is the state
    # tokens of a turn are one decision here: its value is read once, before it
    values = torch.zeros(made.batch.mask.shape, dtype=torch.float64)
    values[:, 1] = ahead[made.batch.ids[:, 0] - 10]
    options = {"gamma": STAY, "lam": lam}
    chosen = {"whiten": False, "credit": {"discount": "turn"}, "advantage_options": options}
    overrides = {"algorithm": chosen}
    found = credited("ppo", made, overrides, values=values, bootstrap=ahead[states])
    discounts = torch.tensor([1.0, STAY], dtype=torch.float64).repeat(len(every)).unsqueeze(1)
    assert off(gradient(found.advantages * discounts, every), exact) < 1e-6
    # the positive control: nothing after the limit
    blind = credited("ppo", made, overrides, values=values, bootstrap=torch.zeros(len(every)))
    assert off(gradient(blind.advantages * discounts, every), exact) > 0.4


# --- in the trainer -------------------------------------------------------------------------------


def updater(overrides: Mapping[str, object] | None = None) -> Any:
    model = build_model(40, hidden=16, layers=1, heads=2, max_length=64)
    pupil = Learner(model, TrainerConfig(lr=1e-2), ReadingOptions(values=True))
    assert pupil.value_head is not None
    torch.nn.init.normal_(pupil.value_head.weight, generator=torch.Generator().manual_seed(0))
    return Updater(resolve(load_recipe("ppo", overrides)), pupil)


def test_the_value_head_judges_the_state_after_truncation() -> None:
    made = updater()
    ended = rollout(Segment(prompt_ids=[4, 5], turns=[turn(6, 7)]))
    stopped = rollout(
        Segment(prompt_ids=[4, 5], turns=[turn(6, 7)]),
        stop=Stop.MAX_TURNS,
        state_ids=[4, 5, 6, 7, 8, 9],
    )
    lost = rollout(Segment(prompt_ids=[4, 5], turns=[turn(6, 7)]), stop=Stop.CONTEXT_FULL)
    idle = rollout(Segment(prompt_ids=[4, 5], turns=[turn(6, 7)]), stop=Stop.NO_CALLS)
    idle.terminated = False
    found = made.known(experience(ended, stopped, lost, idle)).bootstrap
    model = made.learner.model

    def said(ids: list[int]) -> float:
        hidden = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return float(made.learner.value_head(hidden).detach())

    # without a record of the state, it is the window as far as it was sampled
    expected = [0.0, said([4, 5, 6, 7, 8, 9]), said([4, 5, 6, 7]), 0.0]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def owners(found: Experience) -> list[Tensor]:
    """Return which rows each rollout has, [B, 1] bool."""
    numbers = range(len(found.rewards))
    return [(found.rollouts == number).unsqueeze(1) for number in numbers]


@pytest.mark.parametrize("agg", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("discount", ["token", "turn"])
def test_the_loss_of_the_value_head_is_a_mean_over_where_it_is_read(
    discount: str, agg: str
) -> None:
    settings = {"credit": {"discount": discount}, "value": {"value_clip": 1e9}, "agg": agg}
    made = updater({"algorithm": settings})
    found = experience(cut(2, 2), rollout(Segment(prompt_ids=[1], turns=[turn(5, 6, reward=1.0)])))
    credited = made.credited(found)
    batch = credited.batch
    predicted = made.learner.predict(batch)
    total, weight = made.loss_of(credited)(batch, predicted)
    policy = made.algorithm.loss(
        replace(
            batch.inputs, logp=predicted.logp, mask=batch.mask, old_logp=predicted.logp.detach()
        )
    )
    read = (batch.mask if batch.inputs.value_mask is None else batch.inputs.value_mask).bool()
    assert int(read.sum()) == {"token": 12, "turn": 5}[discount]
    errors = (predicted.values - batch.inputs.returns).square()
    wholes = [read] if agg == "token_mean" else [read * owned for owned in owners(found)]
    mean = torch.stack([errors[whole].mean() for whole in wholes]).mean()
    expected = policy.total / policy.weight + 0.5 * 0.5 * mean
    torch.testing.assert_close(total / weight, expected)


@pytest.mark.parametrize(
    ("recipe", "credit", "why"),
    [
        ("grpo", {"discount": "turn"}, "takes one reward per rollout"),
        ("grpo", {"truncation": "value"}, "gae_advantages does"),
        ("reinforce_pp", {"truncation": "value"}, "reinforce_pp_advantages does not take"),
    ],
)
def test_credit_that_an_estimator_cannot_give_is_refused(
    recipe: str, credit: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        resolve(load_recipe(recipe, {"algorithm": {"credit": credit}}))
