"""The base class of verifiers that score images. A scorer of your own is a subclass:

@ludus.verifier("me/brightness")
class Brightness(ImageVerifier):
    '''The mean brightness of an image, in [0, 1].'''

    needs_prompt = False

    def score_images(self, images):
        return [np.asarray(one.image.convert("L")).mean() / 255 for one in images]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.errors import RewardUnavailable
from ludus.verdict import Verdict

from ...protocol import Sample
from ..batching import MAX_BATCH, MAX_WAIT_MS
from .pixels import BadImage, Image, ImageLimits, decode_image
from .reading import image_of, prompt_of, read_image


@dataclass(frozen=True)
class PreparedImage:
    """An image and a prompt that are ready to be scored in a batch."""

    image: Image.Image
    prompt: str


class ImageVerifier(ABC):
    """A verifier that scores images in batches. A subclass defines `score_images`, and may define
    `prepare_image` too.

    A sample has one image, in `images` or in its response's last assistant message, and its text in
    `prompt`. An image or prompt that cannot be used makes the verdict `invalid`.

    Args:
        image_root: the folder below which images may be named by path (`file:cats/1.png`); ""
            allows no path.
        max_pixels: the most pixels of one image.
        upright: turns images as their EXIF orientation says.
        max_batch: images in one call of `score_images`, at most.
        max_wait_ms: how long the first image of a batch waits for others.

    Raises:
        ConfigError: a bound is not positive.
    """

    needs_prompt = True
    """Whether an empty prompt makes a sample `invalid`."""

    def __init__(
        self,
        *,
        image_root: str = "",
        max_pixels: int = ImageLimits().max_pixels,
        upright: bool = False,
        max_batch: int = MAX_BATCH,
        max_wait_ms: float = MAX_WAIT_MS,
    ) -> None:
        self.image_root = image_root
        self.limits = ImageLimits(max_pixels=max_pixels)
        self.upright = upright
        self.max_batch = max_batch
        self.max_wait_ms = max_wait_ms

    @abstractmethod
    def score_images(self, images: Sequence[Any]) -> Sequence[float]:
        """Return a number for each prepared image, in order."""
        ...

    def prepare_image(self, image: Image.Image, prompt: str) -> object:
        """Return what `score_images` is given for an image, such as an array of pixels.

        Several threads call this method at once, while a batch is scored; it must change no state.
        """
        return PreparedImage(image, prompt)

    def prepare(self, sample: Sample) -> object:
        """Read, decode and prepare the image of `sample`.

        Raises:
            RewardUnavailable: with a verdict that is `invalid`, since the sample cannot be used.
        """
        try:
            prompt = prompt_of(sample, needed=self.needs_prompt)
            data = read_image(image_of(sample), self.limits, root=self.image_root)
            image = decode_image(data, self.limits, upright=self.upright)
        except BadImage as error:
            raise RewardUnavailable(Verdict.invalid(str(error))) from error
        return self.prepare_image(image, prompt)

    def score_batch(self, images: Sequence[Any], /) -> Sequence[Verdict | float]:
        """Score a batch of prepared images, in order."""
        return self.score_images(images)
