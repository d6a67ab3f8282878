"""A learner whose weights, gradients and moments are shared out over ranks.

Losses, recipes and the update are those of `Learner`; this class says what several processes do
in another way: which passes are theirs, and where sums are taken over ranks. Gradients are sums,
like the losses, and are divided once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ludus.agent import WeightSource
from ludus.errors import ConfigError

from ..config import TrainerConfig
from ..learning.learner import Learner, Predicted
from ..learning.packing import packed_size
from ..learning.pass_memory import OutOfMemory
from ..learning.reader import DEFAULT_READING, ReadingOptions
from ..models.adapters import base_below, has_adapter, save_adapter
from ..models.capacity import fitting_pass, free_bytes
from ..models.images import last_hidden
from ..models.layer_files import PLAIN, LayerFiles
from ..models.loading import ADAPTER, CausalLM, save_without_weights
from ..rollout.batch import Batch
from .group import SHARDS, Ranks
from .sharding import Root, ShardedWeights, local, shard_modules, unshare
from .shards import placed, write_shards
from .shortage import SharedShortage
from .whole import ShardFiles, write_surroundings, write_whole

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false


T = TypeVar("T")
Turn = list[Tensor | None]
"""The pass of each rank."""
SEARCHES = 8
"""Number of bounds that are tried for even passes; each splits all rows again."""


class ShardedLearner(Learner):
    """Holds this rank's shards of the weights being trained. Every method is collective.

    Args:
        model: the whole model, equal on all ranks; sharded in place.
        config: settings of the optimizer.
        ranks: the group.
        offload: whether shards, gradients and moments stay in the memory of the CPU.
        files: where the weights of a model that has none yet are read from, part by part.
        options: as of `Learner`.
    """

    def __init__(
        self,
        model: CausalLM,
        config: TrainerConfig,
        options: ReadingOptions = DEFAULT_READING,
        *,
        ranks: Ranks,
        offload: bool = False,
        files: LayerFiles | None = None,
        **more: Any,
    ) -> None:
        refuse_unshared(config, model.dtype)
        self.ranks = ranks
        self.offload = offload
        self.files = files
        self._inside = False
        self._room_of_all: SharedShortage | None = None
        """How ranks agree that memory ran out; None for recipes with values, whose ranks end."""
        self._with_average = ExitStack()
        self._score: Callable[[Batch], Any] = self.predict
        super().__init__(model, config, options, **more)

    def predict(self, batch: Batch, *, entropy: bool = False) -> Predicted:
        """Return the same as `Learner.predict`."""

        def work() -> Predicted:
            predicted = super(ShardedLearner, self).predict(batch, entropy=entropy)
            # A pass without images does not run the vision tower, on some ranks and not on others.
            # Empty sums give the weights outside of the layers, the tower's among them, a gradient
            # of 0 then, since the reductions of gradients must be the same on all ranks.
            unread = self.root.outside_layers() if self.images is not None else ()
            nothing = sum(weight.flatten()[:0].sum() for weight in unread)
            return predicted._replace(logp=predicted.logp + nothing)

        return self._within(work)

    def gathered(self, items: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """Return the measurements of all ranks' passes."""
        return [tuple(item) for part in self.ranks.gather(items) for item in part]

    def source(self) -> WeightSource:
        """Return the weights for an engine: gathered at reading, piece by piece."""
        adapter = has_adapter(self.model) and self.config.lora.publish == "adapter"
        return ShardedWeights(self.model, self.ranks, adapter=adapter)

    @property
    def plain(self) -> bool:
        """Whether files of this model name each weight as the model does."""
        return self.files is not None and self.files.plain

    def writer(self, tokenizer: object, *, whole: bool = True) -> ShardWriter:
        """Return what writes the shards of all ranks into a checkpoint, and the whole model where
        that is asked for.
        """
        return ShardWriter(self, tokenizer, whole=whole)

    def score_ids(self, ids: Sequence[int], temperature: float) -> list[float]:
        """Return what `Learner.score_ids` returns; rank 0 orders the others to take part."""
        ids_BT = torch.tensor([list(ids)], device=self.model.device)

        def scored() -> Tensor:
            # Under autocast, since ranks gather layers in the type of computing, and not the rest.
            with self._precision():
                hidden = last_hidden(self.model, ids_BT, (), self.images)[0, :-1]
                logp = torch.log_softmax(self.head(hidden) / temperature, dim=-1)
            return logp.gather(1, ids_BT[0, 1:].unsqueeze(1)).squeeze(1)

        with self.ranks.together("score", ids=list(ids), temperature=temperature), torch.no_grad():
            return [0.0, *self._within(scored).tolist()]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the files of `writer`."""
        return {
            SHARDS: self.ranks.world,
            PLAIN: self.plain,
            "updates": self.updates,
            "loss_scale": self.scale.state(),
            # its weights are in the shards
            "anchor": {**self.anchor.state(), "values": []} if self.anchor.every else {},
        }

    @contextmanager
    def averaged(self) -> Generator[None]:
        """Put the moving average in the place of the policy's weights on all ranks; see
        `Learner.averaged`.
        """
        with self.steady.changing():  # before any order, as an update takes it
            with self.ranks.together("average", put_in=True):
                self.exchange_average(put_in=True)
            try:
                yield
            finally:
                with self.ranks.together("average", put_in=False):
                    self.exchange_average(put_in=False)

    def exchange_average(self, *, put_in: bool) -> None:
        """Put the average in the place of this rank's shards, or take the average out again."""
        if put_in:
            self._with_average.enter_context(self.average.in_place())
        else:
            self._with_average.close()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint of a learner in a single process.

        Raises:
            ConfigError: the checkpoint was written by another model, or with other settings.
        """
        self.updates = int(state["updates"])
        self.scale.restore(state.get("loss_scale", {}))
        moments = state["optimizer"]["state"]
        parameters = self._parameters()
        count = sum(len(group["params"]) for group in state["optimizer"]["param_groups"])
        if count != len(parameters):
            raise ConfigError(
                f"the checkpoint was written with {count} trained weights, here are "
                f"{len(parameters)}: it is of another model, or of other trainer settings (an "
                "adapter, a critic)"
            )
        for number, parameter in enumerate(parameters):
            for name, value in moments.get(number, {}).items():
                if value.dim() and value.shape != parameter.shape:
                    raise ConfigError(
                        f"the checkpoint was written by a model of another shape: weight {number} "
                        f"is {list(value.shape)} there and {list(parameter.shape)} here"
                    )
                self.optimizer.state[parameter][name] = placed(value, parameter)
        # For weights that were held in half precision the checkpoint has exact float32 copies. They
        # come first in the order of parameters, hence a `zip` that ends with them.
        for weight, copy in zip(parameters, state.get("masters", ()), strict=False):
            local(weight).copy_(local(placed(copy, weight)))
        for module, kept in ((self.critic, "critic"), (self.value_head, "value_head")):
            named = {} if module is None else dict(module.named_parameters())
            for name, value in state[kept].items() if named else ():
                local(named[name]).copy_(local(placed(value, named[name])))
        averages = zip(state.get("average", ()), self._policy(), strict=False)
        self.average.restore([placed(value, like) for value, like in averages])
        if anchor := state.get("anchor"):  # empty where no reference has moved
            copies = [
                placed(*pair) for pair in zip(anchor["values"], self._trained(), strict=False)
            ]
            self.anchor.restore({**anchor, "values": copies})

    def _place(self) -> None:
        if self.critic is not None:
            unshare(self.critic, self.model)
        self.root: Any = Root(self.model, self.value_head, self.critic)
        head, files = self.value_head, self.files
        if head is not None and head.weight.is_meta:
            head.to_empty(device=self.ranks.device)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        names = {id(weight): name for name, weight in self.model.named_parameters()}
        shard_modules(
            self.root,
            self.ranks.mesh,
            dtype=self.autocast,
            exact_root=self.head.exact,
            offload=self.offload,
            fill=lambda part: None if files is None else files.fill(part, names),
        )
        # Layers of a critic and a value head are not run by every pass of scores.
        if self.value_head is None:
            width = int(self.model.config.get_text_config().hidden_size)
            layers: list[nn.Module] = list(self.root.layers())
            self._room_of_all = SharedShortage(self.ranks, layers, width)
        # After sharding: what is free now is free of this rank's shards alone.
        self._bound = min(self.ranks.gather(self.config.tokens_per_pass or self._room()))

    def _room(self) -> int:
        """Return how many tokens fit into a pass of this rank."""
        here = self.ranks.world if self.ranks.mesh.device_type == "cpu" else 1
        return fitting_pass(
            self.model,
            self.autocast or torch.float32,
            free_bytes(self.model.device) // here,
            checkpointed=self.config.checkpoint_layers,
            ranks=self.ranks.world,
            engine_copy=self.engine_copy and not self.ranks.rank,
            float32_head=self.head.exact,
        )

    @property
    def tokens_per_pass(self) -> int:
        """The largest number of tokens in one forward pass, the least of all ranks'."""
        return min(self._bound, self.shortage.bound)

    def _passes(
        self, batch: Batch, rows: Tensor, together: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield this rank's passes; all ranks make equally many.

        Every forward and backward pass is collective. Where passes do not come out even, a rank
        fills up with a row whose gradient is 0.
        """
        grad = torch.is_grad_enabled()
        turns = shares(
            lambda tokens: self.split(batch, rows, tokens, together),
            lambda part: self._size(batch, part),
            self.tokens_per_pass,
            self.ranks.world,
        )
        # Every pass reduces its gradient. One reduction for all passes would send less, and hold
        # the whole float32 gradient on each rank between them.
        for part in (turn[self.ranks.rank] for turn in turns):
            if part is not None:
                yield part
            elif grad:
                predicted = self.predict(_filler(self.model.device))
                self._backward(predicted.logp.new_zeros(()), predicted)
            else:
                self._score(_filler(self.model.device))

    def _size(self, batch: Batch, part: Tensor) -> int:
        """Return how many tokens a pass computes."""
        if not self._packs(batch):
            return len(part) * int(batch.lengths[part].max())
        return packed_size(batch.ids, batch.lengths, part, min_shared=self._min_shared)

    def _backward(self, part_sum: Tensor, predicted: Predicted) -> None:
        """Add the gradient of a pass's sum; every weight gets a gradient, because the ranks'
        reductions would otherwise not be the same.
        """
        # Empty sums are 0 and connect the loss to outputs that it does not read.
        outputs = (predicted.logp, predicted.entropy, predicted.values)
        unread = sum(output[:, :0].sum() for output in outputs if output is not None)
        (part_sum + unread).backward()

    def _over_ranks(self, total: float, weight: float) -> tuple[float, float]:
        summed = self.ranks.sums(total, weight)
        return summed[0], summed[1]

    def _over(self, batch: Batch, of: Callable[[Batch], Tensor]) -> Tensor:
        self._score = lambda part: self._within(lambda: of(part))
        return self.ranks.summed(super()._over(batch, self._score))

    def _watching(self, batch: Batch, part: Tensor) -> AbstractContextManager[None]:
        """Watch a pass for a refused allocation; see `SharedShortage`."""
        if self._room_of_all is not None:
            self._room_of_all.size = lambda: (len(part), self._size(batch, part))
        return super()._watching(batch, part)

    def _gradient_is_finite(self) -> bool:
        grads = [parameter.grad for parameter in self._parameters() if parameter.grad is not None]
        broken = sum(not bool(local(grad).isfinite().all()) for grad in grads)
        return not self.ranks.sums(broken)[0]

    def _within(self, work: Callable[[], T]) -> T:
        """Run `work` with whole weights: inside the forward pass of the root module."""
        if self._inside:
            return work()
        self._inside = True
        room = self._room_of_all
        try:
            if room is None:
                return self.root(work)
            result: T | None = self.root(lambda: room.run(work))
        finally:
            self._inside = False
            if not torch.is_grad_enabled():
                self.root.reshard()  # else the root's weights would stay whole
        try:
            room.agree(self._further() if torch.is_grad_enabled() else 0)
        except OutOfMemory:
            self.root.reshard()  # there will be no backward pass
            raise
        assert result is not None, "all ranks have agreed that the pass had room"
        return result

    def _further(self) -> int:
        """Return the bytes that a backward pass takes for a moment: two copies of a slice of
        logits, and the gradient of a layer and of what is outside of the layers.
        """
        words = int(self.model.config.get_text_config().vocab_size)
        return 2 * 4 * min(self.tokens_per_pass * words, self.logits_at_once)


def refuse_unshared(config: TrainerConfig, held: torch.dtype) -> None:
    """Refuse what a learner in one process can do and ranks cannot yet.

    Raises:
        ConfigError: with the setting.
    """
    asked = {
        f"trainer.kernels = {config.kernels!r}": config.kernels != "torch",
        "weights in half precision": held.itemsize < 4,
    }
    if unusable := [name for name, given in asked.items() if given]:
        raise ConfigError(
            f"{' and '.join(unusable)} cannot be used with several ranks; leave it out, or "
            "train in one process"
        )


def shares(
    split: Callable[[int], Iterable[Tensor]], size: Callable[[Tensor], int], tokens: int, world: int
) -> list[Turn]:
    """Split rows into turns of one pass for each rank; None where a rank has no rows.

    The ranks of a turn wait for each other, so that a turn takes as long as its largest pass. The
    smallest bound on the size of a pass is searched that needs no more turns than `tokens` does.

    Args:
        split: splits the rows into passes of at most the given number of tokens.
        size: the number of tokens that a pass computes.
        tokens: the largest number of tokens in a pass.
        world: the number of ranks.

    >>> from ludus.trainer.rollout.batch import passes
    >>> lengths = torch.tensor([4, 4, 2, 2, 2])
    >>> split = lambda tokens: passes(lengths, torch.arange(5), tokens)
    >>> turns = shares(split, lambda part: len(part) * int(lengths[part].max()), 100, 2)
    >>> [[None if part is None else part.tolist() for part in turn] for turn in turns]
    [[[0, 1], [2, 3, 4]]]
    """
    parts = list(split(tokens))
    most = world * -(-len(parts) // world)
    total = sum(map(size, parts))
    # smaller passes may have less padding than the whole, but hardly a quarter of the tokens
    low, high = total // (4 * most) if parts else 0, min(tokens, total)
    for _ in range(SEARCHES):
        bound = (low + high) // 2
        smaller = list(split(bound)) if low < high else parts
        if len(smaller) <= most:
            parts, high = smaller, bound
        else:
            low = bound + 1
    parts.sort(key=size, reverse=True)
    even: Turn = [*parts, *([None] * (-len(parts) % world))]
    return [even[first : first + world] for first in range(0, len(even), world)]


def _filler(device: torch.device) -> Batch:
    """Return a row of two tokens, of which one is read."""
    ids = torch.zeros(1, 2, dtype=torch.long, device=device)
    mask = torch.tensor([[0.0, 1.0]], device=device)
    return Batch(ids, mask, torch.zeros_like(mask), torch.tensor([2], device=device))


# pyright: basic


class ShardWriter:
    """The `WeightsWriter` of a sharded learner.

    Args:
        learner: whose weights are written.
        tokenizer: written beside the model by rank 0; None on other ranks.
        whole: whether rank 0 also puts the whole model together, once the shards are written.
    """

    def __init__(
        self, learner: ShardedLearner, tokenizer: Any = None, *, whole: bool = True
    ) -> None:
        self.learner = learner
        self.tokenizer = tokenizer
        self.whole = whole

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite; collective."""
        named = dict(self.learner.model.named_parameters())
        ranks = self.learner.ranks
        with ranks.together("broken"):
            broken = [not bool(local(weight).isfinite().all()) for weight in named.values()]
            counts = ranks.summed(torch.tensor(broken, dtype=torch.float32)).tolist()
        return [name for name, count in zip(named, counts, strict=True) if count]

    def write(self, folder: Path) -> None:
        """Write the shards of all ranks, then on rank 0 the config and the tokenizer, an adapter
        where the model has one, and the whole model where that is asked for.

        Raises:
            SaveFailed: a rank could not write; the message names the rank.
        """
        self.write_shards(folder)
        learner, model = self.learner, self.learner.model
        save_without_weights(model, self.tokenizer, folder, images=learner.images)
        if has_adapter(model):
            save_adapter(model, folder / ADAPTER, ShardFiles(folder).tensors())
            if learner.average.used:
                write_surroundings(folder)
        if self.whole and not (has_adapter(model) and base_below(model).alone):
            write_whole(folder, plain=learner.plain)

    def write_shards(self, folder: Path) -> None:
        """Write the shards alone; collective."""
        ranks = self.learner.ranks
        with ranks.together("shards", folder=str(folder)):
            write_shards(folder, self.learner, ranks)
