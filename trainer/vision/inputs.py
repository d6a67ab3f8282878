# pyright: basic
# mypy: disable-error-code="no-any-return"
"""Rows of ids with images, as the inputs of a decoder: embeddings, positions, deep features.

The vision tower turns an image into a feature for each of the image's tokens. The features replace
the embeddings of these tokens, and models with DeepStack (Qwen3-VL) add further features after
their first layers. Rotary positions have three axes (time, height, width); the model's own
`get_rope_index` computes these.

Which tokens are images is read from where the images were placed, not from the ids: a policy may
sample the placeholder's id itself, which is a token like any other and shows nothing.

Axes: B rows, T positions, Q new positions, N features of all distinct images, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ludus.agent.images import ImageRefused, PlacedImage

from .reader import ImageReader, Pixels, digest_of

TEXT = -1
"""Index of a position that shows no image."""


@dataclass(frozen=True, slots=True)
class RowImages:
    """What the images of some rows add to the ids."""

    features_ND: Tensor
    """Features of the distinct images, one after the other."""
    deep: tuple[Tensor, ...]
    """Features [N, D] that are added after the first, second ... layer; () without DeepStack."""
    index_BT: Tensor
    """The feature of each position, [B, T] int; -1 where no image is shown."""
    positions_3BT: Tensor
    """Rotary positions in time, height and width."""
    deltas_B: Tensor
    """What is added to the index of a later token to have its rotary position."""

    def at(self, positions_BQ: Tensor) -> RowImages:
        """Return the same for some positions of each row; positions past the end repeat the
        last.
        """
        chosen_BQ = positions_BQ.clamp(max=self.index_BT.shape[1] - 1)
        return RowImages(
            self.features_ND,
            self.deep,
            self.index_BT.gather(1, chosen_BQ),
            self.positions_3BT.gather(2, chosen_BQ.expand(3, -1, -1)),
            self.deltas_B,
        )


def see(
    model: PreTrainedModel,
    ids_BT: Tensor,
    images: Sequence[Sequence[PlacedImage]],
    reader: ImageReader,
    *,
    computed: Sequence[int] | None = None,
) -> RowImages:
    """Run the vision tower on the distinct images of some rows.

    Args:
        model: a model whose config passes `reads_images`.
        ids_BT: padded on the right.
        images: the images of each row, with positions in the row.
        reader: the model's image reader.
        computed: how many positions of each row need no features, because their keys are cached;
            0 everywhere by default.

    Raises:
        ImageRefused: an image is unreadable, or has another number of tokens than was placed.
    """
    device = ids_BT.device
    grids: list[Tensor] = []
    offsets: dict[bytes, int] = {}
    needed: list[Pixels] = []
    count = 0
    merge = int(model.config.vision_config.spatial_merge_size)
    index_BT = torch.full_like(ids_BT, TEXT)
    kinds_BT = torch.zeros_like(ids_BT)
    for row, shown in enumerate(images):
        for placed in shown:
            pixels, key = reader.pixels(placed.image), digest_of(placed.image)
            tokens = int(pixels.grid.prod()) // merge**2
            if tokens != placed.tokens:
                raise ImageRefused(
                    f"an image was placed as {placed.tokens} tokens and has {tokens} features: its "
                    "row was made with another image processor"
                )
            grids.append(pixels.grid)
            kinds_BT[row, placed.start : placed.end] = 1
            if computed is not None and placed.end <= computed[row]:
                continue
            if key not in offsets:
                offsets[key], count = count, count + tokens
                needed.append(pixels)
            first = offsets[key]
            index_BT[row, placed.start : placed.end] = torch.arange(first, first + tokens)
    decoder: Any = model.base_model  # its methods for images are the model's own
    positions_3BT, _ = decoder.get_rope_index(
        ids_BT,
        mm_token_type_ids=kinds_BT,
        image_grid_thw=torch.stack(grids).to(device) if grids else None,
    )
    lengths = ids_BT.shape[1]
    deltas_B = positions_3BT[:, :, -1].amax(0) + 1 - lengths
    features_ND, deep = _features(model, needed, device)
    return RowImages(features_ND, deep, index_BT, positions_3BT, deltas_B)


def last_hidden(
    model: PreTrainedModel,
    ids_BT: Tensor,
    images: Sequence[Sequence[PlacedImage]],
    reader: ImageReader | None,
) -> Tensor:
    """Return the last hidden states [B, T, D] of whole rows, without a cache.

    Args:
        model: a causal LM.
        ids_BT: padded on the right, which needs no mask: no token of a row reads the padding.
        images: the images of each row; () where no row shows any.
        reader: the model's image reader; None for a model that reads no images.

    Raises:
        ImageRefused: rows show images, and the model reads none.
    """
    if not any(images):
        return model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    if reader is None:
        raise ImageRefused("rows show images, and the model was loaded without an image processor")
    shown = see(model, ids_BT, images, reader)
    return decode_rows(model, ids_BT, shown, use_cache=False)


def _features(
    model: PreTrainedModel, needed: Sequence[Pixels], device: torch.device
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the features of images, one image after the other, and the deep ones."""
    if not needed:
        return torch.zeros(0, 0, device=device), ()
    decoder: Any = model.base_model
    features = decoder.get_image_features(
        torch.cat([item.values for item in needed]).to(device),
        torch.stack([item.grid for item in needed]).to(device),
        return_dict=True,
    )
    deep = getattr(features, "deepstack_features", None) or []
    return torch.cat(list(features.pooler_output)), tuple(torch.cat(list(item)) for item in deep)


def decode_rows(model: PreTrainedModel, ids_BQ: Tensor, shown: RowImages, **inputs: Any) -> Tensor:
    """Run the decoder on ids with images; returns the last hidden states [B, Q, D].

    Args:
        model: a causal LM with a vision tower.
        ids_BQ: the ids.
        shown: the images of these very positions.
        inputs: further inputs of the decoder, such as a cache.
    """
    embeds_BQD = model.get_input_embeddings()(ids_BQ)
    where_BQ = shown.index_BT != TEXT
    if bool(where_BQ.any()):
        picked = shown.index_BT[where_BQ]
        features = shown.features_ND[picked].to(embeds_BQD.dtype)
        embeds_BQD = embeds_BQD.masked_scatter(where_BQ.unsqueeze(2), features)
        if shown.deep:
            inputs["visual_pos_masks"] = where_BQ
            inputs["deepstack_visual_embeds"] = [deep_ND[picked] for deep_ND in shown.deep]
    decoder: Any = model.base_model
    return decoder.language_model(
        inputs_embeds=embeds_BQD, position_ids=shown.positions_3BT, **inputs
    ).last_hidden_state
