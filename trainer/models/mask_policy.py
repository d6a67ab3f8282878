"""The masking policy of NLPO: an earlier copy of the policy, whose likeliest tokens are the only
ones that the policy may sample.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..algorithms import nlpo_vocabulary
from .loading import CausalLM

LEFT_OUT = -1e4
"""The logit of a token that may not be sampled. It is finite, so that the token's share of an
entropy is 0 and not NaN.
"""


class MaskPolicy:
    """Holds the copy, which becomes the policy again after every so many steps.

    The learner and a local engine read the same copy, so that they mask alike. It changes between
    steps alone, when no rollout is sampled.

    Args:
        policy: the model that learns, which is copied.
        top_p: as of `nlpo_vocabulary`.
        every: steps between two copies.
    """

    def __init__(self, policy: CausalLM, *, top_p: float, every: int) -> None:
        self.model = copy.deepcopy(policy).requires_grad_(requires_grad=False).eval()
        self.top_p, self.every = top_p, every
        self._policy = policy
        self._steps = 0

    def masked(self, logits: Tensor, own: Tensor, sampled: Tensor | None = None) -> Tensor:
        """Return logits of the policy without the tokens that may not be sampled.

        Args:
            logits: [B, V], of the policy.
            own: [B, V], of this copy in the same places.
            sampled: [B] or [B, K] int, tokens that were sampled: they stay, also where the engine's
                rounding had one among the likeliest that is not one of them here.
        """
        kept = nlpo_vocabulary(own, top_p=self.top_p)
        if sampled is not None:
            kept.scatter_(1, sampled.view(len(kept), -1), value=True)
        return logits.masked_fill(~kept, LEFT_OUT)

    def after_step(self) -> None:
        """Count a step, after which the copy may become the policy."""
        self._steps += 1
        if self._steps % self.every == 0:
            self._copy(dict(self._policy.named_parameters()))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the steps, and the copy's weights by name."""
        named = self.model.named_parameters()
        return {"steps": self._steps, "weights": {name: weight.detach() for name, weight in named}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what a checkpoint has kept; without a checkpoint, from the policy."""
        self._steps = int(state.get("steps", 0))
        self._copy(state.get("weights") or dict(self._policy.named_parameters()))

    @torch.no_grad()
    def _copy(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in self.model.named_parameters():
            weight.copy_(weights[name])
