"""Reads log-probabilities, entropies and values off a model for the trained tokens of rows.

How rows are computed is decided here: packed and shared, or padded, and in passes that fit into
memory. What is read does not depend on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..config import TrainerConfig
from ..models.capacity import fitting_pass
from ..models.devices import LogitHead, at_least_float32
from ..models.images import ImageReader, last_hidden
from ..models.loading import CausalLM
from ..models.mask_policy import MaskPolicy
from ..recipes.recipe import VocabularySettings
from ..rollout.batch import Batch, passes
from .attention import packed_hidden, why_unpackable
from .packing import MIN_SHARED, pack_rows, packed_size, packs
from .pass_memory import Shortage, prepare_layers, use_liger
from .readings import (
    LOGITS_AT_ONCE,
    Reading,
    logp,
    logp_and_entropy,
    new_value_head,
    proxy_logp,
    read_logits,
    scatter,
    score_norm,
)

PACKING_OFF = "trainer.packing is none"
NEVER_SHARED = 1 << 40
"""A least length of shared beginnings that no row reaches."""
CHECKPOINTED = 8
"""Factor by which slices of logits are smaller where layers are computed again."""

Result = TypeVar("Result")


class Predicted(NamedTuple):
    """Outputs of the model for the trained tokens; 0 elsewhere."""

    logp: Tensor
    """Log-probabilities, [B, T], in nats."""
    entropy: Tensor | None
    """Entropies, [B, T], in nats; None unless they were asked for."""
    values: Tensor | None = None
    """Values of the state before each token, [B, T]; None without a value head."""


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of a policy's reading, besides the settings of the passes."""

    temperature: float = 1.0
    """The sampling temperature of the policy, at which log-probabilities are computed too."""
    values: bool = False
    """Whether there is a value head on the last hidden state; it starts at 0 everywhere."""
    autocast: torch.dtype | None = None
    """The type to compute in, with float32 weights; None computes in the type of the weights."""
    logits_at_once: int = LOGITS_AT_ONCE
    """The largest number of logits held at a time; any number gives the same gradient."""
    float32_head: bool = False
    """Whether the head's product is computed in float32 where the rest is not."""
    engine_copy: bool = True
    """Whether an engine beside the learner is yet to allocate a copy of the weights."""
    images: ImageReader | None = None
    """Reads the images of rows; None for a model that reads none."""
    vocabulary: VocabularySettings | None = None
    """The mask of the vocabulary by an earlier copy of the policy; None masks nothing."""


DEFAULT_READING = ReadingOptions()


class Critic(torch.nn.Module):
    """A copy of the policy as it starts, whose last hidden states the value head reads: the
    gradients of values and of the policy do not move the same weights.

    With an adapter the copy has an adapter of its own, and shares the frozen weights.

    Args:
        policy: copied; its language-model head is shared, and not trained here.
    """

    def __init__(self, policy: CausalLM) -> None:
        super().__init__()
        # `deepcopy` takes what its memo has for an id: frozen weights are shared and not copied.
        shared: dict[int, Any] = {
            id(weight): weight
            for weight in (*policy.parameters(), *policy.buffers())
            if not weight.requires_grad
        }
        self.model: Any = copy.deepcopy(policy, shared)
        inside = {id(weight) for weight in self.model.base_model.parameters()}
        for parameter in self.model.parameters():
            if id(parameter) not in inside:
                parameter.requires_grad_(False)


class PolicyReader:
    """Runs a policy and its value head or critic over rows of tokens.

    Args:
        model: a causal LM; put into evaluation mode.
        config: settings of the passes.
        options: how the policy is read.
    """

    def __init__(self, model: CausalLM, config: TrainerConfig, options: ReadingOptions) -> None:
        self.model = model.eval()  # no dropout: it would be noise in the ratio to the sampler
        self.config = config
        self.temperature = options.temperature
        self.autocast = options.autocast
        # With checkpointed layers the logits would be the largest tensors of a pass, so fewer of
        # them are held at a time.
        shrink = CHECKPOINTED if config.checkpoint_layers else 1
        self.logits_at_once = options.logits_at_once // shrink
        self.images = options.images
        self.engine_copy = options.engine_copy
        self.head = LogitHead(model, exact=options.float32_head)
        if config.kernels == "liger":
            use_liger(model)
        self.unpacked = PACKING_OFF if config.packing == "none" else why_unpackable(model)
        """Why rows are padded instead of packed; empty where they are packed."""
        self._min_shared = MIN_SHARED if config.packing == "shared" else NEVER_SHARED
        self.value_head = new_value_head(model) if options.values else None
        self.critic = Critic(model) if options.values and config.critic == "separate" else None
        """The model whose hidden states the value head reads; None where these are the policy's."""
        vocabulary = options.vocabulary
        self.mask = (
            None
            if vocabulary is None
            else MaskPolicy(model, top_p=vocabulary.top_p, every=vocabulary.every)
        )
        """The masking policy; None where every token may be sampled."""
        self._mask_head = LogitHead(
            None if self.mask is None else self.mask.model, exact=options.float32_head
        )
        self.shortage = Shortage()
        """How often memory ran out, and the bound that was found."""
        for prepared in (model, *([] if self.critic is None else [self.critic.model])):
            prepare_layers(prepared, checkpoint=config.checkpoint_layers, compiled=config.compile)

    def predict(self, batch: Batch, *, entropy: bool = False) -> Predicted:
        """Return log-probabilities, and entropies if asked for, of the trained tokens.

        Only the logits of trained tokens are computed.
        """
        hidden = self._hidden(batch)
        read = self._read(batch, hidden, logp_and_entropy if entropy else logp)
        values: Tensor | None = None
        if self.value_head is not None:
            below = hidden if self.critic is None else self._hidden(batch, self.critic.model)
            values = self.value_head(at_least_float32(below)).squeeze(-1)
        return Predicted(
            scatter(read[:, 0], batch),
            scatter(read[:, 1], batch) if entropy else None,
            None if values is None else scatter(values, batch),
        )

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        return self._over(batch, lambda part: self.predict(part).logp)

    @contextmanager
    def unmasked(self) -> Generator[None]:
        """Let every token count inside the block, as in a reference that is not masked."""
        mask, self.mask = self.mask, None
        try:
            yield
        finally:
            self.mask = mask

    def score_values(self, batch: Batch) -> Tensor:
        """Return values [B, T] of the state before each trained token, without gradient, on the
        CPU.
        """

        def values(part: Batch) -> Tensor:
            predicted = self.predict(part).values
            assert predicted is not None, "the reader has no value head"
            return predicted

        return self._over(batch, values)

    def score_entropy(self, batch: Batch) -> Tensor:
        """Return entropies [B, T] in nats at each trained token, without gradient, on the CPU."""

        def entropy(part: Batch) -> Tensor:
            predicted = self.predict(part, entropy=True).entropy
            assert predicted is not None, "entropies were asked for"
            return predicted

        return self._over(batch, entropy)

    def score_norms(self, batch: Batch) -> Tensor:
        """Return the squared norm [B, T] of each trained token's score with respect to the logits,
        on the CPU.

        The norm is `1 - 2 p(token) + sum_v p(v)^2`. An optimal token baseline weighs returns by
        these norms.
        """

        def norms(part: Batch) -> Tensor:
            return scatter(self._read(part, self._hidden(part), score_norm)[:, 0], part)

        return self._over(batch, norms)

    def score_proxy(self, batch: Batch, ratio: float) -> Tensor:
        """Return the log-probability [B, T] of each trained token where tokens less likely than
        `ratio` times the likeliest are left out, on the CPU; see `min_p_proxy_logp`.
        """
        reading = partial(proxy_logp, ratio=ratio)
        return self._over(
            batch, lambda part: scatter(self._read(part, self._hidden(part), reading)[:, 0], part)
        )

    def split(
        self, batch: Batch, rows: Tensor, tokens: int, together: Tensor | None = None
    ) -> Iterable[Tensor]:
        """Split `rows` into forward passes of at most `tokens` tokens, counted as they are
        computed: packed and after sharing, or with their padding; see `packs` and `passes`.
        """
        if not self._packs(batch):
            return passes(batch.lengths, rows, tokens, together)
        return packs(batch, rows, tokens, together, min_shared=self._min_shared)

    def _packs(self, batch: Batch) -> bool:
        """Whether a batch is computed without padding; rows with images are not."""
        return not self.unpacked and not any(batch.images)

    @property
    def tokens_per_pass(self) -> int:
        """The largest number of tokens that a forward pass computes."""
        wanted = self.config.tokens_per_pass or self._fitting_pass
        return min(wanted, self.shortage.bound)

    @cached_property
    def _fitting_pass(self) -> int:
        return fitting_pass(
            self.model,
            self.autocast or torch.float32,
            checkpointed=self.config.checkpoint_layers,
            engine_copy=self.engine_copy,
        )

    def notes(self) -> tuple[str, ...]:
        """Return notes for the user on how this model is trained, one line each."""
        notes: list[str] = []
        if self.unpacked and self.config.packing != "none":
            notes.append(f"rows are padded, since this model cannot be packed: {self.unpacked}")
        if self.config.compile:
            notes.append(
                "trainer.compile is on: the first passes of a run compile the layers. On a CPU it "
                "gained 1 % of the time; what it gains on a GPU has not been measured"
            )
        usual = TrainerConfig()
        for name in ("critic", "critic_lr", "value_updates"):
            if self.value_head is None and getattr(self.config, name) != getattr(usual, name):
                notes.append(
                    f"trainer.{name} is set, but the recipe trains no values: it changes nothing"
                )
        return tuple(notes)

    def _passes(
        self, batch: Batch, rows: Tensor, together: Tensor | None = None
    ) -> Iterable[Tensor]:
        """Split `rows` into the forward passes of this process."""
        return self.split(batch, rows, self.tokens_per_pass, together)

    @torch.no_grad()
    def _over(self, batch: Batch, of: Callable[[Batch], Tensor]) -> Tensor:
        """Apply `of` to every row, pass by pass, and return the results on the CPU."""
        results = torch.zeros_like(batch.mask)
        every = torch.arange(len(batch))

        def work() -> None:
            for part in self._passes(batch, every):
                with self._watching(batch, part):
                    values = of(batch.take(part, self.model.device)).cpu()
                results[part, : values.shape[1]] = values.to(results.dtype)

        self._fitting(work)
        return results

    def _watching(self, batch: Batch, part: Tensor) -> AbstractContextManager[None]:
        """Watch a pass for a refused allocation."""

        def size() -> tuple[int, int]:
            if not self._packs(batch):
                return len(part), len(part) * int(batch.lengths[part].max())
            tokens = packed_size(batch.ids, batch.lengths, part, min_shared=self._min_shared)
            return len(part), tokens

        return self.shortage.watching(size)

    def _fitting(self, work: Callable[[], Result]) -> Result:
        """Do `work`, again in smaller passes where memory runs out.

        Raises:
            OutOfMemory: a single row does not fit.
        """
        return self.shortage.retrying(work, lambda: self.tokens_per_pass)

    def _hidden(self, batch: Batch, model: CausalLM | None = None) -> Tensor:
        """Return the last hidden states [N, D] before the trained tokens, of the policy or of
        another model.
        """
        read: CausalLM = self.model if model is None else model
        trained = batch.mask[:, 1:].bool()
        with self._precision():
            if self._packs(batch):
                rows = pack_rows(batch.ids, batch.lengths, min_shared=self._min_shared)
                hidden = packed_hidden(read, rows)
                return hidden.index_select(0, rows.places[:, :-1][trained])
            hidden = last_hidden(read, batch.ids, batch.images, self.images)
        return hidden[:, :-1][trained]

    def _precision(self) -> torch.autocast:
        kind = torch.device(self.model.device).type
        return torch.autocast(kind, dtype=self.autocast, enabled=self.autocast is not None)

    def _read(
        self, batch: Batch, hidden: Tensor, reading: Reading, targets: Tensor | None = None
    ) -> Tensor:
        """Apply `reading` to each trained token, or to `targets` [N, K] in their places, and return
        [N, K].
        """
        width, restrict = hidden.shape[-1], None
        if (mask := self.mask) is not None:
            with torch.no_grad():
                beside = self._hidden(batch, mask.model)
            hidden = torch.cat([hidden, beside], dim=-1)  # so that both are sliced alike

            def restrict(logits: Tensor, states: Tensor, tokens: Tensor) -> Tensor:
                with torch.no_grad(), self._precision():
                    of_mask = self._mask_head(states[:, width:])
                return mask.masked(logits, of_mask, tokens)

        def head(states: Tensor) -> Tensor:
            with self._precision():
                return self.head(states[:, :width]) / self.temperature

        tokens = batch.ids[:, 1:][batch.mask[:, 1:].bool()] if targets is None else targets
        return read_logits(
            head, hidden, tokens, reading, at_once=self.logits_at_once, restrict=restrict
        )


def trained_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the trained weights of a module by name, not copied."""
    return {
        name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad
    }
