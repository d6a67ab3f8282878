"""Given texts that models score: answers nobody sampled in this place, as rows of token ids.

A recipe asks for them by the parameters of its functions:

| text | behind | gives |
|---|---|---|
| the task's answer | the rollout's thoughts | `answer_probabilities` (RLPR) |
| the task's answer | the task alone | `prior_probabilities` |
| the rollout's own answer | the task alone | `conditional_perplexity` (SAR) |
| the rollout's own answer | nothing | `answer_perplexity` |

The rows are made where rollouts are gathered, and scored by the policy before a step's first update
like any other row, at the temperature of sampling, so that ranks and packing need no case for them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ludus.agent import Trajectory
from ludus.errors import ConfigError

from ..rollout.batch import Batch, Row, pad

GOLD, PRIOR, OWN, ALONE = "gold", "prior", "own", "alone"
"""The names of the texts, in the order of the table."""
ASKED_BY = {
    "answer_probabilities": GOLD,
    "answer_mask": GOLD,
    "prior_probabilities": PRIOR,
    "conditional_perplexity": OWN,
    "answer_perplexity": ALONE,
}
"""The text behind each name that a function may ask for."""


@dataclass(frozen=True)
class GivenTexts:
    """Makes the rows of given texts."""

    wanted: frozenset[str]
    """The names of the texts."""
    encode: Callable[[str], list[int]]
    """Text to ids, in which no special token can be spelled out."""
    decode: Callable[[list[int]], str]
    marker: str = ""
    """What an answer stands behind in the last turn; see `AlgorithmSettings.answer_marker`."""
    ends: frozenset[int] = frozenset()
    """Ids that end a turn, and are no part of an answer."""

    def rows(self, trajectories: Sequence[Trajectory]) -> dict[str, Batch]:
        """Return a row of each text for each of N trajectories, [N, T] by name.

        Raises:
            ConfigError: the environment does not say the answer.
        """
        return {
            name: pad([self._row(name, trajectory) for trajectory in trajectories])
            for name in sorted(self.wanted)
        }

    def _row(self, name: str, trajectory: Trajectory) -> Row:
        segments = [segment for segment in trajectory.segments if segment.turns]
        if not segments:  # nothing was sampled
            return Row([0], [0], [0.0])
        task, last = segments[0].prompt_ids, segments[-1]
        spans = list(last.spans())
        start, turn = spans[-1]
        cut = start + self._answer_at(turn.out_ids)
        own = [token for token in last.ids()[cut:] if token not in self.ends]
        text = own if name in (OWN, ALONE) else self._gold(trajectory)
        before = {GOLD: last.ids()[:cut], ALONE: task[:1]}.get(name, task)
        mask = [*([0] * len(before)), *([1] * len(text))]
        return Row([*before, *text], mask, [0.0] * len(mask))

    def _gold(self, trajectory: Trajectory) -> list[int]:
        if trajectory.gold is None:
            raise ConfigError(
                "the recipe scores the answers of tasks, and the environment tells none: its "
                "info['gold'] is empty; take a recipe that reads rewards alone"
            )
        return self.encode(str(trajectory.gold))

    def _answer_at(self, ids: list[int]) -> int:
        """Return where the answer begins in a turn: behind the last mark, or at the start."""
        if not self.marker:
            return 0
        text = self.decode(ids)
        place = text.rfind(self.marker)
        if place < 0:
            # thoughts without an end: the answer stands behind all of them
            return len(ids) - sum(token in self.ends for token in ids[-1:])
        until = place + len(self.marker)
        counts = range(len(ids) + 1)
        return bisect_left(counts, until, key=lambda count: len(self.decode(ids[:count])))


def texts_of(needs: frozenset[str]) -> frozenset[str]:
    """Return the names of the texts that a recipe's needs ask for."""
    return frozenset(ASKED_BY[name] for name in needs if name in ASKED_BY)


def answers_of(scored: Mapping[str, tuple[Batch, Tensor]]) -> dict[str, Tensor]:
    """Return what recipes read of scored texts, by the name of the field of `Inputs`.

    Args:
        scored: rows and their log-probabilities [N, T], by the name of the text.
    """
    answers: dict[str, Tensor] = {}
    for name, (batch, logp) in scored.items():
        tokens, mask = packed_left(logp, batch.mask)
        if name == GOLD:
            answers |= {"answer_probabilities": tokens.exp() * mask, "answer_mask": mask}
        elif name == PRIOR:
            answers["prior_probabilities"] = tokens.exp() * mask
        else:
            mean = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)
            field = "conditional_perplexity" if name == OWN else "answer_perplexity"
            answers[field] = (-mean).exp()
    return answers


def packed_left(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the masked values [N, A] of each row from its first column on, and their mask.

    >>> import torch
    >>> packed_left(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    (tensor([[1., 2.]]), tensor([[1., 1.]]))
    """
    chosen = mask.bool()
    most = int(chosen.sum(1).max()) if len(mask) else 0
    order = chosen.long().argsort(dim=1, descending=True, stable=True)[:, :most]
    return values.gather(1, order) * mask.gather(1, order), mask.gather(1, order)
