"""The model that learns, and its optimizer.

A loss is a pure function that returns (sum, weight) for one forward pass. Sums are back-propagated
as they are and the gradient is divided once by the total weight, so how rows are split into passes
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .batch import Batch, passes
from .config import TrainerConfig
from .engines.models import CausalLM


class Predicted(NamedTuple):
    """What the model says of the trained tokens; 0 elsewhere."""

    logp: Tensor
    """[B, T], in nats."""
    entropy: Tensor | None
    """[B, T], in nats; None where it was not asked for."""


Loss = Callable[[Batch, Predicted], tuple[Tensor, Tensor]]
"""(one pass, what the model says of it) to (sum, weight)."""


class Learner:
    """Holds the weights being trained.

    Args:
        model: trained in place.
        config: of the optimizer.
        temperature: that the policy is sampled at; log-probabilities are of the same.
    """

    def __init__(self, model: CausalLM, config: TrainerConfig, *, temperature: float = 1.0) -> None:
        self.model = model.train()
        self.config = config
        self.temperature = temperature
        self.updates = 0
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )

    def update(
        self,
        batch: Batch,
        rows: Tensor,
        loss: Loss,
        *,
        idle: Tensor | None = None,
        entropy: bool = False,
    ) -> dict[str, float]:
        """One optimizer update.

        Args:
            batch: the whole batch.
            rows: [R] int, those of this update.
            loss: called once a pass.
            idle: [B] bool, rows whose gradient is known to be zero: they count in the weight, the
                model is not run on them.
            entropy: whether the loss reads entropies.

        Returns:
            `loss`, `grad_norm` (before clipping), `lr`, `tokens` (trained). Where nothing has
            weight no update is made.
        """
        self.optimizer.zero_grad(set_to_none=True)
        idle = torch.zeros(len(batch), dtype=torch.bool) if idle is None else idle
        total, weight = self._resting(batch, rows[idle[rows]], loss)
        for part in passes(batch.lengths, rows[~idle[rows]], self.config.tokens_per_pass):
            one = batch.take(part).to(self.model.device)
            part_sum, part_weight = loss(one, self.predict(one, entropy=entropy))
            if part_sum.requires_grad:
                part_sum.backward()
            total, weight = total + float(part_sum.detach()), weight + float(part_weight)
        made = {"tokens": float(batch.mask[rows].sum()), "lr": self.lr}
        if weight == 0:
            return {"loss": 0.0, "grad_norm": 0.0, **made}
        return {"loss": total / weight, "grad_norm": self._step(weight), **made}

    def predict(self, batch: Batch, *, entropy: bool = False) -> Predicted:
        """Log-probabilities, and entropies if asked for, of the trained tokens; only their
        logits are computed.
        """
        every, chosen = self._distribution(batch)
        spread = -(every.exp() * every).sum(-1) if entropy else None
        return Predicted(
            _scatter(chosen, batch), None if spread is None else _scatter(spread, batch)
        )

    @torch.no_grad()
    def score(self, batch: Batch) -> Tensor:
        """Log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        scored = torch.zeros_like(batch.mask)
        every = torch.arange(len(batch))
        for part in passes(batch.lengths, every, self.config.tokens_per_pass):
            logp = self.predict(batch.take(part).to(self.model.device)).logp.cpu()
            scored[part, : logp.shape[1]] = logp
        return scored

    @torch.no_grad()
    def score_norms(self, batch: Batch) -> Tensor:
        """Squared norm [B, T] of each trained token's score with respect to its logits, on the CPU:
        `1 - 2 p(token) + sum_v p(v)^2`. What an optimal token baseline weighs returns by.
        """
        norms = torch.zeros_like(batch.mask)
        every = torch.arange(len(batch))
        for part in passes(batch.lengths, every, self.config.tokens_per_pass):
            one = batch.take(part).to(self.model.device)
            logp, chosen = self._distribution(one)
            found = _scatter(1 - 2 * chosen.exp() + (2 * logp).exp().sum(-1), one).cpu()
            norms[part, : found.shape[1]] = found
        return norms

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        warm = self.config.warmup_steps
        return self.config.lr * (min(1.0, (self.updates + 1) / warm) if warm else 1.0)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters by name, not copied."""
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the model."""
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])

    def _distribution(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probabilities at the trained tokens: of the whole vocabulary, and of the token."""
        hidden = self.model.base_model(input_ids=batch.ids, use_cache=False).last_hidden_state
        trained = batch.mask[:, 1:].bool()
        logits = self.model.lm_head(hidden[:, :-1][trained]).float() / self.temperature
        every = torch.log_softmax(logits, dim=-1)
        return every, every.gather(1, batch.ids[:, 1:][trained].unsqueeze(1)).squeeze(1)

    def _resting(self, batch: Batch, rows: Tensor, loss: Loss) -> tuple[float, float]:
        """The sum and weight of rows the model is not run on."""
        if not len(rows):
            return 0.0, 0.0
        one = batch.take(rows).to(self.model.device)
        zero = torch.zeros_like(one.mask)
        part_sum, part_weight = loss(one, Predicted(zero, zero))
        return float(part_sum), float(part_weight)

    def _step(self, weight: float) -> float:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad /= weight
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        self.updates += 1
        return float(norm)


def _scatter(values: Tensor, batch: Batch) -> Tensor:
    """Values of the trained tokens back into [B, T]."""
    trained = batch.mask[:, 1:].bool()
    spread = torch.zeros_like(batch.mask[:, 1:]).masked_scatter(trained, values)
    return torch.nn.functional.pad(spread, (1, 0))
