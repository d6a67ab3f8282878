"""Images inside token ids: the place and the number of each image's tokens.

A chat template writes one placeholder for an image. The placeholder is repeated until the text has
a token for each feature that the model's vision tower makes of the image; the ids are then encoded
as any other text. The pixels themselves stay outside: a `PlacedImage` names the bytes and the
tokens that stand for them, and travels beside the ids to the engine and to the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ludus.errors import ConfigError, LudusError
from ludus.messages import ImagePart, Message, TextPart

ESTIMATED_TOKENS = 500
"""Tokens that an image is taken for where a conversation is measured without the model."""


class ImageRefused(LudusError, ValueError):
    """An image that cannot be shown to a model: unreadable, or beyond the bounds on images."""


class PlacedImage(msgspec.Struct, frozen=True):
    """An image together with the tokens that stand for the image."""

    image: ImagePart
    start: int
    """Index of the first token, in the ids that the list of placed images belongs to."""
    tokens: int
    """How many tokens stand for the image, all with the model's placeholder id."""

    @property
    def end(self) -> int:
        """The index after the last token."""
        return self.start + self.tokens

    def moved(self, offset: int) -> PlacedImage:
        """Return the same image with `offset` tokens more before the image."""
        return PlacedImage(self.image, self.start + offset, self.tokens)


class ImageFormat(Protocol):
    """The facts about a model that reads images which a chat format needs."""

    @property
    def placeholder(self) -> str:
        """The special token that the template writes where an image stands."""
        ...

    @property
    def token_id(self) -> int:
        """The id of the placeholder."""
        ...

    def tokens(self, image: ImagePart) -> int:
        """Return how many tokens stand for an image.

        Raises:
            ImageRefused: the image is unreadable or beyond the bounds.
        """
        ...


def refuse_unseen(
    images: ImageFormat | None, env_id: str, *, declared: bool, opening: Sequence[Message]
) -> None:
    """Refuse an environment that shows images to a model that reads none.

    Args:
        images: how the model's chat format shows images; None for a model that reads none.
        env_id: the environment, for the message.
        declared: whether the environment's briefing says that observations may hold images.
        opening: the messages that begin an episode.

    Raises:
        ConfigError: the model would not see what it is shown.
    """
    if images is not None or not (declared or images_of(opening)):
        return
    raise ConfigError(
        f"{env_id} shows images, and this model reads text alone: every picture would be lost; "
        "take a model with a vision tower of the Qwen-VL shape (for ludus sft, --model.path tiny "
        "makes one), or an environment without images"
    )


def images_of(messages: Sequence[Message]) -> list[ImagePart]:
    """Return the images of a conversation, in order."""
    return [image for message in messages for image in message.images]


def refuse_images(messages: Sequence[Message]) -> None:
    """Refuse a conversation that shows images, on behalf of a model that reads none.

    Raises:
        ConfigError: with the number of images.
    """
    if images := images_of(messages):
        raise ConfigError(
            f"a conversation shows {len(images)} images to a model that reads none; take a model "
            "with a vision tower, or an environment that shows text alone"
        )


def template_content(message: Message) -> str | list[dict[str, str]]:
    """Return a message's content in the form that chat templates read: text, or parts where the
    message shows images, since many templates take nothing but text.
    """
    if isinstance(message.content, str) or not message.images:
        return message.text
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
        for part in message.content
    ]


def expand(rendered: str, messages: Sequence[Message], images: ImageFormat | None) -> str:
    """Repeat the placeholder of each image in a rendered conversation.

    Args:
        rendered: the text of the template, in which only images wrote a placeholder.
        messages: the conversation, which passed `refuse_images`.
        images: the image format of the model; None for a model without images.

    Raises:
        ConfigError: the template did not write a placeholder for each image.
        ImageRefused: an image cannot be shown.
    """
    new_images = images_of(messages)
    if not new_images or images is None:
        return rendered
    first, *texts = rendered.split(images.placeholder)
    if len(texts) != len(new_images):
        roles = sorted({str(message.role) for message in messages if message.images})
        raise ConfigError(
            f"the chat template wrote {len(texts)} placeholders {images.placeholder} for "
            f"{len(new_images)} images in messages of {', '.join(roles)}: the model would not see "
            "what it is shown; take a template that renders images in these messages"
        )
    parts = [first]
    for image, text in zip(new_images, texts, strict=True):
        parts += [images.placeholder * images.tokens(image), text]
    return "".join(parts)


def placed(
    ids: Sequence[int], messages: Sequence[Message], images: ImageFormat | None
) -> list[PlacedImage]:
    """Return where the images of `messages` stand in the ids that `messages` were rendered to."""
    new_images = images_of(messages)
    if not new_images or not ids or images is None:
        return []
    placed_images: list[PlacedImage] = []
    position = -1
    for image in new_images:
        position = ids.index(images.token_id, position + 1)
        placed_images.append(PlacedImage(image, position, images.tokens(image)))
        position = placed_images[-1].end - 1
    return placed_images
