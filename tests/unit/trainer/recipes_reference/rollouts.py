"""The policy and the rollouts that every recipe learns from, made so as to tell recipes apart.

The policy is a softmax of a matrix times fixed features, so that its forward pass and gradient are
a line of NumPy each, and so that every update moves the ratios of every later one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ludus.agent import Episode, Segment, Stop, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.rollout.collect import Group
from ludus.verdict import Verdict

MAX_TOKENS = 10
GROUPS = 24
WIDTH, VOCABULARY, FEATURES = 24, 11, 6


class LinearPolicy(nn.Module):
    """Logits are a matrix times features of the last token and its place."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.lm_head = nn.Linear(FEATURES, VOCABULARY, bias=False)
        weight = torch.randn(VOCABULARY, FEATURES, generator=draw)
        self.lm_head.weight = nn.Parameter(weight.to(torch.get_default_dtype()))
        self.tokens = torch.randn(VOCABULARY, FEATURES, generator=draw)
        self.places = torch.randn(WIDTH, FEATURES, generator=draw)
        sizes = SimpleNamespace(hidden_size=FEATURES)
        self.config = SimpleNamespace(get_text_config=lambda: sizes)
        self.device = torch.device("cpu")
        self.dtype = torch.get_default_dtype()

    def features(self, ids: Tensor) -> Tensor:
        found = 0.5 * (self.tokens[ids] + self.places[: ids.shape[1]])
        return found.to(torch.get_default_dtype())

    def base_model(self, input_ids: Tensor, use_cache: bool) -> Any:
        assert not use_cache
        return SimpleNamespace(last_hidden_state=self.features(input_ids))


def rollout(
    draw: torch.Generator, reward: float, length: int, stop: Stop, *, rows: int = 1
) -> Trajectory:
    """Long ones have a tool's words between two turns, of which each earns half; the engine's
    probabilities are a little off. With several rows, each is one of a summary's segments.
    """

    def words(count: int) -> list[int]:
        return torch.randint(0, VOCABULARY, (count,), generator=draw).tolist()

    def turn(count: int, seen: int) -> Turn:
        noise = (-2.4 + 0.6 * torch.randn(count, generator=draw)).tolist()
        return Turn(
            obs_ids=words(seen), out_ids=words(count), logprobs=noise, reward=reward / parts / rows
        )

    parts = 2 if length > 3 else 1
    first = length // parts

    def segment() -> Segment:
        turns = [turn(first, 0)] + ([turn(length - first, 2)] if parts == 2 else [])
        return Segment(prompt_ids=words(3), turns=turns)

    return Trajectory(
        verdict=Verdict.of(reward),
        stop=stop,
        terminated=stop is Stop.TERMINATED,
        segments=[segment() for _ in range(rows)],
    )


def groups(*, max_rows: int) -> list[Group]:
    """Groups of four: mixed, solved, failed, with partial rewards, cut and overlong ones."""
    draw = torch.Generator().manual_seed(11)
    made: list[Group] = []
    for number in range(GROUPS):
        if number % 7 == 5:
            rewards = [1.0] * 4
        elif number % 7 == 6:
            rewards = [0.0] * 4
        elif number % 7 == 4:
            rewards = [0.25, 1.0, 0.5, 0.0]
        else:
            rewards = [1.0, 0.0, 0.0, 1.0] if number % 2 else [1.0, 0.0, 0.0, 0.0]
        played: list[Episode] = []
        for place, reward in enumerate(rewards):
            length = int(torch.randint(2, MAX_TOKENS + 1, (1,), generator=draw))
            kind = (3 * number + place) % 8
            stop = {0: Stop.LENGTH, 1: Stop.MAX_TURNS}.get(kind, Stop.TERMINATED)
            rows = 1 + (number + 2 * place) % max_rows
            one = rollout(draw, reward, length, stop, rows=rows)
            played.append(Episode(task=str(number), trajectories=[one]))
        made.append(Group(Task(id=str(number), split="train"), played, 0))
    return made
