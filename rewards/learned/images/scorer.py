"""The base class of image reward models, which prepares inputs, scores batches, ranks, and gives
gradients and a card.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ludus.errors import ConfigError

from .pixels import Image, Pixels


@dataclass(frozen=True)
class ModelInput:
    """An image and a text as inputs of a model: pixels and token ids."""

    pixels: Pixels
    """[3, size, size], normalised."""
    tokens: tuple[int, ...]
    """Token ids without padding; empty for a model that reads no text."""


@dataclass(frozen=True)
class Ranking:
    """The ranks and rewards of several images of the same prompt."""

    ranks: list[int]
    """The rank of each image, 1 for the best; equal rewards keep the order of the images."""
    rewards: list[float]


class ImageScorer(nn.Module, ABC):
    """A model that gives a reward to an image, in most models for a given text.

    A subclass defines `pixels_of`, `tokens_of` and `forward`.
    """

    preprocessing: ClassVar[str]
    """Description, for a person, of the preprocessing of an image and a text."""
    reads_text: ClassVar[bool] = True
    weights: dict[str, str]
    """Digest of each file the model was loaded from, by the option that names it."""

    @abstractmethod
    def pixels_of(self, image: Image.Image) -> Pixels:
        """Return the preprocessed image, float32 [3, size, size]."""
        ...

    @abstractmethod
    def tokens_of(self, prompt: str) -> tuple[int, ...]:
        """Return the token ids of a text, cut to the model's length."""
        ...

    @abstractmethod
    def forward(self, tokens: Tensor, mask: Tensor, pixels: Tensor) -> Tensor:
        """Return rewards, differentiable in all inputs that are not integers.

        Args:
            tokens: [n, length], padded.
            mask: [n, length], 1 for a token and 0 for padding.
            pixels: [n, 3, size, size], normalised.

        Returns:
            [n], float32.
        """
        ...

    def prepare(self, image: Image.Image, prompt: str) -> ModelInput:
        """Preprocess an image and a text; safe to call from several threads at once."""
        return ModelInput(self.pixels_of(image), self._tokens_read(prompt))

    def _tokens_read(self, prompt: str) -> tuple[int, ...]:
        """Return the token ids of a text; none for a model that reads no text."""
        return self.tokens_of(prompt) if self.reads_text else ()

    def score_inputs(self, inputs: Sequence[ModelInput]) -> list[float]:
        """Return the rewards of a batch of prepared inputs, in order."""
        tokens, mask = self.padded([item.tokens for item in inputs])
        pixels = torch.stack([torch.from_numpy(item.pixels) for item in inputs])
        with torch.inference_mode():
            rewards = self(tokens, mask, pixels.to(self.device, self.dtype))
        return cast(list[float], rewards.float().cpu().tolist())

    def score(self, prompt: str, image: Image.Image) -> float:
        """Return the reward of a single image for `prompt`."""
        return self.score_inputs([self.prepare(image, prompt)])[0]

    def rank(self, prompt: str, images: Sequence[Image.Image], *, batch: int = 16) -> Ranking:
        """Score several images of a prompt and rank the images, the best first.

        Raises:
            ConfigError: there are no images.
        """
        if not images:
            raise ConfigError("rank needs at least one image")
        inputs = [self.prepare(image, prompt) for image in images]
        rewards = [
            reward
            for start in range(0, len(inputs), batch)
            for reward in self.score_inputs(inputs[start : start + batch])
        ]
        order = sorted(range(len(rewards)), key=lambda index: -rewards[index])
        ranks = [0] * len(order)
        for rank, index in enumerate(order, start=1):
            ranks[index] = rank
        return Ranking(ranks, rewards)

    def rewards_of(self, prompts: Sequence[str], images: Tensor) -> Tensor:
        """Return differentiable rewards of images that are tensors, as ReFL needs.

        Args:
            prompts: one for each image.
            images: [n, 3, height, width] in [0, 1], such as a decoder gives; resized (bicubic,
                antialiased), cropped and normalised in torch, which differs from `score` by the
                rounding to 8 bits alone.

        Returns:
            [n], float32, with a graph.

        Raises:
            ConfigError: the images are of another shape, or not as many as the prompts.
        """
        if images.ndim != 4 or images.shape[1] != 3 or images.shape[0] != len(prompts):
            raise ConfigError(
                f"rewards_of needs {len(prompts)} images of shape [n, 3, height, width] for "
                f"{len(prompts)} prompts, got {list(images.shape)}"
            )
        tokens, mask = self.padded([self._tokens_read(prompt) for prompt in prompts])
        pixels = self.tensor_pixels(images.to(self.device, torch.float32))
        return cast(Tensor, self(tokens, mask, pixels.to(self.dtype)))

    @abstractmethod
    def tensor_pixels(self, images: Tensor) -> Tensor:
        """Preprocess a batch of tensors in [0, 1] as `pixels_of` does an image, differentiably."""
        ...

    def padded(self, rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Pad rows of token ids on the right; return ids and mask, [n, longest length] each."""
        length = max(map(len, rows), default=0)
        tokens = [[*row, *[self.padding] * (length - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        shape = (len(rows), length)
        return (
            torch.tensor(tokens, dtype=torch.long, device=self.device).reshape(shape),
            torch.tensor(mask, dtype=torch.long, device=self.device).reshape(shape),
        )

    @property
    def padding(self) -> int:
        """The token id that fills shorter texts."""
        return 0

    @property
    def device(self) -> torch.device:
        """The torch device that holds the weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The torch type in which the encoders compute."""
        return next(self.parameters()).dtype

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the weights take."""
        tensors = [*self.parameters(), *self.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def card(self) -> dict[str, Any]:
        """Return what identifies the scorer: model, weights, preprocessing and dtype."""
        return {
            "model": type(self).__name__,
            "weights": dict(self.weights),
            "parameters": sum(tensor.numel() for tensor in self.parameters()),
            "preprocessing": self.preprocessing,
            "dtype": str(self.dtype).removeprefix("torch."),
        }


def affine_head(width: int) -> nn.Sequential:
    """Return the head of ImageReward and of the aesthetic predictor: width -> 1024 -> 128 -> 64 ->
    16 -> 1, without activations. The dropouts do nothing when scoring; with them the layers have
    the numbers by which the checkpoints name the tensors.
    """
    return nn.Sequential(
        nn.Linear(width, 1024),
        nn.Dropout(0.2),
        nn.Linear(1024, 128),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.Dropout(0.1),
        nn.Linear(64, 16),
        nn.Linear(16, 1),
    )


def shorter_side_crop(images: Tensor, size: int) -> Tensor:
    """Resize the shorter side of a batch to `size` (bicubic, antialiased) and crop the centre."""
    height, width = images.shape[-2:]
    if width <= height:
        target = (int(size * height / width), size)
    else:
        target = (size, int(size * width / height))
    resized = resized_bicubic(images, target)
    top, left = round((target[0] - size) / 2.0), round((target[1] - size) / 2.0)
    return resized[..., top : top + size, left : left + size]


def resized_bicubic(images: Tensor, target: tuple[int, int], *, antialias: bool = True) -> Tensor:
    """Resize a batch [n, 3, height, width] to the target (height, width), bicubically."""
    return nn.functional.interpolate(
        images, target, mode="bicubic", align_corners=False, antialias=antialias
    )


def normalised(images: Tensor) -> Tensor:
    """Subtract CLIP's mean and divide by CLIP's standard deviation, channel by channel."""
    from .pixels import MEAN, STD

    mean, std = (images.new_tensor(channel_values)[:, None, None] for channel_values in (MEAN, STD))
    return (images - mean) / std
