"""Plays small games of tokens with a tiny model, and learns from them by the trainer's own learner.

A game is a few tokens long, so that a step of 128 rollouts takes a tenth of a second. What samples
is a loop below, so that a claim may let other weights sample than those that learn (older ones,
rounded ones). Gathering, shaping, credit, corrections, losses and updates are those of `Updater`,
with shipped recipes.
"""

from __future__ import annotations

import copy
import random
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.mask_policy import MaskPolicy
from ludus.trainer.models.tiny import build_model
from ludus.trainer.recipes.recipe import VocabularySettings, load_recipe, merge
from ludus.trainer.recipes.resolution import corrected, plan_updates, resolve
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

VOCABULARY, START, FIRST = 32, 3, 8
"""Ids in all; the one every prompt begins with; the first symbol that a policy may say."""
TASK = 16
"""The id of task 0."""
TASKS = 8
"""Tasks of a game, one id each."""
SHAPE = {"hidden": 32, "layers": 1, "heads": 2, "max_length": 64}
"""About 14 thousand parameters."""
LAST = 8
"""Steps at the end of a run over which its figures are averaged."""

Model = Any


class Game(Protocol):
    """A game of at most `most` tokens, behind each of which `shown` ids are observed."""

    most: int
    shown: int

    def step(self, task: int, said: Sequence[int], rng: random.Random) -> tuple[float, bool]:
        """Return the reward of the last token that was said, and whether the game is over."""
        ...

    def seen(self, task: int, said: Sequence[int]) -> list[int]:
        """Return the `shown` ids behind the last token."""
        ...

    def demo(self, task: int, rng: random.Random) -> list[int]:
        """Return what the demonstrator of the warm start says."""
        ...


@dataclass
class Arm:
    """How one policy of a claim learns."""

    recipe: str = "grpo"
    overrides: Mapping[str, object] = field(default_factory=dict[str, object])
    group: int = 8
    tasks: int = 8
    """Groups a step; tasks come in turn."""
    steps: int = 50
    lr: float = 3e-3
    age: int = 0
    """Steps by which the weights that sample are older than those that learn."""
    corrects: bool = False
    """Whether the recipe is corrected as `overlap.correction = "auto"` does."""
    rounding: int = 0
    """Bits of the mantissa of the weights that sample; 0 rounds nothing."""
    pruned: float = 0.0
    """The share of the policy's probability that the tokens hold which may be sampled, by the
    learner's weights at the beginning of the step; 0 prunes nothing."""
    turns: bool = False
    """Whether each token is a turn, which has its own reward."""
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """What is asked of every rollout, as a sampling policy would."""
    regrade: Callable[[Sequence[Group]], None] | None = None
    """Gives the rollouts of a step other rewards."""


@dataclass
class Played:
    """What a run was, step by step."""

    rewards: list[float] = field(default_factory=list[float])
    lengths: list[float] = field(default_factory=list[float])
    tokens: int = 0
    gap: list[float] = field(default_factory=list[float])
    """Nats a token between sampler and learner (k3)."""
    said: list[list[tuple[int, ...]]] = field(default_factory=list[list[tuple[int, ...]]])
    """Task and tokens of each rollout."""
    model: Model = None

    def reward(self) -> float:
        """Mean reward at the end."""
        return statistics.fmean(self.rewards[-LAST:])

    def length(self) -> float:
        """Mean tokens at the end."""
        return statistics.fmean(self.lengths[-LAST:])


def fresh(seed: int) -> Model:
    """A new model."""
    return build_model(VOCABULARY, seed=seed, **SHAPE)


def warmed(game: Game, seed: int, *, steps: int = 60, lr: float = 1e-2) -> Model:
    """A model that says what the game's demonstrator says."""
    model, rng = fresh(seed), random.Random(f"warm/{seed}")
    fit(model, game, rng, steps=steps, lr=lr)
    return model


def fit(model: Model, game: Game, rng: random.Random, *, steps: int, lr: float) -> None:
    """Supervised updates on demonstrations of all tasks."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    for _ in range(steps):
        rows, marks = list[list[int]](), list[list[int]]()
        for task in range(TASKS):
            for _ in range(8):
                row, mark, said = [START, TASK + task], [0, 0], list[int]()
                for token in game.demo(task, rng):
                    said.append(token)
                    shown = game.seen(task, said)
                    row += [token, *shown]
                    mark += [1, *[0] * len(shown)]
                rows.append(row)
                marks.append(mark)
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([mark + [0] * (longest - len(mark)) for mark in marks])[:, 1:].float()
        logp = torch.log_softmax(model(input_ids=ids).logits[:, :-1], -1)
        token_logp = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
        loss = -(token_logp * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def train(game: Game, arm: Arm, start: Model, seed: int) -> Played:
    """Train a copy of `start`."""
    torch.manual_seed(seed)
    sizes = {"sampling": {"group_size": arm.group, "filter": ""}}
    recipe = load_recipe(arm.recipe, merge(arm.overrides, sizes))
    recipe = corrected(recipe) if arm.corrects else recipe
    algorithm = resolve(recipe, max_tokens=game.most)
    settings = plan_updates(algorithm, groups=arm.tasks).settings
    learner = Learner(
        copy.deepcopy(start),
        TrainerConfig(lr=arm.lr),
        ReadingOptions(
            values="values" in algorithm.needs,
            engine_copy=False,
            vocabulary=VocabularySettings(top_p=arm.pruned, every=1) if arm.pruned else None,
        ),
    )
    updater = Updater(algorithm, learner, updates=settings, max_kl=TrainerConfig().max_kl)
    played, rng = Played(model=learner.model), random.Random(f"play/{seed}")
    draw = torch.Generator().manual_seed(seed)
    older: deque[Model] = deque(maxlen=arm.age + 1)
    for step in range(arm.steps):
        older.append(sampler_of(learner.model, arm))
        tasks = [(step * arm.tasks + n) % TASKS for n in range(arm.tasks)]
        groups = play(older[0], game, tasks, arm, rng, draw, mask=learner.mask)
        for episode in [each for group in groups for each in group.episodes]:
            episode.trajectories[0].asked = dict(arm.marks)
        note(played, groups)
        if arm.regrade is not None:
            arm.regrade(groups)
        experience = gather(groups)
        if experience is None:
            continue
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        numbers = updater.step(experience, generator=generator)
        played.gap.append(numbers.get("sampler_gap", numbers.get("sampler_kl", 0.0)))
    return played


def sampler_of(model: Model, arm: Arm) -> Model:
    """The weights that sample: the learner's own, or a copy that stays, perhaps rounded."""
    if not arm.age and not arm.rounding:
        return model
    taken = copy.deepcopy(model)
    if arm.rounding:
        with torch.no_grad():
            for weight in taken.parameters():
                weight.copy_(rounded(weight, arm.rounding))
    return taken


def rounded(weight: Tensor, bits: int) -> Tensor:
    """A tensor with so many bits of mantissa, rounded to the nearest.

    >>> rounded(torch.tensor([1.0, 1.2, 1.3]), 1)
    tensor([1.0000, 1.0000, 1.5000])
    """
    mantissa, exponent = torch.frexp(weight)
    scale = 2.0 ** (bits + 1)
    return torch.ldexp(torch.round(mantissa * scale) / scale, exponent)


@torch.no_grad()
def play(
    model: Model,
    game: Game,
    tasks: Sequence[int],
    arm: Arm,
    rng: random.Random,
    draw: torch.Generator,
    *,
    mask: MaskPolicy | None = None,
) -> list[Group]:
    """Play a group of rollouts of each task, all of them a token at a time."""
    seats = [task for task in tasks for _ in range(arm.group)]
    ids = torch.tensor([[START, TASK + task] for task in seats])
    said: list[list[int]] = [[] for _ in seats]
    logps: list[list[float]] = [[] for _ in seats]
    rewards: list[list[float]] = [[] for _ in seats]
    over = [False] * len(seats)
    for _ in range(game.most):
        logits = model(input_ids=ids).logits[:, -1].float()
        if mask is not None:
            logits = mask.masked(logits, mask.model(input_ids=ids).logits[:, -1].float())
        logits = torch.log_softmax(logits, -1)
        tokens = torch.multinomial(logits.exp(), 1, generator=draw)
        chosen, logp = tokens.squeeze(1).tolist(), logits.gather(1, tokens).squeeze(1).tolist()
        shown: list[list[int]] = []
        for seat, task in enumerate(seats):
            if over[seat]:
                shown.append([0] * game.shown)
                continue
            said[seat].append(chosen[seat])
            logps[seat].append(logp[seat])
            reward, over[seat] = game.step(task, said[seat], rng)
            rewards[seat].append(reward)
            shown.append(game.seen(task, said[seat]))
        if all(over):
            break
        ids = torch.cat([ids, tokens, torch.tensor(shown, dtype=torch.long)], 1)
    groups: list[Group] = []
    for number, task in enumerate(tasks):
        episodes = [
            episode_of(game, task, said[seat], logps[seat], rewards[seat], over[seat], arm.turns)
            for seat in range(number * arm.group, (number + 1) * arm.group)
        ]
        groups.append(Group(Task(id=f"train/{task}", split="train"), episodes, 0, ordinal=number))
    return groups


def episode_of(
    game: Game,
    task: int,
    said: list[int],
    logps: list[float],
    rewards: list[float],
    over: bool,
    turns: bool,
) -> Episode:
    """The record of a rollout: a turn for each token, or one for all of them."""
    if turns or game.shown:
        spans = [
            Turn(
                out_ids=[token],
                logprobs=[logps[n]],
                versions=[0],
                reward=rewards[n] if turns else 0.0,
                obs_ids=game.seen(task, said[:n]) if n else [],
            )
            for n, token in enumerate(said)
        ]
    else:
        spans = [Turn(out_ids=said, logprobs=logps, versions=[0] * len(said))]
    ended = Trajectory(
        verdict=Verdict.of(sum(rewards)),
        segments=[Segment(prompt_ids=[START, TASK + task], turns=spans)],
        stop=Stop.TERMINATED if over else Stop.LENGTH,
    )
    return Episode(task=f"train/{task}", trajectories=[ended])


def note(played: Played, groups: Sequence[Group]) -> None:
    """Keep a step's figures."""
    ended = [(g.task, e.trajectories[0]) for g in groups for e in g.episodes]
    tokens = [each.sampled_tokens for _, each in ended]
    played.rewards.append(statistics.fmean(each.verdict.unwrap() for _, each in ended))
    played.lengths.append(statistics.fmean(tokens))
    played.tokens += sum(tokens)
    played.said.append(
        [
            (int(task.id[6:]), *[i for turn in each.turns for i in turn.out_ids])
            for task, each in ended
        ]
    )
