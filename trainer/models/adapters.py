"""LoRA: low-rank matrices that are trained beside frozen weights (arXiv 2106.09685).

A layer computes `W x + s B A x` with W frozen, A [r, in], B [out, r] and s = alpha / r. B starts
at 0, so that a new adapter changes nothing. The matrices are peft's and stand inside the model's
own layers, so that a learner uses the model as before. All untyped calls into peft are in this
file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ludus.agent.engine import TensorMeta
from ludus.errors import ConfigError, MissingExtra

from ..config import LoraConfig
from .weights import adapter_tensors, described, in_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedModel


# pyright: basic
# mypy: disable-error-code="no-any-return"


NAME = "default"
"""Name of the adapter inside the model's layers, peft's own."""
WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""Files of an adapter's folder, in the format of peft."""
BASE_FILE = "ludus_base.json"
"""File of an adapter's folder with the path and the fingerprint of the base model."""
SAMPLED = 64
"""Number of entries of each weight that the fingerprint of a base model reads."""
BELOW = "base_layer."
"""Prefix that peft gives to the name of a frozen weight inside an adapted layer."""
MARK = "_ludus_adapter"
"""Attribute that holds the `AdapterBase` of a model with an adapter."""
PEFT_PREFIX = "base_model.model."
"""Prefix that peft gives to the name of each matrix in a file."""


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """The frozen model below an adapter."""

    path: str
    """Where the model came from; empty where that is not known."""
    fingerprint: str
    """The digest of the model's weights; see `fingerprint`."""
    alone: bool
    """Whether a checkpoint holds the adapter without merged weights."""


class SavedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of peft's `adapter_config.json` that are used here."""

    r: Annotated[int, msgspec.Meta(ge=1)]
    lora_alpha: float
    target_modules: list[str] | str
    base_model_name_or_path: str | None = None
    alpha_pattern: dict[str, float] | None = None
    use_rslora: bool = False


class SavedBase(msgspec.Struct, frozen=True, kw_only=True):
    """The file `BASE_FILE`."""

    path: str
    fingerprint: str


def decoder_layers(model: PreTrainedModel) -> torch.nn.ModuleList:
    """Return the decoder layers of a causal LM.

    Raises:
        ConfigError: the model keeps its layers under another name than `layers`.
    """
    text = getattr(model.base_model, "language_model", model.base_model)
    layers = getattr(text, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise ConfigError(
            f"{type(model).__name__} has no list of decoder layers named 'layers': "
            "trainer.checkpoint_layers, trainer.compile and trainer.lora cannot be used with it"
        )
    return layers


def add_adapter(
    model: PreTrainedModel, config: LoraConfig, *, base: str = "", seed: int = 0
) -> None:
    """Freeze a model and put an adapter into the decoder layers: the adapter that `config.adapter`
    names, or a new one, which changes nothing.

    Args:
        model: a causal LM, changed in place.
        config: rank, alpha and layers.
        base: where the model came from, for `adapter_config.json`.
        seed: of the random start; the same on every rank and in every run.

    Raises:
        MissingExtra: peft is not installed.
        ConfigError: `config.targets` names no layer, or `config.adapter` is of another model, rank
            or scale.
    """
    below = AdapterBase(base, fingerprint(model), config.save == "adapter")
    inject_adapter(model, config, base=base, seed=seed)
    setattr(model, MARK, below)
    if config.adapter:
        load_adapter(model, config.adapter)
        _refuse_other_scale(config)


def inject_adapter(
    model: PreTrainedModel, config: LoraConfig, *, base: str = "", seed: int = 0
) -> None:
    """Freeze a model and put new matrices into its decoder layers; see `add_adapter`."""
    try:
        from peft import LoraConfig as PeftLoraConfig, inject_adapter_in_model  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra.of("lora", needed_for="trainer.lora.rank") from None
    lora_config = PeftLoraConfig(
        r=config.rank,
        lora_alpha=cast(Any, config.alpha or 2 * config.rank),
        target_modules=_targets(model, config.targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base or None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(lora_config, model, NAME)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_is_adapter(name))
        # The adapter is trained in float32 also where the frozen weights are in half precision.
        if _is_adapter(name):
            parameter.data = parameter.data.float()


def has_adapter(model: PreTrainedModel) -> bool:
    """Whether `add_adapter` was called on a model."""
    return hasattr(model, MARK)


def base_below(model: PreTrainedModel) -> AdapterBase:
    """Return what is known of the model below an adapter that `add_adapter` put there."""
    return getattr(model, MARK)


def merged_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights `W + s B A` under the names of the model without adapter, each tied
    weight once; the model is not changed, and one merged weight is made at a time.
    """
    from peft.tuners.lora import LoraLayer  # pyright: ignore[reportMissingImports]

    layers: dict[str, Any] = {
        f"{name}.": layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)
    }
    for name, weight in _below(model):
        owner, _, tail = name.partition(BELOW)
        if tail == "weight":
            with torch.no_grad():
                delta = layers[owner].get_delta_weight(NAME)
            weight = (weight + delta).to(weight.dtype)
        yield plain_name(name), weight


class MergedWeights:
    """The weights `W + s B A` of a model with an adapter, as a source that holds one piece at a
    time.

    Args:
        model: after `add_adapter`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def metadata(self) -> list[TensorMeta]:
        """Return name, type and shape of each tensor; see `WeightSource.metadata`."""
        return [described(plain_name(name), weight) for name, weight in _below(self.model)]

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return the merged tensors in pieces; see `WeightSource.pieces`."""
        return in_pieces(merged_tensors(self.model))


@contextmanager
def without_adapter(model: PreTrainedModel) -> Iterator[None]:
    """Compute as the base model inside the block."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # pyright: ignore[reportMissingImports]

    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def save_adapter(
    model: PreTrainedModel, folder: Path, tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Write a model's adapter as peft does, and the path and fingerprint of the base model.

    Args:
        model: after `add_adapter`.
        folder: where to write; it is made if needed.
        tensors: the whole matrices by name, of a model that holds only a part of each; by default
            the model's own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config[NAME].save_pretrained(str(folder))
    matrices = adapter_tensors(model) if tensors is None else tensors
    in_file = {name_in_file(name): tensor.contiguous().cpu() for name, tensor in matrices.items()}
    save_file(in_file, str(folder / WEIGHTS_FILE))
    below = base_below(model)
    base = SavedBase(path=below.path, fingerprint=below.fingerprint)
    (folder / BASE_FILE).write_bytes(msgspec.json.encode(base))


def load_adapter(
    model: PreTrainedModel,
    folder: str | Path,
    *,
    write: Callable[[Tensor, Tensor], object] = torch.Tensor.copy_,
) -> None:
    """Load the matrices of a folder, written by `save_adapter` or by peft, into a model's adapter.

    Args:
        model: after `add_adapter`.
        folder: with the adapter's files.
        write: copies a whole matrix, the second argument, into what the model holds of it: all, or
            the part of a rank.

    Raises:
        ConfigError: nothing is found, or the adapter is of another model; the message says what
            differs, and the model stays as it is.
    """
    path = Path(folder)
    try:
        tensors = load_file(str(path / WEIGHTS_FILE))
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot load an adapter from {str(path)!r}: {error}") from error
    here = adapter_tensors(model)
    names_in_file = {name_in_file(name): name for name in here}
    if set(tensors) != set(names_in_file):
        unmatched = sorted(set(tensors) ^ set(names_in_file))
        raise ConfigError(
            f"the adapter in {str(path)!r} is of another model or of other layers: "
            f"{len(unmatched)} of its matrices and of this model's have no counterpart, such as "
            f"{unmatched[0]}"
        )
    for name, name_here in names_in_file.items():
        if tensors[name].shape != here[name_here].shape:
            raise ConfigError(
                f"the adapter in {str(path)!r} is of another model or rank: {name} is "
                f"{list(tensors[name].shape)}, here {list(here[name_here].shape)}"
            )
    _refuse_other_base(model, path)
    with torch.no_grad():
        for name, name_here in names_in_file.items():
            write(here[name_here], tensors[name])


def merge_saved_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Add a saved adapter to the weights of its base model, in place.

    Raises:
        ConfigError: the adapter is of another model.
    """
    config = _saved(folder / CONFIG_FILE, SavedSettings)
    targets = config.target_modules
    settings = LoraConfig(
        rank=config.r,
        alpha=_scale(config, folder) * config.r,
        targets=targets if isinstance(targets, str) else ",".join(sorted(targets)),
        adapter=str(folder),
    )
    add_adapter(model, settings)
    from peft.tuners.lora import LoraLayer  # pyright: ignore[reportMissingImports]

    # A list, because modules are replaced inside the loop.
    for name, layer in list(model.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, layer.get_base_layer())
    delattr(model, MARK)
    del model.peft_config
    model.requires_grad_(True)


def base_of(folder: Path) -> str:
    """Return the base model that a saved adapter names.

    Raises:
        ConfigError: the adapter names none, or its settings cannot be read.
    """
    base = _saved(folder / CONFIG_FILE, SavedSettings).base_model_name_or_path
    if not base:
        raise ConfigError(
            f"the adapter in {str(folder)!r} does not name its base model; add "
            f"base_model_name_or_path to its {CONFIG_FILE}"
        )
    return base


def fingerprint(model: PreTrainedModel) -> str:
    """Return a digest of names, shapes and some entries of a model's weights, which differs between
    two fine-tuned versions of the same architecture.
    """
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        # Rounded to bfloat16, so that a model has one fingerprint in float32 and in bfloat16.
        entries = flat[:: max(1, len(flat) // SAMPLED)][:SAMPLED].to("cpu", torch.bfloat16)
        digest.update(f"{name} {list(parameter.shape)} ".encode())
        digest.update(entries.view(torch.int16).numpy().tobytes())  # numpy has no bfloat16
    return digest.hexdigest()[:16]


def _refuse_other_base(model: PreTrainedModel, path: Path) -> None:
    written = path / BASE_FILE
    # An adapter that peft wrote has no such file, and `load_adapter` has compared names and shapes.
    if not written.is_file():
        return
    base = _saved(written, SavedBase)
    here = base_below(model)
    if base.fingerprint != here.fingerprint:
        raise ConfigError(
            f"the adapter in {str(path)!r} was trained on {base.path or 'another model'!r} "
            f"(weights {base.fingerprint}), and this model, {here.path or 'of the same shape'!r}"
            f", has other weights ({here.fingerprint}); load the adapter with its own base model"
        )


_Saved = TypeVar("_Saved", bound=msgspec.Struct)


def _saved(file: Path, as_type: type[_Saved]) -> _Saved:
    """Read a file of an adapter's folder.

    Raises:
        ConfigError: it is missing, no JSON, or lacks what is needed.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=as_type)
    except OSError as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{str(file)!r} says nothing of an adapter: {error}; save the adapter again"
        ) from None


def _scale(config: SavedSettings, folder: Path) -> float:
    """Return the factor s of a saved adapter's matrices, by which `W x + s B A x` is computed.

    Raises:
        ConfigError: the layers of the adapter differ in it.
    """
    if config.alpha_pattern:
        raise ConfigError(
            f"the adapter in {str(folder)!r} has an alpha for each layer (alpha_pattern), which is "
            "not supported; merge it with peft"
        )
    # Rank-stabilised LoRA, arXiv 2312.03732, divides by the root of the rank.
    return config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r)


def _refuse_other_scale(config: LoraConfig) -> None:
    """Refuse an adapter whose matrices these settings would multiply by another factor than in its
    training: the run would start from another model than the one that was trained.
    """
    folder = Path(config.adapter)
    if not (folder / CONFIG_FILE).is_file():
        return
    trained = _scale(_saved(folder / CONFIG_FILE, SavedSettings), folder)
    here = (config.alpha or 2 * config.rank) / config.rank
    # Looser than the six digits of the message, so that the factor it asks for is taken.
    if not math.isclose(trained, here, rel_tol=1e-5):
        raise ConfigError(
            f"the adapter in {config.adapter!r} was trained with the factor {trained:g}, and "
            f"trainer.lora.alpha = {here * config.rank:g} by rank {config.rank} gives {here:g}; "
            f"set trainer.lora.alpha = {trained * config.rank:g}"
        )


def _targets(model: PreTrainedModel, wanted: str) -> list[str]:
    """Return the names of the linear layers to adapt, in the form that peft takes.

    peft adapts every layer of the model whose path ends with a given name. Short names such as
    "q_proj" are returned if only decoder layers have them. If another part of the model, such as a
    vision tower, has them too, the full paths of the decoder's layers are returned.
    """
    layers = decoder_layers(model)
    inside = {
        name.rpartition(".")[2]
        for name, module in layers.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    chosen = inside if wanted == "all" else {name.strip() for name in wanted.split(",")}
    if unknown := sorted(chosen - inside):
        raise ConfigError(
            f"trainer.lora.targets names {', '.join(unknown)}; the linear layers of this model "
            f"are {', '.join(sorted(inside))}, or all"
        )
    of_decoder = {id(module) for module in layers.modules()}
    linear = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    named = [(name, module) for name, module in linear if name.rpartition(".")[2] in chosen]
    if all(id(module) in of_decoder for _, module in named):
        return sorted(chosen)
    return [name for name, module in named if id(module) in of_decoder]


def _below(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the frozen weights by their names in the model with an adapter."""
    for name, parameter in model.named_parameters():
        if not _is_adapter(name):
            yield name, parameter.detach()


def plain_name(name: str) -> str:
    """Return the name that a frozen weight has in the model without adapter.

    >>> plain_name("model.layers.0.mlp.up_proj.base_layer.weight")
    'model.layers.0.mlp.up_proj.weight'
    """
    return name.replace(BELOW, "")


def _is_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def name_in_file(name: str) -> str:
    """Return the name of a matrix in peft's files.

    >>> name_in_file("model.layers.0.mlp.up_proj.lora_A.default.weight")
    'base_model.model.model.layers.0.mlp.up_proj.lora_A.weight'
    """
    return PEFT_PREFIX + name.replace(f".{NAME}.", ".")
