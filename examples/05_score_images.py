"""An image scorer of your own, batched and served like those that ludus ships.

python examples/05_score_images.py
ludus --import examples/05_score_images.py serve example/colourful --port 8765
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

import ludus
from ludus.rewards.learned.images import ImageVerifier


@ludus.verifier("example/colourful")
class Colourful(ImageVerifier):
    """How colourful an image is: the mean deviation of its channels from grey, in [0, 1]."""

    needs_prompt = False
    max_batch = 32

    def prepare_image(self, image: Image.Image, prompt: str) -> np.ndarray:
        """Runs on several threads, while another batch is scored."""
        return np.asarray(image.convert("RGB").resize((64, 64)), dtype=np.float32) / 255

    def score_images(self, images: Sequence[np.ndarray]) -> list[float]:
        """Runs on one thread, for all images that wait: here a model would see them."""
        pixels = np.stack(images)
        grey = pixels.mean(axis=-1, keepdims=True)
        return [float(score) for score in np.abs(pixels - grey).mean(axis=(1, 2, 3))]


def main() -> None:
    """Score a red and a grey image, and something that is none."""
    for colour in ("red", "grey"):
        encoded = io.BytesIO()
        Image.new("RGB", (80, 60), colour).save(encoded, "PNG")
        print(colour, ludus.score("example/colourful", images=[encoded.getvalue()]).reward)
    refused = ludus.score("example/colourful", images=[b"no image"])
    print(refused.status, refused.reward, refused.detail)


if __name__ == "__main__":
    main()
