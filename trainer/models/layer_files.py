# pyright: basic
"""A model whose weights are read from safetensors files part by part.

Ranks hold a part of each weight. A whole copy would need more memory than a rank has, so that the
model is built without weights; a layer is filled, shared out over the ranks, and freed, before the
next is read.
"""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from ludus.errors import ConfigError

from .checkpoint import load_state
from .grouped_heads import share_keys
from .images import reads_images
from .model_paths import locate_model, refuse_shards, shards_alone
from .weight_files import CODES, header_of

SMALL_VOCABULARY = 64
PLAIN = "plain_names"
"""The key of the state of ranks that says whether files name each weight as the model does."""
TYPES = {code: getattr(torch, name) for name, code in CODES.items()}


class LayerFiles:
    """The safetensors files of a model.

    Args:
        folder: a transformers folder, or a checkpoint with the shards of ranks alone, whose weights
            follow when the learner is restored.
        plain: whether files of this model name each weight as the model does, for a checkpoint
            without such files.

    Raises:
        ConfigError: a file cannot be read, is cut off, or is no safetensors file.
    """

    def __init__(self, folder: Path, *, plain: bool = True) -> None:
        self.folder, self.plain = folder, plain
        self._filled = not shards_alone(folder)
        """Whether there are files to read weights from."""
        self._places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        """The file of each tensor, where the data of that file begin, and its entry there."""
        for path in sorted(folder.glob("*.safetensors")):
            header, begin = header_of(path)
            self._places |= {name: (path, begin, entry) for name, entry in header.items()}

    def outline(self) -> Any:
        """Return the model with its buffers and without weights, which are on the device `meta`;
        None where the files do not name each weight as the model does.
        """
        config = AutoConfig.from_pretrained(self.folder)
        if reads_images(config):
            return None
        with weights_on_meta():
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, attn_implementation="sdpa"
            )
        share_keys(model)
        if (self.folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(self.folder)
        if not self._filled:
            return model
        for name, buffer in model.state_dict().items():  # parameters are on `meta`
            if not buffer.is_meta and name in self._places:
                buffer.copy_(self._read(name))
        shapes = {name: entry["shape"] for name, (_, _, entry) in self._places.items()}
        same = all(shapes.get(name) == [*weight.shape] for name, weight in model.named_parameters())
        return model if same else None

    def fill(self, part: nn.Module, names: dict[int, str]) -> None:
        """Read the weights of a module that are on `meta`, in float32; tied weights stay tied.

        Args:
            part: a module of the model.
            names: the name of each weight of the model by its id.
        """
        filled: dict[int, nn.Parameter] = {}
        for owner in part.modules():
            for name, weight in owner.named_parameters(recurse=False):
                if not weight.is_meta or id(weight) not in names:
                    continue
                if id(weight) not in filled:
                    tensor = (
                        self._read(names[id(weight)]).float()
                        if self._filled
                        else torch.zeros(weight.shape)
                    )
                    filled[id(weight)] = nn.Parameter(tensor, requires_grad=weight.requires_grad)
                setattr(owner, name, filled[id(weight)])

    def _read(self, name: str) -> Tensor:
        path, begin, entry = self._places[name]
        first, last = entry["data_offsets"]
        data = bytearray(last - first)
        with path.open("rb") as file:
            file.seek(begin + first)
            if file.readinto(data) != len(data):
                raise ConfigError(f"{str(path)!r} ends within weight {name!r}; copy it again")
        if (kind := TYPES.get(entry["dtype"])) is None:
            raise ConfigError(f"{str(path)!r} holds weights of type {entry['dtype']!r}")
        return torch.frombuffer(data, dtype=kind).reshape(entry["shape"])


def layer_files(path: str | Path, *, resumed: bool = False) -> LayerFiles | None:
    """Return the files of a model that can be read part by part; None for others, such as GGUF.

    Args:
        path: whatever `locate_model` knows.
        resumed: whether the weights follow when the learner is restored from the same folder.

    Raises:
        ConfigError: the folder holds shards alone, and no weights follow, or a file is damaged.
    """
    folder = Path(locate_model(path))
    if not resumed:
        refuse_shards(folder)
    elif shards_alone(folder):
        return LayerFiles(folder, plain=bool(load_state(folder)["learner"].get(PLAIN)))
    return LayerFiles(folder) if any(folder.glob("*.safetensors")) else None


@contextmanager
def weights_on_meta() -> Generator[None]:
    """Register parameters on the device `meta` inside the block; buffers are computed."""
    register = nn.Module.register_parameter

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:  # a tied one is there already
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = registered  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def miniature(config: Any) -> Any:
    """Return a model of the same kind with a single layer, few words and random weights, for what
    can be found out without the weights.
    """
    small = copy.deepcopy(config)
    text = small.get_text_config()
    text.num_hidden_layers, text.vocab_size, text.pad_token_id = 1, SMALL_VOCABULARY, 0
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:1]
    model = AutoModelForCausalLM.from_config(small, attn_implementation="sdpa")
    return share_keys(model.eval())
