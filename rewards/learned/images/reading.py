"""Reads the image and the prompt of a sample.

An image travels as bytes (base64 in JSON), as a `data:` URL, or as a `file:` URL of a path below a
folder that whoever serves the verifier has allowed. No other URL is read: ludus fetches nothing
that a request names.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from ludus.messages import ImagePart, Message, Role
from ludus.user_paths import user_path

from ...protocol import Sample
from .pixels import BadImage, ImageLimits

MAX_PROMPT = 100_000
"""Characters of a prompt; every model here reads only its first words."""


class BadPrompt(BadImage):
    """A prompt that cannot be compared with an image: no text, empty or too long."""


def prompt_of(sample: Sample, *, needed: bool = True) -> str:
    """Return the text of `sample.prompt`, or of the last user message of a conversation.

    Raises:
        BadPrompt: the prompt is not text, empty though `needed`, or longer than 100,000 characters.
    """
    prompt: object = sample.prompt
    if isinstance(prompt, list):
        messages = [
            message
            for message in prompt
            if isinstance(message, Message) and message.role is Role.USER
        ]
        prompt = messages[-1].text if messages else ""
    if not isinstance(prompt, str):
        raise BadPrompt(f"the prompt must be text, got {type(prompt).__name__}")
    if needed and not prompt.strip():
        raise BadPrompt("the prompt is empty: there is nothing to compare the image with")
    if len(prompt) > MAX_PROMPT:
        raise BadPrompt(f"the prompt has {len(prompt)} characters; at most {MAX_PROMPT} are read")
    return prompt


def image_of(sample: Sample) -> ImagePart:
    """Return the only image of `sample.images`, or else of the response's last assistant message.

    Raises:
        BadImage: the sample has no image, or several.
    """
    images = list(sample.images)
    if not images and isinstance(sample.response, list):
        messages = [message for message in sample.response if message.role is Role.ASSISTANT]
        images = messages[-1].images if messages else []
    if len(images) != 1:
        raise BadImage(f"a sample needs exactly one image, got {len(images)}; send one sample each")
    return images[0]


def read_image(part: ImagePart, limits: ImageLimits, *, root: str = "") -> bytes:
    """Return the encoded bytes of an image, at most `limits.max_bytes` where a file is read.

    Args:
        part: bytes, a `data:` URL or a `file:` URL.
        limits: the bound on the number of bytes.
        root: the folder below which files may be read. Paths are relative to this folder, or
            absolute and below it; "" allows no path.

    Raises:
        BadImage: the part is empty, a URL of another kind, or a path that may not be read.
    """
    if part.data and part.url:
        raise BadImage("an image has bytes or a URL, not both")
    if part.data:
        return bytes(part.data)
    if not part.url:
        raise BadImage("an image needs bytes or a URL, and has neither")
    scheme, _, tail = part.url.partition(":")
    match scheme.lower():
        case "data":
            kind, comma, data = tail.partition(",")
            if not comma:
                raise BadImage("a data: URL without a comma holds no data")
            if len(data) > 2 * limits.max_bytes:
                raise BadImage(f"the data: URL is longer than {2 * limits.max_bytes} characters")
            if not kind.lower().endswith(";base64"):
                return unquote_to_bytes(data)
            try:
                return base64.b64decode(unquote(data), validate=True)
            except (binascii.Error, ValueError) as error:
                raise BadImage(f"the data: URL is not base64: {error}") from None
        case "file":
            url = part.url
            parts = urlsplit(url)
            if parts.netloc not in ("", "localhost"):
                raise BadImage(
                    f"{url[:80]!r} names the host {parts.netloc!r}; only local files are read"
                )
            return _read_file(
                unquote(
                    url.partition(":")[2]
                    if not parts.netloc and "//" not in url[:8]
                    else parts.path
                ),
                limits,
                root,
            )
        case _:
            raise BadImage(
                f"no image is read from {part.url[:80]!r}, since ludus fetches no URL; send "
                "the bytes, a data: URL, or file:PATH below the server's image_root"
            )


def _read_file(path: str, limits: ImageLimits, root: str) -> bytes:
    """Return the bytes of a regular file below `root`, after all links are followed."""
    if not root:
        raise BadImage(
            "no path is read: the verifier was built without image_root, the folder to allow"
        )
    if "\0" in path:
        raise BadImage("a path cannot hold a NUL character")
    allowed = user_path(root).resolve()
    try:
        # Resolved and compared before anything is opened, so that no error tells whether a file
        # outside the folder exists.
        real = (allowed / path).resolve()
        if not real.is_relative_to(allowed):
            raise BadImage(f"the path {path!r} leads out of the allowed folder")
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        problem = error.strerror if isinstance(error, OSError) else "a loop of links"
        raise BadImage(f"the path {path!r} cannot be read below image_root: {problem}") from None
    try:
        # The opened file is checked once more, since a folder on the way may have become a link
        # since the path was resolved.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadImage(f"the path {path!r} is not a regular file")
        link = Path(f"/proc/self/fd/{descriptor}")
        if link.exists() and not Path(os.readlink(link)).is_relative_to(allowed):
            raise BadImage(f"the path {path!r} leads out of the allowed folder")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limits.max_bytes + 1)
    except OSError as error:
        raise BadImage(f"the path {path!r} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > limits.max_bytes:
        raise BadImage(f"the file {path!r} has more than {limits.max_bytes} bytes")
    return data
