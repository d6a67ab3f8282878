"""The model that learns, and its optimizer.

A loss is a pure function that returns (sum, weight) for one forward pass. Sums are back-propagated
as they are and the gradient is divided once by the total weight, so how rows are split into passes
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .batch import Batch, Row, micro_batches, pad
from .config import TrainerConfig
from .engines.models import CausalLM

Loss = Callable[[Batch, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(batch, logp [B, T]) to (sum, weight)."""


class Learner:
    """Holds the weights being trained."""

    def __init__(self, model: CausalLM, config: TrainerConfig) -> None:
        self.model = model.train()
        self.config = config
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        self.updates = 0

    def update(self, rows: Sequence[Row], loss: Loss) -> dict[str, float]:
        """One optimizer update on `rows`.

        Returns:
            `loss`, `grad_norm` (before clipping), `lr`, `tokens` (trained). No update is made, and
            `loss` is 0, where nothing has weight.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total, weight = 0.0, 0.0
        for part in micro_batches(rows, self.config.tokens_per_pass):
            batch = pad(part).to(self.model.device)
            part_sum, part_weight = loss(batch, self.logp(batch))
            if part_sum.requires_grad:
                part_sum.backward()
            total += float(part_sum.detach())
            weight += float(part_weight)
        trained = float(sum(row.trained for row in rows))
        if weight == 0:
            return {"loss": 0.0, "grad_norm": 0.0, "lr": self.lr, "tokens": trained}
        norm = self._step(weight)
        return {"loss": total / weight, "grad_norm": norm, "lr": self.lr, "tokens": trained}

    def logp(self, batch: Batch) -> torch.Tensor:
        """Log-probabilities [B, T] of the trained tokens; 0 elsewhere. Only their logits
        are computed.
        """
        hidden = self.model.base_model(input_ids=batch.ids, use_cache=False).last_hidden_state
        trained = batch.mask[:, 1:].bool()
        logits = self.model.lm_head(hidden[:, :-1][trained]).float()
        chosen = torch.log_softmax(logits, dim=-1).gather(1, batch.ids[:, 1:][trained].unsqueeze(1))
        logp = torch.zeros_like(batch.mask)
        logp[:, 1:] = logp[:, 1:].masked_scatter(trained, chosen.squeeze(1))
        return logp

    @torch.no_grad()
    def score(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """Log-probabilities of each row's tokens under the present weights, without gradient."""
        scored: dict[int, torch.Tensor] = {}
        for part in micro_batches(rows, self.config.tokens_per_pass):
            logp = self.logp(pad(part).to(self.model.device)).cpu()
            for row, values in zip(part, logp, strict=True):
                scored[id(row)] = values[: len(row.ids)]
        return [scored[id(row)] for row in rows]

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        warm = self.config.warmup_steps
        return self.config.lr * (min(1.0, (self.updates + 1) / warm) if warm else 1.0)

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The parameters by name, not copied."""
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the model."""
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])

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
