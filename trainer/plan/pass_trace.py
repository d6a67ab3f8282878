# pyright: basic
"""The memory that a learner's pass holds, found by a pass over tensors without data.

The layers of a model differ in what they keep for the backward pass: norms on queries, biases,
experts, matrices of an adapter. So a pass is made with tensors that have shapes and no data
(torch's fake tensors), by the code of the learner itself, and the bytes that are alive are counted.
Two models of the same kind, with 1 and 2 layers, give the rest: each further layer adds the same.

The steps of a pass, of which the last two are the peaks:

    the layers, forward       what they keep, S
    head, loss and back       S and the logits, their log-softmax and their gradients
    the layers, backward      S, the gradient of a layer, and what is computed again of one
"""

from __future__ import annotations

import copy
import json
import weakref
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..config import LoraConfig
from ..learning.attention import NAME, packed_hidden
from ..learning.packing import PackedRows, PackedSpan
from ..learning.pass_memory import prepare_layers
from ..learning.reader import CHECKPOINTED
from ..learning.readings import LOGITS_AT_ONCE, logp, read_logits
from ..models.adapters import inject_adapter
from ..models.devices import LogitHead

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FEW, MORE = 1, 2
"""Numbers of layers of the two models that are traced."""
ROWS, ROW = 8, 256
"""Most rows of the traced pass, and fewest tokens of one. What the attention holds for a moment is
of one row.
"""


@dataclass(frozen=True, slots=True)
class PassTrace:
    """Bytes that a pass holds above weights and gradient, both whole on this process."""

    saved: int
    """What the layers keep for the backward pass."""
    head: int
    """The most that is held more than `saved` while head and loss are computed, and their gradient.
    """
    layers: int
    """The most that is held more than `saved` in the backward pass of the layers; negative where
    less is held.
    """


@dataclass(frozen=True, kw_only=True)
class PassKind:
    """What decides on the bytes of a pass, besides the model."""

    tokens: int
    """Number of tokens of the pass."""
    dtype: torch.dtype = torch.float32
    """The type to compute in."""
    gathered: bool = False
    """Whether weights come in `dtype`, as ranks gather them, and not in float32."""
    checkpointed: bool = False
    """Whether layers are computed again in the backward pass."""
    float32_head: bool = False
    """Whether the head's product is in float32."""
    lora: LoraConfig = field(default_factory=LoraConfig)


def trace_pass(outline: PreTrainedModel, kind: PassKind) -> PassTrace | None:
    """Return what a pass of a model holds; None for a model that cannot be computed without data.
    Experts can: how tokens are shared among them does not change how many there are.

    Args:
        outline: a causal LM, whose tensors may be on the meta device; of one that reads images a
            pass of words.
        kind: what is computed.
    """
    settings = outline.config.to_dict()
    encoded = json.dumps(settings, sort_keys=True, default=str)
    kinds: tuple[Any, Any] = type(outline), type(outline.config)  # hashable, as mypy does not know
    return _traced(*kinds, encoded, kind)


@lru_cache(maxsize=64)
def _traced(model: Any, config: Any, encoded: str, kind: PassKind) -> PassTrace | None:
    settings = config.from_dict(json.loads(encoded))
    layers = int(settings.get_text_config().num_hidden_layers)
    try:
        few, more = (_trace(model, _shallow(settings, count), kind) for count in (FEW, MORE))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, IndexError):
        return None  # torch and transformers raise any of these for an operation without data
    each = tuple(b + (layers - MORE) * (b - a) for a, b in zip(few, more, strict=True))
    return PassTrace(each[0], each[1] - each[0], each[2] - each[0])


def _shallow(settings: Any, layers: int) -> Any:
    shallow = copy.deepcopy(settings)
    text = shallow.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    return shallow


def _trace(model_class: Any, settings: Any, kind: PassKind) -> tuple[int, int, int]:
    """Return what is held after the layers, and at the peaks of the head and of the layers."""
    with torch.device("meta"):
        model = model_class(settings).eval()
        if kind.lora.rank:
            inject_adapter(model, kind.lora)
    with FakeTensorMode(allow_non_fake_inputs=True):
        dtype = kind.dtype if kind.gathered else torch.float32
        # What ranks hold outside of the layers is gathered in float32 where the head's product is.
        _give_weights(model, torch.float32 if kind.float32_head else dtype, layers=dtype)
        model.set_attn_implementation(NAME)
        prepare_layers(model, checkpoint=kind.checkpointed, compiled=False)
        for weight in model.parameters():
            if weight.requires_grad:
                # A pass adds to a gradient that is there, as all but the first of an update.
                weight.grad = torch.empty_like(weight)
        bytes_held = LiveBytes([*model.parameters(), *model.buffers()])
        with bytes_held:
            return _make_pass(model, kind, bytes_held)


def _give_weights(model: torch.nn.Module, dtype: torch.dtype, *, layers: torch.dtype) -> None:
    """Replace weights and buffers by fake ones on the CPU, those of `layers` in a type of their
    own; tied weights stay tied.
    """
    fakes: dict[int, torch.nn.Parameter] = {}
    inside = {id(weight) for name, weight in model.named_parameters() if ".layers." in name}
    for owner in model.modules():
        for name, weight in list(owner.named_parameters(recurse=False)):
            if id(weight) not in fakes:
                kind = layers if id(weight) in inside else dtype
                fake = torch.empty(weight.shape, dtype=kind)
                fakes[id(weight)] = torch.nn.Parameter(fake, requires_grad=weight.requires_grad)
            setattr(owner, name, fakes[id(weight)])
        for name, buffer in list(owner.named_buffers(recurse=False)):
            setattr(owner, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def _make_pass(model: Any, kind: PassKind, live: LiveBytes) -> tuple[int, int, int]:
    peaks: list[int] = []
    head = LogitHead(model, exact=kind.float32_head)
    half = None if kind.dtype is torch.float32 else kind.dtype

    def logits(states: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=half, enabled=half is not None):
            return head(states) / 1.0

    ids = torch.zeros(kind.tokens, dtype=torch.long)
    row = max(ROW, -(-kind.tokens // ROWS))
    starts = range(0, kind.tokens, row)
    ends = [min(start + row, kind.tokens) for start in starts]
    spans = tuple(PackedSpan(a, b, b, ()) for a, b in zip(starts, ends, strict=True))
    rows = PackedRows(ids, torch.zeros_like(ids), ids.unsqueeze(0), spans)
    with torch.autocast("cpu", dtype=half, enabled=half is not None):
        hidden = packed_hidden(model, rows).index_select(0, ids)
    saved = live.now

    def entered(grad: Tensor) -> None:
        peaks.append(live.peak)
        live.peak = live.now

    hidden.register_hook(entered)
    at_once = LOGITS_AT_ONCE // (CHECKPOINTED if kind.checkpointed else 1)
    read = read_logits(logits, hidden, ids, logp, at_once=at_once)
    del hidden
    read.sum().backward()
    return saved, peaks[0], live.peak


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that operations inside the block make, while these are alive.

    Args:
        before: tensors that are not counted, nor are their gradients, nor views of them.
    """

    def __init__(self, before: list[Tensor]) -> None:
        super().__init__()
        grads = [tensor.grad for tensor in before if tensor.grad is not None]
        self._before = [tensor.untyped_storage() for tensor in (*before, *grads)]
        self._known = {id(storage) for storage in self._before}
        self.now = 0
        self.peak = 0
        """The largest value of `now` since it was last set."""
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the storage of each returned tensor."""
        if func is torch.ops.aten._grouped_mm.default:
            result = _grouped(*args, **(kwargs or {}))
        else:
            result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._alive or key in self._known:
            return
        self.now += size
        self.peak = max(self.peak, self.now)

        def freed(_: Any) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, freed)


def _grouped(some: Tensor, others: Tensor, offs: Tensor | None = None, **options: Any) -> Tensor:
    """Return the product of the rows of each group with its matrix, without data. Torch has none
    but for bfloat16, whatever the kernel of a device takes.
    """
    if some.dim() == 2 and others.dim() == 2:  # the gradient of the matrices: one of each group
        assert offs is not None, "groups of rows have ends"
        return some.new_empty(offs.shape[0], some.shape[0], others.shape[1])
    return some.new_empty(*some.shape[:-1], others.shape[-1])
