"""Given texts, scored where nobody sampled them, and what recipes make of that; credit of turns
from turns of other rollouts.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch

from ludus.agent import Episode, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.errors import ConfigError
from ludus.trainer.algorithms import (
    distillation_advantages,
    gigpo_advantages,
    min_p_proxy_logp,
    mt_grpo_advantages,
)
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.texts import GivenTexts, texts_of
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import load_policies, load_recipe, merge
from ludus.trainer.recipes.resolution import resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

WORDS, END, MARK = 40, 2, 30


def group(gold: Any = "12") -> Group:
    """Two rollouts that think (9, 10), say the mark, and answer."""
    episodes: list[Episode] = []
    for number, (thoughts, answer) in enumerate((([9, 10], [11]), ([12], [13, 14]))):
        said = [*thoughts, MARK, *answer, END]
        turn = Turn(out_ids=said, logprobs=[-1.0] * len(said))
        trajectory = Trajectory(
            verdict=Verdict.of(float(number)),
            segments=[Segment(prompt_ids=[3, 4, 5], turns=[turn])],
            gold=gold,
        )
        episodes.append(Episode(task="t", trajectories=[trajectory]))
    return Group(Task(id="t", split="train"), episodes, 0)


def updater(policy: str, *, reference: Learner | None = None, **algorithm: Any) -> Updater:
    table = merge(load_policies(policy), {"algorithm": algorithm})
    resolved = resolve(load_recipe("grpo", table), max_tokens=8)
    model = build_model(WORDS, hidden=16, layers=1, heads=2, seed=1)
    made = Updater(resolved, Learner(model, TrainerConfig(), ReadingOptions()), reference=reference)
    made.texts = GivenTexts(
        texts_of(resolved.needs),
        encode=lambda text: [20 + int(each) for each in text],
        decode=lambda ids: "".join("#" if each == MARK else "x" for each in ids),
        marker="#",
        ends=frozenset({END}),
    )
    return made


def logp_of(learner: Any, before: list[int], text: list[int]) -> torch.Tensor:
    """The text's log-probabilities by a plain forward pass."""
    ids = torch.tensor([[*before, *text]])
    every = torch.log_softmax(learner.model(input_ids=ids).logits[0], -1)
    places = range(len(before) - 1, len(before) + len(text) - 1)
    return torch.stack([every[at, token] for at, token in zip(places, text, strict=True)]).detach()


def test_the_answer_is_scored_behind_the_thoughts_and_behind_the_task() -> None:
    made = updater("rlpr")
    experience = made.gather([group()])
    assert experience is not None
    known = made.known(experience)
    gold = [21, 22]
    for row, thoughts in enumerate(([9, 10, MARK], [12, MARK])):
        after = logp_of(made.learner, [3, 4, 5, *thoughts], gold).exp()
        prior = logp_of(made.learner, [3, 4, 5], gold).exp()
        assert known.answer_probabilities is not None
        assert known.prior_probabilities is not None
        torch.testing.assert_close(known.answer_probabilities[row], after)
        torch.testing.assert_close(known.prior_probabilities[row], prior)
        gain = float((after - prior).mean().clamp(0, 1))
        shaped = made.credited(experience, known).shaped
        assert float(shaped[row]) == pytest.approx(gain, abs=1e-6)


def test_a_rollouts_own_answer_is_scored_with_and_without_the_task() -> None:
    made = updater("sar")
    experience = made.gather([group()])
    assert experience is not None
    known = made.known(experience)
    for row, answer in enumerate(([11], [13, 14])):
        plain = (-logp_of(made.learner, [3], answer).mean()).exp()
        asked = (-logp_of(made.learner, [3, 4, 5], answer).mean()).exp()
        assert known.answer_perplexity is not None
        assert known.conditional_perplexity is not None
        torch.testing.assert_close(known.answer_perplexity[row], plain)
        torch.testing.assert_close(known.conditional_perplexity[row], asked)
        bonus = 0.2 * float((plain - asked) / plain)
        shaped = made.credited(experience, known).shaped
        assert float(shaped[row]) == pytest.approx(row + bonus, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_of_a_long_turn_is_found_without_decoding_each_of_its_beginnings(
    seed: int,
) -> None:
    draw, decoded = Random(seed), list[int]()
    words = {token: draw.choice(["x", "yy", "#", "z#z", ""]) for token in range(30)}

    def decode(ids: list[int]) -> str:
        decoded.append(len(ids))
        return "".join(words[each] for each in ids)

    said = [draw.randrange(30) for _ in range(draw.randint(1, 2000))]
    text = decode(said)
    texts = GivenTexts(frozenset({"own"}), lambda _: [], decode, marker="#")
    segment = Segment(prompt_ids=[3], turns=[Turn(out_ids=said, logprobs=[-1.0] * len(said))])
    decoded.clear()
    batch = texts.rows([Trajectory(verdict=Verdict.of(0.0), segments=[segment])])["own"]
    behind = "".join(words[int(each)] for each in batch.ids[0][batch.mask[0].bool()])
    answer = text.rpartition("#")[2] if "#" in text else ""
    assert answer.endswith(behind)
    assert "#" not in behind
    assert len(decoded) < 20


def test_an_environment_without_answers_is_refused() -> None:
    with pytest.raises(ConfigError, match="the environment tells none"):
        updater("rlpr").gather([group(gold=None)])


def test_a_filter_by_shaped_rewards_would_come_before_the_texts_are_scored() -> None:
    table = merge(
        load_policies("rlpr"),
        {
            "sampling": {
                "filter": "reward_spread_mask",
                "filter_options": {"threshold": 0.1, "ddof": 1},
            }
        },
    )
    resolved = resolve(load_recipe("grpo", table), max_tokens=8)
    model = build_model(WORDS, hidden=16, layers=1, heads=2)
    with pytest.raises(ConfigError, match='filter_by = "raw"'):
        Updater(resolved, Learner(model, TrainerConfig(), ReadingOptions()))


def test_the_proxy_is_the_policy_without_its_unlikely_tokens() -> None:
    made = updater("lp_reg", proxy_ratio=0.9)
    experience = made.gather([group()])
    assert experience is not None
    known = made.known(experience)
    assert known.proxy_logp is not None
    batch = experience.batch
    logits = made.learner.model(input_ids=batch.ids).logits  # type: ignore[attr-defined]
    expected = min_p_proxy_logp(logits[:, :-1], batch.ids[:, 1:], ratio=0.9)
    for row, place in batch.mask.nonzero().tolist():
        assert float(known.proxy_logp[row, place]) == pytest.approx(
            float(expected[row, place - 1]), abs=1e-5
        )


def test_a_teacher_credits_each_token_by_its_own_likelihood() -> None:
    teacher = build_model(WORDS, hidden=16, layers=1, heads=2, seed=7)
    reference = Learner(teacher, TrainerConfig(), ReadingOptions())
    made = updater("distill", reference=reference)
    experience = made.gather([group()])
    assert experience is not None
    batch = made.credited(experience).batch
    assert batch.inputs.advantages is not None
    said = [9, 10, MARK, 11, END]
    gap = logp_of(reference, [3, 4, 5], said) - logp_of(made.learner, [3, 4, 5], said)
    torch.testing.assert_close(batch.inputs.advantages[0, 3:8], gap, atol=1e-5, rtol=1e-4)


def test_distillation_descends_the_reverse_divergence() -> None:
    """Over all tokens of a state, the mean of A times the score is minus the gradient of KL."""
    logits = torch.randn(5, dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.randn(5, dtype=torch.float64), -1)
    student = torch.log_softmax(logits, -1)
    divergence = (student.exp() * (student - teacher)).sum()
    (wanted,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    credit = distillation_advantages(
        student.detach().unsqueeze(1), teacher.unsqueeze(1), torch.ones(5, 1)
    )[:, 0]
    (found,) = torch.autograd.grad((student.exp().detach() * credit * student).sum(), logits)
    torch.testing.assert_close(found, -wanted)


def test_gigpo_against_plain_python() -> None:
    """Three rollouts of one group and one of another; states are met at different turns."""
    draw = torch.Generator().manual_seed(0)
    lengths = [[2, 1, 3], [1, 2], [3], [2, 2]]
    states = [[5, 6, 6], [5, 7], [5], [5, 6]]
    groups = torch.tensor([0, 0, 0, 1])
    width = 6
    shape = (4, width)
    rewards, turns = torch.zeros(shape, dtype=torch.float64), torch.full(shape, -1)
    anchors, mask = torch.full(shape, -1), torch.zeros(shape)
    earned: list[list[float]] = []
    for row, sizes in enumerate(lengths):
        place, mine = 0, list[float]()
        for turn, size in enumerate(sizes):
            reward = float(torch.rand((), generator=draw))
            span = slice(place, place + size)
            turns[row, span], anchors[row, span], mask[row, span] = turn, states[row][turn], 1
            rewards[row, place + size - 1] = reward
            mine.append(reward)
            place += size
        earned.append(mine)

    def normal(values: list[float], value: float) -> float:
        if len(values) < 2:
            return 0.0
        mean = sum(values) / len(values)
        spread = (sum((each - mean) ** 2 for each in values) / (len(values) - 1)) ** 0.5
        return (value - mean) / (spread + 1e-6)

    returns = [
        [sum(0.9**n * r for n, r in enumerate(mine[k:])) for k in range(len(mine))]
        for mine in earned
    ]
    found = gigpo_advantages(rewards, groups, turns, anchors, mask, omega=0.5, gamma=0.9)
    for row, mine in enumerate(earned):
        peers = [sum(earned[n]) for n in range(4) if groups[n] == groups[row]]
        for turn in range(len(mine)):
            same = [
                returns[n][k]
                for n in range(4)
                for k in range(len(earned[n]))
                if groups[n] == groups[row] and states[n][k] == states[row][turn]
            ]
            wanted = normal(peers, sum(mine)) + 0.5 * normal(same, returns[row][turn])
            tokens = found[row][turns[row] == turn]
            assert tokens.tolist() == pytest.approx([wanted] * len(tokens), abs=1e-6)


def test_mt_grpo_gives_early_turns_their_own_rewards_and_all_the_outcome() -> None:
    turns = torch.tensor([[0, 0, 1], [0, 1, -1]])
    mask = (turns >= 0).float()
    tools = torch.tensor([[0.0, 0.5, 1.0], [0.25, 0.0, 0.0]])
    rewards, groups = torch.tensor([1.5, 0.25]), torch.tensor([0, 0])
    found = mt_grpo_advantages(rewards, groups, tools, turns, mask, coefficient=2.0, eps=0.0)
    half = 2**-0.5  # both parts normalise two values: plus and minus 1 / sqrt 2
    torch.testing.assert_close(
        found, torch.tensor([[3 * half, 3 * half, half], [-3 * half, -half, 0.0]])
    )
