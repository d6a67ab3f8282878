"""A vision model as judge of images: the rubric judge, whose questions carry the image."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from typing import Any

from ludus.errors import RewardUnavailable
from ludus.messages import ImagePart
from ludus.verdict import Verdict

from ...judge import RubricJudge
from ...judge.prompt import JudgeData
from ...protocol import Sample
from .pixels import BadImage, Image, ImageLimits, decode_image
from .reading import image_of, prompt_of, read_image


class VisionJudge(RubricJudge):
    """Scores an image by a rubric that a vision model reads, over an OpenAI-compatible server.

    The rubric comes as for `judge`. The model sees the image, the prompt and one criterion; what is
    written inside the image is data like everything else. The image is decoded here within bounds,
    made smaller, and sent as PNG without its metadata.

    Args:
        image_root: the folder below which images may be named by path; "" allows none.
        max_side: longer sides are reduced to so many pixels before the image is sent.
        max_pixels: the most pixels of one image, before any resizing.
        options: the options of `judge`: rubric, base_url, model, mode, and so on.

    Raises:
        ConfigError: as `RubricJudge`.
    """

    never_blocks = False
    """Decoding a large image takes longer than an event loop can spare."""

    def __init__(
        self,
        *,
        image_root: str = "",
        max_side: int = 1024,
        max_pixels: int = ImageLimits().max_pixels,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.image_root = image_root
        self.max_side = max_side
        self.limits = ImageLimits(max_pixels=max_pixels)

    async def score(self, sample: Sample) -> Verdict:
        """Judge the image of `sample`."""
        try:
            return await super().score(sample)
        except RewardUnavailable as error:
            return error.verdict

    def nothing_to_grade(self, sample: Sample) -> str:
        """An image always needs the judge."""
        return ""

    async def data_of(self, sample: Sample) -> Mapping[str, str]:
        """Return the image, reduced to `max_side`, and the prompt that the image was made for.

        Raises:
            RewardUnavailable: with a verdict that is `invalid`, since the image cannot be used.
        """
        try:
            prompt = prompt_of(sample, needed=False)
            image = await asyncio.to_thread(self._reduced, sample)
        except BadImage as error:
            raise RewardUnavailable(Verdict.invalid(str(error))) from error
        data = JudgeData(question=prompt, response="the attached image")
        data.images = (ImagePart(data=image),)
        return data

    def _reduced(self, sample: Sample) -> bytes:
        encoded = read_image(image_of(sample), self.limits, root=self.image_root)
        image = decode_image(encoded, self.limits, upright=True).convert("RGB")
        image.thumbnail((self.max_side, self.max_side), Image.Resampling.BICUBIC)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()
